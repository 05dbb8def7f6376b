//! Tokens of issuers, changes that take effect, and the server's secrets.

use std::time::{Duration, Instant};

use keepsake_core::limits::LimitOverrides;
use keepsake_testkit::{IssuerKey, JwksServer, issuer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{send, tool_calls};
use crate::support::deployment::{FREE_RATES, ServerConfig};
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant, now_secs, secrets};

const STORES: &str = "/v1/memory_stores";

/// An issuer of people's tokens with keys behind HTTP, and one of workloads'
/// tokens with a key in a file.
struct Issuers {
    keys: [(&'static str, IssuerKey); 3],
    jwks: JwksServer,
    workload: IssuerKey,
    folder: tempfile::TempDir,
}

impl Issuers {
    async fn new() -> Self {
        let keys = [("rsa", IssuerKey::rsa()), ("p256", IssuerKey::p256()), ("ed", IssuerKey::ed25519())];
        let named: Vec<_> = keys.iter().map(|(kid, key)| (*kid, key)).collect();
        let jwks = JwksServer::start(issuer::jwks(&named)).await;
        let workload = IssuerKey::p256();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.pem"), workload.pem()).unwrap();
        Self { keys, jwks, workload, folder }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig {
            more: format!(
                "[[auth.issuers]]\nissuer = \"https://people.example\"\naudience = \"keepsake\"\n\
                 jwks_url = \"{}\"\nactor = \"user\"\ntenants = [\"*\"]\n\
                 [[auth.issuers]]\nissuer = \"https://work.example\"\naudience = \"keepsake\"\nkey_file = \"{}\"\n\
                 tenants = [\"*\"]\ntenant_claim = \"org\"\nscopes_claim = \"permissions\"\nactor = \"service_account\"\n{FREE_RATES}",
                self.jwks.url(),
                self.folder.path().join("key.pem").display(),
            ),
            ..ServerConfig::default()
        }
    }

    /// A token of a person, by the first, second or third key.
    fn person(&self, key: usize, tenant: &str, changes: &Value) -> String {
        let (kid, key) = &self.keys[key];
        let mut claims = json!({
            "iss": "https://people.example", "aud": ["other", "keepsake"], "sub": "ada@example.com",
            "tenant": tenant, "scope": "openid memory:read memory:write", "exp": now_secs() + 300,
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        remembered(key.token(kid, &claims))
    }

    /// A token of a workload.
    fn workload(&self, tenant: &str) -> String {
        let claims = json!({
            "iss": "https://work.example", "aud": "keepsake", "sub": "ci",
            "org": tenant, "permissions": ["memory:read", "memory:write"], "exp": now_secs() + 300,
        });
        remembered(self.workload.token("any", &claims))
    }
}

fn remembered(token: String) -> String {
    secrets::remember(&token, "a token");
    token
}

async fn with_token(
    client: &Client,
    method: Method,
    path: &str,
    token: &str,
    body: Option<&Value>,
) -> Answer {
    let mut request = client.bare(method, path).bearer_auth(token);
    if let Some(body) = body {
        request = request.json(body);
    }
    send(request).await
}

async fn view(client: &Client, tenant: &Tenant, token: &str) -> Answer {
    let (path, input) = (tool_calls(tenant.store_id), json!({"command": "view", "path": "/memories"}));
    with_token(client, Method::POST, &path, token, Some(&input)).await
}

fn assert_401(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 401, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["error"]["type"], "authentication_error");
    assert!(body["error"]["message"].as_str().unwrap().contains(why), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_attributed_to_the_tokens_subject() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start_with(&issuers.config()).await;
    let client = server.client(&tenant);
    let id = tenant.id.to_string();
    let tokens = [
        issuers.person(0, &id, &json!({})),
        issuers.person(1, &id, &json!({})),
        issuers.person(2, &id, &json!({})),
        issuers.workload(&id),
    ];
    for (number, token) in tokens.iter().enumerate() {
        let input = json!({"command": "create", "path": format!("/memories/{number}"), "file_text": "x"});
        let path = tool_calls(tenant.store_id);
        let answer = with_token(&client, Method::POST, &path, token, Some(&input)).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), id);
        // The scope of another service gives no right here.
        let new = json!({"name": "a"});
        let stores = with_token(&client, Method::POST, STORES, token, Some(&new)).await;
        assert_eq!(stores.status, 403, "{}", stores.text);
    }
    let versions = format!("/v1/memory_stores/{}/memory_versions", tenant.store_id);
    let listed = client.get(&versions).await.json();
    let listed = listed["data"].as_array().unwrap().iter().rev();
    let actors: Vec<_> = listed.map(|version| version["created_by"].clone()).collect();
    let ada = json!({"type": "user_actor", "user_id": "ada@example.com"});
    let ci = json!({"type": "service_account_actor", "service_account_id": "ci"});
    assert_eq!(actors, [ada.clone(), ada.clone(), ada, ci.clone()]);
    let filtered = client.get(&format!("{versions}?service_account_id=ci")).await.json();
    assert_eq!(filtered["data"].as_array().unwrap().len(), 1);
    assert_eq!(filtered["data"][0]["created_by"], ci);
    assert_eq!(issuers.jwks.requests(), 1);
}

/// Tenants with external ids, of which only `acme`, whose id is answered, is served.
async fn make_named_tenants(operator_url: &str, operator_token: &str) -> String {
    let operator = Client::new(operator_url, "");
    let tenants = "/admin/v1/tenants";
    let mut ids = Vec::new();
    for external_id in ["acme", "suspended", "deleting"] {
        let new = json!({"name": "tests", "external_id": external_id});
        let made = with_token(&operator, Method::POST, tenants, operator_token, Some(&new)).await;
        assert_eq!(made.status, 200, "{}", made.text);
        ids.push(made.json()["id"].as_str().unwrap().to_owned());
    }
    let suspended = format!("{tenants}/{}/suspend", ids[1]);
    let answer = with_token(&operator, Method::POST, &suspended, operator_token, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let deleted = format!("{tenants}/{}", ids[2]);
    let answer = with_token(&operator, Method::DELETE, &deleted, operator_token, None).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    ids.swap_remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_token_is_401_with_a_reason() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    provision.close().await;
    let (operated, operator_url, operator_token) = ServerConfig::operated();
    let config = ServerConfig { operator: operated.operator, ..issuers.config() };
    let server = deployment.start_with(&config).await;
    let acme = make_named_tenants(&operator_url, &operator_token).await;
    let client = server.client(&tenant);
    let id = tenant.id.to_string();
    let unsigned = issuer::unsigned(r#"{"alg":"none"}"#, "{}");
    let own = |kid: &str| {
        let header = json!({"alg": "EdDSA", "typ": "keepsake+jwt", "kid": kid}).to_string();
        remembered(issuers.keys[2].1.token_with(&header, "{}"))
    };
    let with = |changes: Value| issuers.person(2, &id, &changes);
    let of = |tenant: &str| issuers.person(2, tenant, &json!({}));
    let claims = json!({"iss": "https://people.example", "aud": "keepsake"});
    let unknown_key = remembered(issuers.keys[2].1.token("nobody", &claims));
    let forged = format!("{}A", issuers.person(0, &id, &json!({})));
    for (token, why) in [
        (with(json!({"exp": now_secs() - 100})), "expired"),
        (with(json!({"nbf": now_secs() + 100})), "not valid yet"),
        (with(json!({"aud": "other"})), "audience"),
        (with(json!({"iss": "https://evil.example"})), "issuer is unknown"),
        (with(json!({"tenant": null})), "names no tenant"),
        (with(json!({"sub": null})), "`sub`"),
        (of(""), "names no tenant"),
        (of("ACME"), "tenant is unknown"),
        (of("acme%"), "tenant is unknown"),
        (of("acme' OR 1=1"), "tenant is unknown"),
        (of("Acme"), "tenant is unknown"),
        (of("deleting"), "tenant is unknown"),
        (of("suspended"), "tenant is suspended"),
        (own("token-9"), "key is unknown"),
        (own("cursor"), "key is unknown"),
        (own(""), "key is unknown"),
        (unknown_key, "key is unknown"),
        (format!("{unsigned}."), "algorithm"),
        (forged, "signature"),
        (format!("a.{}.c", "b".repeat(8200)), "longer than 8192"),
        ("a.b.c".to_owned(), "malformed"),
    ] {
        assert_401(&view(&client, &tenant, &token).await, why);
    }
    let good = issuers.person(2, &id, &json!({}));
    assert_eq!(view(&client, &tenant, &good).await.status, 200);
    let by_name = issuers.person(2, "acme", &json!({}));
    let listed = with_token(&client, Method::GET, STORES, &by_name, None).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    assert_eq!(listed.header("anthropic-workspace-id"), acme);
    let as_key = client.bare(Method::GET, STORES).header("x-api-key", &good);
    assert_401(&send(as_key).await, "malformed");
    let both = client.request(Method::GET, STORES).bearer_auth(&good);
    assert_401(&send(both).await, "two different credentials");
    let no_rights = issuers.person(2, &id, &json!({"scope": "openid"}));
    assert_eq!(view(&client, &tenant, &no_rights).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_past_its_end_is_served_a_minute_and_obtains_no_other() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start_with(&issuers.config()).await;
    let client = server.client(&tenant);
    let claims = json!({"exp": now_secs() - 5, "scope": "sessions:write memory:read"});
    let ended = issuers.person(2, &tenant.id.to_string(), &claims);
    let sessions = "/v1/sessions";
    let new = json!({"agent": "a", "environment_id": "e"});
    let refused = with_token(&client, Method::POST, sessions, &ended, Some(&new)).await;
    assert_401(&refused, "expired");
    let listed = with_token(&client, Method::GET, sessions, &ended, None).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    assert_eq!(listed.json()["data"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_and_revocation_take_effect_on_every_replica_within_five_seconds() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let servers =
        [deployment.start_with(&issuers.config()).await, deployment.start_with(&issuers.config()).await];
    let database = deployment.database().await;
    let token = issuers.person(0, &tenant.id.to_string(), &json!({}));
    let is_served = async |server: &Server, credential: &str| {
        view(&server.client(&tenant), &tenant, credential).await.status == 200
    };
    let all_become = async |credential: &str, served: bool| {
        let begun = Instant::now();
        for server in &servers {
            while is_served(server, credential).await != served {
                assert!(begun.elapsed() < Duration::from_secs(5), "not felt within five seconds");
            }
        }
    };
    for credential in [&token, &tenant.key] {
        for status in ["suspended", "active"] {
            for server in &servers {
                assert_eq!(is_served(server, credential).await, status == "suspended");
            }
            let update = format!("UPDATE tenant SET status = '{status}'");
            database.execute(update).await;
            all_become(credential, status == "active").await;
        }
    }
    let revoke = "UPDATE api_key SET revoked_at = 1";
    database.execute(revoke.to_owned()).await;
    database.close().await;
    all_become(&tenant.key, false).await;
    all_become(&token, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn last_use_of_a_key_is_recorded_for_reads() {
    for pair in [Pair::Sqlite, Pair::Postgres] {
        let deployment = Deployment::new(pair).await;
        let tenant = deployment.tenant().await;
        let mut server = deployment.start().await;
        let begun = now_secs();
        for _ in 0..5 {
            assert_eq!(server.client(&tenant).get(STORES).await.status, 200);
        }
        server.end().await;
        let database = deployment.database().await;
        let last = database.number("SELECT last_used_at FROM api_key").await;
        database.close().await;
        let last_secs = u64::try_from(last / 1_000_000).unwrap();
        assert!((begun..=now_secs()).contains(&last_secs), "{last}");
    }
}

const FIRST_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const SECOND_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

#[tokio::test(flavor = "multi_thread")]
async fn master_key_wraps_stored_secrets_and_can_be_changed() {
    for key in [FIRST_KEY, SECOND_KEY] {
        secrets::remember(key, "a master key");
    }
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let database = deployment.database().await;
    let stored_bytes = async || {
        let sum = "SELECT sum(octet_length(wrapped_key)) FROM server_secret";
        database.number(sum).await
    };
    let open = deployment.start().await;
    let output = open.output();
    assert!(output.contains("secrets.master_key is not set"), "{output}");
    let client = open.client(&tenant);
    client.post(STORES, &json!({"name": "second"})).await;
    let listing = client.get("/v1/memory_stores?limit=1").await.json();
    let page = format!("/v1/memory_stores?page={}", listing["next_page"].as_str().unwrap());
    let new = json!({"agent": "a", "environment_id": "e"});
    let session = client.post("/v1/sessions", &new).await.json();
    let token = remembered(session["token"].as_str().unwrap().to_owned());
    let session = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    drop(open);
    // For tokens of sessions, cursors of pages, and cookies of the console.
    assert_eq!(stored_bytes().await, 3 * 32);
    let command = |variables: &[(&str, &str)]| {
        let command = deployment.command(&ServerConfig::default());
        variables.iter().fold(command, |command, (name, value)| command.env(name, value))
    };
    let first = ("KEEPSAKE_SECRETS_MASTER_KEY", FIRST_KEY);
    let second = ("KEEPSAKE_SECRETS_MASTER_KEY", SECOND_KEY);
    let previous = ("KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY", FIRST_KEY);
    for variables in [&[first][..], &[second, previous], &[second]] {
        let server = Server::start(command(variables)).await;
        let output = server.output();
        assert!(!output.contains("secrets.master_key"), "{output}");
        assert_eq!(stored_bytes().await, 3 * 61);
        // The secrets are the same: cursors and tokens stay valid.
        let client = server.client(&tenant);
        assert_eq!(client.get(&page).await.status, 200);
        assert_eq!(client.with_key(&token).get(&session).await.status, 200);
    }
    for variables in [&[first][..], &[]] {
        // Kept in a variable, because it owns the configuration file.
        let command = command(variables);
        let mut refused = command.spawn();
        assert_eq!(refused.wait().await.code(), Some(1));
        let output = refused.output();
        assert!(output.contains("secrets.master_key") && output.contains("wrapped"), "{output}");
        secrets::assert_none_in(&output, "a server that does not start");
    }
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_clients_find_where_to_sign_in() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let command = deployment.command(&issuers.config());
    let url = "https://memory.example.com";
    let server = Server::start(command.env("KEEPSAKE_SERVER_PUBLIC_URL", &format!("{url}/"))).await;
    let client = server.client(&tenant);
    let store = format!("/mcp/{}", tenant.store_id);
    let metadata = format!("/.well-known/oauth-protected-resource{store}");
    let told = |path: String| {
        let client = client.clone();
        async move {
            let refused = send(client.bare(Method::POST, &path).json(&json!({}))).await;
            assert_401(&refused, "no credential");
            refused.header("www-authenticate").to_owned()
        }
    };
    assert_eq!(told(store.clone()).await, format!("Bearer resource_metadata=\"{url}{metadata}\""));
    for path in ["/mcp".to_owned(), "/mcp/memstore_1".to_owned(), tool_calls(tenant.store_id)] {
        assert_eq!(told(path).await, "Bearer");
    }
    let found = send(client.bare(Method::GET, &metadata)).await;
    assert_eq!(found.status, 200, "{}", found.text);
    assert_eq!(
        found.json(),
        json!({
            "resource": format!("{url}{store}"),
            "resource_name": "Keepsake",
            "authorization_servers": ["https://people.example", "https://work.example"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["memory:read", "memory:write"],
        })
    );
    let other = Deployment::new(Pair::Sqlite).await;
    let others = other.tenant().await;
    let command = other.command(&ServerConfig::default());
    let server = Server::start(command.env("KEEPSAKE_SERVER_PUBLIC_URL", url)).await;
    let client = server.client(&others);
    let unknown = send(client.bare(Method::GET, &metadata)).await;
    assert_eq!(unknown.status, 404, "{}", unknown.text);
}
