//! The operator's actions: a tenant from creation to deletion, by HTTP and by commands.

mod backup;
mod commands;
mod console;

use keepsake_testkit::keepsake_server::free_port;

use crate::api::support::parted;
use crate::prelude::*;

const TENANTS: &str = "/admin/v1/tenants";
/// The time until suspensions, revocations and deletions take effect.
const TAKES_EFFECT_WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct Operator {
    pub(crate) token: String,
    pub(crate) url: String,
    /// Of a server with an operator's listener.
    pub(crate) config: ServerConfig,
}

impl Operator {
    pub(crate) fn new() -> Self {
        let token = format!("operator-{}", Uuid::new_v4().simple());
        secrets::remember(&token, "the operator's token");
        let port = free_port();
        let config = ServerConfig { operator: Some((port, token.clone())), ..ServerConfig::default() };
        Self { token, url: format!("http://127.0.0.1:{port}"), config }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let client = Client::new(&self.url, "");
        let request = client.bare(method, path).bearer_auth(&self.token);
        send(if let Some(body) = body { request.json(body) } else { request }).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        ok(&self.send(Method::GET, path, None).await)
    }

    pub(crate) async fn metric(&self, series: &str) -> Option<usize> {
        let metrics = self.send(Method::GET, "/metrics", None).await.text;
        Some(metrics.lines().find_map(|line| line.strip_prefix(series))?.parse().unwrap())
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        ok(&self.send(Method::POST, path, Some(body)).await)
    }

    /// What the audit under a path tells, as actor, action and object.
    async fn audit(&self, path: &str) -> BTreeSet<String> {
        let listed = self.get(&format!("{path}?limit=100")).await;
        let told = |entry: &Value| ["actor", "action", "object_id"].map(|name| text(&entry[name])).join(" ");
        listed["data"].as_array().unwrap().iter().map(told).collect()
    }
}

async fn is_felt(what: &str, client: &Client, status: u16) {
    let answered = async || client.get(STORES).await.status == status;
    eventually(what, TAKES_EFFECT_WITHIN, answered).await;
}

on_pairs! { deleted_tenant_leaves_nothing: PostgresS3, Postgres, Sqlite }

async fn deleted_tenant_leaves_nothing(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config).await;
    let (path, client) = tenant_with_a_life(&operator, &server).await;
    let id = path.rsplit('/').next().unwrap();
    let begun = operator.send(Method::DELETE, &path, None).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    assert_eq!(begun.json()["status"], "removing");
    is_felt("the deletion", &client, 401).await;
    refused_for(&client.get(STORES).await, 401, "authentication_error", "unknown");
    let resumed = operator.send(Method::POST, &format!("{path}/resume"), None).await;
    refused(&resumed, 409, "conflict_error");
    let late = operator.send(Method::POST, &format!("{path}/api_keys"), Some(&all_scopes())).await;
    refused(&late, 404, "not_found_error");
    assert_is_deleted_once(&operator, &path, &begun.json()).await;
    let audit = operator.audit("/admin/v1/audit").await;
    server.end().await;

    // Later than a slot that the server's own worker may have run.
    let worker = deployment.worker_ahead(Duration::from_mins(5)).await;
    for _ in 0..2 {
        worker.run(DeleteTenants, RunRequest::SCHEDULED).await;
        worker.clock.advance(Duration::from_hours(2));
    }
    worker.close().await;
    assert_nothing_is_left(&deployment, id).await;
    server.restart().await;
    let gone = operator.send(Method::GET, &path, None).await;
    refused(&gone, 404, "not_found_error");
    let done = operator.get(&format!("/admin/v1/tenant_deletions/{id}")).await;
    assert_eq!(done["status"], "done");
    assert_is_deleted_once(&operator, &path, &done).await;
    assert_eq!(operator.audit("/admin/v1/audit").await, audit, "it outlives the tenant");
    server.end().await;
}

fn all_scopes() -> Value {
    json!({"name": "all", "scopes": ["memory:read", "memory:write", "stores:admin", "keys:admin"]})
}

