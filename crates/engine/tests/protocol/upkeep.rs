//! Upkeep: only orphans are swept, and what is old is pruned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{
    CountTotals, DrainDeletions, Job, Prune, ReconcileUsage, RunOutcome, RunRequest, SweepBlobs,
};
use keepsake_engine::{
    AuditQuery, Clock, Engine, ManualClock, PageRequest, Progress, StoreDraft, SystemClock, Verification,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::brakes::interrupted_run;
use crate::test_engine::{TestEngine, create, insert};

crate::on_both_databases! {
    interrupted_count_of_totals_is_continued,
    prune_deletes_records_of_old_calls,
    prune_drops_audit_entries_past_their_retention,
}

crate::with_object_store! {
    orphans_of_every_failed_step_are_swept_and_nothing_else,
    orphans_of_unknown_tenants_and_stores_are_swept,
    blob_of_a_possibly_running_request_is_kept,
    dry_sweep_condemns_nothing,
    write_whose_blob_was_swept_is_retried,
    sweep_of_a_killed_owner_is_resumed,
    stopped_sweep_is_resumed_in_its_slot,
    sweep_during_full_write_load_causes_no_problems,
}

/// How long the load beside a sweep is, in seconds, where it is to be longer.
const LOAD_SECONDS: &str = "KEEPSAKE_TEST_LOAD_SECONDS";

/// A worker whose clock is so far on that every blob is older than a request.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    clock: Arc<ManualClock>,
}

impl Worker {
    pub(crate) fn of(setup: &TestEngine) -> Self {
        let later = SystemClock.now().plus(Duration::from_hours(48));
        let clock = Arc::new(ManualClock::new(later.max(setup.clock.now())));
        let engine = setup.replica_with(|options| options.clock = clock.clone());
        Self { engine, clock }
    }

    /// Runs a job to its end, outside of its schedule.
    pub(crate) async fn run(&self, job: impl Job + 'static) -> Value {
        self.clock.advance(Duration::from_secs(1));
        self.run_as(job, RunRequest::manual(false)).await
    }

    async fn run_as(&self, job: impl Job + 'static, request: RunRequest) -> Value {
        match self.outcome(job, request).await {
            RunOutcome::Ran(counts) => counts,
            outcome => panic!("{outcome:?}"),
        }
    }

    async fn outcome(&self, job: impl Job + 'static, request: RunRequest) -> RunOutcome {
        self.engine.jobs.run(Arc::new(job), request, &CancellationToken::new()).await.unwrap()
    }
}

async fn verify(engine: &Engine) -> Verification {
    let mut last = Progress::default();
    let found = engine.verifier.run(8, |progress| last = progress).await.unwrap();
    assert_eq!(last.blobs, found.blobs);
    found
}

pub(crate) async fn assert_all_is_well(engine: &Engine) {
    assert_eq!(verify(engine).await.problems, []);
}

fn unavailable() -> Result<(), BlobError> {
    Err(BlobError::Unavailable("as the test wants it".to_owned()))
}

fn small() -> SweepBlobs {
    SweepBlobs { batch: 2 }
}

/// Puts a blob that no row names.
async fn plant(setup: &TestEngine, tenant: u128, store: u128, blob: u128) -> BlobKey {
    let key = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
        store_id: StoreId::from_uuid(Uuid::from_u128(store)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(blob)),
    };
    put(setup, key).await;
    key
}

async fn put(setup: &TestEngine, key: BlobKey) {
    setup.blobs.inner().put(&key, Bytes::from_static(b"orphan")).await.unwrap();
}

/// Puts a blob into the test's store that no row names.
async fn plant_here(setup: &TestEngine, blob: u128) -> BlobKey {
    let (tenant, store) = (setup.principal.tenant_id, setup.store_id);
    plant(setup, tenant.uuid().as_u128(), store.uuid().as_u128(), blob).await
}

