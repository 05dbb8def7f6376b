//! Memories by their ids, and lists of them.

use std::collections::BTreeSet;

use keepsake_core::{MemoryId, StoreId};
use keepsake_index::{
    AccessRow, Commit, Depth, Expiry, ExpiryChange, FoundMemory, Kept, Memory, MemoryItem, MemoryTarget, Pin,
    StoreChange, StoreState,
};

use crate::place::{
    NOW, Place, actor, after_seconds, by_tenant, created, deleted, edited, listing, next_uuid, path_of,
    renamed, shown_path,
};
use crate::subject::Subject;

/// Names whose order in bytes is not that of people, nor that of directories
/// without their last slash.
const PATHS: [&str; 18] = [
    "/.hidden",
    "/.hidden.d/x",
    "/B",
    "/a",
    "/a-",
    "/a-b/x",
    "/a.b",
    "/a.b.c/x/y",
    "/d-/x",
    "/d.b/x",
    "/d/.hidden",
    "/d/e/f/g",
    "/d/e.txt",
    "/d/e-/x",
    "/d0",
    "/node_modules/x",
    "/é",
    "/日本/語",
];

/// The paths of a whole listing, read page by page.
async fn paths(place: &Place, below: &str, depth: Depth, limit: u32) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    loop {
        let items = place
            .page(&listing(below, depth, paths.last().cloned(), limit))
            .await
            .items;
        assert!(items.len() <= limit as usize);
        let is_last = items.len() < limit as usize;
        paths.extend(items.iter().map(path_of));
        if is_last {
            return paths;
        }
    }
}

/// What a listing should show of [`PATHS`].
fn expected(below: &str, depth: Depth) -> Vec<String> {
    let shown = PATHS.iter().filter_map(|path| shown_path(path, below, depth));
    // Texts are ordered by their bytes.
    shown.collect::<BTreeSet<_>>().into_iter().collect()
}

async fn memory_of(place: &Place, memory_id: MemoryId) -> FoundMemory {
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, memory_id)
        .await
        .unwrap();
    found.expect("the store exists")
}

pub(crate) async fn every_page_size_lists_everything_once_in_byte_order(subject: &Subject) {
    let place = Place::new(subject).await;
    place
        .change(PATHS.iter().rev().map(|at| created(at, 1)).collect())
        .await;
    for depth in [Depth::All, Depth::Children] {
        for below in ["/", "/d/", "/d/e/", "/a.b.c/", "/.hidden.d/", "/a/", "/nowhere/"] {
            for limit in [1, 2, 3, 7, 100] {
                assert_eq!(
                    paths(&place, below, depth, limit).await,
                    expected(below, depth),
                    "{below} by {limit}"
                );
            }
        }
    }
    assert_eq!(
        expected("/d/", Depth::Children).len(),
        4,
        "the model does not work"
    );
}

pub(crate) async fn listing_begins_after_any_text(subject: &Subject) {
    let place = Place::new(subject).await;
    place
        .change(PATHS.iter().map(|at| created(at, 1)).collect())
        .await;
    // Deleted paths, paths inside a listed directory, and other texts.
    for after in [
        "/", "/a", "/a!", "/a.b/", "/d", "/d.b/x", "/d/e", "/d/e/f", "/d/", "/e", "/z", "0",
    ] {
        for depth in [Depth::All, Depth::Children] {
            for below in ["/", "/d/", "/d/e/"] {
                let all = expected(below, depth);
                let rest: Vec<_> = all.into_iter().filter(|path| path.as_str() > after).collect();
                let items = place
                    .page(&listing(below, depth, Some(after.to_owned()), 100))
                    .await
                    .items;
                let found: Vec<_> = items.iter().map(path_of).collect();
                assert_eq!(found, rest, "{below} after {after}");
            }
        }
    }
}

/// Unused memories expire after a minute from now on.
async fn set_period(place: &Place) {
    let period = StoreChange {
        expires_unused_after: Some(Some(60)),
        now: after_seconds(3),
        ..StoreChange::default()
    };
    let (stores, tenant_id) = (&place.index.stores, place.tenant_id);
    stores
        .update(tenant_id, place.store_id, &period, None, &by_tenant(NOW))
        .await
        .unwrap();
}

