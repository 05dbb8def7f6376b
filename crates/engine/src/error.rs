//! Errors of engine operations.

use std::sync::Arc;

use keepsake_blobs::BlobError;
use keepsake_core::{ContentHash, MemoryId, OverLimit, VersionId};
use keepsake_index::{IndexError, MAX_OPEN_ERASURES, Scope};
use keepsake_tokens::{TokenError, VaultError};

/// Why an operation was not carried out.
///
/// Errors that a model can correct are answers:
/// [`ToolError`](keepsake_core::tool::ToolError).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// Also when the token cannot be issued.
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{0}")]
    AuthenticationBusy(&'static str),
    /// Other replicas may consider this one dead.
    #[error("this replica has lost touch with the others: try again")]
    CutOff,
    #[error("this credential lacks the scope `{0}`")]
    PermissionDenied(Scope),
    #[error("a session's token reads and changes memories of the session's stores, and does nothing else")]
    NotForSessions,
    #[error("the memory store is attached to this session for reading alone")]
    ReadOnly,
    #[error("the session was not found")]
    SessionNotFound,
    #[error("the session resource was not found")]
    ResourceNotFound,
    #[error("the session is archived: it can be read and deleted, not changed or used")]
    SessionArchived,
    #[error("the memory store was not found")]
    StoreNotFound,
    #[error("the memory was not found")]
    MemoryNotFound,
    #[error("the memory version was not found")]
    VersionNotFound,
    #[error("the erasure was not found")]
    ErasureNotFound,
    #[error("the memory store is archived: its memories can be read and deleted, not created or changed")]
    StoreArchived,
    #[error("{why}")]
    PreconditionFailed {
        why: &'static str,
        /// The compared memory, if there is one.
        memory_id: Option<MemoryId>,
        /// The hash of the memory's content; `None`: the caller may not read it.
        current_sha256: Option<ContentHash>,
    },
    #[error("{why}: `{conflicting_path}`")]
    PathConflict {
        why: &'static str,
        /// `None`: the conflicting memory no longer exists, or the caller may not read
        /// it.
        conflicting_memory_id: Option<MemoryId>,
        conflicting_path: String,
    },
    /// The state of an object forbids the operation; a retry does not help.
    #[error("{0}")]
    Conflict(&'static str),
    /// Other changes of the same memory won the race repeatedly.
    #[error("the memory was changed by others again and again meanwhile: read it and try again")]
    Contended,
    #[error("`Idempotency-Key` was used for a request with another body within the last 24 hours")]
    KeyReused,
    #[error("the tenant was not found")]
    TenantNotFound,
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
    #[error("the job was not found")]
    JobNotFound,
    #[error("a tenant with this external id exists already")]
    TenantExists,
    #[error("`{field}` {rule}")]
    Invalid {
        field: &'static str,
        /// A phrase that follows the field.
        rule: String,
    },
    #[error("the tenant's requests under way use its share of the server's memory")]
    OverMemory,
    #[error("the tenant has too many open streams on this server: close one")]
    TooManyStreams,
    #[error("{MAX_OPEN_ERASURES} erasures of the tenant are under way: wait until one is done")]
    TooManyErasures,
    #[error("{0}")]
    OverLimit(OverLimit),
    /// An operation of an atomic batch is refused, so the whole batch is.
    #[error("{refusal}")]
    OfOperation {
        /// The operation's index in the batch.
        operation: usize,
        refusal: Arc<EngineError>,
    },
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("a secret of the server {0}")]
    Secret(#[from] VaultError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The index names a content that is not stored, as after a restore of an older index.
    #[error(
        "the content of `{path}` ({version_id}) is missing in the content store: restore it from a backup, or \
         write or delete the memory"
    )]
    ContentMissing {
        /// The path that the version records.
        path: String,
        version_id: VersionId,
    },
    /// The stored content of a version differs from its record in the index; the content
    /// is not served.
    #[error(
        "the content of `{path}` ({version_id}) is damaged in the content store: restore it from a backup, or \
         write or delete the memory"
    )]
    ContentDamaged {
        /// The path that the version records.
        path: String,
        version_id: VersionId,
    },
    /// Stored content differs from its record in the index; the error does not know the version.
    #[error("stored content is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Shared(Arc<EngineError>),
    #[error("internal error: {0}")]
    Internal(&'static str),
}
