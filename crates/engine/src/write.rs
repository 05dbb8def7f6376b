//! The one way to change memories.
//!
//! A surface (the memory tool, the agent tools, the API, a restoration) supplies a
//! [`Change`]: the objects to read, and a decision that is a pure function of them.
//! [`Write::run`] does the rest:
//!
//! 1. It locks the memory's path, reads, and decides. Preconditions are part of the
//!    decision: each read checks them again, so a retry cannot bypass them.
//! 2. It applies the store's sensitive-data policy to new content, and asks the change whether
//!    its outcome may be committed.
//! 3. It puts new content under a new key, then commits ([`commit`]).
//! 4. A commit that lost a race claims the memory and starts over from a fresh read,
//!    a bounded number of times.
//!
//! No other code retries a lost race.

mod claims;
mod commit;
mod import;
mod locks;
mod policy;
mod reads;
mod rows;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::tool::Edit;
use keepsake_core::{ContentHash, MemoryId, Refused, SensitiveDataPolicy, StoreId, Timestamp, VersionId};
use keepsake_index::{
    ChangeError, CommitChange, EarlierCall, Expiry, ExpiryChange, Guard, Head, Idempotency, KeptMemory,
    Memory, PathGuard, PinOutcome, ProposedChange, SearchRow, StoreState, UseNumbers,
};

use crate::content::Contents;
use crate::context::Context;
use crate::error::Rejection;
use crate::{EngineError, Principal};

use claims::ClaimWait;
pub(crate) use import::{ImportRefusal, PastPart, PastVersion};
pub(crate) use locks::PathLock;
use locks::PathLocks;
pub(crate) use policy::refused_contents;
pub(crate) use reads::{Obstacle, PathRead, Reads, VersionRead};
pub(crate) use rows::search_row;
use rows::search_rows;

/// Attempts from a fresh read before a change fails as contended.
const MAX_ATTEMPTS: u32 = 8;
/// Maximum number of memories that a change of many memories claims after a lost race. Other
/// changes rarely touch more of its memories at the same time.
const MAX_CLAIMS: usize = 16;

/// The name of a lock that is no path: of changes whose outcome is checked.
const CHECKED: &str = "checked";

/// A change of one store's memories, as a surface decides it.
pub(crate) trait Change: Sync {
    type Read: Send + Sync;
    type Error: From<EngineError> + Send;

    /// The path to lock before the first read; `None`: the path is known only after the
    /// read.
    fn locked_path(&self) -> Option<&str> {
        None
    }

    /// Reads with the functions of [`Write`].
    fn read(&self, write: &Write<'_>) -> impl Future<Output = Result<Self::Read, Self::Error>> + Send;

    /// A pure function.
    fn decide(&self, read: &Self::Read) -> Result<Decision, Self::Error>;

    /// Checks the outcome of the change before it is committed.
    fn admit(
        &self,
        _: &Write<'_>,
        _: &Proposal,
    ) -> impl Future<Output = Result<Admission, EngineError>> + Send {
        std::future::ready(Ok(Admission::default()))
    }

    /// The error for a refusal, or the decision to carry out instead.
    fn refused(
        &self,
        write: &Write<'_>,
        read: &Self::Read,
        refusal: Refused,
    ) -> impl Future<Output = Result<Decision, Self::Error>> + Send;
}

/// The permission to commit a change whose outcome was checked.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// The last version of the store when the outcome was checked; `None`: any state will do.
    pub(crate) seq: Option<i64>,
    /// The tests of the store that allow the change; `None`: any will do.
    pub(crate) tests: Option<PathGuard>,
    /// Keeps other checked changes of the store waiting until the commit.
    pub(crate) turn: Option<PathLock>,
}

#[derive(Debug, Clone)]
pub(crate) enum Decision {
    Commit(Proposal),
    /// Set the pin or the expiry time of a memory, or only record the call; write no version.
    ///
    /// There is a proposal if the call brings the content that the memory has. If this content
    /// is lost, commit the proposal instead, which stores the content again.
    Pin(Memory, ExpiryChange, Option<Box<Proposal>>),
    Nothing,
    /// Start over: the reads contradict each other.
    ReadAgain,
}

/// Changes of one store that are committed together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proposal {
    /// `None`: the store was not read.
    pub(crate) store: Option<StoreState>,
    pub(crate) changes: Vec<ProposedChange>,
    pub(crate) guard: Option<Guard>,
    /// Memories that stay as they were read, except for their pins.
    pub(crate) kept: Vec<KeptMemory>,
    /// The result of each operation of a batch, for the record of the call.
    pub(crate) results: Option<String>,
    /// Whether changes may take paths that other changes leave.
    pub(crate) reuses_paths: bool,
    /// The edit of a tool that made the content of the only change. The tool's answer can say that
    /// it was redacted; after the check, it is the edit as it is stored.
    pub(crate) edit: Option<Edit>,
    /// After the check: the policy under which findings were accepted or redacted.
    pub(crate) policy: Option<SensitiveDataPolicy>,
    /// After the check: the search terms of each change's new content.
    pub(crate) rows: Vec<Option<SearchRow>>,
}

