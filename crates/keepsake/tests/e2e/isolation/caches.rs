//! Caches never serve one tenant's data to another.

use futures::future;
use serde_json::{Value, json};

use super::fixture::{NEVER, SESSIONS, STORES, made, session_on, text};
use crate::support::Client;

/// A memory and where it is.
struct Held {
    client: Client,
    store: String,
    memory: Value,
}

impl Held {
    async fn new(client: &Client, content: &str) -> Self {
        let store = made(client, STORES, &json!({"name": "caches"})).await;
        let store = format!("{STORES}/{}", text(&store["id"]));
        let new = json!({"path": "/shared", "content": content});
        let memory = made(client, &format!("{store}/memories"), &new).await;
        Self { client: client.clone(), store, memory }
    }

    fn path(&self) -> String {
        format!("{}/memories/{}", self.store, text(&self.memory["id"]))
    }

    fn version(&self) -> String {
        format!("{}/memory_versions/{}", self.store, text(&self.memory["memory_version_id"]))
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    /// Reads it in every way that shows the content.
    async fn assert_reads(&self, content: &str) {
        for path in [self.path(), self.version()] {
            assert_eq!(self.get(&path).await["content"], content);
        }
        for list in ["memories", "memory_versions"] {
            let listed = self.get(&format!("{}/{list}?view=full", self.store)).await;
            assert_eq!(listed["data"][0]["content"], content);
        }
        let view = json!({"command": "view", "path": "/memories/shared"});
        let viewed = made(&self.client, &format!("{}/tool_calls", self.store), &view).await;
        assert!(text(&viewed["content"]).ends_with(&format!("\t{content}")), "{viewed}");
    }
}

pub(super) async fn are_of_one_tenant(one: &Client, other: &Client) {
    let (here, there) = (Held::new(one, "content of both").await, Held::new(other, "content of both").await);
    here.assert_reads("content of both").await;
    // Reading a memory does not mark another tenant's memory as read.
    let listed = there.get(&format!("{}/memories", there.store)).await;
    assert_eq!(listed["data"][0]["last_accessed_at"], Value::Null);
    there.assert_reads("content of both").await;
    // Neither a change nor a redaction affects the other tenant's copy.
    made(one, &here.path(), &json!({"content": "something else"})).await;
    there.assert_reads("content of both").await;
    let redacted = made(one, &format!("{}/redact", here.version()), &json!({})).await;
    assert_eq!(redacted["content_also_in"], json!([]));
    there.assert_reads("content of both").await;
    assert_eq!(here.get(&here.version()).await["content"], Value::Null);
    // Through the same connections, at the same time.
    let reads = (0..64).map(async |number| {
        let (held, content) =
            if number % 2 == 0 { (&here, "something else") } else { (&there, "content of both") };
        let memory = held.get(&held.path()).await;
        assert_eq!((&memory["content"], &memory["id"]), (&json!(content), &held.memory["id"]));
    });
    future::join_all(reads).await;
    session_in_use_is_unknown_to_others(one, other).await;
}

async fn session_in_use_is_unknown_to_others(one: &Client, other: &Client) {
    let store = made(one, STORES, &json!({"name": "caches"})).await;
    let session = session_on(one, "caches", text(&store["id"])).await;
    let view = json!({"command": "view", "path": "/memories"});
    let call = async |id: &str| other.post(&format!("{SESSIONS}/{id}/tool_calls"), &view).await;
    let theirs = call(text(&session["id"])).await;
    let never = call(&format!("sesn_{NEVER}")).await;
    assert_eq!(never.status, 404, "{}", never.text);
    assert_eq!(theirs.lasting(), never.lasting());
}
