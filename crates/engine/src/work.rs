//! Work that goes on when the one who asked for it has gone.

use std::any::Any;
use std::sync::Arc;

use tracing::Instrument;

use crate::{Engine, EngineError};

tokio::task_local! {
    /// What is held for the request that is being served.
    static HELD: Arc<dyn Any + Send + Sync>;
}

/// Serves a request that holds `guard`: a place among those under way, say.
///
/// The guard is dropped with the last of the work that the request began, and
/// not with the request: a client that hangs up leaves its change behind, which
/// must go on counting as long as it takes memory and connections.
pub async fn holding<F: Future>(guard: Arc<dyn Any + Send + Sync>, request: F) -> F::Output {
    HELD.scope(guard, request).await
}

impl Engine {
    /// Runs a change to its end, whatever becomes of the one who asked.
    pub(crate) async fn run_to_end<T, F>(&self, change: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let held = HELD.try_with(Arc::clone).ok();
        let change = async move {
            let outcome = change.await;
            drop(held);
            outcome
        };
        match self.0.writes.spawn(change.in_current_span()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(EngineError::Internal("a write's task ended without an answer")),
        }
    }
}