impl Decision {
    pub(crate) fn change(store: Option<StoreState>, change: ProposedChange) -> Self {
        Self::Commit(Proposal::of(store, change))
    }

    /// Leaves a memory unchanged, and records the call.
    pub(crate) fn pin_unchanged(memory: &Memory) -> Self {
        Self::Pin(memory.clone(), ExpiryChange::default(), None)
    }

    /// The memories before the change, in the order of their paths. A guard stands for
    /// all memories of a directory.
    fn heads(&self) -> Vec<&Head> {
        let mut heads: Vec<_> = match self {
            Self::Commit(proposal) if proposal.guard.is_none() => {
                proposal.changes.iter().filter_map(ProposedChange::head).collect()
            }
            Self::Pin(memory, ..) => vec![&memory.head],
            Self::Commit(_) | Self::Nothing | Self::ReadAgain => Vec::new(),
        };
        heads.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        heads
    }
}

impl Proposal {
    pub(crate) fn of(store: Option<StoreState>, change: ProposedChange) -> Self {
        Self { store, changes: vec![change], ..Self::default() }
    }
}

pub(crate) enum WriteResult {
    Written(Box<WrittenChanges>),
    /// A memory, with its pin, that got no version.
    Unchanged {
        memory: Box<Memory>,
        /// Whether the call brought the content that the memory has. This keeps the memory in
        /// use, although no version shows it.
        is_use: bool,
    },
    /// No version was written, since the edit left the memory's content unchanged.
    Same(Box<Head>, Box<Edit>),
    Nothing,
    /// An identical earlier call made the change; contains the last version of that call.
    Replayed(i64),
}

/// Why an attempt has no outcome.
enum Miss {
    Refused(Refused),
    /// The state has changed since it was read.
    Stale,
}

type Attempt = Result<WriteResult, Miss>;

#[derive(Debug)]
pub(crate) struct WrittenChanges {
    /// The sequence number of the last new version.
    pub(crate) seq: i64,
    /// The timestamp of the new versions.
    pub(crate) at: Timestamp,
    /// The purge epoch for reading the content.
    pub(crate) purge_epoch: i64,
    pub(crate) expiry: Expiry,
    /// In the proposal's order.
    pub(crate) changes: Vec<CommitChange>,
    /// The edit as it was stored.
    pub(crate) edit: Option<Edit>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    context: Arc<Context>,
    contents: Arc<Contents>,
    locks: PathLocks,
}

impl Writer {
    pub(crate) fn new(context: Arc<Context>, contents: Arc<Contents>) -> Self {
        Self { context, contents, locks: PathLocks::default() }
    }

    /// `idempotency` makes the change idempotent.
    pub(crate) const fn write<'a>(
        &'a self,
        principal: &'a Principal,
        store_id: StoreId,
        idempotency: Option<Idempotency>,
    ) -> Write<'a> {
        Write { writer: self, principal, store_id, idempotency, is_counted: true }
    }
}

/// How many more memories the store has after these changes.
fn growth_of(changes: &[CommitChange]) -> i64 {
    changes.iter().map(|change| change.operation().growth()).sum()
}

/// One change of one store, on behalf of a principal.
#[derive(Debug)]
pub(crate) struct Write<'a> {
    writer: &'a Writer,
    pub(crate) principal: &'a Principal,
    pub(crate) store_id: StoreId,
    idempotency: Option<Idempotency>,
    /// Whether it is among the writes of the day.
    is_counted: bool,
}

