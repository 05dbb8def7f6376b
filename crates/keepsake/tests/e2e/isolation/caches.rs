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
    async fn new(client: &Client, path: &str, content: &str) -> Self {
        let store = made(client, STORES, &json!({"name": "caches"})).await;
        let store = format!("{STORES}/{}", text(&store["id"]));
        let new = json!({"path": path, "content": content});
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

    /// Everything that shows the content.
    async fn readings(&self) -> Vec<String> {
        let view = json!({"command": "view", "path": format!("/memories{}", text(&self.memory["path"]))});
        let content = |object: &Value| text(&object["content"]).to_owned();
        let viewed = content(&made(&self.client, &format!("{}/tool_calls", self.store), &view).await);
        let listed = self.get(&format!("{}/memories?view=full", self.store)).await;
        let versions = self.get(&format!("{}/memory_versions?view=full", self.store)).await;
        vec![
            content(&self.get(&self.path()).await),
            content(&listed["data"][0]),
            content(&versions["data"][0]),
            content(&self.get(&self.version()).await),
            viewed.split_once('\t').map(|(_, line)| line.to_owned()).unwrap(),
        ]
    }

    async fn assert_reads(&self, content: &str) {
        assert_eq!(self.readings().await, vec![content; 5]);
    }
}

pub(super) async fn are_of_one_tenant(one: &Client, other: &Client) {
    same_path_is_another_memory(one, other).await;
    same_content_is_another_blob(one, other).await;
    session_in_use_is_unknown_to_others(one, other).await;
    requests_between_each_other_are_not_mixed_up(one, other).await;
}

async fn same_path_is_another_memory(one: &Client, other: &Client) {
    let here = Held::new(one, "/shared", "content of the one").await;
    let there = Held::new(other, "/shared", "content of the other").await;
    for _ in 0..2 {
        here.assert_reads("content of the one").await;
        there.assert_reads("content of the other").await;
    }
    made(one, &here.path(), &json!({"content": "changed by the one"})).await;
    there.assert_reads("content of the other").await;
}

async fn same_content_is_another_blob(one: &Client, other: &Client) {
    let here = Held::new(one, "/same", "content of both").await;
    let there = Held::new(other, "/same", "content of both").await;
    let read_at = |memory: &Value| memory["last_accessed_at"].clone();
    let memories = format!("{}/memories", there.store);
    here.assert_reads("content of both").await;
    // Reading a memory does not mark another tenant's memory as read.
    let listed = there.get(&memories).await;
    assert_eq!(read_at(&listed["data"][0]), Value::Null);
    there.assert_reads("content of both").await;
    // A redaction does not affect the other tenant's copy.
    made(one, &here.path(), &json!({"content": "something else"})).await;
    let redacted = made(one, &format!("{}/redact", here.version()), &json!({})).await;
    assert_eq!(redacted["content_also_in"], json!([]));
    there.assert_reads("content of both").await;
    let gone = here.get(&here.version()).await;
    assert_eq!(gone["content"], Value::Null);
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

/// Through the same connections, at the same time.
async fn requests_between_each_other_are_not_mixed_up(one: &Client, other: &Client) {
    let here = Held::new(one, "/mixed", "content of the one").await;
    let there = Held::new(other, "/mixed", "content of the other").await;
    let reads = (0..64).map(async |number| {
        let (held, content) =
            if number % 2 == 0 { (&here, "content of the one") } else { (&there, "content of the other") };
        let memory = held.get(&held.path()).await;
        assert_eq!(text(&memory["content"]), content);
        assert_eq!(memory["id"], held.memory["id"]);
    });
    future::join_all(reads).await;
}
