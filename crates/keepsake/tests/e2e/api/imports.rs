//! Archives that a program sends. Those that end early are in `engine/tests/protocol`.

use crate::prelude::*;
use crate::support::archives::{packed, unpacked};

const MAX_BYTES: usize = 16 << 20;

pub(super) async fn export(store: &Store) -> Vec<u8> {
    let path = format!("{}/export?versions=true", store.path);
    let answer = store.client.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.bytes().await.unwrap().to_vec()
}

async fn send_as(content_type: &str, store: &Store, query: &str, file: &[u8]) -> Answer {
    let path = format!("{}/import?{query}", store.path);
    let request = store.client.request(Method::POST, &path).header("content-type", content_type);
    send(request.body(file.to_vec())).await
}

pub(super) async fn import(store: &Store, query: &str, file: &[u8]) -> Answer {
    send_as("application/zstd", store, query, file).await
}

/// Checks the numbers of created, replaced, unchanged, skipped and refused files; returns the
/// files that the answer names.
#[track_caller]
fn has_counts(answer: &Answer, expected: [usize; 5]) -> Value {
    let [created, replaced, unchanged, skipped, refused] = expected;
    let counts = json!({"created": created, "replaced": replaced, "unchanged": unchanged,
        "skipped": skipped, "refused": refused});
    let body = ok(answer);
    assert_eq!(body["counts"], counts, "{body}");
    body["data"].clone()
}

async fn memory_at(store: &Store, path: &str) -> Value {
    let listed = store.client.all(&format!("{}?view=full&path={path}", store.memories())).await;
    listed[0].clone()
}

/// `console::archives` imports pins, expiry times and a store with a history.
pub(super) async fn archive_is_imported_and_a_conflict_fails_is_skipped_or_replaced(place: Place) {
    let (store, copy) = (place.store(), place.new_store("copy").await);
    for path in ["/a.md", "/b.md", "/c.md"] {
        store.create(path, "theirs").await;
    }
    let archive = export(&store).await;
    for is_dry_run in [true, false] {
        let answer = import(&copy, &format!("prefix=/old/&dry_run={is_dry_run}"), &archive).await;
        has_counts(&answer, [3, 0, 0, 0, 0]);
        let expected = json!({
            "type": "memory_store_import", "memory_store_id": copy.id, "dry_run": is_dry_run, "data": [],
            "not_shown": 0, "stopped": null, "versions_not_imported": 3, "left_out": [],
        });
        shows(&answer.json(), &expected);
        assert_eq!(copy.version_count().await, if is_dry_run { 0 } else { 3 });
    }
    assert_eq!(copy.paths().await, ["/old/a.md", "/old/b.md", "/old/c.md"]);
    copy.create("/a.md", "mine").await;
    copy.create("/b.md/in/the/way", "mine").await;
    for query in ["", "dry_run=true", "on_conflict=fail"] {
        let answer = import(&copy, query, &archive).await;
        refused_for(&answer, 409, "conflict_error", "at 2 paths, the first is /a.md");
    }
    assert_eq!(copy.version_count().await, 5);
    let reason = "is a directory in the memory store";
    let blocked = json!({"path": "/b.md", "result": "refused", "reason": reason});
    let skipped = has_counts(&import(&copy, "on_conflict=skip", &archive).await, [1, 0, 0, 1, 1]);
    let other = json!({"path": "/a.md", "result": "skipped", "reason": "has other content"});
    assert_eq!(skipped, json!([other, blocked]));
    assert_eq!(memory_at(&copy, "/a.md").await["content"], "mine");
    let replaced = has_counts(&import(&copy, "on_conflict=replace", &archive).await, [0, 1, 1, 0, 1]);
    assert_eq!(replaced, json!([blocked]));
    assert_eq!(memory_at(&copy, "/a.md").await["content"], "theirs");
    invalid(&import(&copy, "on_conflict=merge", &archive).await, "`on_conflict` must be `fail`");
    invalid(&import(&copy, "prefix=old", &archive).await, "`prefix` must end with `/`");
}

pub(super) async fn damaged_or_large_archive_changes_nothing(place: Place) {
    let (store, copy) = (place.store(), place.new_store("copy").await);
    store.create("/a.md", "one").await;
    store.create("/b.md", "two").await;
    let archive = export(&store).await;
    let (_, mut forged) = unpacked(&archive);
    forged.insert("memories/b.md".to_owned(), b"forged".to_vec());
    for (file, fault) in [
        (&packed(&forged)[..], "the archive is damaged: memories/b.md has the SHA-256"),
        (&archive[..archive.len() - 5], "the archive is damaged: "),
        (&[], "the archive is damaged: "),
    ] {
        for query in ["on_conflict=replace", "dry_run=true"] {
            invalid(&import(&copy, query, file).await, fault);
        }
    }
    refused(&import(&copy, "", &vec![0; MAX_BYTES + 1]).await, 413, "invalid_request_error");
    let other = send_as("application/gzip", &copy, "", &archive).await;
    refused_for(&other, 415, "invalid_request_error", "application/zstd");
    // A history has no dry run, so asking for one must not write it.
    let history = br#"{"position": 0, "versions": []}"#;
    for (name, value) in [("on_conflict", "skip"), ("prefix", "/a/"), ("dry_run", "true")] {
        let answer = send_as("application/json", &copy, &format!("{name}={value}"), history).await;
        invalid(&answer, &format!("`{name}`"));
    }
    assert_eq!(copy.version_count().await, 0);
}

pub(super) async fn import_asks_for_both_scopes_and_a_writable_store(place: Place) {
    let (store, copy) = (place.store(), place.new_store("copy").await);
    store.create("/a.md", "one").await;
    let archive = export(&store).await;
    let into = async |client, store: &Store| import(&store.seen_by(client), "", &archive).await;
    denied(&into(&place.reader, &copy).await, "memory:write");
    for client in [&place.writer, &place.admin] {
        denied(&into(client, &copy).await, "memory:read");
    }
    for client in [&place.stranger, &place.bound] {
        not_found(&into(client, &copy).await);
    }
    let (_, _, holder) = open(&place.client, &[attached(&copy, "read_only")]).await;
    refused(&into(&holder, &copy).await, 403, "permission_error");
    not_found(&into(&holder, &store).await);
    assert_eq!(copy.version_count().await, 0);
    let (_, _, holder) = open(&place.client, &[attached(&copy, "read_write")]).await;
    has_counts(&into(&holder, &copy).await, [1, 0, 0, 0, 0]);
    copy.archive().await;
    invalid(&into(&place.client, &copy).await, "archived");
}
