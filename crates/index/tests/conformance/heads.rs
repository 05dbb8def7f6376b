//! Lookups by path.

use keepsake_core::{DirPath, StoreId};
use keepsake_index::{Directory, Entry, Target};

use crate::place::{NOW, PLENTY, Place, by_tenant, dir, next_uuid, path};
use crate::subject::Subject;

pub(crate) async fn missing_store_is_none(subject: &Subject) {
    let place = Place::new(subject).await;
    let nowhere = StoreId::from_uuid(next_uuid());
    for at in [None, Some(path("/a"))] {
        let found = place
            .index
            .memories
            .head(place.tenant_id, nowhere, at.as_ref(), 10)
            .await
            .unwrap();
        assert_eq!(found, None);
    }
}

pub(crate) async fn deleted_store_is_none(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    place
        .raw
        .execute(
            "UPDATE store SET deleted_at = 1 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    let found = place
        .index
        .memories
        .head(place.tenant_id, place.store_id, None, 10)
        .await
        .unwrap();
    assert_eq!(found, None);
    assert_eq!(
        place
            .index
            .stores
            .find(place.tenant_id, place.store_id)
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn unused_path_is_missing(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/notes/today.md", 3).await;
    for at in [
        "/note",
        "/notes/today",
        "/notes/today.md/deeper",
        "/notes/today.md0",
        "/other",
    ] {
        assert_eq!(place.target(at, 10).await, Target::Missing, "{at}");
    }
}

pub(crate) async fn memory_is_found_with_its_version(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = crate::place::created("/notes/today.md", 42);
    place.change(vec![change.clone()]).await;

    let head = place.memory("/notes/today.md").await;
    let content = change.after.unwrap();
    assert_eq!(head.memory_id, change.memory_id);
    assert_eq!(head.version_id, change.version_id);
    assert_eq!(head.path, content.path);
    assert_eq!(head.blob_id, content.blob_id);
    assert_eq!(head.sha256, content.sha256);
    assert_eq!((head.seq, head.size_bytes, head.claim), (1, 42, None));
}

pub(crate) async fn directory_counts_everything_below_it(subject: &Subject) {
    let place = Place::new(subject).await;
    for (at, size_bytes) in [
        ("/d/a", 1),
        ("/d/.hidden", 10),
        ("/d/sub/deep/b", 100),
        ("/elsewhere", 1000),
    ] {
        place.create(at, size_bytes).await;
    }
    let directory = place.directory("/d", 0).await;
    assert_eq!((directory.files, directory.size_bytes), (3, 111));
    assert_eq!(directory.entries, []);
    let directory = place.directory("/d/sub", 10).await;
    assert_eq!((directory.files, directory.size_bytes), (1, 100));
}

pub(crate) async fn root_of_an_empty_store_is_an_empty_directory(subject: &Subject) {
    let place = Place::new(subject).await;
    let empty = Directory {
        files: 0,
        size_bytes: 0,
        total_entries: 0,
        entries: Vec::new(),
    };
    assert_eq!(place.target("/", 0).await, Target::Directory(empty.clone()));
    assert_eq!(place.target("/", 10).await, Target::Directory(empty));
}

pub(crate) async fn directory_is_removed_with_its_last_file(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a/b/c", 5).await;
    place.create("/a/x", 5).await;
    place.change(vec![crate::place::deleted(&head)]).await;
    assert_eq!(place.target("/a/b", 0).await, Target::Missing);
    assert_eq!(place.directory("/a", 0).await.files, 1);
    assert_eq!(place.target("/a/b/c", 0).await, Target::Missing);
}

pub(crate) async fn archived_store_is_marked(subject: &Subject) {
    let place = Place::new(subject).await;
    let state = async || {
        place
            .index
            .memories
            .head(place.tenant_id, place.store_id, None, 0)
            .await
            .unwrap()
            .unwrap()
            .store
    };
    let open = state().await;
    assert_eq!((open.is_archived, open.purge_epoch), (false, 0));
    place
        .raw
        .execute(
            "UPDATE store SET purge_epoch = 7 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    let stores = &place.index.stores;
    let archived = stores
        .archive(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await;
    archived.unwrap();
    let archived = state().await;
    assert_eq!((archived.is_archived, archived.purge_epoch), (true, 7));
}

fn file(at: &str, size_bytes: u64) -> Entry {
    Entry {
        path: at.to_owned(),
        is_directory: false,
        size_bytes,
    }
}

fn folder(at: &str, size_bytes: u64) -> Entry {
    Entry {
        path: at.to_owned(),
        is_directory: true,
        size_bytes,
    }
}

async fn place_with_a_tree(subject: &Subject) -> Place {
    let place = Place::new(subject).await;
    for at in [
        "/b",
        "/a-b",
        "/B",
        "/a/2",
        "/a/10",
        "/a/sub/deep/deeper",
        "/a/.hidden/x",
        "/a/node_modules/x",
        "/a0",
        "/é",
        "/z/only",
        "/.profile",
        "/.git/config",
        "/node_modules/x/y",
        "/node_modules2",
    ] {
        place.create(at, 1).await;
    }
    place
}

pub(crate) async fn listing_is_two_levels_by_bytes_without_hidden_ones(subject: &Subject) {
    let place = place_with_a_tree(subject).await;
    let root = place.directory("/", 100).await;
    let expected = [
        file("/B", 1),
        folder("/a/", 5),
        file("/a/10", 1),
        file("/a/2", 1),
        folder("/a/sub/", 1),
        file("/a-b", 1),
        file("/a0", 1),
        file("/b", 1),
        file("/node_modules2", 1),
        folder("/z/", 1),
        file("/z/only", 1),
        file("/é", 1),
    ];
    assert_eq!(root.entries, expected);
    assert_eq!((root.files, root.size_bytes, root.total_entries), (15, 15, 12));

    let below = place.directory("/a", 100).await;
    let expected = [
        file("/a/10", 1),
        file("/a/2", 1),
        folder("/a/sub/", 1),
        folder("/a/sub/deep/", 1),
    ];
    assert_eq!(below.entries, expected);
    assert_eq!((below.files, below.total_entries), (5, 4));
}

pub(crate) async fn hidden_directory_lists_itself_when_asked_for(subject: &Subject) {
    let place = place_with_a_tree(subject).await;
    let hidden = place.directory("/.git", 100).await;
    assert_eq!(hidden.entries, [file("/.git/config", 1)]);
    let modules = place.directory("/node_modules", 100).await;
    assert_eq!(
        modules.entries,
        [folder("/node_modules/x/", 1), file("/node_modules/x/y", 1)]
    );
    assert_eq!(modules.total_entries, 2);
}

pub(crate) async fn short_listing_is_the_beginning_of_the_whole_one(subject: &Subject) {
    let place = place_with_a_tree(subject).await;
    let whole = place.directory("/", PLENTY).await;
    for max_entries in 1..=whole.entries.len() + 1 {
        let short = place.directory("/", max_entries as u64).await;
        let expected = &whole.entries[..max_entries.min(whole.entries.len())];
        assert_eq!(short.entries, expected, "{max_entries} entries");
        assert_eq!(short.total_entries, whole.total_entries);
    }
}

pub(crate) async fn heads_below_ends_where_the_directory_does(subject: &Subject) {
    let place = Place::new(subject).await;
    for at in [
        "/a-b/x", "/a.x", "/a/b", "/a/b-c", "/a/z/y", "/a0", "/aa/x", "/é/x",
    ] {
        place.create(at, 1).await;
    }
    assert_eq!(place.paths_below("/a/").await, ["/a/b", "/a/b-c", "/a/z/y"]);
    assert_eq!(place.paths_below("/a-b/").await, ["/a-b/x"]);
    assert_eq!(place.paths_below("/é/").await, ["/é/x"]);
    assert_eq!(place.paths_below("/b/").await, Vec::<String>::new());
    let all = place.paths_below(DirPath::root().as_str()).await;
    assert_eq!(
        all,
        [
            "/a-b/x", "/a.x", "/a/b", "/a/b-c", "/a/z/y", "/a0", "/aa/x", "/é/x"
        ]
    );
}

pub(crate) async fn heads_below_are_the_heads_themselves(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/d/1", 7).await;
    let gone = place.create("/d/2", 7).await;
    let second = place.create("/d/3/4", 9).await;
    place.change(vec![crate::place::deleted(&gone)]).await;
    assert_eq!(place.heads_below("/d/").await, [first, second]);
    let nowhere = StoreId::from_uuid(next_uuid());
    assert_eq!(
        place
            .index
            .memories
            .heads_below(place.tenant_id, nowhere, &dir("/"))
            .await
            .unwrap(),
        []
    );
}

/// Byte order, whatever the collation of the database is.
pub(crate) async fn children_of_the_root_are_in_byte_order(subject: &Subject) {
    let place = Place::new(subject).await;
    for at in ["/a", "/B", "/_", "/é", "/Z/in"] {
        place.create(at, 1).await;
    }
    let root = place.index.memories.root(place.tenant_id, place.store_id, 10);
    let root = root.await.unwrap().unwrap();
    let paths: Vec<_> = root.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["/B", "/Z/", "/_", "/a", "/é"]);
}
