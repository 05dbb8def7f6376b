//! An undo in several commits: its plan is fixed when it begins, and it survives its worker. So does
//! the copy of a store.

use keepsake_engine::StoreRestoration;

use crate::prelude::*;
use crate::removals::{below, erase};

with_object_store! {
    interrupted_undo_ends_as_planned,
    undo_ends_after_an_hour_of_failures,
    cancelled_undo_says_what_is_left,
    large_undo_of_a_full_store_makes_room_first,
    new_gate_holds_for_changes_under_way,
    interrupted_copy_of_a_store_is_continued,
}

on_backend! { sqlite, on_sqlite, long_histories_are_narrowed_by_directory_and_counted_by_memory, }

const MEMORIES: usize = 600;

async fn write_all(setup: &TestEngine, content: &str) {
    for half in [0..MEMORIES / 2, MEMORIES / 2..MEMORIES] {
        setup.write_all(half.map(|n| (format!("/p/{n:03}"), format!("{content} {n}")))).await;
    }
}

async fn found(setup: &TestEngine, undo_id: MemoryUndoId) -> MemoryUndo {
    setup.engine.undos.get(&setup.principal, setup.store_id, undo_id).await.unwrap()
}

/// Begins an undo of two commits, whose worker dies while it reads for the second one.
async fn interrupted_undo(setup: &TestEngine) -> MemoryUndoId {
    write_all(setup, "first").await;
    write_all(setup, "second").await;
    let (reads, hang) = hanging_after(500);
    setup.blobs.before_get(reads);
    let undo_id = begin_undo(setup, MEMORIES as u64).await;
    hang.notified().await;
    setup.blobs.clear_hooks();
    undo_id
}

async fn begin_undo(setup: &TestEngine, after_seq: u64) -> MemoryUndoId {
    let request = UndoRequest { after_seq: Some(after_seq), ..UndoRequest::default() };
    let begun = setup.engine.undos.undo(&setup.principal, setup.store_id, request).await.unwrap();
    assert_eq!((begun.status, begun.left), (Some(UndoStatus::InProgress), 600));
    begun.id.unwrap()
}

/// Begins an undo on a replica that stops, which leaves it to the job.
async fn leave_undo(setup: &TestEngine, after_seq: u64) -> MemoryUndoId {
    let replica = setup.elsewhere();
    replica.engine.shut_down(Duration::ZERO).await;
    begin_undo(&replica, after_seq).await
}

async fn interrupted_undo_ends_as_planned(setup: TestEngine) {
    let undo_id = interrupted_undo(&setup).await;
    let replica = setup.elsewhere();
    replica.call(json!({"command": "str_replace", "path": "/memories/p/550", "old_str": "second", "new_str": "third"})).await;
    let continued = async || replica.run_in_slot(ContinueUndos).await;
    assert_eq!(continued().await, json!({"continued": 0, "failed": 0}), "it is another's");
    assert_eq!(found(&setup, undo_id).await.left, 100);
    setup.clock.advance(3 * MINUTE);
    assert_eq!(continued().await, json!({"continued": 1, "failed": 0}));
    let done = found(&setup, undo_id).await;
    let counts = UndoCounts { restored: 599, skipped: 1, ..UndoCounts::default() };
    assert_eq!((done.status, done.left, done.counts), (Some(UndoStatus::Done), 0, counts));
    assert_eq!(setup.operations().await.len(), 20, "a page");
    for (n, content) in
        [(0, "first 0"), (499, "first 499"), (500, "first 500"), (550, "third 550"), (599, "first 599")]
    {
        let shown = replica.call(view(&format!("/memories/p/{n:03}"))).await;
        assert!(shown.contains(content), "{shown}");
    }
    // Each memory was changed once.
    let seq =
        setup.index.undos.versions(setup.principal.tenant_id, setup.store_id, &[1800, 1801]).await.unwrap();
    assert_eq!(seq.keys().copied().collect::<Vec<_>>(), [1800]);
    let skipped = done.data.iter().find(|memory| memory.reason.is_some());
    assert!(skipped.is_none_or(|memory| memory.reason == Some(UndoSkipReason::ChangedLater)));
}

