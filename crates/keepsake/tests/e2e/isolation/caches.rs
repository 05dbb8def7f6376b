use super::*;

const SHARED: &str = "content of both";

async fn with_memory(client: &Client) -> (Store, Value) {
    let store = Store::make(client, "caches").await;
    let memory = store.create("/shared", SHARED).await;
    (store, memory)
}

/// Reads the memory in every way that shows the content.
async fn assert_is_shared(store: &Store, memory: &Value) {
    for path in [store.memory(memory), store.version(&memory["memory_version_id"])] {
        assert_eq!(ok(&store.client.get(&path).await)["content"], SHARED);
    }
    for list in [store.memories(), store.versions()] {
        let listed = ok(&store.client.get(&format!("{list}?view=full")).await);
        assert_eq!(listed["data"][0]["content"], SHARED);
    }
    let view = json!({"command": "view", "path": "/memories/shared"});
    let viewed = store.client.call(&store.id, &view).await.tool_result();
    assert!(viewed.content.ends_with(&format!("\t{SHARED}")), "{viewed:?}");
}

pub(super) async fn are_of_one_tenant(one: &Client, other: &Client) {
    let ((here, memory), (there, theirs)) = (with_memory(one).await, with_memory(other).await);
    assert_is_shared(&here, &memory).await;
    // Reading a memory does not mark another tenant's memory as read.
    assert_eq!(ok(&other.get(&there.memories()).await)["data"][0]["last_accessed_at"], Value::Null);
    assert_is_shared(&there, &theirs).await;
    // Neither a change nor a redaction affects the other tenant's copy.
    here.update(&memory, &json!({"content": "something else"})).await;
    assert_is_shared(&there, &theirs).await;
    assert_eq!(here.redact(&memory["memory_version_id"]).await["content_also_in"], json!([]));
    assert_is_shared(&there, &theirs).await;
    let version = here.version(&memory["memory_version_id"]);
    assert_eq!(ok(&one.get(&version).await)["content"], Value::Null);
    // Through the same connections, at the same time.
    let reads = (0..64).map(async |number| {
        let all = [(&here, &memory, "something else"), (&there, &theirs, SHARED)];
        let (store, memory, content) = all[number % 2];
        let read = store.read(memory).await;
        assert_eq!((&read["content"], &read["id"]), (&json!(content), &memory["id"]));
    });
    join_all(reads).await;
    // A session that was used just now is unknown to others.
    let session = session_on(one, "caches", &here.id).await;
    let view = json!({"command": "view", "path": "/memories"});
    let call = async |id: &str| other.post(&format!("{SESSIONS}/{id}/tool_calls"), &view).await;
    let theirs = call(text(&session["id"])).await;
    let never = call(&format!("sesn_{NEVER}")).await;
    assert_eq!(never.status, 404, "{}", never.text);
    assert_eq!(theirs.lasting(), never.lasting());
}
