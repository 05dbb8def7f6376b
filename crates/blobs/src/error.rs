//! Errors of blob stores.

/// The texts contain the store's answer, but no credentials and no content.
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
    /// A blob is larger than the reader's maximum; it was not read.
    #[error("a blob of {found_bytes} bytes or more, where at most {max_bytes} were expected")]
    TooLarge {
        /// The size of the blob, or the bytes counted so far.
        found_bytes: u64,
        max_bytes: u64,
    },
    #[error("the blob store answered unexpectedly: {0}")]
    Unexpected(String),
}
