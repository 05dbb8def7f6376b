//! Computations that take too long for the threads that serve requests.

use std::num::NonZero;
use std::sync::Arc;

use keepsake_core::TenantId;

use crate::EngineError;
use crate::fair::FairSlots;
use crate::work::held;

/// Runs computations on blocking threads, in slots that tenants share fairly.
///
/// There are as many slots as cores. More would occupy the threads that read contents,
/// and none would finish earlier. One tenant may use half of the slots.
#[derive(Debug, Clone)]
pub struct Computations {
    pub(crate) slots: Arc<FairSlots>,
}

impl Computations {
    pub(crate) fn new() -> Self {
        let cores = cores();
        Self { slots: Arc::new(FairSlots::new(cores, cores / 2)) }
    }

    /// Runs a computation of more than some tenths of a millisecond.
    ///
    /// The request's deadline bounds the wait for a slot. The computation itself is not
    /// cancelled, so it needs a bound of its own; it keeps its slot and the memory that
    /// is counted for the request until it ends, also after the client disconnects. A
    /// panic of the computation is an [`EngineError::Internal`].
    pub async fn run<T: Send + 'static>(
        &self,
        tenant_id: TenantId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let slot = self.slots.take(tenant_id).await?;
        let held = held();
        off_the_runtime(move || {
            let done = work();
            drop((slot, held));
            done
        })
        .await
    }
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get)
}

/// The caller holds the slot.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| EngineError::Internal("a computation panicked"))
}
