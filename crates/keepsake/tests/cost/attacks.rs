//! The attacks of a hostile tenant. Each attack is bounded in count and time, and
//! its requests may be refused: only the victim's must not.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use keepsake_core::StoreId;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::browser::Browser;
use crate::support::client::{tool_calls, try_send};
use crate::support::{Client, Tenant};

const SESSIONS: usize = 100;
const CONNECTIONS: usize = 60;
const UNREAD: usize = 100;
const SLOW: usize = 200;
pub(super) const BROWSERS: usize = 8;
const STORES: usize = 16;
const MEMORIES: usize = 25;
const WORDS: usize = 1_500;
const AGENT_BYTES: usize = 250 << 10;
pub(super) const BODY_BYTES: usize = 600 << 10;
/// The interval at which an attack checks whether it should stop.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// The pause of a connection between two requests, so that the attack does not
/// take the processor from the server: both are on one machine.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// A list of as many objects as fit, each of which takes a hundred times as much
/// memory once it is parsed.
fn objects(bytes: usize) -> String {
    let item = "{\"\":0},";
    let mut text = "[".to_owned() + &item.repeat(bytes / item.len());
    text.pop();
    text.push(']');
    text
}

/// A body with its content type.
async fn post_text(client: &Client, path: &str, body: String) -> reqwest::Result<u16> {
    let request = client
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    Ok(try_send(request.body(body)).await?.status)
}

/// Makes a full page of sessions whose agents are as costly as they may be.
pub(super) async fn fill_with_sessions(client: &Client) {
    let session = |tools: &str, system: &str| {
        format!(
            r#"{{"environment_id":"env_1","agent":{{"type":"agent","id":"a","tools":{tools},"system":"{system}"}}}}"#
        )
    };
    let hostile = session(&objects(AGENT_BYTES), "");
    let modest = session(&objects(32 << 10), &"x".repeat(200 << 10));
    let is_taken = post_text(client, "/v1/sessions", hostile.clone()).await.unwrap() == 200;
    let body = if is_taken { hostile } else { modest };
    for _ in 0..SESSIONS {
        assert_eq!(post_text(client, "/v1/sessions", body.clone()).await.unwrap(), 200);
    }
}

/// Lists full pages over many connections and discards the answers.
pub(super) async fn list_sessions(client: Client, stop: Arc<AtomicBool>) {
    let lists = (0..CONNECTIONS).map(|_| async {
        while !is_stopped(&stop) {
            let Ok(mut response) = client.request(Method::GET, "/v1/sessions?limit=100").send().await else {
                return;
            };
            while let Ok(Some(_)) = response.chunk().await {}
            tokio::time::sleep(PAUSE).await;
        }
    });
    join_all(lists).await;
}

/// Posts tool calls and MCP messages that hold as many values as fit.
pub(super) async fn post_many_values(client: Client, store_id: StoreId, stop: Arc<AtomicBool>) {
    let values = objects(BODY_BYTES);
    let few = objects(6 << 10);
    let call = |values: &str| format!(r#"{{"command":"view","path":"/memories","x":{values}}}"#);
    let message = |values: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"memory_read","arguments":{{"x":{values}}}}}}}"#
        )
    };
    let (calls, mcp) = (tool_calls(store_id), format!("/mcp/{store_id}"));
    let bodies =
        [(&calls, call(&values)), (&mcp, message(&values)), (&calls, call(&few)), (&mcp, message(&few))];
    let posts = (0..CONNECTIONS).map(|number| {
        let (path, body) = &bodies[number % bodies.len()];
        let (client, stop) = (&client, &stop);
        async move {
            while !is_stopped(stop) {
                // The server may close the connection before it has read the body.
                let _ = post_text(client, path, body.clone()).await;
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
    join_all(posts).await;
}

/// Makes memories whose content takes six times as much in an answer.
pub(super) async fn fill_with_escapes(client: &Client, tenant: &Tenant) {
    let text = "\u{1}".repeat(100 << 10);
    for number in 0..20 {
        let input = json!({"command": "create", "path": format!("/memories/{number}"), "file_text": text});
        client.tool_ok(tenant, &input).await;
    }
}

/// Asks for the largest answers over many sockets, and reads only that there is
/// one; the sockets stay open as long as they are kept.
pub(super) async fn leave_answers_unread(port: u16, tenant: &Tenant) -> Vec<TcpStream> {
    let request = format!(
        "GET /v1/memory_stores/{}/memories?view=full&limit=20 HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\n\r\n",
        tenant.store_id, tenant.key
    );
    let mut sockets = Vec::new();
    for _ in 0..UNREAD {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.read_exact(&mut [0; 12]).await.unwrap();
        sockets.push(socket);
    }
    sockets
}

/// Sends bodies a little at a time over many sockets.
pub(super) async fn send_slow_bodies(port: u16, tenant: Tenant, stop: Arc<AtomicBool>) {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: {BODY_BYTES}\r\n\r\n",
        tool_calls(tenant.store_id),
        tenant.key
    );
    let bodies = (0..SLOW).map(|_| async {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut left = BODY_BYTES - 1;
        if socket.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        while !is_stopped(&stop) {
            let sent_bytes = left.min(64 << 10);
            if socket.write_all(&vec![b' '; sent_bytes]).await.is_err() {
                return;
            }
            left -= sent_bytes;
            tokio::time::sleep(POLL).await;
        }
    });
    join_all(bodies).await;
}

/// Makes stores whose search indexes are large.
pub(super) async fn fill_stores(client: &Client) -> Vec<String> {
    let mut stores = Vec::new();
    for number in 0..STORES {
        let made = client.post("/v1/memory_stores", &json!({"name": format!("s{number}")})).await;
        let store = format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap());
        for memory in 0..MEMORIES {
            let mut content = String::new();
            for word in 0..WORDS {
                let _ = write!(content, "w{:x} ", (word * 7_919 + memory * 104_729 + number) % 1_000_003);
            }
            let body = json!({"path": format!("/{memory}"), "content": content});
            let made = client.post(&format!("{store}/memories"), &body).await;
            assert_eq!(made.status, 200, "{}", made.text);
        }
        stores.push(store);
    }
    stores
}

/// Searches all of them, again and again.
pub(super) async fn search_stores(client: Client, stores: Vec<String>, stop: Arc<AtomicBool>) {
    let searches = (0..CONNECTIONS).map(|number| {
        let path = format!("{}/search?query=w1f4", stores[number % stores.len()]);
        let (client, stop) = (&client, &stop);
        async move {
            while !is_stopped(stop) {
                let _ = try_send(client.request(Method::GET, &path)).await;
                tokio::time::sleep(POLL).await;
            }
        }
    });
    join_all(searches).await;
}

/// Opens a session on a store; answers its path.
pub(super) async fn open_session(client: &Client, store_id: StoreId) -> String {
    let body = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": store_id.to_string()},
    ]});
    let made = client.post("/v1/sessions", &body).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let made = made.json();
    crate::support::secrets::remember(made["token"].as_str().unwrap(), "a session's token");
    format!("/v1/sessions/{}", made["id"].as_str().unwrap())
}

