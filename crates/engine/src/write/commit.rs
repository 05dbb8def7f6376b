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
use keepsake_core::{BlobKey, Content, MemoryId, ObjectKind, Refused, VersionId};
use keepsake_index::{
    ChangeError, Commit, CommitChange, CommitOutcome, IndexError, Origin, ProposedChange, SearchRow,
};
use keepsake_telemetry::Retried;

use super::{
    Admission, Attempt, Change, Decision, MAX_ATTEMPTS, Miss, Proposal, Write, WriteResult, WrittenChanges,
    growth_of, search_rows, settings,
};
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

impl Write<'_> {
    /// Applies policy and limits to a proposal and commits it.
    pub(super) async fn commit<C: Change>(
        &self,
        change: &C,
        mut proposal: Proposal,
    ) -> Result<Attempt, EngineError> {
        // A second check, in case the caller omitted it.
        self.principal.require_writable(self.store_id)?;
        let is_archived = proposal.store.is_some_and(|store| store.is_archived);
        let adds = !proposal.kept.is_empty() || proposal.changes.iter().any(|change| change.path.is_some());
        if is_archived && adds {
            return Ok(Err(Miss::Refused(Refused::Archived)));
        }
        if let Err(refusal) = self.check(&mut proposal).await? {
            return Ok(Err(Miss::Refused(refusal)));
        }
        if let ([change], Some(edit)) = (proposal.changes.as_slice(), &proposal.edit)
            && let Some(head) = change.same()
            && self.is_stored(proposal.store, head).await?
        {
            return self.keep(head, edit.clone()).await;
        }
        proposal.rows = self.rows_of(&proposal).await?;
        // The turn is held until the commit.
        let Admission { seq, tests, turn: _turn } = change.admit(self, &proposal).await?;
        let mut commit = Commit { seq, path_guard: tests, ..self.commit_of(&proposal) };
        self.prepare_all(&mut commit, &proposal);
        let tenant_id = self.principal.tenant_id;
        let mut blobs = self.put_blobs(&commit.changes).await?;
        let (mut tries, mut grants) = (0, 0);
        while tries < MAX_COMMITS && grants < MAX_GRANTS {
            commit.now = self.context().now();
            let outcome = self.context().index.memories.commit(tenant_id, &commit).await;
            if matches!(outcome, Err(IndexError::DiskFull(_))) {
                self.remove_blobs(&blobs).await;
            }
            let miss = match outcome? {
                CommitOutcome::Committed { seq, purge_epoch, at, expiry } => {
                    self.note_commit(commit.changes.len(), growth_of(&commit.changes));
                    for change in &commit.changes {
                        if let Some((key, content)) = self.blob_of(change) {
                            let before = change.wanted.head().map(|before| before.content.blob_id);
                            self.writer.contents.replace(key, purge_epoch, content, before).await;
                        }
                    }
                    let (changes, edit) = (commit.changes, proposal.edit);
                    let written = WrittenChanges { seq, at, purge_epoch, expiry, changes, edit };
                    return Ok(Ok(WriteResult::Written(Box::new(written))));
                }
                CommitOutcome::Replayed { seq } => {
                    self.remove_blobs(&blobs).await;
                    return Ok(Ok(WriteResult::Replayed(seq)));
                }
                CommitOutcome::NeedsGrant { size_bytes } => match self.request_grant(size_bytes).await? {
                    None => {
                        grants += 1;
                        continue;
                    }
                    Some(refusal) => Miss::Refused(refusal),
                },
                CommitOutcome::BlobCondemned if !blobs.is_empty() => {
                    self.context().metrics.retried(Retried::Blob);
                    tracing::warn!("engine.commit: a blob was condemned before its commit; writing again");
                    self.prepare_all(&mut commit, &proposal);
                    blobs = self.put_blobs(&commit.changes).await?;
                    tries += 1;
                    continue;
                }
                CommitOutcome::NoStore => {
                    self.remove_blobs(&blobs).await;
                    return Err(EngineError::NotFound(ObjectKind::Store));
                }
                // Existing content is condemned only when no row names it, so the head that
                // was read is no longer current.
                CommitOutcome::Stale | CommitOutcome::BlobCondemned => Miss::Stale,
                CommitOutcome::Refused(refusal) => Miss::Refused(refusal),
            };
            self.count_miss(&miss);
            self.remove_blobs(&blobs).await;
            return Ok(Err(miss));
        }
        self.remove_blobs(&blobs).await;
        Ok(Err(Miss::Stale))
    }

    /// What [`Write::run`] would commit, after policy and limits; `None`: nothing. Nothing is locked, and nothing
    /// is written.
    pub(crate) async fn preview<C: Change>(
        &self,
        change: &C,
    ) -> Result<(C::Read, Option<Proposal>), C::Error> {
        for _ in 0..MAX_ATTEMPTS {
            let read = change.read(self).await?;
            let mut decision = change.decide(&read)?;
            loop {
                let mut proposal = match decision {
                    Decision::Commit(proposal) => proposal,
                    Decision::Pin(..) | Decision::Nothing => return Ok((read, None)),
                    Decision::ReadAgain => break,
                };
                match self.check(&mut proposal).await? {
                    Ok(()) => {
                        proposal.rows = self.rows_of(&proposal).await?;
                        return Ok((read, Some(proposal)));
                    }
                    Err(refusal) => decision = change.refused(self, &read, refusal).await?,
                }
            }
        }
        Err(EngineError::from(Refused::Contended).into())
    }

    /// The search terms of each new content.
    async fn rows_of(&self, proposal: &Proposal) -> Result<Vec<Option<SearchRow>>, EngineError> {
        let contents = proposal.changes.iter().map(|change| change.content.clone()).collect();
        search_rows(&self.context().computations, self.principal.tenant_id, contents).await
    }

    /// Begins the commit of a proposal, still without its changes.
    pub(super) fn commit_of(&self, proposal: &Proposal) -> Commit {
        let limits = &self.principal.limits;
        let restores = proposal.changes.iter().any(ProposedChange::restores);
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
            seq: None,
            path_guard: None,
            policy: proposal.policy,
            changes: Vec::new(),
            has_content_in_index: self.context().has_content_in_index,
            kept: proposal.kept.clone(),
            results: proposal.results.clone(),
            reuses_paths: proposal.reuses_paths,
        }
    }

    /// Gives a commit the changes of a proposal, with new ids.
    fn prepare_all(&self, commit: &mut Commit, proposal: &Proposal) {
        let changes = proposal.changes.iter().zip(&proposal.rows);
        commit.changes = changes.map(|(wanted, row)| self.prepare(wanted.clone(), row.clone())).collect();
    }

    /// `search` contains the search terms of the change's content.
    pub(super) fn prepare(&self, mut wanted: ProposedChange, search: Option<SearchRow>) -> CommitChange {
        let context = self.context();
        let version_id = VersionId::from_uuid(context.new_uuid());
        let memory_id = match &wanted.from {
            Origin::New => MemoryId::from_uuid(context.new_uuid()),
            Origin::Live(head) => head.memory_id,
            Origin::Deleted(memory_id, _) => *memory_id,
        };
        if let Some(path) = &wanted.path {
            wanted.expiry = settings::expiry_of(path, wanted.expiry);
        }
        CommitChange { memory_id, version_id, wanted, search }
    }

    fn count_miss(&self, miss: &Miss) {
        let metrics = &self.context().metrics;
        match miss {
            Miss::Stale => metrics.retried(Retried::Commit),
            Miss::Refused(Refused::OverLimit(over)) => metrics.quota_refused(over.limit),
            Miss::Refused(_) => {}
        }
    }

    /// The content that a change brings, and the key of its blob.
    fn blob_of<'a>(&self, change: &'a CommitChange) -> Option<(BlobKey, &'a Content)> {
        let (tenant_id, store_id) = (self.principal.tenant_id, self.store_id);
        let key = BlobKey { tenant_id, store_id, blob_id: change.version_id };
        change.new_content().map(|content| (key, content))
    }

    /// Returns the keys of the new blobs.
    pub(super) async fn put_blobs(&self, changes: &[CommitChange]) -> Result<Vec<BlobKey>, EngineError> {
        let (keys, contents): (Vec<_>, Vec<_>) =
            changes.iter().filter_map(|change| self.blob_of(change)).unzip();
        if self.context().has_content_in_index {
            return Ok(keys);
        }
        let mut puts = Vec::new();
        for (key, content) in keys.iter().zip(contents) {
            puts.push(self.context().blobs.put(key, content.bytes().clone()));
        }
        let puts = stream::iter(puts).buffer_unordered(BLOBS_AT_ONCE);
        let put: Result<(), BlobError> = puts.try_collect().await;
        if let Err(error) = put {
            // Some blobs may have been stored, but no row names them.
            self.remove_blobs_soon(keys).await;
            return Err(error.into());
        }
        Ok(keys)
    }

    /// Removes the blobs of a refused commit, including their object versions,
    /// since no client knows of them. The sweep removes any that remain.
    pub(super) async fn remove_blobs(&self, blobs: &[BlobKey]) {
        erase_blobs(self.context(), blobs.to_vec()).await;
    }

    /// Removes the blobs in the background if the removal takes long: the client has
    /// already waited for an unavailable object store and must not wait again.
    async fn remove_blobs_soon(&self, blobs: Vec<BlobKey>) {
        let context = Arc::clone(self.context());
        let removal = async move { erase_blobs(&context, blobs).await };
        let removal = self.context().writes.spawn(removal);
        let _ = tokio::time::timeout(REMOVAL_AWAITED_FOR, removal).await;
    }

    /// Requests more of the tenant's bytes for the store; `None`: granted.
    pub(super) async fn request_grant(&self, needed_bytes: u64) -> Result<Option<Refused>, EngineError> {
        let (tenant_id, index) = (self.principal.tenant_id, &self.context().index);
        let limit_bytes = self.principal.limits.bytes_per_tenant;
        match index.grants.extend(tenant_id, self.store_id, needed_bytes, limit_bytes).await {
            Ok(()) => Ok(None),
            Err(ChangeError::Refused(refusal)) => Ok(Some(self.principal.shown_refusal(refusal))),
            Err(error) => Err(error.into()),
        }
    }
}

async fn erase_blobs(context: &Context, keys: Vec<BlobKey>) {
    if context.has_content_in_index {
        return;
    }
    let removals: Vec<_> = keys.into_iter().map(|key| erase_blob(context, key).boxed()).collect();
    let removals = stream::iter(removals).buffer_unordered(BLOBS_AT_ONCE);
    removals.collect::<()>().await;
}

async fn erase_blob(context: &Context, key: BlobKey) {
    if let Err(error) = context.blobs.erase(&key).await {
        tracing::warn!(blob.key = %key, error = %error, "engine.commit left an orphan blob");
    }
}
