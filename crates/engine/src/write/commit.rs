//! The commit protocol. Every change of a memory uses it.
//!
//! 1. With an object store, new content is put there under a new key, the id of the
//!    version that adds it. No database connection is held meanwhile.
//! 2. The index commits the version in one transaction, which compares every
//!    head with the head that was read, and checks all limits. Without an object
//!    store, the transaction also writes the content, and the rest does not apply.
//! 3. A commit that was refused, or that failed because the disk is full,
//!    removes its new blob. When the outcome is unknown, the blob is kept, since
//!    the commit may have succeeded. A crash at any step leaves at most an orphan
//!    blob.
//!
//! Two refusals are resolved here and retried with the same proposal: a store
//! that needs a larger grant of its tenant's bytes, and a blob that the sweep
//! condemned while this write was slow.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::BlobError;
use keepsake_core::content::first_line;
use keepsake_core::{BlobKey, Content, MemoryId, ObjectKind, Refused, SensitiveDataPolicy, VersionId};
use keepsake_index::{
    Change, ChangeError, Commit, CommitOutcome, HeadChange, IndexError, SearchRow, StoredContent,
};
use keepsake_telemetry::Retried;

use super::{Attempt, NewState, Origin, Proposal, Proposed, Write, Written, search_rows};
use crate::EngineError;
use crate::context::Context;

/// Commits per proposal; each resolves at most one refusal. A commit that was refused for
/// want of a larger grant counts as one of [`MAX_GRANTS`] instead.
pub(super) const MAX_COMMITS: u32 = 4;
/// Grants per proposal. At the limit of its tenant, a grant is exact, and another commit
/// may use or recall it first.
pub(super) const MAX_GRANTS: u32 = 100;

/// Blobs of one commit that are put or removed concurrently.
const BLOBS_AT_ONCE: usize = 16;

/// How long a failed request waits for the removal of its blobs.
const REMOVAL_AWAITED_FOR: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(crate) enum Text {
    New(Content),
    Earlier(StoredContent, Arc<str>),
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::New(content) => content.as_str(),
            Self::Earlier(_, text) => text,
        }
    }
}

/// A prepared change: with its ids, and its new content, if any.
pub(super) struct Prepared {
    pub(super) change: Change,
    pub(super) brings: Option<(BlobKey, Content)>,
}

