//! Cache of blob contents. Blobs are immutable, so entries stay correct.

use std::sync::Arc;

use keepsake_blobs::BlobError;
use keepsake_core::{
    BlobKey, Content, ContentHash, MemoryId, MemoryPath, ObjectKind, StoreId, TenantId, VersionId,
};
use keepsake_index::{Head, Lookup, MemoryTarget, StoredContent, Target, Version};
use keepsake_telemetry::{Cache as Looked, Retried};

use crate::EngineError;
use crate::context::Context;
use crate::work::charge;

/// Maximum reads of a memory while its blob is missing each time. A race with two edits
/// and two removals explains two misses; more misses are a fault.
pub(crate) const MAX_READS: u32 = 3;

/// Bytes of memory charged per byte of content that a request reads: the
/// content and its copies in the answer.
const BYTES_PER_CONTENT_BYTE: usize = 3;
/// Bytes of an entry besides its content: its key, its place in the hash table, and the records
/// of the eviction policy.
const ENTRY_OVERHEAD_BYTES: usize = 160;

/// Key of a cached content. It contains the store's purge epoch, so that
/// content cached before history was removed is not found afterwards.
type Key = (BlobKey, i64);

/// Reads the contents of all tenants, with a cache of limited bytes.
#[derive(Debug)]
pub(crate) struct Contents {
    context: Arc<Context>,
    cache: Cache,
}

#[derive(Debug)]
struct Cache(moka::future::Cache<Key, Arc<str>>);

impl Cache {
    fn new(max_bytes: u64) -> Self {
        let weigh =
            |_: &Key, text: &Arc<str>| u32::try_from(text.len() + ENTRY_OVERHEAD_BYTES).unwrap_or(u32::MAX);
        Self(moka::future::Cache::builder().max_capacity(max_bytes).weigher(weigh).build())
    }

    /// Adds an entry, and first removes the entry that it replaces: a full cache admits
    /// no entry that was used less often than its existing entries.
    async fn replace(&self, before: Option<Key>, key: Key, text: Arc<str>) {
        if let Some(before) = before {
            self.0.invalidate(&before).await;
        }
        self.0.insert(key, text).await;
    }
}

impl Contents {
    /// Registers the size of the cache as a metric for as long as the cache exists.
    pub(crate) fn new(context: Arc<Context>, max_bytes: u64) -> Arc<Self> {
        let cache = Cache::new(max_bytes);
        let contents = Arc::new(Self { context, cache });
        let of_cache = Arc::downgrade(&contents);
        contents
            .context
            .metrics
            .watch_cache_size(Looked::Content, move || Some(of_cache.upgrade()?.cache.0.weighted_size()));
        contents
    }

    /// The object at a path, with the content of a memory. Needs one index query; cached
    /// content needs no call to the object store.
    pub(crate) async fn at_path(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<(Lookup, Option<Arc<str>>), EngineError> {
        let mut gone = None;
        for _ in 0..MAX_READS {
            let found = self.context.index.memories.head(tenant_id, store_id, path, max_entries).await?;
            let found = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
            let Target::Memory(head) = &found.target else {
                return Ok((found, None));
            };
            // The row still names this blob, and the row was read after the blob was
            // missing: the blob is lost, and this is not a race with a purge.
            if gone == Some(head.content.blob_id) {
                return Err(missing(tenant_id, store_id, head));
            }
            gone = Some(head.content.blob_id);
            let text = self.of_head(tenant_id, store_id, found.store.purge_epoch, head).await?;
            if text.is_some() {
                return Ok((found, text));
            }
        }
        Err(EngineError::Damaged("its blob went missing again and again"))
    }

    /// `None`: the version has no content, or the content was removed.
    pub(crate) async fn of_version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        purge_epoch: i64,
        version: &Version,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let Some(content) = version.content else {
            return Ok(None);
        };
        let key = BlobKey { tenant_id, store_id, blob_id: content.blob_id };
        let path = version.path.as_ref().map(MemoryPath::as_str).unwrap_or_default();
        let text = self.at(key, purge_epoch, content).await;
        let text = text.map_err(naming(path, version.version_id))?;
        if text.is_some() {
            return Ok(text);
        }
        let again = self.context.find_version(tenant_id, store_id, version.version_id);
        if again.await?.1.content.is_none() {
            return Ok(None);
        }
        Err(missing_at(tenant_id, store_id, path, version.version_id))
    }