impl Write<'_> {
    /// The same change, which no request makes.
    pub(crate) fn uncounted(self) -> Self {
        Self { is_counted: false, ..self }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.writer.context
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.writer.contents
    }

    /// Makes the change, unless an identical call made it before.
    ///
    /// Duplicates of the call in this process wait for the first. When the change is
    /// refused, or there is nothing to change, the same call may have succeeded meanwhile;
    /// then that call is the outcome.
    pub(crate) async fn run_once<C>(&self, change: &C) -> Result<(WriteResult, Option<C::Read>), EngineError>
    where
        C: Change<Error = EngineError>,
    {
        let _lock = match &self.idempotency {
            Some(call) => {
                let name = ContentHash::from(call.scope_sha256).to_string();
                Some(self.lock(&name, 0).await)
            }
            None => None,
        };
        if let Some(seq) = self.earlier_call().await? {
            return Ok((WriteResult::Replayed(seq), None));
        }
        match self.run(change).await {
            Err(error) => {
                if let Ok(Some(seq)) = self.earlier_call().await {
                    return Ok((WriteResult::Replayed(seq), None));
                }
                self.note_rejection(error.rejection());
                Err(error)
            }
            Ok((outcome @ WriteResult::Nothing, read)) => Ok(match self.earlier_call().await? {
                Some(seq) => (WriteResult::Replayed(seq), None),
                None => (outcome, Some(read)),
            }),
            Ok((outcome, read)) => Ok((outcome, Some(read))),
        }
    }

    /// Notes a commit of some versions. The growth counts even if no request makes the change.
    fn note_commit(&self, versions: usize, growth: i64) {
        let writes = if self.is_counted { versions as u64 } else { 0 };
        let numbers = UseNumbers { writes, growth, ..UseNumbers::default() };
        self.context().note_commit(self.principal, self.store_id, numbers);
    }

    /// Counts a change that was not made.
    pub(crate) fn note_rejection(&self, rejection: Option<Rejection>) {
        if let Some(rejection) = rejection.filter(|_| self.is_counted) {
            self.context().note_rejection(self.principal, self.store_id, rejection);
        }
    }

    /// Makes the change; the module describes the steps.
    ///
    /// After [`EngineError::Blobs`] or
    /// [`IndexError::DiskFull`](keepsake_index::IndexError::DiskFull) nothing was
    /// changed. After any other [`EngineError::Index`] the change may or may not have
    /// been committed.
    pub(crate) async fn run<C: Change>(&self, change: &C) -> Result<(WriteResult, C::Read), C::Error> {
        let mut locks = Vec::new();
        if let Some(path) = change.locked_path() {
            locks.push(self.lock(path, 0).await);
        }
        let (mut attempts, mut lost) = (0, Vec::new());
        loop {
            let (read, decision) = self.decide(change, &mut locks).await?;
            self.claim_changed(&lost, &decision).await?;
            lost = match &decision {
                Decision::Commit(_) => versions_of(&decision),
                Decision::Pin(..) | Decision::Nothing | Decision::ReadAgain => Vec::new(),
            };
            let mut attempt = self.carry_out(change, decision).await?;
            if let Err(Miss::Refused(refusal)) = attempt {
                let decision = change.refused(self, &read, refusal).await?;
                attempt = self.carry_out(change, decision).await?;
            }
            if let Ok(outcome) = attempt {
                return Ok((outcome, read));
            }
            if let [(memory_id, _)] = lost.as_slice() {
                self.claim(*memory_id).await?;
                lost.clear();
            }
            attempts += 1;
            if attempts == MAX_ATTEMPTS {
                change.refused(self, &read, Refused::Contended).await?;
                return Err(EngineError::from(Refused::Contended).into());
            }
        }
    }

    /// Reads and decides, holding the locks of the memories' paths, once no other
    /// replica claims the next edit of one of the memories.
    async fn decide<C: Change>(
        &self,
        change: &C,
        locks: &mut Vec<PathLock>,
    ) -> Result<(C::Read, Decision), C::Error> {
        let mut wait = ClaimWait::default();
        loop {
            let since = self.writer.locks.releases();
            let read = change.read(self).await?;
            let decision = change.decide(&read)?;
            let heads = decision.heads();
            if !heads.iter().all(|head| is_locked(locks, head.path.as_str())) {
                // Released first, then taken in the order of the paths: no two changes
                // wait for each other.
                locks.clear();
                for head in &heads {
                    locks.push(self.lock(head.path.as_str(), since).await);
                }
                if locks.iter().any(|lock| lock.was_changed) {
                    continue;
                }
            }
            let mut has_waited = false;
            for head in heads {
                has_waited |= self.yields_to_claim(head, &mut wait).await;
                if has_waited {
                    break;
                }
            }
            if !has_waited {
                return Ok((read, decision));
            }
        }
    }

    /// For a change that lost a race: claims the memories that other changes have changed since
    /// they were read.
    async fn claim_changed(
        &self,
        lost: &[(MemoryId, VersionId)],
        decision: &Decision,
    ) -> Result<(), EngineError> {
        if lost.is_empty() {
            return Ok(());
        }
        let lost: HashMap<_, _> = lost.iter().copied().collect();
        let is_changed = |(memory_id, version_id): &(MemoryId, VersionId)| {
            lost.get(memory_id).is_some_and(|read| read != version_id)
        };
        let now = versions_of(decision);
        for (memory_id, _) in now.into_iter().filter(is_changed).take(MAX_CLAIMS) {
            self.claim(memory_id).await?;
        }
        Ok(())
    }

    async fn lock(&self, path: &str, since: u64) -> PathLock {
        let place = (self.principal.tenant_id, self.store_id, path.to_owned());
        self.writer.locks.lock(place, since).await
    }

    /// Waits until no other change of the store whose outcome is checked is under way in this process.
    pub(crate) async fn turn(&self) -> PathLock {
        self.lock(CHECKED, 0).await
    }

    async fn carry_out<C: Change>(&self, change: &C, decision: Decision) -> Result<Attempt, EngineError> {
        if let Some(refusal) = self.refusal_of_setting(&decision) {
            return Ok(Err(Miss::Refused(refusal)));
        }
        match self.or_anew(decision).await? {
            Decision::Commit(proposal) => self.commit(change, proposal).await,
            Decision::Pin(memory, expiry, anew) => self.pin(memory, expiry, anew.is_some()).await,
            Decision::Nothing => Ok(Ok(WriteResult::Nothing)),
            Decision::ReadAgain => Ok(Err(Miss::Stale)),
        }
    }

    /// If the decision keeps the memory's content and this content is lost, returns the
    /// decision that stores the content again.
    pub(crate) async fn or_anew(&self, decision: Decision) -> Result<Decision, EngineError> {
        if let Decision::Pin(memory, _, Some(anew)) = &decision
            && !self.is_stored(anew.store, &memory.head).await?
        {
            return Ok(Decision::Commit(Proposal::clone(anew)));
        }
        Ok(decision)
    }

    /// Sets pin and expiry time, or only records the call; writes no version.
    async fn pin(&self, memory: Memory, expiry: ExpiryChange, is_use: bool) -> Result<Attempt, EngineError> {
        if expiry.is_applied_to(&memory) && self.idempotency.is_none() {
            return Ok(Ok(WriteResult::Unchanged { memory: Box::new(memory), is_use }));
        }
        let kept = KeptMemory::of(&memory.head, expiry);
        self.pin_version(&kept, move |is_pinned, expires_at| {
            let memory = Box::new(Memory { is_pinned, expires_at, ..memory });
            WriteResult::Unchanged { memory, is_use }
        })
        .await
    }

    /// Leaves a memory unchanged after an edit that changed nothing, and records the
    /// call.
    async fn keep(&self, head: &Head, edit: Edit) -> Result<Attempt, EngineError> {
        let same = WriteResult::Same(Box::new(head.clone()), Box::new(edit));
        if self.idempotency.is_none() {
            return Ok(Ok(same));
        }
        self.pin_version(&KeptMemory::of(head, ExpiryChange::default()), |_, _| same).await
    }

    /// Sets pin and expiry time of a memory that has the expected version, and records the call.
    async fn pin_version(
        &self,
        kept: &KeptMemory,
        done: impl FnOnce(bool, Option<Timestamp>) -> WriteResult + Send,
    ) -> Result<Attempt, EngineError> {
        self.principal.require_writable(self.store_id)?;
        let (memories, tenant_id) = (&self.context().index.memories, self.principal.tenant_id);
        let (call, now) = (self.idempotency.as_ref(), self.context().now());
        match memories.pin(tenant_id, self.store_id, kept, call, now).await {
            Ok(PinOutcome::Done { is_pinned, expires_at }) => Ok(Ok(done(is_pinned, expires_at))),
            Ok(PinOutcome::Replayed { seq }) => Ok(Ok(WriteResult::Replayed(seq))),
            Ok(PinOutcome::Stale) => Ok(Err(Miss::Stale)),
            Err(ChangeError::Refused(refusal)) => Ok(Err(Miss::Refused(refusal))),
            Err(error) => Err(error.into()),
        }
    }

    /// The version that an earlier identical call made.
    pub(crate) async fn earlier_call(&self) -> Result<Option<i64>, EngineError> {
        Ok(self.earlier_record().await?.and_then(|first| first.seq))
    }

    /// The version of an earlier identical call, and whether the call left it unchanged.
    pub(crate) async fn earlier_version(&self) -> Result<Option<(i64, bool)>, EngineError> {
        let first = self.earlier_record().await?;
        Ok(first.and_then(|first| Some((first.seq?, first.is_kept()))))
    }

    pub(crate) async fn earlier_record(&self) -> Result<Option<EarlierCall>, EngineError> {
        let Some(call) = &self.idempotency else {
            return Ok(None);
        };
        let (index, tenant_id) = (&self.context().index, self.principal.tenant_id);
        Ok(index.memories.replayed(tenant_id, call).await?)
    }
}

/// The memories before a change, with their versions.
fn versions_of(decision: &Decision) -> Vec<(MemoryId, VersionId)> {
    let heads = decision.heads().into_iter();
    heads.map(|head| (head.memory_id, head.version_id)).collect()
}

/// The locks must be in the order of their paths.
fn is_locked(locks: &[PathLock], path: &str) -> bool {
    locks.binary_search_by(|lock| lock.path().cmp(path)).is_ok()
}
