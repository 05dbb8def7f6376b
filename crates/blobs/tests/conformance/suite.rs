//! The requirements for every blob store.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keepsake_blobs::{BlobError, BlobStore, Erased, ErasedBatch};
use keepsake_core::{BlobKey, Timestamp};

use crate::backend::{Backend, key};

async fn keys(store: &dyn BlobStore, after: Option<&BlobKey>, limit: usize) -> Vec<BlobKey> {
    store.list(None, after, limit).await.unwrap().into_iter().map(|blob| blob.key).collect()
}

async fn put_all(store: &dyn BlobStore, keys: &[BlobKey]) {
    for key in keys {
        store.put(key, Bytes::from(key.to_string())).await.unwrap();
    }
}

pub(crate) async fn stored_bytes_are_returned_unchanged(backend: &Backend) {
    let store = backend.open().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let mebibyte: Vec<u8> = every_byte.iter().rev().copied().cycle().take(1 << 20).collect();
    let contents = [
        Bytes::new(),
        Bytes::from_static(b"\n"),
        Bytes::from_static("naïve — 記憶\r\n".as_bytes()),
        Bytes::from(every_byte),
        Bytes::from(mebibyte),
    ];
    for (blob, content) in (1..).zip(&contents) {
        store.put(&key(1, 1, blob), content.clone()).await.unwrap();
    }
    for (blob, content) in (1..).zip(&contents) {
        assert_eq!(
            store.get(&key(1, 1, blob), 1 << 20).await.unwrap().as_ref(),
            Some(content),
            "blob {blob}"
        );
    }
}

pub(crate) async fn absent_blob_is_none(backend: &Backend) {
    let store = backend.open().await;
    assert_eq!(store.get(&key(1, 1, 1), 1_000).await.unwrap(), None);
    put_all(&*store, &[key(1, 1, 1)]).await;
    assert_eq!(store.get(&key(1, 1, 2), 1_000).await.unwrap(), None);
    assert_eq!(store.get(&key(1, 2, 1), 1_000).await.unwrap(), None);
}

pub(crate) async fn larger_blob_is_refused(backend: &Backend) {
    let store = backend.open().await;
    let text = Bytes::from_static(b"eight by");
    store.put(&key(1, 1, 1), text.clone()).await.unwrap();
    for max_bytes in [0, 7] {
        let refused = store.get(&key(1, 1, 1), max_bytes).await;
        assert!(matches!(refused, Err(BlobError::TooLarge { .. })), "{refused:?}");
    }
    for max_bytes in [8, u64::MAX] {
        assert_eq!(store.get(&key(1, 1, 1), max_bytes).await.unwrap(), Some(text.clone()));
    }
    store.put(&key(1, 1, 2), Bytes::new()).await.unwrap();
    assert_eq!(store.get(&key(1, 1, 2), 0).await.unwrap(), Some(Bytes::new()));
    for (blob, is_there) in [(1, true), (2, true), (3, false)] {
        assert_eq!(store.contains(&key(1, 1, blob)).await.unwrap(), is_there);
    }
}

pub(crate) async fn delete_is_idempotent(backend: &Backend) {
    let store = backend.open().await;
    store.delete(&key(1, 1, 1)).await.unwrap();
    put_all(&*store, &[key(1, 1, 1), key(1, 1, 2)]).await;
    store.delete(&key(1, 1, 1)).await.unwrap();
    store.delete(&key(1, 1, 1)).await.unwrap();
    assert_eq!(store.get(&key(1, 1, 1), 1_000).await.unwrap(), None);
    assert_eq!(keys(&*store, None, 10).await, [key(1, 1, 2)]);
    store.delete(&key(1, 1, 2)).await.unwrap();
    assert_eq!(keys(&*store, None, 10).await, []);
}

pub(crate) async fn erased_blob_is_gone_and_its_neighbours_stay(backend: &Backend) {
    let store = backend.open().await;
    // Absent: nothing to do.
    assert_eq!(store.erase(&key(1, 1, 1)).await.unwrap(), Erased::NotVersioned);
    put_all(&*store, &[key(1, 1, 1), key(1, 1, 2)]).await;
    assert_eq!(store.erase(&key(1, 1, 1)).await.unwrap(), Erased::NotVersioned);
    assert_eq!(store.get(&key(1, 1, 1), 1_000).await.unwrap(), None);
    assert_eq!(keys(&*store, None, 10).await, [key(1, 1, 2)]);
}

