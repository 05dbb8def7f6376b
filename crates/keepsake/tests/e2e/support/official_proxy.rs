//! A proxy before a server that makes it one of another maker: it lets only calls, parameters, headers
//! and fields pass that the official SDKs have, and shows only the fields that they know.

use std::io;
use std::sync::{Arc, Mutex};

use keepsake_testkit::locked;
use proptest::prelude::Rng;
use proptest::test_runner::TestRunner;
use reqwest::Method;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::client::plain_http;

const PARAMETERS: [&str; 14] = [
    "api_key_id",
    "beta",
    "created_at[gte]",
    "created_at[lte]",
    "depth",
    "expected_content_sha256",
    "include_archived",
    "limit",
    "memory_id",
    "operation",
    "page",
    "path_prefix",
    "session_id",
    "view",
];
const HEADERS: [&str; 9] = [
    "accept",
    "anthropic-beta",
    "anthropic-version",
    "authorization",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-api-key",
];
/// Fields of answers that only this server has.
const OWN_FIELDS: [&str; 9] = [
    "content_bytes",
    "expires_at",
    "expires_unused_after",
    "expiry_time",
    "last_accessed_at",
    "memory_count",
    "pinned",
    "sensitive_data_policy",
    "size_bytes",
];

/// A running proxy; stops when dropped.
#[derive(Debug)]
pub(crate) struct OfficialProxy {
    pub(crate) url: String,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    upstream: String,
    http: reqwest::Client,
    /// Whether answers state the hashes of contents.
    has_hashes: bool,
    /// Decides which calls fail; `None`: none does.
    faults: Option<Mutex<TestRunner>>,
    /// Calls that the official API does not have, and why.
    refused: Mutex<Vec<String>>,
}

struct Call {
    method: Method,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl OfficialProxy {
    pub(crate) async fn start(upstream: &str, has_hashes: bool, faults: Option<TestRunner>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            upstream: upstream.to_owned(),
            http: plain_http().build().unwrap(),
            has_hashes,
            faults: faults.map(Mutex::new),
            refused: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // The client notices a broken connection itself.
                tokio::spawn(async move { drop(state.serve(client).await) });
            }
        });
        Self { url, state, accepting }
    }

    pub(crate) fn refused(&self) -> Vec<String> {
        locked(&self.state.refused).clone()
    }
}

impl Drop for OfficialProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl State {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        let (from, mut to) = client.into_split();
        let mut from = BufReader::new(from);
        while let Some(call) = read_call(&mut from).await? {
            let (status, retry_after, body) = self.answer(call).await;
            let head = format!(
                "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\n{retry_after}content-length: {}\r\n\r\n",
                body.len()
            );
            to.write_all(head.as_bytes()).await?;
            to.write_all(body.as_bytes()).await?;
        }
        Ok(())
    }

    async fn answer(&self, call: Call) -> (u16, &'static str, String) {
        if let Some((status, why)) = refusal(&call) {
            locked(&self.refused).push(format!("{} {} {why}", call.method, call.target));
            return (status, "", error("not_found_error", &why));
        }
        // Of 256: 6 are not taken, 3 fail before, and 3 after they were carried out.
        let dice = self.faults.as_ref().map_or(u32::MAX, |runner| locked(runner).rng().next_u32() % 256);
        match dice {
            0..6 => return (429, "retry-after: 1\r\n", error("rate_limit_error", "too many requests")),
            6..9 => return (500, "", error("api_error", "failed before")),
            _ => {}
        }
        let mut request =
            self.http.request(call.method, format!("{}{}", self.upstream, call.target)).body(call.body);
        for (name, value) in
            call.headers.iter().filter(|(name, _)| !["host", "content-length"].contains(&name.as_str()))
        {
            request = request.header(name, value);
        }
        let response = request.send().await.unwrap();
        let (status, mut body) = (response.status().as_u16(), response.json::<Value>().await.unwrap());
        if (9..12).contains(&dice) {
            return (500, "", error("api_error", "failed after"));
        }
        self.remove_own_fields(&mut body);
        (status, "", body.to_string())
    }

    fn remove_own_fields(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| {
                    let is_hash = name == "content_sha256" && !self.has_hashes;
                    !(is_hash || OWN_FIELDS.contains(&name.as_str()))
                });
                fields.values_mut().for_each(|value| self.remove_own_fields(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|value| self.remove_own_fields(value)),
            _ => {}
        }
    }
}

fn error(kind: &str, message: &str) -> String {
    serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
}

/// Why a call is not one of the official API.
fn refusal(call: &Call) -> Option<(u16, String)> {
    let (path, query) = call.target.split_once('?').unwrap_or((&call.target, ""));
    let segments = path.strip_prefix("/v1/").unwrap_or_default().split('/');
    let is_id =
        |segment: &str| ["memstore_", "mem_", "memver_"].iter().any(|prefix| segment.starts_with(prefix));
    let shape: Vec<_> = segments.map(|segment| if is_id(segment) { "*" } else { segment }).collect();
    let fields: &[&str] = match format!("{} {}", call.method, shape.join("/")).as_str() {
        "GET memory_stores"
        | "GET memory_stores/*"
        | "GET memory_stores/*/memories"
        | "GET memory_stores/*/memories/*"
        | "GET memory_stores/*/memory_versions"
        | "GET memory_stores/*/memory_versions/*"
        | "DELETE memory_stores/*"
        | "DELETE memory_stores/*/memories/*"
        | "POST memory_stores/*/archive"
        | "POST memory_stores/*/memory_versions/*/redact" => &[],
        "POST memory_stores" | "POST memory_stores/*" => &["name", "description", "metadata"],
        "POST memory_stores/*/memories" => &["path", "content"],
        "POST memory_stores/*/memories/*" => &["path", "content", "precondition"],
        _ => return Some((404, "no such route".to_owned())),
    };
    let names = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap());
    let unknown = names.map(|name| name.replace("%5B", "[").replace("%5D", "]"));
    if let Some(name) = unknown.into_iter().find(|name| !PARAMETERS.contains(&name.as_str())) {
        return Some((400, format!("parameter {name}")));
    }
    if let Some((name, _)) = call.headers.iter().find(|(name, _)| !HEADERS.contains(&name.as_str())) {
        return Some((400, format!("header {name}")));
    }
    if !call
        .headers
        .iter()
        .any(|(name, value)| name == "anthropic-beta" && value.contains("agent-memory-2026-07-22"))
    {
        return Some((400, "no anthropic-beta".to_owned()));
    }
    let body = serde_json::from_slice::<Value>(&call.body).unwrap_or_default();
    let mut given = body.as_object().into_iter().flat_map(|body| body.keys());
    given.find(|name| !fields.contains(&name.as_str())).map(|name| (400, format!("field {name}")))
}

async fn read_call(from: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<Call>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned());
    let header = |line: &String| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines[1..].iter().map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    from.read_exact(&mut body).await?;
    Ok(Some(Call { method, target, headers, body }))
}
