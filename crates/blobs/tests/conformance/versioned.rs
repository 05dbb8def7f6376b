//! A bucket with versioning.

use bytes::Bytes;
use keepsake_blobs::{BlobStore, ErasedBatch, ObjectVersions};
use keepsake_testkit::versioned_s3;

use crate::backend::{connect, fresh_options, key};

/// A server without versioning lists none, and says so.
#[tokio::test]
async fn versions_of_deleted_blobs_are_listed_and_erased_in_batches() {
    let place = versioned_s3().await;
    let options = place.as_ref().map_or_else(fresh_options, |place| place.options.clone());
    let store = connect(options).await;
    let of_store = (1..=6).map(|blob| key(2, 1, blob));
    for blob in of_store.chain([key(2, 5, 1), key(2, 6, 1), key(3, 1, 1)]) {
        store.put(&blob, Bytes::from_static(b"text")).await.unwrap();
    }
    // Deleted twice one has two markers, and erased it has no version.
    for deleted in [key(2, 1, 1), key(2, 1, 3), key(2, 1, 4), key(2, 5, 1), key(2, 1, 3)] {
        store.delete(&deleted).await.unwrap();
        assert_eq!(store.get(&deleted, 1_000).await.unwrap(), None);
    }
    let erased = store.erase(&key(2, 1, 6)).await.unwrap();
    let expected = if place.is_some() { ObjectVersions::Deleted } else { ObjectVersions::NotVersioned };
    assert_eq!(erased, expected);
    let (tenant_id, store_id) = (key(2, 1, 1).tenant_id, key(2, 1, 1).store_id);
    let mut listed = Vec::new();
    loop {
        let page = store.list_removed(tenant_id, store_id, listed.last(), 2).await.unwrap();
        let page = page.expect("the server lets versions be listed");
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    let Some(place) = place else { return assert_eq!(listed, []) };
    assert_eq!(listed, [key(2, 1, 1), key(2, 1, 3), key(2, 1, 4)]);

    let batches = [(3, Some(key(2, 1, 3))), (3, Some(key(2, 5, 1))), (1, None), (0, None)];
    let mut after = None;
    for (gone, last) in batches {
        let batch = store.erase_all(tenant_id, None, after.as_ref(), 3).await.unwrap();
        assert_eq!(batch, ErasedBatch { gone, kept: 0, became: ObjectVersions::Deleted, last });
        after = last;
    }
    assert_eq!(place.versions().await, 1, "the other tenant's");
}
