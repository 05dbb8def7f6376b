//! Metadata: which memory is at which path, in which version, under which blob.
//!
//! [`Index`] has a part for each kind of object. Both databases, [`postgres`] and
//! [`sqlite`], share the queries and rows.
//!
//! Every method of the request path takes the tenant first and sees only that tenant.
//! Only the operator and the jobs use the parts that cross tenants: [`Tenants`],
//! [`TenantDeletions`], [`ServerSecrets`], [`JobRuns`], [`Replicas`], [`AccessTimes`],
//! [`BlobDeletions`], [`Contents`], [`Upkeep`], [`UnusedMemories`], [`Retention`],
//! [`ReadRetention`], [`DailyUse::add`], [`MemoryReads::flush`], [`MemoryReads::note_gap`], [`SearchTerms::unindexed`],
//! [`Embeddings::work`], [`UndoJobs::open`] and [`Forks::open`], and the methods of [`StoreDeletions`] and [`Erasures`]
//! that the jobs call.

mod access_times;
mod audit;
mod calls;
mod changes;
mod commit;
mod contents;
mod credentials;
mod daily_use;
mod database;
mod directories;
mod embeddings;
mod error;
mod expiry;
mod flushed_batches;
mod forks;
mod grants;
mod imports;
mod job_runs;
mod keys;
mod listing;
mod memories;
pub mod migrations;
mod model;
mod numbers;
mod past;
pub mod postgres;
mod reads;
mod redeemed_codes;
mod removal;
mod replicas;
mod search;
mod secrets;
mod sessions;
pub mod sqlite;
mod stores;
mod tenants;
mod undo;
mod undo_jobs;
mod upkeep;
mod usage;
mod versions;

use std::sync::Arc;

use keepsake_telemetry::Metrics;

pub use access_times::AccessTimes;
pub use audit::AuditLog;
pub use changes::{ChangePage, Changes, SessionHead, StoreHead};
pub use commit::{
    CLOCK_AHEAD_AT_MOST, Commit, CommitChange, CommitOutcome, Guard, KeptMemory, NewContent, Origin,
    PathGuard, ProposedChange,
};
pub use contents::Contents;
pub use credentials::Credentials;
pub use daily_use::{
    CountedUse, DailyUse, MICROS_PER_DAY, MostUsed, UseNumbers, UseOfDay, UseOfStore, as_date, date_of,
};
pub use database::DiskState;
use database::{Backend, Database};
pub use embeddings::{
    EmbeddingChanges, EmbeddingClaim, EmbeddingLimits, EmbeddingOutcome, EmbeddingPage, EmbeddingPlace,
    EmbeddingRow, EmbeddingState, EmbeddingWork, Embeddings, RemovalLimits, RemovedEmbeddings,
};
pub use error::{ChangeError, IndexError};
pub use expiry::{
    AccessFlush, DueMemory, Expiration, ExpirationCause, IdleStore, IdleStores, Life, PeriodOf,
    SESSION_KEEPS_FOR, UnusedMemories,
};
pub use flushed_batches::FlushedBatch;
pub use forks::{FORK_HELD_FOR, ForkCounts, Forks, OpenFork};
pub use grants::Grants;
pub use imports::{HistoryPart, ImportOutcome, Imports};
pub use job_runs::{FAILED_RUN_DELAY, JobRuns};
pub use keys::{ApiKeys, REVOKED_KEYS_COUNT_FOR};
pub use memories::Memories;
pub use migrations::MigrationReport;
pub use model::*;
pub use past::{Past, PointError};
pub use postgres::PostgresIndex;
pub use reads::MemoryReads;
pub use redeemed_codes::RedeemedCodes;
pub use removal::{
    Backups, BlobDeletions, ErasedBlobs, ErasedCounts, Erasure, ErasureListing, ErasureState, ErasureStep,
    Erasures, History, MAX_OPEN_ERASURES, NewErasure, OutdatedPart, PurgedBatch, ReadRetention,
    RecordingTenant, Redactions, Retention, RowsErased, Selector, SelectorKind, StepName, StoreDeletions,
    TenantDeletions, VersionBatch, VersionBatchResult,
};
pub use replicas::{FORGOTTEN_AFTER, LIVES_FOR, OthersFlushed, Replicas};
pub use search::{
    MemoryPlace, SearchChange, SearchChanges, SearchHead, SearchPlace, SearchSince, SearchTerms,
    SearchedVersion, UnindexedMemory, UnindexedPage,
};
pub use secrets::{ServerSecret, ServerSecrets};
pub use sessions::{
    Access, Attachment, AttachmentName, Detail, EventFilter, EventListing, EventPlace, MAX_ATTACHMENTS,
    NewAttachment, NewSession, Session, SessionChange, SessionEvent, SessionFilter, SessionLimits,
    SessionListing, SessionName, SessionPage, SessionSummary, Sessions, sees_session_of,
};
pub use sqlite::{FileContents, FileCounts, FileState, SqliteIndex};
pub use stores::Stores;
pub use tenants::Tenants;
pub use undo::{
    MAX_READ_VERSIONS, MAX_SELECTED, PastState, PlannedUndo, UndoRead, UndoReadError, UndoSelection,
    UndoSource, UndoneMemory, Undos,
};
pub use undo_jobs::{NewUndo, StoredUndo, UndoJobs, UndoKey, UndoPart, UndoPartState};
pub use upkeep::{
    CallKey, CountedPlace, Counter, NamedBlob, Prunable, PrunedCalls, Recount, StoreCount, StoreCounters,
    TenantCount, Upkeep,
};
pub use usage::{MemoryUse, StoreUsage, Usage};
pub use versions::Versions;