async fn undo_ends_after_an_hour_of_failures(setup: TestEngine) {
    let undo_id = interrupted_undo(&setup).await;
    setup.blobs.before_get(fails);
    for (later, ended) in [(3 * MINUTE, 0), (58 * MINUTE, 0), (3 * MINUTE, 1)] {
        setup.clock.advance(later);
        let run = setup.elsewhere().run_in_slot(ContinueUndos).await;
        assert_eq!(run, json!({"continued": ended, "failed": 1 - ended}));
    }
    let failed = found(&setup, undo_id).await;
    assert_eq!((failed.status, failed.left), (Some(UndoStatus::Failed), 100));
    assert!(failed.error.as_deref().is_some_and(|error| error.contains("for an hour")), "{failed:?}");
}

async fn cancelled_undo_says_what_is_left(setup: TestEngine) {
    let undo_id = interrupted_undo(&setup).await;
    for _ in 0..2 {
        let cancelled = setup.engine.undos.cancel(&setup.principal, setup.store_id, undo_id).await.unwrap();
        assert_eq!((cancelled.status, cancelled.left), (Some(UndoStatus::Cancelled), 100));
    }
    setup.clock.advance(3 * MINUTE);
    let run = setup.elsewhere().run_in_slot(ContinueUndos).await;
    assert_eq!(run, json!({"continued": 1, "failed": 0}));
    assert_eq!(setup.text_at("/memories/p/550").await, "second 550");
}

/// Counts the rows that the worker of an undo writes, and fails at step 0. A worker that has lost its lease writes no row.
const COUNT_STEPS: &str = "CREATE SEQUENCE step MINVALUE -100; \
    CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN \
        IF nextval('step') = 0 THEN RAISE EXCEPTION 'stopped'; END IF; RETURN NEW; END $$; \
    CREATE TRIGGER stop BEFORE INSERT ON idempotency FOR EACH ROW EXECUTE FUNCTION stop(); \
    CREATE TRIGGER stop BEFORE UPDATE ON memory_undo FOR EACH ROW EXECUTE FUNCTION stop(); \
    CREATE TRIGGER stop BEFORE UPDATE ON memory_undo_part FOR EACH ROW EXECUTE FUNCTION stop()";
/// It takes the undo; commits each of two parts, renews its lease, and records the part; and ends the undo.
const STEPS: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_that_stops_at_any_step_ends_as_an_undisturbed_one() {
    let setup = TestEngine::postgres_and_s3().await;
    write_all(&setup, "first").await;
    write_all(&setup, "second").await;
    setup.database().execute(COUNT_STEPS).await;
    // Each undo takes back the one before. The last one is undisturbed.
    for (step, content) in (1..=STEPS + 1).zip(["first", "second"].into_iter().cycle()) {
        let undo_id = leave_undo(&setup, step * MEMORIES as u64).await;
        setup.database().execute(&format!("SELECT setval('step', -{step})")).await;
        let replica = setup.elsewhere();
        setup.clock.advance(3 * MINUTE);
        let run = replica.run_in_slot(ContinueUndos).await;
        assert_eq!(run["failed"], u64::from(step <= STEPS), "step {step}: {run}");
        setup.clock.advance(3 * MINUTE);
        replica.run_in_slot(ContinueUndos).await;
        let done = found(&setup, undo_id).await;
        let counts = UndoCounts { restored: MEMORIES as u64, ..UndoCounts::default() };
        assert_eq!((done.status, done.left, done.counts), (Some(UndoStatus::Done), 0, counts), "step {step}");
        for n in [0, 499, 500, 599] {
            assert_eq!(replica.text_at(&format!("/memories/p/{n:03}")).await, format!("{content} {n}"));
        }
        let last = i64::try_from((step + 2) * MEMORIES as u64).unwrap();
        let (tenant_id, versions) = (setup.principal.tenant_id, [last, last + 1]);
        let seqs = setup.index.undos.versions(tenant_id, setup.store_id, &versions).await.unwrap();
        assert_eq!(seqs.keys().copied().collect::<Vec<_>>(), [last], "step {step}: each was changed once");
    }
    // An undo whose plan is damaged ends at once.
    let undo_id = leave_undo(&setup, (STEPS + 2) * MEMORIES as u64).await;
    let damage = "SELECT setval('step', 1); UPDATE memory_undo_part SET steps = 'x' WHERE NOT is_done";
    setup.database().execute(damage).await;
    setup.clock.advance(3 * MINUTE);
    let run = setup.elsewhere().run_in_slot(ContinueUndos).await;
    assert_eq!(run, json!({"continued": 1, "failed": 0}));
    let failed = found(&setup, undo_id).await;
    assert_eq!((failed.status, failed.left), (Some(UndoStatus::Failed), 600), "{failed:?}");
    // A worker makes the first part while the undo is cancelled, and stops before it records the part.
    let undo_id = leave_undo(&setup, (STEPS + 2) * MEMORIES as u64).await;
    setup.database().execute("SELECT setval('step', -4)").await;
    let other = setup.elsewhere();
    setup.blobs.before_get(once(async move {
        other.engine.undos.cancel(&other.principal, other.store_id, undo_id).await.unwrap();
    }));
    for failed in [1, 0] {
        // After the commit, its record is damaged.
        setup.database().execute("UPDATE idempotency SET results = 'x'").await;
        setup.clock.advance(3 * MINUTE);
        let run = setup.elsewhere().run_in_slot(ContinueUndos).await;
        assert_eq!(run, json!({"continued": 1 - failed, "failed": failed}));
    }
    let cancelled = found(&setup, undo_id).await;
    assert_eq!((cancelled.status, cancelled.left), (Some(UndoStatus::Cancelled), 100));
    // A repeated call whose report is removed makes nothing again.
    let replica = setup.elsewhere();
    replica.engine.shut_down(Duration::ZERO).await;
    let undo = async || {
        let idempotency = Some(setup.call_named("undo", "body"));
        let request = UndoRequest { after_seq: Some(0), idempotency, ..UndoRequest::default() };
        replica.engine.undos.undo(&setup.principal, setup.store_id, request).await
    };
    assert_eq!(undo().await.unwrap().left, 600);
    setup.database().execute("DELETE FROM memory_undo_part; DELETE FROM memory_undo").await;
    let repeated = undo().await;
    assert!(matches!(repeated, Err(EngineError::Conflict(why)) if why.contains("removed")), "{repeated:?}");
}