async fn orphans_of_every_failed_step_are_swept_and_nothing_else(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    setup
        .call(
            json!({"command": "rename", "old_path": "/memories/kept.txt", "new_path": "/memories/moved.txt"}),
        )
        .await;
    setup.call(insert("/memories/moved.txt", 1, "and edited")).await;
    let named = setup.blobs_there().await;
    assert_eq!(named.len(), 2);

    // The failed writes cannot remove their blobs.
    setup.blobs.before_delete(|_| async { unavailable() });
    // The answer of the object store is lost.
    setup.blobs.after_put(|_| async { unavailable() });
    assert!(setup.try_call(create("/memories/lost.txt", "lost")).await.is_err());
    // The commit is refused: another replica was first.
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let is_first = Arc::new(AtomicU64::new(0));
    setup.blobs.after_put(move |_| {
        let (other, principal, is_first) = (other.clone(), Arc::clone(&principal), Arc::clone(&is_first));
        async move {
            if is_first.fetch_add(1, Ordering::SeqCst) == 0 {
                let call = crate::test_engine::tool_call(None, create("/memories/raced.txt", "the other's"));
                let made = other.tools.memory.call(&principal, store_id, call).await.unwrap();
                assert!(!made.is_error, "{}", made.content);
            }
            Ok(())
        }
    });
    let refused = setup.try_call(create("/memories/raced.txt", "mine")).await.unwrap();
    assert!(refused.is_error, "{}", refused.content);
    setup.blobs.clear_hooks();
    assert_eq!(setup.blobs_there().await.len(), named.len() + 3);

    let worker = Worker::of(&setup);
    let swept = worker.run(small()).await;
    assert_eq!((&swept["condemned"], &swept["missing"]), (&json!(2), &json!(0)), "{swept}");
    assert_eq!(worker.run(DrainDeletions).await["removed"], 2);
    let left = setup.blobs_there().await;
    assert!(left.len() == named.len() + 1 && named.iter().all(|key| left.contains(key)));
    assert_all_is_well(&worker.engine).await;
    assert_eq!(worker.run(small()).await["condemned"], 0, "it is safe to run twice");
    assert_eq!(setup.text_at(&setup.engine, "/memories/moved.txt").await, "kept\nand edited\n");
}

async fn orphans_of_unknown_tenants_and_stores_are_swept(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    let named = setup.blobs_there().await;
    let tenant = setup.principal.tenant_id.uuid().as_u128();
    for (tenant, store) in [(1, 1), (1, 2), (u128::MAX, 1), (tenant, 7)] {
        for blob in 1..=3 {
            plant(&setup, tenant, store, blob).await;
        }
    }
    let worker = Worker::of(&setup);
    let swept = worker.run(small()).await;
    assert_eq!((&swept["blobs"], &swept["condemned"]), (&json!(13), &json!(12)), "{swept}");
    worker.run(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await, named);
    assert_all_is_well(&worker.engine).await;
}

async fn blob_of_a_possibly_running_request_is_kept(setup: TestEngine) {
    let young = plant_here(&setup, 1).await;
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_hours(20))));
    let engine = setup.replica_with(|options| options.clock = clock.clone());
    let worker = Worker { engine, clock };
    let swept = worker.run(SweepBlobs::default()).await;
    assert_eq!((&swept["condemned"], &swept["too_young"]), (&json!(0), &json!(1)));
    // With requests of an hour, a blob of two days may still be one's.
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_hours(48))));
    let engine = setup.replica_with(|options| {
        options.clock = clock.clone();
        options.request_deadline = Duration::from_hours(1);
    });
    let patient = Worker { engine, clock };
    assert_eq!(patient.run(SweepBlobs::default()).await["too_young"], 1);
    assert_eq!(setup.blobs_there().await, [young]);
}

