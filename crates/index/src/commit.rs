//! Commits: a set of changes, and their effect on counters and directories.
//!
//! Both databases write the same [`CommitPlan`], so the arithmetic exists only once.
//! Commits that wait for the same lock are written together ([`Commits`]).

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::path::is_visible;
use keepsake_core::{
    Actor, DirPath, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId, TenantId, Timestamp, VersionId,
};
use uuid::Uuid;

use crate::database::{Backend, BatchRules, Batches, Database, Mode, Role, Tx, Unanswered};
use crate::model::{Expiry, ExpiryChange, Head, HeadChange, Operation};
use crate::numbers::signed;
use crate::{IndexError, postgres, sqlite};

/// If a version's time is further ahead of the clock than this, the clock was ahead when
/// the version was written, and has been set back since.
pub const CLOCK_AHEAD_AT_MOST: Duration = Duration::from_mins(1);

/// Changes of one store that are applied atomically.
#[derive(Debug, Clone)]
pub struct Commit {
    pub store_id: StoreId,
    /// The commit time. The new versions are not earlier than the store's last version,
    /// unless that one is further ahead than [`CLOCK_AHEAD_AT_MOST`].
    pub now: Timestamp,
    /// `None` for a job or the operator.
    pub actor: Option<Actor>,
    /// The committing replica; the commit ends its claims on the memories.
    pub replica: Uuid,
    /// Maximum number of live memories in the store.
    pub memory_limit: u64,
    /// Maximum bytes of live memories in the store.
    pub byte_limit: u64,
    pub idempotency: Option<Idempotency>,
    pub guard: Option<Guard>,
    /// Refuses the commit if history was removed since this epoch was read. Needed for
    /// changes that refer to the content of a version other than a head.
    pub purge_epoch: Option<i64>,
    /// Refuses the commit if the store now has another policy. Needed for content with
    /// sensitive data, which was checked under this policy.
    pub policy: Option<SensitiveDataPolicy>,
    /// At most one per memory.
    pub changes: Vec<Change>,
    /// None of these memories is in `changes`.
    pub kept: Vec<Kept>,
    /// The result of each operation of a batch, for the record of an idempotent call.
    pub results: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// Hash of the idempotency key and its scope.
    pub scope_sha256: [u8; 32],
    pub request_sha256: [u8; 32],
    /// Records of calls before this time are expired.
    pub since: Timestamp,
}

/// The object that an idempotent call created or changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallMade {
    pub(crate) object_id: Uuid,
    /// The store that contains the object, or that is the object.
    pub(crate) store_id: Option<StoreId>,
    pub(crate) version_seq: Option<i64>,
    /// Whether the call created no version, and `version_seq` is the existing one.
    pub(crate) is_kept: bool,
}

impl CallMade {
    pub(crate) const fn store(store_id: StoreId) -> Self {
        Self { object_id: store_id.uuid(), store_id: Some(store_id), version_seq: None, is_kept: false }
    }

    /// An object outside of any store.
    pub(crate) const fn object(object_id: Uuid) -> Self {
        Self { object_id, store_id: None, version_seq: None, is_kept: false }
    }
}

/// Refuses the commit unless a directory still has the same number of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    pub directory: DirPath,
    /// Files below the directory when the caller read it.
    pub files: u64,
}

/// A memory that gets no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub memory_id: MemoryId,
    /// The head that the caller read. The commit is refused if it has changed.
    pub expected: VersionId,
    pub expiry: ExpiryChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub memory_id: MemoryId,
    /// The version that the change creates.
    pub version_id: VersionId,
    /// The head that the caller read; `None`: the memory is new or restored.
    pub before: Option<Head>,
    /// The version that deleted the memory, if the change restores it.
    pub revives: Option<VersionId>,
    /// `None`: the memory is deleted.
    pub after: Option<HeadChange>,
}

impl Change {
    /// The operation that the version stores; `Created` also for a restored memory.
    pub const fn operation(&self) -> Operation {
        match (&self.before, &self.after) {
            (None, _) => Operation::Created,
            (Some(_), Some(_)) => Operation::Modified,
            (Some(_), None) => Operation::Deleted,
        }
    }

    /// The memory's version before the change; `None`: the memory is new.
    pub fn expected_version(&self) -> Option<VersionId> {
        let before = self.before.as_ref().map(|before| before.version_id);
        before.or(self.revives)
    }