async fn long_histories_are_narrowed_by_directory_and_counted_by_memory(setup: TestEngine) {
    for round in 0..22 {
        setup.write_all((0..500).map(|n| (format!("/p/{n}"), round.to_string()))).await;
    }
    setup.make("/q/one", "new").await;
    let after = |path_prefix: &str| UndoRequest {
        after_seq: Some(500),
        path_prefix: Some(path_prefix.to_owned()),
        dry_run: Some(true),
        ..UndoRequest::default()
    };
    let planned =
        async |request: UndoRequest| setup.engine.undos.undo(&setup.principal, setup.store_id, request).await;
    let refused = planned(after("/p/")).await;
    assert!(matches!(refused, Err(EngineError::Invalid { field: "path_prefix", .. })), "{refused:?}");
    assert_eq!(planned(after("/q/")).await.unwrap().counts.deleted, 1);
    let then = StoreRestoration { at_seq: Some(500), dry_run: Some(true), ..StoreRestoration::default() };
    let plan = setup.engine.undos.restore(&setup.principal, setup.store_id, then).await.unwrap();
    assert_eq!((plan.counts.restored, plan.counts.deleted), (500, 1));
}

async fn large_undo_of_a_full_store_makes_room_first(setup: TestEngine) {
    let setup = setup.of_tenant_with(json!({"memories_per_store": 300})).await;
    let below = |directory| (0..300).map(move |n| (format!("/{directory}/{n}"), "x".to_owned()));
    setup.write_all(below("a")).await;
    setup.call(json!({"command": "delete", "path": "/memories/a"})).await;
    // All the first ones wait for this deletion only.
    let at_their_directory = ("/a".to_owned(), "x".to_owned());
    setup.write_all(below("b").skip(1).chain([at_their_directory])).await;
    let request = UndoRequest { after_seq: Some(300), ..UndoRequest::default() };
    let mut undo = setup.engine.undos.undo(&setup.principal, setup.store_id, request).await.unwrap();
    let undo_id = undo.id.unwrap();
    while undo.status == Some(UndoStatus::InProgress) {
        tokio::task::yield_now().await;
        undo = found(&setup, undo_id).await;
    }
    let counts = UndoCounts { recreated: 300, deleted: 300, ..UndoCounts::default() };
    assert_eq!((undo.status, undo.counts), (Some(UndoStatus::Done), counts), "{:?}", undo.error);
}