async fn dry_sweep_condemns_nothing(setup: TestEngine) {
    plant_here(&setup, 1).await;
    let worker = Worker::of(&setup);
    let told = worker.run_as(small(), RunRequest::manual(true)).await;
    assert_eq!(told["condemned"], 1, "{told}");
    assert_eq!(worker.run(DrainDeletions).await["removed"], 0);
    assert_eq!(setup.blobs_there().await.len(), 1);
}

async fn write_whose_blob_was_swept_is_retried(setup: TestEngine) {
    let worker = Arc::new(Worker::of(&setup));
    let swept = Arc::new(AtomicU64::new(0));
    let (sweeper, count) = (Arc::clone(&worker), Arc::clone(&swept));
    setup.blobs.after_put(move |_| {
        let (sweeper, count) = (Arc::clone(&sweeper), Arc::clone(&count));
        async move {
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                assert_eq!(sweeper.run(small()).await["condemned"], 1);
                assert_eq!(sweeper.run(DrainDeletions).await["removed"], 1);
            }
            Ok(())
        }
    });
    setup.create("/memories/a.txt", "written anew").await;
    assert_eq!(swept.load(Ordering::SeqCst), 2, "it was put twice");
    assert_eq!(setup.text_at(&setup.replica(), "/memories/a.txt").await, "written anew");
    let head = setup.head("/a.txt").await.unwrap();
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&head)]);
    setup.blobs.clear_hooks();
    assert_eq!(worker.run(small()).await["condemned"], 0);
    assert_all_is_well(&worker.engine).await;
}

async fn sweep_of_a_killed_owner_is_resumed(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    let worker = Worker::of(&setup);
    let [first, second, third] = [1, 2, 3].map(|blob| (1, 1, blob));
    for (tenant, store, blob) in [first, second, third] {
        plant(&setup, tenant, store, blob).await;
    }
    let kept = setup.blob_key(&setup.head("/kept.txt").await.unwrap());
    interrupted_run(&setup, &worker.engine, small(), kept).await;
    let cursor = setup.index.job_runs.cursor(small().name()).await.unwrap();
    assert!(cursor.is_some(), "the first range was swept");
    let (name, now) = (small().name(), worker.clock.now());
    let day = 86_400_000_000;
    let slot = keepsake_core::Timestamp::from_micros(now.as_micros() - now.as_micros() % day);
    let until = now.plus(Duration::from_mins(1));
    let dead = setup.index.job_runs.claim(name, slot, Uuid::nil(), now, until).await.unwrap().unwrap();
    assert!(setup.index.job_runs.renew(name, dead, until, cursor.as_deref()).await.unwrap());
    assert_eq!(worker.outcome(small(), RunRequest::SCHEDULED).await, RunOutcome::NotOurs);

    worker.clock.advance(Duration::from_secs(61));
    let lists_before = setup.blobs.calls().list;
    let whole = worker.run_as(small(), RunRequest::SCHEDULED).await;
    assert_eq!(setup.blobs.calls().list - lists_before, 2, "the second range, and the end");
    assert_eq!((&whole["blobs"], &whole["condemned"]), (&json!(4), &json!(3)), "{whole}");
    assert_eq!(worker.outcome(small(), RunRequest::SCHEDULED).await, RunOutcome::NotOurs);
    worker.clock.advance(Duration::from_hours(24));
    let all = worker.run_as(small(), RunRequest::SCHEDULED).await;
    assert_eq!(all["blobs"], 4, "{all}");
}