    /// The memory's path after the change; for a deletion, its last path.
    pub fn path(&self) -> Option<&MemoryPath> {
        let after = self.after.as_ref().map(|after| &after.path);
        after.or_else(|| self.before.as_ref().map(|before| &before.path))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed {
        /// The sequence number of the last version.
        seq: i64,
        /// The store's purge epoch, for cache entries of the content.
        purge_epoch: i64,
        /// The time of the new versions.
        at: Timestamp,
        /// The expiry of the store's memories.
        expiry: Expiry,
    },
    /// The same call was made earlier; nothing was written now.
    Replayed {
        /// The last version that the earlier call created.
        seq: i64,
    },
    /// The idempotency key was reused with another request; nothing was written.
    KeyReused,
    /// Nothing was written.
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NoStore,
    Archived,
    /// A head, a directory or the store's policy has changed since it was read.
    Stale,
    PathTaken {
        path: String,
        memory_id: MemoryId,
    },
    PathIsDirectory {
        /// The directory, ending in `/`.
        path: String,
    },
    /// A parent of the path is a file.
    ParentIsFile {
        /// The path of the file.
        path: String,
        memory_id: MemoryId,
    },
    TooManyMemories {
        /// Memories that the store would hold.
        count: u64,
    },
    StoreFull {
        /// Bytes that the store would hold.
        size_bytes: u64,
    },
    /// The store first needs a larger grant of its tenant's bytes.
    NeedsGrant {
        /// Bytes that the store would hold.
        size_bytes: u64,
    },
    /// A referenced blob is queued for deletion.
    BlobCondemned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirectoryDelta {
    /// Files at any depth below the directory.
    pub files: i64,
    /// Bytes of these files.
    pub size_bytes: i64,
    /// Files directly in the directory that a listing shows.
    pub visible_children: i64,
}

/// The effects of a commit's changes on counters and directories.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan {
    /// Change of the number of live memories.
    pub count_delta: i64,
    /// Change of the bytes of live memories.
    pub byte_delta: i64,
    /// Whether a directory may have lost its last file.
    pub directories_may_go: bool,
    /// Paths that the commit occupies.
    pub taken_paths: Vec<String>,
    /// Parents of `taken_paths`, none of which may be a file.
    pub ancestor_files: Vec<String>,
    /// Changes of directories, without directories whose counts stay the same.
    pub directories: BTreeMap<DirPath, DirectoryDelta>,
}

impl CommitPlan {
    pub(crate) fn of(changes: &[Change]) -> Self {
        let mut plan = Self::default();
        let mut ancestors = std::collections::BTreeSet::new();
        for change in changes {
            if let Some(before) = &change.before {
                plan.shift(&before.path, -1, -signed(before.size_bytes));
            }
            if let Some(after) = &change.after {
                plan.shift(&after.path, 1, signed(after.size_bytes));
            }
            let moved_from = change.before.as_ref().map(|before| &before.path);
            let moved_to = change.after.as_ref().map(|after| &after.path);
            if moved_from == moved_to {
                continue;
            }
            if let Some(path) = moved_to {
                plan.taken_paths.push(path.as_str().to_owned());
                ancestors.extend(path.ancestor_files().map(str::to_owned));
            }
            plan.directories_may_go |= moved_from.is_some();
        }
        plan.ancestor_files = ancestors.into_iter().collect();
        plan.directories.retain(|_, delta| *delta != DirectoryDelta::default());
        plan
    }

    /// Computes the effects of removing memories with these paths and sizes.
    pub(crate) fn leaving(memories: &[(MemoryPath, u64)]) -> Self {
        let mut plan = Self::default();
        for (path, size_bytes) in memories {
            plan.shift(path, -1, -signed(*size_bytes));
        }
        plan.directories_may_go = !memories.is_empty();
        plan
    }

    /// Adds the effects of one new memory.
    pub(crate) fn arrive(&mut self, path: &MemoryPath, size_bytes: u64) {
        self.shift(path, 1, signed(size_bytes));
    }

    fn shift(&mut self, path: &MemoryPath, files: i64, size_bytes: i64) {
        self.count_delta += files;
        self.byte_delta += size_bytes;
        for directory in path.ancestors() {
            let delta = self.directories.entry(directory).or_default();
            delta.files += files;
            delta.size_bytes += size_bytes;
        }
        if is_visible(path.name()) {
            self.directories.entry(path.parent()).or_default().visible_children += files;
        }
    }
}

/// Executes commits in batches: the commits of a batch share a transaction and its flush,
/// and each has its own outcome.
///
/// On Postgres, puts of all stores share batches that do not wait for a locked store.
/// Other commits, and puts of a locked store, wait in the lane of their store. On SQLite,
/// all commits wait in one lane, because only one connection writes.
#[derive(Debug, Clone)]
pub(crate) struct Commits {
    across_stores: Batches<(), StoreCommit, Made>,
    within_store: Batches<StoreLane, StoreCommit, Made>,
}

/// The lane of a store. Any tenant may name the id of any store, so the lane includes the
/// tenant. `None` on SQLite.
type StoreLane = Option<(TenantId, StoreId)>;

#[derive(Debug)]
pub(crate) struct StoreCommit {
    pub(crate) tenant_id: TenantId,
    pub(crate) commit: Commit,
    pub(crate) batching: Batching,
}

/// The commits with which a commit on Postgres shares a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    /// A put: with puts of any store; skipped if another transaction has locked its
    /// store.
    AcrossStores,
    /// A put: with puts of its store; waits for the lock of the store.
    WithinStore,
    /// With none. The call finds the reason if the commit is refused.
    Never,
}

