//! Errors of engine operations.

use std::sync::Arc;

use keepsake_blobs::BlobError;
use keepsake_core::{ContentHash, MemoryId, VersionId};
use keepsake_index::{IndexError, MAX_OPEN_ERASURES, OverQuota, Scope};
use keepsake_tokens::{TokenError, VaultError};

/// Why an operation was not carried out.
///
/// Errors that a model can correct are answers:
/// [`ToolError`](keepsake_core::tool::ToolError).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The credential is not valid now.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The token is not valid now, or cannot be issued.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The credential cannot be checked at the moment.
    #[error("{0}")]
    AuthenticationBusy(&'static str),
    /// Other replicas may consider this one dead.
    #[error("this replica has lost touch with the others: try again")]
    CutOff,
    /// The credential lacks a scope.
    #[error("this credential lacks the scope `{0}`")]
    PermissionDenied(Scope),
    /// The credential is a session's token, which must not use this operation.
    #[error("a session's token reads and changes memories of the session's stores, and does nothing else")]
    NotForSessions,
    /// The session may only read the store.
    #[error("the memory store is attached to this session for reading alone")]
    ReadOnly,
    /// There is no such session in this tenant.
    #[error("the session was not found")]
    SessionNotFound,
    /// The session has no such attachment.
    #[error("the session resource was not found")]
    ResourceNotFound,
    /// The session is archived and accepts no calls or changes.
    #[error("the session is archived: it can be read and deleted, not changed or used")]
    SessionArchived,
    /// There is no such store in this tenant.
    #[error("the memory store was not found")]
    StoreNotFound,
    /// There is no such memory in the store.
    #[error("the memory was not found")]
    MemoryNotFound,
    /// There is no such version in the store.
    #[error("the memory version was not found")]
    VersionNotFound,
    /// There is no such erasure in this tenant.
    #[error("the erasure was not found")]
    ErasureNotFound,
    /// The store is archived and accepts no new content.
    #[error("the memory store is archived: its memories can be read and deleted, not created or changed")]
    StoreArchived,
    /// A precondition of the request does not hold.
    #[error("{why}")]
    PreconditionFailed {
        /// The failed condition.
        why: &'static str,
        /// The compared memory, if there is one.
        memory_id: Option<MemoryId>,
        /// The hash of its content; `None`: the caller may not read it.
        current_sha256: Option<ContentHash>,
    },
    /// Another memory conflicts with a path.
    #[error("{why}: `{conflicting_path}`")]
    PathConflict {
        /// How the paths conflict.
        why: &'static str,
        /// The conflicting memory; `None`: it no longer exists, or the caller
        /// may not read it.
        conflicting_memory_id: Option<MemoryId>,
        /// The path of the conflicting memory.
        conflicting_path: String,
    },
    /// The state of an object forbids the operation; a retry does not help.
    #[error("{0}")]
    Conflict(&'static str),
    /// Other changes of the same memory won the race repeatedly.
    #[error("the memory was changed by others again and again meanwhile: read it and try again")]
    Contended,
    /// The idempotency key was used for another request.
    #[error("`Idempotency-Key` was used for a request with another body within the last 24 hours")]
    KeyReused,
    /// There is no such tenant.
    #[error("the tenant was not found")]
    TenantNotFound,
    /// There is no such API key in this tenant.
    #[error("the API key was not found")]
    KeyNotFound,
    /// No tenant with this id was ever deleted.
    #[error("the tenant deletion was not found")]
    DeletionNotFound,
    /// A sweep found blobs that seem to belong to another index.
    #[error(
        "the index names too few of the blobs for them to be its own; if it is the right one, run the job by hand"
    )]
    ForeignBlobs,
    /// There is no such job.
    #[error("the job was not found")]
    JobNotFound,
    /// A tenant with this external id exists already.
    #[error("a tenant with this external id exists already")]
    TenantExists,
    /// A field breaks a rule.
    #[error("`{field}` {rule}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The rule, as a phrase that follows the field.
        rule: String,
    },
    /// The tenant's requests under way use its share of the server's memory.
    #[error("the tenant's requests under way use its share of the server's memory")]
    OverMemory,
    /// The tenant's open streams use its share of the server's.
    #[error("the tenant has too many open streams on this server: close one")]
    TooManyStreams,
    /// The tenant has the maximum number of open erasures.
    #[error("{MAX_OPEN_ERASURES} erasures of the tenant are under way: wait until one is done")]
    TooManyErasures,
    /// The tenant has the maximum number of stores.
    #[error(
        "the tenant has {count} memory stores, its limit is {limit}: delete one that is no longer needed"
    )]
    TooManyStores {
        /// How many it has.
        count: u64,
        /// How many it may have.
        limit: u64,
    },
    /// The tenant would have too many sessions, session descriptions with too
    /// many bytes, or too many API keys, or its credentials have written too
    /// many audit entries today.
    #[error("{}", over_quota(*.0))]
    OverQuota(OverQuota),
    /// The store would hold too many memories.
    #[error(
        "the memory store would hold {count} memories, its limit is {limit}: delete some that are no longer needed"
    )]
    TooManyMemories {
        /// How many it would hold.
        count: u64,
        /// How many it may hold.
        limit: u64,
    },
    /// The store, or all stores of the tenant, would hold too many bytes.
    #[error(
        "{whose} would hold {}the limit of {limit_bytes} bytes: delete or shorten memories",
        .size_bytes.map_or_else(|| "more than ".to_owned(), |size_bytes| format!("{size_bytes} bytes, over "))
    )]
    TooManyBytes {
        /// The subject of the limit.
        whose: &'static str,
        /// How many bytes it would hold; `None`: the caller may not learn it.
        size_bytes: Option<u64>,
        /// How many it may hold.
        limit_bytes: u64,
    },
    /// An operation of a batch that is made as a whole or not at all is refused.
    #[error("{refusal}")]
    OfOperation {
        /// Its index in the batch.
        operation: usize,
        /// Why it is refused.
        refusal: Arc<EngineError>,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A secret in the index cannot be read.
    #[error("a secret of the server {0}")]
    Secret(#[from] VaultError),
    /// The blob store failed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The index names a content that is not stored, as after a restore of an older index.
    #[error(
        "the content of `{path}` ({version_id}) is missing in the content store: restore it from a backup, or \
         write or delete the memory"
    )]
    ContentMissing {
        /// The path of the version.
        path: String,
        /// The version.
        version_id: VersionId,
    },
    /// The stored content of a version differs from its record in the index; it is not served.
    #[error(
        "the content of `{path}` ({version_id}) is damaged in the content store: restore it from a backup, or \
         write or delete the memory"
    )]
    ContentDamaged {
        /// The path of the version.
        path: String,
        /// The version.
        version_id: VersionId,
    },
    /// Stored content differs from its record in the index, whatever version it is of.
    #[error("stored content is damaged: {0}")]
    Damaged(&'static str),
    /// A look-up that several requests shared failed.
    #[error(transparent)]
    Shared(Arc<EngineError>),
    /// A bug.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

fn over_quota(refusal: OverQuota) -> String {
    match refusal {
        OverQuota::AuditEntries { limit } => format!(
            "the tenant's credentials have made the {limit} changes that they may make in a day (UTC): \
             only what ends or removes something is still done today"
        ),
        OverQuota::Sessions { count, limit } => format!(
            "the tenant would have {count} sessions, its limit is {limit}: delete some that are no longer needed"
        ),
        OverQuota::SessionBytes { size_bytes, limit_bytes } => format!(
            "the tenant's sessions would be described with {size_bytes} bytes, its limit is {limit_bytes} bytes: \
             delete some that are no longer needed"
        ),
        OverQuota::ApiKeys { count, limit } => format!(
            "the tenant would have {count} API keys, those revoked within 30 days included, its limit is {limit}"
        ),
    }
}
