//! Errors of engine operations.

use std::sync::Arc;

use keepsake_archive::Damage;
use keepsake_blobs::BlobError;
use keepsake_core::{ContentHash, MeaningReason, MemoryId, ObjectKind, Refused, VersionId};
use keepsake_index::{ChangeError, IndexError, Scope};
use keepsake_tokens::{TokenError, VaultError};

use crate::test_report::BrokenTests;

/// Why an operation was not carried out.
///
/// Errors that a model can correct are answers:
/// [`ToolError`](keepsake_core::tool::ToolError).
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The operator resumes the tenant.
    #[error("the tenant is suspended")]
    TenantSuspended,
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
    /// An undo of changes that may be those of others, without the scope for it.
    #[error(
        "this credential lacks the scope `stores:admin`, so it takes back only its own changes: send `{field}` with \
         `{id}`, and no `overwrite`"
    )]
    OnlyOwnChanges {
        /// The filter by the author.
        field: &'static str,
        /// The credential's own id.
        id: String,
    },
    #[error("a session's token reads and changes memories of the session's stores, and does nothing else")]
    NotForSessions,
    #[error("the memory store is attached to this session read-only")]
    ReadOnly,
    #[error("the {} was not found", .0.name())]
    NotFound(ObjectKind),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("{why}")]
    PreconditionFailed {
        why: &'static str,
        /// The compared memory, if there is one.
        memory_id: Option<MemoryId>,
        /// The hash of the memory's content; `None`: the caller may not read it.
        current_sha256: Option<ContentHash>,
    },
    /// The state of an object forbids the operation; a retry does not help.
    #[error("{0}")]
    Conflict(&'static str),
    /// A sweep found blobs that seem to belong to another index.
    #[error(
        "the index names too few of the blobs for them to be its own; if it is the right one, run the job by hand"
    )]
    ForeignBlobs,
    #[error("`{field}` {rule}")]
    Invalid {
        field: &'static str,
        /// A phrase that follows the field.
        rule: String,
    },
    /// The previous page of the search was scored by words and meaning, and there are no vectors now to
    /// score the next one by; a retry may succeed.
    #[error(
        "`page` continues a search by words and meaning, which cannot go on at the moment because {}: try again, \
         or start again without `page`",
        .0.in_words()
    )]
    MeaningLost(MeaningReason),
    /// A client's archive; nothing of it was written.
    #[error("the archive is damaged: {0}. Nothing was imported.")]
    DamagedArchive(Damage),
    #[error("the tenant's requests under way use its share of the server's memory")]
    OverMemory,
    #[error("the tenant has too many open streams on this server: close one")]
    TooManyStreams,
    /// A change of many memories after which tests of the store do not hold.
    #[error("{0}")]
    BrokenTests(Box<BrokenTests>),
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

/// The side that causes an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller may not make this request, or not in this state of the objects.
    Caller,
    /// A value in the request breaks its rule.
    Parameter,
    /// The server is busy, or its stored content is lost; the error's text tells the caller what to do.
    Server,
    /// The database, the object store or a disk fails; the error's text is for the operator.
    Backend,
    /// The error is not expected; its text is for the operator.
    Bug,
}

/// How the daily use counts a change of memories that was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// A limit, a policy, a test or the state of the store refused it.
    Refusal,
    /// Another change came before it.
    Conflict,
}

impl EngineError {
    pub(crate) fn invalid(field: &'static str, rule: impl Into<String>) -> Self {
        Self::Invalid { field, rule: rule.into() }
    }

    /// How a change with this error is counted; `None`: not at all.
    pub(crate) fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::PreconditionFailed { .. }
            | Self::Refused(
                Refused::PathTaken { .. }
                | Refused::PathIsDirectory { .. }
                | Refused::ParentIsFile { .. }
                | Refused::Contended,
            ) => Some(Rejection::Conflict),
            Self::BrokenTests(_)
            | Self::Refused(
                Refused::Archived
                | Refused::OverLimit(_)
                | Refused::Content(_)
                | Refused::Sensitive { .. }
                | Refused::Setting { .. }
                | Refused::Tests(_),
            ) => Some(Rejection::Refusal),
            Self::Shared(shared) | Self::OfOperation { refusal: shared, .. } => shared.rejection(),
            _ => None,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Unauthenticated(_)
            | Self::TenantSuspended
            | Self::PermissionDenied(_)
            | Self::OnlyOwnChanges { .. }
            | Self::NotForSessions
            | Self::ReadOnly
            | Self::NotFound(_)
            | Self::PreconditionFailed { .. }
            | Self::Conflict(_)
            | Self::BrokenTests(_)
            | Self::TooManyStreams => Fault::Caller,
            Self::Refused(refused) => match refused {
                Refused::Content(_) | Refused::Sensitive { .. } | Refused::Tests(_) => Fault::Parameter,
                Refused::Contended => Fault::Server,
                Refused::Contents(_) => Fault::Bug,
                Refused::Archived
                | Refused::Setting { .. }
                | Refused::PathTaken { .. }
                | Refused::PathIsDirectory { .. }
                | Refused::ParentIsFile { .. }
                | Refused::OverLimit(_)
                | Refused::KeyReused
                | Refused::HoldsLiveContent
                | Refused::SessionArchived
                | Refused::KeyEnded
                | Refused::TooManyErasures { .. }
                | Refused::TenantExists
                | Refused::TenantDeleting
                | Refused::TenantChanged => Fault::Caller,
            },
            Self::Invalid { .. } | Self::DamagedArchive(_) => Fault::Parameter,
            Self::AuthenticationBusy(_)
            | Self::ContentMissing { .. }
            | Self::ContentDamaged { .. }
            | Self::CutOff
            | Self::MeaningLost(_)
            | Self::OverMemory => Fault::Server,
            Self::Shared(shared) | Self::OfOperation { refusal: shared, .. } => shared.fault(),
            Self::Index(error) if error.is_passing() => Fault::Backend,
            Self::Blobs(BlobError::Unavailable(_) | BlobError::Denied(_) | BlobError::Misconfigured(_)) => {
                Fault::Backend
            }
            Self::Token(_)
            | Self::ForeignBlobs
            | Self::Index(_)
            | Self::Blobs(BlobError::TooLarge { .. } | BlobError::Unexpected(_))
            | Self::Secret(_)
            | Self::Damaged(_)
            | Self::Internal(_) => Fault::Bug,
        }
    }
}

impl From<ChangeError> for EngineError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::NotFound(kind) => Self::NotFound(kind),
            ChangeError::Invalid { field, rule } => Self::Invalid { field, rule },
            ChangeError::Refused(refused) => Self::Refused(refused),
            ChangeError::Index(error) => Self::Index(error),
        }
    }
}
