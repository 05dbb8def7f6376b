//! Maps engine errors to MCP errors.

use keepsake_blobs::BlobError;
use keepsake_core::Refused;
use keepsake_engine::EngineError;
use keepsake_index::IndexError;
use rmcp::ErrorData;

/// Maps an error to a protocol error, which reveals nothing about the deployment.
pub(crate) fn to_error_data(error: &EngineError) -> ErrorData {
    match error {
        EngineError::Unauthenticated(_)
        | EngineError::PermissionDenied(_)
        | EngineError::NotForSessions
        | EngineError::ReadOnly
        | EngineError::NotFound(_)
        | EngineError::PreconditionFailed { .. }
        | EngineError::Conflict(_)
        | EngineError::TooManyStreams
        | EngineError::Refused(
            Refused::Archived
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
            | Refused::TenantDeleting,
        ) => ErrorData::invalid_request(error.to_string(), None),
        EngineError::Invalid { .. }
        | EngineError::DamagedArchive(_)
        | EngineError::Refused(Refused::Content(_) | Refused::Sensitive { .. }) => {
            ErrorData::invalid_params(error.to_string(), None)
        }
        EngineError::AuthenticationBusy(_)
        | EngineError::ContentMissing { .. }
        | EngineError::ContentDamaged { .. }
        | EngineError::CutOff
        | EngineError::Refused(Refused::Contended)
        | EngineError::OverMemory => ErrorData::internal_error(error.to_string(), None),
        EngineError::Shared(shared) | EngineError::OfOperation { refusal: shared, .. } => {
            to_error_data(shared)
        }
        EngineError::Index(IndexError::Unavailable(_)) => {
            unavailable(error, "the database cannot be reached at the moment: try again; nothing was changed")
        }
        EngineError::Index(IndexError::OutcomeUnknown(_)) => {
            unavailable(error, "the database did not answer: a change may have been made")
        }
        EngineError::Blobs(BlobError::Unavailable(_)) => unavailable(
            error,
            "the object store cannot be reached at the moment: try again; nothing was changed",
        ),
        EngineError::Blobs(BlobError::Denied(_) | BlobError::Misconfigured(_)) => {
            let message = "the object store refuses the server or is misconfigured, which the operator must correct; nothing was changed";
            misconfigured(error, message)
        }
        EngineError::Index(IndexError::DiskFull(_)) => misconfigured(
            error,
            "a disk of the server accepts no writes and may be full; nothing was changed",
        ),
        EngineError::Index(IndexError::DiskFailed(_)) => misconfigured(
            error,
            "a disk of the server accepts no writes and may be full; the change may or may not have been made",
        ),
        EngineError::Token(_)
        | EngineError::ForeignBlobs
        | EngineError::Index(
            IndexError::SchemaTooOld { .. }
            | IndexError::Migration(_)
            | IndexError::BadUrl(_)
            | IndexError::UnsuitablePooler(_)
            | IndexError::Corrupt { .. }
            | IndexError::Database(_),
        )
        | EngineError::Blobs(BlobError::TooLarge { .. } | BlobError::Unexpected(_))
        | EngineError::Secret(_)
        | EngineError::Damaged(_)
        | EngineError::Refused(Refused::Contents(_))
        | EngineError::Internal(_) => {
            tracing::error!(error = %error, "mcp.request failed with an internal error");
            ErrorData::internal_error("an internal error occurred", None)
        }
    }
}

/// An error that the server's operator must correct.
fn misconfigured(error: &EngineError, message: &'static str) -> ErrorData {
    tracing::error!(error = %error, "mcp.request failed: the backend is misconfigured or broken");
    ErrorData::internal_error(message, None)
}

fn unavailable(error: &EngineError, message: &'static str) -> ErrorData {
    tracing::warn!(error = %error, "mcp.request failed: the backend is unavailable");
    ErrorData::internal_error(message, None)
}
