//! MCP over HTTP, streamable and stateless: a request, an answer as JSON.

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

/// Who may ask by way of a browser.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Names by which the server is reached; any where there is none.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may ask; none where there is none.
    pub allowed_origins: Vec<String>,
}

/// Answers requests of any client, each by itself; cheap to clone.
#[derive(Clone)]
pub struct HttpService(StreamableHttpService<MemoryServer, NeverSessionManager>);

impl HttpService {
    /// Nothing is kept of a client: every replica answers every request.
    pub fn new(engine: Engine, options: HttpOptions) -> Self {
        // Bodies were read, and bounded, before they come here.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(usize::MAX)
            .with_allowed_hosts(options.allowed_hosts)
            .with_allowed_origins(options.allowed_origins)
            .enforce_origin_validation();
        let server = MemoryServer::of_requests(engine);
        Self(StreamableHttpService::new(
            move || Ok(server.clone()),
            Arc::default(),
            config,
        ))
    }

    /// Answers one request of somebody who was let in.
    pub async fn answer(
        &self,
        access: Access,
        mut head: Parts,
        body: Bytes,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        head.extensions.insert(access);
        // The handler runs in a task of its own, and goes on in this one's span.
        head.extensions.insert(tracing::Span::current());
        // Answers are JSON whatever else a client would take.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        head.headers.insert(header::ACCEPT, both);
        self.0.handle(Request::from_parts(head, Full::new(body))).await
    }
}
