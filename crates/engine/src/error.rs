//! What an operation can end in, other than its answer.

use std::sync::Arc;

use keepsake_blobs::BlobError;
use keepsake_core::{ContentHash, MemoryId};
use keepsake_index::{IndexError, MOST_OPEN_ERASURES, OverQuota, Scope};
use keepsake_tokens::{TokenError, VaultError};

/// Why an operation was not carried out.
///
/// What a model can mend is not here but in
/// [`ToolError`](keepsake_core::tool::ToolError), which is an answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The credential is none that is good now.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The token is none that is good now, or none that can be issued.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Whether the credential is good cannot be found out at the moment.
    #[error("{0}")]
    AuthenticationBusy(&'static str),
    /// The other replicas may take this one for dead.
    #[error("this replica has lost touch with the others: try again")]
    CutOff,
    /// The credential may not do this.
    #[error("this credential lacks the scope `{0}`")]
    PermissionDenied(Scope),
    /// The credential is a session's token, which this is not for.
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
    /// The session takes no calls and no changes.
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
    /// The store takes no new content.
    #[error("the memory store is archived: its memories can be read and deleted, not created or changed")]
    StoreArchived,
    /// What was asked for is on a condition that does not hold.
    #[error("{why}")]
    PreconditionFailed {
        /// Which condition.
        why: &'static str,
        /// The memory that was compared, where there is one.
        memory_id: Option<MemoryId>,
        /// The hash of what it holds; `None`: the caller may not read it.
        current_sha256: Option<ContentHash>,
    },
    /// A memory is in the way of a path.
    #[error("{why}: `{conflicting_path}`")]
    PathConflict {
        /// How it is in the way.
        why: &'static str,
        /// The memory in the way; `None`: it is gone already, or the caller may not
        /// read it.
        conflicting_memory_id: Option<MemoryId>,
        /// Where it stands.
        conflicting_path: String,
    },
    /// The state of an object does not allow it, and trying again is in vain.
    #[error("{0}")]
    Conflict(&'static str),
    /// Others changed the same memory again and again meanwhile.
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
    /// No tenant of this id was ever deleted.
    #[error("the tenant deletion was not found")]
    DeletionNotFound,
    /// A sweep met blobs that are another index's, as it seems.
    #[error(
        "the index names too few of the blobs for them to be its own; if it is the right one, run the job by hand"
    )]
    ForeignBlobs,
    /// There is no such job.
    #[error("the job was not found")]
    JobNotFound,
    /// A tenant of this external id is there already.
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
    /// The tenant has as many erasures under way as it may.
    #[error("{MOST_OPEN_ERASURES} erasures of the tenant are under way: wait until one is done")]
    TooManyErasures,
    /// The tenant has as many stores as it may.
    #[error(
        "the tenant has {count} memory stores, its limit is {limit}: delete one that is no longer needed"
    )]
    TooManyStores {
        /// How many it has.
        count: u64,
        /// How many it may have.
        limit: u64,
    },
    /// The tenant would have too many sessions, or they would be described with
    /// too many bytes, or it would have too many keys, or its credentials have
    /// written too many audit entries today.
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
        /// Whose limit it is.
        whose: &'static str,
        /// How many bytes it would hold; `None`: the caller may not read them.
        size_bytes: Option<u64>,
        /// How many it may hold.
        limit_bytes: u64,
    },
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A secret that the index keeps cannot be had.
    #[error("a secret of the server {0}")]
    Secret(#[from] VaultError),
    /// The blob store failed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// Stored content is not what the index says it is; it is not served.
    #[error("stored content is damaged: {0}")]
    Damaged(&'static str),
    /// A look-up that several requests shared failed for all of them.
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
        OverQuota::SessionBytes {
            size_bytes,
            limit_bytes,
        } => format!(
            "the tenant's sessions would be described with {size_bytes} bytes, its limit is {limit_bytes} bytes: \
             delete some that are no longer needed"
        ),
        OverQuota::ApiKeys { count, limit } => format!(
            "the tenant would have {count} API keys, those revoked within 30 days included, its limit is {limit}"
        ),
    }
}
