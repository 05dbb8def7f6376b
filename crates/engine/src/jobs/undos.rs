//! `undo`: continues undos in several commits.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::shared::Shared;
use crate::undo::carry_out_undo;

const UNDOS: u32 = 10;

/// Continues, every minute, undos that the receiving replica did not end.
#[derive(Debug, Clone, Copy)]
pub struct ContinueUndos;

#[async_trait]
impl Job for ContinueUndos {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "undo", schedule: "20 * * * * *", period: MINUTE, can_be_dry: false }
    }

    /// An undo that fails is held until the next runs.
    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let (mut continued, mut failed) = (0, 0);
        loop {
            let open = shared.context.index.undo_jobs.open(shared.context.now(), UNDOS).await?;
            if open.is_empty() {
                return Ok(json!({ "continued": continued, "failed": failed }));
            }
            for key in open {
                match carry_out_undo(shared, key).await {
                    Ok(true) => continued += 1,
                    Ok(false) => return Ok(json!({ "continued": continued, "failed": failed })),
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(
                            tenant.id = %key.tenant_id, undo.id = %key.undo_id, error = %error,
                            "job.undo: an undo was broken off; it is tried again"
                        );
                    }
                }
                if !lease.renew(None).await? {
                    return Ok(json!({ "continued": continued, "failed": failed }));
                }
            }
        }
    }
}