impl Write<'_> {
    /// Applies policy and limits to a proposal and commits it.
    pub(super) async fn commit(&self, proposal: Proposal) -> Result<Attempt, EngineError> {
        // A second check, in case the caller omitted it.
        self.principal.require_writable(self.store_id)?;
        let is_archived = proposal.store.is_some_and(|store| store.is_archived);
        let adds = !proposal.kept.is_empty() || proposal.changes.iter().any(|change| change.to.is_some());
        if is_archived && adds {
            return Ok(Attempt::Refused(Refused::Archived));
        }
        let checked = match self.check(&proposal).await? {
            Ok(checked) => checked,
            Err(refusal) => return Ok(Attempt::Refused(refusal)),
        };
        if let ([change], [Some(Text::New(content))], Some(edit)) =
            (proposal.changes.as_slice(), checked.texts.as_slice(), &checked.edit)
            && let Some(head) = change.same(content)
            && self.is_stored(proposal.store, head).await?
        {
            return self.keep(head, edit.clone()).await;
        }
        let (computations, tenant_id) = (&self.context().computations, self.principal.tenant_id);
        let rows = search_rows(computations, tenant_id, checked.texts.clone()).await?;
        let prepare_all = || -> Vec<Prepared> {
            let wanted = proposal.changes.iter().zip(&checked.texts).zip(&rows);
            wanted.map(|((wanted, text), row)| self.prepare(wanted, text.as_ref(), row.as_ref())).collect()
        };
        let mut prepared = prepare_all();
        self.put_blobs(&prepared).await?;
        let (mut tries, mut grants) = (0, 0);
        while tries < MAX_COMMITS && grants < MAX_GRANTS {
            let commit = self.commit_of(&proposal, checked.policy, &prepared);
            let outcome = self.context().index.memories.commit(self.principal.tenant_id, &commit).await;
            if matches!(outcome, Err(IndexError::DiskFull(_))) {
                self.remove_blobs(&prepared).await;
            }
            let refused = match outcome? {
                CommitOutcome::Committed { seq, purge_epoch, at, expiry } => {
                    for Prepared { change, brings } in &prepared {
                        if let Some((key, content)) = brings {
                            let before = change.before.as_ref().map(|before| before.content.blob_id);
                            let contents = &self.writer.contents;
                            contents.replace(*key, purge_epoch, content, before).await;
                        }
                    }
                    return Ok(Attempt::Written(Box::new(Written {
                        seq,
                        at,
                        purge_epoch,
                        expiry,
                        changes: prepared.into_iter().map(|ready| ready.change).collect(),
                        edit: checked.edit,
                    })));
                }
                CommitOutcome::Replayed { seq } => {
                    self.remove_blobs(&prepared).await;
                    return Ok(Attempt::Replayed(seq));
                }
                CommitOutcome::NeedsGrant { size_bytes } => match self.request_grant(size_bytes).await? {
                    None => {
                        grants += 1;
                        continue;
                    }
                    Some(refusal) => Attempt::Refused(refusal),
                },
                CommitOutcome::BlobCondemned if prepared.iter().any(|ready| ready.brings.is_some()) => {
                    self.context().metrics.retried(Retried::Blob);
                    tracing::warn!("engine.commit: a blob was condemned before its commit; writing again");
                    prepared = prepare_all();
                    self.put_blobs(&prepared).await?;
                    tries += 1;
                    continue;
                }
                CommitOutcome::NoStore => {
                    self.remove_blobs(&prepared).await;
                    return Err(EngineError::NotFound(ObjectKind::Store));
                }
                // Existing content is condemned only when no row names it, so the head that
                // was read is no longer current.
                CommitOutcome::Stale | CommitOutcome::BlobCondemned => Attempt::Stale,
                CommitOutcome::Refused(refusal) => Attempt::Refused(refusal),
            };
            self.count_refusal(&refused);
            self.remove_blobs(&prepared).await;
            return Ok(refused);
        }
        self.remove_blobs(&prepared).await;
        Ok(Attempt::Stale)
    }

    /// Builds the commit of one attempt, with the time of that attempt.
    pub(super) fn commit_of(
        &self,
        proposal: &Proposal,
        policy: Option<SensitiveDataPolicy>,
        prepared: &[Prepared],
    ) -> Commit {
        let limits = &self.principal.limits;
        let restores = proposal.changes.iter().any(Proposed::restores);
        Commit {
            store_id: self.store_id,
            now: self.context().now(),
            actor: self.principal.actor().cloned(),
            replica: self.context().replica,
            memory_limit: limits.memories_per_store,
            byte_limit: limits.bytes_per_store,
            idempotency: self.idempotency,
            guard: proposal.guard.clone(),
            purge_epoch: proposal.store.filter(|_| restores).map(|store| store.purge_epoch),
            policy,
            changes: prepared.iter().map(|ready| ready.change.clone()).collect(),
            kept: proposal.kept.clone(),
            results: proposal.results.clone(),
        }
    }

    /// `text` is the change's content, unless unchanged, and `row` contains the search
    /// terms of that content.
    pub(super) fn prepare(
        &self,
        wanted: &Proposed,
        text: Option<&Text>,
        row: Option<&SearchRow>,
    ) -> Prepared {
        let context = self.context();
        let version_id = VersionId::from_uuid(context.new_uuid());
        let (memory_id, before, revives) = match &wanted.from {
            Origin::New => (MemoryId::from_uuid(context.new_uuid()), None, None),
            Origin::Live(head) => (head.memory_id, Some(head), None),
            Origin::Deleted(memory_id, deleted_by) => (*memory_id, None, Some(*deleted_by)),
        };
        let (stored, line, brings) = match text {
            Some(Text::New(new)) => {
                let key = BlobKey {
                    tenant_id: self.principal.tenant_id,
                    store_id: self.store_id,
                    blob_id: version_id,
                };
                let stored =
                    StoredContent { blob_id: version_id, size_bytes: new.size_bytes(), sha256: new.hash() };
                (Some(stored), Some(new.first_line()), Some((key, new.clone())))
            }
            Some(Text::Earlier(stored, text)) => (Some(*stored), Some(first_line(text)), None),
            None => (before.map(|head| head.content), None, None),
        };
        let in_index = brings.as_ref().filter(|_| context.has_content_in_index);
        let in_index = in_index.map(|(_, new): &(BlobKey, Content)| new.clone());
        let after = |(to, content): (&NewState, StoredContent)| HeadChange {
            path: to.path.clone(),
            content,
            new: in_index,
            first_line: line,
            expiry: to.expiry,
            search: row.cloned(),
        };
        Prepared {
            change: Change {
                memory_id,
                version_id,
                before: before.cloned(),
                revives,
                after: wanted.to.as_ref().zip(stored).map(after),
            },
            brings,
        }
    }

    fn count_refusal(&self, refused: &Attempt) {
        let metrics = &self.context().metrics;
        match refused {
            Attempt::Stale => metrics.retried(Retried::Commit),
            Attempt::Refused(Refused::OverLimit(over)) => metrics.quota_refused(over.limit),
            _ => {}
        }
    }

    pub(super) async fn put_blobs(&self, prepared: &[Prepared]) -> Result<(), EngineError> {
        if self.context().has_content_in_index {
            return Ok(());
        }
        let mut puts = Vec::new();
        for (key, content) in prepared.iter().filter_map(|ready| ready.brings.as_ref()) {
            puts.push(self.context().blobs.put(key, content.bytes().clone()));
        }
        let puts = stream::iter(puts).buffer_unordered(BLOBS_AT_ONCE);
        let put: Result<(), BlobError> = puts.try_collect().await;
        if let Err(error) = put {
            // Some blobs may have been stored, but no row names them.
            self.remove_blobs_soon(prepared).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Removes the blobs of a refused commit, including their object versions,
    /// since no client knows of them. The sweep removes any that remain.
    pub(super) async fn remove_blobs(&self, prepared: &[Prepared]) {
        remove_keys(self.context(), keys_brought(prepared)).await;
    }

    /// Removes the blobs in the background if the removal takes long: the client has
    /// already waited for an unavailable object store and must not wait again.
    async fn remove_blobs_soon(&self, prepared: &[Prepared]) {
        let (context, keys) = (Arc::clone(self.context()), keys_brought(prepared));
        let removal = async move { remove_keys(&context, keys).await };
        let removal = self.context().writes.spawn(removal);
        let _ = tokio::time::timeout(REMOVAL_AWAITED_FOR, removal).await;
    }

    /// Requests more of the tenant's bytes for the store; `None`: granted.
    pub(super) async fn request_grant(&self, needed_bytes: u64) -> Result<Option<Refused>, EngineError> {
        let (tenant_id, index) = (self.principal.tenant_id, &self.context().index);
        let limit_bytes = self.principal.limits.bytes_per_tenant;
        match index.grants.extend(tenant_id, self.store_id, needed_bytes, limit_bytes).await {
            Ok(()) => Ok(None),
            Err(ChangeError::Refused(refusal)) => Ok(Some(refusal)),
            Err(error) => Err(error.into()),
        }
    }
}

async fn remove_keys(context: &Context, keys: Vec<BlobKey>) {
    if context.has_content_in_index {
        return;
    }
    let removals: Vec<_> = keys.into_iter().map(|key| remove_key(context, key).boxed()).collect();
    let removals = stream::iter(removals).buffer_unordered(BLOBS_AT_ONCE);
    removals.collect::<()>().await;
}

async fn remove_key(context: &Context, key: BlobKey) {
    if let Err(error) = context.blobs.erase(&key).await {
        tracing::warn!(blob.key = %key, error = %error, "engine.commit left an orphan blob");
    }
}

/// The keys of a commit's new blobs.
fn keys_brought(prepared: &[Prepared]) -> Vec<BlobKey> {
    let brought = prepared.iter().filter_map(|ready| ready.brings.as_ref());
    brought.map(|(key, _)| *key).collect()
}
