//! The operations of the engine as MCP tools, resources and a prompt.
//!
//! [`MemoryServer`] serves MCP clients: over HTTP with [`HttpService`], over
//! stdio with [`serve_stdio`]. It keeps no state between requests. Over HTTP,
//! the authentication adds the principal and its stores ([`Access`]) to each
//! request; over stdio, one [`Access`] is used for the life of the process.

mod error;
mod http;
mod prompt;
mod resources;
mod server;
mod tools;

use std::sync::Arc;

use keepsake_engine::{Held, Mounts, Principal};

pub use http::{HttpOptions, HttpService};
pub use server::{MemoryServer, serve_stdio};

/// The caller and its stores.
#[derive(Clone)]
pub struct Access {
    /// The authenticated caller.
    pub principal: Arc<Principal>,
    /// The stores that paths refer to.
    pub mounts: Mounts,
    /// The stores' prefixes in resource URIs, in the order of the stores.
    pub slugs: Arc<[String]>,
    /// A permit that is held until the work of the request has ended.
    pub held: Option<Arc<Held>>,
}
