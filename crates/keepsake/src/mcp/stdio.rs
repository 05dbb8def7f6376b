//! Serves one MCP client over stdin and stdout, with a message on each line.
//!
//! Each message is served by itself, so a slow one does not delay others. The headers
//! that MCP requires over HTTP are set from the messages.

use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use keepsake_config::{Failure, cli::Result};
use keepsake_mcp::message::{Incoming, InvalidMessage, Message, MessageKind, VERSION_OF_REQUEST};
use keepsake_mcp::{Access, HttpService};
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Stdin, Stdout};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::Bridge;
use crate::output::{Stream, notice};

/// The longest line, far above what a memory may have.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// The first protocol version that requires a request's method and name in headers.
const HEADERS_SINCE: &str = "2026-07-28";
/// The first of the error codes that JSON-RPC reserves for servers.
const SERVER_ERROR: i64 = -32_000;

pub(super) enum Backend {
    /// The memories of a folder, in this process.
    Folder(Box<HttpService>, Access),
    Server(Bridge),
}

struct Stdio {
    backend: Backend,
    /// The protocol version that `initialize` negotiated.
    version: OnceLock<String>,
    stdout: Mutex<Stdout>,
}

/// Serves messages until the client closes stdin. A line that is no message is answered
/// with an error, and the next one is served.
pub(super) async fn serve(backend: Backend) -> Result<()> {
    let stdout = Mutex::new(tokio::io::stdout());
    let stdio = Arc::new(Stdio { backend, version: OnceLock::new(), stdout });
    let mut input = BufReader::new(tokio::io::stdin());
    let mut under_way = JoinSet::new();
    while let Some(line) = next_line(&mut input).await.map_err(Failure::of("stdin failed"))? {
        let incoming = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => Incoming::read(&line, stdio.version.get().map(String::as_str), None),
            Line::TooLong => Err(InvalidMessage::request(
                Value::Null,
                format!("a line must have at most {MAX_LINE_BYTES} bytes"),
            )),
        };
        let stdio = Arc::clone(&stdio);
        match incoming {
            Err(invalid) => stdio.write(&invalid.answer()).await.map_err(Failure::of("stdout failed"))?,
            // The following messages have the version that `initialize` negotiates.
            Ok(Incoming::Single(message)) if message.is_initialize() => {
                stdio.carry(Incoming::Single(message)).await.map_err(Failure::of("stdout failed"))?;
            }
            Ok(incoming) => {
                under_way.spawn(async move { stdio.carry(incoming).await });
            }
        }
        while let Some(ended) = under_way.try_join_next() {
            result_of(ended)?;
        }
    }
    while let Some(ended) = under_way.join_next().await {
        result_of(ended)?;
    }
    Ok(())
}

fn result_of(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<()> {
    match ended {
        Ok(written) => written.map_err(Failure::of("stdout failed")),
        Err(_) => Err(Failure::new("a message was not served: this is a bug".to_owned())),
    }
}

enum Line {
    Whole(Bytes),
    /// The bytes of the line were discarded.
    TooLong,
}

/// The next line; `None` if stdin is closed.
async fn next_line(stdin: &mut BufReader<Stdin>) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        line.clear();
        let read = (&mut *stdin).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await?;
        if read == 0 && !is_too_long {
            return Ok(None);
        }
        let is_end = line.ends_with(b"\n") || (read as u64) < MAX_LINE_BYTES;
        if is_end {
            return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line.into()) }));
        }
        is_too_long = true;
    }
}

impl Stdio {
    /// Serves the messages of one line, and writes the answer.
    async fn carry(&self, incoming: Incoming) -> io::Result<()> {
        match incoming {
            Incoming::Single(message) => match self.answer(message).await {
                Some(answer) => self.write(&answer).await,
                None => Ok(()),
            },
            Incoming::Batch(messages) => {
                let mut answers = Vec::new();
                for message in messages {
                    match message {
                        Ok(message) => answers.extend(self.answer(message).await),
                        Err(invalid) => answers.push(invalid.answer()),
                    }
                }
                if answers.is_empty() { Ok(()) } else { self.write(&Value::Array(answers)).await }
            }
        }
    }

    async fn answer(&self, message: Message) -> Option<Value> {
        let kind = message.kind;
        if kind == MessageKind::Response {
            return None;
        }
        let headers = headers(&message.value, self.version.get().map(String::as_str));
        let (value, sent) = message.into_sent();
        let answered = match &self.backend {
            Backend::Folder(service, access) => Ok(service.answer_local(access.clone(), headers, sent).await),
            Backend::Server(bridge) => bridge.ask(headers, sent).await,
        };
        if kind == MessageKind::Notification {
            if let Err(why) = answered {
                notice(&format!("keepsake: a notification failed: {why}"));
            }
            return None;
        }
        let answer = match answered {
            Ok(Some(answer)) => answer,
            Ok(None) => failed(&value["id"], "the server sent no answer"),
            Err(why) => failed(&value["id"], &why),
        };
        if value["method"] == "initialize"
            && let Some(version) = answer["result"]["protocolVersion"].as_str()
        {
            // A client initializes only once.
            let _ = self.version.set(version.to_owned());
        }
        Some(answer)
    }

    async fn write(&self, message: &Value) -> io::Result<()> {
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
