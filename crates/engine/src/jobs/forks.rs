//! `fork`: continues copies of stores.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Job, JobPlan, Lease, MINUTE};
use crate::EngineError;
use crate::forks::continue_fork;
use crate::shared::Shared;

const FORKS: u32 = 10;

/// Continues, every minute, copies of stores that the receiving replica did not end.
#[derive(Debug, Clone, Copy)]
pub struct ContinueForks;

#[async_trait]
impl Job for ContinueForks {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "fork", schedule: "35 * * * * *", period: MINUTE, can_be_dry: false }
    }

    /// A copy that fails is held until the next runs.
    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let (mut continued, mut failed) = (0, 0);
        loop {
            let open = shared.context.index.forks.open(shared.context.now(), FORKS).await?;
            let is_last = open.is_empty();
            for place in open {
                match continue_fork(shared, place).await {
                    Ok(true) => continued += 1,
                    Ok(false) => return Ok(json!({ "continued": continued, "failed": failed })),
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(
                            tenant.id = %place.0, store.id = %place.1, error = %error,
                            "job.fork: a copy was broken off; it is tried again"
                        );
                    }
                }
            }
            if is_last || !lease.renew(None).await? {
                return Ok(json!({ "continued": continued, "failed": failed }));
            }
        }
    }
}
