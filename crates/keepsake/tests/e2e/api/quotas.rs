use super::batches::create;
use super::support::{Fact, check, fact};
use crate::prelude::*;

on_pairs! { limits_are_exact }

async fn limits_are_exact(pair: Pair) {
    let with = |limits: Value, fact: Fact| Fact { limits, ..fact };
    let tenant_bytes = json!({"bytes_per_tenant": 100});
    let facts = vec![
        with(json!({"memories_per_store": 3, "bytes_per_store": 100}), fact!(store_holds_so_many_memories)),
        with(json!({"bytes_per_store": 100}), fact!(store_holds_so_many_bytes)),
        with(tenant_bytes.clone(), fact!(tenant_holds_so_many_bytes)),
        with(tenant_bytes, fact!(store_that_is_deleted_during_writes_frees_its_bytes)),
        with(json!({"stores_per_tenant": 3}), fact!(tenant_has_so_many_stores)),
        with(json!({"sessions_per_tenant": 2}), fact!(tenant_has_so_many_sessions)),
        with(json!({"session_bytes_per_tenant": 2_000}), fact!(sessions_are_described_with_so_many_bytes)),
        // The keys of `support` and the tenant's first key count.
        with(json!({"api_keys_per_tenant": 8}), fact!(tenant_has_so_many_keys)),
        with(json!({"audit_entries_per_day": 6}), fact!(tenant_makes_so_many_changes_in_a_day)),
        with(json!({"bytes_per_memory": 60}), fact!(memory_holds_so_many_bytes)),
    ];
    check(pair, facts).await;
}

#[track_caller]
pub(crate) fn over_quota(answer: &Answer, limit: u64) {
    let error = refused(answer, 429, "rate_limit_error");
    assert_eq!(answer.header("x-should-retry"), "false", "{error}");
    assert_eq!(answer.header("retry-after"), "", "{error}");
    assert!(text(&error["message"]).contains(&limit.to_string()), "{error}");
}

/// Checks that calls of agent tools fail and that their texts hold `said`.
async fn tools_say(place: &Place, tools: &[&str], path: &str, content: &str, said: &str) {
    let edits = json!([{"old_str": "é".repeat(30), "new_str": content}]);
    for tool in tools {
        let input = match *tool {
            "memory_edit" => json!({"path": path, "edits": edits}),
            _ => json!({"path": path, "content": content}),
        };
        let told = place.client.tool(&place.tenant, &block(tool, &input)).await;
        assert!(told.is_error && told.content.contains(said), "{}", told.content);
    }
}

/// Checks a batch that makes these memories: those that are `Some` of the message of
/// a refusal are left out, and the first of them refuses an atomic batch.
async fn batch_is_made_but_for(store: &Store, memories: &[(&str, usize, Option<&str>)]) {
    let operations = memories.iter().map(|(path, bytes, _)| create(path, &"x".repeat(*bytes)));
    let operations: Vec<_> = operations.collect();
    let batch = async |atomic: bool| store.batch(&json!({"atomic": atomic, "operations": operations})).await;
    let error = refused(&batch(true).await, 429, "rate_limit_error");
    let first = memories.iter().position(|(.., why)| why.is_some());
    assert_eq!(error["operation"].as_u64(), first.map(|first| first as u64), "{error}");
    let made = ok(&batch(false).await);
    for (result, (path, _, why)) in made["data"].as_array().unwrap().iter().zip(memories) {
        match why {
            None => assert_eq!(result["memory"]["path"], *path, "{result}"),
            Some(why) => assert!(text(&result["error"]["message"]).starts_with(*why), "{result}"),
        }
    }
}

