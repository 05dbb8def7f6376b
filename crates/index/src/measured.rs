//! An index around another that tells how long its calls take.
//!
//! The one place where calls are measured and become spans: a method that is new
//! in a trait is not there for the engine before it has its line here.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use keepsake_core::{
    ApiKeyId, BlobKey, ContentHash, DirPath, ErasureId, MemoryId, MemoryPath, SessionId, StoreId, TenantId,
    Timestamp, VersionId,
};
use keepsake_telemetry::{Metrics, Outcome};
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    AccessFlush, AccessRow, ApiKey, AuditEntry, AuditIndex, AuditPlace, Audited, CallKey, Commit,
    CommitOutcome, Credential, CredentialIndex, Directory, DueDeletion, ErasedBlobs, Erasure,
    ErasureCreation, ErasureIndex, ErasureListing, EventListing, Expiration, ExpiryIndex, FoundMemory,
    FoundVersion, Grant, Head, History, Idempotency, IdleStore, IdleStores, Index, IndexError, IssuedKey,
    JobIndex, JobRun, KeyCreation, KeyIndex, KeyUse, Life, Lookup, MaintenanceIndex, MemoryIndex,
    MemoryListing, MemoryPage, MemoryPlace, NamedBlob, NewErasure, NewSession, NewStore, OperatorIndex, Pin,
    PinOutcome, Prunable, PrunedCalls, PurgeIndex, Redaction, RedactionOutcome, Replayed, RetentionIndex,
    RowsErased, RunPlace, SearchChanges, SearchIndex, SearchRow, SearchSince, SearchUpkeepIndex, SecretIndex,
    ServerSecret, Session, SessionChange, SessionCreation, SessionEvent, SessionIndex, SessionListing,
    SessionUpdate, SessionUse, Store, StoreChange, StoreCount, StoreCreation, StoreIndex, StoreListing,
    StorePurge, StoreUpdate, StoreUsage, Tenant, TenantChange, TenantCount, TenantDeletion,
    TenantDeletionIndex, TenantName, TenantPurge, TenantStanding, TenantUpdate, TenantUsage, UnindexedPage,
    UpkeepIndex, UsageIndex, Version, VersionBatch, VersionCounts, VersionIndex, VersionListing, VersionPage,
    VersionsTaken,
};

/// Measures every call of the index that it passes on.
#[derive(Debug)]
pub struct MeasuredIndex {
    inner: Arc<dyn Index>,
    metrics: Metrics,
}

