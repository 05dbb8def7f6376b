//! A blob store that runs a test's hooks before and after calls.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use keepsake_blobs::{BlobError, BlobStore, Erased, ErasedBatch, ListedBlob};
use keepsake_core::{BlobKey, StoreId, TenantId};

/// Runs at its step; an error is what the caller of the store gets.
type Hook = Arc<dyn Fn(&BlobKey) -> BoxFuture<'static, Result<(), BlobError>> + Send + Sync>;

/// The future of a hook.
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

/// How often each method was called, failed calls included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobCalls {
    /// Calls of `put`.
    pub put: usize,
    /// Calls of `get`.
    pub get: usize,
    /// Calls of `delete`.
    pub delete: usize,
    /// Calls of `list`.
    pub list: usize,
    /// Calls of `check`.
    pub check: usize,
}

impl HookedBlobs {
    /// Wraps a store, without hooks.
    pub fn new(inner: Arc<dyn BlobStore>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default() })
    }

    /// Runs `hook` before each `put` reaches the store.
    pub fn before_put<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_put = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Runs `hook` after each successful `put`.
    pub fn after_put<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.after_put = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Runs `hook` before each `get` reaches the store.
    pub fn before_get<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_get = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Runs `hook` before each `delete` reaches the store.
    pub fn before_delete<F: HookFuture>(&self, hook: impl Fn(&BlobKey) -> F + Send + Sync + 'static) {
        self.state().hooks.before_delete = Some(Arc::new(move |key| Box::pin(hook(key))));
    }

    /// Answers erasures as if the older versions of `seen` blobs could not be
    /// deleted; `None`: the answer of the real store.
    pub fn keep_versions(&self, seen: Option<u64>) {
        self.state().kept_versions = seen;
    }

    /// Removes all hooks; counts and keys stay.
    pub fn clear_hooks(&self) {
        self.state().hooks = Hooks::default();
    }

    /// How often each method was called so far.
    pub fn calls(&self) -> BlobCalls {
        self.state().calls
    }

    /// The keys of successful puts, in their order.
    pub fn keys_put(&self) -> Vec<BlobKey> {
        self.state().keys_put.clone()
    }

    /// The keys that the real store deleted, in that order.
    pub fn keys_deleted(&self) -> Vec<BlobKey> {
        self.state().keys_deleted.clone()
    }

    fn with_kept_versions(&self, batch: ErasedBatch) -> ErasedBatch {
        match self.state().kept_versions {
            Some(kept) => ErasedBatch { gone: 0, kept, became: Erased::OlderVersionsKept, ..batch },
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

    /// The real store.
    pub fn inner(&self) -> &Arc<dyn BlobStore> {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn erase(&self, key: &BlobKey) -> Result<Erased, BlobError> {
        self.state().calls.delete += 1;
        self.run(|hooks| &hooks.before_delete, key).await?;
        let erased = self.inner.erase(key).await?;
        let mut state = self.state();
        state.keys_deleted.push(*key);
        Ok(match state.kept_versions {
            Some(_) => Erased::OlderVersionsKept,
            None => erased,
        })
    }

    async fn erase_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<ErasedBatch, BlobError> {
        let batch = self.inner.erase_store(tenant_id, store_id).await?;
        Ok(self.with_kept_versions(batch))
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
        let batch = self.inner.erase_tenant(tenant_id, after, limit).await?;
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
        self.state().calls.check += 1;
        self.inner.check().await
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::VersionId;
    use uuid::Uuid;

    use super::*;

    const KEY: BlobKey = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(1)),
        store_id: StoreId::from_uuid(Uuid::from_u128(2)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(3)),
    };

    fn unavailable() -> Result<(), BlobError> {
        Err(BlobError::Unavailable("as the test wants it".to_owned()))
    }

    #[tokio::test]
    async fn hooks_fail_calls_before_and_after_the_store() {
        let hooked = HookedBlobs::new(crate::fresh_s3().await);

        hooked.before_put(|_| async { unavailable() });
        assert!(hooked.put(&KEY, Bytes::from_static(b"text")).await.is_err());
        assert_eq!(hooked.get(&KEY, 4).await.unwrap(), None);
        assert_eq!(hooked.keys_put(), []);

        hooked.clear_hooks();
        hooked.after_put(|_| async { unavailable() });
        assert!(hooked.put(&KEY, Bytes::from_static(b"text")).await.is_err());
        assert_eq!(hooked.get(&KEY, 4).await.unwrap(), Some(Bytes::from_static(b"text")));
        assert_eq!(hooked.keys_put(), [KEY]);

        hooked.before_get(|_| async { unavailable() });
        hooked.before_delete(|_| async { unavailable() });
        assert!(hooked.get(&KEY, 4).await.is_err());
        assert!(hooked.delete(&KEY).await.is_err());
        assert_eq!(hooked.keys_deleted(), []);
        hooked.clear_hooks();
        hooked.delete(&KEY).await.unwrap();
        assert_eq!(hooked.keys_deleted(), [KEY]);
        assert_eq!(hooked.calls(), BlobCalls { put: 2, get: 3, delete: 2, ..BlobCalls::default() });
    }
}
