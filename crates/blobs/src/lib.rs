//! Content outside the database: immutable blobs in an S3 bucket.
//!
//! The index decides which blobs exist; this crate stores bytes under keys. A key
//! is written only once, so its content can be cached without expiry. Conditional
//! requests, which several S3-compatible servers ignore, are not needed.
//!
//! [`open`] turns a configured [`BlobUrl`] into a [`BlobStore`].

mod breaker;
mod error;
mod measured;
mod s3;
mod url;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp};
use keepsake_telemetry::Metrics;

pub use error::BlobError;
pub use keepsake_core::ObjectVersions;
pub use measured::MeasuredBlobs;
pub use s3::{S3Blobs, S3Credentials, S3Options, S3Settings};
pub use url::BlobUrl;

/// Keeps immutable blobs under unique keys.
///
/// Dropping a future does not undo its work: a `put` or `delete` may still take
/// effect.
#[async_trait]
pub trait BlobStore: Send + Sync + Debug {
    /// Stores `bytes` under a key that was never used before.
    ///
    /// The bytes are durable when it returns. After an error they may be stored or
    /// not; the caller deletes the key and uses a new one.
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError>;

    /// The bytes under `key`, at most `max_bytes`; `None` if the key is absent.
    ///
    /// A larger blob is refused without being read, so that a writer to the store
    /// cannot fill the server's memory.
    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError>;

    /// Whether `key` exists; its bytes are not read.
    async fn contains(&self, key: &BlobKey) -> Result<bool, BlobError> {
        match self.get(key, 0).await {
            Ok(bytes) => Ok(bytes.is_some()),
            Err(BlobError::TooLarge { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Deletes the bytes under `key`; succeeds if the key is absent.
    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError>;

    /// Deletes the bytes under `key` and all their object versions; succeeds if the
    /// key is absent.
    ///
    /// Costs more than [`Self::delete`]; for content that must not be recoverable.
    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError>;

    /// The first `limit` deleted blobs of a store that still have object versions,
    /// after the key `after`, in key order; `None` if the store does not allow to
    /// list object versions.
    ///
    /// Fewer than `limit` blobs mean that the listing is complete.
    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError>;

    /// Erases the first `limit` blobs of a tenant, or of one of its stores, after the
    /// key `after`, in key order, including object versions of blobs that were deleted
    /// before. The tenant or the store must receive no further blobs.
    ///
    /// Safe to run twice. The next batch begins after [`ErasedBatch::last`].
    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError>;

    /// The first `limit` blobs whose keys follow `after`, in key order; with
    /// `tenant_id` only those of this tenant.
    ///
    /// Fewer than `limit` blobs mean that the listing is complete. Objects whose
    /// names are not blob keys are skipped. A blob that is written or deleted during the
    /// listing may be missing.
    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError>;

    /// Checks with one cheap request whether the store can be used.
    async fn check(&self) -> Result<(), BlobError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasedBatch {
    /// The number of blobs that were erased completely.
    pub gone: u64,
    /// The number of deleted blobs with remaining object versions, if the store
    /// allows to list them.
    pub kept: u64,
    /// The worst result for object versions in the batch.
    pub became: ObjectVersions,
    /// The last blob of the batch; `None` if it was the last batch.
    pub last: Option<BlobKey>,
}

impl ErasedBatch {
    /// What became of the object versions of the blobs that were erased completely.
    pub fn of_gone(&self) -> ObjectVersions {
        if self.became == ObjectVersions::NotVersioned { self.became } else { ObjectVersions::Deleted }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedBlob {
    pub key: BlobKey,
    pub size_bytes: u64,
    /// The time of its write by the store's clock.
    pub modified_at: Timestamp,
}

/// Opens the store that `url` names; `None`: content is in the index.
///
/// The bucket must exist. There is no request to the S3 server yet: see
/// [`BlobStore::check`]. The store has a circuit breaker, whose state is a metric.
pub async fn open(
    url: &BlobUrl,
    s3: &S3Settings,
    metrics: &Metrics,
) -> Result<Option<Arc<dyn BlobStore>>, BlobError> {
    let BlobUrl::S3 { bucket, prefix } = url else {
        return Ok(None);
    };
    let options = S3Options { bucket: bucket.clone(), prefix: prefix.clone(), settings: s3.clone() };
    let store = S3Blobs::connect(options).await?;
    Ok(Some(Arc::new(store.with_breaker(metrics.clone()))))
}
