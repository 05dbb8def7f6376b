//! Jobs: what fails is tried again.

use std::future::ready;

use async_trait::async_trait;
use keepsake_core::BlobKey;
use keepsake_engine::jobs::{DrainDeletions, Job, JobPlan, Lease, RunOutcome, RunRequest};
use keepsake_engine::{EngineError, Shared};
use serde_json::{Value, json};

use crate::test_engine::{DAY, MINUTE, TestEngine, unavailable};

crate::on_both_databases! { failed_scheduled_run_is_retried_in_its_slot, }
crate::with_object_store! { queued_blobs_are_removed_and_failed_removals_retried_later, }

/// Panics or fails until the cursor of an earlier run is there.
struct FailsOnce {
    panics: bool,
}

#[async_trait]
impl Job for FailsOnce {
    fn plan(&self) -> JobPlan {
        JobPlan { name: "fails-once", schedule: "0 */10 * * * *", period: DAY, can_be_dry: false }
    }

    async fn run(&self, _: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        if lease.cursor().await?.is_some() {
            lease.renew(None).await?;
            return Ok(json!({"went_on": 1}));
        }
        lease.renew(Some("half")).await?;
        assert!(!self.panics, "as the test wants it");
        Err(EngineError::Internal("as the test wants it"))
    }
}

async fn run(setup: &TestEngine, job: impl Job + 'static) -> RunOutcome {
    setup.outcome(job, RunRequest::SCHEDULED).await
}

async fn failed_scheduled_run_is_retried_in_its_slot(setup: TestEngine) {
    for panics in [false, true] {
        let failed = run(&setup, FailsOnce { panics }).await;
        let RunOutcome::Failed(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error == "the job panicked", panics, "{error}");
        assert_eq!(run(&setup, FailsOnce { panics }).await, RunOutcome::NotOurs, "a retry has to wait");
        setup.clock.advance(10 * MINUTE);
        let ended = run(&setup.elsewhere(), FailsOnce { panics }).await;
        assert_eq!(ended, RunOutcome::Ran(json!({"went_on": 1})));
        setup.clock.advance(10 * MINUTE);
        assert_eq!(run(&setup, FailsOnce { panics }).await, RunOutcome::NotOurs, "its slot has ended");
        setup.clock.advance(DAY);
    }
}

async fn queued_blobs_are_removed_and_failed_removals_retried_later(setup: TestEngine) {
    let memory = setup.make("/a.txt", "kept").await;
    let (kept, now) = (setup.blob_key(&memory.memory.head), setup.now());
    let condemn = async |key: &BlobKey| setup.index.blob_deletions.condemn_orphan(key, now).await.unwrap();
    let orphans = [1, 2, 3].map(|blob| setup.orphan_key(blob));
    for orphan in &orphans {
        setup.plant(*orphan).await;
        assert!(condemn(orphan).await);
    }
    assert!(!condemn(&kept).await, "a row names it");

    let stubborn = orphans[1];
    setup.blobs.before_delete(move |key| ready(if *key == stubborn { unavailable() } else { Ok(()) }));
    let drained = run(&setup, DrainDeletions).await;
    assert_eq!(drained, RunOutcome::Ran(json!({"removed": 2, "failed": 1})));
    assert_eq!(setup.blobs_there().await, [stubborn, kept]);

    setup.blobs.clear_hooks();
    setup.clock.advance(MINUTE);
    assert_eq!(run(&setup, DrainDeletions).await, RunOutcome::Ran(json!({"removed": 1, "failed": 0})));
    assert_eq!(setup.blobs_there().await, [kept]);
}
