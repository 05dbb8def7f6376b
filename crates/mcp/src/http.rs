//! MCP over stateless streamable HTTP: each request has one JSON response.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use keepsake_engine::Engine;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use crate::{Access, MemoryServer};

/// Protection against requests of foreign web pages.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Allowed `Host` names; empty: any.
    pub allowed_hosts: Vec<String>,
    /// Allowed origins of web pages; empty: none.
    pub allowed_origins: Vec<String>,
}

/// Answers single requests of any client; cheap to clone.
#[derive(Clone)]
pub struct HttpService(StreamableHttpService<MemoryServer, NeverSessionManager>);

impl HttpService {
    /// Keeps no sessions, so every replica can answer every request.
    pub fn new(engine: Engine, options: HttpOptions) -> Self {
        // The body was read with a size limit before.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(usize::MAX)
            .with_allowed_hosts(options.allowed_hosts)
            .with_allowed_origins(options.allowed_origins)
            .enforce_origin_validation();
        let server = MemoryServer::of_requests(engine);
        Self(StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config))
    }

    /// Answers one authenticated request.
    pub async fn answer(
        &self,
        access: Access,
        mut head: Parts,
        body: Bytes,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        head.extensions.insert(access);
        // The handler runs in another task, which continues this span.
        head.extensions.insert(tracing::Span::current());
        // Responses are always JSON, although the library requires both types.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        head.headers.insert(header::ACCEPT, both);
        self.0.handle(Request::from_parts(head, Full::new(body))).await
    }
}