/// Makes a tenant to which everything happened but its deletion; answers its path and a client.
async fn tenant_with_a_life(operator: &Operator, server: &Server) -> (String, Client) {
    let body = json!({"name": "Acme", "limits": {"api_keys_per_tenant": 2}});
    let tenant = operator.post(TENANTS, &body).await;
    let path = format!("{TENANTS}/{}", text(&tenant["id"]));
    let all_keys = format!("{path}/api_keys");
    let key = operator.post(&all_keys, &all_scopes()).await;
    let client = Client::new(&server.url(), secret(&key, "api_key"));
    let written = write(&client).await;
    // A deleted store is counted no longer.
    let deleted = write(&client).await;
    ok(&delete(&client, &format!("{STORES}/{deleted}")).await);
    let usage = operator.get(&format!("{path}/usage")).await;
    let names = "memory_stores memories content_bytes memory_versions version_bytes api_keys".split(' ');
    let counted: Vec<_> = names.map(|name| usage[name].as_u64().unwrap()).collect();
    assert_eq!(counted, [1, 2, 15, 3, 20, 1], "{usage}");

    operator.post(&format!("{path}/suspend"), &json!({})).await;
    is_felt("the suspension", &client, 401).await;
    operator.post(&format!("{path}/resume"), &json!({})).await;
    is_felt("the resumption", &client, 200).await;

    let own = json!({"name": "own", "scopes": ["memory:read"], "memory_store_ids": [written]});
    let own = ok(&client.post("/v1/api_keys", &own).await);
    let by_own = client.with_key(secret(&own, "api_key"));
    is_felt("the new key", &by_own, 200).await;
    let third = operator.send(Method::POST, &all_keys, Some(&all_scopes())).await;
    refused(&third, 429, "rate_limit_error");
    let own_key = format!("{all_keys}/{}", text(&own["id"]));
    let revoked = operator.post(&format!("{own_key}/revoke"), &json!({})).await;
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(operator.get(&own_key).await, revoked);
    is_felt("the revocation", &by_own, 401).await;
    // Only the tenant's own audit has the actions of the tenant's keys.
    let by_key = format!("api_key:{} memory_store.create {written}", text(&key["id"]));
    for (audit, has_it) in [("/admin/v1/audit", false), (&format!("{path}/audit"), true)] {
        assert_eq!(operator.audit(audit).await.contains(&by_key), has_it);
    }
    (path, client)
}

/// Deletes a tenant again, which answers the first deletion.
async fn assert_is_deleted_once(operator: &Operator, path: &str, deletion: &Value) {
    let again = operator.send(Method::DELETE, path, None).await;
    assert_eq!(again.status, 202, "{}", again.text);
    for field in ["id", "requested_at"] {
        assert_eq!(again.json()[field], deletion[field]);
    }
    let audit = operator.get("/admin/v1/audit?limit=100").await;
    assert_eq!(audit.to_string().matches("\"tenant.delete\"").count(), 1);
}

/// Two memories of three versions in a new store, which is answered.
async fn write(client: &Client) -> String {
    let store = Store::make(client, "notes").await;
    store.create("/a", "12345").await;
    let memory = store.create("/b", "12345").await;
    store.update(&memory, &json!({"content": "1234567890"})).await;
    store.id
}

