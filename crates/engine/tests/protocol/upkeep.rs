//! Upkeep: what fails is tried again, only orphans are swept, old records are pruned, and a sweep
//! stops before it would lose data.

use std::time::Instant;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::prelude::*;

on_both_databases! {
    failed_scheduled_run_is_retried_in_its_slot,
    calls_are_forgotten_after_a_day_and_pruned_after_two,
    prune_drops_audit_entries_past_their_retention,
}

with_object_store! {
    queued_blobs_are_removed_and_failed_removals_retried_later,
    blob_of_a_possibly_running_request_is_kept,
    write_whose_blob_was_swept_is_retried,
    sweep_of_a_killed_owner_is_resumed,
    sweep_during_full_write_load_causes_no_problems,
    scheduled_sweep_stops_if_the_index_names_no_blob_or_few,
    orphans_listed_first_do_not_stop_the_sweep,
    sweep_stopped_by_foreign_blobs_starts_from_the_beginning,
}

// Content in the index has no orphans: nothing is swept.
on_backend! { sqlite, content_in_sqlite, sweep_during_full_write_load_causes_no_problems, }
on_backend! { postgres, content_in_postgres, sweep_during_full_write_load_causes_no_problems, }

const SMALL: SweepBlobs = SweepBlobs { batch: 2 };

async fn assert_all_is_well(setup: &TestEngine) {
    assert_eq!(setup.engine.verifier.run(8, |_| {}).await.unwrap().problems, []);
}

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

async fn failed_scheduled_run_is_retried_in_its_slot(setup: TestEngine) {
    for panics in [false, true] {
        let failed = setup.outcome(FailsOnce { panics }).await;
        let RunOutcome::Failed(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error == "the job panicked", panics, "{error}");
        assert_eq!(setup.outcome(FailsOnce { panics }).await, RunOutcome::NotOurs, "a retry has to wait");
        setup.clock.advance(10 * MINUTE);
        let ended = setup.elsewhere().outcome(FailsOnce { panics }).await;
        assert_eq!(ended, RunOutcome::Ran(json!({"went_on": 1})));
        setup.clock.advance(10 * MINUTE);
        assert_eq!(setup.outcome(FailsOnce { panics }).await, RunOutcome::NotOurs, "its slot has ended");
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

    let stubborn = orphans[1];
    setup.blobs.before_delete(move |key| ready(if *key == stubborn { unavailable() } else { Ok(()) }));
    let drained = setup.outcome(DrainDeletions).await;
    assert_eq!(drained, RunOutcome::Ran(json!({"removed": 2, "failed": 1})));
    assert_eq!(setup.blobs_there().await, [stubborn, kept]);

    setup.blobs.clear_hooks();
    setup.clock.advance(MINUTE);
    assert_eq!(setup.outcome(DrainDeletions).await, RunOutcome::Ran(json!({"removed": 1, "failed": 0})));
    assert_eq!(setup.blobs_there().await, [kept]);
}

async fn blob_of_a_possibly_running_request_is_kept(setup: TestEngine) {
    let young = setup.plant(setup.orphan_key(1)).await;
    let worker = setup.at(SystemClock.now().plus(20 * HOUR), |_| {});
    let swept = worker.run(SweepBlobs::default()).await;
    assert_eq!((&swept["condemned"], &swept["too_young"]), (&json!(0), &json!(1)));
    // With requests of an hour, a blob of two days may still be one's.
    let patient = setup.at(SystemClock.now().plus(2 * DAY), |options| options.request_deadline = HOUR);
    assert_eq!(patient.run(SweepBlobs::default()).await["too_young"], 1);
    assert_eq!(setup.blobs_there().await, [young]);
}

async fn write_whose_blob_was_swept_is_retried(setup: TestEngine) {
    let worker = setup.worker();
    let sweeper = worker.clone();
    setup.blobs.after_put(once(async move {
        assert_eq!(sweeper.run(SMALL).await["condemned"], 1);
        assert_eq!(sweeper.run(DrainDeletions).await["removed"], 1);
    }));
    setup.create("/memories/a.txt", "written anew").await;
    assert_eq!(setup.blobs.calls().put, 2);
    assert_eq!(setup.elsewhere().text_at("/memories/a.txt").await, "written anew");
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&setup.head("/a.txt").await.unwrap())]);
    assert_eq!(worker.run(SMALL).await["condemned"], 0);
    assert_all_is_well(&worker).await;
}

