//! A blob store that acknowledges first and writes later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_blobs::{BlobError, BlobStore, Erased, ErasedBatch, ListedBlob};
use keepsake_core::{BlobKey, StoreId, TenantId};

/// Blobs that wait; those of the last puts are lost by a crash.
const WAITING: usize = 3;

/// Puts blobs after the rows that name them are committed.
#[derive(Debug)]
pub(super) struct LateBlobs {
    inner: Arc<dyn BlobStore>,
    waiting: Mutex<VecDeque<(BlobKey, Bytes)>>,
}

impl LateBlobs {
    pub(super) fn new(inner: Arc<dyn BlobStore>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(BlobKey, Bytes)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BlobStore for LateBlobs {
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let due = {
            let mut waiting = self.waiting();
            waiting.push_back((*key, bytes));
            if waiting.len() > WAITING {
                waiting.pop_front()
            } else {
                None
            }
        };
        match due {
            Some((key, bytes)) => self.inner.put(&key, bytes).await,
            None => Ok(()),
        }
    }

    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let waiting = self
            .waiting()
            .iter()
            .find(|(waiting, _)| waiting == key)
            .map(|(_, bytes)| bytes.clone());
        match waiting {
            Some(bytes) => Ok(Some(bytes)),
            None => self.inner.get(key, max_bytes).await,
        }
    }

    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.waiting().retain(|(waiting, _)| waiting != key);
        self.inner.delete(key).await
    }

    async fn erase(&self, key: &BlobKey) -> Result<Erased, BlobError> {
        self.waiting().retain(|(waiting, _)| waiting != key);
        self.inner.erase(key).await
    }

    async fn erase_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<ErasedBatch, BlobError> {
        self.inner.erase_store(tenant_id, store_id).await
    }

    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        self.inner.list_removed(tenant_id, store_id, after, limit).await
    }

    async fn erase_tenant(
        &self,
        tenant_id: TenantId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        self.inner.erase_tenant(tenant_id, after, limit).await
    }

    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        self.inner.list(tenant_id, after, limit).await
    }

    async fn check(&self) -> Result<(), BlobError> {
        self.inner.check().await
    }
}
