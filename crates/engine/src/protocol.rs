//! The commit protocol. Every change of a memory uses it.
//!
//! 1. New content is put under a new key, the id of the version that adds it.
//!    No database connection is held meanwhile.
//! 2. The index commits the version in one transaction, which compares every
//!    head with the head that was read, and checks all limits.
//! 3. A commit that was refused, or that failed because the disk is full,
//!    removes its new blob. When the outcome is unknown, the blob is kept, since
//!    the commit may have succeeded. A crash at any step leaves at most an orphan
//!    blob.
//!
//! Two refusals are resolved here and retried with the same proposal: a store
//! that needs a larger grant of its tenant's bytes, and a blob that the sweep
//! condemned while this write was slow. The caller reports the other refusals,
//! or retries from a fresh read.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::content::first_line;
use keepsake_core::{
    BlobKey, Content, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId, TenantId, Timestamp, VersionId,
};
use keepsake_index::{
    Change, Commit, CommitOutcome, Expiry, Grant, Guard, Head, HeadChange, Idempotency, IndexError, Refusal,
    SearchRow, StoredContent,
};
use keepsake_telemetry::{Quota, Retried};

use crate::{Engine, EngineError, Principal};

/// Commit attempts per proposal; each resolves at most one refusal.
const SETTLING_TRIES: u32 = 4;

/// How long a failed request waits for the removal of its blobs.
const REMOVAL_AWAITED_FOR: Duration = Duration::from_millis(200);

/// Attempts from a fresh read before a change fails as contended.
pub(crate) const CAS_ATTEMPTS: u32 = 8;

/// A proposed change of one memory, based on the head that was read.
#[derive(Debug, Clone)]
pub(crate) enum Proposed {
    /// A new memory.
    Create { path: MemoryPath, content: Content },
    /// New content, another path, or both.
    Change {
        before: Head,
        to: MemoryPath,
        /// `None`: the content is unchanged.
        content: Option<Content>,
        /// The new pin; `None`: unchanged.
        is_pinned: Option<bool>,
    },
    /// Restores content and path of an earlier version, for a live memory
    /// (`before`) or a deleted one (`revives`).
    Restore {
        memory_id: MemoryId,
        before: Option<Head>,
        revives: Option<VersionId>,
        path: MemoryPath,
        content: StoredContent,
        /// The text of that content.
        text: Arc<str>,
    },
    /// Deletes the memory.
    Delete { before: Head },
}

impl Proposed {
    /// New content at the same path.
    pub(crate) fn edit(before: Head, content: Content) -> Self {
        Self::Change {
            to: before.path.clone(),
            content: Some(content),
            is_pinned: None,
            before,
        }
    }

    /// The same content at another path.
    pub(crate) fn rename(before: Head, to: MemoryPath) -> Self {
        Self::Change {
            before,
            to,
            content: None,
            is_pinned: None,
        }
    }
}

/// Changes of one store that are committed together.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) store_id: StoreId,
    pub(crate) changes: Vec<Proposed>,
    pub(crate) guard: Option<Guard>,
    /// The purge epoch under which content of earlier versions was read.
    pub(crate) purge_epoch: Option<i64>,
    /// The policy under which findings in new content were accepted.
    pub(crate) policy: Option<SensitiveDataPolicy>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// The outcome of a proposal; an unknown outcome is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It was committed.
    Done {
        /// The sequence number of the last new version.
        seq: i64,
        /// The timestamp of the new versions.
        at: Timestamp,
        /// The purge epoch for reading the content.
        purge_epoch: i64,
        /// The expiry period of the store's memories.
        expiry: Expiry,
        /// The committed changes, in the proposal's order.
        made: Vec<Change>,
    },
    /// An earlier identical call committed it.
    Replayed {
        /// The last version of that call.
        seq: i64,
    },
    /// Nothing was changed.
    Refused(WriteRefusal),
}

/// Why nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    Archived,
    /// Something differs from the earlier read: read again.
    Stale,
    /// A memory is at the path, or a directory, which has no id.
    PathTaken {
        path: String,
        memory_id: Option<MemoryId>,
    },
    /// A parent of the path is a memory.
    ParentIsFile {
        file: MemoryPath,
        memory_id: MemoryId,
    },
    TooManyMemories {
        count: u64,
    },
    StoreFull {
        size_bytes: u64,
    },
    TenantFull {
        size_bytes: u64,
    },
}

/// A prepared change: with its ids, and its new blob, if any.
struct Prepared {
    change: Change,
    brings: Option<(BlobKey, Content)>,
}