async fn store_holds_so_many_memories(place: Place) {
    let store = place.store();
    let mut memories = Vec::new();
    for path in ["/a", "/b", "/d/c"] {
        memories.push(store.create(path, "x").await);
    }
    over_quota(&store.try_create("/e", "x").await, 3);
    over_quota(&store.upsert("/e", "x").await, 3);
    let tools = ["memory_write", "memory_append"];
    tools_say(&place, &tools, "/memories/e", "x", "over its limit of 3 files").await;
    // Existing memories can still be changed.
    ok(&store.upsert("/a", "y").await);
    store.update(&memories[1], &json!({"path": "/moved", "content": "z"})).await;
    // A deleted memory frees its place, for its own restore or for another memory.
    store.delete(&memories[0]).await;
    store.create("/e", "x").await;
    let version = &memories[0]["memory_version_id"];
    over_quota(&store.try_restore(version, &json!({})).await, 3);
    store.delete(&memories[1]).await;
    store.restore(version).await;
    assert_eq!(store.object().await["memory_count"], 3);
    // The answer has the first of several reasons: a taken path, memories, bytes.
    path_conflict(&store.try_create("/d/c", &"x".repeat(101)).await, &memories[2]);
    over_quota(&store.try_create("/f", &"x".repeat(101)).await, 3);
    // The other store has a separate limit.
    let other = place.new_store("other").await;
    other.create("/f", "x").await;
    let full = Some("the memory store would hold");
    batch_is_made_but_for(&other, &[("/g", 1, None), ("/h", 50, None), ("/i", 1, full)]).await;
}

async fn store_holds_so_many_bytes(place: Place) {
    let store = place.store();
    let memory = store.create("/a", &"x".repeat(60)).await;
    over_quota(&store.try_create("/b", &"x".repeat(41)).await, 100);
    store.create("/b", &"é".repeat(20)).await;
    let tools = ["memory_write", "memory_append"];
    tools_say(&place, &tools, "/memories/c", "x", "over its limit of 100 bytes").await;
    store.create("/empty", "").await;
    // Growing is refused, shrinking and staying are not.
    let edit = |bytes: usize| json!({"content": "y".repeat(bytes)});
    over_quota(&store.try_update(&memory, &edit(61)).await, 100);
    over_quota(&store.upsert("/a", &"y".repeat(61)).await, 100);
    store.update(&memory, &edit(60)).await;
    store.update(&memory, &edit(10)).await;
    store.create("/c", &"x".repeat(50)).await;
    over_quota(&store.try_restore(&memory["memory_version_id"], &json!({})).await, 100);
    assert_eq!(store.object().await["content_bytes"], 100);
    let other = place.new_store("other").await;
    other.create("/a", &"x".repeat(90)).await;
    let full = Some("the memory store would hold");
    batch_is_made_but_for(&other, &[("/b", 5, None), ("/c", 50, full), ("/d", 5, None)]).await;
}

async fn tenant_holds_so_many_bytes(place: Place) {
    let [a, b, c] = [place.store(), place.new_store("second").await, place.new_store("third").await];
    let content = |bytes: usize| json!({"content": "x".repeat(bytes)});
    let first = a.create("/a", &"x".repeat(50)).await;
    b.create("/a", &"x".repeat(49)).await;
    over_quota(&c.try_create("/a", "xx").await, 100);
    c.create("/a", "x").await;
    over_quota(&c.try_create("/more", "x").await, 100);
    let grown = a.try_update(&first, &content(51)).await;
    over_quota(&grown, 100);
    assert!(grown.text.contains("101 bytes"), "{}", grown.text);
    // The sum is that of stores that a bound key may not see.
    let grown = a.seen_by(&place.bound).try_update(&first, &content(51)).await;
    over_quota(&grown, 100);
    assert!(
        grown.text.contains("more than the limit") && !grown.text.contains("101 bytes"),
        "{}",
        grown.text
    );
    // Bytes that one store frees can be used by another.
    a.update(&first, &content(20)).await;
    c.create("/more", &"x".repeat(30)).await;
    ok(&delete(&place.client, &b.path).await);
    a.update(&first, &content(69)).await;
    over_quota(&a.try_create("/more", "x").await, 100);
    a.delete(&first).await;
    let full = Some("the tenant would hold");
    let bound = a.seen_by(&place.bound);
    batch_is_made_but_for(&bound, &[("/b", 5, None), ("/c", 90, full), ("/d", 5, None)]).await;
}

