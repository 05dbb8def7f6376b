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

use crate::support::client::{ok, tool_calls, try_send};
use crate::support::{Client, Tenant};

const CONNECTIONS: usize = 60;
pub(super) const BODY_BYTES: usize = 600 << 10;
/// The interval at which an attack checks whether it should stop.
const POLL: Duration = Duration::from_millis(20);
/// The pause of a connection between two requests, so that the attack does not
/// take the processor from the server: both are on one machine.
const PAUSE: Duration = Duration::from_secs(1);

/// Attacks from several connections; `attack` gets the number of the connection, and how
/// often it has attacked.
pub(super) async fn repeat(
    connections: usize,
    pause: Duration,
    stop: &AtomicBool,
    attack: impl AsyncFn(usize, usize),
) {
    let attacks = (0..connections).map(async |number| {
        let mut turn = 0;
        while !stop.load(Ordering::Relaxed) {
            attack(number, turn).await;
            turn += 1;
            tokio::time::sleep(pause).await;
        }
    });
    join_all(attacks).await;
}

/// A list of as many objects as fit, each of which takes a hundred times as much
/// memory once it is parsed.
fn objects(bytes: usize) -> String {
    let item = "{\"\":0},";
    let items = item.repeat(bytes / item.len());
    format!("[{}]", items.trim_end_matches(','))
}

async fn post_text(client: &Client, path: &str, body: String) -> reqwest::Result<u16> {
    let request = client.request(Method::POST, path).header("content-type", "application/json");
    let request = request.header("accept", "application/json, text/event-stream");
    Ok(try_send(request.body(body)).await?.status)
}

/// Makes a full page of sessions whose agents are as costly as they may be.
pub(super) async fn fill_with_sessions(client: &Client) {
    let (tools, system) = (objects(32 << 10), "x".repeat(200 << 10));
    let agent = format!(r#"{{"type":"agent","id":"a","tools":{tools},"system":"{system}"}}"#);
    let body = format!(r#"{{"environment_id":"env_1","agent":{agent}}}"#);
    for _ in 0..100 {
        assert_eq!(post_text(client, "/v1/sessions", body.clone()).await.unwrap(), 200);
    }
}

/// Lists full pages over many connections and discards the answers.
pub(super) async fn list_sessions(client: &Client, stop: Arc<AtomicBool>) {
    repeat(CONNECTIONS, PAUSE, &stop, async |_, _| {
        if let Ok(mut response) = client.request(Method::GET, "/v1/sessions?limit=100").send().await {
            while let Ok(Some(_)) = response.chunk().await {}
        }
    })
    .await;
}

/// Posts tool calls and MCP messages that hold as many values as fit, and some.
pub(super) async fn post_many_values(client: &Client, store_id: StoreId, stop: Arc<AtomicBool>) {
    let call = |values: &str| format!(r#"{{"command":"view","path":"/memories","x":{values}}}"#);
    let message = |values: &str| {
        let arguments = format!(r#"{{"name":"memory_read","arguments":{{"x":{values}}}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{arguments}}}"#)
    };
    let (calls, mcp) = (tool_calls(store_id), format!("/mcp/{store_id}"));
    let (many, few) = (objects(BODY_BYTES), objects(6 << 10));
    let bodies = [(&calls, call(&many)), (&mcp, message(&many)), (&calls, call(&few)), (&mcp, message(&few))];
    repeat(CONNECTIONS, PAUSE, &stop, async |number, _| {
        let (path, body) = &bodies[number % bodies.len()];
        // The server may close the connection before it has read the body.
        let _ = post_text(client, path, body.clone()).await;
    })
    .await;
}

/// Asks for the largest answers over many sockets, and reads only that there is
/// one; the sockets stay open as long as they are kept.
pub(super) async fn leave_answers_unread(port: u16, tenant: &Tenant) -> Vec<TcpStream> {
    let request = format!(
        "GET /v1/memory_stores/{}/memories?view=full&limit=20 HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\n\r\n",
        tenant.store_id, tenant.key
    );
    let mut sockets = Vec::new();
    for _ in 0..100 {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.read_exact(&mut [0; 12]).await.unwrap();
        sockets.push(socket);
    }
    sockets
}

pub(super) async fn send_slow_bodies(port: u16, tenant: &Tenant, stop: Arc<AtomicBool>) {
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: {BODY_BYTES}\r\n\r\n",
        tool_calls(tenant.store_id),
        tenant.key
    );
    let bodies = (0..200).map(async |_| {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut bytes = head.clone().into_bytes();
        let mut left = BODY_BYTES - 1;
        while !stop.load(Ordering::Relaxed) && socket.write_all(&bytes).await.is_ok() {
            bytes = vec![b' '; left.min(64 << 10)];
            left -= bytes.len();
            tokio::time::sleep(POLL).await;
        }
    });
    join_all(bodies).await;
}

/// Makes stores whose search indexes are large.
pub(super) async fn fill_stores(client: &Client) -> Vec<String> {
    let mut stores = Vec::new();
    for number in 0..16 {
        let made = ok(&client.post("/v1/memory_stores", &json!({"name": format!("s{number}")})).await);
        let store = format!("/v1/memory_stores/{}", made["id"].as_str().unwrap());
        for memory in 0..25 {
            let mut content = String::new();
            for word in 0..1_500 {
                let _ = write!(content, "w{:x} ", (word * 7_919 + memory * 104_729 + number) % 1_000_003);
            }
            let body = json!({"path": format!("/{memory}"), "content": content});
            ok(&client.post(&format!("{store}/memories"), &body).await);
        }
        stores.push(store);
    }
    stores
}

pub(super) async fn search_stores(client: &Client, stores: &[String], stop: Arc<AtomicBool>) {
    repeat(CONNECTIONS, POLL, &stop, async |number, _| {
        let path = format!("{}/search?query=w1f4", stores[number % stores.len()]);
        let _ = try_send(client.request(Method::GET, &path)).await;
    })
    .await;
}

/// Posts until the rate admits it.
pub(super) async fn insist(client: &Client, path: &str, body: &Value) {
    loop {
        let answer = client.post(path, body).await;
        match answer.status {
            200 => return,
            429 | 529 => tokio::time::sleep(POLL).await,
            other => panic!("{path}: {other}: {}", answer.text),
        }
    }
}
