//! The safety checks that stop jobs before they would lose data.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{
    DrainDeletions, ExpireUnused, Job, JobServices, Lease, PurgeStores, RunOutcome, RunRequest, SweepBlobs,
};
use keepsake_engine::{Clock, Engine, EngineError, ManualClock, NewKey, PageRequest, SystemClock};
use keepsake_index::Scope;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::TestEngine;

crate::on_both_databases! {
    failed_scheduled_run_is_retried_in_its_slot,
}

crate::with_object_store! {
    scheduled_sweep_stops_if_the_index_names_no_blob,
    scheduled_sweep_stops_if_most_blobs_are_unnamed,
    interrupted_sweep_keeps_its_counts,
    orphans_listed_first_do_not_stop_the_sweep,
    sweep_stopped_by_foreign_blobs_starts_from_the_beginning,
    only_redacted_blobs_are_removed_before_the_deletion_delay,
}

const DAY: Duration = Duration::from_hours(24);

async fn run(engine: &Engine, job: impl Job + 'static, request: RunRequest) -> RunOutcome {
    engine.jobs.run(Arc::new(job), request, &CancellationToken::new()).await.unwrap()
}

/// A worker for whom every blob is older than a request.
fn worker(setup: &TestEngine) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(2 * DAY)));
    (setup.replica_with(|options| options.clock = clock.clone()), clock)
}

async fn plant(setup: &TestEngine, blob: u128) {
    plant_of(setup, 1, blob).await;
}

/// Plants an orphan of a tenant; a large number is behind all real tenants.
async fn plant_of(setup: &TestEngine, tenant: u128, blob: u128) {
    let key = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
        store_id: StoreId::from_uuid(Uuid::from_u128(1)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(blob)),
    };
    let orphan = Bytes::from_static(b"orphan");
    setup.blobs.inner().put(&key, orphan).await.unwrap();
}

fn assert_stopped(outcome: &RunOutcome) {
    let RunOutcome::Failed(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.contains("names too few of the blobs"), "{error}");
}

async fn scheduled_sweep_stops_if_the_index_names_no_blob(setup: TestEngine) {
    plant(&setup, 1).await;
    let (engine, clock) = worker(&setup);
    assert_stopped(&run(&engine, SweepBlobs::default(), RunRequest::SCHEDULED).await);
    run(&engine, DrainDeletions, RunRequest::SCHEDULED).await;
    assert_eq!(setup.blobs_there().await.len(), 1);
    clock.advance(DAY);
    let asked_for = run(&engine, SweepBlobs::default(), RunRequest::manual(false)).await;
    assert!(matches!(&asked_for, RunOutcome::Ran(counts) if counts["condemned"] == 1));
}

async fn scheduled_sweep_stops_if_most_blobs_are_unnamed(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    for blob in 1..=100 {
        plant(&setup, blob).await;
    }
    let (engine, clock) = worker(&setup);
    let few = SweepBlobs { batch: 500 };
    let swept = run(&engine, few, RunRequest::SCHEDULED).await;
    assert!(matches!(&swept, RunOutcome::Ran(counts) if counts["condemned"] == 100), "{swept:?}");
    for blob in 200..=300 {
        plant(&setup, blob).await;
    }
    clock.advance(DAY);
    // The first hundred blobs are condemned but not removed yet, so they count as unnamed.
    assert_stopped(&run(&engine, few, RunRequest::SCHEDULED).await);
}

/// Runs a sweep that stops in the range of `at`: it keeps the cursor of the range
/// before.
pub(crate) async fn interrupted_run(setup: &TestEngine, engine: &Engine, sweep: SweepBlobs, at: BlobKey) {
    let store = setup.blobs.inner();
    let bytes = store.get(&at, u64::MAX).await.unwrap().unwrap();
    store.delete(&at).await.unwrap();
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    // A blob that is not listed is looked for.
    setup.blobs.before_get(move |_| {
        stop.cancel();
        std::future::ready(Ok(()))
    });
    let stopped = engine.jobs.run(Arc::new(sweep), RunRequest::SCHEDULED, &stopping).await;
    assert!(matches!(stopped, Ok(RunOutcome::Ran(_))), "{stopped:?}");
    assert!(stopping.is_cancelled());
    setup.blobs.clear_hooks();
    store.put(&at, bytes).await.unwrap();
}

/// Memories with a blob each; the key of the last.
async fn named_blobs(setup: &TestEngine, many: u32) -> BlobKey {
    for number in 0..many {
        setup.make(&format!("/{number}.txt"), "kept").await;
    }
    *setup.blobs_there().await.last().unwrap()
}

async fn interrupted_sweep_keeps_its_counts(setup: TestEngine) {
    let last = named_blobs(&setup, 120).await;
    let (engine, _) = worker(&setup);
    let sweep = SweepBlobs { batch: 100 };
    interrupted_run(&setup, &engine, sweep, last).await;
    // Most blobs are named, but the second run meets mostly orphans.
    for blob in 1..=105 {
        plant_of(&setup, u128::MAX, blob).await;
    }
    let swept = run(&engine, sweep, RunRequest::SCHEDULED).await;
    let RunOutcome::Ran(counts) = swept else {
        panic!("{swept:?}");
    };
    assert_eq!((&counts["blobs"], &counts["condemned"]), (&json!(225), &json!(105)), "{counts}");
}

