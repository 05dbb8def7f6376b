//! What the services of the engine share.

use std::sync::Arc;

use keepsake_blobs::BlobStore;
use keepsake_core::sensitive::Scanner;
use keepsake_core::{MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use keepsake_index::{FoundMemory, FoundVersion, Index, Lookup, StoreState, Version};
use keepsake_telemetry::Metrics;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{Clock, EngineError, IdSource};

/// The stores, and the sources of time and randomness.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) index: Index,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// Whether commits write content; otherwise it is put into `blobs` first.
    pub(crate) has_content_in_index: bool,
    pub(crate) scanner: Scanner,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// The id of this process in leases and claims.
    pub(crate) replica: Uuid,
    /// Running writes; a shutdown waits for them.
    pub(crate) writes: TaskTracker,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn new_uuid(&self) -> Uuid {
        self.ids.uuid(self.now())
    }

    /// Looks up a path of an existing store; `None` is the root.
    pub(crate) async fn look_up(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
    ) -> Result<Lookup, EngineError> {
        let lookup = self.index.memories.head(tenant_id, store_id, path, 0).await?;
        lookup.ok_or(EngineError::StoreNotFound)
    }

    /// Finds a memory of an existing store.
    pub(crate) async fn find_memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<FoundMemory, EngineError> {
        let found = self.index.memories.find(tenant_id, store_id, memory_id).await?;
        found.ok_or(EngineError::StoreNotFound)
    }

    /// Finds a version of an existing store.
    pub(crate) async fn find_version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(StoreState, Version), EngineError> {
        let found = self.index.versions.find(tenant_id, store_id, version_id).await?;
        let FoundVersion { store, version } = found.ok_or(EngineError::StoreNotFound)?;
        Ok((store, version.ok_or(EngineError::VersionNotFound)?))
    }
}
