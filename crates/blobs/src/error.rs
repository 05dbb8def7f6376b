//! Errors of blob stores.

use std::io;

/// An error of a blob store.
///
/// The texts contain the store's answer, and no credentials and no content.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store did not answer, or reported a temporary failure.
    #[error("the blob store is unavailable: {0}")]
    Unavailable(String),
    /// The store rejects the credentials, or they lack a permission.
    #[error("the blob store denied access: {0}")]
    Denied(String),
    /// The configuration is wrong: no such bucket, wrong region, bad URL.
    #[error("the blob store is misconfigured: {0}")]
    Misconfigured(String),
    /// The disk is full, over its quota, read-only or failing; nothing is stored.
    #[error("could not {action}, the disk takes no writes: {source}")]
    Disk {
        /// The failed action.
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file system failed.
    #[error("could not {action}: {source}")]
    Io {
        /// The failed action, as in "could not write a blob".
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A blob is larger than the reader's maximum; it was not read.
    #[error("a blob of {found_bytes} bytes or more, where at most {max_bytes} were expected")]
    TooLarge {
        /// The size of the blob, or the bytes counted so far.
        found_bytes: u64,
        /// The reader's maximum.
        max_bytes: u64,
    },
    /// The store's answer violates its protocol.
    #[error("the blob store answered unexpectedly: {0}")]
    Unexpected(String),
}

/// Linux's EIO, which [`io::ErrorKind`] does not name.
const EIO: i32 = 5;

impl BlobError {
    /// Returns a function for `map_err` that converts an I/O error of a read.
    pub(crate) fn reading(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(format!("could not {action}: {source}")),
            _ if source.raw_os_error() == Some(EIO) => {
                Self::Unavailable(format!("could not {action}: {source}"))
            }
            _ => Self::Io { action, source },
        }
    }

    /// The same for a write or a deletion.
    pub(crate) fn writing(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        move |source| match source.kind() {
            // The file exceeds the file size limit of the process.
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