impl MeasuredIndex {
    /// Puts itself around an index.
    pub fn new(inner: Arc<dyn Index>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

const fn outcome<T>(result: &Result<T, IndexError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Ok,
        Err(IndexError::Unavailable(_)) => Outcome::Unavailable,
        Err(_) => Outcome::Error,
    }
}

/// Passes a call on in a span of its own, and records it.
macro_rules! pass_on {
    ($index:ident, $method:ident($($argument:ident),*)) => {{
        let began_at = Instant::now();
        let span = tracing::debug_span!(concat!("index.", stringify!($method)), otel.kind = "client");
        let result = $index.inner.$method($($argument),*).instrument(span).await;
        let took = began_at.elapsed();
        $index.metrics.index_called(stringify!($method), outcome(&result), took);
        result
    }};
}

/// Implements a trait by the inner index; its methods are named with what they
/// take, and what they answer beside an [`IndexError`].
macro_rules! measured {
    ($trait:ident: $($method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl $trait for MeasuredIndex {
            $(async fn $method(&self, $($argument: $type),*) -> Result<$answer, IndexError> {
                pass_on!(self, $method($($argument),*))
            })+
        }
    };
}

/// Names every trait of [`Index`] with its methods: calls `$implement!` with each.
///
/// For whoever puts itself around an index, as [`MeasuredIndex`] does. The types
/// must be in scope there.
#[macro_export]
macro_rules! for_each_index_trait {
    ($implement:ident) => {
$implement! {
    MemoryIndex:
    head(
        tenant_id: TenantId, store_id: StoreId, path: Option<&MemoryPath>, max_entries: u64
    ) -> Option<Lookup>;
    root(tenant_id: TenantId, store_id: StoreId, max_entries: u64) -> Option<Directory>;
    heads_below(tenant_id: TenantId, store_id: StoreId, directory: &DirPath) -> Vec<Head>;
    commit(tenant_id: TenantId, commit: &Commit) -> CommitOutcome;
    claim_edit(
        tenant_id: TenantId, store_id: StoreId, memory_id: MemoryId, replica: Uuid, now: Timestamp, until: Timestamp
    ) -> bool;
    replayed(tenant_id: TenantId, scope_sha256: &[u8; 32], since: Timestamp) -> Option<Replayed>;
    memory(tenant_id: TenantId, store_id: StoreId, memory_id: MemoryId) -> Option<FoundMemory>;
    list_memories(tenant_id: TenantId, store_id: StoreId, listing: &MemoryListing) -> Option<MemoryPage>;
    pin(tenant_id: TenantId, pin: &Pin) -> PinOutcome;
}

$implement! {
    VersionIndex:
    version_at(tenant_id: TenantId, store_id: StoreId, seq: i64) -> Option<Version>;
    version(tenant_id: TenantId, store_id: StoreId, version_id: VersionId) -> Option<FoundVersion>;
    list_versions(tenant_id: TenantId, store_id: StoreId, listing: &VersionListing) -> Option<VersionPage>;
    versions_with_content(
        tenant_id: TenantId, store_id: StoreId, sha256: ContentHash, limit: u32
    ) -> Vec<VersionId>;
}

$implement! {
    PurgeIndex:
    redact(tenant_id: TenantId, redaction: &Redaction) -> RedactionOutcome;
    delete_store(tenant_id: TenantId, store_id: StoreId, now: Timestamp) -> bool;
    deleted_stores(limit: u32) -> Vec<(TenantId, StoreId)>;
    purge_store(tenant_id: TenantId, store_id: StoreId, now: Timestamp, limit: u32) -> StorePurge;
}

$implement! {
    StoreIndex:
    create_store(
        tenant_id: TenantId, store: &NewStore, stores_limit: u64, idempotency: Option<&Idempotency>
    ) -> StoreCreation;
    list_stores(tenant_id: TenantId, listing: &StoreListing) -> Vec<Store>;
    update_store(
        tenant_id: TenantId, store_id: StoreId, change: &StoreChange, idempotency: Option<&Idempotency>
    ) -> StoreUpdate;
    archive_store(tenant_id: TenantId, store_id: StoreId, now: Timestamp) -> Option<Store>;
    store(tenant_id: TenantId, store_id: StoreId) -> Option<Store>;
    grant_bytes(tenant_id: TenantId, store_id: StoreId, needed_bytes: u64, tenant_limit_bytes: u64) -> Grant;
}

$implement! {
    SessionIndex:
    create_session(
        tenant_id: TenantId, session: &NewSession, idempotency: Option<&Idempotency>
    ) -> SessionCreation;
    session(tenant_id: TenantId, session_id: SessionId) -> Option<Session>;
    list_sessions(tenant_id: TenantId, listing: &SessionListing) -> Vec<Session>;
    change_session(
        tenant_id: TenantId, session_id: SessionId, change: &SessionChange, idempotency: Option<&Idempotency>
    ) -> SessionUpdate;
    delete_session(tenant_id: TenantId, session_id: SessionId, now: Timestamp) -> bool;
    list_session_events(
        tenant_id: TenantId, session_id: SessionId, listing: &EventListing
    ) -> Vec<SessionEvent>;
    flush_session_events(events: &[SessionEvent]) -> ();
    flush_session_use(uses: &[SessionUse]) -> ();
}

$implement! {
    CredentialIndex:
    authenticate(secret_sha256: &[u8; 32]) -> Option<Credential>;
    tenant_standing(name: &TenantName) -> Option<TenantStanding>;
}

$implement! {
    SearchIndex:
    search_changes(tenant_id: TenantId, store_id: StoreId, since: &SearchSince) -> Option<SearchChanges>;
}

$implement! {
    SearchUpkeepIndex:
    unindexed_memories(after: Option<MemoryPlace>, analyser: u32, limit: u32) -> UnindexedPage;
    put_search_rows(
        tenant_id: TenantId, store_id: StoreId, rows: &[(MemoryId, VersionId, SearchRow)]
    ) -> u64;
}

$implement! {
    MaintenanceIndex:
    flush_access(rows: &[AccessRow]) -> ();
    flush_key_use(uses: &[KeyUse]) -> ();
    heartbeat(replica: Uuid, role: &str, now: Timestamp, access_flushed_through: Timestamp) -> ();
    retire(replica: Uuid) -> ();
    live_gateways(now: Timestamp) -> u32;
    condemn_orphan(key: &BlobKey, not_before: Timestamp) -> bool;
    due_deletions(now: Timestamp, limit: u32) -> Vec<DueDeletion>;
    deletions_done(keys: &[BlobKey], orphans_until: Timestamp) -> ();
    deletion_failed(key: &BlobKey, not_before: Timestamp) -> ();
}

$implement! {
    JobIndex:
    claim_run(job: &str, slot: Timestamp, owner: Uuid, now: Timestamp, lease_until: Timestamp) -> Option<i64>;
    renew_run(job: &str, fence: i64, lease_until: Timestamp, cursor: Option<&str>) -> bool;
    finish_run(
        job: &str, slot: Timestamp, fence: i64, ended_at: Timestamp, counts: &serde_json::Value, error: Option<&str>
    ) -> bool;
    release_run(job: &str, fence: i64) -> ();
    job_cursor(job: &str) -> Option<String>;
    note_manual_run(job: &str, slot: Timestamp, is_dry_run: bool, audited: &Audited) -> ();
    job_runs(job: &str, before: Option<RunPlace>, now: Timestamp, limit: u32) -> Vec<JobRun>;
}

$implement! {
    SecretIndex:
    server_secrets(purpose: &str) -> Vec<ServerSecret>;
    add_server_secret(secret: &ServerSecret) -> bool;
    rewrap_server_secret(kid: &str, from: &[u8], to: &[u8]) -> bool;
    retire_server_secret(kid: &str, at: Timestamp) -> bool;
    rotate_server_secret(secret: &ServerSecret, others_until: Option<Timestamp>, audited: &Audited) -> bool;
    remove_server_secret(kid: &str) -> bool;
}

$implement! {
    ErasureIndex:
    create_erasure(
        tenant_id: TenantId, erasure: &NewErasure, idempotency: Option<&Idempotency>
    ) -> ErasureCreation;
    erasure(tenant_id: TenantId, erasure_id: ErasureId) -> Option<Erasure>;
    list_erasures(tenant_id: TenantId, listing: &ErasureListing) -> Vec<Erasure>;
    open_erasures(now: Timestamp, limit: u32) -> Vec<(TenantId, ErasureId)>;
    erase_rows(
        tenant_id: TenantId, erasure_id: ErasureId, now: Timestamp, lease_until: Timestamp, limit: u32
    ) -> RowsErased;
    queued_blobs(tenant_id: TenantId, erasure_id: ErasureId, limit: u32) -> Vec<BlobKey>;
    blobs_erased(
        tenant_id: TenantId, erasure_id: ErasureId, blobs: &ErasedBlobs, lease_until: Timestamp
    ) -> ();
    overwrite_deleted() -> ();
    empty_log() -> bool;
    erasure_failed(
        tenant_id: TenantId, erasure_id: ErasureId, error: &'static str, retry_at: Timestamp
    ) -> ();
    finish_erasure(tenant_id: TenantId, erasure_id: ErasureId, audited: &Audited) -> bool;
}

$implement! {
    OperatorIndex:
    create_tenant(tenant: &Tenant, audited: &Audited) -> bool;
    tenant(tenant_id: TenantId) -> Option<Tenant>;
    tenants(external_id: Option<&str>, before: Option<TenantId>, limit: u32) -> Vec<Tenant>;
    update_tenant(tenant_id: TenantId, change: &TenantChange, audited: &Audited) -> TenantUpdate;
    usage(tenant_id: TenantId) -> Option<TenantUsage>;
    create_store_for(
        tenant_id: TenantId, store: &NewStore, stores_limit: u64, audited: &Audited
    ) -> StoreCreation;
}

$implement! {
    KeyIndex:
    create_api_key(
        key: &ApiKey, secret_sha256: &[u8; 32], idempotency: Option<&Idempotency>, audited: &Audited
    ) -> KeyCreation;
    api_key(tenant_id: TenantId, api_key_id: ApiKeyId) -> Option<IssuedKey>;
    api_keys(tenant_id: TenantId, before: Option<ApiKeyId>, limit: u32) -> Vec<IssuedKey>;
    revoke_api_key(tenant_id: TenantId, api_key_id: ApiKeyId, audited: &Audited) -> Option<IssuedKey>;
}

$implement! {
    AuditIndex:
    audit(tenant_id: TenantId, before: Option<AuditPlace>, limit: u32) -> Vec<AuditEntry>;
    operator_audit(before: Option<AuditPlace>, limit: u32) -> Vec<AuditEntry>;
}

$implement! {
    TenantDeletionIndex:
    delete_tenant(tenant_id: TenantId, audited: &Audited) -> Option<TenantDeletion>;
    tenant_deletion(tenant_id: TenantId) -> Option<TenantDeletion>;
    due_tenant_deletions(now: Timestamp, limit: u32) -> Vec<TenantDeletion>;
    purge_tenant(tenant_id: TenantId, now: Timestamp, limit: u32) -> TenantPurge;
    count_blobs(tenant_id: TenantId, last: &BlobKey, blobs: u64, bytes: u64) -> ();
    note_object_versions(tenant_id: TenantId, versions: &VersionCounts) -> ();
    settle_tenant(tenant_id: TenantId, settles_at: Timestamp) -> ();
    finish_tenant(tenant_id: TenantId, now: Timestamp) -> bool;
}

$implement! {
    UpkeepIndex:
    named_blobs(after: Option<&BlobKey>, limit: u32) -> Vec<NamedBlob>;
    blob_is_named(key: &BlobKey) -> bool;
    stores_after(after: Option<(TenantId, StoreId)>, limit: u32) -> Vec<(TenantId, StoreId)>;
    recount_store(tenant_id: TenantId, store_id: StoreId, mends: bool) -> Option<StoreCount>;
    tenants_after(after: Option<TenantId>, limit: u32) -> Vec<TenantId>;
    recount_tenant(tenant_id: TenantId, mends: bool) -> Option<TenantCount>;
    prune_calls(after: Option<&CallKey>, before: Timestamp, limit: u32, is_dry: bool) -> PrunedCalls;
    prune(what: Prunable, before: Timestamp, limit: u32, is_dry: bool) -> u64;
}

$implement! {
    ExpiryIndex:
    access_flush(now: Timestamp) -> AccessFlush;
    idle_stores(wanted: &IdleStores) -> Vec<IdleStore>;
    lives(tenant_id: TenantId, store_id: StoreId, after: Option<MemoryId>, limit: u32) -> Vec<Life>;
    last_session_use(tenant_id: TenantId, store_id: StoreId) -> Option<Timestamp>;
    expire(tenant_id: TenantId, expiration: &Expiration) -> u64;
    set_idle_since(tenant_id: TenantId, store_id: StoreId, idle_since: Timestamp) -> ();
}

$implement! {
    RetentionIndex:
    histories(after: Option<(TenantId, StoreId)>, limit: u32) -> Vec<History>;
    take_outdated(tenant_id: TenantId, batch: &VersionBatch) -> VersionsTaken;
}

$implement! {
    UsageIndex:
    store_usage(tenant_id: TenantId, store_id: StoreId, limit: u32) -> Option<StoreUsage>;
}
    };
}

for_each_index_trait!(measured);

#[async_trait]
impl Index for MeasuredIndex {
    async fn check(&self) -> Result<(), IndexError> {
        pass_on!(self, check())
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