async fn orphans_listed_first_do_not_stop_the_sweep(setup: TestEngine) {
    for blob in 1..=105 {
        plant(&setup, blob).await;
    }
    named_blobs(&setup, 110).await;
    let (engine, _) = worker(&setup);
    let swept = run(&engine, SweepBlobs { batch: 105 }, RunRequest::SCHEDULED).await;
    let RunOutcome::Ran(counts) = swept else {
        panic!("{swept:?}");
    };
    assert_eq!((&counts["blobs"], &counts["condemned"]), (&json!(215), &json!(105)), "{counts}");
}

async fn sweep_stopped_by_foreign_blobs_starts_from_the_beginning(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    for blob in 1..=101 {
        plant(&setup, blob).await;
    }
    let (engine, clock) = worker(&setup);
    let sweep = SweepBlobs { batch: 60 };
    assert_stopped(&run(&engine, sweep, RunRequest::SCHEDULED).await);
    // Somebody moved the foreign blobs away.
    let foreign = TenantId::from_uuid(Uuid::from_u128(1));
    setup.blobs.inner().erase_tenant(foreign, None, 1_000).await.unwrap();
    clock.advance(Duration::from_mins(10));
    let swept = run(&engine, sweep, RunRequest::SCHEDULED).await;
    assert!(
        matches!(&swept, RunOutcome::Ran(counts) if counts["blobs"] == 1 && counts["condemned"] == 0),
        "{swept:?}"
    );
}

async fn only_redacted_blobs_are_removed_before_the_deletion_delay(setup: TestEngine) {
    let delayed = setup.replica_with(|options| options.blob_deletion_delay = 7 * DAY);
    setup.make("/a.txt", "one").await;
    let redacted = setup.make("/b.txt", "two").await;
    setup.delete(&redacted, None).await.unwrap();
    let version_id = redacted.memory.head.version_id;
    delayed.versions.redact(&setup.principal, setup.store_id, version_id).await.unwrap();
    assert_eq!(setup.blobs_there().await.len(), 1);
    delayed.stores.delete(&setup.principal, setup.store_id).await.unwrap();
    let purged = run(&delayed, PurgeStores, RunRequest::SCHEDULED).await;
    assert!(matches!(&purged, RunOutcome::Ran(counts) if counts["blobs"] == 1), "{purged:?}");
    setup.clock.advance(6 * DAY);
    run(&delayed, DrainDeletions, RunRequest::SCHEDULED).await;
    assert_eq!(setup.blobs_there().await.len(), 1);
    setup.clock.advance(DAY);
    run(&delayed, DrainDeletions, RunRequest::SCHEDULED).await;
    assert_eq!(setup.blobs_there().await, []);
}

/// Fails as long as the cursor of an earlier run is not there.
struct FailsOnce;

#[async_trait]
impl Job for FailsOnce {
    fn name(&self) -> &'static str {
        "fails-once"
    }

    fn schedule(&self) -> &'static str {
        "0 */10 * * * *"
    }

    fn period(&self) -> Duration {
        DAY
    }

    async fn run(&self, _: &JobServices, lease: &Lease<'_>) -> Result<Value, EngineError> {
        if lease.cursor().await?.is_some() {
            return Ok(json!({"went_on": 1}));
        }
        lease.renew(Some("half")).await?;
        Err(EngineError::Internal("as the test wants it"))
    }
}

async fn failed_scheduled_run_is_retried_in_its_slot(setup: TestEngine) {
    let engine = &setup.engine;
    let failed = run(engine, FailsOnce, RunRequest::SCHEDULED).await;
    assert!(matches!(failed, RunOutcome::Failed(_)));
    // A retry has to wait.
    assert_eq!(run(engine, FailsOnce, RunRequest::SCHEDULED).await, RunOutcome::NotOurs);
    setup.clock.advance(Duration::from_mins(10));
    let again = run(engine, FailsOnce, RunRequest::SCHEDULED).await;
    assert_eq!(again, RunOutcome::Ran(json!({"went_on": 1})));
    let runs = engine.operator.jobs.runs("fails-once", &PageRequest::default()).await;
    // It is no job of the product, so it has no history that is shown.
    assert!(matches!(runs, Err(EngineError::JobNotFound)));
    setup.clock.advance(Duration::from_mins(10));
    assert_eq!(run(engine, FailsOnce, RunRequest::SCHEDULED).await, RunOutcome::NotOurs);
}

/// Only on Postgres: there the connection pool for heartbeats may fail while the pool
/// for requests works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_whose_heartbeats_fail_refuses_credentials() {
    let setup = TestEngine::postgres_and_s3().await;
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "reader".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    let key = secret.expose();
    setup.as_owner("REVOKE INSERT, UPDATE ON replica FROM keepsake_jobs").await;
    setup.engine.replica.flush().await.unwrap_err();
    setup.clock.advance(Duration::from_mins(4));
    setup.engine.auth.authenticate(key).await.unwrap();
    setup.clock.advance(Duration::from_mins(1));
    setup.engine.replica.flush().await.unwrap_err();
    for refused in [setup.engine.auth.authenticate(key).await, setup.engine.auth.authenticate_key(key).await]
    {
        assert!(matches!(refused, Err(EngineError::CutOff)), "{refused:?}");
    }
    assert!(!setup.engine.health.check().await.has_index());
    setup.as_owner("GRANT INSERT, UPDATE ON replica TO keepsake_jobs").await;
    setup.engine.replica.flush().await.unwrap();
    setup.engine.auth.authenticate(key).await.unwrap();
    setup.clock.advance(Duration::from_secs(2));
    assert!(setup.engine.health.check().await.has_index());
    // Expiry runs only on a replica with heartbeats.
    let counts = run(&setup.engine, ExpireUnused, RunRequest::SCHEDULED).await;
    assert!(matches!(counts, RunOutcome::Ran(_)), "{counts:?}");
}