impl Engine {
    /// Commits a proposal once; the module describes the steps.
    ///
    /// # Errors
    /// [`EngineError::Blobs`], [`IndexError::DiskFull`]: nothing was changed.
    /// Any other [`EngineError::Index`]: the change may or may not have been
    /// committed.
    /// [`EngineError::StoreNotFound`].
    pub(crate) async fn commit(
        &self,
        principal: &Principal,
        proposal: Proposal,
    ) -> Result<Committed, EngineError> {
        // A second check, in case the caller omitted it.
        principal.require_writable(proposal.store_id)?;
        let tenant_id = principal.tenant_id;
        let rows = self.search_rows(&proposal.changes).await?;
        let prepare_all = || -> Vec<Prepared> {
            let wanted = proposal.changes.iter().zip(&rows);
            wanted
                .map(|(wanted, row)| self.prepare(tenant_id, proposal.store_id, wanted, row.as_ref()))
                .collect()
        };
        let mut prepared = prepare_all();
        self.put_blobs(&prepared).await?;
        for _ in 0..SETTLING_TRIES {
            let commit = self.attempt(principal, &proposal, &prepared);
            let outcome = self.0.index.memories.commit(tenant_id, &commit).await;
            if matches!(outcome, Err(IndexError::DiskFull(_))) {
                self.remove_blobs(&prepared).await;
            }
            let refusal = match outcome? {
                CommitOutcome::Committed {
                    seq,
                    purge_epoch,
                    at,
                    expiry,
                } => {
                    for (key, content) in prepared.iter().filter_map(|ready| ready.brings.as_ref()) {
                        self.remember(*key, purge_epoch, content).await;
                    }
                    let made = prepared.into_iter().map(|ready| ready.change).collect();
                    return Ok(Committed::Done {
                        seq,
                        at,
                        purge_epoch,
                        expiry,
                        made,
                    });
                }
                CommitOutcome::Replayed { seq } => {
                    self.remove_blobs(&prepared).await;
                    return Ok(Committed::Replayed { seq });
                }
                CommitOutcome::KeyReused => {
                    self.remove_blobs(&prepared).await;
                    return Err(EngineError::KeyReused);
                }
                CommitOutcome::Refused(refusal) => refusal,
            };
            let refused = match refusal {
                Refusal::NeedsGrant { size_bytes } => {
                    match self
                        .settle_grant(principal, proposal.store_id, size_bytes)
                        .await?
                    {
                        None => continue,
                        Some(refused) => refused,
                    }
                }
                Refusal::BlobCondemned if prepared.iter().any(|ready| ready.brings.is_some()) => {
                    self.0.metrics.retried(Retried::Blob);
                    tracing::warn!("engine.commit: a blob was condemned before its commit; written anew");
                    prepared = prepare_all();
                    self.put_blobs(&prepared).await?;
                    continue;
                }
                // Existing content is condemned only when no row names it, so
                // the head that was read is no longer current.
                Refusal::BlobCondemned | Refusal::Stale => WriteRefusal::Stale,
                Refusal::NoStore => {
                    self.remove_blobs(&prepared).await;
                    return Err(EngineError::StoreNotFound);
                }
                Refusal::Archived => WriteRefusal::Archived,
                Refusal::PathTaken { path, memory_id } => WriteRefusal::PathTaken {
                    path,
                    memory_id: Some(memory_id),
                },
                Refusal::PathIsDirectory { path } => WriteRefusal::PathTaken {
                    path,
                    memory_id: None,
                },
                Refusal::ParentIsFile { path, memory_id } => WriteRefusal::ParentIsFile {
                    file: MemoryPath::from_trusted(path),
                    memory_id,
                },
                Refusal::TooManyMemories { count } => WriteRefusal::TooManyMemories { count },
                Refusal::StoreFull { size_bytes } => WriteRefusal::StoreFull { size_bytes },
            };
            self.count_refusal(&refused);
            self.remove_blobs(&prepared).await;
            return Ok(Committed::Refused(refused));
        }
        self.remove_blobs(&prepared).await;
        Ok(Committed::Refused(WriteRefusal::Stale))
    }

    /// Builds the commit of one attempt, with the time of that attempt.
    fn attempt(&self, principal: &Principal, proposal: &Proposal, prepared: &[Prepared]) -> Commit {
        Commit {
            store_id: proposal.store_id,
            now: self.now(),
            actor: Some(principal.actor.clone()),
            replica: self.0.replica,
            memory_limit: principal.limits.memories_per_store,
            byte_limit: principal.limits.bytes_per_store,
            idempotency: proposal.idempotency,
            guard: proposal.guard.clone(),
            purge_epoch: proposal.purge_epoch,
            policy: proposal.policy,
            changes: prepared.iter().map(|ready| ready.change.clone()).collect(),
        }
    }

