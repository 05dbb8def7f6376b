//! An undo in several commits: its plan is fixed when it begins, and it survives its worker. So does
//! the copy of a store.

use keepsake_core::MemoryUndoId;
use keepsake_engine::jobs::{ContinueForks, ContinueUndos};
use keepsake_engine::{MemoryUndo, StoreFork, UndoCounts, UndoRequest, UndoSkipReason, UndoStatus};
use keepsake_index::{StoreOrigin, StoreOriginStatus};

use crate::prelude::*;

crate::with_object_store! {
    interrupted_undo_ends_as_planned,
    interrupted_copy_of_a_store_is_continued,
}

const MEMORIES: usize = 600;

async fn write_all(setup: &TestEngine, content: &str) {
    for half in [0..MEMORIES / 2, MEMORIES / 2..MEMORIES] {
        setup.write_all(half.map(|n| (format!("/p/{n:03}"), format!("{content} {n}")))).await;
    }
}

async fn found(setup: &TestEngine, undo_id: MemoryUndoId) -> MemoryUndo {
    setup.engine.undos.get(&setup.principal, setup.store_id, undo_id).await.unwrap()
}

async fn interrupted_undo_ends_as_planned(setup: TestEngine) {
    write_all(&setup, "first").await;
    write_all(&setup, "second").await;
    // The worker hangs while it reads for its second commit, and dies there.
    let (reads, hang) = hanging_after(500);
    setup.blobs.before_get(reads);
    let request = UndoRequest { after_seq: Some(MEMORIES as u64), ..UndoRequest::default() };
    let begun = setup.engine.undos.undo(&setup.principal, setup.store_id, request).await.unwrap();
    let undo_id = begun.id.unwrap();
    assert_eq!((begun.status, begun.left), (Some(UndoStatus::InProgress), 600));
    hang.notified().await;
    setup.blobs.clear_hooks();
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

async fn interrupted_copy_of_a_store_is_continued(setup: TestEngine) {
    write_all(&setup, "first").await;
    // The worker hangs while it stores contents of its second commit, and dies there.
    let (puts, hang) = hanging_after(150);
    setup.blobs.before_put(puts);
    let fork_of = Some(StoreFork { memory_store_id: setup.store_id, at_seq: None });
    let draft = StoreDraft { name: "fork".to_owned(), fork_of, ..StoreDraft::default() };
    let made = setup.engine.stores.create(&setup.principal, draft, None).await.unwrap();
    hang.notified().await;
    setup.blobs.clear_hooks();
    let replica = setup.elsewhere();
    let continued = async || replica.run_in_slot(ContinueForks).await;
    assert_eq!(continued().await, json!({"continued": 0, "failed": 0}), "it is another's");
    setup.clock.advance(3 * MINUTE);
    assert_eq!(continued().await, json!({"continued": 1, "failed": 0}));
    let fork = replica.engine.stores.get(&setup.principal, made.store_id).await.unwrap();
    let origin = StoreOrigin {
        memory_store_id: setup.store_id,
        seq: 600,
        status: StoreOriginStatus::Done,
        skipped: 0,
        error: None,
    };
    assert_eq!((fork.memory_count, fork.forked_from), (600, Some(origin)));
    let versions =
        setup.index.undos.versions(setup.principal.tenant_id, made.store_id, &[600, 601]).await.unwrap();
    assert_eq!(versions.len(), 1, "each memory was written once");
}
