//! Jobs at a time that the test chooses.

use keepsake_engine::jobs::{Job, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use keepsake_index::Index;
use tokio_util::sync::CancellationToken;

use super::*;

/// A worker in the test's process, whose clock only the test moves.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
    index: Index,
}

impl Deployment {
    /// A worker with a clock that is ahead; on SQLite it must be closed before a server starts.
    pub(crate) async fn worker_ahead(&self, ahead: Duration) -> Worker {
        let clock = Arc::new(ManualClock::new(SystemClock.now().plus(ahead)));
        let options = EngineOptions { clock: clock.clone(), ..EngineOptions::default() };
        let index = self.index().await;
        let engine = Engine::new(index.clone(), self.object_store().await, options);
        Worker { engine, clock, index }
    }
}

impl Worker {
    /// Runs a job, which must get its lease; answers what it counted.
    pub(crate) async fn run(&self, job: impl Job + 'static, request: RunRequest) -> Value {
        match self.engine.jobs.run(Arc::new(job), request, &CancellationToken::new()).await.unwrap() {
            RunOutcome::Ran(counts) => counts,
            outcome => panic!("{outcome:?}"),
        }
    }

    pub(crate) async fn close(self) {
        self.index.close().await;
    }
}
