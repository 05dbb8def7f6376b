//! The commit protocol: the one way by which a memory changes.
//!
//! 1. New content is put under a key that was never used: the id of the
//!    version that brings it. No connection of the database is held meanwhile.
//! 2. The index commits the version in one transaction, which checks that
//!    every head is the one that was read, and all limits.
//! 3. A commit that was refused, or met a full disk, removes the blob it
//!    brought; one whose outcome is unknown leaves it, since it may have landed.
//!    A crash at any step leaves at most an orphan blob.
//!
//! Two refusals are settled here and tried again with what is in hand: a store
//! that needs more of its tenant's bytes, and a blob that the sweep condemned
//! while this write was slow. The others are the caller's to answer, or to
//! retry from a fresh read.

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

/// Commits tried for one proposal: each settles one refusal of the two kinds.
const SETTLING_TRIES: u32 = 4;

/// How long an answer waits for the removal of a blob that could not be put.
const REMOVAL_AWAITED_FOR: Duration = Duration::from_millis(200);

/// Tries from a fresh read before a change answers that it kept losing.
pub(crate) const CAS_ATTEMPTS: u32 = 8;

/// What a change wants of one memory, from the head that was read.
#[derive(Debug, Clone)]
pub(crate) enum Proposed {
    /// A new memory.
    Create { path: MemoryPath, content: Content },
    /// New content, another path, or both.
    Change {
        before: Head,
        to: MemoryPath,
        /// `None`: the content stays.
        content: Option<Content>,
        /// Whether it never expires from now on; `None`: as before.
        is_pinned: Option<bool>,
    },
    /// Content and path of an earlier version, for a memory that is there
    /// (`before`) or was deleted (`revives`).
    Restore {
        memory_id: MemoryId,
        before: Option<Head>,
        revives: Option<VersionId>,
        path: MemoryPath,
        content: StoredContent,
        /// The text that is there.
        text: Arc<str>,
    },
    /// Gone.
    Delete { before: Head },
}

impl Proposed {
    /// New content in place.
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

/// Changes of one store that are made together.
#[derive(Debug, Clone)]
pub(crate) struct Proposal {
    pub(crate) store_id: StoreId,
    pub(crate) changes: Vec<Proposed>,
    pub(crate) guard: Option<Guard>,
    /// The epoch under which content of earlier versions was read.
    pub(crate) purge_epoch: Option<i64>,
    /// Under which what was found in new content was judged.
    pub(crate) policy: Option<SensitiveDataPolicy>,
    pub(crate) idempotency: Option<Idempotency>,
}

/// How a proposal ended; an unknown outcome is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It is done.
    Done {
        /// The last version made.
        seq: i64,
        /// When its versions date from.
        at: Timestamp,
        /// Under which the content may be read.
        purge_epoch: i64,
        /// When memories of the store expire.
        expiry: Expiry,
        /// What was changed, in the proposal's order.
        made: Vec<Change>,
    },
    /// The same call had done it before.
    Replayed {
        /// The last version that call made.
        seq: i64,
    },
    /// Nothing changed.
    Refused(WriteRefusal),
}

/// Why nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    Archived,
    /// Something is not what was read: read again.
    Stale,
    /// A memory stands at the path, or a directory, which has no id.
    PathTaken {
        path: String,
        memory_id: Option<MemoryId>,
    },
    /// A file stands above the path.
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

/// A change made ready: ids minted, and the blob it brings, if any.
struct Prepared {
    change: Change,
    brings: Option<(BlobKey, Content)>,
}

impl Engine {
    /// Carries out a proposal, once; see the module for the steps.
    ///
    /// # Errors
    /// [`EngineError::Blobs`], [`IndexError::DiskFull`]: nothing changed. Any other
    /// [`EngineError::Index`]: the change may or may not have landed.
    /// [`EngineError::StoreNotFound`].
    pub(crate) async fn commit(
        &self,
        principal: &Principal,
        proposal: Proposal,
    ) -> Result<Committed, EngineError> {
        // Whoever forgot to ask before is refused here.
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
            let outcome = self.0.index.commit(tenant_id, &commit).await;
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
                // Kept content is condemned only once no row names it, so the
                // head that was read is not the head any more.
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

    /// The commit of one attempt, at the time of that attempt.
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

    /// Makes a change ready; `row` are the search terms of the content that it
    /// gives the memory, if it does.
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
            first_line: Some(content.first_line()),
            is_pinned: None,
            search: row.cloned(),
        };
        let kept_content = |path: &MemoryPath, content: StoredContent| HeadChange {
            path: path.clone(),
            blob_id: content.blob_id,
            size_bytes: content.size_bytes,
            sha256: content.sha256,
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
        for (key, content) in prepared.iter().filter_map(|ready| ready.brings.as_ref()) {
            if let Err(error) = self.0.blobs.put(key, content.bytes().clone()).await {
                // It may be there all the same: nothing names it.
                self.remove_blobs_soon(prepared).await;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Removes what a refused commit brought, from a bucket that keeps versions
    /// too: nobody was told that it was stored. What stays is the sweep's.
    async fn remove_blobs(&self, prepared: &[Prepared]) {
        self.remove_keys(keys_brought(prepared)).await;
    }

    /// The same beside the answer, when it takes long: a client waited for a store
    /// that is down, and must not wait for it once more.
    async fn remove_blobs_soon(&self, prepared: &[Prepared]) {
        let (engine, keys) = (self.clone(), keys_brought(prepared));
        let removal = self.0.writes.spawn(async move { engine.remove_keys(keys).await });
        let _ = tokio::time::timeout(REMOVAL_AWAITED_FOR, removal).await;
    }

    async fn remove_keys(&self, keys: Vec<BlobKey>) {
        for key in keys {
            if let Err(error) = self.0.blobs.erase(&key).await {
                tracing::warn!(blob.key = %key, error = %error, "engine.commit left an orphan blob");
            }
        }
    }

    /// Asks for more of the tenant's bytes; `None`: granted.
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
            .grant_bytes(principal.tenant_id, store_id, needed_bytes, limit_bytes)
            .await?
        {
            // Where the store is gone, the next commit says so in its own words.
            Grant::Granted | Grant::NoStore => Ok(None),
            Grant::Refused { wanted_bytes } => Ok(Some(WriteRefusal::TenantFull {
                size_bytes: wanted_bytes,
            })),
        }
    }
}

/// The keys of the blobs that a commit brought.
fn keys_brought(prepared: &[Prepared]) -> Vec<BlobKey> {
    let brought = prepared.iter().filter_map(|ready| ready.brings.as_ref());
    brought.map(|(key, _)| *key).collect()
}

/// Where a head's content lies.
const fn content_of(head: &Head) -> StoredContent {
    StoredContent {
        blob_id: head.blob_id,
        size_bytes: head.size_bytes,
        sha256: head.sha256,
    }
}