async fn sweep_of_a_killed_owner_is_resumed(setup: TestEngine) {
    let kept = setup.make("/kept.txt", "kept").await;
    let worker = setup.worker();
    for blob in 1..=3 {
        setup.plant(blob_key(1, 1, blob)).await;
    }
    // A run that stops in the range of the named blob, which is not listed and so looked for.
    let (store, named) = (worker.blobs.inner(), setup.blob_key(&kept.memory.head));
    let bytes = store.get(&named, u64::MAX).await.unwrap().unwrap();
    store.delete(&named).await.unwrap();
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    worker.blobs.before_get(once(async move { stop.cancel() }));
    let stopped = worker.engine.jobs.run(Arc::new(SMALL), RunRequest::SCHEDULED, &stopping).await;
    assert!(matches!(stopped, Ok(RunOutcome::Ran(_))) && stopping.is_cancelled(), "{stopped:?}");
    store.put(&named, bytes).await.unwrap();
    let (job_runs, name, now) = (&setup.index.job_runs, SMALL.plan().name, worker.now());
    let cursor = job_runs.cursor(name).await.unwrap();
    assert!(cursor.is_some(), "the first range was swept");
    let slot = Timestamp::from_micros(now.as_micros() - now.as_micros() % 86_400_000_000);
    let until = now.plus(MINUTE);
    let dead = job_runs.claim(name, slot, Uuid::nil(), now, until).await.unwrap().unwrap();
    assert!(job_runs.renew(name, dead, until, cursor.as_deref()).await.unwrap());
    assert_eq!(worker.outcome(SMALL).await, RunOutcome::NotOurs);

    worker.clock.advance(61 * SECOND);
    let lists_before = setup.blobs.calls().list;
    let whole = worker.run_in_slot(SMALL).await;
    assert_eq!(setup.blobs.calls().list - lists_before, 2, "the second range, and the end");
    assert_eq!((&whole["blobs"], &whole["condemned"]), (&json!(4), &json!(3)), "{whole}");
    assert_eq!(worker.outcome(SMALL).await, RunOutcome::NotOurs);
    worker.clock.advance(DAY);
    assert_eq!(worker.run_in_slot(SMALL).await["blobs"], 4);
}

async fn write_until(setup: &TestEngine, writer: u64, is_over: &AtomicBool) {
    let replica = setup.elsewhere();
    let again = format!("/memories/{writer}/again.txt");
    let mut done = 0;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let input = match number % 4 {
            0 => create(&format!("/memories/{writer}/{}.txt", number % 20), &format!("{number}\n")),
            1 => create(&again, &number.to_string()),
            2 => insert(&again, 0, "a line"),
            _ => delete(&again),
        };
        // A failed or refused call changes nothing, or leaves an orphan.
        let answer = replica.try_call(input).await;
        done += u64::from(answer.is_ok_and(|answer| !answer.is_error));
    }
    assert!(done > 0);
}

