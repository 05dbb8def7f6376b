use crate::prelude::*;

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
    let (tenant, mut request_ids) = (place.tenant.id.to_string(), BTreeSet::new());
    for (status, answer) in &answers {
        assert_eq!(answer.status, *status, "{}", answer.text);
        let request_id = answer.header("request-id");
        assert_eq!((&request_id[..4], request_id.len()), ("req_", 30), "{request_id}");
        assert!(request_ids.insert(request_id), "{request_id} was used twice");
        assert_eq!(answer.header("anthropic-workspace-id"), tenant, "{}", answer.text);
        assert_kept_out_of_caches(answer);
    }
    for foreign in ["", &tenant.to_lowercase()] {
        let request = client.request(Method::GET, &store.path).header("anthropic-workspace-id", foreign);
        refused(&send(request).await, 403, "permission_error");
    }
}

/// A cache in front of the server would give what it keeps to other tenants.
#[track_caller]
fn assert_kept_out_of_caches(answer: &Answer) {
    assert_eq!(answer.header("cache-control"), "private, no-store", "{}", answer.text);
    assert_eq!(answer.header("vary"), "authorization, x-api-key, cookie", "{}", answer.text);
}

pub(super) async fn unknown_routes_and_methods_get_an_error_envelope(place: Place) {
    let (client, store) = (&place.client, place.store());
    let doubled = format!("{}//memories", store.path);
    for path in ["/v2/memory_stores", "//v1/memory_stores", "/v1/memory_stores/", &doubled] {
        not_found(&client.get(path).await);
    }
    for (path, named) in [
        ("/v1/v1/memory_stores", "without `/v1`"),
        ("/v1/messages", "runs no models"),
        ("/v1/sessions/sesn_1/threads", "runs no models"),
    ] {
        let answer = client.get(path).await;
        not_found(&answer);
        assert!(answer.text.contains(named), "{}", answer.text);
    }
    let sent = client.post("/v1/sessions/sesn_1/events", &json!({"events": []})).await;
    assert!(sent.status == 405 && sent.text.contains("runs no models"), "{}", sent.text);
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