/// The metadata of all tenants in one database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Index {
    pub access_times: AccessTimes,
    pub keys: ApiKeys,
    pub audit: AuditLog,
    pub changes: Changes,
    pub blob_deletions: BlobDeletions,
    pub contents: Contents,
    pub credentials: Credentials,
    pub daily_use: DailyUse,
    pub embeddings: Embeddings,
    pub erasures: Erasures,
    pub forks: Forks,
    pub grants: Grants,
    pub imports: Imports,
    pub job_runs: JobRuns,
    pub memories: Memories,
    pub past: Past,
    pub read_retention: ReadRetention,
    pub reads: MemoryReads,
    pub redeemed_codes: RedeemedCodes,
    pub redactions: Redactions,
    pub replicas: Replicas,
    pub retention: Retention,
    pub search: SearchTerms,
    pub secrets: ServerSecrets,
    pub sessions: Sessions,
    pub store_deletions: StoreDeletions,
    pub stores: Stores,
    pub tenant_deletions: TenantDeletions,
    pub tenants: Tenants,
    pub undo_jobs: UndoJobs,
    pub undos: Undos,
    pub unused: UnusedMemories,
    pub upkeep: Upkeep,
    pub usage: Usage,
    pub versions: Versions,
    database: Database,
}

impl From<PostgresIndex> for Index {
    fn from(postgres: PostgresIndex) -> Self {
        Self::new(Database::new(Backend::Postgres(postgres), Metrics::default()))
    }
}

impl From<SqliteIndex> for Index {
    fn from(sqlite: SqliteIndex) -> Self {
        Self::new(Database::new(Backend::Sqlite(sqlite), Metrics::default()))
    }
}

impl Index {
    fn new(database: Database) -> Self {
        Self {
            access_times: AccessTimes(database.clone()),
            keys: ApiKeys(database.clone()),
            audit: AuditLog(database.clone()),
            changes: Changes(database.clone()),
            blob_deletions: BlobDeletions(database.clone()),
            contents: Contents(database.clone()),
            credentials: Credentials(database.clone()),
            daily_use: DailyUse(database.clone()),
            embeddings: Embeddings(database.clone()),
            erasures: Erasures(database.clone()),
            forks: Forks(database.clone()),
            grants: Grants(database.clone()),
            imports: Imports(database.clone()),
            job_runs: JobRuns(database.clone()),
            memories: Memories::new(database.clone()),
            past: Past(database.clone()),
            read_retention: ReadRetention(database.clone()),
            reads: MemoryReads(database.clone()),
            redeemed_codes: RedeemedCodes(database.clone()),
            redactions: Redactions(database.clone()),
            replicas: Replicas(database.clone()),
            retention: Retention(database.clone()),
            search: SearchTerms(database.clone()),
            secrets: ServerSecrets(database.clone()),
            sessions: Sessions(database.clone()),
            store_deletions: StoreDeletions(database.clone()),
            stores: Stores(database.clone()),
            tenant_deletions: TenantDeletions(database.clone()),
            tenants: Tenants(database.clone()),
            undo_jobs: UndoJobs(database.clone()),
            undos: Undos(database.clone()),
            unused: UnusedMemories(database.clone()),
            upkeep: Upkeep(database.clone()),
            usage: Usage(database.clone()),
            versions: Versions(database.clone()),
            database,
        }
    }

    /// Records calls in `metrics`, and reports the connection pools and the size of
    /// SQLite's log.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        let measured = Self::new(Database::new(self.database.backend().clone(), metrics));
        measured.database.watch();
        measured
    }

    /// Fails if the database does not answer, or if its schema is too old.
    pub async fn check(&self) -> Result<(), IndexError> {
        self.database.check().await
    }

    /// Whether other processes may use the index at the same time.
    pub fn is_shared(&self) -> bool {
        // On SQLite, the serving process holds a lock that keeps others out.
        self.database.sqlite().is_none()
    }

    /// Closes the connections after their last transactions.
    pub async fn close(&self) {
        match self.database.backend() {
            Backend::Postgres(index) => index.close(),
            Backend::Sqlite(index) => index.close().await,
        }
    }

    pub fn disk(&self) -> &Arc<DiskState> {
        self.database.disk()
    }
}