async fn stopped_sweep_is_resumed_in_its_slot(setup: TestEngine) {
    setup.create("/memories/kept.txt", "kept").await;
    let worker = Worker::of(&setup);
    for blob in 1..=4 {
        plant_here(&setup, blob).await;
    }
    let stopping = CancellationToken::new();
    stopping.cancel();
    let job: Arc<dyn Job> = Arc::new(small());
    let stopped = worker.engine.jobs.run(job, RunRequest::SCHEDULED, &stopping).await;
    assert!(matches!(stopped, Ok(RunOutcome::Ran(_))), "{stopped:?}");
    let request = PageRequest::default();
    let runs = async || worker.engine.operator.jobs.runs("sweep-blobs", &request).await.unwrap().items;
    let broken_off = &runs().await[0];
    assert!(broken_off.ended_at.is_none() && !broken_off.is_running, "{broken_off:?}");
    let swept = worker.run_as(small(), RunRequest::SCHEDULED).await;
    assert_eq!(swept["condemned"], 4, "{swept}");
    let [ended] = runs().await.try_into().unwrap();
    assert!(ended.ended_at.is_some() && ended.slot == broken_off.slot, "{ended:?}");
}

/// Writes, edits and deletes until `is_over`; returns the number of successful calls.
pub(crate) async fn write_until(setup: &TestEngine, writer: u64, is_over: &AtomicBool) -> u64 {
    let engine = setup.replica();
    let mut done = 0;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let path = format!("/memories/{writer}/{}.txt", number % 20);
        let input = match number % 4 {
            0 => create(&path, &format!("{writer} wrote {number}\n")),
            1 => create(&format!("/memories/{writer}/again.txt"), &format!("{number}")),
            2 => insert(&format!("/memories/{writer}/again.txt"), 0, "a line"),
            _ => json!({"command": "delete", "path": format!("/memories/{writer}/again.txt")}),
        };
        // A failed or refused call changes nothing, or leaves an orphan.
        if let Ok(answer) = setup.call_on(&engine, None, input).await {
            done += u64::from(!answer.is_error);
        }
    }
    done
}

