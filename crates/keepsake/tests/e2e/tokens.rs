//! Tokens of issuers, changes that take effect, and the server's secrets.

use std::time::{Duration, Instant};

use keepsake_core::limits::LimitOverrides;
use keepsake_testkit::{IssuerKey, JwksServer, issuer};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row, SqliteConnection};

use crate::support::client::{send, tool_calls};
use crate::support::deployment::{FREE_RATES, ServerConfig};
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant, now_secs, secrets};

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
        let keys = [
            ("rsa", IssuerKey::rsa()),
            ("p256", IssuerKey::p256()),
            ("ed", IssuerKey::ed25519()),
        ];
        let named: Vec<_> = keys.iter().map(|(kid, key)| (*kid, key)).collect();
        let jwks = JwksServer::start(issuer::jwks(&named)).await;
        let workload = IssuerKey::p256();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.pem"), workload.pem()).unwrap();
        Self {
            keys,
            jwks,
            workload,
            folder,
        }
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
    let mut request = client
        .bare(method, path)
        .header("authorization", format!("Bearer {token}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    send(request).await
}

async fn view(client: &Client, tenant: &Tenant, token: &str) -> Answer {
    let input = json!({"command": "view", "path": "/memories"});
    with_token(
        client,
        Method::POST,
        &tool_calls(tenant.store_id),
        token,
        Some(&input),
    )
    .await
}

fn assert_401(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 401, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["error"]["type"], "authentication_error");
    assert!(body["error"]["message"].as_str().unwrap().contains(why), "{body}");
}

