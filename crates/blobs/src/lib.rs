//! Content: immutable blobs in a folder or in an S3 bucket.
//!
//! The index says what exists; this crate only keeps bytes under the keys it
//! is given. A key is written once and never again, so whatever was read once
//! may be cached for ever, and no conditional request is ever needed: several
//! S3-compatible servers ignore them.
//!
//! [`open`] turns a configured [`BlobUrl`] into a [`BlobStore`].

mod breaker;
mod error;
mod fs;
mod measured;
mod s3;
mod url;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp};
use keepsake_telemetry::Metrics;

pub use breaker::BreakerBlobs;
pub use error::BlobError;
pub use fs::FileBlobs;
pub use measured::MeasuredBlobs;
pub use s3::{S3Blobs, S3Credentials, S3Options, S3Settings};
pub use url::BlobUrl;

/// Keeps immutable blobs under unique keys.
///
/// Dropping a future does not undo what it began: a `put` or `delete` may
/// still take effect.
#[async_trait]
pub trait BlobStore: Send + Sync + Debug {
    /// Stores `bytes` under a key that was never used before.
    ///
    /// The bytes are durable when it returns. After an error they may or may
    /// not be there; the caller removes the key and writes under a new one.
    ///
    /// # Errors
    /// [`BlobError`] when the bytes are not known to be durable.
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError>;

    /// The bytes under `key`, at most `max_bytes`, or `None` when there are none.
    ///
    /// A larger blob is refused without being read: whoever can write to the
    /// store must not fill the server's memory.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`]; another [`BlobError`] when the store cannot tell or
    /// the read broke off.
    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError>;

    /// Whether there are bytes under `key`, which are not read.
    ///
    /// # Errors
    /// [`BlobError`] when the store cannot tell.
    async fn contains(&self, key: &BlobKey) -> Result<bool, BlobError> {
        match self.get(key, 0).await {
            Ok(bytes) => Ok(bytes.is_some()),
            Err(BlobError::TooLarge { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Removes the bytes under `key`; removing what is absent succeeds.
    ///
    /// # Errors
    /// [`BlobError`] when the bytes may still be there.
    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError>;

    /// Removes the bytes under `key` for good, with every older version that the
    /// store keeps of them; erasing what is absent succeeds.
    ///
    /// Costs more than [`Self::delete`]: for what nobody may find again.
    ///
    /// # Errors
    /// [`BlobError`] when the bytes may still be there.
    async fn erase(&self, key: &BlobKey) -> Result<Erased, BlobError>;

    /// Erases what is left of a store that takes no more blobs, older versions of
    /// blobs that were deleted before included.
    ///
    /// Safe to run twice.
    ///
    /// # Errors
    /// [`BlobError`] when something may still be there.
    async fn erase_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<ErasedBatch, BlobError>;

    /// The first `limit` blobs of a store whose keys follow `after`, in key order,
    /// that were deleted and of which the store keeps older versions; `None`: it
    /// does not let older versions be listed.
    ///
    /// Fewer than `limit` are the last ones.
    ///
    /// # Errors
    /// [`BlobError`] when the listing broke off; nothing of it is returned.
    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError>;

    /// Erases the first `limit` blobs of a tenant whose keys follow `after`, in key
    /// order, older versions of blobs that were deleted before included: for a
    /// tenant that takes no more blobs.
    ///
    /// Safe to run twice. The next batch begins after [`ErasedBatch::last`].
    ///
    /// # Errors
    /// [`BlobError`] when something may still be there.
    async fn erase_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError>;

    /// The first `limit` blobs whose keys follow `after`, in key order.
    ///
    /// Fewer than `limit` are the last ones. Objects whose names are not blob
    /// keys are skipped. A blob that comes or goes meanwhile may be missed.
    ///
    /// # Errors
    /// [`BlobError`] when the listing broke off; nothing of it is returned.
    async fn list(&self, after: Option<&BlobKey>, limit: usize) -> Result<Vec<ListedBlob>, BlobError>;

    /// The first `limit` blobs of one tenant whose keys follow `after`, in key
    /// order; the same holds as for [`Self::list`].
    ///
    /// # Errors
    /// [`BlobError`] when the listing broke off; nothing of it is returned.
    async fn list_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError>;

    /// Asks cheaply whether the store can be reached and used.
    ///
    /// # Errors
    /// [`BlobError`] when it cannot.
    async fn check(&self) -> Result<(), BlobError>;
}

/// What became of the older versions of an erased blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// Every version is deleted.
    EveryVersion,
    /// The store keeps none.
    NotVersioned,
    /// The blob is gone, older versions of it may be there: the store does not
    /// let them be looked for or be deleted.
    OlderVersionsKept,
}

/// What became of many blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasedBatch {
    /// Blobs of which nothing is left.
    pub gone: u64,
    /// Blobs that are gone and of which older versions are left; as far as the
    /// store lets them be seen.
    pub kept: u64,
    /// What became of the older versions: the worst there was.
    pub became: Erased,
    /// The last blob of the batch; `None`: no more follow it.
    pub last: Option<BlobKey>,
}

/// A blob as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its key.
    pub key: BlobKey,
    /// How many bytes it holds.
    pub size_bytes: u64,
    /// When it was written, by the store's own clock.
    pub modified_at: Timestamp,
}

/// Opens the store that `url` names; `s3` is for `s3://` URLs only.
///
/// A folder is created when it is missing; a bucket is not. The S3 server is
/// not asked anything yet: see [`BlobStore::check`]. Its store has a breaker around
/// it, whose state the metrics show.
///
/// # Errors
/// [`BlobError`] when the folder cannot be used or the S3 settings make no
/// sense together.
pub async fn open(
    url: &BlobUrl,
    s3: &S3Settings,
    metrics: &Metrics,
) -> Result<Arc<dyn BlobStore>, BlobError> {
    match url {
        BlobUrl::File { root } => Ok(Arc::new(FileBlobs::open(root.clone()).await?)),
        BlobUrl::S3 { bucket, prefix } => {
            let options = S3Options {
                bucket: bucket.clone(),
                prefix: prefix.clone(),
                settings: s3.clone(),
            };
            let store = Arc::new(S3Blobs::connect(options).await?);
            Ok(Arc::new(BreakerBlobs::new(store, metrics.clone())))
        }
    }
}
