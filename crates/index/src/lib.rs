//! Metadata: which memory is at which path, in which version, under which blob.
//!
//! [`Index`] has a part for each kind of object. Each query and its row stand once
//! for both databases; the traits of [`IndexMethods`] are what [`postgres`] and
//! [`sqlite`] still implement each by itself. One conformance suite runs on both.
//!
//! Every method of the request path takes the tenant first and sees only that
//! tenant. Only the operator and the jobs use parts that cross tenants: [`Tenants`],
//! [`TenantDeletions`], [`ServerSecrets`], [`JobRuns`], [`Replicas`],
//! [`AccessTimes`], [`BlobDeletions`], [`Contents`], [`Upkeep`], [`UnusedMemories`], [`RetentionIndex`] and
//! [`SearchTerms::unindexed`].

mod access_times;
mod audit;
mod blob_deletions;
mod calls;
mod change_feed;
mod commit;
mod contents;
mod credentials;
mod database;
mod directories;
mod erasure;
mod error;
mod expiry;
mod grants;
mod job_runs;
mod keys;
mod last_used;
mod listing;
mod measured;
mod memories;
pub mod migrations;
mod model;
mod numbers;
#[cfg(feature = "planted-bugs")]
mod planted_bugs;
pub mod postgres;
mod replicas;
mod retention;
mod search;
mod secrets;
mod sessions;
pub mod sqlite;
mod statements;
mod stores;
mod tenant_deletions;
mod tenants;
mod upkeep;
mod usage;
mod versions;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{StoreId, TenantId, Timestamp};
use keepsake_telemetry::Metrics;

pub use access_times::AccessTimes;
pub use audit::AuditLog;
pub use blob_deletions::BlobDeletions;
pub use commit::{
    Change, Commit, CommitOutcome, CommitPlan, DirectoryDelta, Guard, HeadChange, Idempotency, Refusal,
};
pub use contents::{Contents, KeptContent};
pub use credentials::Credentials;
pub use database::DiskState;
use database::{Backend, Database};
pub use erasure::{
    ErasedBlobs, Erasure, ErasureCreation, ErasureIndex, ErasureListing, ErasureState, ErasureStep,
    MAX_OPEN_ERASURES, NewErasure, ObjectVersions, Receipt, RowsErased, Selector,
};
pub use error::IndexError;
pub use expiry::{
    AccessFlush, Expiration, IdleStore, IdleStores, Life, PeriodOf, SESSION_KEEPS_FOR, UnusedMemories,
};
pub use grants::Grants;
pub use job_runs::{FAILED_RUN_RESTS, JobRuns};
pub use keys::{ApiKeys, REVOKED_KEYS_COUNT_FOR};
use measured::MeasuredIndex;
pub use memories::Memories;
pub use model::{
    AccessRow, ApiKey, AuditAction, AuditEntry, AuditListing, AuditObject, AuditPlace, Audited, Auditor,
    Claim, Credential, DeletionReason, DeletionState, Depth, Directory, DueDeletion, Entry, Expiry,
    FoundMemory, FoundVersion, Grant, Head, IssuedKey, JobRun, KeyCreation, KeyUse, Lookup, Memory,
    MemoryItem, MemoryListing, MemoryPage, MemoryTarget, NewStore, Operation, OverQuota, Pin, PinOutcome,
    Redaction, RedactionOutcome, Replayed, RunFence, RunPlace, Scope, Store, StoreChange, StoreCreation,
    StoreListing, StorePurge, StoreState, StoreUpdate, StoredContent, Target, Tenant, TenantChange,
    TenantDeletion, TenantName, TenantPurge, TenantStanding, TenantStatus, TenantUpdate, TenantUsage,
    UnknownAuditor, Version, VersionCounts, VersionListing, VersionPage,
};
#[cfg(feature = "planted-bugs")]
pub use planted_bugs::PlantedBug;
pub use postgres::PostgresIndex;
pub use replicas::{LIVES_FOR, Replicas};
pub use retention::{History, Outdated, RetentionIndex, VersionBatch, VersionsTaken};
pub use search::{
    MemoryPlace, SearchChange, SearchChanges, SearchHead, SearchPlace, SearchRow, SearchSince, SearchTerms,
    Unindexed, UnindexedPage,
};
pub use secrets::{ServerSecret, ServerSecrets};
pub use sessions::{
    Access, Attachment, AttachmentName, AttachmentRefusal, Detail, EventListing, EventPlace, MAX_ATTACHMENTS,
    NewAttachment, NewSession, Session, SessionChange, SessionCreation, SessionEvent, SessionLimits,
    SessionListing, SessionPage, SessionRefusal, SessionUpdate, SessionUse, Sessions, sees_session_of,
};
pub use sqlite::SqliteIndex;
pub use stores::Stores;
pub use tenant_deletions::TenantDeletions;
pub use tenants::Tenants;
pub use upkeep::{CallKey, Counter, NamedBlob, Prunable, PrunedCalls, StoreCount, TenantCount, Upkeep};
pub use usage::{StoreUsage, Usage, UsedMemory};
pub use versions::Versions;

/// How redactions and the purge of deleted stores remove history.
///
/// Each removal moves the store's purge epoch, so that nothing cached before
/// it is found after it.
#[async_trait]
pub trait PurgeIndex: Send + Sync {
    /// Removes a version's content, path, size and hash from its row.
    ///
    /// In one transaction, under the store's lock, with the queueing of its
    /// blob, unless another version or a head names the blob still. A version
    /// whose blob holds a live memory's content is refused. Idempotent. The
    /// path of a deleted memory goes with the version that deleted it.
    async fn redact(
        &self,
        tenant_id: TenantId,
        redaction: &Redaction,
    ) -> Result<RedactionOutcome, IndexError>;

