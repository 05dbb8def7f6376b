//! `undo`: continues undos in several commits.

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId};
use keepsake_index::UndoKey;
use serde_json::Value;

use super::turns::{LongWork, take_turns};
use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::long_work::Turn;
use crate::shared::Shared;
use crate::undo::{HELD_FOR, continue_undo};

/// Continues, every minute, undos that the receiving replica did not end.
#[derive(Debug, Clone, Copy)]
pub struct ContinueUndos;

#[async_trait]
impl Job for ContinueUndos {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "undo", schedule: "20 * * * * *", period: MINUTE, can_be_dry: false }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        take_turns::<Self>(shared, lease).await
    }
}

impl LongWork for ContinueUndos {
    type Key = UndoKey;

    fn place(key: UndoKey) -> (TenantId, StoreId) {
        (key.tenant_id, key.store_id)
    }

    async fn open(shared: &Shared, tenants: u32) -> Result<Vec<UndoKey>, EngineError> {
        Ok(shared.context.index.undo_jobs.open(shared.context.now(), HELD_FOR, tenants).await?)
    }

    async fn turn(shared: &Shared, key: UndoKey) -> Result<Turn, EngineError> {
        continue_undo(shared, key).await
    }
}
