//! Who may come in.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::limits::LimitOverrides;
use reqwest::Method;

use crate::support::client::{send, tool_calls};
use crate::support::{Deployment, Pair, secrets};

const STORES: &str = "/v1/memory_stores";

#[tokio::test(flavor = "multi_thread")]
async fn key_is_taken_from_either_header_and_no_other_one_is_good() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
    let expired = provision.expired_key(tenant.id).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let (key, id) = (&tenant.key, tenant.id.to_string());
    let unknown = ApiKeySecret::from_random([7; 32]).expose().to_owned();
    let mistyped = format!("{}{}", &key[..56], if key.ends_with('0') { '1' } else { '0' });
    secrets::remember(&unknown, "an unknown API key");
    secrets::remember(&mistyped, "a mistyped API key");

    let store = format!("{STORES}/{}", tenant.store_id);
    let (x, bearer) = ("x-api-key", "authorization");
    for (header, value) in
        [(x, key.clone()), (bearer, format!("Bearer {key}")), (bearer, format!("bearer {key}"))]
    {
        let answer = send(client.bare(Method::GET, &store).header(header, value)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.header("anthropic-workspace-id"), id);
    }
    for (method, path) in [
        (Method::GET, store),
        (Method::GET, STORES.to_owned()),
        (Method::POST, STORES.to_owned()),
        (Method::POST, tool_calls(tenant.store_id)),
    ] {
        for (header, value, why) in [
            ("accept", "*/*", "no credential"),
            (x, "", "malformed"),
            (x, "sk-ant-api03-x", "malformed"),
            (x, &mistyped, "malformed"),
            (x, &unknown, "unknown"),
            (x, &expired, "expired"),
            (bearer, &format!("Bearer {unknown}"), "unknown"),
            (bearer, "Bearer ", ""),
            (bearer, &format!("Basic {key}"), "no credential"),
            (bearer, key, "no credential"),
        ] {
            let answer = send(client.bare(method.clone(), &path).header(header, value)).await;
            assert_eq!(answer.status, 401, "{}", answer.text);
            let body = answer.json();
            assert_eq!(body["error"]["type"], "authentication_error");
            assert_eq!(body["request_id"], answer.header("request-id"));
            assert!(body["error"]["message"].as_str().unwrap().contains(why), "{body}");
            assert_eq!(answer.header("anthropic-workspace-id"), "");
        }
    }
}