/// Looks at every table that has a tenant's id, as the database names them, and
/// at the object store.
async fn assert_nothing_is_left(deployment: &Deployment, id: &str) {
    let tenant_id: TenantId = id.parse().unwrap();
    let hex = tenant_id.uuid().simple().to_string();
    let prefix = if deployment.pair.has_postgres() { "" } else { "x" };
    let database = deployment.database().await;
    let tables = database.tenant_tables().await;
    assert!(tables.len() >= 14, "{tables:?}");
    let is_kept = |table: &str| ["operator_audit", "tenant_deletion"].contains(&table);
    for table in tables.iter().filter(|table| !is_kept(table)) {
        let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = {prefix}'{hex}'");
        assert_eq!(database.number(&count).await, 0, "{table}");
    }
    database.close().await;
    let listed = deployment.blobs().await.list(None, None, 100_000).await.unwrap();
    assert!(listed.iter().all(|blob| blob.key.tenant_id != tenant_id), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn public_and_operator_listeners_accept_only_their_own_credentials() {
    let operator = Operator::new();
    let (_deployment, tenant, _server, public) = started_with(Pair::Sqlite, &operator.config).await;
    let admin = Client::new(&operator.url, &tenant.key);
    let wrong = format!("{}y", operator.token);
    secrets::remember(&wrong, "a wrong token");
    let basic = format!("Basic {}", operator.token);

    for path in [TENANTS, "/admin/v1/audit", "/admin/v1/nothing", "/metrics"] {
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
    let nobody = format!("{TENANTS}/wrkspc_00000000000000000000000001/usage");
    for path in [STORES, "/openapi.json", "/docs", "/admin/v1/nothing", &nobody] {
        let answer = operator.send(Method::GET, path, None).await;
        refused(&answer, 404, "not_found_error");
    }
    assert_eq!(send(admin.bare(Method::GET, "/readyz")).await.status, 200);

    let keys = format!("{TENANTS}/{}/api_keys", tenant.id);
    let tenant_with = |field: &str, value: Value| (TENANTS, json!({"name": "a", field: value}));
    let wrong_mode = "`search_mode`: unknown variant `words`, expected `lexical` or `hybrid`";
    for ((path, body), named) in [
        (tenant_with("external_id", json!("\u{7}")), "`external_id`"),
        (
            tenant_with("limits", json!({"bytes_per_memroy": 1})),
            "`limits` have no `bytes_per_memroy`; there are ",
        ),
        (tenant_with("nmae", json!("b")), "`nmae`"),
        (tenant_with("search_mode", json!("words")), wrong_mode),
        ((keys.as_str(), json!({"name": "a", "scopes": ["all"]})), "scopes"),
    ] {
        let answer = operator.send(Method::POST, path, Some(&body)).await;
        invalid(&answer, named);
    }
}

on_pairs! { racing_requests_make_one_tenant_and_lose_no_change: Postgres, Sqlite }

async fn racing_requests_make_one_tenant_and_lose_no_change(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let _server = deployment.start_with(&operator.config).await;
    let same = json!({"name": "one", "external_id": "same"});
    let racing = (0..8).map(|_| operator.send(Method::POST, TENANTS, Some(&same)));
    let (made, taken) = parted(join_all(racing).await);
    assert!(made.len() == 1 && taken.iter().all(|answer| answer.status == 409), "{taken:?}");
    let path = format!("{TENANTS}/{}", text(&made[0]["id"]));
    // An external id is no other tenant's; a tenant may be given its own again.
    let other = operator.post(TENANTS, &json!({"name": "two"})).await;
    let other_path = format!("{TENANTS}/{}", text(&other["id"]));
    let change = json!({"name": "three", "external_id": "same"});
    refused(&operator.send(Method::PATCH, &other_path, Some(&change)).await, 409, "conflict_error");
    assert_eq!(operator.get(&other_path).await, other);
    ok(&operator.send(Method::PATCH, &path, Some(&change)).await);

    let limits = ["bytes_per_memory", "max_view_chars", "memories_per_store", "bytes_per_store"];
    let changes = limits.map(|name| json!({"limits": {name: 5}}));
    let racing = changes.iter().map(|change| operator.send(Method::PATCH, &path, Some(change)));
    assert!(join_all(racing).await.iter().all(|answer| answer.status == 200));
    let stored = operator.get(&path).await["limits"].clone();
    assert!(limits.iter().all(|name| stored[*name] == 5), "{stored}");
    // Two tenants and five changes.
    let audit = operator.get("/admin/v1/audit?limit=100").await;
    assert_eq!(audit["data"].as_array().unwrap().len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_and_revoked_by_their_tenant() {
    let (_deployment, tenant, _server, client) = started(Pair::Postgres).await;
    let second = Store::make(&client, "second").await;
    key_grants_no_more_than_its_own_rights(&client, tenant.store_id, &second.id).await;
    let post = async |name: &str| {
        let body = json!({"name": name, "scopes": ["memory:read"], "expires_at": "2999-01-01"});
        let request = client.request(Method::POST, "/v1/api_keys").json(&body);
        send(request.header("idempotency-key", "once")).await
    };
    let answers = join_all((0..8).map(|_| post("worker"))).await;
    let answers: Vec<_> = answers.iter().map(ok).collect();
    let (made, again): (Vec<_>, Vec<_>) = answers.iter().partition(|key| key["api_key"].is_string());
    assert_eq!(made.len(), 1, "its secret is shown once");
    let made = made[0];
    secret(made, "api_key");
    assert!(again.iter().all(|key| key["id"] == made["id"]));
    refused(&post("another").await, 400, "invalid_request_error");

    let path = format!("/v1/api_keys/{}", text(&made["id"]));
    assert_eq!(ok(&client.get(&path).await).get("api_key"), None);
    let revoke = async || ok(&client.post(&format!("{path}/revoke"), &json!({})).await);
    let revoked = revoke().await;
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(revoke().await, revoked);
}

/// A key with some of all rights makes keys; `own` is the only store that it sees.
async fn key_grants_no_more_than_its_own_rights(client: &Client, own: StoreId, other: &str) {
    let keys = "/v1/api_keys";
    let with = |field: &str, value: Value| {
        let mut body = json!({
            "name": "made", "scopes": ["memory:read"], "memory_store_ids": [own], "expires_at": "2999-01-01",
        });
        body[field] = value;
        body
    };
    let make = async |maker: &Client, scopes: Value| {
        let made = ok(&maker.post(keys, &with("scopes", scopes)).await);
        client.with_key(secret(&made, "api_key"))
    };
    let maker = make(client, json!(["keys:admin", "memory:read"])).await;
    let reader = make(&maker, json!(["memory:read"])).await;
    let body = with("name", json!("by a reader"));
    denied(&reader.post(keys, &body).await, "keys:admin");

    let list = format!("{keys}?limit=100");
    let count = async || ok(&client.get(&list).await)["data"].as_array().unwrap().len();
    let before = count().await;
    for (status, kind, field, value, told) in [
        (403, "permission_error", "scopes", json!(["memory:read", "memory:write"]), "memory:write"),
        (400, "invalid_request_error", "scopes", json!([]), "`scopes`"),
        (400, "invalid_request_error", "memory_store_ids", json!(null), "`memory_store_ids`"),
        (404, "not_found_error", "memory_store_ids", json!([own, other]), "memory store"),
        (400, "invalid_request_error", "expires_at", json!(null), "`expires_at`"),
        (400, "invalid_request_error", "expires_at", json!("2999-01-01T00:00:00.000001Z"), "`expires_at`"),
        (400, "invalid_request_error", "expires_at", json!("2020-01-01"), "`expires_at`"),
    ] {
        refused_for(&maker.post(keys, &with(field, value)).await, status, kind, told);
    }
    assert_eq!(count().await, before, "no key was made");
}
