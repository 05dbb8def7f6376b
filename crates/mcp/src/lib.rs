//! The same operations as MCP tools, resources and a prompt.
//!
//! [`MemoryServer`] is what an MCP client talks to, over HTTP by
//! [`HttpService`] or over stdio by [`serve_stdio`]. It keeps nothing between
//! two requests: who asks and for which stores ([`Access`]) comes with each
//! request, put there by whoever authenticated it, or is fixed for a process of
//! its own. What a client is shown comes from the engine; the forms are here.

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

/// Who asks, and for which stores.
#[derive(Clone)]
pub struct Access {
    /// Who it is.
    pub principal: Arc<Principal>,
    /// Where paths lead.
    pub mounts: Mounts,
    /// What resources of the stores begin with, in their order.
    pub slugs: Arc<[String]>,
    /// Held until the work that the request began has ended.
    pub held: Option<Arc<Held>>,
}
