//! The operator's actions: a tenant from creation to deletion, by HTTP and by
//! commands.

mod commands;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{DeleteTenants, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use keepsake_testkit::keepsake_server::free_port;
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
struct Operator {
    token: String,
    port: u16,
}

impl Operator {
    fn new() -> Self {
        let token = format!("operator-{}-{}", Uuid::new_v4().simple(), "x");
        secrets::remember(&token, "the operator's token");
        Self {
            token,
            port: free_port(),
        }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig {
            operator: Some((self.port, self.token.clone())),
            ..ServerConfig::default()
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let client = Client::new(&self.url(), "");
        let request = client.bare(method, path).bearer_auth(&self.token);
        send(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    async fn get(&self, path: &str) -> Value {
        ok(&self.send(Method::GET, path, None).await)
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        ok(&self.send(Method::POST, path, Some(body)).await)
    }

    /// What the audit under a path tells, as actor, action and object.
    async fn audit(&self, path: &str) -> BTreeSet<(String, String, String)> {
        let listed = self.get(&format!("{path}?limit=100")).await;
        let entries = listed["data"].as_array().unwrap().iter();
        let field = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        entries
            .map(|entry| {
                (
                    field(entry, "actor"),
                    field(entry, "action"),
                    field(entry, "object_id"),
                )
            })
            .collect()
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
    assert_eq!(
        (&report["blobs"], &report["bytes"]),
        (&json!(blobs), &json!(bytes))
    );
    assert_nothing_is_left(deployment, id).await;
}

/// The objects of the tenant and their bytes: of three versions, and an orphan.
const fn removed_objects(pair: Pair) -> (u64, u64) {
    if pair.has_s3() { (4, 26) } else { (0, 0) }
}

/// A tenant as it was made, which is changed by now.
async fn made_and_changed(operator: &Operator) -> Value {
    let body = json!({"name": "Acme", "external_id": "acme", "limits": {"memories_per_store": 7}});
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
    assert_eq!(changed["limits"], json!({"max_view_chars": 9}));
    assert_eq!(
        (&changed["name"], &changed["external_id"]),
        (&json!("Acme 2"), &Value::Null)
    );
    tenant
}

async fn deleted_tenant_leaves_nothing(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config()).await;
    let tenant = made_and_changed(&operator).await;
    let id = text(&tenant["id"]);
    let path = format!("{TENANTS}/{id}");

    let new_key =
        json!({"name": "all", "scopes": ["memory:read", "memory:write", "stores:admin", "keys:admin"]});
    let key = operator.post(&format!("{path}/api_keys"), &new_key).await;
    let secret = text(&key["api_key"]);
    secrets::remember(&secret, "an API key");
    let key_path = format!("{path}/api_keys/{}", text(&key["id"]));
    let shown = operator.get(&key_path).await;
    assert_eq!(
        (&shown["id"], shown.get("api_key")),
        (&key["id"], None),
        "shown once"
    );

    let client = Client::new(&server.url(), &secret);
    let written = write(&client).await;
    let usage = operator.get(&format!("{path}/usage")).await;
    let counted = [
        "memory_stores",
        "memories",
        "content_bytes",
        "memory_versions",
        "version_bytes",
        "api_keys",
    ];
    assert_eq!(
        counted.map(|name| usage[name].as_u64().unwrap()),
        [1, 2, 15, 3, 20, 1]
    );
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
    let resumed = operator.send(Method::POST, &format!("{path}/resume"), None).await;
    refused(&resumed, 409, "conflict_error");

    expected.insert(by_operator("tenant.delete", &tenant["id"]));
    assert_eq!(operator.audit("/admin/v1/audit").await, expected);
    server.end().await;

    assert_is_removed(&deployment, &id).await;
    server.restart().await;
    refused(
        &operator.send(Method::GET, &path, None).await,
        404,
        "not_found_error",
    );
    let done = operator.get(&format!("/admin/v1/tenant_deletions/{id}")).await;
    let (blobs, bytes) = removed_objects(pair);
    assert_eq!(
        (&done["status"], &done["blobs"], &done["blob_bytes"]),
        (&json!("done"), &json!(blobs), &json!(bytes))
    );
    let versions = json!({"deleted": 0, "not_versioned": blobs, "not_deleted": 0});
    assert_eq!(done["object_versions"], versions);
    assert_eq!(
        operator.audit("/admin/v1/audit").await,
        expected,
        "it outlives the tenant"
    );
    server.end().await;
}

/// Two memories of three versions in a new store, which is answered.
async fn write(client: &Client) -> String {
    let store = text(&ok(&client.post(STORES, &json!({"name": "notes"})).await)["id"]);
    let memories = format!("{STORES}/{store}/memories");
    let create = async |path: &str, content: &str| {
        ok(&client
            .post(&memories, &json!({"path": path, "content": content}))
            .await)
    };
    create("/a", "12345").await;
    let memory = create("/b", "12345").await;
    let edit = json!({"content": "1234567890"});
    ok(&client
        .post(&format!("{memories}/{}", text(&memory["id"])), &edit)
        .await);
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
    let options = EngineOptions {
        clock: clock.clone(),
        ..EngineOptions::default()
    };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let tenant_id: TenantId = id.parse().unwrap();
    for _ in 0..2 {
        let ran = engine
            .jobs
            .run(
                Arc::new(DeleteTenants),
                RunRequest::SCHEDULED,
                &CancellationToken::new(),
            )
            .await;
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
    assert!(
        listed.iter().all(|blob| blob.key.tenant_id != tenant_id),
        "{listed:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn public_and_operator_listeners_accept_only_their_own_credentials() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let server = deployment.start_with(&operator.config()).await;
    let admin = Client::new(&operator.url(), &tenant.key);
    let public = server.client(&tenant);
    let wrong = format!("{}y", operator.token);
    secrets::remember(&wrong, "a wrong token");

    for path in [TENANTS, "/admin/v1/audit", "/admin/v1/nothing"] {
        for request in [
            admin.bare(Method::GET, path),
            admin.request(Method::GET, path),
            admin.bare(Method::GET, path).bearer_auth(&wrong),
            admin.bare(Method::GET, path).bearer_auth(&tenant.key),
            admin
                .bare(Method::GET, path)
                .header("authorization", format!("Basic {}", operator.token)),
        ] {
            refused(&send(request).await, 401, "authentication_error");
        }
        // The token is nothing to the public side, which has no such path.
        let answer = send(public.bare(Method::GET, path).bearer_auth(&operator.token)).await;
        refused(&answer, 404, "not_found_error");
    }
    let answer = send(public.bare(Method::GET, STORES).bearer_auth(&operator.token)).await;
    refused(&answer, 401, "authentication_error");
    for path in [
        STORES,
        "/v1/api_keys",
        "/openapi.json",
        "/docs",
        "/admin/v1/nothing",
    ] {
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
    for (body, named) in [
        (json!({"name": ""}), "`name`"),
        (json!({"name": "a", "external_id": "\u{7}"}), "`external_id`"),
        (
            json!({"name": "a", "limits": {"bytes_per_memroy": 1}}),
            "`bytes_per_memroy`",
        ),
        (
            json!({"name": "a", "limits": {"bytes_per_memory": -1}}),
            "`bytes_per_memory`",
        ),
        (json!({"name": "a", "nmae": "b"}), "`nmae`"),
    ] {
        let answer = operator.send(Method::POST, TENANTS, Some(&body)).await;
        let message = refused(&answer, 400, "invalid_request_error");
        assert!(message.contains(named), "{message}");
    }
    let keys = format!("{TENANTS}/{}/api_keys", tenant.id);
    for (body, named) in [
        (json!({"name": "k", "scopes": []}), "`scopes`"),
        (json!({"name": "k", "scopes": ["all"]}), "scopes"),
        (
            json!({"name": "k", "scopes": ["memory:read"], "expires_at": "soon"}),
            "`expires_at`",
        ),
        (
            json!({"name": "k", "scopes": ["memory:read"], "expires_at": "2020-01-01"}),
            "`expires_at`",
        ),
        (
            json!({"name": "k", "scopes": ["memory:read"], "memory_store_ids": []}),
            "`memory_store_ids`",
        ),
    ] {
        let answer = operator.send(Method::POST, &keys, Some(&body)).await;
        let message = refused(&answer, 400, "invalid_request_error");
        assert!(message.contains(named), "{message}");
    }
    let nobody = format!("{TENANTS}/wrkspc_00000000000000000000000001");
    for path in [
        nobody.clone(),
        format!("{nobody}/usage"),
        format!("{nobody}/audit"),
        format!("{nobody}/api_keys"),
    ] {
        refused(
            &operator.send(Method::GET, &path, None).await,
            404,
            "not_found_error",
        );
    }
    let page = operator.get(&format!("{TENANTS}?limit=1")).await;
    assert_eq!(page["data"][0]["id"], tenant.id.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_takes_effect_on_another_replica() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let _here = deployment.start_with(&operator.config()).await;
    let there = deployment.start().await;
    let client = there.client(&tenant);
    is_felt("the start", &client, 200).await;
    let path = format!("{TENANTS}/{}", tenant.id);
    operator.post(&format!("{path}/suspend"), &json!({})).await;
    is_felt("the suspension", &client, 401).await;
    let message = refused(&client.get(STORES).await, 401, "authentication_error");
    assert!(message.contains("suspended"), "{message}");
    operator.post(&format!("{path}/resume"), &json!({})).await;
    is_felt("the resumption", &client, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_and_revoked_by_their_tenant() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let stranger = provision.tenant(LimitOverrides::default()).await;
    provision.close().await;
    let server = deployment.start().await;
    let (client, other) = (server.client(&tenant), server.client(&stranger));
    let new = json!({"name": "worker", "scopes": ["memory:read"], "expires_at": "2999-01-01"});
    let post = async |body: &Value| {
        send(
            client
                .request(Method::POST, "/v1/api_keys")
                .header("idempotency-key", "once")
                .json(body),
        )
        .await
    };
    let made = ok(&post(&new).await);
    secrets::remember(&text(&made["api_key"]), "an API key");
    let again = ok(&post(&new).await);
    assert_eq!(
        (&again["id"], &again["api_key"]),
        (&made["id"], &Value::Null),
        "its secret is shown once"
    );
    let reused = post(&json!({"name": "another", "scopes": ["memory:read"]})).await;
    refused(&reused, 400, "invalid_request_error");

    let path = format!("/v1/api_keys/{}", text(&made["id"]));
    let shown = ok(&client.get(&path).await);
    assert_eq!(shown.get("api_key"), None);
    assert_eq!(shown["workspace_id"], tenant.id.to_string());
    refused(&other.get(&path).await, 404, "not_found_error");
    let foreign = other.post(&format!("{path}/revoke"), &json!({})).await;
    refused(&foreign, 404, "not_found_error");
    let listed = ok(&client.get("/v1/api_keys?limit=1").await);
    assert_eq!(listed["data"], json!([shown]));
    assert!(listed["next_page"].is_string());

    let worker = client.with_key(&text(&made["api_key"]));
    refused(&worker.get("/v1/api_keys").await, 403, "permission_error");
    let revoked = ok(&client.post(&format!("{path}/revoke"), &json!({})).await);
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(
        ok(&client.post(&format!("{path}/revoke"), &json!({})).await),
        revoked
    );
    is_felt("the revocation", &worker, 401).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_are_not_counted_as_done() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config()).await;
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
    let begun = operator
        .send(Method::POST, &format!("{path}/run"), Some(&body))
        .await;
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