    /// `None`: the blob does not exist.
    ///
    /// Cached content needs no call to the object store. Fetched content is checked
    /// against the hash in the index before it is returned.
    pub(crate) async fn of_head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        purge_epoch: i64,
        head: &Head,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let key = BlobKey { tenant_id, store_id, blob_id: head.content.blob_id };
        let text = self.at(key, purge_epoch, head.content).await;
        text.map_err(naming(head.path.as_str(), head.version_id))
    }

    /// The content of a blob whose size and hash are known.
    pub(crate) async fn at(
        &self,
        key: BlobKey,
        purge_epoch: i64,
        recorded: StoredContent,
    ) -> Result<Option<Arc<str>>, EngineError> {
        match self.cached(key, purge_epoch).await? {
            Some(text) => Ok(Some(text)),
            None => self.fetch_into_cache(key, purge_epoch, recorded).await,
        }
    }

    /// The content of a memory at a path of which only the hash is known, as in search;
    /// `None`: the content was removed.
    pub(crate) async fn searched(
        &self,
        key: BlobKey,
        purge_epoch: i64,
        (memory_id, path): (MemoryId, &MemoryPath),
        sha256: ContentHash,
    ) -> Result<Option<Arc<str>>, EngineError> {
        if let Some(text) = self.cached(key, purge_epoch).await? {
            return Ok(Some(text));
        }
        let Some(size_bytes) = self.recorded_size(&key, memory_id).await? else {
            return Ok(None);
        };
        let recorded = StoredContent { blob_id: key.blob_id, size_bytes, sha256 };
        let text = self.fetch_into_cache(key, purge_epoch, recorded).await;
        let text = text.map_err(naming(path.as_str(), key.blob_id))?;
        if text.is_none() && self.recorded_size(&key, memory_id).await?.is_some() {
            return Err(missing_at(key.tenant_id, key.store_id, path.as_str(), key.blob_id));
        }
        Ok(text)
    }

    async fn cached(&self, key: BlobKey, purge_epoch: i64) -> Result<Option<Arc<str>>, EngineError> {
        let cached = self.cache.0.get(&(key, purge_epoch)).await;
        self.context.metrics.cache_looked_up(Looked::Content, cached.is_some());
        if let Some(text) = &cached {
            charge(BYTES_PER_CONTENT_BYTE * text.len())?;
        }
        Ok(cached)
    }

    async fn fetch_into_cache(
        &self,
        key: BlobKey,
        purge_epoch: i64,
        recorded: StoredContent,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let size_bytes = usize::try_from(recorded.size_bytes).unwrap_or(usize::MAX);
        charge(BYTES_PER_CONTENT_BYTE.saturating_mul(size_bytes))?;
        let text = self.fetch(&key, recorded).await?;
        if let Some(text) = &text {
            self.cache.0.insert((key, purge_epoch), Arc::clone(text)).await;
        }
        Ok(text)
    }

    /// The size of a blob, from the memory that holds the blob now or from the version
    /// that created it; `None`: neither exists.
    pub(crate) async fn recorded_size(
        &self,
        key: &BlobKey,
        memory_id: MemoryId,
    ) -> Result<Option<u64>, EngineError> {
        let (index, tenant_id, store_id) = (&self.context.index, key.tenant_id, key.store_id);
        let memory = index.memories.find(tenant_id, store_id, memory_id).await?;
        if let Some(MemoryTarget::Live(memory)) = memory.map(|found| found.target)
            && memory.head.content.blob_id == key.blob_id
        {
            return Ok(Some(memory.head.content.size_bytes));
        }
        let version = index.versions.find(tenant_id, store_id, key.blob_id).await?;
        let content = version.and_then(|(_, version)| version).and_then(|version| version.content);
        Ok(content.map(|content| content.size_bytes))
    }

    /// Reads a blob without the cache; `None`: the blob does not exist.
    ///
    /// When the bytes differ from the recorded hash or size, they are read once more,
    /// since they may have been damaged in transit. Damaged bytes are never served.
    pub(crate) async fn fetch(
        &self,
        key: &BlobKey,
        recorded: StoredContent,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let mut read = self.read_recorded(key, recorded).await;
        if matches!(read, Err(EngineError::Damaged(_))) {
            self.context.metrics.retried(Retried::DamagedRead);
            read = self.read_recorded(key, recorded).await;
        }
        if let Err(EngineError::Damaged(how)) = read {
            tracing::error!(
                blob.key = %key,
                "blob.damaged: stored bytes are not the recorded ones ({how}); not served"
            );
        }
        read
    }

    async fn read_recorded(
        &self,
        key: &BlobKey,
        recorded: StoredContent,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let bytes = match self.context.blobs.get(key, recorded.size_bytes).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(BlobError::TooLarge { .. }) => {
                return Err(EngineError::Damaged("it is larger than recorded"));
            }
            Err(error) => return Err(error.into()),
        };
        if ContentHash::of(&bytes) != recorded.sha256 {
            return Err(EngineError::Damaged("its hash is not the recorded one"));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| EngineError::Damaged("it is not UTF-8"))?;
        Ok(Some(text.into()))
    }

    /// Caches content that was just committed, since it is likely to be read next, in
    /// place of the memory's previous content.
    pub(crate) async fn replace(
        &self,
        key: BlobKey,
        purge_epoch: i64,
        content: &Content,
        before: Option<VersionId>,
    ) {
        let before = before.map(|blob_id| (BlobKey { blob_id, ..key }, purge_epoch));
        let text = content.as_str().into();
        self.cache.replace(before, (key, purge_epoch), text).await;
    }
}

