//! Caches never serve one tenant's data to another.

use super::fixture::{NEVER, session_on};
use crate::prelude::*;

struct Held {
    store: Store,
    memory: Value,
}

impl Held {
    async fn new(client: &Client, content: &str) -> Self {
        let store = Store::make(client, "caches").await;
        Self { memory: store.create("/shared", content).await, store }
    }

    fn version(&self) -> String {
        self.store.version(&self.memory["memory_version_id"])
    }

    /// Reads it in every way that shows the content.
    async fn assert_reads(&self, content: &str) {
        let Self { store, memory } = self;
        for path in [store.memory(memory), self.version()] {
            assert_eq!(ok(&store.client.get(&path).await)["content"], content);
        }
        for list in [store.memories(), store.versions()] {
            let listed = ok(&store.client.get(&format!("{list}?view=full")).await);
            assert_eq!(listed["data"][0]["content"], content);
        }
        let view = json!({"command": "view", "path": "/memories/shared"});
        let viewed = store.client.call(&store.id, &view).await.tool_result();
        assert!(viewed.content.ends_with(&format!("\t{content}")), "{viewed:?}");
    }
}

pub(super) async fn are_of_one_tenant(one: &Client, other: &Client) {
    let (here, there) = (Held::new(one, "content of both").await, Held::new(other, "content of both").await);
    here.assert_reads("content of both").await;
    // Reading a memory does not mark another tenant's memory as read.
    let listed = ok(&other.get(&there.store.memories()).await);
    assert_eq!(listed["data"][0]["last_accessed_at"], Value::Null);
    there.assert_reads("content of both").await;
    // Neither a change nor a redaction affects the other tenant's copy.
    here.store.update(&here.memory, &json!({"content": "something else"})).await;
    there.assert_reads("content of both").await;
    let redacted = here.store.redact(&here.memory["memory_version_id"]).await;
    assert_eq!(redacted["content_also_in"], json!([]));
    there.assert_reads("content of both").await;
    assert_eq!(ok(&one.get(&here.version()).await)["content"], Value::Null);
    // Through the same connections, at the same time.
    let reads = (0..64).map(async |number| {
        let (held, content) = [(&here, "something else"), (&there, "content of both")][number % 2];
        let memory = held.store.read(&held.memory).await;
        assert_eq!((&memory["content"], &memory["id"]), (&json!(content), &held.memory["id"]));
    });
    join_all(reads).await;
    // A session that was used just now is unknown to others.
    let session = session_on(one, "caches", &here.store.id).await;
    let view = json!({"command": "view", "path": "/memories"});
    let call = async |id: &str| other.post(&format!("{SESSIONS}/{id}/tool_calls"), &view).await;
    let theirs = call(text(&session["id"])).await;
    let never = call(&format!("sesn_{NEVER}")).await;
    assert_eq!(never.status, 404, "{}", never.text);
    assert_eq!(theirs.lasting(), never.lasting());
}
