//! The loop of the jobs that continue work in several commits, in which tenants take turns.

use keepsake_core::{StoreId, TenantId};
use serde_json::{Value, json};

use super::Lease;
use crate::EngineError;
use crate::long_work::Turn;
use crate::shared::Shared;

/// Tenants that have a turn before the job looks for others.
const TENANTS: u32 = 10;

pub(super) trait LongWork {
    type Key: Copy + Send;

    fn place(key: Self::Key) -> (TenantId, StoreId);

    /// Work that no worker holds: of each tenant, that whose turn is the next.
    fn open(
        shared: &Shared,
        tenants: u32,
    ) -> impl Future<Output = Result<Vec<Self::Key>, EngineError>> + Send;

    fn turn(shared: &Shared, key: Self::Key) -> impl Future<Output = Result<Turn, EngineError>> + Send;
}

/// Continues work until nothing is left, the lease is lost, or the process shuts down. Renews the lease
/// between turns. Returns the counts for the record of the run.
///
/// Work that fails is still held, until a later run.
pub(super) async fn take_turns<W: LongWork>(
    shared: &Shared,
    lease: &Lease<'_>,
) -> Result<Value, EngineError> {
    let (mut continued, mut failed) = (0, 0);
    loop {
        let open = W::open(shared, TENANTS).await?;
        let is_last = open.is_empty();
        for key in open {
            match W::turn(shared, key).await {
                Ok(Turn::Ended) => continued += 1,
                Ok(Turn::Paused) => {}
                Ok(Turn::Stopping) => return Ok(counts(continued, failed)),
                Err(error) => {
                    failed += 1;
                    let (tenant_id, store_id) = W::place(key);
                    tracing::warn!(
                        job.name = lease.fence().job, tenant.id = %tenant_id, store.id = %store_id, error = %error,
                        "job.run: work of a tenant was broken off; a later run continues it"
                    );
                }
            }
            if !lease.renew(None).await? {
                return Ok(counts(continued, failed));
            }
        }
        if is_last {
            return Ok(counts(continued, failed));
        }
    }
}

fn counts(continued: u64, failed: u64) -> Value {
    json!({ "continued": continued, "failed": failed })
}
