//! What a store promises while nothing fails.

use std::time::Duration;

use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use futures::StreamExt;
use keepsake_blobs::{BlobError, BlobStore, ErasedBatch, ObjectVersions, S3Blobs};
use keepsake_core::{BlobKey, Timestamp};
use keepsake_testkit::s3::{raw_s3_client, s3_options, unique_prefix};

use crate::backend::{connect, fresh_options, key};

async fn keys(store: &S3Blobs, after: Option<&BlobKey>, limit: usize) -> Vec<BlobKey> {
    store.list(None, after, limit).await.unwrap().into_iter().map(|blob| blob.key).collect()
}

/// Puts blobs that say their own keys.
async fn put_all(store: &S3Blobs, keys: &[BlobKey]) {
    for key in keys {
        store.put(key, Bytes::from(key.to_string())).await.unwrap();
    }
}

/// Writes an object of any name among the blobs of a prefix.
async fn plant(prefix: &str, name: &str) {
    let put = raw_s3_client().put_object().bucket(s3_options(prefix).bucket);
    let foreign = ByteStream::from_static(b"foreign");
    put.key(format!("{prefix}/{name}")).body(foreign).send().await.unwrap();
}

#[tokio::test]
async fn blob_is_read_as_it_was_put_by_a_reader_who_takes_so_much() {
    let store = connect(fresh_options()).await;
    store.check().await.unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    let mebibyte: Vec<u8> = every_byte.iter().rev().copied().cycle().take(1 << 20).collect();
    let contents = [
        Bytes::new(),
        Bytes::from_static("naïve — 記憶\r\n".as_bytes()),
        Bytes::from(every_byte),
        Bytes::from(mebibyte),
    ];
    for (blob, content) in (1..).zip(&contents) {
        let (key, size_bytes) = (key(1, 1, blob), content.len() as u64);
        store.put(&key, content.clone()).await.unwrap();
        assert!(store.contains(&key).await.unwrap());
        for max_bytes in [size_bytes, u64::MAX] {
            assert_eq!(store.get(&key, max_bytes).await.unwrap().as_ref(), Some(content), "{key}");
        }
        if let Some(too_few) = size_bytes.checked_sub(1) {
            let refused = store.get(&key, too_few).await;
            assert!(matches!(refused, Err(BlobError::TooLarge { .. })), "{refused:?}");
        }
    }
    for absent in [key(1, 1, 9), key(1, 2, 1), key(2, 1, 1)] {
        assert_eq!(store.get(&absent, 1_000).await.unwrap(), None);
        assert!(!store.contains(&absent).await.unwrap());
    }
    store.check().await.unwrap();
    assert_eq!(keys(&store, None, 10).await.len(), contents.len(), "a check leaves nothing");
}

/// The result of a store without versions.
const fn not_versioned(gone: u64, last: Option<BlobKey>) -> ErasedBatch {
    ErasedBatch { gone, kept: 0, became: ObjectVersions::NotVersioned, last }
}

#[tokio::test]
async fn removed_blob_store_or_tenant_is_gone_and_its_neighbours_stay() {
    let prefix = unique_prefix();
    let store = connect(s3_options(&prefix)).await;
    let (deleted, erased) = (key(2, 1, 3), key(2, 1, 4));
    let one = [key(2, 1, 1), key(2, 1, 2), key(2, 3, 1)];
    let (of_store, other) =
        ([key(2, 2, 1), key(2, 2, u128::MAX)], [key(1, 1, 9), key(1, 2, 1), key(3, 1, 1)]);
    for are_there in [false, true, false] {
        if are_there {
            put_all(&store, &[&one[..], &[deleted, erased], &of_store, &other].concat()).await;
        }
        store.delete(&deleted).await.unwrap();
        assert_eq!(store.erase(&erased).await.unwrap(), ObjectVersions::NotVersioned);
    }
    assert_eq!(store.get(&deleted, 1_000).await.unwrap(), None);
    assert_eq!(store.get(&erased, 1_000).await.unwrap(), None);
    let tenant_id = one[0].tenant_id;
    for gone in [2, 0] {
        let erased = store.erase_all(tenant_id, Some(of_store[0].store_id), None, usize::MAX).await;
        assert_eq!(erased.unwrap(), not_versioned(gone, None));
        assert_eq!(keys(&store, None, 10).await, [&other[..2], &one, &other[2..]].concat());
    }
    plant(&prefix, &format!("{tenant_id}/notes.txt")).await;
    let first = store.erase_all(tenant_id, None, None, 2).await.unwrap();
    assert_eq!(first, not_versioned(2, Some(one[1])));
    let rest = store.erase_all(tenant_id, None, first.last.as_ref(), 2).await;
    assert_eq!(rest.unwrap(), not_versioned(1, None));
    assert_eq!(keys(&store, None, 10).await, other);
    assert_eq!(store.erase_all(tenant_id, None, None, 2).await.unwrap(), not_versioned(0, None));
}

