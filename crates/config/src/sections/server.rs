//! `[server]`

use std::time::Duration;

use keepsake_server::{McpOptions, ServerOptions};

use crate::checks::{address, at_least, comma_separated, http_url, seconds};
use crate::reader::Reader;

/// Room for a few of the largest bodies; one tenant gets half of it.
const MIN_REQUEST_MEMORY_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Host and port to listen on.
    pub listen: String,
    /// How long the server goes on serving after SIGTERM, so that load balancers
    /// notice that it is not ready.
    pub drain: Duration,
    /// The URL at which clients reach the server, without a final slash.
    pub public_url: Option<String>,
    /// Without the parts that follow from other settings: sign-in and console.
    pub options: ServerOptions,
}

impl ServerSettings {
    pub(super) fn read(reader: &mut Reader) -> Self {
        // Keys are read in the order in which they are printed.
        let listen = reader.get("server.listen", "127.0.0.1:8080", address);
        let request_deadline = reader.get("server.request_deadline_seconds", 60, seconds(1));
        let shutdown_deadline = reader.get("server.shutdown_deadline_seconds", 30, seconds(0));
        let drain = reader.get("server.drain_seconds", 5, seconds(0));
        let mut options = ServerOptions {
            request_deadline,
            shutdown_deadline,
            // At least two, because one tenant may use half of them.
            max_requests_in_flight: reader.get("server.max_requests_in_flight", 1024, at_least(2)),
            max_request_memory_bytes: reader.get(
                "server.max_request_memory_bytes",
                192 << 20,
                at_least(MIN_REQUEST_MEMORY_BYTES),
            ),
            max_connections: reader.get("server.max_connections", 2048, at_least(1)),
            ..ServerOptions::default()
        };
        let public_url = reader.optional("server.public_url", http_url);
        options.mcp = read_mcp(reader);
        Self {
            listen,
            drain,
            public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
            options,
        }
    }
}

fn read_mcp(reader: &mut Reader) -> McpOptions {
    let hosts = comma_separated(is_host, "hosts such as memory.example.com");
    let origins = comma_separated(
        is_origin,
        "origins as browsers send them, such as https://app.example.com or http://localhost:*",
    );
    McpOptions {
        allowed_hosts: reader.optional("server.mcp_allowed_hosts", hosts).unwrap_or_default(),
        allowed_origins: reader.optional("server.mcp_allowed_origins", origins).unwrap_or_default(),
    }
}

/// A host as browsers send it: a name with other letters has its form for the network,
/// `xn--…`.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.is_ascii() && !text.contains(['/', '@', '*', ' '])
}

/// An origin as browsers send it, so without the scheme's own port; a port `*` is any.
fn is_origin(text: &str) -> bool {
    let Some((scheme, address)) = text.split_once("://") else {
        return false;
    };
    // Browser extensions have their own schemes, such as `moz-extension`.
    let is_scheme =
        !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let port = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    is_scheme
        && port.map_or(is_host(address), |(host, port)| {
            is_host(host) && (port == "*" || port.parse::<u16>().is_ok())
        })
}
