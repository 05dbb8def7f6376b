//! `erase`: carries out erasures.

use async_trait::async_trait;
use keepsake_core::{ErasureId, TenantId};
use serde_json::{Value, json};

use super::eraser::{ErasureAttempt, HELD_FOR, attempt};
use super::removal::{Selection, Step, remove_all};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::shared::Shared;

const ERASURES: u32 = 10;
/// Finishes, every minute, erasures that the receiving replica did not finish. The next
/// run resumes an interrupted erasure.
#[derive(Debug, Clone, Copy)]
pub struct Erase;

#[async_trait]
impl Job for Erase {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "erase", schedule: "40 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, _: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let mut open = OpenErasures { lease, done: 0, failed: 0 };
        remove_all(&mut open, lease).await?;
        Ok(json!({ "done": open.done, "failed": open.failed }))
    }
}

/// A failed attempt is recorded in the erasure; any other failure ends the run.
struct OpenErasures<'a> {
    lease: &'a Lease<'a>,
    done: u64,
    failed: u64,
}

impl Selection for OpenErasures<'_> {
    type Item = (TenantId, ErasureId);

    async fn page(&mut self, _: u32) -> Result<Vec<Self::Item>, EngineError> {
        let context = &self.lease.shared.context;
        Ok(context.index.erasures.open(context.now(), HELD_FOR, ERASURES).await?)
    }

    async fn batch(&mut self, &mut (tenant_id, erasure_id): &mut Self::Item) -> Result<Step, EngineError> {
        match attempt(self.lease, tenant_id, erasure_id).await? {
            ErasureAttempt::Done => self.done += 1,
            ErasureAttempt::Failed => self.failed += 1,
            ErasureAttempt::NotEnded => {}
            ErasureAttempt::Stopped => return Ok(Step::Stopped),
        }
        Ok(Step::Done)
    }
}