pub(crate) async fn erased_store_is_empty_and_its_neighbours_stay(backend: &Backend) {
    let store = backend.open().await;
    let (one, other) = ([key(1, 2, 1), key(1, 2, u128::MAX)], [key(1, 1, 9), key(1, 3, 1), key(2, 2, 1)]);
    put_all(&*store, &one).await;
    put_all(&*store, &other).await;
    let (tenant_id, store_id) = (one[0].tenant_id, one[0].store_id);
    let erased = store.erase_store(tenant_id, store_id).await.unwrap();
    assert_eq!(erased, deleted(2, None));
    assert_eq!(keys(&*store, None, 10).await, other);
    let again = store.erase_store(tenant_id, store_id).await.unwrap();
    assert_eq!(again, deleted(0, None));
}

/// The result of a store without versions.
const fn deleted(gone: u64, last: Option<BlobKey>) -> ErasedBatch {
    ErasedBatch { gone, kept: 0, became: Erased::NotVersioned, last }
}

pub(crate) async fn erased_tenant_is_empty_and_its_neighbours_stay(backend: &Backend) {
    let store = backend.open().await;
    let (one, other) = ([key(2, 1, 1), key(2, 1, 2), key(2, 3, 1)], [key(1, 1, 9), key(3, 1, 1)]);
    put_all(&*store, &one).await;
    put_all(&*store, &other).await;
    let foreign = format!("{}/notes.txt", one[0].tenant_id);
    backend.plant(&foreign).await;
    let tenant_id = one[0].tenant_id;
    let first = store.erase_tenant(tenant_id, None, 2).await.unwrap();
    assert_eq!(first, deleted(2, Some(one[1])));
    let rest = store.erase_tenant(tenant_id, first.last.as_ref(), 2).await;
    assert_eq!(rest.unwrap(), deleted(1, None));
    assert_eq!(keys(&*store, None, 10).await, other);
    let again = store.erase_tenant(tenant_id, None, 2).await.unwrap();
    assert_eq!(again, deleted(0, None));
}

pub(crate) async fn listing_is_in_key_order_and_pages(backend: &Backend) {
    let store = backend.open().await;
    let sorted = [
        key(1, 1, 1),
        key(1, 1, 2),
        // The letters after Z, and the digit before A, of the ids' alphabet.
        key(1, 1, 9),
        key(1, 1, 10),
        key(1, 1, u128::MAX),
        key(1, 7, 3),
        key(2, 1, 1),
        key(u128::MAX, 1, 1),
    ];
    let mut unsorted = sorted;
    unsorted.reverse();
    put_all(&*store, &unsorted).await;

    assert_eq!(keys(&*store, None, 100).await, sorted);
    assert_eq!(keys(&*store, None, 0).await, []);
    for page_size in [1, 2, 3, 5] {
        let mut paged = Vec::new();
        loop {
            let page = keys(&*store, paged.last(), page_size).await;
            assert!(page.len() <= page_size);
            paged.extend_from_slice(&page);
            if page.len() < page_size {
                break;
            }
        }
        assert_eq!(paged, sorted, "pages of {page_size}");
    }
    // The key to go on from need not exist.
    assert_eq!(keys(&*store, Some(&key(1, 3, 1)), 1).await, [key(1, 7, 3)]);
    assert_eq!(keys(&*store, Some(&key(u128::MAX, 1, 1)), 1).await, []);
}

pub(crate) async fn listing_of_a_tenant_has_only_its_blobs(backend: &Backend) {
    let store = backend.open().await;
    let mine = [key(2, 1, 1), key(2, 1, 2), key(2, 7, 1), key(2, 7, 3)];
    put_all(&*store, &mine).await;
    // The neighbouring tenants, and one whose id has the same beginning.
    put_all(&*store, &[key(1, 9, 9), key(3, 1, 1), key(u128::MAX, 1, 1)]).await;
    let tenant_id = mine[0].tenant_id;
    backend.plant(&format!("{tenant_id}0/zzz")).await;
    backend.plant(&format!("{tenant_id}/note.txt")).await;
    let page = async |after: Option<&BlobKey>, limit| {
        let listed = store.list(Some(tenant_id), after, limit).await.unwrap();
        listed.into_iter().map(|blob| (blob.key, blob.size_bytes)).collect::<Vec<_>>()
    };
    let sized = mine.map(|key| (key, key.to_string().len() as u64));
    assert_eq!(page(None, 100).await, sized);
    assert_eq!(page(None, 2).await, sized[..2]);
    assert_eq!(page(Some(&mine[1]), 2).await, sized[2..]);
    assert_eq!(page(Some(&mine[3]), 2).await, []);
    assert_eq!(page(Some(&key(1, 9, 9)), 100).await, sized, "a key before them all");
    assert_eq!(page(Some(&key(3, 1, 1)), 100).await, [], "a key after them all");
    let nobody = key(4, 1, 1).tenant_id;
    assert_eq!(store.list(Some(nobody), None, 10).await.unwrap(), []);
}

