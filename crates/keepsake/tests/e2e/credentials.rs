//! Who may come in.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::limits::LimitOverrides;
use reqwest::Method;

use crate::support::client::{send, tool_calls};
use crate::support::{Deployment, Pair, secrets};

#[tokio::test(flavor = "multi_thread")]
async fn key_is_taken_from_either_header_and_no_other_one_is_good() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(LimitOverrides::default()).await;
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
    for (header, value) in
        [(x, key.clone()), (bearer, format!("Bearer {key}")), (bearer, format!("bearer {key}"))]
    {
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
            assert_eq!((answer.status, answer.header("anthropic-workspace-id")), (401, ""), "{why}");
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "authentication_error");
            assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        }
    }
}
