//! The audit: who did what, as the tenant reads it.

use serde_json::{Value, json};

use super::conventions::{assert_fields, assert_id, assert_time};
use super::support::{
    Place, SESSIONS, STORES, all, delete, invalid, new_session, ok, page_of, post_with, refused, secret,
    strings, text,
};

const AUDIT: &str = "/v1/audit";

/// Every entry of the tenant, the newest first.
async fn entries(place: &Place, query: &str) -> Vec<Value> {
    all(&place.client, &format!("{AUDIT}?limit=100&{query}")).await
}

/// What was done to an object, the first thing first.
async fn done_to(place: &Place, object: &Value) -> Vec<String> {
    let mut entries = entries(place, &format!("object_id={}", text(object))).await;
    entries.reverse();
    let action = |entry: &Value| text(&entry["action"]).to_owned();
    entries.iter().map(action).collect()
}

/// The API key that a client's requests carry, as the audit names it.
async fn actor(place: &Place) -> Value {
    let made = ok(&place.client.post(STORES, &json!({"name": "whose"})).await);
    let entry = entries(place, &format!("object_id={}", text(&made["id"]))).await;
    entry[0]["actor"].clone()
}

pub(super) async fn deletion_of_a_store_is_in_the_audit(place: Place) {
    let store = place.new_store("short-lived").await;
    let by_client = actor(&place).await;
    ok(&delete(&place.second, &store.path).await);
    assert_eq!(delete(&place.client, &store.path).await.status, 404);
    let query = format!("object_id={}&action=memory_store.delete", store.id);
    let deleted = entries(&place, &query).await;
    assert_eq!(deleted.len(), 1, "it is deleted once");
    let entry = &deleted[0];
    assert_fields(entry, "id type created_at actor action object memory_store_id");
    assert_id(&entry["id"], "audit_");
    assert_time(&entry["created_at"]);
    assert_eq!(entry["type"], "audit_entry");
    assert_eq!(entry["object"], json!({"id": store.id, "type": "memory_store"}));
    assert_eq!(entry["memory_store_id"], Value::Null);
    assert_eq!(entry["actor"]["type"], "api_actor");
    assert_id(&entry["actor"]["api_key_id"], "apikey_");
    assert_ne!(entry["actor"], by_client, "another key deleted it");
    let by_second = text(&entry["actor"]["api_key_id"]);
    let of_second = entries(&place, &format!("actor_id={by_second}")).await;
    assert_eq!(of_second, deleted);
}

pub(super) async fn every_change_of_a_session_is_in_the_audit(place: Place) {
    let store = place.new_store("attached").await;
    let new = json!({"agent": "agent_1", "environment_id": "env_1"});
    let session = new_session(&place.client, &new).await;
    let path = format!("{SESSIONS}/{}", text(&session["id"]));
    let post = async |path: String, body: Value| ok(&place.client.post(&path, &body).await);
    post(path.clone(), json!({"title": "renamed"})).await;
    let added = json!({"type": "memory_store", "memory_store_id": store.id});
    let resource = post(format!("{path}/resources"), added).await;
    let resource = format!("{path}/resources/{}", text(&resource["id"]));
    post(resource.clone(), json!({"access": "read_only"})).await;
    let token = post(format!("{path}/token"), json!({})).await;
    secret(&token, "token");
    ok(&delete(&place.client, &resource).await);
    post(format!("{path}/archive"), json!({})).await;
    post(format!("{path}/archive"), json!({})).await;
    ok(&delete(&place.client, &path).await);
    let expected = "session.create session.update session.add_resource session.update_resource \
        session.issue_token session.delete_resource session.archive session.delete";
    assert_eq!(done_to(&place, &session["id"]).await.join(" "), expected);
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
    for _ in 0..2 {
        store.redact(&memory["memory_version_id"]).await;
    }
    let redacted = &memory["memory_version_id"];
    assert_eq!(done_to(&place, redacted).await, ["memory_version.redact"]);
    let entry = &entries(&place, "action=memory_version.redact").await[0];
    assert_eq!(entry["memory_store_id"], store.id);
    let post = async |path: String, body: Value| ok(&place.client.post(&path, &body).await);
    let policy = json!({"sensitive_data_policy": "reject", "name": "same"});
    post(store.path.clone(), policy).await;
    post(store.path.clone(), json!({"expires_unused_after": 86_400})).await;
    post(store.path.clone(), json!({"name": "same"})).await;
    for description in ["one", "two", "one"] {
        let described = json!({"description": description});
        let once = ("idempotency-key", description);
        ok(&post_with(&place.client, &store.path, &described, once).await);
    }
    for _ in 0..2 {
        store.archive().await;
    }
    let expected = "memory_store.create memory_store.update_policy memory_store.update_policy \
        memory_store.update memory_store.update memory_store.archive";
    assert_eq!(done_to(&place, &json!(store.id)).await.join(" "), expected);
    let new = json!({"name": "more", "scopes": ["memory:read"]});
    let key = post("/v1/api_keys".to_owned(), new).await;
    secret(&key, "api_key");
    for _ in 0..2 {
        post(format!("/v1/api_keys/{}/revoke", text(&key["id"])), json!({})).await;
    }
    assert_eq!(done_to(&place, &key["id"]).await, ["api_key.create", "api_key.revoke"]);
    let erased = json!({"memory_store_id": store.id});
    let erasure = post("/v1/erasures".to_owned(), erased).await;
    assert_eq!(done_to(&place, &erasure["id"]).await[0], "erasure.create");
}

