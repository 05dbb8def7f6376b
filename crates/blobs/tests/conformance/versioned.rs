//! A bucket with versioning.

use bytes::Bytes;
use keepsake_blobs::{BlobStore, ErasedBatch, ObjectVersions, S3Blobs};
use keepsake_core::BlobKey;
use keepsake_testkit::versioned_s3;

use crate::backend::{connect, fresh_options, key};

async fn put(store: &S3Blobs, blob: u128) {
    store.put(&key(1, 1, blob), Bytes::from_static(b"text")).await.unwrap();
}

/// The required answer of a server without versioning.
async fn assert_keeps_none() {
    let store = connect(fresh_options()).await;
    put(&store, 1).await;
    assert_eq!(store.erase(&key(1, 1, 1)).await.unwrap(), ObjectVersions::NotVersioned);
}

#[tokio::test]
async fn erasing_deletes_all_versions_of_a_blob_and_of_a_store() {
    let Some(place) = versioned_s3().await else {
        return assert_keeps_none().await;
    };
    let store = connect(place.options.clone()).await;
    for blob in 1..=4 {
        put(&store, blob).await;
    }
    store.put(&key(1, 2, 9), Bytes::from_static(b"other")).await.unwrap();
    // Deleted earlier; their versions still exist.
    for blob in [1, 3] {
        store.delete(&key(1, 1, blob)).await.unwrap();
        assert_eq!(store.get(&key(1, 1, blob), 1_000).await.unwrap(), None);
    }
    assert_eq!(place.versions().await, 7);
    for blob in [1, 2, 1] {
        let erased = store.erase(&key(1, 1, blob)).await.unwrap();
        assert_eq!(erased, ObjectVersions::Deleted);
    }
    assert_eq!(place.versions().await, 4);
    assert!(store.get(&key(1, 1, 4), 1_000).await.unwrap().is_some());

    let one = key(1, 1, 1);
    for gone in [2, 0] {
        let erased = store.erase_all(one.tenant_id, Some(one.store_id), None, usize::MAX).await.unwrap();
        assert_eq!(erased, every_version(gone, None));
        assert_eq!(place.versions().await, 1);
    }
}

/// The result when all versions were listed and deleted.
const fn every_version(gone: u64, last: Option<BlobKey>) -> ErasedBatch {
    ErasedBatch { gone, kept: 0, became: ObjectVersions::Deleted, last }
}

#[tokio::test]
async fn erasing_a_tenant_deletes_versions_of_deleted_blobs_in_batches() {
    let Some(place) = versioned_s3().await else {
        return assert_keeps_none().await;
    };
    let store = connect(place.options.clone()).await;
    let text = Bytes::from_static(b"text");
    for of_tenant in [key(2, 1, 1), key(2, 1, 2), key(2, 5, 1), key(2, 6, 1), key(3, 1, 1)] {
        store.put(&of_tenant, text.clone()).await.unwrap();
    }
    // Deleted earlier, one of them twice; their versions still exist.
    for of_tenant in [key(2, 1, 1), key(2, 5, 1), key(2, 5, 1)] {
        store.delete(&of_tenant).await.unwrap();
    }
    assert!(place.versions().await >= 7);
    let (tenant_id, mut after, mut batches) = (key(2, 1, 1).tenant_id, None, Vec::new());
    loop {
        let batch = store.erase_all(tenant_id, None, after.as_ref(), 3).await.unwrap();
        batches.push(batch);
        after = batch.last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(batches, [every_version(3, Some(key(2, 5, 1))), every_version(1, None)]);
    assert_eq!(place.versions().await, 1, "the other tenant's");
    let again = store.erase_all(tenant_id, None, None, 3).await.unwrap();
    assert_eq!(again, every_version(0, None));
}

/// Deleted blobs of which the bucket keeps a version, a page at a time.
#[tokio::test]
async fn removed_blobs_are_listed_by_their_keys() {
    let (store, keeps_versions) = match versioned_s3().await {
        Some(place) => (connect(place.options.clone()).await, true),
        None => (connect(fresh_options()).await, false),
    };
    for blob in 1..=6 {
        put(&store, blob).await;
    }
    let other = key(1, 2, 9);
    store.put(&other, Bytes::from_static(b"other")).await.unwrap();
    for removed in [key(1, 1, 1), key(1, 1, 3), key(1, 1, 4), other] {
        store.delete(&removed).await.unwrap();
    }
    // Deleted twice it has two markers, and erased it has no version.
    store.delete(&key(1, 1, 3)).await.unwrap();
    store.erase(&key(1, 1, 6)).await.unwrap();
    let (tenant_id, store_id) = (other.tenant_id, key(1, 1, 1).store_id);
    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let page = store.list_removed(tenant_id, store_id, after.as_ref(), 2).await;
        let page = page.unwrap().expect("the server lets versions be listed");
        assert!(page.len() <= 2);
        let Some(last) = page.last().copied() else {
            break;
        };
        after = Some(last);
        listed.extend(page);
    }
    let expected = if keeps_versions { vec![key(1, 1, 1), key(1, 1, 3), key(1, 1, 4)] } else { Vec::new() };
    assert_eq!(listed, expected);
}
