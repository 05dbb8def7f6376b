//! Conventions of every route: names, objects, ids, times.

use crate::prelude::*;

#[track_caller]
pub(super) fn assert_id(value: &Value, prefix: &str) {
    let id = text(value);
    let rest = id.strip_prefix(prefix).unwrap_or_else(|| panic!("{id}"));
    assert_eq!(rest.len(), 26, "{id}");
    assert!(rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()), "{id}");
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

pub(super) async fn every_answer_names_its_request_and_tenant_and_stays_out_of_caches(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, at) = (store.memories(), store.memory(&memory));
    let answers = [
        (200, client.get(&memories).await),
        (200, client.post(&at, &json!({})).await),
        (400, client.post(STORES, &json!({})).await),
        (403, place.reader.post(STORES, &json!({"name": "a"})).await),
        (404, client.get("/v1/nothing").await),
        (405, send(client.request(Method::PUT, &at)).await),
        (409, store.try_create("/a", "two").await),
        (413, post_text(client, &memories, " ".repeat(700_000)).await),
        (415, send(client.request(Method::POST, &memories).body("{}")).await),
    ];
    let mut request_ids = BTreeSet::new();
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{}", answer.text);
        let request_id = answer.header("request-id");
        assert_id(&json!(request_id), "req_");
        assert!(request_ids.insert(request_id), "{request_id} was used twice");
        assert_of_tenant(answer, &place);
        assert_kept_out_of_caches(answer);
    }
    // A request that names another tenant is refused.
    let own = place.tenant.id.to_string();
    let of = async |workspace: &str| {
        let request = client.request(Method::GET, &store.path);
        send(request.header("anthropic-workspace-id", workspace)).await
    };
    assert_eq!(of(&own).await.status, 200);
    for foreign in ["wrkspc_00000000000000000000000001", "", &own.to_lowercase()] {
        let answer = of(foreign).await;
        refused(&answer, 403, "permission_error");
        assert_of_tenant(&answer, &place);
    }
}

#[track_caller]
fn assert_of_tenant(answer: &Answer, place: &Place) {
    let named = answer.header("anthropic-workspace-id");
    assert_eq!(named, place.tenant.id.to_string(), "{}", answer.text);
}

/// A cache in front of the server would give what it keeps to other tenants.
#[track_caller]
fn assert_kept_out_of_caches(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), "private, no-store", "{}", answer.text);
    assert_eq!(answer.header("vary"), "authorization, x-api-key, cookie", "{}", answer.text);
}

pub(super) async fn unknown_routes_and_methods_get_an_error_envelope(place: Place) {
    let (client, store) = (&place.client, place.store());
    for path in [
        "/v2/memory_stores",
        "//v1/memory_stores",
        "/v1/memory_stores/",
        &format!("{}//memories", store.path),
    ] {
        not_found(&client.get(path).await);
    }
    for (path, named) in [("/v1/v1/memory_stores", "without `/v1`"), ("/v1/messages", "runs no models")] {
        let answer = client.get(path).await;
        not_found(&answer);
        assert!(answer.text.contains(named), "{}", answer.text);
    }
    // Below `/v1`, a request without a credential does not learn which routes exist.
    let bare = async |path: &str| send(client.bare(Method::GET, path)).await;
    not_found(&bare("/nothing").await);
    let unknown = bare("/v1/nothing").await;
    refused(&unknown, 401, "authentication_error");
    assert_kept_out_of_caches(&unknown);
    for (method, path) in [(Method::DELETE, STORES), (Method::POST, "/livez")] {
        let answer = send(client.request(method, path).json(&json!({}))).await;
        refused(&answer, 405, "invalid_request_error");
        assert_ne!(answer.header("allow"), "", "{path}");
    }
}
