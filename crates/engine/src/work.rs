//! Work that continues after the client of a request disconnects.

use std::sync::Arc;

use crate::EngineError;
use crate::shares::Share;

tokio::task_local! {
    static HELD: Arc<RequestShares>;
}

#[derive(Debug)]
pub struct RequestShares {
    /// One of the running requests.
    pub request: Share,
    /// Bytes of memory: the request body, the values parsed from it, the
    /// content read for it, and the answer until it is sent.
    pub memory: Share,
}

impl RequestShares {
    /// Counts bytes that the request is about to use, until its end.
    pub fn charge(&self, bytes: usize) -> Result<(), EngineError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.memory.try_grow(bytes).then_some(()).ok_or(EngineError::OverMemory)
    }
}

/// Serves a request that holds `held`.
///
/// The shares are released when the last work of the request ends, not when the
/// request ends. When a client disconnects, its change continues and must count
/// as long as it uses memory and connections.
pub async fn holding<F: Future>(held: Arc<RequestShares>, request: F) -> F::Output {
    HELD.scope(held, request).await
}

/// [`RequestShares::charge`] of the current request. Work outside a request, such as a job, is not
/// counted.
pub(crate) fn charge(bytes: usize) -> Result<(), EngineError> {
    HELD.try_with(|held| held.charge(bytes)).unwrap_or(Ok(()))
}

/// `None` outside a request.
pub(crate) fn held() -> Option<Arc<RequestShares>> {
    HELD.try_with(Arc::clone).ok()
}

/// The work keeps the shares of the current request until the work ends.
pub(crate) fn keep_held<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let held = held();
    async move {
        match held {
            Some(held) => holding(held, work).await,
            None => work.await,
        }
    }
}