async fn store_that_is_deleted_during_writes_frees_its_bytes(place: Place) {
    let (store, gone) = (place.store(), place.new_store("gone").await);
    let writers = (0..8).map(|writer| {
        let (store, gone) = (&store, &gone);
        async move {
            for turn in 0..4 {
                let path = format!("/{writer}/{turn}");
                store.create(&path, "x").await;
                let late = gone.try_create(&path, "x").await;
                assert!(matches!(late.status, 200 | 404), "{}", late.text);
            }
        }
    });
    let (_, deleted) = tokio::join!(join_all(writers), delete(&place.client, &gone.path));
    ok(&deleted);
    // 32 bytes are held.
    store.create("/rest", &"x".repeat(68)).await;
    over_quota(&store.try_create("/more", "x").await, 100);
}

async fn tenant_has_so_many_stores(place: Place) {
    let client = &place.client;
    let (second, third) = (place.new_store("second").await, place.new_store("third").await);
    let new = json!({"name": "fourth"});
    let keyed = async || post_with(client, STORES, &new, ("idempotency-key", "k")).await;
    over_quota(&keyed().await, 3);
    // An archived one counts, a deleted one does not.
    second.archive().await;
    over_quota(&client.post(STORES, &new).await, 3);
    ok(&delete(client, &third.path).await);
    let made = ok(&keyed().await);
    over_quota(&client.post(STORES, &new).await, 3);
    // A repeated call with an idempotency key creates no further store.
    assert_eq!(ok(&keyed().await)["id"], made["id"]);
    assert_eq!(client.all(&format!("{STORES}?include_archived=true")).await.len(), 3);
}

/// What was made; the other calls were over the limit.
#[track_caller]
pub(crate) fn made_up_to(limit: u64, answers: Vec<Answer>) -> Vec<Value> {
    let (made, over) = parted(answers);
    for answer in &over {
        over_quota(answer, limit);
    }
    made
}

async fn make_session(client: &Client, system: &str) -> Answer {
    let agent = json!({"type": "agent", "id": "agent_1", "system": system});
    let answer = client.post(SESSIONS, &json!({"agent": agent, "environment_id": "env_1"})).await;
    if answer.status == 200 {
        secret(&answer.json(), "token");
    }
    answer
}

fn at(object: &Value) -> String {
    format!("{SESSIONS}/{}", text(&object["id"]))
}

async fn tenant_has_so_many_sessions(place: Place) {
    let client = &place.client;
    let sessions = made_up_to(2, join_all((0..6).map(|_| make_session(client, ""))).await);
    assert_eq!(sessions.len(), 2);
    // An archived one counts, a deleted one does not.
    ok(&client.post(&format!("{}/archive", at(&sessions[0])), &json!({})).await);
    over_quota(&make_session(client, "").await, 2);
    ok(&delete(client, &at(&sessions[1])).await);
    ok(&make_session(client, "").await);
    over_quota(&make_session(client, "").await, 2);
}

async fn sessions_are_described_with_so_many_bytes(place: Place) {
    let client = &place.client;
    let described = async |bytes: usize| make_session(client, &"x".repeat(bytes)).await;
    let title = |chars: usize| json!({"title": "t".repeat(chars)});
    // Instructions for a store that is deleted before the session changes and ends.
    let store = place.new_store("gone").await;
    let attached =
        json!({"type": "memory_store", "memory_store_id": store.id, "instructions": "x".repeat(1_500)});
    let new = json!({"agent": "agent_1", "environment_id": "env_1", "resources": [attached]});
    let session = ok(&client.post("/v1/sessions", &new).await);
    ok(&delete(client, &store.path).await);
    ok(&client.post(&at(&session), &title(10)).await);
    ok(&delete(client, &at(&session)).await);
    over_quota(&described(2_000).await, 2_000);
    let first = ok(&described(600).await);
    ok(&described(600).await);
    over_quota(&client.post(&at(&first), &title(900)).await, 2_000);
    ok(&client.post(&at(&first), &title(10)).await);
    ok(&delete(client, &at(&first)).await);
    ok(&described(600).await);
}

