//! Forwards MCP messages from stdin to a server, and its answers to stdout.
//!
//! Each message is one HTTP request, so a slow one does not delay others. The
//! headers that MCP requires over HTTP are set from the messages.

use std::sync::{Arc, OnceLock};

use keepsake_client::{Client, StatusCode, body_of, causes, from_json};
use keepsake_config::Failure;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdout};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::cli::McpArgs;
use crate::output::{Stream, notice};
use crate::people::{connect, find_store};

/// The variable with the store, if `--store` is not given. It is not a store in a folder.
const STORE_VARIABLE: &str = "KEEPSAKE_STORE";
/// The first protocol version that requires a request's method and name in headers.
const HEADERS_SINCE: &str = "2026-07-28";
/// The place of the protocol version in a request, since that version.
const VERSION_OF_REQUEST: &str = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
/// The first of the error codes that JSON-RPC reserves for servers.
const SERVER_ERROR: i64 = -32_000;

/// Forwards messages until the client closes stdin.
///
/// # Errors
/// [`Failure`] if there is no credential or no such store, or stdin or stdout fails.
pub(super) async fn run(args: &McpArgs) -> Result<(), Failure> {
    let (client, of_context) = connect(&args.server)?;
    // A session's token has its own stores.
    let of_context = of_context.filter(|_| args.server.api_key.is_none());
    let named = args.store.clone().or_else(|| std::env::var(STORE_VARIABLE).ok());
    let store_id = match named.or(of_context) {
        Some(store) => Some(find_store(&client, &store).await?),
        None => None,
    };
    let bridge = Arc::new(Bridge {
        url: match store_id {
            Some(store_id) => format!("{}/mcp/{store_id}", client.url()),
            None => format!("{}/mcp", client.url()),
        },
        client,
        version: OnceLock::new(),
        stdout: Mutex::new(tokio::io::stdout()),
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut carried = JoinSet::new();
    while let Some(line) = lines.next_line().await.map_err(Failure::of("stdin failed"))? {
        if line.trim().is_empty() {
            continue;
        }
        let bridge = Arc::clone(&bridge);
        carried.spawn(async move { bridge.carry(line).await });
        while let Some(ended) = carried.try_join_next() {
            forwarding_result(ended)?;
        }
    }
    while let Some(ended) = carried.join_next().await {
        forwarding_result(ended)?;
    }
    Ok(())
}

fn forwarding_result(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(written) => written.map_err(Failure::of("stdout failed")),
        Err(_) => Err(Failure::new("a message was not forwarded: this is a bug".to_owned())),
    }
}

struct Bridge {
    client: Client,
    url: String,
    /// The protocol version that `initialize` negotiated.
    version: OnceLock<String>,
    stdout: Mutex<Stdout>,
}

impl Bridge {
    /// Forwards one message to the server and its answer to the client.
    async fn carry(&self, line: String) -> std::io::Result<()> {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            let error = json!({"code": -32_700, "message": "not JSON"});
            return self.write(&json!({"jsonrpc": "2.0", "id": null, "error": error})).await;
        };
        let answer = self.ask(&message, line).await;
        // A notification has no answer, even if it failed.
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
            if let Err(why) = answer {
                notice(&format!("keepsake: a notification failed: {why}"));
            }
            return Ok(());
        };
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => failed(id, "the server sent no answer"),
            Err(why) => failed(id, &why),
        };
        if message["method"] == "initialize"
            && let Some(version) = answer["result"]["protocolVersion"].as_str()
        {
            // A client initializes only once.
            let _ = self.version.set(version.to_owned());
        }
        self.write(&answer).await
    }

    /// The server's answer to a message, if there is one.
    async fn ask(&self, message: &Value, body: String) -> Result<Option<Value>, String> {
        let why = |error: reqwest::Error| causes(&error.without_url());
        let response = self
            .client
            .http()
            .post(&self.url)
            .headers(headers(message, self.version.get().map(String::as_str)))
            .body(body)
            .send()
            .await
            .map_err(|error| format!("{} cannot be reached: {}", self.client.url(), why(error)))?;
        let status = response.status();
        let body = body_of(response)
            .await
            .map_err(|error| format!("the server's answer cannot be read: {error}"))?;
        if status == StatusCode::ACCEPTED {
            return Ok(None);
        }
        let answer: Value =
            from_json(&body).map_err(|_| format!("the server answered {status} without JSON"))?;
        if answer.get("jsonrpc").is_some() {
            return Ok(Some(answer));
        }
        let why = answer["error"]["message"].as_str().unwrap_or("no reason is given");
        Err(format!("the server answered {status}: {why}"))
    }

    async fn write(&self, message: &Value) -> std::io::Result<()> {
        let mut stdout = self.stdout.lock().await;
        let line = format!("{message}\n");
        stdout.write_all(Stream::Stdout.shown(&line).as_bytes()).await?;
        stdout.flush().await
    }
}

fn failed(id: &Value, why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": SERVER_ERROR, "message": why}})
}

/// The headers that MCP over HTTP requires for a message.
fn headers(message: &Value, agreed: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([
        (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
        (reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
    ]);
    let method = message["method"].as_str().unwrap_or_default();
    let of_request = message.pointer(VERSION_OF_REQUEST).and_then(Value::as_str);
    let Some(version) = of_request.or(agreed).filter(|_| method != "initialize") else {
        return headers;
    };
    let mut set_header = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set_header("mcp-protocol-version", version);
    if version >= HEADERS_SINCE {
        set_header("mcp-method", method);
        let name = match method {
            "tools/call" | "prompts/get" => message["params"]["name"].as_str(),
            "resources/read" => message["params"]["uri"].as_str(),
            _ => None,
        };
        if let Some(name) = name {
            set_header("mcp-name", name);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_method_and_name_are_sent_as_headers() {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let initialize =
            json!({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
        let list = json!({"id": 2, "method": "tools/list"});
        let call = json!({"id": 3, "method": "tools/call", "params": {"name": "memory_list", "_meta": meta}});
        let agreed = ("mcp-protocol-version", "2025-06-18");
        let newer = [
            ("mcp-method", "tools/call"),
            ("mcp-name", "memory_list"),
            ("mcp-protocol-version", "2026-07-28"),
        ];
        for (message, version, expected) in [
            (initialize, None, &[][..]),
            (list.clone(), Some("2025-06-18"), &[agreed]),
            (list, None, &[]),
            (call, None, &newer),
        ] {
            let headers = headers(&message, version);
            let sent = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            let mut sent: Vec<_> = sent.filter(|(name, _)| name.starts_with("mcp-")).collect();
            sent.sort_unstable();
            assert_eq!(sent, expected, "{message}");
        }
    }
}
