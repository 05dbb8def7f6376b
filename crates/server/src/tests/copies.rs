//! A warm read allocates its answer, and no other copy of the content.
//!
//! The allocator counts the bytes of one thread. Everything runs on it except SQLite,
//! which a warm read does not ask.

use allocation_counter::measure;
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::ServiceExt;

use super::Server;
use crate::ServerOptions;

/// By how much the allocated bytes may differ from those of the answer.
const SPARE_BYTES: u64 = 1_024;

/// A server on this thread.
struct Local {
    runtime: Runtime,
    server: Server,
}

impl Local {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = ServerOptions::default();
        let server = runtime.block_on(Server::with(&options));
        Self { runtime, server }
    }

    /// Sends a request and answers its body, as it would be written to the connection.
    fn send(&self, method: &str, uri: &str, body: Option<&Value>) -> Bytes {
        let request = self.server.request(method, &format!("{}{uri}", self.server.store));
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).unwrap();
        self.runtime.block_on(async {
            let response = self.server.router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let mut body = response.into_body();
            let whole = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(body.frame().await.is_none());
            whole
        })
    }

    /// Creates a memory and answers the path of its route.
    fn create(&self, path: &str, content: &str) -> String {
        let body = json!({"path": path, "content": content});
        let made: Value = serde_json::from_slice(&self.send("POST", "/memories", Some(&body))).unwrap();
        format!("/memories/{}", made["id"].as_str().unwrap())
    }

    /// The bytes that a request allocates once everything is warm, and its body. The upkeep
    /// of a cache may fall into one of them.
    fn allocated(&self, method: &str, uri: &str, body: Option<&Value>) -> (u64, Bytes) {
        for _ in 0..3 {
            self.send(method, uri, body);
        }
        let mut answer = Bytes::new();
        let measured = (0..3).map(|_| measure(|| answer = self.send(method, uri, body)).bytes_total);
        (measured.min().unwrap_or_default(), answer)
    }
}

fn lines(count: usize) -> String {
    "a line of \"notes\"\n".repeat(count)
}

#[test]
fn warm_retrieve_allocates_the_answer_and_no_copy() {
    let server = Local::new();
    let (short, long) = (server.create("/short", &lines(1)), server.create("/long", &lines(4_000)));
    let (least, short) = server.allocated("GET", &short, None);
    let (most, long) = server.allocated("GET", &long, None);
    let longer = (long.len() - short.len()) as u64;
    assert!(longer > 80_000);
    let more = most - least;
    assert!(more.abs_diff(longer) < SPARE_BYTES, "{more} for {longer} bytes");
}

/// The text of a view is the content with line numbers, and then becomes a part of the
/// answer.
#[test]
fn warm_view_allocates_its_text_and_the_answer() {
    let server = Local::new();
    server.create("/short", &lines(1));
    server.create("/long", &lines(400));
    let view = |path| {
        let body = json!({"command": "view", "path": path});
        let (bytes, answer) = server.allocated("POST", "/tool_calls", Some(&body));
        let result: Value = serde_json::from_slice(&answer).unwrap();
        (bytes, answer.len(), result["content"].as_str().unwrap().len())
    };
    let (least, short, short_text) = view("/memories/short");
    let (most, long, long_text) = view("/memories/long");
    let longer = (long - short + long_text - short_text) as u64;
    assert!(longer > 16_000);
    let more = most - least;
    assert!(more.abs_diff(longer) < SPARE_BYTES, "{more} for {longer} bytes");
}
