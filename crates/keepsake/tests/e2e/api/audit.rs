use crate::prelude::*;

const AUDIT: &str = "/v1/audit";

/// Every entry of the tenant, the newest first.
async fn entries(place: &Place, query: &str) -> Vec<Value> {
    place.client.all(&format!("{AUDIT}?limit=100&{query}")).await
}

async fn assert_done_to(place: &Place, object: &str, expected: &str) {
    let mut entries = entries(place, &format!("object_id={object}")).await;
    entries.reverse();
    assert_eq!(strings(&entries, "action").join(" "), expected);
}

pub(super) async fn every_change_of_a_session_is_in_the_audit(place: Place) {
    let store = place.new_store("attached").await;
    let (session, path, _) = open(&place.client, &[]).await;
    let post = async |path: &str, body: Value| ok(&place.client.post(path, &body).await);
    post(&path, json!({"title": "renamed"})).await;
    let resource = post(&format!("{path}/resources"), attached(&store, "read_write")).await;
    let resource = format!("{path}/resources/{}", text(&resource["id"]));
    post(&resource, json!({"access": "read_only"})).await;
    secret(&post(&format!("{path}/token"), json!({})).await, "token");
    ok(&delete(&place.client, &resource).await);
    for _ in 0..2 {
        post(&format!("{path}/archive"), json!({})).await;
    }
    ok(&delete(&place.client, &path).await);
    let expected = "session.create session.update session.add_resource session.update_resource \
        session.issue_token session.delete_resource session.archive session.delete";
    assert_done_to(&place, text(&session["id"]), expected).await;
    for entry in entries(&place, &format!("object_id={}", text(&session["id"]))).await {
        let is_of_resource = text(&entry["action"]).ends_with("_resource");
        let expected = is_of_resource.then_some(&store.id);
        assert_eq!(entry["memory_store_id"], json!(expected), "{entry}");
        assert_eq!(entry["object"]["type"], "session", "{entry}");
    }
}

pub(super) async fn keys_redactions_and_erasures_are_in_the_audit(place: Place) {
    let store = place.new_store("kept").await;
    let memory = store.create("/a", "one").await;
    store.update(&memory, &json!({"content": "two"})).await;
    let redacted = &memory["memory_version_id"];
    for _ in 0..2 {
        store.redact(redacted).await;
    }
    assert_done_to(&place, text(redacted), "memory_version.redact").await;
    assert_eq!(entries(&place, "action=memory_version.redact").await[0]["memory_store_id"], store.id);
    let post = async |path: &str, body: Value| ok(&place.client.post(path, &body).await);
    post(&store.path, json!({"sensitive_data_policy": "reject", "name": "same"})).await;
    post(&store.path, json!({"expires_unused_after": 86_400})).await;
    for search_mode in [json!("lexical"), json!("lexical"), Value::Null] {
        post(&store.path, json!({"search_mode": search_mode})).await;
    }
    post(&store.path, json!({"name": "same"})).await;
    for description in ["one", "two", "one"] {
        let described = json!({"description": description});
        let once = ("idempotency-key", description);
        ok(&post_with(&place.client, &store.path, &described, once).await);
    }
    for _ in 0..2 {
        store.archive().await;
    }
    let expected = "memory_store.create memory_store.update_policy memory_store.update_policy \
        memory_store.update_policy memory_store.update_policy memory_store.update memory_store.update memory_store.archive";
    assert_done_to(&place, &store.id, expected).await;
    let (_, key) = place.client.new_key(&["memory:read"]).await;
    for _ in 0..2 {
        place.client.revoke(&key).await;
    }
    assert_done_to(&place, key.rsplit('/').next().unwrap(), "api_key.create api_key.revoke").await;
    let erasure = post("/v1/erasures", json!({"memory_store_id": store.id})).await;
    assert_eq!(entries(&place, "action=erasure.create").await[0]["object"]["id"], erasure["id"]);
}

pub(super) async fn deletion_of_a_store_is_in_the_audit_which_is_filtered_and_paged(place: Place) {
    let store = place.new_store("short-lived").await;
    ok(&delete(&place.second, &store.path).await);
    assert_eq!(delete(&place.client, &store.path).await.status, 404);
    let of_store = entries(&place, &format!("object_id={}", store.id)).await;
    let [entry, creation] = &of_store[..] else { panic!("it is deleted once: {of_store:?}") };
    shows(entry, &json!({"type": "audit_entry", "action": "memory_store.delete", "memory_store_id": null}));
    assert_eq!(entry["object"], json!({"id": store.id, "type": "memory_store"}));
    assert_ne!(entry["actor"], creation["actor"], "another key deleted it");
    let by_second = text(&entry["actor"]["api_key_id"]);
    assert_eq!(entries(&place, &format!("actor_id={by_second}")).await, of_store[..1]);
    for number in 0..5 {
        place.new_store(&format!("store {number}")).await;
    }
    let query = "action=memory_store.create";
    let created = entries(&place, query).await;
    let times: Vec<_> = created.iter().map(|entry| text(&entry["created_at"])).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    assert_eq!(place.client.all(&format!("{AUDIT}?{query}&limit=2")).await, created);
    let since = format!("{query}&created_at[gte]={}", times[1]);
    assert_eq!(entries(&place, &since).await, created[..2]);
    let until = format!("{query}&created_at[lte]={}", times[1]);
    assert_eq!(entries(&place, &until).await, created[1..]);
    assert_eq!(entries(&place, "actor_id=nobody").await, [Value::Null; 0]);
    let get = async |query: &str| place.client.get(&format!("{AUDIT}?{query}")).await;
    // A cursor belongs to its query.
    let (_, next) = page_of(&get(&format!("limit=1&{query}")).await);
    invalid(&get(&format!("limit=1&page={}", next.unwrap())).await, "page");
    for (query, named) in [
        ("limit=101", "limit"),
        ("action=memory_store.burn", "action"),
        ("object_id=memory_store", "object_id"),
        ("created_at[gte]=yesterday", "created_at"),
    ] {
        invalid(&get(query).await, named);
    }
}

pub(super) async fn audit_holds_no_names_and_needs_an_unbound_administrator(place: Place) {
    let mark = "quite-unlikely-mark";
    let store = place.new_store(mark).await;
    let memory = store.create(&format!("/{mark}"), mark).await;
    store.update(&memory, &json!({"content": "other"})).await;
    store.redact(&memory["memory_version_id"]).await;
    let described = json!({"description": mark, "metadata": {"key": mark}});
    ok(&place.client.post(&store.path, &described).await);
    let new = json!({"agent": "agent_1", "environment_id": mark, "title": mark, "metadata": {"key": mark}});
    let session = new_session(&place.client, &new).await;
    let told = json!(entries(&place, "").await).to_string();
    assert!(told.contains("session.create"));
    assert!(!told.contains(mark), "{told}");
    ok(&place.second.get(AUDIT).await);
    let holder = place.client.with_key(text(&session["token"]));
    for client in [&place.reader, &place.writer, &place.admin, &place.bound, &holder] {
        refused(&client.get(AUDIT).await, 403, "permission_error");
    }
}
