//! Blob stores that wrap another blob store.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use keepsake_core::{BlobKey, StoreId, TenantId};

use crate::{BlobError, BlobStore, ErasedBatch, ListedBlob, ObjectVersions};

/// A blob store that passes every call to another one.
pub(crate) trait Decorator: Send + Sync + Debug {
    fn inner(&self) -> &dyn BlobStore;

    /// Makes a call of the inner store, or refuses it.
    fn around<T: Send>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, BlobError>> + Send,
    ) -> impl Future<Output = Result<T, BlobError>> + Send;

    /// A `put` of this size succeeded.
    fn written(&self, _size_bytes: usize) {}

    /// A `get` returned this many bytes.
    fn read(&self, _size_bytes: usize) {}
}

#[async_trait]
impl<D: Decorator> BlobStore for D {
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let size_bytes = bytes.len();
        self.around("put", self.inner().put(key, bytes)).await?;
        self.written(size_bytes);
        Ok(())
    }

    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        let bytes = self.around("get", self.inner().get(key, max_bytes)).await?;
        if let Some(bytes) = &bytes {
            self.read(bytes.len());
        }
        Ok(bytes)
    }

    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.around("delete", self.inner().delete(key)).await
    }

    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        self.around("erase", self.inner().erase(key)).await
    }

    async fn list_removed(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Option<Vec<BlobKey>>, BlobError> {
        let listed = self.inner().list_removed(tenant_id, store_id, after, limit);
        self.around("list_removed", listed).await
    }

    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        let call = store_id.map_or("erase_tenant", |_| "erase_store");
        self.around(call, self.inner().erase_all(tenant_id, store_id, after, limit)).await
    }

    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        let call = tenant_id.map_or("list", |_| "list_tenant");
        self.around(call, self.inner().list(tenant_id, after, limit)).await
    }

    async fn check(&self) -> Result<(), BlobError> {
        self.around("check", self.inner().check()).await
    }
}
