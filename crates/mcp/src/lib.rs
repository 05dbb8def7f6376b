//! The operations of the engine as MCP tools, resources and a prompt.
//!
//! [`HttpService`] serves messages of any client, each with the principal and its stores
//! ([`Access`]), and keeps no state between them. Over HTTP, the authentication determines
//! the access of each message; over stdio, one is used for the life of the process.

mod error;
mod http;
pub mod message;
mod prompt;
mod resources;
mod server;
mod tools;

use std::sync::Arc;

use keepsake_engine::{Mounts, Principal, RequestShares};

pub use http::{HttpOptions, HttpService};

#[derive(Clone)]
pub struct Access {
    pub principal: Arc<Principal>,
    /// The stores that paths refer to.
    pub mounts: Mounts,
    /// The stores' prefixes in resource URIs, in the order of the stores.
    pub slugs: Arc<[String]>,
    /// A permit that is held until the work of the request has ended.
    pub held: Option<Arc<RequestShares>>,
}
