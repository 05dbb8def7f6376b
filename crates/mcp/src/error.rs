//! What a client is told of what the engine could not do.

use keepsake_blobs::BlobError;
use keepsake_engine::EngineError;
use keepsake_index::IndexError;
use rmcp::ErrorData;

/// An error of the protocol: the one who set up the client must mend it, or
/// nobody can. It gives nothing of the deployment away.
pub(crate) fn told(error: &EngineError) -> ErrorData {
    match error {
        EngineError::PermissionDenied(_) | EngineError::StoreNotFound | EngineError::StoreArchived => {
            ErrorData::invalid_request(error.to_string(), None)
        }
        EngineError::Invalid { .. } => ErrorData::invalid_params(error.to_string(), None),
        EngineError::Contended | EngineError::AuthenticationBusy(_) => {
            ErrorData::internal_error(error.to_string(), None)
        }
        EngineError::Shared(shared) => told(shared),
        EngineError::Index(IndexError::Unavailable(_)) => unavailable(error, "the database"),
        EngineError::Blobs(BlobError::Unavailable(_)) => unavailable(error, "the object store"),
        _ => {
            tracing::error!(error = %error, "mcp.request ended in an internal error");
            ErrorData::internal_error("an internal error occurred", None)
        }
    }
}

fn unavailable(error: &EngineError, what: &str) -> ErrorData {
    tracing::warn!(error = %error, "mcp.request met an unavailable backend");
    let message = format!("{what} cannot be reached at the moment: try again; a change may have been made");
    ErrorData::internal_error(message, None)
}