pub(super) async fn audit_is_filtered_and_paged(place: Place) {
    for number in 0..5 {
        place.new_store(&format!("store {number}")).await;
    }
    let created = entries(&place, "action=memory_store.create").await;
    let times: Vec<_> = created.iter().map(|entry| text(&entry["created_at"])).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    let paged = format!("{AUDIT}?action=memory_store.create&limit=2");
    assert_eq!(all(&place.client, &paged).await, created);
    let since = format!("action=memory_store.create&created_at[gte]={}", times[1]);
    assert_eq!(entries(&place, &since).await, created[..2]);
    let until = format!("action=memory_store.create&created_at[lte]={}", times[1]);
    assert_eq!(entries(&place, &until).await, created[1..]);
    assert_eq!(entries(&place, "actor_id=nobody").await, [Value::Null; 0]);
    let get = async |query: &str| place.client.get(&format!("{AUDIT}?{query}")).await;
    // A cursor belongs to its query.
    let (_, next) = page_of(&get("limit=1&action=memory_store.create").await);
    let next = next.unwrap();
    invalid(&get(&format!("limit=1&page={next}")).await, "page");
    for (query, named) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("action=memory_store.burn", "action"),
        ("object_id=memory_store", "object_id"),
        ("created_at[gte]=yesterday", "created_at"),
    ] {
        invalid(&get(query).await, named);
    }
    // Another tenant has its own.
    let theirs = all(&place.stranger, &format!("{AUDIT}?limit=100")).await;
    let (theirs, ours) = (strings(&theirs, "id"), strings(&created, "id"));
    assert!(theirs.iter().all(|id| !ours.contains(id)));
}

pub(super) async fn audit_needs_an_unbound_administrator(place: Place) {
    ok(&place.second.get(AUDIT).await);
    for client in [&place.reader, &place.writer, &place.admin, &place.bound] {
        refused(&client.get(AUDIT).await, 403, "permission_error");
    }
    let new = json!({"agent": "agent_1", "environment_id": "env_1"});
    let session = new_session(&place.client, &new).await;
    let holder = place.client.with_key(text(&session["token"]));
    refused(&holder.get(AUDIT).await, 403, "permission_error");
}

pub(super) async fn audit_holds_no_names_and_no_content(place: Place) {
    let mark = "quite-unlikely-mark";
    let store = place.new_store(mark).await;
    let memory = store.create(&format!("/{mark}"), mark).await;
    store.update(&memory, &json!({"content": "other"})).await;
    store.redact(&memory["memory_version_id"]).await;
    let described = json!({"description": mark, "metadata": {"key": mark}});
    ok(&place.client.post(&store.path, &described).await);
    let new = json!({"agent": "agent_1", "environment_id": mark, "title": mark, "metadata": {"key": mark}});
    new_session(&place.client, &new).await;
    let told = json!(entries(&place, "").await).to_string();
    assert!(told.contains("session.create"));
    assert!(!told.contains(mark), "{told}");
}