#[tokio::test]
async fn listings_are_in_key_order_and_paged_without_foreign_objects_or_blobs_of_other_tenants() {
    let prefix = unique_prefix();
    let store = connect(s3_options(&prefix)).await;
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
    put_all(&store, &unsorted).await;
    let (first, tenant_id, store_id) = (sorted[0], sorted[0].tenant_id, sorted[0].store_id);
    for name in [
        "0-before-all".to_owned(),
        "lost+found/some/file".to_owned(),
        "zzz-after-all".to_owned(),
        format!("{tenant_id}/note.txt"),
        // A tenant whose id has the same beginning.
        format!("{tenant_id}0/zzz"),
        format!("{tenant_id}/{store_id}/0-before-all"),
        format!("{tenant_id}/{store_id}/zzz-after-all"),
        format!("{first}.backup"),
        format!("{}", key(3, 1, 1).tenant_id),
    ] {
        plant(&prefix, &name).await;
    }
    assert_eq!(keys(&store, None, 100).await, sorted);
    assert_eq!(keys(&store, None, 0).await, []);
    for page_size in [1, 2, 3, 5] {
        let mut paged = Vec::new();
        loop {
            let page = keys(&store, paged.last(), page_size).await;
            assert!(page.len() <= page_size);
            paged.extend_from_slice(&page);
            if page.len() < page_size {
                break;
            }
        }
        assert_eq!(paged, sorted, "pages of {page_size}");
    }
    // The key to go on from need not exist.
    assert_eq!(keys(&store, Some(&key(1, 3, 1)), 1).await, [key(1, 7, 3)]);
    assert_eq!(keys(&store, Some(&key(u128::MAX, 1, 1)), 1).await, []);

    // The servers run on this machine, so their clocks are this one.
    let probe = tempfile::NamedTempFile::new().unwrap();
    let made_at = probe.as_file().metadata().unwrap().modified().unwrap();
    let now = Timestamp::default().plus(made_at.duration_since(std::time::UNIX_EPOCH).unwrap());
    let minutes = Duration::from_mins(5);
    for blob in store.list(None, None, 100).await.unwrap() {
        assert!((now.minus(minutes)..now.plus(minutes)).contains(&blob.modified_at), "{blob:?}");
    }

    let mine = &sorted[..6];
    for (after, limit, expected) in [
        (None, 100, mine),
        (None, 2, &mine[..2]),
        (Some(mine[1]), 2, &mine[2..4]),
        (Some(mine[5]), 2, &[]),
        // Keys before them all, and after them all.
        (Some(key(0, 9, 9)), 100, mine),
        (Some(key(3, 1, 1)), 100, &[]),
    ] {
        let listed = store.list(Some(mine[0].tenant_id), after.as_ref(), limit).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|blob| (blob.key, blob.size_bytes)).collect();
        let sized = expected.iter().map(|key| (*key, key.to_string().len() as u64));
        assert_eq!(listed, sized.collect::<Vec<_>>(), "{limit} after {after:?}");
    }
}

#[tokio::test]
async fn listing_continues_past_the_largest_page_of_the_server() {
    // A server answers at most 1,000 objects at once.
    const BLOBS: u128 = 1_050;
    let prefix = unique_prefix();
    let store = connect(s3_options(&prefix)).await;
    let puts = futures::stream::iter((0..BLOBS).map(|blob| {
        let store = &store;
        async move { store.put(&key(1, 1, blob), Bytes::from_static(b"text")).await }
    }));
    let outcomes: Vec<_> = puts.buffer_unordered(16).collect().await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(keys(&store, None, 5_000).await.into_iter().eq((0..BLOBS).map(|blob| key(1, 1, blob))));
    let neighbour = connect(s3_options(&format!("{prefix}2"))).await;
    put_all(&neighbour, &[key(1, 1, 1)]).await;
    assert_eq!(keys(&neighbour, None, 10).await, [key(1, 1, 1)], "of its own prefix");
    assert_eq!(keys(&store, None, 5_000).await.len() as u128, BLOBS);
}
