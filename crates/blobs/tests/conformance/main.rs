//! What a store in S3 promises, also while the network or the server fails.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod backend;
mod faults;
mod s3;
mod s3_conforms;
mod versioned;