/// Tests that become a gate are passed neither by a batch that was admitted before nor by the rest of an undo.
async fn new_gate_holds_for_changes_under_way(setup: TestEngine) {
    let undo_id = interrupted_undo(&setup).await;
    let other = setup.elsewhere();
    setup.blobs.before_put(once(async move {
        other.make("/.keepsake/tests.yaml", "gate: true\ntests:\n- max_files: 0\n").await;
    }));
    let batch = json!({"operations": [{"type": "create", "path": "/a", "content": "x"}]});
    let refused = setup.try_batch(batch).await;
    assert!(matches!(refused, Err(EngineError::BrokenTests(_))), "{refused:?}");
    assert_eq!(setup.head("/a").await, None);

    setup.clock.advance(3 * MINUTE);
    let continued = setup.elsewhere().run_in_slot(ContinueUndos).await;
    assert_eq!(continued, json!({"continued": 1, "failed": 0}));
    let failed = found(&setup, undo_id).await;
    assert_eq!((failed.status, failed.left), (Some(UndoStatus::Failed), 100));
    assert!(failed.error.as_deref().is_some_and(|error| error.contains("are a gate")), "{failed:?}");
    assert_eq!(setup.text_at("/memories/p/550").await, "second 550");
}

async fn interrupted_copy_of_a_store_is_continued(setup: TestEngine) {
    write_all(&setup, "first").await;
    setup.make("/p/000-token", "ghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu").await;
    let redacted = setup.make("/p/000-wrong", "wrong").await;
    let last = setup.make("/q", "last").await;
    setup.make("/a/erased", "erased").await;
    // The worker hangs while it stores contents of its second commit, and dies there.
    let (puts, hang) = hanging_after(150);
    setup.blobs.before_put(puts);
    let fork_of = Some(StoreFork { memory_store_id: setup.store_id, at_seq: None });
    let (name, policy) = ("fork".to_owned(), Some("reject".to_owned()));
    let draft = StoreDraft { name, policy, fork_of, ..StoreDraft::default() };
    let made = setup.engine.stores.create(&setup.principal, draft, None).await.unwrap();
    hang.notified().await;
    setup.blobs.clear_hooks();
    // As if the first commit had not been recorded; it has memories that another read does not find.
    let (tenant_id, held_until) = (setup.principal.tenant_id, made.created_at.plus(FORK_HELD_FOR));
    let forks = &setup.index.forks;
    let open = forks.find(tenant_id, made.store_id).await.unwrap().unwrap();
    let begin = ("", ForkCounts { copied: 0, ..open.counts });
    assert!(forks.advance(tenant_id, made.store_id, begin, held_until, held_until).await.unwrap());
    for memory in [&redacted, &last] {
        setup.update(memory, new_content("right")).await.unwrap();
        setup.redact(memory).await;
    }
    let replica = setup.elsewhere();
    erase(&replica, below(&replica, "/a/")).await;
    let continued = async || replica.run_in_slot(ContinueForks).await;
    assert_eq!(continued().await, json!({"continued": 0, "failed": 0}), "it is another's");
    // The clock of the other one was ahead.
    let ahead = held_until.plus(365 * DAY);
    assert!(forks.advance(tenant_id, made.store_id, begin, held_until, ahead).await.unwrap());
    setup.clock.advance(MINUTE);
    assert_eq!(continued().await, json!({"continued": 1, "failed": 0}));
    let fork = replica.engine.stores.get(&setup.principal, made.store_id).await.unwrap();
    let origin = StoreOrigin {
        memory_store_id: setup.store_id,
        seq: 604,
        status: StoreOriginStatus::Done,
        // `/p/000-token` and `/q`. Two copied memories are erased and redacted in the source by now.
        skipped: 2,
        error: None,
    };
    assert_eq!((fork.memory_count, fork.forked_from), (602, Some(origin)));
    let versions =
        setup.index.undos.versions(setup.principal.tenant_id, made.store_id, &[602, 603]).await.unwrap();
    assert_eq!(versions.len(), 1, "each memory was written once");
}
