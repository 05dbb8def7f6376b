//! Calls every route on all four pairs.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::{Answer, Client, Deployment, Pair, Tenant};

#[tokio::test(flavor = "multi_thread")]
async fn routes_answer_on_postgres_and_s3() {
    routes_answer(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_answer_on_sqlite() {
    routes_answer(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_answer_on_postgres() {
    routes_answer(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_answer_on_sqlite_and_s3() {
    routes_answer(Pair::SqliteS3).await;
}

async fn routes_answer(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);

    probes_answer(&client).await;
    store_is_created_and_retrieved(&client, &tenant).await;
    store_with_a_name_alone_has_every_field(&client).await;
    block_and_bare_input_are_answered(&client, &tenant).await;
    store_counts_what_it_holds(&client, &tenant).await;
    memory_goes_through_its_life(&client).await;
}

async fn ok(answer: impl Future<Output = Answer>) -> Value {
    let answer = answer.await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Every route of memories and versions, in the order of a life.
async fn memory_goes_through_its_life(client: &Client) {
    let store = ok(client.post("/v1/memory_stores", &json!({"name": "lives"}))).await;
    let store = format!("/v1/memory_stores/{}", store["id"].as_str().unwrap());
    let nothing = json!({});
    let new = json!({"path": "/notes/a", "content": "one"});
    let memory = ok(client.post(&format!("{store}/memories"), &new)).await;
    let at = format!("{store}/memories/{}", memory["id"].as_str().unwrap());
    assert_eq!(ok(client.get(&at)).await["content"], "one");
    let edit = json!({"content": "two", "path": "/notes/b", "pinned": true});
    ok(client.post(&at, &edit)).await;
    let patch = client
        .request(Method::PATCH, &at)
        .json(&json!({"content": "three"}));
    ok(send(patch)).await;
    let listed = ok(client.get(&format!("{store}/memories?depth=1"))).await;
    assert_eq!(
        listed["data"],
        json!([{"type": "memory_prefix", "path": "/notes/"}])
    );
    ok(send(client.request(Method::DELETE, &at))).await;

    let listed = ok(client.get(&format!("{store}/memory_versions?view=full"))).await;
    let texts: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["content"])
        .collect();
    assert_eq!(
        texts,
        [&json!(null), &json!("three"), &json!("two"), &json!("one")]
    );
    let version = |number: usize| {
        let id = listed["data"][number]["id"].as_str().unwrap();
        format!("{store}/memory_versions/{id}")
    };
    ok(client.post(&format!("{}/redact", version(3)), &nothing)).await;
    assert_eq!(ok(client.get(&version(3))).await["content"], json!(null));
    let restored = ok(client.post(&format!("{}/restore", version(2)), &nothing)).await;
    assert_eq!(
        (&restored["id"], &restored["path"]),
        (&memory["id"], &json!("/notes/b"))
    );
    assert_eq!(ok(client.get(&at)).await["content"], "two");

    ok(client.post(&format!("{store}/archive"), &nothing)).await;
    let refused = client.post(&format!("{store}/memories"), &new).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    ok(send(client.request(Method::DELETE, &store))).await;
    assert_eq!(client.get(&at).await.status, 404);
}

async fn probes_answer(client: &Client) {
    let live = send(client.bare(Method::GET, "/livez")).await;
    assert_eq!((live.status, live.text.as_str()), (200, "ok"));
    let ready = send(client.bare(Method::GET, "/readyz")).await;
    assert_eq!(ready.status, 200, "{}", ready.text);
    assert_eq!(
        ready.json(),
        json!({"index": "ok", "blobs": "ok", "upkeep": "ok"})
    );
}

/// Every answer of a credential names its request and its tenant.
fn assert_named(answer: &Answer, tenant: &Tenant) {
    assert_is_id(answer.header("request-id"), "req_");
    assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
    assert_eq!(answer.header("content-type"), "application/json");
}

fn assert_is_id(text: &str, prefix: &str) {
    let body = text.strip_prefix(prefix).unwrap_or_default();
    let is_crockford = |letter: char| "0123456789ABCDEFGHJKMNPQRSTVWXYZ".contains(letter);
    assert!(body.len() == 26 && body.chars().all(is_crockford), "{text:?}");
}

/// RFC 3339 in UTC with microseconds.
fn assert_is_time(text: &str) {
    let form: String = text
        .chars()
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
        .collect();
    assert_eq!(form, "0000-00-00T00:00:00.000000Z", "{text:?}");
}

async fn store_is_created_and_retrieved(client: &Client, tenant: &Tenant) {
    let created = client
        .post(
            "/v1/memory_stores",
            &json!({"name": "Travel", "description": "Where to go", "metadata": {"team": "a", "b": ""}}),
        )
        .await;
    assert_eq!(created.status, 200, "{}", created.text);
    assert_named(&created, tenant);
    let store = created.json();
    assert_is_id(store["id"].as_str().unwrap(), "memstore_");
    assert_is_time(store["created_at"].as_str().unwrap());
    let expected = json!({
        "id": store["id"],
        "type": "memory_store",
        "name": "Travel",
        "description": "Where to go",
        "metadata": {"team": "a", "b": ""},
        "created_at": store["created_at"],
        "updated_at": store["created_at"],
        "archived_at": null,
        "memory_count": 0,
        "content_bytes": 0,
        "expires_unused_after": null,
        "sensitive_data_policy": "off",
    });
    assert_eq!(store, expected);

    let path = format!("/v1/memory_stores/{}", store["id"].as_str().unwrap());
    for path in [path.clone(), format!("{path}?beta=true")] {
        let retrieved = client.get(&path).await;
        assert_eq!(retrieved.status, 200, "{}", retrieved.text);
        assert_named(&retrieved, tenant);
        assert_eq!(retrieved.json(), store);
        assert_ne!(retrieved.header("request-id"), created.header("request-id"));
    }
}

async fn store_with_a_name_alone_has_every_field(client: &Client) {
    let nulls = json!({"name": "a", "description": null, "metadata": null});
    for body in [json!({"name": "a"}), nulls] {
        let request = client
            .request(Method::POST, "/v1/memory_stores?beta=true")
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", "agent-memory-2026-07-22")
            .json(&body);
        let answer = send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let store = answer.json();
        assert_eq!(
            (&store["description"], &store["metadata"]),
            (&json!(""), &json!({}))
        );
    }
}

async fn block_and_bare_input_are_answered(client: &Client, tenant: &Tenant) {
    let input = json!({"command": "create", "path": "/memories/a.txt", "file_text": "one\n"});
    let block = json!({"type": "tool_use", "id": "toolu_01", "name": "memory", "input": input});
    let answer = client.call(tenant.store_id, &block).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_named(&answer, tenant);
    let created = "File created successfully at: /memories/a.txt";
    let expected =
        json!({"type": "tool_result", "tool_use_id": "toolu_01", "content": created, "is_error": false});
    assert_eq!(answer.json(), expected);

    let answer = client.call(tenant.store_id, &input).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_named(&answer, tenant);
    let exists = "Error: File /memories/a.txt already exists";
    assert_eq!(
        answer.json(),
        json!({"type": "tool_result", "content": exists, "is_error": true})
    );

    let nameless = json!({"type": "tool_use", "name": "memory", "input": {"command": "view", "path": "/memories/a.txt"}});
    let answer = client.call(tenant.store_id, &nameless).await.json();
    assert_eq!(answer.get("tool_use_id"), None);
    assert_eq!(answer["is_error"], false);

    let other_tool =
        json!({"type": "tool_use", "id": "toolu_02", "name": "bash", "input": {"command": "view"}});
    let answer = client.call(tenant.store_id, &other_tool).await.json();
    assert_eq!(answer["tool_use_id"], "toolu_02");
    assert_eq!(answer["is_error"], true);
    assert!(
        answer["content"].as_str().unwrap().contains("`memory`"),
        "{answer}"
    );

    let charset = client
        .request(Method::POST, &tool_calls(tenant.store_id))
        .header("content-type", "application/json; charset=utf-8")
        .body(r#"{"command":"view","path":"/memories"}"#);
    assert_eq!(send(charset).await.status, 200);
}

async fn store_counts_what_it_holds(client: &Client, tenant: &Tenant) {
    let path = format!("/v1/memory_stores/{}", tenant.store_id);
    let before = client.get(&path).await.json();
    let edit =
        json!({"command": "insert", "path": "/memories/a.txt", "insert_line": 1, "insert_text": "two"});
    client.tool_ok(tenant, &edit).await;
    client
        .tool_ok(
            tenant,
            &json!({"command": "create", "path": "/memories/b/c.txt", "file_text": "é"}),
        )
        .await;
    let after = client.get(&path).await.json();
    assert_eq!(
        (&after["memory_count"], &after["content_bytes"]),
        (&json!(2), &json!(10))
    );
    assert_eq!(after["updated_at"], before["updated_at"]);
}