/// Posts calls that are refused, and whose events are as large as they may be.
pub(super) async fn post_invalid_calls(client: &Client, session: &str) {
    let fields = [
        "command",
        "view_range",
        "insert_line",
        "depth",
        "offset",
        "limit",
        "path",
        "old_path",
        "new_path",
        "path_prefix",
        "content",
        "edits",
        "expected_content_sha256",
        "file_text",
        "insert_text",
        "new_str",
        "old_str",
        "page",
        "precondition",
        "query",
    ];
    let input: Value = fields.iter().map(|field| (*field, "not a value!")).collect();
    let path = format!("{session}/tool_calls");
    let posts = (0..CONNECTIONS).map(|_| async {
        let mut taken = 0;
        while taken < 3_600 / CONNECTIONS {
            let answer = client.post(&path, &input).await;
            match answer.status {
                200 => taken += 1,
                429 | 529 => tokio::time::sleep(POLL).await,
                other => panic!("{other}: {}", answer.text),
            }
        }
    });
    join_all(posts).await;
}

/// Memories whose pages take as long to make as any.
pub(super) struct HostileTexts {
    pub(super) memory_ids: Vec<String>,
    pub(super) version_id: String,
    /// The query of the most costly comparison.
    pub(super) compare: String,
}

impl HostileTexts {
    pub(super) async fn fill(client: &Client, tenant: &Tenant) -> Self {
        let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
        let mut memory_ids = Vec::new();
        for text in [
            "> ".repeat(48 << 10),
            "> ".repeat(12 << 10),
            "<a ".repeat(32 << 10),
            "[".repeat(96 << 10),
            "*_".repeat(48 << 10),
            "`".repeat(96 << 10),
            "|a".repeat(40 << 10),
        ] {
            let path = format!("/{}.md", memory_ids.len());
            let made = client.post(&memories, &json!({"path": path, "content": text})).await;
            assert_eq!(made.status, 200, "{}", made.text);
            memory_ids.push(made.json()["id"].as_str().unwrap().to_owned());
        }
        let new = json!({"path": "/lines.md", "content": "a\n".repeat(51_200)});
        let made = client.post(&memories, &new).await.json();
        let edit = json!({"content": "b\na\n".repeat(25_600)});
        let memory = format!("{memories}/{}", made["id"].as_str().unwrap());
        let edited = client.post(&memory, &edit).await.json();
        let version = |memory: &Value| memory["memory_version_id"].as_str().unwrap().to_owned();
        let (from, to) = (version(&made), version(&edited));
        Self { memory_ids, compare: format!("from={from}&to={to}"), version_id: to }
    }

    /// The pages with these texts.
    pub(super) fn pages(&self, tenant: &Tenant) -> Vec<String> {
        let store = format!("/console/stores/{}", tenant.store_id);
        let of_memories = self.memory_ids.iter().map(|id| format!("{store}/memories/{id}"));
        let compare = format!("{store}/compare?{}", self.compare);
        of_memories.chain([compare]).collect()
    }
}

/// Opens the pages again and again.
pub(super) async fn open_pages(browser: Browser, pages: &[String], stop: Arc<AtomicBool>) {
    let readers = (0..BROWSERS).map(|number| {
        let (mut browser, stop) = (browser.clone(), &stop);
        async move {
            let mut turn = number;
            while !is_stopped(stop) {
                browser.get(&pages[turn % pages.len()]).await;
                turn += 1;
            }
        }
    });
    join_all(readers).await;
}