/// Logs that the content of a memory is lost, and returns the error.
pub(crate) fn missing(tenant_id: TenantId, store_id: StoreId, head: &Head) -> EngineError {
    missing_at(tenant_id, store_id, head.path.as_str(), head.version_id)
}

pub(crate) fn missing_at(
    tenant_id: TenantId,
    store_id: StoreId,
    path: &str,
    version_id: VersionId,
) -> EngineError {
    tracing::error!(
        tenant.id = %tenant_id, store.id = %store_id, version.id = %version_id,
        "blob.missing: the index names a blob that the object store does not have"
    );
    EngineError::ContentMissing { path: path.to_owned(), version_id }
}

/// A function for `map_err` that names the version whose content is damaged.
fn naming(path: &str, version_id: VersionId) -> impl FnOnce(EngineError) -> EngineError {
    move |error| match error {
        EngineError::Damaged(_) => EngineError::ContentDamaged { path: path.to_owned(), version_id },
        error => error,
    }
}

/// Why a requested content cannot be shown, while other contents can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentLoss {
    Missing,
    /// The stored bytes differ from their record.
    Damaged,
}

impl ContentLoss {
    /// The loss that an error reports. Fails with the error itself if it reports no loss.
    pub(crate) fn of(error: EngineError) -> Result<Self, EngineError> {
        match error {
            EngineError::ContentMissing { .. } => Ok(Self::Missing),
            EngineError::ContentDamaged { .. } | EngineError::Damaged(_) => Ok(Self::Damaged),
            other => Err(other),
        }
    }

    /// The content that was read; `None` also if it is lost.
    pub(crate) fn or_none<T>(read: Result<Option<T>, EngineError>) -> Result<Option<T>, EngineError> {
        read.or_else(|error| Self::of(error).map(|_| None))
    }

    /// The error for a call that reads only this content.
    pub(crate) fn error(self, path: Option<&MemoryPath>, version_id: VersionId) -> EngineError {
        let path = path.map(MemoryPath::as_str).unwrap_or_default().to_owned();
        match self {
            Self::Missing => EngineError::ContentMissing { path, version_id },
            Self::Damaged => EngineError::ContentDamaged { path, version_id },
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn key(number: u128) -> Key {
        let blob = BlobKey {
            tenant_id: TenantId::from_uuid(Uuid::from_u128(number % 3)),
            store_id: StoreId::from_uuid(Uuid::nil()),
            blob_id: VersionId::from_uuid(Uuid::from_u128(number)),
        };
        (blob, 0)
    }

    #[tokio::test]
    async fn full_cache_takes_new_content_in_place_of_the_old() {
        let cache = Cache::new(20_000);
        let text: Arc<str> = "x".repeat(1_000).into();
        for number in 0..40 {
            cache.0.insert(key(number), Arc::clone(&text)).await;
            cache.0.get(&key(number)).await;
            cache.0.run_pending_tasks().await;
        }
        let old = (0..40).map(key).find(|old| cache.0.contains_key(old)).unwrap();
        cache.replace(Some(old), key(100), text).await;
        cache.0.run_pending_tasks().await;
        assert!(cache.0.contains_key(&key(100)));
        assert!(!cache.0.contains_key(&old));
    }
}
