//! Jobs: one replica runs each slot, and what dies is taken up again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{DrainDeletions, Job, JobServices, Lease, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::TestEngine;

crate::on_both_databases! {
    slot_is_run_once_by_any_number_of_replicas,
    job_that_panics_leaves_a_record_and_frees_its_lease,
    run_of_a_dead_owner_is_resumed_after_its_lease,
}

crate::with_object_store! {
    queued_blobs_are_removed_and_failed_removals_retried_later,
}

struct Panics;

#[async_trait]
impl Job for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn schedule(&self) -> &'static str {
        "0 * * * * *"
    }

    fn period(&self) -> Duration {
        Duration::from_mins(1)
    }

    async fn run(&self, _: &JobServices, _: &Lease<'_>) -> Result<Value, EngineError> {
        panic!("as the test wants it")
    }
}

async fn run(engine: &Engine, job: impl Job + 'static) -> RunOutcome {
    engine.jobs.run(Arc::new(job), RunRequest::SCHEDULED, &CancellationToken::new()).await.unwrap()
}

async fn slot_is_run_once_by_any_number_of_replicas(setup: TestEngine) {
    let other = setup.replica();
    let (one, two) = tokio::join!(run(&setup.engine, DrainDeletions), run(&other, DrainDeletions));
    let ran = |outcome: &RunOutcome| matches!(outcome, RunOutcome::Ran(_));
    assert!(ran(&one) ^ ran(&two), "{one:?} {two:?}");
    assert_eq!(run(&other, DrainDeletions).await, RunOutcome::NotOurs);
    setup.clock.advance(Duration::from_mins(1));
    assert!(ran(&run(&other, DrainDeletions).await), "the next slot is another run");
}

async fn job_that_panics_leaves_a_record_and_frees_its_lease(setup: TestEngine) {
    assert_eq!(run(&setup.engine, Panics).await, RunOutcome::Failed("the job panicked".to_owned()));
    assert_eq!(run(&setup.engine, Panics).await, RunOutcome::NotOurs, "its slot has ended");
    setup.clock.advance(Duration::from_mins(1));
    assert!(matches!(run(&setup.replica(), Panics).await, RunOutcome::Failed(_)));
}

async fn run_of_a_dead_owner_is_resumed_after_its_lease(setup: TestEngine) {
    let (now, name) = (setup.clock.now(), DrainDeletions.name());
    let slot = keepsake_core::Timestamp::from_micros(now.as_micros() - now.as_micros() % 60_000_000);
    let until = now.plus(Duration::from_secs(30));
    let dead = setup.index.job_runs.claim(name, slot, Uuid::nil(), now, until).await.unwrap().unwrap();
    assert_eq!(run(&setup.engine, DrainDeletions).await, RunOutcome::NotOurs);
    setup.clock.advance(Duration::from_secs(31));
    assert!(matches!(run(&setup.engine, DrainDeletions).await, RunOutcome::Ran(_)));
    // The dead owner comes back, but its fence is outdated: it cannot finish the run.
    let ended =
        setup.index.job_runs.finish(name, slot, dead, setup.clock.now(), &json!({}), None).await.unwrap();
    assert!(!ended);
}

async fn queued_blobs_are_removed_and_failed_removals_retried_later(setup: TestEngine) {
    setup.create("/memories/a.txt", "kept").await;
    let kept = setup.blob_key(&setup.head("/a.txt").await.unwrap());
    let orphans = [1_u128, 2, 3]
        .map(|number| BlobKey { blob_id: VersionId::from_uuid(Uuid::from_u128(number)), ..kept });
    for orphan in &orphans {
        setup.blobs.inner().put(orphan, Bytes::from_static(b"orphan")).await.unwrap();
        assert!(setup.index.blob_deletions.condemn_orphan(orphan, setup.clock.now()).await.unwrap());
    }
    assert!(!setup.index.blob_deletions.condemn_orphan(&kept, setup.clock.now()).await.unwrap());

    let stubborn = orphans[1];
    setup.blobs.before_delete(move |key| {
        let fails = *key == stubborn;
        async move {
            if fails {
                Err(BlobError::Unavailable("as the test wants it".to_owned()))
            } else {
                Ok(())
            }
        }
    });
    let drained = run(&setup.engine, DrainDeletions).await;
    assert_eq!(drained, RunOutcome::Ran(json!({"removed": 2, "failed": 1})));
    assert_eq!(setup.blobs_there().await, [stubborn, kept]);

    setup.blobs.clear_hooks();
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup.engine, DrainDeletions).await, RunOutcome::Ran(json!({"removed": 1, "failed": 0})));
    assert_eq!(setup.blobs_there().await, [kept]);
}