async fn writes_are_attributed_to_the_tokens_subject(pair: Pair) {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(pair).await;
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
        let stores = with_token(
            &client,
            Method::POST,
            "/v1/memory_stores",
            token,
            Some(&json!({"name": "a"})),
        )
        .await;
        assert_eq!(stores.status, 403, "{}", stores.text);
    }
    let versions = format!("/v1/memory_stores/{}/memory_versions", tenant.store_id);
    let listed = client.get(&versions).await.json();
    let actors: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|version| version["created_by"].clone())
        .collect();
    let ada = json!({"type": "user_actor", "user_id": "ada@example.com"});
    let ci = json!({"type": "service_account_actor", "service_account_id": "ci"});
    assert_eq!(actors, [ada.clone(), ada.clone(), ada, ci.clone()]);
    let filtered = client
        .get(&format!("{versions}?service_account_id=ci"))
        .await
        .json();
    assert_eq!(filtered["data"].as_array().unwrap().len(), 1);
    assert_eq!(filtered["data"][0]["created_by"], ci);
    assert_eq!(issuers.jwks.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_attributed_to_the_tokens_subject_on_postgres_and_s3() {
    writes_are_attributed_to_the_tokens_subject(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_attributed_to_the_tokens_subject_on_sqlite() {
    writes_are_attributed_to_the_tokens_subject(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_token_is_401_with_a_reason() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    provision.close().await;
    let server = deployment.start_with(&issuers.config()).await;
    let client = server.client(&tenant);
    let id = tenant.id.to_string();
    let unsigned = issuer::unsigned(r#"{"alg":"none"}"#, "{}");
    for (token, why) in [
        (
            issuers.person(2, &id, &json!({"exp": now_secs() - 100})),
            "expired",
        ),
        (
            issuers.person(2, &id, &json!({"nbf": now_secs() + 100})),
            "not valid yet",
        ),
        (issuers.person(2, &id, &json!({"aud": "other"})), "audience"),
        (
            issuers.person(2, &id, &json!({"iss": "https://evil.example"})),
            "issuer is unknown",
        ),
        (
            issuers.person(2, &id, &json!({"tenant": null})),
            "names no tenant",
        ),
        (issuers.person(2, &id, &json!({"sub": null})), "`sub`"),
        (issuers.person(2, "acme", &json!({})), "tenant is unknown"),
        (
            remembered(issuers.keys[2].1.token(
                "nobody",
                &json!({"iss": "https://people.example", "aud": "keepsake"}),
            )),
            "key is unknown",
        ),
        (format!("{unsigned}."), "algorithm"),
        (format!("{}A", issuers.person(0, &id, &json!({}))), "signature"),
        (format!("a.{}.c", "b".repeat(8200)), "longer than 8192"),
        ("a.b.c".to_owned(), "malformed"),
    ] {
        assert_401(&view(&client, &tenant, &token).await, why);
    }
    let good = issuers.person(2, &id, &json!({}));
    assert_eq!(view(&client, &tenant, &good).await.status, 200);
    let as_key = client
        .bare(Method::GET, "/v1/memory_stores")
        .header("x-api-key", &good);
    assert_401(&send(as_key).await, "malformed");
    let both = client
        .request(Method::GET, "/v1/memory_stores")
        .header("authorization", format!("Bearer {good}"));
    assert_401(&send(both).await, "two different credentials");
    let no_rights = issuers.person(2, &id, &json!({"scope": "openid"}));
    assert_eq!(view(&client, &tenant, &no_rights).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_and_revocation_take_effect_on_every_replica_within_five_seconds() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let servers = [
        deployment.start_with(&issuers.config()).await,
        deployment.start_with(&issuers.config()).await,
    ];
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    let token = issuers.person(0, &tenant.id.to_string(), &json!({}));
    let is_served = async |server: &Server, credential: &str| {
        view(&server.client(&tenant), &tenant, credential).await.status == 200
    };
    let all_become = async |credential: &str, served: bool| {
        let begun = Instant::now();
        for server in &servers {
            while is_served(server, credential).await != served {
                assert!(
                    begun.elapsed() < Duration::from_secs(5),
                    "not felt within five seconds"
                );
            }
        }
    };
    for credential in [&token, &tenant.key] {
        for status in ["suspended", "active"] {
            for server in &servers {
                assert_eq!(is_served(server, credential).await, status == "suspended");
            }
            sqlx::query("UPDATE tenant SET status = $1")
                .bind(status)
                .execute(&mut database)
                .await
                .unwrap();
            all_become(credential, status == "active").await;
        }
    }
    sqlx::query("UPDATE api_key SET revoked_at = 1")
        .execute(&mut database)
        .await
        .unwrap();
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
            assert_eq!(server.client(&tenant).get("/v1/memory_stores").await.status, 200);
        }
        server.end().await;
        let last = "SELECT last_used_at FROM api_key";
        let last: i64 = if pair.has_postgres() {
            let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
            sqlx::query(last).fetch_one(&mut database).await.unwrap().get(0)
        } else {
            let url = format!("sqlite://{}", deployment.sqlite_file().display());
            let mut database = SqliteConnection::connect(&url).await.unwrap();
            sqlx::query(last).fetch_one(&mut database).await.unwrap().get(0)
        };
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
    let mut database = PgConnection::connect(&deployment.postgres_url()).await.unwrap();
    let mut sizes = async || {
        let rows = sqlx::query("SELECT octet_length(wrapped_key) FROM server_secret")
            .fetch_all(&mut database)
            .await
            .unwrap();
        rows.iter().map(|row| row.get::<i32, _>(0)).collect::<Vec<_>>()
    };
    let open = deployment.start().await;
    assert!(
        open.output().contains("secrets.master_key is not set"),
        "{}",
        open.output()
    );
    let listing = open.client(&tenant).get("/v1/memory_stores?limit=1").await;
    assert_eq!(listing.status, 200);
    drop(open);
    // For tokens of sessions, cursors of pages, and cookies of the console.
    assert_eq!(sizes().await, [32; 3]);
    let command = |variables: &[(&str, &str)]| {
        let command = deployment.command(&ServerConfig::default());
        variables
            .iter()
            .fold(command, |command, (name, value)| command.env(name, value))
    };
    let first = ("KEEPSAKE_SECRETS_MASTER_KEY", FIRST_KEY);
    let second = ("KEEPSAKE_SECRETS_MASTER_KEY", SECOND_KEY);
    let previous = ("KEEPSAKE_SECRETS_PREVIOUS_MASTER_KEY", FIRST_KEY);
    for variables in [&[first][..], &[second, previous], &[second]] {
        let server = Server::start(command(variables)).await;
        assert!(
            !server.output().contains("secrets.master_key"),
            "{}",
            server.output()
        );
        assert_eq!(sizes().await, [61; 3]);
    }
    for variables in [&[first][..], &[]] {
        // Kept in a variable, because it owns the configuration file.
        let command = command(variables);
        let mut refused = command.spawn();
        assert_eq!(refused.wait().await.code(), Some(1));
        let output = refused.output();
        assert!(
            output.contains("secrets.master_key") && output.contains("wrapped"),
            "{output}"
        );
        secrets::assert_none_in(&output, "a server that does not start");
    }
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
    assert_eq!(
        told(store.clone()).await,
        format!("Bearer resource_metadata=\"{url}{metadata}\"")
    );
    for path in [
        "/mcp".to_owned(),
        "/mcp/memstore_1".to_owned(),
        tool_calls(tenant.store_id),
    ] {
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
    let server = Server::start(
        other
            .command(&ServerConfig::default())
            .env("KEEPSAKE_SERVER_PUBLIC_URL", url),
    )
    .await;
    let client = server.client(&others);
    let unknown = send(client.bare(Method::GET, &metadata)).await;
    assert_eq!(unknown.status, 404, "{}", unknown.text);
}