async fn sweep_during_full_write_load_causes_no_problems(setup: TestEngine) {
    let seconds = std::env::var(LOAD_SECONDS).map_or(4, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let puts = AtomicU64::new(0);
    setup.blobs.after_put(move |_| {
        let is_lost = puts.fetch_add(1, Ordering::Relaxed) % 9 == 8;
        async move { if is_lost { unavailable() } else { Ok(()) } }
    });
    let deletes = AtomicU64::new(0);
    setup.blobs.before_delete(move |_| {
        let fails = deletes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        async move { if fails { unavailable() } else { Ok(()) } }
    });
    let worker = Worker::of(&setup);
    let is_over = AtomicBool::new(false);
    let sweep = async {
        let (mut sweeps, mut condemned) = (0, 0);
        while Instant::now() < end || sweeps < 2 || condemned == 0 {
            let swept = worker.run(SweepBlobs { batch: 7 }).await;
            condemned += swept["condemned"].as_u64().unwrap();
            assert_eq!(swept["missing"], 0, "{swept}");
            worker.run(DrainDeletions).await;
            let counted = worker.run(ReconcileUsage::default()).await;
            assert_eq!((&counted["drifted_stores"], &counted["lost_heads"]), (&json!(0), &json!(0)));
            assert_all_is_well(&worker.engine).await;
            sweeps += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let writers = futures::future::join_all((0..4).map(|writer| write_until(&setup, writer, &is_over)));
    let (written, ()) = tokio::join!(writers, sweep);
    assert!(written.iter().sum::<u64>() > 0, "{written:?}");

    setup.all_writes_end().await;
    setup.blobs.clear_hooks();
    assert_all_is_well(&worker.engine).await;
    worker.run(SweepBlobs::default()).await;
    // Removals that failed are tried again later.
    worker.clock.advance(Duration::from_hours(12));
    worker.run(DrainDeletions).await;
    assert_all_is_well(&worker.engine).await;
    let named = setup.index.upkeep.named_blobs(None, 100_000).await.unwrap();
    let mut named: Vec<_> = named.iter().map(|row| row.key).collect();
    named.dedup();
    assert_eq!(setup.blobs_there().await, named, "every blob has a row, and every row its blob");
}

async fn interrupted_count_of_totals_is_continued(setup: TestEngine) {
    setup.create("/memories/a.txt", "text").await;
    let worker = Worker::of(&setup);
    let (job, now) = (CountTotals { batch: 1 }, worker.clock.now());
    let job_runs = &setup.index.job_runs;
    let period = i64::try_from(job.period().as_micros()).unwrap();
    let slot = keepsake_core::Timestamp::from_micros(now.as_micros() - now.as_micros() % period);
    let until = now.plus(Duration::from_mins(1));
    let fence = job_runs.claim(job.name(), slot, Uuid::nil(), now, until).await.unwrap().unwrap();
    // A replica counted other stores, and was killed.
    let counted = json!({
        "after": null,
        "totals": {"stores": 9, "memories": 90, "versions": 900, "memory_bytes": 1, "version_bytes": 2},
    });
    let cursor = counted.to_string();
    assert!(job_runs.renew(job.name(), fence, until, Some(&cursor)).await.unwrap());
    worker.clock.advance(Duration::from_mins(2));
    let counted = worker.run_as(job, RunRequest::SCHEDULED).await;
    let expected = json!({
        "stores": 10, "memories": 91, "versions": 901, "memory_bytes": 5, "version_bytes": 6,
    });
    assert_eq!(counted["totals"], expected);
    assert_eq!(job_runs.cursor(job.name()).await.unwrap(), None);
}

async fn prune_deletes_records_of_old_calls(setup: TestEngine) {
    let new = |key: &str, path: &str| {
        let mut new = crate::test_engine::new_memory(path, "text");
        new.idempotency = Some(setup.call_named(key, path));
        new
    };
    setup.try_make(new("old", "/old.txt")).await.unwrap();
    // Kept for 48 hours: a day longer than a replica recognises the call, since
    // clocks may differ.
    setup.clock.advance(Duration::from_hours(2));
    setup.try_make(new("outdated", "/outdated.txt")).await.unwrap();
    setup.clock.advance(Duration::from_hours(24));
    let young = setup.try_make(new("young", "/young.txt")).await.unwrap();
    setup.clock.advance(Duration::from_hours(23));
    let worker = Worker { engine: setup.replica(), clock: setup.clock.clone() };
    let told = worker.run_as(Prune::default(), RunRequest::manual(true)).await;
    assert_eq!(told["idempotency_records"], 1, "{told}");
    let pruned = worker.run(Prune { batch: 1 }).await;
    assert_eq!(pruned["idempotency_records"], 1, "{pruned}");
    let again = setup.try_make(new("young", "/young.txt")).await.unwrap();
    assert_eq!(again.memory.head.memory_id, young.memory.head.memory_id);
    let pruned = worker.run(Prune::default()).await;
    assert_eq!(pruned["idempotency_records"], 0, "{pruned}");
}

async fn prune_drops_audit_entries_past_their_retention(setup: TestEngine) {
    let actions = async || {
        let query = AuditQuery::default();
        let entries = setup.engine.audit.list(&setup.principal, &query).await.unwrap().items;
        let actions = entries.into_iter().map(|entry| entry.action);
        actions.collect::<Vec<_>>()
    };
    let store = |name: &str| StoreDraft { name: name.to_owned(), ..StoreDraft::default() };
    let before = actions().await;
    assert!(before.iter().any(|action| action == "tenant.create"), "{before:?}");
    setup.clock.advance(Duration::from_hours(399 * 24));
    setup.engine.stores.create(&setup.principal, store("young"), None).await.unwrap();
    let worker = Worker { engine: setup.replica(), clock: setup.clock.clone() };
    let pruned = worker.run(Prune::default()).await;
    assert_eq!(pruned["audit_entries"], 0, "{pruned}");
    setup.clock.advance(Duration::from_hours(2 * 24));
    let pruned = worker.run(Prune { batch: 2 }).await;
    assert_eq!(pruned["audit_entries"], before.len(), "{pruned}");
    assert_eq!(actions().await, ["memory_store.create"]);
}
