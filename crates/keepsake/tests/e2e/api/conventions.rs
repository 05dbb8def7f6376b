//! Conventions of every route: names, objects, ids, times, null.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{
    PREVIEW, Place, STORES, Store, delete, holds, not_found, ok, patch, post_text, refused, shows, strings,
    text,
};
use crate::support::Answer;
use crate::support::client::{send, tool_calls};

/// The characters of ids: Crockford's base32.
const BASE32: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[track_caller]
pub(super) fn assert_id(value: &Value, prefix: &str) {
    let id = text(value);
    let rest = id.strip_prefix(prefix).unwrap_or_else(|| panic!("{id}"));
    assert_eq!(rest.len(), 26, "{id}");
    assert!(rest.chars().all(|character| BASE32.contains(character)), "{id}");
}

/// RFC 3339 in UTC with microseconds and `Z`.
#[track_caller]
pub(super) fn assert_time(value: &Value) {
    let time = text(value);
    let digits = time.replace(|character: char| character.is_ascii_digit(), "0");
    assert_eq!(digits, "0000-00-00T00:00:00.000000Z", "{time}");
}

#[track_caller]
pub(super) fn assert_fields(object: &Value, expected: &str) {
    let fields: BTreeSet<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    let expected: BTreeSet<_> = expected.split(' ').collect();
    assert_eq!(fields, expected);
}

pub(super) async fn every_answer_names_its_request_and_its_tenant(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, at) = (store.memories(), store.memory(&memory));
    let named = json!({"name": "a"});
    let stale = json!({"content": "x", "precondition": holds("other")});
    let answers = [
        (200, client.get(STORES).await),
        (200, client.get(&store.path).await),
        (200, client.get(&memories).await),
        (200, client.get(&at).await),
        (200, client.get(&store.versions()).await),
        (200, client.post(STORES, &named).await),
        (200, client.post(&at, &json!({})).await),
        (200, patch(client, &at, &json!({})).await),
        (400, client.post(STORES, &json!({})).await),
        (400, client.get(&format!("{memories}?limit=0")).await),
        (403, place.reader.post(STORES, &named).await),
        (403, place.writer.get(&at).await),
        (404, client.get(&format!("{memories}/nothing")).await),
        (404, client.get("/v1/nothing").await),
        (405, send(client.request(Method::PUT, &at)).await),
        (409, store.try_create("/a", "two").await),
        (409, client.post(&at, &stale).await),
        (409, store.try_redact(&memory["memory_version_id"]).await),
        (413, post_text(client, &memories, " ".repeat(700_000)).await),
        (415, send(client.request(Method::POST, &memories).body("{}")).await),
        (200, delete(client, &at).await),
    ];
    let mut request_ids = BTreeSet::new();
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{}", answer.text);
        let request_id = answer.header("request-id");
        assert_id(&json!(request_id), "req_");
        assert!(request_ids.insert(request_id), "{request_id} was used twice");
        assert_of_tenant(answer, &place);
    }
}

#[track_caller]
fn assert_of_tenant(answer: &Answer, place: &Place) {
    let named = answer.header("anthropic-workspace-id");
    assert_eq!(named, place.tenant.id.to_string(), "{}", answer.text);
}

pub(super) async fn unknown_routes_and_methods_get_an_error_envelope(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let at = store.memory(&memory);
    let version = store.version(&memory["memory_version_id"]);
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/memory_stores",
        "//v1/memory_stores",
        "/v1/memory_stores/",
        "/v1/memory_store",
        &format!("{}/nothing", store.path),
        &format!("{}/", store.path),
        &format!("{}/", store.memories()),
        &format!("{at}/"),
        &format!("{at}/nothing"),
        &format!("{version}/nothing"),
        &format!("{}//memories", store.path),
    ] {
        not_found(&client.get(path).await);
    }
    // Below `/v1`, a request without a credential does not learn which routes exist.
    let bare = async |path: &str| send(client.bare(Method::GET, path)).await;
    not_found(&bare("/nothing").await);
    refused(&bare("/v1/nothing").await, 401, "authentication_error");
    for (methods, path) in [
        (vec![Method::PUT, Method::DELETE, Method::PATCH], STORES),
        (vec![Method::PUT], &store.path),
        (vec![Method::GET, Method::DELETE], &format!("{}/archive", store.path)),
        (vec![Method::GET, Method::DELETE], &tool_calls(&store.id)),
        (vec![Method::DELETE, Method::PATCH], &store.memories()),
        (vec![Method::PUT], &at),
        (vec![Method::POST], &store.versions()),
        (vec![Method::DELETE, Method::POST, Method::PATCH], &version),
        (vec![Method::GET], &format!("{version}/redact")),
        (vec![Method::GET], &format!("{version}/restore")),
        (vec![Method::POST], "/livez"),
    ] {
        for method in methods {
            let answer = send(client.request(method.clone(), path).json(&json!({}))).await;
            refused(&answer, 405, "invalid_request_error");
            assert_ne!(answer.header("allow"), "", "{method} {path}");
            if path != "/livez" {
                assert_of_tenant(&answer, &place);
            }
        }
    }
}

