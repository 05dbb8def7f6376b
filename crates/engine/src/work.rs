//! Work that continues after the client of a request disconnects.

use std::sync::Arc;

use tracing::Instrument;

use crate::shares::Share;
use crate::{Engine, EngineError};

tokio::task_local! {
    /// The shares held by the current request.
    static HELD: Arc<Held>;
}

/// The shares that one request holds.
#[derive(Debug)]
pub struct Held {
    /// One of the running requests.
    pub request: Share,
    /// Bytes of memory: the request body, the values parsed from it, the
    /// content read for it, and the answer until it is sent.
    pub memory: Share,
}

/// Serves a request that holds `held`.
///
/// The shares are released when the last work of the request ends, not when the
/// request ends. When a client disconnects, its change continues and must count
/// as long as it uses memory and connections.
pub async fn holding<F: Future>(held: Arc<Held>, request: F) -> F::Output {
    HELD.scope(held, request).await
}

/// Counts bytes that the current request is about to use, until its end.
///
/// Work outside a request, such as a job, is not counted.
///
/// # Errors
/// [`EngineError::OverMemory`] when the tenant's share does not allow them.
pub(crate) fn charge(bytes: usize) -> Result<(), EngineError> {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    match HELD.try_with(|held| held.memory.try_grow(bytes)) {
        Ok(false) => Err(EngineError::OverMemory),
        Ok(true) | Err(_) => Ok(()),
    }
}

impl Engine {
    /// Runs a change to its end, even if the client disconnects.
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
