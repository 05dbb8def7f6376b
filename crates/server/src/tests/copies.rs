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
        let server = runtime.block_on(Server::new());
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

/// The text of a view is the content with line numbers, and then becomes a part of the
/// answer.
#[test]
fn warm_read_allocates_the_answer_and_no_copy_and_a_view_also_its_text() {
    let server = Local::new();
    let made = [("/short", 1), ("/viewed", 400), ("/long", 4_000)];
    let [short, _, long] =
        made.map(|(path, count)| server.create(path, &"a line of \"notes\"\n".repeat(count)));
    let retrieved = [short, long].map(|path| {
        let (bytes, answer) = server.allocated("GET", &path, None);
        (bytes, answer.len())
    });
    let viewed = ["/memories/short", "/memories/viewed"].map(|path| {
        let body = json!({"command": "view", "path": path});
        let (bytes, answer) = server.allocated("POST", "/tool_calls", Some(&body));
        let result: Value = serde_json::from_slice(&answer).unwrap();
        (bytes, answer.len() + result["content"].as_str().unwrap().len())
    });
    for ([(least, shorter), (most, longer)], at_least) in [(retrieved, 80_000), (viewed, 16_000)] {
        let (longer, more) = ((longer - shorter) as u64, most - least);
        assert!(longer > at_least && more.abs_diff(longer) < SPARE_BYTES, "{more} for {longer} bytes");
    }
}
