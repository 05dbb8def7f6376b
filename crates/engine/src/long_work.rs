//! Undos and copies of stores, which take several commits. The replica that receives the call does the
//! work in the background; a job continues work that no replica does.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{Refused, TenantId};
use keepsake_index::IndexError;

use crate::shared::Shared;
use crate::{EngineError, Fault};

/// Commits that a job makes of an undo or a copy of a store before it continues those of other tenants.
pub(crate) const COMMITS_PER_TURN: usize = 4;

/// How a turn of work in several commits ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The work is done, or another worker does it.
    Ended,
    /// The next turn continues the work.
    Paused,
    /// The process shuts down.
    Stopping,
}

/// Runs work in the background that this replica holds for `held_for`. If the work waits for its slot
/// for more than half of that time, the job does it instead.
pub(crate) fn begin_work<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<Shared>,
    tenant_id: TenantId,
    held_for: Duration,
    run: impl FnOnce(Arc<Shared>) -> F + Send + 'static,
) {
    let (shared, writes) = (Arc::clone(shared), shared.context.writes.clone());
    let start_by = shared.context.now().plus(held_for / 2);
    writes.spawn(async move {
        let slot = tokio::select! {
            slot = shared.long_work.take(tenant_id) => slot,
            () = shared.stopping.cancelled() => return,
        };
        if slot.is_ok() && shared.context.now() < start_by {
            run(shared).await;
        }
    });
}

/// Whether work ends with an error because another attempt would meet the same refusal or the same damaged row.
pub(crate) fn ends_work(error: &EngineError) -> bool {
    match error {
        EngineError::Refused(refused) => !matches!(refused, Refused::Contended),
        EngineError::NotFound(_)
        | EngineError::Invalid { .. }
        | EngineError::Conflict(_)
        | EngineError::Index(IndexError::Corrupt { .. }) => true,
        _ => false,
    }
}

/// Why work ended, for every credential that sees the store.
pub(crate) fn reason_of(error: &EngineError) -> String {
    match error.fault() {
        Fault::Backend => {
            "the database or the content store failed, and the server's log says how".to_owned()
        }
        Fault::Bug => "an unexpected error, which is in the server's log".to_owned(),
        Fault::Caller | Fault::Parameter | Fault::Server => match error {
            EngineError::Refused(refused) => refused.clone().without_sums_of_tenant().to_string(),
            error => error.to_string(),
        },
    }
}
