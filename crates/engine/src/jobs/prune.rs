//! `prune`: deletes rows that are no longer needed.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{TenantId, Timestamp};
use keepsake_index::{CallKey, Prunable};
use serde_json::{Value, json};

use super::{Job, JobServices, Lease};
use crate::EngineError;
use crate::idempotency::REMEMBERED_FOR;

const DAY: Duration = Duration::from_hours(24);
/// The time for which a call is recognised, plus a day for clock differences.
const CALLS_KEPT_FOR: Duration = Duration::from_secs(REMEMBERED_FOR.as_secs() + DAY.as_secs());
const RUNS_KEPT_FOR: Duration = Duration::from_hours(30 * 24);
/// Retention of a silent replica's row. A replica that returns within this time finds its
/// row unchanged.
const REPLICAS_KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Retention of sign-in codes: the cookie that redeems a code is valid for some minutes.
const CODES_KEPT_FOR: Duration = DAY;
/// Retention of session events, and of archived sessions.
const SESSIONS_KEPT_FOR: Duration = Duration::from_hours(30 * 24);

/// Rows deleted by age: rows of a session before the session.
const OLD: [(Prunable, Duration, &str); 7] = [
    (Prunable::JobRuns, RUNS_KEPT_FOR, "job_runs"),
    (Prunable::Replicas, REPLICAS_KEPT_FOR, "replicas"),
    (Prunable::RedeemedCodes, CODES_KEPT_FOR, "redeemed_codes"),
    (Prunable::SessionEvents, SESSIONS_KEPT_FOR, "session_events"),
    (Prunable::EventsOfEndedSessions, SESSIONS_KEPT_FOR, "session_events"),
    (Prunable::ResourcesOfEndedSessions, SESSIONS_KEPT_FOR, "session_resources"),
    (Prunable::EndedSessions, SESSIONS_KEPT_FOR, "sessions"),
];

/// Deletes, once a day, old records of idempotent calls, job runs, silent replicas,
/// sign-in codes, session events, ended sessions, old audit entries, and signing keys
/// without valid tokens.
#[derive(Debug, Clone, Copy)]
pub struct Prune {
    /// Rows of one batch, which is one transaction.
    pub batch: u32,
}

impl Default for Prune {
    fn default() -> Self {
        Self { batch: 1000 }
    }
}

#[async_trait]
impl Job for Prune {
    fn name(&self) -> &'static str {
        "prune"
    }

    /// Every ten minutes, so that an interrupted run is soon resumed.
    fn schedule(&self) -> &'static str {
        "30 7/10 * * * *"
    }

    fn period(&self) -> Duration {
        DAY
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, services: &JobServices, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut counts: BTreeMap<_, u64> = OLD.iter().map(|(_, _, name)| (*name, 0)).collect();
        let mut goes_on =
            self.prune_calls(services, lease, counts.entry("idempotency_records").or_default()).await?;
        for (what, kept_for, name) in OLD {
            if goes_on {
                let before = services.context.now().minus(kept_for);
                goes_on =
                    self.prune_rows(services, lease, what, before, counts.entry(name).or_default()).await?;
            }
        }
        let audit = counts.entry("audit_entries").or_default();
        if goes_on {
            let before = services.context.now().minus(services.audit_retention);
            goes_on = self.prune_rows(services, lease, Prunable::Audit, before, audit).await?;
        }
        let token_keys = if goes_on { services.tokens.drop_outlived_keys(lease.dry_run()).await? } else { 0 };
        counts.insert("token_keys", token_keys);
        Ok(json!(counts))
    }
}

impl Prune {
    /// Walks the call records by key, since no index orders them by age;
    /// `false`: the run must stop.
    async fn prune_calls(
        &self,
        services: &JobServices,
        lease: &Lease<'_>,
        pruned: &mut u64,
    ) -> Result<bool, EngineError> {
        let before = services.context.now().minus(CALLS_KEPT_FOR);
        let mut after = lease.cursor().await?.as_deref().and_then(key_of);
        loop {
            let upkeep = &services.context.index.upkeep;
            let batch = upkeep.prune_calls(after.as_ref(), before, self.batch, lease.dry_run()).await?;
            *pruned += batch.rows;
            after = batch.last;
            let cursor = after.as_ref().map(text_of);
            if !lease.renew(cursor.as_deref()).await? {
                return Ok(false);
            }
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    async fn prune_rows(
        &self,
        services: &JobServices,
        lease: &Lease<'_>,
        what: Prunable,
        before: Timestamp,
        pruned: &mut u64,
    ) -> Result<bool, EngineError> {
        loop {
            let upkeep = &services.context.index.upkeep;
            let rows = upkeep.prune(what, before, self.batch, lease.dry_run()).await?;
            *pruned += rows;
            if !lease.renew(None).await? {
                return Ok(false);
            }
            if lease.dry_run() || rows < u64::from(self.batch) {
                return Ok(true);
            }
        }
    }
}

/// The text does not reveal the request.
fn text_of((tenant_id, scope): &CallKey) -> String {
    format!("{tenant_id}/{}", hex::encode(scope))
}

fn key_of(text: &str) -> Option<CallKey> {
    let (tenant, scope_text) = text.split_once('/')?;
    let tenant_id: TenantId = tenant.parse().ok()?;
    let mut scope = [0; 32];
    hex::decode_to_slice(scope_text, &mut scope).ok()?;
    Some((tenant_id, scope))
}