pub(super) async fn headers_of_the_sdk_are_accepted(place: Place) {
    let store = place.new_store("headers").await;
    let request = |method: Method, path: &str| {
        place
            .client
            .request(method, path)
            .header("anthropic-version", "2023-06-01")
            .header("anthropic-beta", PREVIEW)
            .header("x-stainless-retry-count", "0")
    };
    let body = json!({"path": "/a", "content": "one"});
    let made = ok(&send(request(Method::POST, &format!("{}?beta=true", store.memories())).json(&body)).await);
    let at = format!("{}?beta=true", store.memory(&made));
    for path in [&at, &format!("{STORES}?beta=true")] {
        ok(&send(request(Method::GET, path)).await);
    }
    let versioned = request(Method::GET, &store.path).header("anthropic-version", "1999-01-01");
    ok(&send(versioned).await);
    let deleted = send(request(Method::DELETE, &at)).await;
    assert_eq!(ok(&deleted), json!({"id": made["id"], "type": "memory_deleted"}));
    let own = place.tenant.id.to_string();
    let of = async |workspace: &str| {
        let request = request(Method::GET, &store.path);
        send(request.header("anthropic-workspace-id", workspace)).await
    };
    ok(&of(&own).await);
    for foreign in ["wrkspc_00000000000000000000000001", "x", "", &own.to_lowercase()] {
        let answer = of(foreign).await;
        let error = refused(&answer, 403, "permission_error");
        assert!(text(&error["message"]).contains("anthropic-workspace-id"), "{error}");
        assert_of_tenant(&answer, &place);
    }
}

pub(super) async fn ids_sort_by_creation_time(place: Place) {
    let store = place.store();
    let (mut memories, mut stores) = (Vec::new(), Vec::new());
    for n in 0..8 {
        memories.push(store.create(&format!("/{n}"), "x").await);
        stores.push(place.new_store("a").await.id);
    }
    let versions = strings(&memories, "memory_version_id");
    for ids in [strings(&memories, "id"), versions, stores] {
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }
}

pub(super) async fn null_equals_an_omitted_field(place: Place) {
    let client = &place.client;
    let nulls = json!({
        "name": "nulls", "description": null, "metadata": null,
        "expires_unused_after": null, "sensitive_data_policy": null,
    });
    let made = ok(&client.post(STORES, &nulls).await);
    shows(&made, &json!({"description": "", "metadata": {}, "sensitive_data_policy": "off"}));
    let store = Store::new(client, text(&made["id"]));
    let set = json!({
        "description": "kept", "metadata": {"k": "v"},
        "expires_unused_after": 3600, "sensitive_data_policy": "reject",
    });
    let before = ok(&client.post(&store.path, &set).await);
    let nulls = json!({
        "name": null, "description": null, "metadata": null,
        "expires_unused_after": null, "sensitive_data_policy": null,
    });
    for answer in [client.post(&store.path, &nulls).await, patch(client, &store.path, &nulls).await] {
        assert_eq!(ok(&answer), before);
    }

    let new = json!({"path": "/a", "content": "one", "precondition": null});
    let memory = ok(&client.post(&store.memories(), &new).await);
    let nulls = json!({"path": null, "content": null, "pinned": null, "precondition": null});
    for answer in [
        client.post(&store.memory(&memory), &nulls).await,
        patch(client, &store.memory(&memory), &nulls).await,
    ] {
        assert_eq!(ok(&answer), memory);
    }
    let version = &memory["memory_version_id"];
    ok(&store.try_restore(version, &json!({"precondition": null})).await);
    assert_eq!(store.version_count().await, 1);
}
