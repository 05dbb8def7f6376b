//! `prune`: deletes rows that are no longer needed.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::Timestamp;
use keepsake_index::Prunable;
use serde_json::{Value, json};

use super::{DAY, Job, JobPlan, Lease};
use crate::EngineError;
use crate::idempotency::REMEMBERED_FOR;
use crate::shared::Shared;
use crate::usage::DAYS_KEPT;

/// The time for which a call is recognised, plus a day for clock differences.
const CALLS_KEPT_FOR: Duration = Duration::from_secs(REMEMBERED_FOR.as_secs() + DAY.as_secs());
const RUNS_KEPT_FOR: Duration = Duration::from_hours(30 * 24);
/// Retention of a silent replica's row. A replica that returns within this time finds its
/// row unchanged. The row of the last one that served stays: lists of readers say that reads
/// from before its end may be missing.
const REPLICAS_KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Retention of sign-in codes: the cookie that redeems a code is valid for some minutes.
const CODES_KEPT_FOR: Duration = DAY;
/// Retention of session events, and of archived sessions.
const SESSIONS_KEPT_FOR: Duration = Duration::from_hours(30 * 24);

/// Retention of the report of an undo that has ended.
const UNDOS_KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Retention of the counts of the daily use.
const DAILY_USE_KEPT_FOR: Duration = Duration::from_hours(DAYS_KEPT * 24);

/// Rows deleted by age: rows of a session before the session, and those of an undo before the undo.
const OLD: [(Prunable, Duration, &str); 11] = [
    (Prunable::JobRuns, RUNS_KEPT_FOR, "job_runs"),
    (Prunable::Replicas, REPLICAS_KEPT_FOR, "replicas"),
    (Prunable::FlushedBatches, REPLICAS_KEPT_FOR, "flushed_batches"),
    (Prunable::RedeemedCodes, CODES_KEPT_FOR, "redeemed_codes"),
    (Prunable::SessionEvents, SESSIONS_KEPT_FOR, "session_events"),
    (Prunable::EventsOfEndedSessions, SESSIONS_KEPT_FOR, "session_events"),
    (Prunable::ResourcesOfEndedSessions, SESSIONS_KEPT_FOR, "session_resources"),
    (Prunable::EndedSessions, SESSIONS_KEPT_FOR, "sessions"),
    (Prunable::PartsOfEndedUndos, UNDOS_KEPT_FOR, "undo_parts"),
    (Prunable::EndedUndos, UNDOS_KEPT_FOR, "undos"),
    (Prunable::DailyUse, DAILY_USE_KEPT_FOR, "daily_use"),
];

/// Deletes, once a day, old records of idempotent calls, job runs, silent replicas and their flushes,
/// sign-in codes, session events, ended sessions, ended undos, counts of the daily use, old
/// audit entries, and signing keys without valid tokens.
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
    fn plan(&self) -> JobPlan {
        JobPlan { name: "prune", schedule: "30 7/10 * * * *", period: DAY, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let audit = (Prunable::Audit, shared.audit_retention, "audit_entries");
        let old = || OLD.into_iter().chain([audit]);
        let names = old().map(|(.., name)| name).chain(["idempotency_records", "token_keys"]);
        let mut counts: BTreeMap<_, u64> = names.map(|name| (name, 0)).collect();
        let mut goes_on =
            self.prune_calls(shared, lease, counts.entry("idempotency_records").or_default()).await?;
        for (what, kept_for, name) in old() {
            if goes_on {
                let (before, pruned) =
                    (shared.context.now().minus(kept_for), counts.entry(name).or_default());
                goes_on = self.prune_rows(shared, lease, what, before, pruned).await?;
            }
        }
        if goes_on {
            counts.insert("token_keys", shared.tokens.drop_outlived_keys(lease.dry_run()).await?);
        }
        Ok(json!(counts))
    }
}

impl Prune {
    /// Walks the call records by key, since no index orders them by age;
    /// `false`: the run must stop.
    async fn prune_calls(
        &self,
        shared: &Shared,
        lease: &Lease<'_>,
        pruned: &mut u64,
    ) -> Result<bool, EngineError> {
        let before = shared.context.now().minus(CALLS_KEPT_FOR);
        let mut after = lease.resumed_at().await?;
        loop {
            let upkeep = &shared.context.index.upkeep;
            let batch = upkeep.prune_calls(after.as_ref(), before, self.batch, lease.dry_run()).await?;
            *pruned += batch.rows;
            after = batch.last;
            if !lease.renew_at(after.as_ref()).await? {
                return Ok(false);
            }
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    async fn prune_rows(
        &self,
        shared: &Shared,
        lease: &Lease<'_>,
        what: Prunable,
        before: Timestamp,
        pruned: &mut u64,
    ) -> Result<bool, EngineError> {
        loop {
            let upkeep = &shared.context.index.upkeep;
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
