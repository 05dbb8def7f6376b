//! What can go wrong with a blob store.

use std::io;

/// Why a blob store could not do what it was asked.
///
/// Texts say what the store answered; they hold no credentials and no content.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store did not answer, or said that it cannot now.
    #[error("the blob store is unavailable: {0}")]
    Unavailable(String),
    /// The store refuses the credentials or what they may do.
    #[error("the blob store denied access: {0}")]
    Denied(String),
    /// The settings do not fit the store: no such bucket, wrong region, bad URL.
    #[error("the blob store is misconfigured: {0}")]
    Misconfigured(String),
    /// The file system failed.
    #[error("could not {action}: {source}")]
    Io {
        /// What was tried, as in "could not write a blob".
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The store answered what its protocol does not foresee.
    #[error("the blob store answered unexpectedly: {0}")]
    Unexpected(String),
}

impl BlobError {
    /// Makes the operating system's error one of the store, for `map_err`.
    pub(crate) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Denied(format!("could not {action}: {source}"))
            }
            _ => Self::Io { action, source },
        }
    }
}
