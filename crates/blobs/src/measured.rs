//! A blob store that records durations and sizes of the calls of another one.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId};
use keepsake_telemetry::{Metrics, Outcome};

use crate::{BlobError, BlobStore, ErasedBatch, ListedBlob, ObjectVersions};

/// Records metrics of every call; the blob stores create the spans.
#[derive(Debug)]
pub struct MeasuredBlobs {
    inner: Arc<dyn BlobStore>,
    metrics: Metrics,
}

impl MeasuredBlobs {
    pub fn new(inner: Arc<dyn BlobStore>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    async fn measured<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, BlobError>> + Send,
    ) -> Result<T, BlobError> {
        let began_at = Instant::now();
        let result = answer.await;
        let outcome = match &result {
            Ok(_) => Outcome::Ok,
            Err(BlobError::Unavailable(_)) => Outcome::Unavailable,
            Err(BlobError::Denied(_)) => Outcome::Denied,
            Err(BlobError::Misconfigured(_)) => Outcome::Misconfigured,
            Err(BlobError::TooLarge { .. } | BlobError::Unexpected(_)) => Outcome::Error,
        };
        self.metrics.blob_called(call, outcome, began_at.elapsed());
        result
    }
}

#[async_trait]
impl BlobStore for MeasuredBlobs {
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let size_bytes = bytes.len();
        self.measured("put", self.inner.put(key, bytes)).await?;
        self.metrics.blob_bytes_written(size_bytes);
        Ok(())
    }

    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let bytes = self.measured("get", self.inner.get(key, max_bytes)).await?;
        if let Some(bytes) = &bytes {
            self.metrics.blob_bytes_read(bytes.len());
        }
        Ok(bytes)
    }

    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.measured("delete", self.inner.delete(key)).await
    }

    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        self.measured("erase", self.inner.erase(key)).await
    }

    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        let listed = self.inner.list_removed(tenant_id, store_id, after, limit);
        self.measured("list_removed", listed).await
    }

    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        let call = store_id.map_or("erase_tenant", |_| "erase_store");
        self.measured(call, self.inner.erase_all(tenant_id, store_id, after, limit)).await
    }

    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let call = tenant_id.map_or("list", |_| "list_tenant");
        self.measured(call, self.inner.list(tenant_id, after, limit)).await
    }

    async fn check(&self) -> Result<(), BlobError> {
        self.measured("check", self.inner.check()).await
    }
}
