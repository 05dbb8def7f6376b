//! MCP over stateless streamable HTTP: each request has one JSON response.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use keepsake_core::{MendedJson, TenantId};
use keepsake_engine::{Engine, EngineError};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use crate::Access;
use crate::message::{Incoming, InvalidMessage, Message, MessageKind};
use crate::server::{MemoryServer, NotUnicode};

const VERSION: &str = "mcp-protocol-version";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

type McpResponse = Response<BoxBody<Bytes, Infallible>>;

/// Protection against requests of foreign web pages.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Allowed `Host` names; empty: any.
    pub allowed_hosts: Vec<String>,
    /// Allowed origins of web pages, as browsers send them; empty: none. A port `*` is any.
    pub allowed_origins: Vec<String>,
}

impl HttpOptions {
    pub fn allows_origin(&self, origin: &str) -> bool {
        let sent = with_port(origin);
        let is_sent = |allowed: &String| {
            let allowed = with_port(allowed);
            let Some(of_any_port) = allowed.strip_suffix('*') else {
                return allowed == sent;
            };
            let port = sent.strip_prefix(of_any_port);
            port.is_some_and(|port| port.parse::<u16>().is_ok())
        };
        self.allowed_origins.iter().any(is_sent)
    }
}

/// An origin with its port, which browsers leave out if it is the scheme's own.
fn with_port(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let (host, port) = match origin.split_once("://") {
        Some(("https", host)) => (host, 443),
        Some(("http", host)) => (host, 80),
        _ => return origin,
    };
    // An IPv6 address has colons itself.
    let has_port = host.rfind(':') > host.rfind(']');
    if has_port { origin } else { format!("{origin}:{port}") }
}

/// Answers single requests of any client; cheap to clone.
#[derive(Clone)]
pub struct HttpService {
    engine: Engine,
    service: StreamableHttpService<MemoryServer, NeverSessionManager>,
}

impl HttpService {
    /// Keeps no sessions, so every replica can answer every request.
    pub fn new(engine: Engine, options: HttpOptions) -> Self {
        // The body was read with a size limit before, and the origin was checked.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(usize::MAX)
            .with_allowed_hosts(options.allowed_hosts);
        let server = MemoryServer(engine.clone());
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
        Self { engine, service }
    }

    /// Large messages are parsed in a slot of the tenant.
    pub async fn answer(
        &self,
        access: Access,
        mut head: Parts,
        body: Bytes,
    ) -> Result<McpResponse, EngineError> {
        let tenant_id = access.principal.tenant_id;
        head.extensions.insert(access);
        // The handler runs in another task, which continues this span.
        head.extensions.insert(tracing::Span::current());
        // Responses are always JSON, although the library requires both types.
        let both = HeaderValue::from_static("application/json, text/event-stream");
        head.headers.insert(header::ACCEPT, both);
        head.headers.insert(header::CONTENT_TYPE, JSON);
        let version = head.headers.get(VERSION).and_then(|version| version.to_str().ok());
        let (version, bytes) = (version.map(str::to_owned), body.len());
        let read = move || Incoming::read(&body, version.as_deref(), version.as_deref());
        Ok(match self.engine.computations.parse(tenant_id, bytes, read).await? {
            Err(invalid) => refusal(&invalid),
            Ok(Incoming::Single(message)) => match message.kind {
                MessageKind::Response => {
                    let why = "the server sends no requests, so it takes no responses";
                    refusal(&InvalidMessage::request(Value::Null, why))
                }
                MessageKind::Request | MessageKind::Notification => {
                    self.serve(tenant_id, head, message).await?
                }
            },
            Ok(Incoming::Batch(messages)) => self.serve_batch(tenant_id, &head, messages).await?,
        })
    }

    /// Answers a message that did not come over HTTP; `None`: it has no answer.
    pub async fn answer_local(&self, access: Access, headers: HeaderMap, message: Bytes) -> Option<Value> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::POST;
        head.headers = headers;
        head.headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        let response = self.answer(access, head, message).await;
        json_of(response.ok()?).await
    }

    async fn serve(
        &self,
        tenant_id: TenantId,
        mut head: Parts,
        message: Message,
    ) -> Result<McpResponse, EngineError> {
        // The library parses the text again.
        drop(message.value);
        let mut text = message.sent;
        if let Some(MendedJson { json, field }) = message.mended {
            head.extensions.insert(NotUnicode(field));
            text = json.into();
        }
        let (bytes, service) = (text.len(), self.service.clone());
        let request = Request::from_parts(head, Full::new(text));
        let response = Box::pin(async move { service.handle(request).await });
        self.engine.computations.parse_first(tenant_id, bytes, response).await
    }

    /// Serves the messages of a batch one after the other, and answers its requests together.
    async fn serve_batch(
        &self,
        tenant_id: TenantId,
        head: &Parts,
        messages: Vec<Result<Message, InvalidMessage>>,
    ) -> Result<McpResponse, EngineError> {
        let mut answers = Vec::new();
        for message in messages {
            match message {
                Err(invalid) => answers.push(invalid.answer()),
                Ok(Message { kind: MessageKind::Response, .. }) => {}
                Ok(message) => {
                    let response = self.serve(tenant_id, head.clone(), message).await?;
                    if response.status() != StatusCode::ACCEPTED
                        && response.headers().get(header::CONTENT_TYPE) != Some(&JSON)
                    {
                        // The refused header is one that all messages have.
                        return Ok(response);
                    }
                    answers.extend(json_of(response).await);
                }
            }
        }
        if answers.is_empty() {
            return Ok(response_of(StatusCode::ACCEPTED, Bytes::new()));
        }
        Ok(response_of(StatusCode::OK, Value::Array(answers).to_string().into()))
    }
}

fn refusal(invalid: &InvalidMessage) -> McpResponse {
    response_of(invalid.status(), invalid.answer().to_string().into())
}

fn response_of(status: StatusCode, body: Bytes) -> McpResponse {
    let mut response = Response::new(Full::new(body).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// The JSON of a response; `None`: it has none.
async fn json_of(response: McpResponse) -> Option<Value> {
    let Ok(body) = response.into_body().collect().await;
    serde_json::from_slice(&body.to_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_send_them() {
        let allowed = [
            "https://app.example.com",
            "HTTPS://Other.example:443",
            "http://localhost:*",
            "http://[::1]:8080",
        ];
        let allowed_origins = allowed.map(str::to_owned).to_vec();
        let options = HttpOptions { allowed_origins, ..HttpOptions::default() };
        let same = "https://app.example.com https://app.example.com:443 https://other.example http://localhost \
            http://localhost:3000 http://[::1]:8080";
        let others = "https://app.example.com:8443 http://app.example.com https://app.example.com.evil.example \
            http://localhost.evil.example:80 http://[::1] null ";
        for (origins, is_allowed) in [(same, true), (others, false)] {
            for origin in origins.split(' ') {
                assert_eq!(options.allows_origin(origin), is_allowed, "{origin}");
            }
        }
        assert!(!HttpOptions::default().allows_origin("https://app.example.com"));
    }
}
