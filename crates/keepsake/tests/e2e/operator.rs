//! The operator's actions: a tenant from creation to deletion, by HTTP and by
//! commands.

mod commands;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{DeleteTenants, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Client, Deployment, Pair, eventually, secrets};

const TENANTS: &str = "/admin/v1/tenants";
const STORES: &str = "/v1/memory_stores";
/// The time until suspensions, revocations and deletions take effect.
const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(5);

/// The operator's side of a deployment.
pub(crate) struct Operator {
    pub(crate) token: String,
    pub(crate) url: String,
    /// Of a server with an operator's listener.
    pub(crate) config: ServerConfig,
}

impl Operator {
    pub(crate) fn new() -> Self {
        let (config, url, token) = ServerConfig::operated();
        Self { token, url, config }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let client = Client::new(&self.url, "");
        let request = client.bare(method, path).bearer_auth(&self.token);
        send(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        ok(&self.send(Method::GET, path, None).await)
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        ok(&self.send(Method::POST, path, Some(body)).await)
    }

    /// What the audit under a path tells, as actor, action and object.
    async fn audit(&self, path: &str) -> BTreeSet<(String, String, String)> {
        let listed = self.get(&format!("{path}?limit=100")).await;
        let entries = listed["data"].as_array().unwrap().iter();
        let fields = ["actor", "action", "object_id"];
        let entries = entries.map(|entry| fields.map(|name| text(&entry[name])).into());
        entries.collect()
    }
}

fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

fn refused(answer: &Answer, status: u16, kind: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["error"]["type"], kind);
    assert_eq!(body["request_id"], answer.header("request-id"));
    body["error"]["message"].as_str().unwrap().to_owned()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Polls until a client's requests have this status.
async fn is_felt(what: &str, client: &Client, status: u16) {
    let answered = async || client.get(STORES).await.status == status;
    eventually(what, TAKES_EFFECT_WITHIN, answered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tenant_leaves_nothing_on_postgres_and_s3() {
    deleted_tenant_leaves_nothing(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tenant_leaves_nothing_on_postgres() {
    deleted_tenant_leaves_nothing(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_tenant_leaves_nothing_on_sqlite() {
    deleted_tenant_leaves_nothing(Pair::Sqlite).await;
}

async fn assert_is_removed(deployment: &Deployment, id: &str) {
    if deployment.pair.has_s3() {
        plant_orphan(deployment, id).await;
    }
    let report = remove(deployment, id).await;
    let rows = ["version", "tenant", "content"].map(|table| report["rows"][table].as_u64().unwrap_or(0));
    let contents = if deployment.pair.has_s3() { 0 } else { 3 };
    assert_eq!(rows, [3, 1, contents]);
    let (blobs, bytes) = removed_objects(deployment.pair);
    assert_eq!(report["blobs"], blobs);
    assert_eq!(report["bytes"], bytes);
    assert_nothing_is_left(deployment, id).await;
}

/// The objects of the tenant and their bytes: of three versions, and an orphan.
const fn removed_objects(pair: Pair) -> (u64, u64) {
    if pair.has_s3() { (4, 26) } else { (0, 0) }
}

/// A tenant as it was made, which is changed by now.
async fn made_and_changed(operator: &Operator) -> Value {
    let limits = json!({"memories_per_store": 7, "api_keys_per_tenant": 2});
    let body = json!({"name": "Acme", "external_id": "acme", "limits": limits});
    let tenant = operator.post(TENANTS, &body).await;
    let id = text(&tenant["id"]);
    let path = format!("{TENANTS}/{id}");
    assert_eq!(tenant["status"], "active");
    let taken = operator.send(Method::POST, TENANTS, Some(&body)).await;
    assert!(refused(&taken, 409, "conflict_error").contains("external id"));
    assert_eq!(operator.get(&path).await, tenant);
    let called = operator.get(&format!("{TENANTS}?external_id=acme")).await;
    assert_eq!(called["data"], json!([tenant]));

    let change = json!({"name": "Acme 2", "external_id": null, "limits": {"max_view_chars": 9, "memories_per_store": null}});
    let changed = ok(&operator.send(Method::PATCH, &path, Some(&change)).await);
    // The limit that is not named stays.
    let limits = json!({"max_view_chars": 9, "api_keys_per_tenant": 2});
    assert_eq!(changed["limits"], limits);
    assert_eq!(changed["name"], "Acme 2");
    assert_eq!(changed["external_id"], json!(null));
    tenant
}

/// That a usage counts what [`write`] wrote, and one key.
fn assert_usage(usage: &Value) {
    for (name, count) in [
        ("memory_stores", 1),
        ("memories", 2),
        ("content_bytes", 15),
        ("memory_versions", 3),
        ("version_bytes", 20),
        ("api_keys", 1),
    ] {
        assert_eq!(usage[name], count, "{name}: {usage}");
    }
}

async fn deleted_tenant_leaves_nothing(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config).await;
    let tenant = made_and_changed(&operator).await;
    let id = text(&tenant["id"]);
    let path = format!("{TENANTS}/{id}");

    let new_key =
        json!({"name": "all", "scopes": ["memory:read", "memory:write", "stores:admin", "keys:admin"]});
    let all_keys = format!("{path}/api_keys");
    let key = operator.post(&all_keys, &new_key).await;
    let secret = text(&key["api_key"]);
    secrets::remember(&secret, "an API key");
    let key_path = format!("{path}/api_keys/{}", text(&key["id"]));
    let shown = operator.get(&key_path).await;
    // The secret is shown once.
    assert_eq!((&shown["id"], shown.get("api_key")), (&key["id"], None));

    let client = Client::new(&server.url(), &secret);
    let written = write(&client).await;
    let usage = operator.get(&format!("{path}/usage")).await;
    assert_usage(&usage);
    assert_eq!(usage["limits"]["max_view_chars"], 9);
    operator.post(&format!("{path}/suspend"), &json!({})).await;
    is_felt("the suspension", &client, 401).await;
    operator.post(&format!("{path}/resume"), &json!({})).await;
    is_felt("the resumption", &client, 200).await;

    let own = json!({"name": "own", "scopes": ["memory:read"], "memory_store_ids": [written]});
    let own = ok(&client.post("/v1/api_keys", &own).await);
    let own_secret = text(&own["api_key"]);
    secrets::remember(&own_secret, "an API key");
    let by_own = client.with_key(&own_secret);
    is_felt("the new key", &by_own, 200).await;
    let third = operator.send(Method::POST, &all_keys, Some(&new_key)).await;
    refused(&third, 429, "rate_limit_error");
    let own_path = format!("{path}/api_keys/{}/revoke", text(&own["id"]));
    assert!(operator.post(&own_path, &json!({})).await["revoked_at"].is_string());
    is_felt("the revocation", &by_own, 401).await;

    let by_operator = |action: &str, object: &Value| ("operator".to_owned(), action.to_owned(), text(object));
    let mut expected = BTreeSet::from([
        by_operator("tenant.create", &tenant["id"]),
        by_operator("tenant.update", &tenant["id"]),
        by_operator("api_key.create", &key["id"]),
        by_operator("tenant.suspend", &tenant["id"]),
        by_operator("tenant.resume", &tenant["id"]),
        by_operator("api_key.revoke", &own["id"]),
    ]);
    assert_eq!(operator.audit("/admin/v1/audit").await, expected);
    let by_key = format!("api_key:{}", text(&key["id"]));
    let by_tenant = [
        (by_key.clone(), "memory_store.create".to_owned(), written.clone()),
        (by_key, "api_key.create".to_owned(), text(&own["id"])),
    ];
    let of_tenant = expected.iter().cloned().chain(by_tenant).collect();
    assert_eq!(operator.audit(&format!("{path}/audit")).await, of_tenant);

    let begun = operator.send(Method::DELETE, &path, None).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    assert_eq!(begun.json()["status"], "removing");
    is_felt("the deletion", &client, 401).await;
    let unknown = refused(&client.get(STORES).await, 401, "authentication_error");
    assert!(unknown.contains("unknown"), "{unknown}");
    assert_accepts_nothing_new(&operator, &path, &new_key, &begun.json()).await;

    expected.insert(by_operator("tenant.delete", &tenant["id"]));
    assert_eq!(operator.audit("/admin/v1/audit").await, expected);
    server.end().await;

    assert_is_removed(&deployment, &id).await;
    server.restart().await;
    let gone = operator.send(Method::GET, &path, None).await;
    refused(&gone, 404, "not_found_error");
    let done = operator.get(&format!("/admin/v1/tenant_deletions/{id}")).await;
    let (blobs, bytes) = removed_objects(pair);
    assert_eq!(done["status"], "done");
    assert_eq!(done["blobs"], blobs);
    assert_eq!(done["blob_bytes"], bytes);
    let versions = json!({"deleted": 0, "not_versioned": blobs, "not_deleted": 0});
    assert_eq!(done["object_versions"], versions);
    assert_is_deleted_once(&operator, &path, &done).await;
    let outlives = operator.audit("/admin/v1/audit").await;
    assert_eq!(outlives, expected);
    server.end().await;
}

async fn assert_accepts_nothing_new(operator: &Operator, path: &str, new_key: &Value, deletion: &Value) {
    let resumed = operator.send(Method::POST, &format!("{path}/resume"), None).await;
    refused(&resumed, 409, "conflict_error");
    let keys = format!("{path}/api_keys");
    let late = operator.send(Method::POST, &keys, Some(new_key)).await;
    refused(&late, 404, "not_found_error");
    assert_is_deleted_once(operator, path, deletion).await;
}

/// Deletes a tenant again, which answers the first deletion.
async fn assert_is_deleted_once(operator: &Operator, path: &str, deletion: &Value) {
    let again = operator.send(Method::DELETE, path, None).await;
    assert_eq!(again.status, 202, "{}", again.text);
    let again = again.json();
    for field in ["id", "requested_at"] {
        assert_eq!(again[field], deletion[field]);
    }
    let audit = operator.get("/admin/v1/audit?limit=100").await;
    let deletions = audit["data"].as_array().unwrap().iter();
    let deletions = deletions.filter(|entry| entry["action"] == "tenant.delete");
    assert_eq!(deletions.count(), 1);
}

/// Two memories of three versions in a new store, which is answered.
async fn write(client: &Client) -> String {
    let store = text(&ok(&client.post(STORES, &json!({"name": "notes"})).await)["id"]);
    let memories = format!("{STORES}/{store}/memories");
    let create = async |path: &str, content: &str| {
        ok(&client.post(&memories, &json!({"path": path, "content": content})).await)
    };
    create("/a", "12345").await;
    let memory = create("/b", "12345").await;
    let edit = json!({"content": "1234567890"});
    ok(&client.post(&format!("{memories}/{}", text(&memory["id"])), &edit).await);
    store
}

/// A blob of the tenant that no row names.
async fn plant_orphan(deployment: &Deployment, id: &str) {
    let key = BlobKey {
        tenant_id: id.parse().unwrap(),
        store_id: StoreId::from_uuid(Uuid::from_u128(1)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(1)),
    };
    let blobs = deployment.blobs().await;
    blobs.put(&key, Bytes::from_static(b"orphan")).await.unwrap();
}

/// Runs the job as the hours go by; answers the rows by table, blobs and bytes.
async fn remove(deployment: &Deployment, id: &str) -> Value {
    // Later than a slot that the server's own worker may have run.
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_mins(5))));
    let options = EngineOptions { clock: clock.clone(), ..EngineOptions::default() };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let tenant_id: TenantId = id.parse().unwrap();
    for _ in 0..2 {
        let (job, stop) = (Arc::new(DeleteTenants), CancellationToken::new());
        let ran = engine.jobs.run(job, RunRequest::SCHEDULED, &stop).await;
        assert!(matches!(ran, Ok(RunOutcome::Ran(_))), "{ran:?}");
        clock.advance(Duration::from_hours(2));
    }
    let done = engine.operator.tenants.deletion(tenant_id).await.unwrap();
    index.close().await;
    assert!(done.ended_at.is_some(), "{done:?}");
    json!({"rows": done.rows, "blobs": done.blobs, "bytes": done.blob_bytes})
}

/// Looks at every table that has a tenant's id, as the database names them, and
/// at the object store.
async fn assert_nothing_is_left(deployment: &Deployment, id: &str) {
    let tenant_id: TenantId = id.parse().unwrap();
    let hex = tenant_id.uuid().simple().to_string();
    let database = deployment.database().await;
    let tables = database.tenant_tables().await;
    assert!(tables.len() >= 14, "{tables:?}");
    for table in tables.iter().filter(|table| *table != "tenant_deletion") {
        let count = if deployment.pair.has_postgres() {
            format!("SELECT count(*) FROM {table} WHERE tenant_id = '{hex}'")
        } else {
            format!("SELECT count(*) FROM {table} WHERE tenant_id = x'{hex}'")
        };
        assert_eq!(database.number(&count).await, 0, "{table}");
    }
    database.close().await;
    let listed = deployment.blobs().await.list(None, None, 100_000).await.unwrap();
    assert!(listed.iter().all(|blob| blob.key.tenant_id != tenant_id), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn public_and_operator_listeners_accept_only_their_own_credentials() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let server = deployment.start_with(&operator.config).await;
    let admin = Client::new(&operator.url, &tenant.key);
    let public = server.client(&tenant);
    let wrong = format!("{}y", operator.token);
    secrets::remember(&wrong, "a wrong token");
    let basic = format!("Basic {}", operator.token);

    for path in [TENANTS, "/admin/v1/audit", "/admin/v1/nothing"] {
        for request in [
            admin.bare(Method::GET, path),
            admin.request(Method::GET, path),
            admin.bare(Method::GET, path).bearer_auth(&wrong),
            admin.bare(Method::GET, path).bearer_auth(&tenant.key),
            admin.bare(Method::GET, path).header("authorization", &basic),
        ] {
            refused(&send(request).await, 401, "authentication_error");
        }
        // The token is nothing to the public side, which has no such path.
        let answer = send(public.bare(Method::GET, path).bearer_auth(&operator.token)).await;
        refused(&answer, 404, "not_found_error");
    }
    let answer = send(public.bare(Method::GET, STORES).bearer_auth(&operator.token)).await;
    refused(&answer, 401, "authentication_error");
    let public_only = [STORES, "/v1/api_keys", "/openapi.json", "/docs"];
    for path in public_only.into_iter().chain(["/admin/v1/nothing"]) {
        let answer = operator.send(Method::GET, path, None).await;
        refused(&answer, 404, "not_found_error");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(send(admin.bare(Method::GET, path)).await.status, 200);
    }

    let wrong_method = operator.send(Method::PUT, TENANTS, None).await;
    refused(&wrong_method, 405, "invalid_request_error");
    let request = admin.bare(Method::POST, TENANTS).bearer_auth(&operator.token);
    refused(&send(request.body("{}")).await, 415, "invalid_request_error");
    let keys = format!("{TENANTS}/{}/api_keys", tenant.id);
    let with = |field: &str, value: Value| {
        let mut body = json!({"name": "a", "scopes": ["memory:read"]});
        body[field] = value;
        body
    };
    let tenant_with = |field: &str, value: Value| json!({"name": "a", field: value});
    let limit = |name: &str, value: i64| tenant_with("limits", json!({name: value}));
    for (path, body, named) in [
        (TENANTS, json!({"name": ""}), "`name`"),
        (TENANTS, tenant_with("external_id", json!("\u{7}")), "`external_id`"),
        (TENANTS, limit("bytes_per_memroy", 1), "`bytes_per_memroy`"),
        (TENANTS, limit("bytes_per_memory", -1), "`bytes_per_memory`"),
        (TENANTS, tenant_with("nmae", json!("b")), "`nmae`"),
        (&keys, with("scopes", json!([])), "`scopes`"),
        (&keys, with("scopes", json!(["all"])), "scopes"),
        (&keys, with("expires_at", json!("soon")), "`expires_at`"),
        (&keys, with("expires_at", json!("2020-01-01")), "`expires_at`"),
        (&keys, with("memory_store_ids", json!([])), "`memory_store_ids`"),
    ] {
        let answer = operator.send(Method::POST, path, Some(&body)).await;
        let message = refused(&answer, 400, "invalid_request_error");
        assert!(message.contains(named), "{message}");
    }
    let nobody = format!("{TENANTS}/wrkspc_00000000000000000000000001");
    for below in ["", "/usage", "/audit", "/api_keys"] {
        let path = format!("{nobody}{below}");
        let unknown = operator.send(Method::GET, &path, None).await;
        refused(&unknown, 404, "not_found_error");
    }
    let page = operator.get(&format!("{TENANTS}?limit=1")).await;
    assert_eq!(page["data"][0]["id"], tenant.id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_takes_effect_on_another_replica() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let _here = deployment.start_with(&operator.config).await;
    let there = deployment.start().await;
    let client = there.client(&tenant);
    is_felt("the start", &client, 200).await;
    let path = format!("{TENANTS}/{}", tenant.id);
    let keys = format!("{path}/api_keys");
    let new_key = json!({"name": "more", "scopes": ["memory:read", "keys:admin"]});
    let maker = operator.post(&keys, &new_key).await;
    secrets::remember(&text(&maker["api_key"]), "an API key");
    let by_maker = client.with_key(&text(&maker["api_key"]));
    is_felt("the new key", &by_maker, 200).await;
    // Also a replica that still takes a credential for good makes no key for it.
    let made_no_key = async |client: &Client| {
        let refused_key = client.post("/v1/api_keys", &new_key).await;
        refused(&refused_key, 401, "authentication_error");
        let listed = operator.get(&format!("{keys}?limit=100")).await;
        assert_eq!(listed["data"].as_array().unwrap().len(), 2);
    };
    let revoke = format!("{keys}/{}/revoke", text(&maker["id"]));
    operator.post(&revoke, &json!({})).await;
    made_no_key(&by_maker).await;
    operator.post(&format!("{path}/suspend"), &json!({})).await;
    made_no_key(&client).await;
    is_felt("the suspension", &client, 401).await;
    let message = refused(&client.get(STORES).await, 401, "authentication_error");
    assert!(message.contains("suspended"), "{message}");
    operator.post(&format!("{path}/resume"), &json!({})).await;
    is_felt("the resumption", &client, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_race_make_one_tenant_and_lose_no_change_on_postgres() {
    requests_that_race_make_one_tenant_and_lose_no_change(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_race_make_one_tenant_and_lose_no_change_on_sqlite() {
    requests_that_race_make_one_tenant_and_lose_no_change(Pair::Sqlite).await;
}

async fn requests_that_race_make_one_tenant_and_lose_no_change(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let _server = deployment.start_with(&operator.config).await;
    let same = json!({"name": "one", "external_id": "same"});
    let racing = (0..8).map(|_| operator.send(Method::POST, TENANTS, Some(&same)));
    let answers = join_all(racing).await;
    let (made, taken): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(made.len(), 1);
    for answer in taken {
        refused(answer, 409, "conflict_error");
    }
    let made = made[0].json();
    let path = format!("{TENANTS}/{}", text(&made["id"]));

    // An external id is no other tenant's; a tenant may be given its own again.
    let other = operator.post(TENANTS, &json!({"name": "two"})).await;
    let other_path = format!("{TENANTS}/{}", text(&other["id"]));
    let change = json!({"name": "three", "external_id": "same"});
    let taken = operator.send(Method::PATCH, &other_path, Some(&change)).await;
    refused(&taken, 409, "conflict_error");
    assert_eq!(operator.get(&other_path).await, other);
    ok(&operator.send(Method::PATCH, &path, Some(&change)).await);

    let limits = ["bytes_per_memory", "max_view_chars", "memories_per_store", "bytes_per_store"];
    let changes = limits.map(|name| json!({"limits": {name: 5}}));
    let racing = changes.iter().map(|change| operator.send(Method::PATCH, &path, Some(change)));
    for answer in join_all(racing).await {
        ok(&answer);
    }
    let stored = operator.get(&path).await["limits"].clone();
    assert!(limits.iter().all(|name| stored[*name] == 5), "{stored}");

    let whole = operator.get("/admin/v1/audit?limit=100").await;
    let whole = whole["data"].as_array().unwrap();
    // Two tenants and five changes.
    assert_eq!(whole.len(), 7);
    let (mut paged, mut page) = (Vec::new(), String::new());
    loop {
        let mut listed = operator.get(&format!("/admin/v1/audit?limit=3{page}")).await;
        paged.append(listed["data"].as_array_mut().unwrap());
        match listed["next_page"].as_str() {
            Some(next) => page = format!("&page={next}"),
            None => break,
        }
    }
    assert_eq!(&paged, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_and_revoked_by_their_tenant() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let second = provision.store(tenant.id).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    key_grants_no_more_than_its_own_rights(&client, tenant.store_id, second).await;
    let new = json!({"name": "worker", "scopes": ["memory:read"], "expires_at": "2999-01-01"});
    let post = async |body: &Value| {
        let request = client.request(Method::POST, "/v1/api_keys").json(body);
        send(request.header("idempotency-key", "once")).await
    };
    let answers = join_all((0..8).map(|_| post(&new))).await;
    let answers: Vec<_> = answers.iter().map(ok).collect();
    let (made, again): (Vec<_>, Vec<_>) = answers.iter().partition(|key| key["api_key"].is_string());
    assert_eq!(made.len(), 1, "its secret is shown once");
    let made = made[0];
    secrets::remember(&text(&made["api_key"]), "an API key");
    assert!(again.iter().all(|key| key["id"] == made["id"]));
    let reused = post(&json!({"name": "another", "scopes": ["memory:read"]})).await;
    refused(&reused, 400, "invalid_request_error");

    let path = format!("/v1/api_keys/{}", text(&made["id"]));
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown.get("api_key"), None);
    assert_eq!(shown["workspace_id"], tenant.id.to_string());
    let listed = ok(&client.get("/v1/api_keys?limit=1").await);
    assert_eq!(listed["data"], json!([shown]));
    assert!(listed["next_page"].is_string());

    let revoke = async || ok(&client.post(&format!("{path}/revoke"), &json!({})).await);
    let revoked = revoke().await;
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(revoke().await, revoked);
}

/// A key with some of all rights makes keys; `own` is the only store that it sees.
async fn key_grants_no_more_than_its_own_rights(client: &Client, own: StoreId, other: StoreId) {
    let keys = "/v1/api_keys";
    let good = json!({
        "name": "made", "scopes": ["memory:read"], "memory_store_ids": [own], "expires_at": "2999-01-01",
    });
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let make = async |maker: &Client, body: &Value| {
        let secret = text(&ok(&maker.post(keys, body).await)["api_key"]);
        secrets::remember(&secret, "an API key");
        client.with_key(&secret)
    };
    let maker = make(client, &with("scopes", json!(["keys:admin", "memory:read"]))).await;
    let reader = make(&maker, &good).await;
    let message = refused(&reader.post(keys, &good).await, 403, "permission_error");
    assert!(message.contains("keys:admin"), "{message}");

    let list = format!("{keys}?limit=100");
    let count = async || ok(&client.get(&list).await)["data"].as_array().unwrap().len();
    let before = count().await;
    let nobodys = "memstore_00000000000000000000000001";
    let later = "2999-01-01T00:00:00.000001Z";
    for (field, value, status, told) in [
        ("scopes", json!(["memory:read", "memory:write"]), 403, "memory:write"),
        ("scopes", json!([]), 400, "`scopes`"),
        ("memory_store_ids", json!(null), 400, "`memory_store_ids`"),
        ("memory_store_ids", json!([own, other]), 404, "memory store"),
        ("memory_store_ids", json!([own, nobodys]), 404, "memory store"),
        ("expires_at", json!(null), 400, "`expires_at`"),
        ("expires_at", json!(later), 400, "`expires_at`"),
        ("expires_at", json!("2020-01-01"), 400, "`expires_at`"),
    ] {
        let kind = match status {
            403 => "permission_error",
            404 => "not_found_error",
            _ => "invalid_request_error",
        };
        let message = refused(&maker.post(keys, &with(field, value)).await, status, kind);
        assert!(message.contains(told), "{field}: {message}");
    }
    assert_eq!(count().await, before, "no key was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_are_not_counted_as_done() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config).await;
    let ran = async || {
        let page = operator.send(Method::GET, "/metrics", None).await.text;
        let series = r#"keepsake_job_runs_total{job="reconcile-usage",outcome="succeeded"} "#;
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.map(|count| count.parse::<u32>().unwrap())
    };
    // Scheduled runs in between are ignored.
    let before = ran().await;
    ask_for_run(&operator, "reconcile-usage", true).await;
    assert_eq!(ran().await, before);
    ask_for_run(&operator, "reconcile-usage", false).await;
    assert_eq!(ran().await, Some(before.unwrap_or(0) + 1));
    server.end().await;
}

/// Runs a job to its end.
async fn ask_for_run(operator: &Operator, name: &str, is_dry: bool) {
    let path = format!("/admin/v1/jobs/{name}");
    let body = json!({"dry_run": is_dry});
    let begun = operator.send(Method::POST, &format!("{path}/run"), Some(&body)).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    let id = begun.json()["id"].clone();
    let ended = async || {
        let history = operator.get(&format!("{path}/runs")).await;
        let runs = history["data"].as_array().unwrap();
        let run = runs.iter().find(|run| run["id"] == id).unwrap();
        !run["ended_at"].is_null()
    };
    eventually("the run ends", TAKES_EFFECT_WITHIN, ended).await;
}
