//! Content that is in the database.

use keepsake_core::{Content, ContentHash, VersionId};
use keepsake_index::{Change, CommitOutcome, HeadChange, KeptContent};

use crate::erasures::{below, count, erase};
use crate::place::{Place, created, deleted, edited, next_uuid, path, renamed};
use crate::redactions::redact;
use crate::subject::Subject;

/// The change with its content for the database.
fn with_content(mut change: Change, text: &str) -> Change {
    let content = Content::new(text.to_owned(), 1 << 20).unwrap();
    let after = change.after.as_mut().unwrap();
    *after = HeadChange {
        size_bytes: content.size_bytes(),
        sha256: ContentHash::of(text.as_bytes()),
        content: Some(content),
        ..after.clone()
    };
    change
}

fn brings(change: &Change) -> VersionId {
    change.version_id
}

async fn read(place: &Place, blob_id: VersionId) -> Option<String> {
    let key = place.blob(blob_id);
    let kept = place.index.contents.read(&key, u64::MAX).await.unwrap()?;
    let bytes = kept.bytes.unwrap();
    assert_eq!(kept.size_bytes, bytes.len() as u64);
    Some(String::from_utf8(bytes).unwrap())
}

pub(crate) async fn content_is_stored_with_its_commit(subject: &Subject) {
    let place = Place::new(subject).await;
    let text = "café \u{1f980}\n";
    let first = with_content(created("/a", 0), text);
    place.change(vec![first.clone()]).await;
    assert_eq!(read(&place, brings(&first)).await.as_deref(), Some(text));
    let head = place.memory("/a").await;
    let second = with_content(edited(&head, 0), "");
    place.change(vec![second.clone()]).await;
    assert_eq!(read(&place, brings(&second)).await.as_deref(), Some(""));
    assert_eq!(read(&place, brings(&first)).await.as_deref(), Some(text));
}

pub(crate) async fn every_change_of_a_commit_stores_its_content(subject: &Subject) {
    let place = Place::new(subject).await;
    let long = "0123456789".repeat(20_000);
    let texts = ["one", "", "\u{0}\u{1}".trim_matches('\u{0}'), &long];
    let paths = ["/a", "/d/b", "/d/c", "/e"];
    let changes = paths.into_iter().zip(texts);
    let changes: Vec<_> = changes
        .map(|(at, text)| with_content(created(at, 0), text))
        .collect();
    place.change(changes.clone()).await;
    for (change, text) in changes.iter().zip(texts) {
        assert_eq!(read(&place, brings(change)).await.as_deref(), Some(text));
    }
    assert_eq!(count(&place, "content").await, 4);
}

pub(crate) async fn refused_commit_leaves_no_content(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    for changes in [
        vec![with_content(created("/a", 0), "taken")],
        vec![
            with_content(created("/b", 0), "free"),
            with_content(created("/a/c", 0), "below a file"),
        ],
    ] {
        let refused = place.try_changes(changes).await;
        assert!(matches!(refused, CommitOutcome::Refused(_)), "{refused:?}");
    }
    assert_eq!(count(&place, "content").await, 0);
}

pub(crate) async fn content_larger_than_accepted_is_not_read(subject: &Subject) {
    let place = Place::new(subject).await;
    let change = with_content(created("/a", 0), "12345");
    place.change(vec![change.clone()]).await;
    let key = place.blob(brings(&change));
    let read = async |max_bytes| place.index.contents.read(&key, max_bytes).await.unwrap();
    let kept = |bytes: Option<&[u8]>| {
        Some(KeptContent {
            size_bytes: 5,
            bytes: bytes.map(<[u8]>::to_vec),
        })
    };
    assert_eq!(read(5).await, kept(Some(b"12345")));
    assert_eq!(read(4).await, kept(None));
    let elsewhere = Place::new(subject).await;
    assert_eq!(self::read(&elsewhere, brings(&change)).await, None);
}

pub(crate) async fn redaction_deletes_content_in_its_transaction(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = with_content(created("/a", 0), "secret");
    place.change(vec![first.clone()]).await;
    let head = place.memory("/a").await;
    let second = with_content(edited(&head, 0), "harmless");
    place.change(vec![second.clone()]).await;
    redact(&place, brings(&first)).await;
    assert_eq!(read(&place, brings(&first)).await, None);
    assert_eq!(read(&place, brings(&second)).await.as_deref(), Some("harmless"));
}

pub(crate) async fn content_shared_by_a_rename_is_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = with_content(created("/a", 0), "shared");
    place.change(vec![first.clone()]).await;
    let head = place.memory("/a").await;
    place.change(vec![renamed(&head, "/b")]).await;
    let head = place.memory("/b").await;
    place.change(vec![deleted(&head)]).await;
    redact(&place, brings(&first)).await;
    assert_eq!(read(&place, brings(&first)).await.as_deref(), Some("shared"));
}

pub(crate) async fn erasure_deletes_content(subject: &Subject) {
    let place = Place::new(subject).await;
    let inside = with_content(created("/p/inside", 0), "goes");
    let outside = with_content(created("/outside", 0), "stays");
    place.change(vec![inside.clone(), outside.clone()]).await;
    erase(&place, below(&place, "/p/"), 1).await;
    assert_eq!(read(&place, brings(&inside)).await, None);
    assert_eq!(read(&place, brings(&outside)).await.as_deref(), Some("stays"));
}

pub(crate) async fn inserted_content_needs_a_version(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 7).await;
    let key = place.blob(head.blob_id);
    let contents = &place.index.contents;
    assert!(contents.insert(&key, b"content").await.unwrap());
    assert!(!contents.insert(&key, b"another").await.unwrap(), "it is there");
    assert_eq!(read(&place, head.blob_id).await.as_deref(), Some("content"));
    let nothing = VersionId::from_uuid(next_uuid());
    assert!(!contents.insert(&place.blob(nothing), b"orphan").await.unwrap());
    assert_eq!(count(&place, "content").await, 1);
    assert!(contents.delete(&key).await.unwrap());
    assert!(!contents.delete(&key).await.unwrap());
    assert_eq!(read(&place, head.blob_id).await, None);
}

pub(crate) async fn contents_are_listed_in_key_order(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let stranger = Place::new(subject).await;
    let mut keys = Vec::new();
    for place in [&place, &other, &stranger] {
        for at in ["/a", "/b", "/c"] {
            let change = with_content(created(at, 0), path(at).as_str());
            place.change(vec![change.clone()]).await;
            keys.push(place.blob(brings(&change)));
        }
    }
    keys.sort_by_key(|key| (key.tenant_id.uuid(), key.store_id.uuid(), key.blob_id.uuid()));
    let contents = &place.index.contents;
    let mut listed = Vec::new();
    while let page = contents.list(None, listed.last(), 2).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 2 && page.iter().all(|(_, size_bytes)| *size_bytes == 2));
        listed.extend(page.into_iter().map(|(key, _)| key));
    }
    assert_eq!(listed, keys);
    let of_tenant = contents.list(Some(stranger.tenant_id), None, 10).await.unwrap();
    assert_eq!(of_tenant.len(), 3);
    let deleted = contents
        .delete_store(place.tenant_id, other.store_id)
        .await
        .unwrap();
    assert_eq!(deleted, 3);
    let left = contents.list(Some(place.tenant_id), None, 10).await.unwrap();
    assert!(left.iter().all(|(key, _)| key.store_id == place.store_id));
}