async fn archive(place: &Place) {
    let (stores, tenant_id) = (&place.index.stores, place.tenant_id);
    stores
        .archive(tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
}

/// Each first page, asked for twice, has these paths, and the memories that are found by
/// their ids.
async fn assert_first_pages(place: &Place, expected: &[&str]) {
    for (below, depth) in [("/", Depth::All), ("/d/", Depth::All), ("/d/", Depth::Children)] {
        for _ in 0..2 {
            let page = place.page(&listing(below, depth, None, 10)).await;
            let paths: Vec<_> = page.items.iter().map(path_of).collect();
            assert_eq!(paths, expected, "{below}");
            for item in page.items {
                let MemoryItem::Memory { memory, .. } = item else {
                    panic!("{item:?}");
                };
                let found = memory_of(place, memory.head.memory_id).await;
                assert_eq!((found.store, found.expiry), (page.store, page.expiry));
                assert_eq!(found.target, MemoryTarget::Live(*memory));
            }
        }
    }
}

pub(crate) async fn first_pages_show_every_change(subject: &Subject) {
    let place = Place::new(subject).await;
    let (index, tenant_id, store_id) = (&place.index, place.tenant_id, place.store_id);
    let first = place.create("/d/a", 1).await;
    assert_first_pages(&place, &["/d/a"]).await;
    let second = place.create("/d/b", 1).await;
    assert_first_pages(&place, &["/d/a", "/d/b"]).await;
    place.change(vec![edited(&first, 2)]).await;
    assert_first_pages(&place, &["/d/a", "/d/b"]).await;
    place
        .change(vec![renamed(&place.memory("/d/a").await, "/d/c")])
        .await;
    assert_first_pages(&place, &["/d/b", "/d/c"]).await;
    let pin = Pin {
        store_id,
        memory_id: second.memory_id,
        expected: second.version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: NOW,
    };
    index.memories.pin(tenant_id, &pin).await.unwrap();
    assert_first_pages(&place, &["/d/b", "/d/c"]).await;
    // Only the expiry of a memory, in the commit of another one.
    let unpinned = Kept {
        memory_id: second.memory_id,
        expected: second.version_id,
        expiry: ExpiryChange::pinned(false),
    };
    let commit = Commit {
        kept: vec![unpinned],
        ..place.commit_of(vec![created("/elsewhere/a", 1)])
    };
    place.run(&commit).await;
    place
        .change(vec![deleted(&place.memory("/elsewhere/a").await)])
        .await;
    assert_first_pages(&place, &["/d/b", "/d/c"]).await;
    let read = AccessRow {
        tenant_id,
        store_id,
        memory_id: second.memory_id,
        read_at: after_seconds(9),
        read_by: actor(),
    };
    index.access_times.flush(&[read]).await.unwrap();
    assert_first_pages(&place, &["/d/b", "/d/c"]).await;
    set_period(&place).await;
    assert_first_pages(&place, &["/d/b", "/d/c"]).await;
    place.change(vec![deleted(&second)]).await;
    assert_first_pages(&place, &["/d/c"]).await;
    archive(&place).await;
    assert_first_pages(&place, &["/d/c"]).await;
    let last = place.memory("/d/c").await;
    place.change(vec![deleted(&last)]).await;
    assert_first_pages(&place, &[]).await;
}

pub(crate) async fn unchanged_memories_are_listed_once_during_changes(subject: &Subject) {
    let place = Place::new(subject).await;
    let stays: Vec<_> = (0..20).map(|number| format!("/d{number:02}/stays")).collect();
    place
        .change(stays.iter().map(|at| created(at, 1)).collect())
        .await;
    let mut goes = Vec::new();
    for number in 0..20 {
        goes.push(place.create(&format!("/f{number:02}"), 1).await);
    }
    for depth in [Depth::All, Depth::Children] {
        let mut seen: Vec<String> = Vec::new();
        loop {
            let items = place
                .page(&listing("/", depth, seen.last().cloned(), 3))
                .await
                .items;
            if items.is_empty() {
                break;
            }
            seen.extend(items.iter().map(path_of));
            // A memory is deleted, at times the cursor's own, and another one is created
            // before the cursor.
            if let Some(head) = goes.pop() {
                place.change(vec![deleted(&head)]).await;
            }
            let before = format!("/!{}", seen.len());
            if matches!(place.target(&before, 0).await, keepsake_index::Target::Missing) {
                place.create(&before, 1).await;
            }
        }
        let unique: BTreeSet<_> = seen.iter().collect();
        assert_eq!(unique.len(), seen.len(), "{seen:?}");
        for path in &stays {
            let shown = match depth {
                Depth::All => path.clone(),
                Depth::Children => path.trim_end_matches("stays").to_owned(),
            };
            assert!(seen.contains(&shown), "{shown} is not in {seen:?}");
        }
        assert!(seen.is_sorted());
    }
}

pub(crate) async fn deleted_and_renamed_ones_are_not_listed(subject: &Subject) {
    let place = Place::new(subject).await;
    let gone = place.create("/gone/a", 1).await;
    let moved = place.create("/from/a", 1).await;
    place.change(vec![deleted(&gone), renamed(&moved, "/to/a")]).await;
    assert_eq!(paths(&place, "/", Depth::All, 10).await, ["/to/a"]);
    assert_eq!(paths(&place, "/", Depth::Children, 10).await, ["/to/"]);
    assert_eq!(
        paths(&place, "/gone/", Depth::Children, 10).await,
        Vec::<String>::new()
    );
}

pub(crate) async fn memory_is_the_same_by_id_and_in_lists(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/d/a", 3).await;
    let mut edit = place.commit_of(vec![edited(&head, 4)]);
    edit.now = after_seconds(5);
    let after = edit.changes[0].after.as_mut().unwrap();
    after.expiry = ExpiryChange::pinned(true);
    let first_line = "what it begins with: äöü".to_owned();
    after.first_line = Some(first_line.clone());
    place.run(&edit).await;
    place.create("/d/b", 1).await;
    let read = AccessRow {
        tenant_id: place.tenant_id,
        store_id: place.store_id,
        memory_id: head.memory_id,
        read_at: after_seconds(9),
        read_by: actor(),
    };
    place.index.access_times.flush(&[read]).await.unwrap();

    let expected = Memory {
        head: place.memory("/d/a").await,
        is_pinned: true,
        expires_at: None,
        created_at: NOW,
        updated_at: after_seconds(5),
        last_read_at: Some(after_seconds(9)),
        active_at: Some(after_seconds(9)),
    };
    let found = memory_of(&place, head.memory_id).await;
    assert_eq!(found.target, MemoryTarget::Live(expected.clone()));
    for depth in [Depth::All, Depth::Children] {
        let items = place.page(&listing("/d/", depth, None, 10)).await.items;
        let read = MemoryItem::Memory {
            memory: Box::new(expected.clone()),
            first_line: first_line.clone(),
        };
        assert_eq!(items[0], read);
        let MemoryItem::Memory { memory: unread, .. } = &items[1] else {
            panic!("{items:?}");
        };
        assert_eq!((unread.last_read_at, unread.active_at), (None, None));
        assert!(!unread.is_pinned);
    }
}

pub(crate) async fn deleted_memory_is_distinguished_from_an_unknown_one(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let delete = deleted(&head);
    place.change(vec![delete.clone()]).await;
    assert_eq!(
        memory_of(&place, head.memory_id).await.target,
        MemoryTarget::Deleted {
            version_id: delete.version_id,
            created_at: NOW,
            is_pinned: false,
            last_read_at: None,
            active_at: None,
        }
    );
    let nobody = MemoryId::from_uuid(next_uuid());
    assert_eq!(memory_of(&place, nobody).await.target, MemoryTarget::Missing);
}

pub(crate) async fn memories_and_lists_show_the_state_of_their_store(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    set_period(&place).await;
    archive(&place).await;
    let store = StoreState {
        is_archived: true,
        purge_epoch: 0,
    };
    let expiry = Expiry {
        unused_after_secs: Some(60),
        set_at: Some(after_seconds(3)),
    };
    let found = memory_of(&place, head.memory_id).await;
    assert_eq!((found.store, found.expiry), (store, expiry));
    for below in ["/", "/nowhere/"] {
        for depth in [Depth::All, Depth::Children] {
            let page = place.page(&listing(below, depth, None, 10)).await;
            assert_eq!((page.store, page.expiry), (store, expiry), "{below}");
        }
    }
}

pub(crate) async fn missing_store_has_no_memories_and_no_lists(subject: &Subject) {
    let place = Place::new(subject).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    let memory_id = MemoryId::from_uuid(next_uuid());
    let found = place
        .index
        .memories
        .find(place.tenant_id, nowhere, memory_id)
        .await;
    assert_eq!(found.unwrap(), None);
    for depth in [Depth::All, Depth::Children] {
        let page = place
            .index
            .memories
            .list(place.tenant_id, nowhere, &listing("/", depth, None, 10))
            .await;
        assert_eq!(page.unwrap(), None);
    }
}