async fn tenant_has_so_many_keys(place: Place) {
    let client = &place.client;
    let new = json!({"name": "more", "scopes": ["memory:read"]});
    let listed = client.all("/v1/api_keys").await.len();
    let racing = (0..12).map(|_| client.post("/v1/api_keys", &new));
    let made = made_up_to(8, join_all(racing).await);
    assert_eq!(made.len(), 8 - listed);
    for key in &made {
        secret(key, "api_key");
    }
    // A key counts for a while after it was revoked.
    client.revoke(&format!("/v1/api_keys/{}", text(&made[0]["id"]))).await;
    over_quota(&client.post("/v1/api_keys", &new).await, 8);
}

async fn tenant_makes_so_many_changes_in_a_day(place: Place) {
    let (client, store) = (&place.client, place.store());
    let rename = async |name: &str| client.post(&store.path, &json!({"name": name})).await;
    let (_, key) = client.new_key(&["memory:read"]).await;
    let session = ok(&make_session(client, "").await);
    let erased = json!({"memory_store_id": store.id, "path_prefix": "/none/"});
    ok(&client.post("/v1/erasures", &erased).await);
    // Neither a job nor a change that changes nothing counts.
    soon("the erasure ends", async || client.all("/v1/audit?action=erasure.finish").await.len() == 1).await;
    ok(&rename(text(&store.object().await["name"])).await);
    // Each day has as many; midnight may come at any time.
    let today = || i64::try_from(now_secs() / 86_400).unwrap();
    loop {
        let day = today();
        let day_of = |entry: &Value| micros(&entry["created_at"]) / 86_400_000_000;
        let is_of_the_day = |entry: &&Value| entry["actor"]["type"] == "api_actor" && day_of(entry) == day;
        let audit = client.all("/v1/audit?limit=100").await;
        let before = audit.iter().filter(is_of_the_day).count();
        let names: Vec<_> = (0..8).map(|number| format!("{day} {number}")).collect();
        let answers = join_all(names.iter().map(|name| rename(name))).await;
        let made = made_up_to(6, answers).len();
        let others = vec![
            client.post(STORES, &json!({"name": "more"})).await,
            client.post("/v1/api_keys", &json!({"name": "more", "scopes": ["memory:read"]})).await,
            make_session(client, "").await,
        ];
        if today() == day {
            assert_eq!(before + made, 6, "{before} before");
            assert_eq!(made_up_to(6, others), [] as [Value; 0]);
            break;
        }
    }
    // Memories are written as before, and what ends something is done.
    store.update(&store.create("/a", "x").await, &json!({"content": "y"})).await;
    client.revoke(&key).await;
    ok(&delete(client, &at(&session)).await);
    store.archive().await;
    ok(&delete(client, &store.path).await);
    for action in "api_key.revoke session.delete memory_store.archive memory_store.delete".split(' ') {
        let entries = client.all(&format!("/v1/audit?action={action}")).await;
        assert_eq!(entries.len(), 1, "{action}");
    }
}

async fn memory_holds_so_many_bytes(place: Place) {
    let store = place.store();
    let memory = store.create("/a", &"é".repeat(30)).await;
    for content in ["x".repeat(61), "é".repeat(30) + "x"] {
        let edit = json!({"content": content});
        for answer in [store.try_create("/b", &content).await, store.try_update(&memory, &edit).await] {
            invalid(&answer, "content");
            invalid(&answer, "60");
        }
    }
    let (long, over) = ("x".repeat(61), "bytes, over the limit of 60 bytes");
    tools_say(&place, &["memory_write", "memory_edit"], "/memories/a", &long, &format!("61 {over}")).await;
    tools_say(&place, &["memory_append"], "/memories/a", "x", &format!("63 {over}")).await;
    store.update(&memory, &json!({"content": "x".repeat(60)})).await;
    assert_eq!(store.version_count().await, 2);
}