    /// Prepares a change. `row` contains the search terms of the memory's
    /// content after the change.
    fn prepare(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        wanted: &Proposed,
        row: Option<&SearchRow>,
    ) -> Prepared {
        let version_id = VersionId::from_uuid(self.new_uuid());
        let brings = |content: &Content| {
            Some((
                BlobKey {
                    tenant_id,
                    store_id,
                    blob_id: version_id,
                },
                content.clone(),
            ))
        };
        let new_content = |path: &MemoryPath, content: &Content| HeadChange {
            path: path.clone(),
            blob_id: version_id,
            size_bytes: content.size_bytes(),
            sha256: content.hash(),
            content: self.0.has_content_in_index.then(|| content.clone()),
            first_line: Some(content.first_line()),
            is_pinned: None,
            search: row.cloned(),
        };
        let kept_content = |path: &MemoryPath, content: StoredContent| HeadChange {
            path: path.clone(),
            blob_id: content.blob_id,
            size_bytes: content.size_bytes,
            sha256: content.sha256,
            content: None,
            first_line: None,
            is_pinned: None,
            search: row.cloned(),
        };
        let mut change = Change {
            memory_id: MemoryId::from_uuid(uuid::Uuid::nil()),
            version_id,
            before: None,
            revives: None,
            after: None,
        };
        let mut brought = None;
        match wanted {
            Proposed::Create { path, content } => {
                change.memory_id = MemoryId::from_uuid(self.new_uuid());
                change.after = Some(new_content(path, content));
                brought = brings(content);
            }
            Proposed::Change {
                before,
                to,
                content,
                is_pinned,
            } => {
                let mut after = match content {
                    Some(content) => new_content(to, content),
                    None => kept_content(to, content_of(before)),
                };
                after.is_pinned = *is_pinned;
                change.memory_id = before.memory_id;
                change.before = Some(before.clone());
                change.after = Some(after);
                brought = content.as_ref().and_then(brings);
            }
            Proposed::Restore {
                memory_id,
                before,
                revives,
                path,
                content,
                text,
            } => {
                change.memory_id = *memory_id;
                change.before.clone_from(before);
                change.revives = *revives;
                change.after = Some(HeadChange {
                    first_line: Some(first_line(text)),
                    ..kept_content(path, *content)
                });
            }
            Proposed::Delete { before } => {
                change.memory_id = before.memory_id;
                change.before = Some(before.clone());
            }
        }
        Prepared {
            change,
            brings: brought,
        }
    }

    fn count_refusal(&self, refused: &WriteRefusal) {
        let metrics = &self.0.metrics;
        match refused {
            WriteRefusal::Stale => metrics.retried(Retried::Commit),
            WriteRefusal::TooManyMemories { .. } => metrics.quota_refused(Quota::MemoriesPerStore),
            WriteRefusal::StoreFull { .. } => metrics.quota_refused(Quota::BytesPerStore),
            WriteRefusal::TenantFull { .. } => metrics.quota_refused(Quota::BytesPerTenant),
            WriteRefusal::Archived | WriteRefusal::PathTaken { .. } | WriteRefusal::ParentIsFile { .. } => {}
        }
    }

    async fn put_blobs(&self, prepared: &[Prepared]) -> Result<(), EngineError> {
        if self.0.has_content_in_index {
            return Ok(()); // the commit writes it
        }
        for (key, content) in prepared.iter().filter_map(|ready| ready.brings.as_ref()) {
            if let Err(error) = self.0.blobs.put(key, content.bytes().clone()).await {
                // It may have been stored anyway, but no row names it.
                self.remove_blobs_soon(prepared).await;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Removes the blobs of a refused commit, including their object versions,
    /// since no client knows of them. The sweep removes any that remain.
    async fn remove_blobs(&self, prepared: &[Prepared]) {
        self.remove_keys(keys_brought(prepared)).await;
    }

    /// Removes them in the background if it takes long: the client has already
    /// waited for an unavailable object store and must not wait again.
    async fn remove_blobs_soon(&self, prepared: &[Prepared]) {
        let (engine, keys) = (self.clone(), keys_brought(prepared));
        let removal = self.0.writes.spawn(async move { engine.remove_keys(keys).await });
        let _ = tokio::time::timeout(REMOVAL_AWAITED_FOR, removal).await;
    }

    async fn remove_keys(&self, keys: Vec<BlobKey>) {
        if self.0.has_content_in_index {
            return;
        }
        for key in keys {
            if let Err(error) = self.0.blobs.erase(&key).await {
                tracing::warn!(blob.key = %key, error = %error, "engine.commit left an orphan blob");
            }
        }
    }

    /// Requests more of the tenant's bytes for a store; `None`: granted.
    async fn settle_grant(
        &self,
        principal: &Principal,
        store_id: StoreId,
        needed_bytes: u64,
    ) -> Result<Option<WriteRefusal>, EngineError> {
        let limit_bytes = principal.limits.bytes_per_tenant;
        match self
            .0
            .index
            .grants
            .extend(principal.tenant_id, store_id, needed_bytes, limit_bytes)
            .await?
        {
            // If the store no longer exists, the next commit reports that.
            Grant::Granted | Grant::NoStore => Ok(None),
            Grant::Refused { wanted_bytes } => Ok(Some(WriteRefusal::TenantFull {
                size_bytes: wanted_bytes,
            })),
        }
    }
}

/// The keys of a commit's new blobs.
fn keys_brought(prepared: &[Prepared]) -> Vec<BlobKey> {
    let brought = prepared.iter().filter_map(|ready| ready.brings.as_ref());
    brought.map(|(key, _)| *key).collect()
}

/// Blob, size and hash of a head's content.
const fn content_of(head: &Head) -> StoredContent {
    StoredContent {
        blob_id: head.blob_id,
        size_bytes: head.size_bytes,
        sha256: head.sha256,
    }
}
