//! Authentication and authorization of requests.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::limits::LimitOverrides;
use keepsake_index::Scope;
use reqwest::Method;
use serde_json::json;

use crate::support::client::{send, tool_calls};
use crate::support::{Answer, Client, Deployment, Pair, secrets};

const STORES: &str = "/v1/memory_stores";

fn assert_error(answer: &Answer, status: u16, kind: &str) -> String {
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["error"]["type"], kind);
    assert_eq!(body["request_id"], answer.header("request-id"));
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_is_taken_from_either_header() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let key = &tenant.key;
    let store = format!("{STORES}/{}", tenant.store_id);
    let bare = || client.bare(Method::GET, &store);
    for request in [
        bare().header("x-api-key", key),
        bare().header("authorization", format!("Bearer {key}")),
        bare().header("Authorization", format!("bearer {key}")),
        bare()
            .header("anthropic-workspace-id", tenant.id.to_string())
            .header("x-api-key", key),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_malformed_and_unknown_keys_are_401() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let expired = provision.expired_key(tenant.id).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let unknown = ApiKeySecret::from_random([7; 32]).expose().to_owned();
    let mistyped = format!(
        "{}{}",
        &tenant.key[..56],
        if tenant.key.ends_with('0') { '1' } else { '0' }
    );
    secrets::remember(&unknown, "an unknown API key");
    secrets::remember(&mistyped, "a mistyped API key");
    let routes = [
        (Method::GET, format!("{STORES}/x")),
        (Method::POST, STORES.to_owned()),
        (Method::POST, tool_calls(tenant.store_id)),
    ];
    for (method, path) in routes {
        let bare = || client.bare(method.clone(), &path);
        for (request, why) in [
            (bare(), "no credential"),
            (bare().header("x-api-key", ""), "malformed"),
            (bare().header("x-api-key", "sk-ant-api03-x"), "malformed"),
            (bare().header("x-api-key", &mistyped), "malformed"),
            (bare().header("x-api-key", &unknown), "unknown"),
            (bare().header("x-api-key", &expired), "expired"),
            (
                bare().header("authorization", format!("Bearer {unknown}")),
                "unknown",
            ),
            (bare().header("authorization", "Bearer ".to_owned()), ""),
            (
                bare().header("authorization", format!("Basic {}", tenant.key)),
                "no credential",
            ),
            (
                bare().header("authorization", tenant.key.clone()),
                "no credential",
            ),
        ] {
            let answer = send(request).await;
            let message = assert_error(&answer, 401, "authentication_error");
            assert!(message.contains(why), "{message}");
            assert_eq!(answer.header("anthropic-workspace-id"), "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_workspace_is_403() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let other = provision.tenant(LimitOverrides::default()).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    for claimed in [
        other.id.to_string(),
        "x".to_owned(),
        String::new(),
        tenant.id.to_string().to_lowercase(),
    ] {
        let store = format!("{STORES}/{}", tenant.store_id);
        let answer = send(
            client
                .request(Method::GET, &store)
                .header("anthropic-workspace-id", &claimed),
        )
        .await;
        let message = assert_error(&answer, 403, "permission_error");
        assert!(message.contains("anthropic-workspace-id"), "{message}");
        assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_may_do_what_its_scopes_say() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((scope, provision.key(tenant.id, &[scope], None).await));
    }
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    for (scope, key) in &keys {
        let client = client.with_key(key);
        let file = format!("/memories/{}", scope.name().replace(':', "_"));
        let write = json!({"command": "create", "path": file, "file_text": "x"});
        let view = json!({"command": "view", "path": "/memories"});
        let nothing = json!({"memory_store_id": tenant.store_id, "path_prefix": "/none/"});
        let store = format!("{STORES}/{}", tenant.store_id);
        for (answer, needed) in [
            (client.call(tenant.store_id, &view).await, Scope::MemoryRead),
            (client.get(&store).await, Scope::MemoryRead),
            (client.call(tenant.store_id, &write).await, Scope::MemoryWrite),
            (
                client.post(STORES, &json!({"name": "a"})).await,
                Scope::StoresAdmin,
            ),
            (client.get("/v1/api_keys").await, Scope::KeysAdmin),
            (client.get("/v1/erasures").await, Scope::TenantAdmin),
            (client.post("/v1/erasures", &nothing).await, Scope::TenantAdmin),
        ] {
            if needed == *scope {
                assert_eq!(answer.status, 200, "{scope}: {}", answer.text);
            } else {
                let message = assert_error(&answer, 403, "permission_error");
                assert!(message.contains(needed.name()), "{scope}: {message}");
                assert_eq!(answer.header("anthropic-workspace-id"), tenant.id.to_string());
            }
        }
    }
    let listing = client
        .tool_ok(&tenant, &json!({"command": "view", "path": "/memories"}))
        .await;
    assert!(
        listing.ends_with("\n1B\t/memories\n1B\t/memories/memory_write"),
        "{listing}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_key_sees_and_creates_no_other_stores() {
    let deployment = Deployment::new(Pair::SqliteS3).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let (first, second) = (provision.store(tenant.id).await, provision.store(tenant.id).await);
    let bound = provision
        .key(tenant.id, &Scope::ALL, Some(vec![first, second]))
        .await;
    provision.close().await;
    let server = deployment.start().await;
    let client = Client::new(&server.url(), &bound);
    for store_id in [first, second] {
        assert_eq!(client.get(&format!("{STORES}/{store_id}")).await.status, 200);
        let write = json!({"command": "create", "path": "/memories/a", "file_text": "x"});
        assert_eq!(client.call(store_id, &write).await.status, 200);
    }
    let elsewhere = format!("{STORES}/{}", tenant.store_id);
    assert_error(&client.get(&elsewhere).await, 404, "not_found_error");
    let refused = client.post(STORES, &json!({"name": "a"})).await;
    assert_error(&refused, 403, "permission_error");
}