/// The result of running one commit in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done(CommitOutcome),
    /// The commit was skipped, because another transaction has locked its store.
    Locked,
    /// The batch did not write the commit and does not know the reason, so the commit
    /// must run again with [`Batching::Never`].
    NotMade,
}

pub(crate) type Made = Result<Attempt, IndexError>;

/// Further batches run at the same time only while a connection hangs. `jobs` bounds how
/// long each commit waits for its batch.
const ACROSS_STORES: BatchRules<StoreCommit, Made> = BatchRules {
    jobs: 32,
    max_running: 4,
    extra_batch_after: Duration::from_millis(250),
    joins: postgres::commit::joins,
    answer_of_all: IndexError::of_all_that_wait,
};
/// A batch locks the store, so a second one runs only if the first hangs.
const WITHIN_STORE: BatchRules<StoreCommit, Made> =
    BatchRules { max_running: 2, extra_batch_after: Duration::from_secs(3), ..ACROSS_STORES };
const ON_SQLITE: BatchRules<StoreCommit, Made> =
    BatchRules { jobs: 64, max_running: 1, joins: |_, _| true, ..WITHIN_STORE };

impl Commits {
    pub(crate) fn new(database: &Database) -> Self {
        let within_store = match database.backend() {
            Backend::Postgres(_) => WITHIN_STORE,
            Backend::Sqlite(_) => ON_SQLITE,
        };
        Self {
            across_stores: batches(ACROSS_STORES, database),
            within_store: batches(within_store, database),
        }
    }

    pub(crate) async fn run(
        &self,
        database: &Database,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        // A trait object keeps the types of the callers' futures small.
        let outcome: BoxFuture<'_, _> = Box::pin(self.outcome(database, tenant_id, commit));
        let role = Role::Tenant(tenant_id);
        database.measure("commit", role, Mode::Write, outcome).await
    }

    async fn outcome(
        &self,
        database: &Database,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        let lane = match database.backend() {
            Backend::Postgres(_) => Some((tenant_id, commit.store_id)),
            Backend::Sqlite(_) => None,
        };
        let is_put = lane.is_some() && postgres::commit::is_put(commit);
        // A commit that runs in the store's lane holds the store's lock.
        let mut batching = if is_put && !self.within_store.is_running(&lane) {
            Batching::AcrossStores
        } else {
            Batching::WithinStore
        };
        loop {
            let job = StoreCommit { tenant_id, commit: commit.clone(), batching };
            let answer = match batching {
                Batching::AcrossStores => self.across_stores.run((), job).await,
                Batching::WithinStore | Batching::Never => self.within_store.run(lane, job).await,
            };
            let made = match answer {
                Ok(made) => made?,
                Err(Unanswered::NotBegun) => {
                    return Err(IndexError::Unavailable(sqlx::Error::PoolTimedOut));
                }
                Err(Unanswered::Lost) => {
                    return Err(IndexError::OutcomeUnknown(sqlx::Error::WorkerCrashed));
                }
            };
            batching = match made {
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::Locked => Batching::WithinStore,
                Attempt::NotMade => Batching::Never,
            };
        }
    }
}

fn batches<K>(rules: BatchRules<StoreCommit, Made>, database: &Database) -> Batches<K, StoreCommit, Made>
where
    K: Clone + Eq + Hash + Send + 'static,
{
    let database = database.clone();
    Batches::new(rules, move |commits: Vec<StoreCommit>| {
        let database = database.clone();
        async move {
            match database.backend() {
                Backend::Postgres(_) => postgres::commit::commit_all(&database, &commits).await,
                Backend::Sqlite(_) => sqlite::commit::commit_all(&database, &commits).await,
            }
        }
    })
}

/// Executes a commit as a part of a transaction that holds the store's lock.
pub(crate) async fn commit_changes(
    tx: &mut Tx,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    if tx.is_postgres() {
        postgres::commit::commit_changes(tx, tenant_id, commit).await
    } else {
        sqlite::commit::commit_changes(tx, tenant_id, commit).await
    }
}
