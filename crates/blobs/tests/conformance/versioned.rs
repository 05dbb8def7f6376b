//! A bucket that keeps versions of what was deleted.

use aws_sdk_s3::Client;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use bytes::Bytes;
use keepsake_blobs::{BlobStore, Erased, S3Blobs, S3Options};
use keepsake_testkit::s3::{s3_options, unique_prefix};

use crate::backend::{key, raw_client};

/// The bucket of these tests: one, since servers keep room for each.
const BUCKET: &str = "keepsake-tests-versioned";

/// A fresh place in a bucket that keeps versions; `None`: the server keeps none.
async fn place() -> Option<(Client, S3Options)> {
    let client = raw_client();
    if let Err(refused) = client.create_bucket().bucket(BUCKET).send().await {
        match refused.code() {
            Some("BucketAlreadyOwnedByYou" | "BucketAlreadyExists") => {}
            // Garage makes buckets by its own tool.
            Some("AccessDenied") => return None,
            _ => panic!("{refused:?}"),
        }
    }
    let versioning = VersioningConfiguration::builder()
        .status(BucketVersioningStatus::Enabled)
        .build();
    let set = client
        .put_bucket_versioning()
        .bucket(BUCKET)
        .versioning_configuration(versioning);
    set.send().await.unwrap();
    let mut options = s3_options(&unique_prefix());
    BUCKET.clone_into(&mut options.bucket);
    Some((client, options))
}

/// Versions and delete markers of the place.
async fn versions(client: &Client, prefix: &str) -> usize {
    let asked = client.list_object_versions().bucket(BUCKET).prefix(prefix);
    let listed = asked.send().await.unwrap();
    assert_ne!(listed.is_truncated(), Some(true));
    listed.versions().len() + listed.delete_markers().len()
}

async fn put(store: &S3Blobs, blob: u128) {
    store
        .put(&key(1, 1, blob), Bytes::from_static(b"text"))
        .await
        .unwrap();
}

/// What a server that keeps no versions must say.
async fn assert_keeps_none() {
    let store = S3Blobs::connect(s3_options(&unique_prefix())).await.unwrap();
    put(&store, 1).await;
    assert_eq!(store.erase(&key(1, 1, 1)).await.unwrap(), Erased::NotVersioned);
}

#[tokio::test]
async fn erased_blob_goes_with_every_version() {
    let Some((client, options)) = place().await else {
        return assert_keeps_none().await;
    };
    let prefix = options.prefix.clone();
    let store = S3Blobs::connect(options).await.unwrap();
    for blob in [1, 2, 3] {
        put(&store, blob).await;
    }
    // Deleted before, and there still.
    store.delete(&key(1, 1, 1)).await.unwrap();
    assert_eq!(store.get(&key(1, 1, 1)).await.unwrap(), None);
    assert_eq!(versions(&client, &prefix).await, 4);
    for blob in [1, 2] {
        let erased = store.erase(&key(1, 1, blob)).await.unwrap();
        assert_eq!(erased, Erased::EveryVersion);
    }
    assert_eq!(versions(&client, &prefix).await, 1);
    assert!(store.get(&key(1, 1, 3)).await.unwrap().is_some());
    assert_eq!(store.erase(&key(1, 1, 1)).await.unwrap(), Erased::EveryVersion);
}

#[tokio::test]
async fn erased_store_goes_with_what_was_deleted_before() {
    let Some((client, options)) = place().await else {
        return assert_keeps_none().await;
    };
    let prefix = options.prefix.clone();
    let store = S3Blobs::connect(options).await.unwrap();
    for blob in [1, 2, 3] {
        put(&store, blob).await;
    }
    store
        .put(&key(1, 2, 9), Bytes::from_static(b"other"))
        .await
        .unwrap();
    store.delete(&key(1, 1, 1)).await.unwrap();
    let one = key(1, 1, 1);
    let erased = store.erase_store(one.tenant_id, one.store_id).await.unwrap();
    assert_eq!(erased, (3, Erased::EveryVersion));
    assert_eq!(versions(&client, &prefix).await, 1);
    let again = store.erase_store(one.tenant_id, one.store_id).await.unwrap();
    assert_eq!(again, (0, Erased::EveryVersion));
}