async fn sweep_during_full_write_load_causes_no_problems(setup: TestEngine) {
    let end = Instant::now() + 4 * SECOND;
    let fails_each = |times: u64| {
        let calls = AtomicU64::new(0);
        move |_: &BlobKey| {
            let is_due = (calls.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(times);
            ready(if is_due { unavailable() } else { Ok(()) })
        }
    };
    setup.blobs.after_put(fails_each(9));
    setup.blobs.before_delete(fails_each(2));
    let worker = setup.worker();
    let is_over = AtomicBool::new(false);
    let sweep = async {
        let (mut sweeps, mut condemned) = (0, 0);
        while Instant::now() < end || sweeps < 2 || (setup.has_object_store && condemned == 0) {
            let swept = worker.run(SweepBlobs { batch: 7 }).await;
            condemned += swept["condemned"].as_u64().unwrap();
            assert_eq!(swept["missing"], 0, "{swept}");
            worker.run(DrainDeletions).await;
            let counted = worker.run(ReconcileUsage).await;
            assert_eq!((&counted["drifted_stores"], &counted["lost_heads"]), (&json!(0), &json!(0)));
            assert_all_is_well(&worker).await;
            sweeps += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        condemned
    };
    let writers = futures::future::join_all((0..4).map(|writer| write_until(&setup, writer, &is_over)));
    let (_, condemned) = tokio::join!(writers, sweep);
    assert_eq!(condemned > 0, setup.has_object_store);

    setup.all_writes_end().await;
    setup.blobs.clear_hooks();
    assert_all_is_well(&worker).await;
    worker.run(SweepBlobs::default()).await;
    // Removals that failed are tried again later.
    worker.clock.advance(DAY / 2);
    worker.run(DrainDeletions).await;
    assert_all_is_well(&worker).await;
    let named = setup.index.upkeep.named_blobs(None, 100_000).await.unwrap();
    let mut named: Vec<_> = named.iter().map(|row| row.key).collect();
    named.dedup();
    assert_eq!(setup.blobs_there().await, named, "every blob has a row, and every row its blob");
}

async fn calls_are_forgotten_after_a_day_and_pruned_after_two(setup: TestEngine) {
    let make = async |key: &str| {
        let idempotency = Some(setup.call_named(key, key));
        let new = NewMemory { idempotency, ..new_memory(&format!("/{key}.txt"), "text") };
        setup.try_make(new).await.map(|made| made.memory.head.memory_id)
    };
    let pruned = async |batch| setup.run(Prune { batch }).await["idempotency_records"].clone();
    make("old").await.unwrap();
    // Kept for 48 hours: a day longer than a replica recognises the call, since clocks may differ.
    setup.clock.advance(2 * HOUR);
    let outdated = make("outdated").await.unwrap();
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(make("outdated").await.unwrap(), outdated);
    setup.clock.advance(2 * SECOND);
    assert!(make("outdated").await.is_err(), "it is another call, and the path is taken");
    let young = make("young").await.unwrap();
    setup.clock.advance(23 * HOUR);
    assert_eq!(setup.dry_run(Prune::default()).await["idempotency_records"], 1);
    assert_eq!(pruned(1).await, 1);
    assert_eq!(make("young").await.unwrap(), young);
    assert_eq!(pruned(100).await, 0);
}

async fn prune_drops_audit_entries_past_their_retention(setup: TestEngine) {
    let actions = async || {
        let (filter, page) = (AuditFilter::default(), PageRequest::default());
        let entries = setup.engine.audit.list(&setup.principal, &filter, &page).await.unwrap().items;
        entries.into_iter().map(|entry| entry.action).collect::<Vec<_>>()
    };
    let pruned = async || setup.run(Prune { batch: 2 }).await["audit_entries"].clone();
    let before = actions().await;
    assert!(before.iter().any(|action| action == "tenant.create"), "{before:?}");
    setup.clock.advance(399 * DAY);
    let draft = StoreDraft { name: "young".to_owned(), ..StoreDraft::default() };
    setup.engine.stores.create(&setup.principal, draft, None).await.unwrap();
    assert_eq!(pruned().await, 0);
    setup.clock.advance(2 * DAY);
    assert_eq!(pruned().await, before.len());
    assert_eq!(actions().await, ["memory_store.create"]);
}

/// A tenant that is listed before all others.
const FOREIGN: u128 = 1;

async fn plant_foreign(setup: &TestEngine, blobs: impl Iterator<Item = u128>) {
    for blob in blobs {
        setup.plant(blob_key(FOREIGN, 1, blob)).await;
    }
}

async fn assert_stops(worker: &TestEngine, sweep: SweepBlobs) {
    let outcome = worker.outcome(sweep).await;
    let RunOutcome::Failed(error) = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("names too few of the blobs"), "{error}");
}

async fn scheduled_sweep_stops_if_the_index_names_no_blob_or_few(setup: TestEngine) {
    plant_foreign(&setup, 1..=1).await;
    let (worker, sweep) = (setup.worker(), SweepBlobs { batch: 500 });
    assert_stops(&worker, sweep).await;
    worker.run_in_slot(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 1);
    worker.clock.advance(DAY);
    assert_eq!(worker.run(sweep).await["condemned"], 1, "an operator asked for it");

    setup.make("/kept.txt", "kept").await;
    plant_foreign(&setup, 2..=100).await;
    worker.clock.advance(DAY);
    assert_eq!(worker.run_in_slot(sweep).await["condemned"], 100);
    plant_foreign(&setup, 200..=300).await;
    worker.clock.advance(DAY);
    // The first hundred blobs are condemned but not removed yet, so they count as unnamed.
    assert_stops(&worker, sweep).await;
}

async fn orphans_listed_first_do_not_stop_the_sweep(setup: TestEngine) {
    plant_foreign(&setup, 1..=104).await;
    // In a store that is unknown, and after all that have a row.
    setup.plant(blob_key(setup.principal.tenant_id.uuid().as_u128(), 7, 1)).await;
    setup.plant(blob_key(u128::MAX, 1, 1)).await;
    for number in 0..110 {
        setup.make(&format!("/{number}.txt"), "kept").await;
    }
    let (worker, sweep) = (setup.worker(), SweepBlobs { batch: 105 });
    assert_eq!(worker.dry_run(sweep).await["condemned"], 106);
    assert_eq!(worker.run(DrainDeletions).await["removed"], 0, "it was a dry run");
    worker.clock.advance(DAY);
    let counts = worker.run_in_slot(sweep).await;
    assert_eq!((&counts["blobs"], &counts["condemned"]), (&json!(216), &json!(106)), "{counts}");
    worker.run(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await.len(), 110);
}

async fn sweep_stopped_by_foreign_blobs_starts_from_the_beginning(setup: TestEngine) {
    setup.make("/kept.txt", "kept").await;
    plant_foreign(&setup, 1..=101).await;
    let (worker, sweep) = (setup.worker(), SweepBlobs { batch: 60 });
    assert_stops(&worker, sweep).await;
    // Somebody moved the foreign blobs away.
    let foreign = TenantId::from_uuid(Uuid::from_u128(FOREIGN));
    setup.blobs.inner().erase_all(foreign, None, None, 1_000).await.unwrap();
    worker.clock.advance(10 * MINUTE);
    let counts = worker.run_in_slot(sweep).await;
    assert_eq!((&counts["blobs"], &counts["condemned"]), (&json!(1), &json!(0)), "{counts}");
}
