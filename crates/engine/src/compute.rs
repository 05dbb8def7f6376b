//! Computations that take too long for the threads that serve requests.

use std::num::NonZero;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::TenantId;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use crate::EngineError;
use crate::fair::FairSlots;
use crate::work::held;

/// Of the priorities of Linux, from -20 to 19.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;

/// Larger requests are not parsed by the thread that serves the request: each step takes some
/// milliseconds for each MiB.
const MAX_PARSED_AT_ONCE: usize = 128 << 10;

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

    /// Parses a request of `bytes` bytes: at once, or with [`Self::run`] if it is large, because the
    /// threads that serve requests serve all tenants.
    pub async fn parse<T: Send + 'static>(
        &self,
        tenant_id: TenantId,
        bytes: usize,
        parse: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        if bytes <= MAX_PARSED_AT_ONCE { Ok(parse()) } else { self.run(tenant_id, parse).await }
    }

    /// Awaits a future that parses a request of `bytes` bytes when it is first polled: as
    /// [`Self::parse`] parses. The rest runs in the current task.
    pub async fn parse_first<T: Send + 'static>(
        &self,
        tenant_id: TenantId,
        bytes: usize,
        mut future: BoxFuture<'static, T>,
    ) -> Result<T, EngineError> {
        if bytes <= MAX_PARSED_AT_ONCE {
            return Ok(future.await);
        }
        let begin = move || match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Ok(done),
            Poll::Pending => Err(future),
        };
        match self.run(tenant_id, begin).await? {
            Ok(done) => Ok(done),
            // It is polled again at once, so it misses no wake-up.
            Err(future) => Ok(future.await),
        }
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

/// Runs work on a thread on which it may block. Takes no slot: the caller does, where one is needed.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| EngineError::Internal("a computation panicked"))
}

/// Runs a background computation on a separate thread of the lowest priority, so that
/// requests get the processor first. A panic of the computation is an [`EngineError::Internal`].
///
/// If the future is dropped, the computation ends all the same.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EngineError> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("background".to_owned()).spawn(move || {
        lower_priority();
        let _ = answer.send(work());
    });
    thread.map_err(|_| EngineError::Internal("a thread did not start"))?;
    answered.await.map_err(|_| EngineError::Internal("a computation panicked"))
}

/// Computes in the current thread; answers also the processor's time that it took.
pub(crate) fn with_cpu_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
    let before = used();
    let done = work();
    (done, used().saturating_sub(before))
}

/// Gives the current thread the lowest priority. On other systems than Linux, the priority
/// is that of the whole process, so it stays.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(LOWEST_PRIORITY) {
        tracing::debug!(error = %error, "engine.in_background keeps the priority of the process");
    }
}
