//! A blob store that runs a test's hooks before and after calls.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use keepsake_blobs::{BlobError, BlobStore, ErasedBatch, ListedBlob, ObjectVersions};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use uuid::Uuid;

use crate::locked;

/// Runs at its step; an error is what the caller of the store gets.
type Hook = Arc<dyn Fn(&BlobKey) -> BoxFuture<'static, Result<(), BlobError>> + Send + Sync>;

pub trait HookFuture: Future<Output = Result<(), BlobError>> + Send + 'static {}

impl<F: Future<Output = Result<(), BlobError>> + Send + 'static> HookFuture for F {}

/// A [`BlobStore`] around a real one that can fail, delay or interleave.
///
/// An error from a `before_*` hook keeps the call from the real store; one
/// from `after_put` leaves the blob there and loses the answer. Hooks can be
/// set and replaced at any time, also while calls are under way.
pub struct HookedBlobs {
    inner: Arc<dyn BlobStore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hooks: Hooks,
    kept_versions: Option<u64>,
    calls: BlobCalls,
    keys_put: Vec<BlobKey>,
    keys_deleted: Vec<BlobKey>,
}

#[derive(Default)]
struct Hooks {
    before_put: Option<Hook>,
    after_put: Option<Hook>,
    before_get: Option<Hook>,
    before_delete: Option<Hook>,
}

/// The key of a small number each for tenant, store and blob.
pub const fn blob_key(tenant: u128, store: u128, blob: u128) -> BlobKey {
    BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
        store_id: StoreId::from_uuid(Uuid::from_u128(store)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(blob)),
    }
}

/// How often each method was called, failed calls included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobCalls {
    pub put: usize,
    pub get: usize,
    pub delete: usize,
    pub list: usize,
}

impl HookedBlobs {
    pub fn new(inner: Arc<dyn BlobStore>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default() })
    }

    pub fn before_put<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_put = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Runs `hook` after each successful `put`.
    pub fn after_put<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.after_put = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    pub fn before_get<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_get = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    pub fn before_delete<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_delete = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Answers erasures as if the older versions of `seen` blobs could not be
    /// deleted; `None`: the answer of the real store.
    pub fn keep_versions(&self, seen: Option<u64>) {
        self.state().kept_versions = seen;
    }

    pub fn clear_hooks(&self) {
        self.state().hooks = Hooks::default();
    }

    pub fn calls(&self) -> BlobCalls {
        self.state().calls
    }

    pub fn keys_put(&self) -> Vec<BlobKey> {
        self.state().keys_put.clone()
    }

    /// The keys that the real store deleted, in that order.
    pub fn keys_deleted(&self) -> Vec<BlobKey> {
        self.state().keys_deleted.clone()
    }

    fn with_kept_versions(&self, batch: ErasedBatch) -> ErasedBatch {
        match self.state().kept_versions {
            Some(kept) => ErasedBatch { gone: 0, kept, became: ObjectVersions::Kept, ..batch },
            None => batch,
        }
    }

    async fn run(&self, step: fn(&Hooks) -> &Option<Hook>, key: &BlobKey) -> Result<(), BlobError> {
        let hook = step(&self.state().hooks).clone();
        match hook {
            Some(hook) => hook(key).await,
            None => Ok(()),
        }
    }

    pub fn inner(&self) -> &Arc<dyn BlobStore> {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl fmt::Debug for HookedBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedBlobs").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[async_trait]
impl BlobStore for HookedBlobs {
    async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        self.state().calls.put += 1;
        self.run(|hooks| &hooks.before_put, key).await?;
        self.inner.put(key, bytes).await?;
        self.state().keys_put.push(*key);
        self.run(|hooks| &hooks.after_put, key).await
    }

    async fn get(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<Bytes>, BlobError> {
        self.state().calls.get += 1;
        self.run(|hooks| &hooks.before_get, key).await?;
        self.inner.get(key, max_bytes).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.state().calls.delete += 1;
        self.run(|hooks| &hooks.before_delete, key).await?;
        self.inner.delete(key).await?;
        self.state().keys_deleted.push(*key);
        Ok(())
    }

    /// A deletion, as the hooks and counts see it.
    async fn erase(&self, key: &BlobKey) -> Result<ObjectVersions, BlobError> {
        self.state().calls.delete += 1;
        self.run(|hooks| &hooks.before_delete, key).await?;
        let erased = self.inner.erase(key).await?;
        let mut state = self.state();
        state.keys_deleted.push(*key);
        Ok(match state.kept_versions {
            Some(_) => ObjectVersions::Kept,
            None => erased,
        })
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

    async fn erase_all(
        &self,
        tenant_id: TenantId,
        store_id: Option<StoreId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<ErasedBatch, BlobError> {
        let batch = self.inner.erase_all(tenant_id, store_id, after, limit).await?;
        Ok(self.with_kept_versions(batch))
    }

    async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: usize,
    ) -> Result<Vec<ListedBlob>, BlobError> {
        self.state().calls.list += 1;
        self.inner.list(tenant_id, after, limit).await
    }

    async fn check(&self) -> Result<(), BlobError> {
        self.inner.check().await
    }
}
