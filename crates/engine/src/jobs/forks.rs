//! `fork`: continues copies of stores.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use serde_json::Value;

use super::turns::{LongWork, take_turns};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::forks::continue_fork;
use crate::long_work::Turn;
use crate::shared::Shared;

/// Continues, every minute, copies of stores that the receiving replica did not end.
#[derive(Debug, Clone, Copy)]
pub struct ContinueForks;

#[async_trait]
impl Job for ContinueForks {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "fork", schedule: "35 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        take_turns::<Self>(shared, lease).await
    }
}

impl LongWork for ContinueForks {
    type Key = (TenantId, StoreId);

    fn place(key: Self::Key) -> (TenantId, StoreId) {
        key
    }

    async fn open(shared: &Shared, tenants: u32) -> Result<Vec<Self::Key>, EngineError> {
        Ok(shared.context.index.forks.open(shared.context.now(), tenants).await?)
    }

    async fn turn(shared: &Shared, key: Self::Key) -> Result<Turn, EngineError> {
        continue_fork(shared, key).await
    }
}
