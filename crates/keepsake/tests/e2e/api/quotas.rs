//! Limits of a tenant at their edges, and the defaults.

use keepsake_core::limits::{LimitOverrides, Limits};
use serde_json::{Value, json};

use super::support::{
    Fact, PREVIEW, Place, STORES, Store, all, check, delete, fact, invalid, ok, post_with, refused, text,
};
use crate::support::command::keepsake;
use crate::support::{Answer, Client, Pair, secrets};

fn facts() -> Vec<Fact> {
    let memories = LimitOverrides {
        memories_per_store: Some(3),
        ..LimitOverrides::default()
    };
    let store_bytes = LimitOverrides {
        bytes_per_store: Some(100),
        ..LimitOverrides::default()
    };
    let tenant_bytes = LimitOverrides {
        bytes_per_tenant: Some(100),
        ..LimitOverrides::default()
    };
    let stores = LimitOverrides {
        stores_per_tenant: Some(3),
        ..LimitOverrides::default()
    };
    let sessions = LimitOverrides {
        sessions_per_tenant: Some(2),
        ..LimitOverrides::default()
    };
    let session_bytes = LimitOverrides {
        session_bytes_per_tenant: Some(2_000),
        ..LimitOverrides::default()
    };
    // The keys of `support` and the tenant's first key count.
    let keys = LimitOverrides {
        api_keys_per_tenant: Some(8),
        ..LimitOverrides::default()
    };
    let changes = LimitOverrides {
        audit_entries_per_day: Some(3),
        ..LimitOverrides::default()
    };
    let memory_bytes = LimitOverrides {
        bytes_per_memory: Some(60),
        ..LimitOverrides::default()
    };
    let with = |limits: &LimitOverrides, fact: Fact| Fact {
        limits: limits.clone(),
        ..fact
    };
    vec![
        with(&memories, fact!(store_holds_so_many_memories)),
        with(&memories, fact!(racing_creations_do_not_pass_the_limit)),
        with(&store_bytes, fact!(store_holds_so_many_bytes)),
        with(&tenant_bytes, fact!(tenant_holds_so_many_bytes)),
        with(&stores, fact!(tenant_has_so_many_stores)),
        with(&sessions, fact!(tenant_has_so_many_sessions)),
        with(&session_bytes, fact!(sessions_are_described_with_so_many_bytes)),
        with(&keys, fact!(tenant_has_so_many_keys)),
        with(&changes, fact!(tenant_makes_so_many_changes_in_a_day)),
        with(&memory_bytes, fact!(memory_holds_so_many_bytes)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exact_on_postgres_and_s3() {
    check(Pair::PostgresS3, facts()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exact_on_sqlite() {
    check(Pair::Sqlite, facts()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn default_limits_are_these() {
    let defaults = Limits::default();
    assert_eq!(
        (defaults.bytes_per_memory, defaults.memories_per_store),
        (102_400, 2_000)
    );
    assert_eq!(
        (defaults.bytes_per_store, defaults.bytes_per_tenant),
        (100 << 20, 10 << 30)
    );
    assert_eq!(defaults.stores_per_tenant, 1_000);
    assert_eq!(
        (defaults.sessions_per_tenant, defaults.session_bytes_per_tenant),
        (10_000, 1 << 30)
    );
    assert_eq!(
        (defaults.api_keys_per_tenant, defaults.audit_entries_per_day),
        (1_000, 100_000)
    );
    assert_eq!(
        (defaults.requests_per_second, defaults.request_burst),
        (1_000, 2_000)
    );
    assert_eq!(
        (defaults.version_retention_secs, defaults.version_age_secs),
        (30 * 86_400, 0)
    );
    assert_eq!(
        (defaults.versions_per_memory, defaults.expires_unused_after),
        (0, 0)
    );
    let printed = keepsake(&["config", "check"]).await.stdout;
    for line in [
        "bytes_per_memory = 102400",
        "memories_per_store = 2000",
        "bytes_per_store = 104857600",
        "stores_per_tenant = 1000",
        "sessions_per_tenant = 10000",
        "session_bytes_per_tenant = 1073741824",
        "api_keys_per_tenant = 1000",
        "audit_entries_per_day = 100000",
        "retention_days = 400",
        "requests_per_second = 1000",
        "request_burst = 2000",
        "version_retention_secs = 2592000",
        "version_age_secs = 0",
        "versions_per_memory = 0",
        "bytes_per_tenant = 10737418240",
    ] {
        assert!(printed.contains(line), "{line:?} is not in {printed}");
    }
}

#[track_caller]
fn over_quota(answer: &Answer, limit: u64) {
    let error = refused(answer, 429, "rate_limit_error");
    assert_eq!(answer.header("x-should-retry"), "false", "{error}");
    assert_eq!(answer.header("retry-after"), "", "{error}");
    assert!(text(&error["message"]).contains(&limit.to_string()), "{error}");
}

async fn upsert(store: &Store, path: &str, content: &str) -> Answer {
    let body = json!({"path": path, "content": content});
    post_with(
        &store.client,
        &store.memories(),
        &body,
        ("anthropic-beta", PREVIEW),
    )
    .await
}

async fn store_holds_so_many_memories(place: Place) {
    let store = place.store();
    let mut memories = Vec::new();
    for path in ["/a", "/b", "/d/c"] {
        memories.push(store.create(path, "x").await);
    }
    over_quota(&store.try_create("/e", "x").await, 3);
    over_quota(&upsert(&store, "/e", "x").await, 3);
    let call = json!({"command": "create", "path": "/memories/e", "file_text": "x"});
    assert!(place.client.tool(&place.tenant, &call).await.is_error);
    // Existing memories can still be changed.
    ok(&upsert(&store, "/a", "y").await);
    store
        .update(&memories[1], &json!({"path": "/moved", "content": "z"}))
        .await;
    assert_eq!(store.object().await["memory_count"], 3);
    // A deleted memory frees its place, for its own restore or for another memory.
    store.delete(&memories[0]).await;
    store.create("/e", "x").await;
    over_quota(
        &store
            .try_restore(&memories[0]["memory_version_id"], &json!({}))
            .await,
        3,
    );
    store.delete(&memories[1]).await;
    store.restore(&memories[0]["memory_version_id"]).await;
    over_quota(&store.try_create("/f", "").await, 3);
    // The other store has a separate limit.
    let other = place.new_store("other").await;
    other.create("/f", "x").await;
}

async fn racing_creations_do_not_pass_the_limit(place: Place) {
    let store = place.store();
    let paths: Vec<_> = (0..12).map(|n| format!("/{n}")).collect();
    let racing = paths.iter().map(|path| store.try_create(path, "x"));
    let answers = futures::future::join_all(racing).await;
    let (made, over): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), over.len()), (3, 9));
    for answer in over {
        over_quota(answer, 3);
    }
    assert_eq!(store.object().await["memory_count"], 3);
    assert_eq!(store.version_count().await, 3);
}

async fn store_holds_so_many_bytes(place: Place) {
    let store = place.store();
    over_quota(&store.try_create("/a", &"x".repeat(101)).await, 100);
    let memory = store.create("/a", &"x".repeat(60)).await;
    over_quota(&store.try_create("/b", &"x".repeat(41)).await, 100);
    store.create("/b", &"é".repeat(20)).await;
    over_quota(&store.try_create("/c", "x").await, 100);
    store.create("/empty", "").await;
    // Growing is refused, shrinking and staying are not.
    let edit = |bytes: usize| json!({"content": "y".repeat(bytes)});
    over_quota(&store.try_update(&memory, &edit(61)).await, 100);
    over_quota(&upsert(&store, "/a", &"y".repeat(61)).await, 100);
    store.update(&memory, &edit(60)).await;
    store.update(&memory, &json!({"path": "/moved"})).await;
    let short = store.update(&memory, &edit(10)).await;
    store.create("/c", &"x".repeat(50)).await;
    over_quota(
        &store.try_restore(&memory["memory_version_id"], &json!({})).await,
        100,
    );
    assert_eq!(store.object().await["content_bytes"], 100);
    assert_eq!(
        store.read(&memory).await["memory_version_id"],
        short["memory_version_id"]
    );
    let other = place.new_store("other").await;
    other.create("/a", &"x".repeat(100)).await;
}

async fn tenant_holds_so_many_bytes(place: Place) {
    let stores = [
        place.store(),
        place.new_store("second").await,
        place.new_store("third").await,
    ];
    let first = stores[0].create("/a", &"x".repeat(50)).await;
    stores[1].create("/a", &"x".repeat(49)).await;
    over_quota(&stores[2].try_create("/a", "xx").await, 100);
    stores[2].create("/a", "x").await;
    for store in &stores {
        over_quota(&store.try_create("/more", "x").await, 100);
    }
    over_quota(
        &stores[0]
            .try_update(&first, &json!({"content": "x".repeat(51)}))
            .await,
        100,
    );
    // Bytes that one store frees can be used by another.
    stores[0]
        .update(&first, &json!({"content": "x".repeat(20)}))
        .await;
    over_quota(&stores[2].try_create("/more", &"x".repeat(31)).await, 100);
    stores[2].create("/more", &"x".repeat(30)).await;
    ok(&delete(&place.client, &stores[1].path).await);
    let freed = stores[0]
        .update(&first, &json!({"content": "x".repeat(69)}))
        .await;
    assert_eq!(freed["content_size_bytes"], 69);
    over_quota(&stores[0].try_create("/more", "x").await, 100);
}

async fn tenant_has_so_many_stores(place: Place) {
    let client = &place.client;
    let second = place.new_store("second").await;
    let third = place.new_store("third").await;
    let new = json!({"name": "fourth"});
    over_quota(&client.post(STORES, &new).await, 3);
    over_quota(
        &post_with(client, STORES, &new, ("idempotency-key", "k")).await,
        3,
    );
    // An archived one counts, a deleted one does not.
    ok(&client.post(&format!("{}/archive", second.path), &json!({})).await);
    over_quota(&client.post(STORES, &new).await, 3);
    ok(&delete(client, &third.path).await);
    let made = ok(&post_with(client, STORES, &new, ("idempotency-key", "k")).await);
    over_quota(&client.post(STORES, &new).await, 3);
    // A repeated call with an idempotency key creates no further store.
    let again = ok(&post_with(client, STORES, &new, ("idempotency-key", "k")).await);
    assert_eq!(again["id"], made["id"]);
    let listed = all(client, &format!("{STORES}?include_archived=true")).await;
    assert_eq!(listed.len(), 3);
}

const SESSIONS: &str = "/v1/sessions";

fn new_session(system: &str) -> Value {
    let agent = json!({"type": "agent", "id": "agent_1", "system": system});
    json!({"agent": agent, "environment_id": "env_1"})
}

async fn make_session(client: &Client, system: &str) -> Answer {
    let answer = client.post(SESSIONS, &new_session(system)).await;
    if let Some(token) = answer.json()["token"].as_str() {
        secrets::remember(token, "a session's token");
    }
    answer
}

fn at(object: &Value) -> String {
    format!("{SESSIONS}/{}", text(&object["id"]))
}

async fn tenant_has_so_many_sessions(place: Place) {
    let client = &place.client;
    let answers = futures::future::join_all((0..6).map(|_| make_session(client, ""))).await;
    let (made, over): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), over.len()), (2, 4));
    for answer in over {
        over_quota(answer, 2);
    }
    // An archived one counts, a deleted one does not.
    let sessions = made.iter().map(|answer| answer.json()).collect::<Vec<_>>();
    ok(&client
        .post(&format!("{}/archive", at(&sessions[0])), &json!({}))
        .await);
    over_quota(&make_session(client, "").await, 2);
    ok(&delete(client, &at(&sessions[1])).await);
    ok(&make_session(client, "").await);
    over_quota(&make_session(client, "").await, 2);
}

async fn sessions_are_described_with_so_many_bytes(place: Place) {
    let client = &place.client;
    over_quota(&make_session(client, &"x".repeat(2_000)).await, 2_000);
    let first = ok(&make_session(client, &"x".repeat(600)).await);
    ok(&make_session(client, &"x".repeat(600)).await);
    let title = |chars: usize| json!({"title": "t".repeat(chars)});
    over_quota(&client.post(&at(&first), &title(900)).await, 2_000);
    ok(&client.post(&at(&first), &title(10)).await);
    ok(&delete(client, &at(&first)).await);
    ok(&make_session(client, &"x".repeat(600)).await);
}

async fn tenant_has_so_many_keys(place: Place) {
    let client = &place.client;
    let new = json!({"name": "more", "scopes": ["memory:read"]});
    let listed = all(client, "/v1/api_keys").await.len();
    let mut made = Vec::new();
    for _ in listed..8 {
        let key = ok(&client.post("/v1/api_keys", &new).await);
        secrets::remember(text(&key["api_key"]), "an API key");
        made.push(key);
    }
    over_quota(&client.post("/v1/api_keys", &new).await, 8);
    // A key counts for a while after it was revoked.
    let revoke = format!("/v1/api_keys/{}/revoke", text(&made[0]["id"]));
    ok(&client.post(&revoke, &json!({})).await);
    over_quota(&client.post("/v1/api_keys", &new).await, 8);
}

async fn tenant_makes_so_many_changes_in_a_day(place: Place) {
    let client = &place.client;
    let store = place.store();
    let rename = async |name: &str| client.post(&store.path, &json!({"name": name})).await;
    for name in ["one", "two", "two", "three"] {
        ok(&rename(name).await);
    }
    over_quota(&rename("four").await, 3);
    over_quota(&client.post(STORES, &json!({"name": "more"})).await, 3);
    over_quota(&make_session(client, "").await, 3);
    // Memories are written as before, and what ends something is done.
    let memory = store.create("/a", "x").await;
    store.update(&memory, &json!({"content": "y"})).await;
    ok(&delete(client, &store.path).await);
    let entries = all(client, "/v1/audit?action=memory_store.delete").await;
    assert_eq!(entries.len(), 1);
}

async fn memory_holds_so_many_bytes(place: Place) {
    let store = place.store();
    let memory = store.create("/a", &"é".repeat(30)).await;
    for content in ["x".repeat(61), "é".repeat(30) + "x"] {
        let answer = store.try_create("/b", &content).await;
        invalid(&answer, "content");
        invalid(&answer, "60");
        let edit = json!({"content": content});
        invalid(&store.try_update(&memory, &edit).await, "content");
    }
    store.update(&memory, &json!({"content": "x".repeat(60)})).await;
    assert_eq!(store.version_count().await, 2);
}
