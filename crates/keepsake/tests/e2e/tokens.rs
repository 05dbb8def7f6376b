//! Keys and tokens of issuers, changes that take effect, and the server's secrets.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_testkit::{IssuerKey, JwksServer, issuer};

use crate::prelude::*;

/// An issuer of people's tokens with a key behind HTTP, and one of workloads'
/// tokens with a key in a file.
struct Issuers {
    person: IssuerKey,
    jwks: JwksServer,
    workload: IssuerKey,
    folder: tempfile::TempDir,
}

impl Issuers {
    async fn new() -> Self {
        let (person, workload) = (IssuerKey::ed25519(), IssuerKey::p256());
        let jwks = JwksServer::start(issuer::jwks(&[("ed", &person)])).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.pem"), workload.pem()).unwrap();
        Self { person, jwks, workload, folder }
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

    fn person(&self, tenant: &str, changes: &Value) -> String {
        let mut claims = json!({
            "iss": "https://people.example", "aud": ["other", "keepsake"], "sub": "ada@example.com",
            "tenant": tenant, "scope": "openid memory:read memory:write", "exp": now_secs() + 300,
        });
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        remembered(self.person.token("ed", &claims))
    }

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

async fn view(client: &Client, tenant: &Tenant, credential: &str) -> Answer {
    let input = json!({"command": "view", "path": "/memories"});
    client.with_key(credential).call(tenant.store_id, &input).await
}

#[track_caller]
fn assert_401(answer: &Answer, why: &str) {
    refused_for(answer, 401, "authentication_error", why);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_taken_from_either_header_and_no_other_one_is_good() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant().await;
    let expired = provision.expired_key(tenant.id).await;
    provision.close().await;
    let server = deployment.start().await;
    let (client, key) = (server.client(&tenant), &tenant.key);
    let unknown = ApiKeySecret::from_random([7; 32]).expose().to_owned();
    let mistyped = format!("{}{}", &key[..56], if key.ends_with('0') { '1' } else { '0' });
    secrets::remember(&unknown, "an unknown API key");
    secrets::remember(&mistyped, "a mistyped API key");

    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let (x, bearer) = ("x-api-key", "authorization");
    let [upper, lower] = ["Bearer", "bearer"].map(|scheme| (bearer, format!("{scheme} {key}")));
    for (header, value) in [(x, key.clone()), upper, lower] {
        let answer = send(client.bare(Method::GET, &store).header(header, value)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
    }
    for (header, value, why) in [
        ("accept", "*/*", "no credential"),
        (x, "", "malformed"),
        (x, &mistyped, "malformed"),
        (x, &unknown, "unknown"),
        (x, &expired, "expired"),
        (bearer, &format!("Bearer {unknown}"), "unknown"),
        (bearer, "Bearer ", ""),
        (bearer, &format!("Basic {key}"), "no credential"),
    ] {
        for (method, path) in [(Method::GET, &store), (Method::POST, &tool_calls(tenant.store_id))] {
            let answer = send(client.bare(method, path).header(header, value)).await;
            assert_401(&answer, why);
            assert_eq!(answer.header("anthropic-workspace-id"), "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_attributed_to_the_tokens_subject() {
    let issuers = Issuers::new().await;
    let (deployment, tenant, mut server, client) = started_with(Pair::Sqlite, &issuers.config()).await;
    let id = tenant.id.to_string();
    let begun = now_secs();
    let people = [json!({}), json!({"sub": "grace"})].map(|changes| issuers.person(&id, &changes));
    for (number, token) in people.into_iter().chain([issuers.workload(&id)]).enumerate() {
        let holder = client.with_key(&token);
        let input = json!({"command": "create", "path": format!("/memories/{number}"), "file_text": "x"});
        let answer = holder.call(tenant.store_id, &input).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), id);
        // The scope of another service gives no right here.
        denied(&holder.post(STORES, &json!({"name": "a"})).await, "stores:admin");
    }
    assert_eq!(issuers.jwks.requests(), 1);

    let versions = format!("{STORES}/{}/memory_versions", tenant.store_id);
    let actors = async |query: &str| {
        let listed = client.get(&format!("{versions}{query}")).await.json();
        let oldest_first = listed["data"].as_array().unwrap().iter().rev();
        oldest_first.map(|version| version["created_by"].clone()).collect::<Vec<_>>()
    };
    let user = |name: &str| json!({"type": "user_actor", "user_id": name});
    let ci = json!({"type": "service_account_actor", "service_account_id": "ci"});
    assert_eq!(actors("").await, [user("ada@example.com"), user("grace"), ci.clone()]);
    assert_eq!(actors("?service_account_id=ci").await, [ci]);
    // The plan of an undo says that its caller may not change a setting any more.
    let store = Store::of(&client, &tenant);
    let ada = |scope: &str| client.with_key(&issuers.person(&id, &json!({"scope": scope})));
    store.seen_by(&ada("memory:read memory:write stores:admin")).create("/.keepsake/x", "x").await;
    let (seen, undo) = (ada("memory:read memory:write"), format!("{}/undo", store.path));
    let wanted = |dry_run: bool| json!({"user_id": "ada@example.com", "dry_run": dry_run});
    let plan = ok(&seen.post(&undo, &wanted(true)).await);
    let error = refused(&seen.post(&undo, &wanted(false)).await, 403, "permission_error");
    assert_eq!(plan["refusal"]["message"], error["message"]);
    // The last use of the key is recorded, although it only read.
    server.end().await;
    let last_used = deployment.number("SELECT last_used_at FROM api_key").await;
    let last_used = u64::try_from(last_used / 1_000_000).unwrap();
    assert!((begun..=now_secs()).contains(&last_used), "{last_used}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_token_is_401_with_a_reason() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (tenant, acme) = (deployment.tenant().await, deployment.tenant().await);
    let (suspended, deleting) = (deployment.tenant().await, deployment.tenant().await);
    for (of, name, status) in
        [(&acme, "acme", "active"), (&suspended, "suspended", "suspended"), (&deleting, "gone", "deleting")]
    {
        let (set, id) = (format!("external_id = '{name}', status = '{status}'"), of.id.uuid().simple());
        deployment.execute(format!("UPDATE tenant SET {set} WHERE tenant_id = x'{id}'")).await;
    }
    let server = deployment.start_with(&issuers.config()).await;
    let client = server.client(&tenant);
    let id = tenant.id.to_string();
    let own = |kid: &str| {
        let header = json!({"alg": "EdDSA", "typ": "keepsake+jwt", "kid": kid}).to_string();
        remembered(issuers.person.token_with(&header, "{}"))
    };
    let of = |tenant: &str| issuers.person(tenant, &json!({}));
    let good = of(&id);
    for (token, why) in [
        (issuers.person(&id, &json!({"exp": now_secs() - 100})), "expired"),
        (format!("{good}A"), "signature"),
        (format!("a.{}.c", "b".repeat(8200)), "longer than 8192"),
        ("a.b.c".to_owned(), "malformed"),
        (of(""), "names no tenant"),
        (of("ACME"), "tenant is unknown"),
        (of("acme%"), "tenant is unknown"),
        (of("acme' OR 1=1"), "tenant is unknown"),
        (of("gone"), "tenant is unknown"),
        (of("suspended"), "tenant is suspended"),
        (own("token-9"), "key is unknown"),
        (own("cursor"), "key is unknown"),
        (own(""), "key is unknown"),
    ] {
        assert_401(&view(&client, &tenant, &token).await, why);
    }
    assert_eq!(view(&client, &tenant, &good).await.status, 200);
    let listed = client.with_key(&of("acme")).get(STORES).await;
    assert_eq!(listed.status, 200, "{}", listed.text);
    assert_eq!(listed.header("anthropic-workspace-id"), acme.id.to_string());
    assert_401(&send(client.bare(Method::GET, STORES).header("x-api-key", &good)).await, "malformed");
    let both = client.request(Method::GET, STORES).bearer_auth(&good);
    assert_401(&send(both).await, "two different credentials");
    let no_rights = issuers.person(&id, &json!({"scope": "openid"}));
    assert_eq!(view(&client, &tenant, &no_rights).await.status, 403);
    // A token past its end is served a minute, and obtains no other.
    let past = json!({"exp": now_secs() - 5, "scope": "sessions:write memory:read"});
    let holder = client.with_key(&issuers.person(&id, &past));
    assert_401(&holder.post(SESSIONS, &json!({"agent": "a", "environment_id": "e"})).await, "expired");
    ok(&holder.get(SESSIONS).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_and_revocation_take_effect_on_every_replica_within_five_seconds() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let config = issuers.config();
    let servers = [deployment.start_with(&config).await, deployment.start_with(&config).await];
    let database = deployment.database().await;
    let token = issuers.person(&tenant.id.to_string(), &json!({}));
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
            database.execute(format!("UPDATE tenant SET status = '{status}'")).await;
            all_become(credential, status == "active").await;
        }
    }
    // Also a replica that still takes a key for good makes no other for it.
    let new_key = json!({"name": "late", "scopes": ["memory:read"]});
    let no_key_is_made_after = async |change: &str| {
        database.execute(change.to_owned()).await;
        for server in &servers {
            assert_401(&server.client(&tenant).post("/v1/api_keys", &new_key).await, "");
        }
        assert_eq!(database.number("SELECT count(*) FROM api_key").await, 1);
    };
    no_key_is_made_after("UPDATE tenant SET status = 'suspended'").await;
    database.execute("UPDATE tenant SET status = 'active'".to_owned()).await;
    all_become(&tenant.key, true).await;
    no_key_is_made_after("UPDATE api_key SET revoked_at = 1").await;
    database.close().await;
    all_become(&tenant.key, false).await;
    all_become(&token, true).await;
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
    let size = "SELECT sum(octet_length(wrapped_key)) FROM server_secret";
    let stored_bytes = async || database.number(size).await;
    let open = deployment.start().await;
    let output = open.output();
    assert!(output.contains("secrets.master_key is not set"), "{output}");
    let client = open.client(&tenant);
    client.post(STORES, &json!({"name": "second"})).await;
    let listing = client.get(&format!("{STORES}?limit=1")).await.json();
    let page = format!("{STORES}?page={}", listing["next_page"].as_str().unwrap());
    let session = client.post(SESSIONS, &json!({"agent": "a", "environment_id": "e"})).await.json();
    let token = remembered(session["token"].as_str().unwrap().to_owned());
    let session = format!("{SESSIONS}/{}", session["id"].as_str().unwrap());
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
    // A token key under a master key that the running servers do not have yet would not sign there.
    let plain = command(&[]);
    let file = plain.config_file().display().to_string();
    let rotate = ["token-key", "rotate", "--config", &file];
    let refusal = "(secrets.master_key): a secret of the server is not encrypted with the master key yet";
    keepsake_with(&rotate, &[first]).await.ends(1, refusal);
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
        let file = command.config_file().display().to_string();
        let check = ["config", "check", "--connect", "--config", &file];
        let checked = keepsake_with(&check, variables).await;
        checked.ends(1, "1 of the steps above failed");
        says(&checked.stdout, &["secrets.master_key", "a secret of the server is wrapped by a"]);
        let verified = keepsake_with(&["verify", "--config", &file], variables).await;
        verified.ends(1, "1 problem was found");
        says(&verified.stdout, &["unreadable_secret  ", "message=a secret of the server is wrapped by a"]);
        let rotated = keepsake_with(&["token-key", "rotate", "--config", &file], variables).await;
        rotated.ends(1, "(secrets.master_key): a secret of the server is wrapped by a");
    }
    database.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_clients_find_where_to_sign_in() {
    let issuers = Issuers::new().await;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let url = "https://memory.example.com";
    let command = deployment.command(&issuers.config());
    let server = Server::start(command.env("KEEPSAKE_SERVER_PUBLIC_URL", &format!("{url}/"))).await;
    let client = server.client(&tenant);
    let store = format!("/mcp/{}", tenant.store_id);
    let metadata = format!("/.well-known/oauth-protected-resource{store}");
    let of_store = format!("Bearer resource_metadata=\"{url}{metadata}\"");
    for (path, told) in [
        (store.as_str(), of_store.as_str()),
        ("/mcp", "Bearer"),
        ("/mcp/memstore_1", "Bearer"),
        (&tool_calls(tenant.store_id), "Bearer"),
    ] {
        let refused = send(client.bare(Method::POST, path).json(&json!({}))).await;
        assert_401(&refused, "no credential");
        assert_eq!(refused.header("www-authenticate"), told, "{path}");
    }
    let found = send(client.bare(Method::GET, &metadata)).await;
    assert_eq!(found.status, 200, "{}", found.text);
    let expected = json!({
        "resource": format!("{url}{store}"),
        "resource_name": "Keepsake",
        "authorization_servers": ["https://people.example", "https://work.example"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["memory:read", "memory:write"],
    });
    assert_eq!(found.json(), expected);
}