    /// Makes a store gone for every reader; `false`: there is no such store.
    ///
    /// Costs the same whatever the store holds: its rows and blobs go later, by
    /// [`Self::purge_store`]. Its bytes and its place are the tenant's again at
    /// once.
    async fn delete_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &Audited,
    ) -> Result<bool, IndexError>;

    /// Deleted stores that are not purged yet, of any tenant, oldest first;
    /// those of a tenant with an erasure that has not ended wait for it.
    async fn deleted_stores(&self, limit: u32) -> Result<Vec<(TenantId, StoreId)>, IndexError>;

    /// Takes one batch of rows off a deleted store, and queues their blobs.
    ///
    /// Each batch is one transaction of at most `limit` rows. Safe to run twice
    /// and at the same time. A store that is not deleted is left alone, and
    /// told as done.
    async fn purge_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        blobs_go_from: Timestamp,
        limit: u32,
    ) -> Result<StorePurge, IndexError>;
}

/// How long expiry waits for the reads of a replica that is not heard of any
/// more and has not ended: longer than a network is away, at most.
pub const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// Metadata of every tenant on one of the databases; cheap to clone.
///
/// Each part is for one kind of object. The methods of [`IndexMethods`] are reached
/// through this struct directly.
#[derive(Debug, Clone)]
pub struct Index {
    /// When memories were last read.
    pub access_times: AccessTimes,
    /// API keys.
    pub keys: ApiKeys,
    /// The audit.
    pub audit: AuditLog,
    /// The queue of blobs to delete.
    pub blob_deletions: BlobDeletions,
    /// Content in the database.
    pub contents: Contents,
    /// Who a credential belongs to.
    pub credentials: Credentials,
    /// Grants of a tenant's bytes to its stores.
    pub grants: Grants,
    /// Leases and records of scheduled jobs.
    pub job_runs: JobRuns,
    /// Memories.
    pub memories: Memories,
    /// Replicas of the server.
    pub replicas: Replicas,
    /// Search terms of memories.
    pub search: SearchTerms,
    /// Secrets of the server itself.
    pub secrets: ServerSecrets,
    /// Sessions, their attachments and events.
    pub sessions: Sessions,
    /// Stores of a tenant.
    pub stores: Stores,
    /// The deletion of tenants.
    pub tenant_deletions: TenantDeletions,
    /// Tenants, for the operator.
    pub tenants: Tenants,
    /// Memories that expire because they are unused.
    pub unused: UnusedMemories,
    /// The rows of every tenant, for the jobs and `keepsake verify`.
    pub upkeep: Upkeep,
    /// How stores are used.
    pub usage: Usage,
    /// The history of stores.
    pub versions: Versions,
    database: Database,
    methods: Arc<dyn IndexMethods>,
}

impl From<PostgresIndex> for Index {
    fn from(postgres: PostgresIndex) -> Self {
        let database = Database::new(Backend::Postgres(postgres.clone()), Metrics::default());
        Self::new(Arc::new(postgres), database)
    }
}

impl From<SqliteIndex> for Index {
    fn from(sqlite: SqliteIndex) -> Self {
        let database = Database::new(Backend::Sqlite(sqlite.clone()), Metrics::default());
        Self::new(Arc::new(sqlite), database)
    }
}

impl Index {
    fn new(methods: Arc<dyn IndexMethods>, database: Database) -> Self {
        Self {
            access_times: AccessTimes::new(database.clone()),
            keys: ApiKeys::new(database.clone()),
            audit: AuditLog::new(database.clone()),
            blob_deletions: BlobDeletions::new(database.clone()),
            contents: Contents::new(database.clone()),
            credentials: Credentials::new(database.clone()),
            grants: Grants::new(database.clone()),
            job_runs: JobRuns::new(database.clone()),
            memories: Memories::new(database.clone()),
            replicas: Replicas::new(database.clone()),
            search: SearchTerms::new(database.clone()),
            secrets: ServerSecrets::new(database.clone()),
            sessions: Sessions::new(database.clone()),
            stores: Stores::new(database.clone()),
            tenant_deletions: TenantDeletions::new(database.clone()),
            tenants: Tenants::new(database.clone()),
            unused: UnusedMemories::new(database.clone()),
            upkeep: Upkeep::new(database.clone()),
            usage: Usage::new(database.clone()),
            versions: Versions::new(database.clone()),
            database,
            methods,
        }
    }

    /// The same index, whose calls are recorded in `metrics`.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        let database = Database::new(self.database.backend().clone(), metrics.clone());
        let disk = Arc::clone(database.disk());
        Self::new(
            Arc::new(MeasuredIndex::new(self.methods, metrics, disk)),
            database,
        )
    }

    /// What the calls found about the database's disk.
    pub fn disk(&self) -> &Arc<DiskState> {
        self.database.disk()
    }
}

impl Deref for Index {
    type Target = dyn IndexMethods;

    fn deref(&self) -> &Self::Target {
        self.methods.as_ref()
    }
}

/// Methods that each database still implements by itself.
#[async_trait]
pub trait IndexMethods: PurgeIndex + ErasureIndex + RetentionIndex + std::fmt::Debug {
    /// Answers when the database does and its schema is new enough.
    async fn check(&self) -> Result<(), IndexError>;

    /// Whether other processes may use the index at the same time.
    fn is_shared(&self) -> bool;

    /// Ends the connections after what is under way on them.
    async fn close(&self);
}
