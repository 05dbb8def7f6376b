//! Work that goes on when the one who asked for it has gone.

use std::sync::Arc;

use tracing::Instrument;

use crate::shares::Share;
use crate::{Engine, EngineError};

tokio::task_local! {
    /// The shares of the request that is being served.
    static HELD: Arc<Held>;
}

/// The shares that one request holds.
#[derive(Debug)]
pub struct Held {
    /// One of the requests under way.
    pub request: Share,
    /// Bytes of memory: its body, the values parsed from it, the content read for
    /// it, and its answer until the client has taken that.
    pub memory: Share,
}

/// Serves a request that holds `held`.
///
/// It is dropped with the last of the work that the request began, and not with
/// the request: a client that hangs up leaves its change behind, which must go
/// on counting as long as it takes memory and connections.
pub async fn holding<F: Future>(held: Arc<Held>, request: F) -> F::Output {
    HELD.scope(held, request).await
}

/// Counts bytes that the request under way is about to use, until its end.
///
/// Work that serves no request, such as a job, is not counted.
///
/// # Errors
/// [`EngineError::OverMemory`] where the tenant's share does not allow them.
pub(crate) fn charge(bytes: usize) -> Result<(), EngineError> {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    match HELD.try_with(|held| held.memory.try_grow(bytes)) {
        Ok(false) => Err(EngineError::OverMemory),
        Ok(true) | Err(_) => Ok(()),
    }
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
            match held {
                Some(held) => holding(held, change).await,
                None => change.await,
            }
        };
        match self.0.writes.spawn(change.in_current_span()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(EngineError::Internal("a write's task ended without an answer")),
        }
    }
}