pub(crate) async fn listing_skips_foreign_objects(backend: &Backend) {
    let store = backend.open().await;
    let (first, second) = (key(1, 1, 1), key(1, 1, 2));
    put_all(&*store, &[first, second]).await;
    let store_folder = format!("{}/{}", first.tenant_id, first.store_id);
    for name in [
        "0-before-all".to_owned(),
        "lost+found/some/file".to_owned(),
        "zzz-after-all".to_owned(),
        format!("{}/note.txt", first.tenant_id),
        format!("{store_folder}/0-before-all"),
        format!("{store_folder}/zzz-after-all"),
        format!("{first}.backup"),
        format!("{}", key(3, 1, 1).tenant_id),
    ] {
        backend.plant(&name).await;
    }
    assert_eq!(keys(&*store, None, 100).await, [first, second]);
    // A page is filled although foreign objects lie between.
    assert_eq!(keys(&*store, None, 1).await, [first]);
    assert_eq!(keys(&*store, Some(&first), 1).await, [second]);
    assert_eq!(keys(&*store, Some(&second), 1).await, []);
}

pub(crate) async fn listing_shows_sizes_and_times(backend: &Backend) {
    let store = backend.open().await;
    store.put(&key(1, 1, 1), Bytes::new()).await.unwrap();
    store.put(&key(1, 1, 2), Bytes::from_static(b"12345")).await.unwrap();
    let listed = store.list(None, None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|blob| blob.size_bytes).collect::<Vec<_>>(), [0, 5]);

    // The servers run on this machine, so their clocks are this one.
    let probe = tempfile::NamedTempFile::new().unwrap();
    let since_epoch =
        probe.as_file().metadata().unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH);
    let now = Timestamp::default().plus(since_epoch.unwrap());
    for blob in listed {
        assert!(blob.modified_at > now.minus(Duration::from_mins(5)), "{blob:?}");
        assert!(blob.modified_at < now.plus(Duration::from_mins(5)), "{blob:?}");
    }
}

pub(crate) async fn keys_of_two_tenants_never_mix(backend: &Backend) {
    let store = backend.open().await;
    let (ours, theirs) = (key(1, 5, 5), key(2, 5, 5));
    store.put(&ours, Bytes::from_static(b"ours")).await.unwrap();
    assert_eq!(store.get(&theirs, 1_000).await.unwrap(), None);
    store.put(&theirs, Bytes::from_static(b"theirs")).await.unwrap();
    assert_eq!(store.get(&ours, 1_000).await.unwrap().as_deref(), Some(&b"ours"[..]));
    assert_eq!(store.get(&theirs, 1_000).await.unwrap().as_deref(), Some(&b"theirs"[..]));
    store.delete(&ours).await.unwrap();
    assert_eq!(store.get(&ours, 1_000).await.unwrap(), None);
    assert_eq!(store.get(&theirs, 1_000).await.unwrap().as_deref(), Some(&b"theirs"[..]));
}

pub(crate) async fn concurrent_puts_are_all_stored(backend: &Backend) {
    let store = backend.open().await;
    let all: Vec<BlobKey> = (0..64).map(|n| key(1 + n % 2, 1 + n % 8, n)).collect();
    let puts = all.iter().map(|key| {
        let store = store.clone();
        let key = *key;
        tokio::spawn(async move { store.put(&key, Bytes::from(key.to_string())).await })
    });
    for put in join_all(puts).await {
        put.unwrap().unwrap();
    }
    for key in &all {
        assert_eq!(store.get(key, 1_000).await.unwrap(), Some(Bytes::from(key.to_string())));
    }
    let mut sorted = all;
    sorted.sort();
    assert_eq!(keys(&*store, None, 1_000).await, sorted);
}

pub(crate) async fn reopened_store_finds_everything(backend: &Backend) {
    put_all(&*backend.open().await, &[key(1, 1, 1), key(2, 1, 1)]).await;
    let reopened = backend.open_by_url().await;
    assert_eq!(
        reopened.get(&key(1, 1, 1), 1_000).await.unwrap(),
        Some(Bytes::from(key(1, 1, 1).to_string()))
    );
    assert_eq!(keys(&*reopened, None, 10).await, [key(1, 1, 1), key(2, 1, 1)]);
    put_all(&*reopened, &[key(1, 1, 2)]).await;
    assert_eq!(keys(&*reopened, None, 10).await, [key(1, 1, 1), key(1, 1, 2), key(2, 1, 1)]);
}

pub(crate) async fn check_of_a_usable_store_succeeds(backend: &Backend) {
    let store = backend.open().await;
    store.check().await.unwrap();
    put_all(&*store, &[key(1, 1, 1)]).await;
    store.check().await.unwrap();
    assert_eq!(keys(&*store, None, 10).await, [key(1, 1, 1)]);
}
