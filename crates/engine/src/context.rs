//! State that the services of the engine share.

use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobError, BlobStore, ObjectVersions};
use keepsake_core::sensitive::Scanner;
use keepsake_core::{
    BlobKey, Limits, MemoryId, MemoryPath, ObjectKind, Refused, StoreId, TenantId, Timestamp, VersionId,
};
use keepsake_index::{
    AuditedAction, Auditor, ChangeError, ChangePage, FoundMemory, Index, Lookup, StoreState, UseNumbers,
    Version,
};
use keepsake_telemetry::Metrics;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use uuid::Uuid;

use crate::compute::Computations;
use crate::cursor::Cursors;
use crate::embedding_queue::EmbeddingQueue;
use crate::error::Rejection;
use crate::secrets::Secrets;
use crate::use_counts::UseCounts;
use crate::work::keep_held;
use crate::{Clock, EngineError, IdSource, Principal};

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) index: Index,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// Whether commits write content; otherwise content is put into `blobs` first.
    pub(crate) has_content_in_index: bool,
    pub(crate) scanner: Scanner,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// The limits of a tenant without its own limits.
    pub(crate) limits: Limits,
    pub(crate) secrets: Secrets,
    pub(crate) cursors: Cursors,
    pub(crate) computations: Computations,
    /// Stores whose changes this replica will embed.
    pub(crate) embedding_queue: Arc<EmbeddingQueue>,
    /// What this replica's next flush adds to the daily use.
    pub(crate) use_counts: UseCounts,
    /// How long a blob is kept after the rows that named it.
    pub(crate) blob_deletion_delay: Duration,
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

    /// The earliest removal time of a blob that no row names any longer.
    pub(crate) fn blobs_go_from(&self, now: Timestamp) -> Timestamp {
        now.plus(self.blob_deletion_delay)
    }

    pub(crate) fn audited(&self, by: Auditor) -> AuditedAction {
        let at = self.now();
        AuditedAction { id: self.ids.uuid(at), at, by, entries_per_day: None }
    }

    pub(crate) fn audited_by(&self, principal: &Principal) -> AuditedAction {
        AuditedAction {
            entries_per_day: Some(principal.limits.audit_entries_per_day),
            ..self.audited(principal.by.clone())
        }
    }

    /// Notes a commit: its store is to be embedded, and its numbers are counted if there are any.
    pub(crate) fn note_commit(&self, principal: &Principal, store_id: StoreId, numbers: UseNumbers) {
        let store = (principal.tenant_id, store_id);
        self.embedding_queue.push(store);
        if numbers != UseNumbers::default() {
            self.use_counts.note_changes(store, principal.surface, self.now(), numbers);
        }
    }

    /// Counts a change of a store's memories that was not made.
    pub(crate) fn note_rejection(&self, principal: &Principal, store_id: StoreId, rejection: Rejection) {
        let numbers = match rejection {
            Rejection::Refusal => UseNumbers { refusals: 1, ..UseNumbers::default() },
            Rejection::Conflict => UseNumbers { conflicts: 1, ..UseNumbers::default() },
        };
        let store = (principal.tenant_id, store_id);
        self.use_counts.note_changes(store, principal.surface, self.now(), numbers);
    }

    /// Counts a change that exceeds a limit in the metrics.
    pub(crate) fn counted<T>(&self, change: Result<T, ChangeError>) -> Result<T, EngineError> {
        if let Err(ChangeError::Refused(Refused::OverLimit(over))) = &change {
            self.metrics.quota_refused(over.limit);
        }
        Ok(change?)
    }

    /// Runs a change in a separate task to its end, even if the client
    /// disconnects.
    pub(crate) async fn run_to_end<T, F>(&self, change: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let task = self.writes.spawn(keep_held(change).in_current_span());
        match task.await {
            Ok(outcome) => outcome,
            Err(_) => Err(EngineError::Internal("a write's task ended without an answer")),
        }
    }

    /// Removes a blob with its object versions; warns when the bucket keeps
    /// some of them.
    pub(crate) async fn erase_blob(&self, key: &BlobKey) -> Result<(), BlobError> {
        if self.blobs.erase(key).await? == ObjectVersions::Kept {
            tracing::warn!(
                blob.key = %key,
                "blob.erase: the bucket may keep older versions, and lets them not be listed or deleted"
            );
        }
        Ok(())
    }

    /// The store must exist. `None` is the root.
    pub(crate) async fn look_up(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
    ) -> Result<Lookup, EngineError> {
        let lookup = self.index.memories.head(tenant_id, store_id, path, 0).await?;
        lookup.ok_or(EngineError::NotFound(ObjectKind::Store))
    }

    /// The store must exist.
    pub(crate) async fn find_memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<FoundMemory, EngineError> {
        let found = self.index.memories.find(tenant_id, store_id, memory_id).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::Store))
    }

    /// The store must exist.
    pub(crate) async fn find_version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<(StoreState, Version), EngineError> {
        let found = self.index.versions.find(tenant_id, store_id, version_id).await?;
        let (store, version) = found.ok_or(EngineError::NotFound(ObjectKind::Store))?;
        Ok((store, version.ok_or(EngineError::NotFound(ObjectKind::Version))?))
    }

    /// The store must exist.
    pub(crate) async fn changes_after(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: i64,
        limit: u32,
    ) -> Result<ChangePage, EngineError> {
        let page = self.index.changes.after(tenant_id, store_id, after, limit).await?;
        page.ok_or(EngineError::NotFound(ObjectKind::Store))
    }
}
