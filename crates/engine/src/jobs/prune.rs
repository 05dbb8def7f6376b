//! `prune`: drops rows that nothing needs any more.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::TenantId;
use keepsake_index::{CallKey, Prunable};
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::idempotency::REMEMBERED_FOR;
use crate::{Engine, EngineError};

const DAY: Duration = Duration::from_hours(24);
/// How long a record of a call outlives its use: clocks may differ.
const CALLS_KEPT_FOR: Duration = Duration::from_secs(REMEMBERED_FOR.as_secs() + DAY.as_secs());
/// How long runs of jobs are kept.
const RUNS_KEPT_FOR: Duration = Duration::from_hours(30 * 24);
/// How long the change feed is: far longer than any replica goes without it.
const CHANGES_KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// How long a replica that fell silent may come back as it was.
const REPLICAS_KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// Drops, once a day, old records of idempotent calls, runs of jobs, entries of
/// the change feed, replicas that are no more, and keys that nothing alive was
/// signed with.
#[derive(Debug, Clone, Copy)]
pub struct Prune {
    /// Rows of one batch: one transaction.
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

    /// Each ten minutes, so that a run that was broken off is soon taken up.
    fn schedule(&self) -> &'static str {
        "30 7/10 * * * *"
    }

    fn period(&self) -> Duration {
        DAY
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut pruned = Pruned::default();
        let goes_on = self.prune_calls(engine, lease, &mut pruned).await?
            && self
                .prune_rows(
                    engine,
                    lease,
                    Prunable::JobRuns,
                    RUNS_KEPT_FOR,
                    &mut pruned.job_runs,
                )
                .await?
            && self
                .prune_rows(
                    engine,
                    lease,
                    Prunable::ChangeFeed,
                    CHANGES_KEPT_FOR,
                    &mut pruned.changes,
                )
                .await?
            && self
                .prune_rows(
                    engine,
                    lease,
                    Prunable::Replicas,
                    REPLICAS_KEPT_FOR,
                    &mut pruned.replicas,
                )
                .await?;
        if goes_on {
            pruned.token_keys = engine.drop_outlived_keys(lease.dry_run()).await?;
        }
        Ok(pruned.counts())
    }
}

/// What a run has dropped.
#[derive(Debug, Default)]
struct Pruned {
    calls: u64,
    job_runs: u64,
    changes: u64,
    replicas: u64,
    token_keys: u64,
}

impl Pruned {
    fn counts(&self) -> Value {
        json!({
            "idempotency_records": self.calls,
            "job_runs": self.job_runs,
            "changes": self.changes,
            "replicas": self.replicas,
            "token_keys": self.token_keys,
        })
    }
}

impl Prune {
    /// Walks the records of calls by their keys, since nothing orders them by
    /// age; `false`: the run is to stop.
    async fn prune_calls(
        &self,
        engine: &Engine,
        lease: &Lease<'_>,
        pruned: &mut Pruned,
    ) -> Result<bool, EngineError> {
        let before = engine.now().minus(CALLS_KEPT_FOR);
        let mut after = lease.cursor().await?.as_deref().and_then(key_of);
        loop {
            let batch = engine
                .0
                .index
                .prune_calls(after.as_ref(), before, self.batch, lease.dry_run())
                .await?;
            pruned.calls += batch.rows;
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
        engine: &Engine,
        lease: &Lease<'_>,
        what: Prunable,
        kept_for: Duration,
        pruned: &mut u64,
    ) -> Result<bool, EngineError> {
        let before = engine.now().minus(kept_for);
        loop {
            let index = &engine.0.index;
            let rows = index.prune(what, before, self.batch, lease.dry_run()).await?;
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

/// A call's key as a cursor holds it; it names no request.
fn text_of((tenant_id, scope): &CallKey) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{tenant_id}/");
    for byte in scope {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn key_of(text: &str) -> Option<CallKey> {
    let (tenant, hex) = text.split_once('/')?;
    let tenant_id: TenantId = tenant.parse().ok()?;
    let mut scope = [0; 32];
    for (position, byte) in scope.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * position..2 * position + 2)?, 16).ok()?;
    }
    Some((tenant_id, scope))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn key_survives_as_text() {
        let key = (
            TenantId::from_uuid(Uuid::from_u128(7)),
            std::array::from_fn(|at| u8::try_from(at).unwrap()),
        );
        assert_eq!(key_of(&text_of(&key)), Some(key));
        assert_eq!(key_of("no key"), None);
    }
}
