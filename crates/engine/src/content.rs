//! Content in memory: blobs are immutable, so what was read once stays true.

use std::sync::Arc;

use keepsake_core::{BlobKey, Content, ContentHash, StoreId, TenantId};
use keepsake_index::Head;
use keepsake_telemetry::Cache as Looked;

use crate::work::charge;
use crate::{Engine, EngineError};

/// Bytes of memory per byte of content that a request reads: the content itself
/// and its copies in the answer.
const BYTES_PER_CONTENT_BYTE: usize = 3;
/// Bytes that an entry takes beside its content: key, hash table, policy.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// Names content in the cache. The store's purge epoch is part of the name, so
/// that nothing cached before a removal of history is found after it.
type Key = (BlobKey, i64);

/// Content of every tenant, bounded by bytes together.
#[derive(Debug)]
pub(crate) struct Cache(moka::future::Cache<Key, Arc<str>>);

impl Cache {
    pub(crate) fn new(max_bytes: u64) -> Self {
        let weigh =
            |_: &Key, text: &Arc<str>| u32::try_from(text.len() + ENTRY_OVERHEAD_BYTES).unwrap_or(u32::MAX);
        Self(
            moka::future::Cache::builder()
                .max_capacity(max_bytes)
                .weigher(weigh)
                .build(),
        )
    }

    /// Bytes that are kept.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.0.weighted_size()
    }
}

impl Engine {
    /// The content of a head; `None` when its blob is gone.
    ///
    /// Costs no call of the object store when the content is in memory. What
    /// is fetched is checked against the index's hash before anyone sees it.
    pub(crate) async fn content_of(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        purge_epoch: i64,
        head: &Head,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let key = BlobKey {
            tenant_id,
            store_id,
            blob_id: head.blob_id,
        };
        self.content_at(key, purge_epoch, head.sha256).await
    }

    /// The content of a blob whose hash is known.
    pub(crate) async fn content_at(
        &self,
        key: BlobKey,
        purge_epoch: i64,
        sha256: ContentHash,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let cache = &self.0.contents.0;
        let cached = cache.get(&(key, purge_epoch)).await;
        self.0.metrics.cache_looked_up(Looked::Content, cached.is_some());
        if let Some(text) = cached {
            charge(BYTES_PER_CONTENT_BYTE * text.len())?;
            return Ok(Some(text));
        }
        let Some(bytes) = self.0.blobs.get(&key).await? else {
            return Ok(None);
        };
        if ContentHash::of(&bytes) != sha256 {
            tracing::error!(
                blob.key = %key,
                "blob.damaged: stored bytes do not have the hash that the index recorded; not served"
            );
            return Err(EngineError::Damaged("its hash is not the recorded one"));
        }
        charge(BYTES_PER_CONTENT_BYTE * bytes.len())?;
        let text: Arc<str> = std::str::from_utf8(&bytes)
            .map_err(|_| EngineError::Damaged("it is not UTF-8"))?
            .into();
        cache.insert((key, purge_epoch), Arc::clone(&text)).await;
        Ok(Some(text))
    }

    /// Keeps content that was just committed, since it is likely read next.
    pub(crate) async fn remember(&self, key: BlobKey, purge_epoch: i64, content: &Content) {
        self.0
            .contents
            .0
            .insert((key, purge_epoch), content.as_str().into())
            .await;
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::VersionId;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn cache_never_outgrows_its_bytes() {
        let cache = Cache::new(20_000);
        for number in 0..200_u128 {
            let key = BlobKey {
                tenant_id: TenantId::from_uuid(Uuid::from_u128(number % 3)),
                store_id: StoreId::from_uuid(Uuid::nil()),
                blob_id: VersionId::from_uuid(Uuid::from_u128(number)),
            };
            cache.0.insert((key, 0), "x".repeat(1_000).into()).await;
            cache.0.run_pending_tasks().await;
            assert!(cache.0.weighted_size() <= 20_000);
        }
        assert!(cache.0.entry_count() > 10);
    }
}
