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
    /// The disk is full, over its quota, read-only or failing; nothing is stored.
    #[error("could not {action}, the disk takes no writes: {source}")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file system failed.
    #[error("could not {action}: {source}")]
    Io {
        /// What was tried, as in "could not write a blob".
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A blob is larger than its reader takes; it was not read.
    #[error("a blob of {found_bytes} bytes or more, where at most {max_bytes} were expected")]
    TooLarge {
        /// Bytes that it has, as far as they were counted.
        found_bytes: u64,
        /// Bytes that were asked for at most.
        max_bytes: u64,
    },
    /// The store answered what its protocol does not foresee.
    #[error("the blob store answered unexpectedly: {0}")]
    Unexpected(String),
}

/// Linux's EIO, which [`io::ErrorKind`] does not name.
const EIO: i32 = 5;

impl BlobError {
    /// Makes an error of the operating system while something was read one of
    /// the store, for `map_err`.
    pub(crate) fn reading(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(format!("could not {action}: {source}")),
            _ if source.raw_os_error() == Some(EIO) => {
                Self::Unavailable(format!("could not {action}: {source}"))
            }
            _ => Self::Io { action, source },
        }
    }

    /// The same while something was written or deleted.
    pub(crate) fn writing(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        move |source| match source.kind() {
            // Of a file that is too large: the process has a limit for its files.
            StorageFull | QuotaExceeded | ReadOnlyFilesystem | FileTooLarge => Self::Disk { action, source },
            _ if source.raw_os_error() == Some(EIO) => Self::Disk { action, source },
            _ => Self::reading(action)(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_read_only_and_failing_disks_are_told_from_other_errors() {
        // ENOSPC, EDQUOT, EROFS, EFBIG, EIO.
        for code in [28, 122, 30, 27, EIO] {
            let error = BlobError::writing("write")(io::Error::from_raw_os_error(code));
            assert!(matches!(error, BlobError::Disk { .. }), "{code}: {error}");
        }
        // EEXIST, EMFILE.
        for code in [17, 24] {
            let error = BlobError::writing("write")(io::Error::from_raw_os_error(code));
            assert!(matches!(error, BlobError::Io { .. }), "{code}: {error}");
        }
        // EACCES.
        let denied = BlobError::writing("write")(io::Error::from_raw_os_error(13));
        assert!(matches!(denied, BlobError::Denied(_)), "{denied}");
        let failed = BlobError::reading("read")(io::Error::from_raw_os_error(EIO));
        assert!(matches!(failed, BlobError::Unavailable(_)), "{failed}");
    }
}
