//! Content in the index database, as a blob store.

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_blobs::{BlobError, BlobStore, ErasedBatch, ListedBlob, ObjectVersions};
use keepsake_core::{BlobKey, StoreId, TenantId, Timestamp};
use keepsake_index::{Index, IndexError};

/// The content in the database of the index.
///
/// Commits write the content, and the removal of history deletes it; see
/// [`NewContent::New`](keepsake_index::NewContent::New). So there are no orphans,
/// and a [`put`](BlobStore::put) only stores content that a version names.
#[derive(Debug, Clone)]
pub struct IndexBlobs(Index);

impl IndexBlobs {
    pub const fn new(index: Index) -> Self {
        Self(index)
    }
}

#[async_trait]
impl BlobStore for IndexBlobs {
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        self.0.contents.insert(key, &bytes).await.map(drop).map_err(failed)
    }

    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let Some((found_bytes, bytes)) = self.0.contents.read(key, max_bytes).await.map_err(failed)? else {
            return Ok(None);
        };
        let too_large = BlobError::TooLarge { found_bytes, max_bytes };
        bytes.map(Bytes::from).ok_or(too_large).map(Some)
    }

    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.0.contents.delete(key).await.map(drop).map_err(failed)
    }

    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        self.delete(key).await?;
        Ok(ObjectVersions::NotVersioned)
    }

    /// A table keeps no older versions.
    async fn list_removed(
        &self,
        _: TenantId,
        _: StoreId,
        _: Option<&BlobKey>,
        _: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        Ok(Some(Vec::new()))
    }

    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        if let Some(store_id) = store_id {
            // One statement deletes all of them.
            let gone = self.0.contents.delete_store(tenant_id, store_id).await;
            return Ok(erased(gone.map_err(failed)?, None));
        }
        let listed = self.list(Some(tenant_id), after, limit).await?;
        for blob in &listed {
            self.delete(&blob.key).await?;
        }
        let last = listed.last().map(|blob| blob.key);
        Ok(erased(listed.len() as u64, last.filter(|_| listed.len() == limit)))
    }

    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let listed = self.0.contents.list(tenant_id, after, limit).await;
        let blob = |(key, size_bytes)| ListedBlob {
            key,
            size_bytes,
            // Nothing depends on the age of a content in the index: a content that no
            // version names does not exist.
            modified_at: Timestamp::from_micros(0),
        };
        Ok(listed.map_err(failed)?.into_iter().map(blob).collect())
    }

    async fn check(&self) -> Result<(), BlobError> {
        self.0.check().await.map_err(failed)
    }
}

const fn erased(gone: u64, last: Option<BlobKey>) -> ErasedBatch {
    ErasedBatch { gone, kept: 0, became: ObjectVersions::NotVersioned, last }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(error: IndexError) -> BlobError {
    if error.is_passing() {
        BlobError::Unavailable(error.to_string())
    } else {
        BlobError::Unexpected(error.to_string())
    }
}
