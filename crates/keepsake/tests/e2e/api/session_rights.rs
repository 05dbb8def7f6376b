//! Sessions and their tokens can do no more than the credentials that made them.

use serde_json::{Value, json};

use super::sessions::{attached, attaching, call, changes, open};
use super::support::{
    Place, SESSIONS, all, delete, invalid, not_found, ok, post_with, refused, secret, strings, text,
};
use crate::support::{Answer, Client};

const READS: [&str; 2] = ["sessions:write", "memory:read"];

#[track_caller]
fn denied(answer: &Answer, scope: &str) {
    let error = refused(answer, 403, "permission_error");
    assert!(text(&error["message"]).contains(scope), "{error}");
}

fn view(path: &str) -> Value {
    json!({"command": "view", "path": path})
}

fn create(path: &str) -> Value {
    json!({"command": "create", "path": path, "file_text": "x"})
}

pub(super) async fn session_has_no_more_rights_than_its_maker(place: Place) {
    let store = place.store();
    for (scopes, access, missing) in [
        (["memory:read", "memory:write"], "read_only", "sessions:write"),
        (["sessions:write", "memory:write"], "read_only", "memory:read"),
        (READS, "read_write", "memory:write"),
    ] {
        let maker = place.key(&scopes, None).await;
        let new = attaching(&[attached(&store, access)]);
        denied(&maker.post(SESSIONS, &new).await, missing);
    }
    let reader = place.key(&READS, None).await;
    let (_, path, _) = open(&reader, &[attached(&store, "read_only")]).await;
    let resource = format!("{path}/resources/{}", store.id);
    let write = json!({"access": "read_write"});
    denied(&reader.post(&resource, &write).await, "memory:write");
    let tokens = format!("{path}/token");
    let issued = ok(&reader.post(&tokens, &json!({})).await);
    secret(&issued, "token");
    // Once another key grants write access, the reader neither gets a token nor calls a tool.
    ok(&place.client.post(&resource, &write).await);
    denied(&reader.post(&tokens, &json!({})).await, "memory:write");
    let calls = format!("{path}/tool_calls");
    let written = reader.post(&calls, &create("/memories/notes/a")).await;
    denied(&written, "memory:write");
}

pub(super) async fn token_reaches_no_store_that_its_key_may_not_see(place: Place) {
    let (owner, own, other) = (&place.client, place.store(), place.new_store("other").await);
    let scopes = ["sessions:write", "memory:read", "memory:write"];
    let bound = place.key(&scopes, Some(&own)).await;
    let (_, path, holder) = open(&bound, &[attached(&own, "read_write")]).await;
    let resources = format!("{path}/resources");
    ok(&owner.post(&resources, &attached(&other, "read_write")).await);
    let hidden = "/memories/other/secret.md";
    assert!(!call(owner, &path, &create(hidden)).await.1);

    let (root, _) = call(&holder, &path, &view("/memories")).await;
    assert!(root.contains("notes") && !root.contains("other"), "{root}");
    assert!(call(&holder, &path, &view(hidden)).await.1);
    not_found(&other.seen_by(&holder).try_create("/a", "x").await);
    let shown = ok(&holder.get(&path).await);
    let seen = strings(shown["resources"].as_array().unwrap(), "memory_store_id");
    assert_eq!(seen, [own.id]);
    let events = all(&holder, &format!("{path}/events?limit=100")).await;
    let told = json!(events).to_string();
    assert!(!told.contains("other/"), "{told}");
    // The token of a key that sees both reaches both.
    let issued = ok(&owner.post(&format!("{path}/token"), &json!({})).await);
    let holder = owner.with_key(secret(&issued, "token"));
    assert!(!call(&holder, &path, &view(hidden)).await.1);
}

pub(super) async fn token_of_a_reading_key_never_writes(place: Place) {
    let store = place.store();
    let reader = place.key(&READS, None).await;
    let (_, path, holder) = open(&reader, &[attached(&store, "read_only")]).await;
    let resource = format!("{path}/resources/{}", store.id);
    let write = json!({"access": "read_write"});
    ok(&place.client.post(&resource, &write).await);
    let (told, is_error) = call(&holder, &path, &create("/memories/notes/a.md")).await;
    assert!(is_error && told.contains("read-only"), "{told}");
    let written = store.seen_by(&holder).try_create("/a", "x").await;
    denied(&written, "memory:write");
    let shown = ok(&holder.get(&path).await);
    assert_eq!(shown["resources"][0]["access"], "read_only");
    assert_eq!(store.version_count().await, 0);
}

/// Checks that for a credential a session is as one that never existed.
async fn assert_hidden(client: &Client, path: &str, own: &Value) {
    for (at, body) in [
        (path.to_owned(), json!({"title": "x"})),
        (format!("{path}/token"), json!({})),
        (format!("{path}/archive"), json!({})),
        (format!("{path}/resources"), own.clone()),
        (format!("{path}/tool_calls"), view("/memories")),
    ] {
        not_found(&client.post(&at, &body).await);
    }
    not_found(&client.get(path).await);
    not_found(&client.get(&format!("{path}/events")).await);
    not_found(&delete(client, path).await);
}

pub(super) async fn bound_key_sees_only_sessions_of_its_stores(place: Place) {
    let (owner, bound) = (&place.client, &place.bound);
    let own = attached(&place.store(), "read_only");
    let other = attached(&place.new_store("other").await, "read_only");
    let just = std::slice::from_ref::<Value>;
    let (mine, at, _) = open(owner, just(&own)).await;
    for resources in [&[own.clone(), other.clone()][..], &[]] {
        let (_, path, _) = open(owner, resources).await;
        assert_hidden(bound, &path, &own).await;
    }
    let list = format!("{SESSIONS}?limit=100");
    assert_eq!(strings(&all(bound, &list).await, "id"), [text(&mine["id"])]);
    not_found(&bound.post(SESSIONS, &attaching(just(&other))).await);
    invalid(&bound.post(SESSIONS, &attaching(&[])).await, "`resources`");

    let title = json!({"title": "mine"});
    let rename = async || post_with(bound, &at, &title, ("idempotency-key", "k")).await;
    ok(&rename().await);
    ok(&owner.post(&format!("{at}/resources"), &other).await);
    // The same call again would be answered with the session as it is now.
    not_found(&rename().await);
    assert_hidden(bound, &at, &own).await;
    assert_eq!(all(bound, &list).await, [] as [Value; 0]);
}

pub(super) async fn session_is_shown_only_with_the_scope_to_read(place: Place) {
    let (client, store) = (&place.client, place.store());
    let other = place.new_store("other").await;
    let blind = place.key(&["sessions:write", "memory:write"], None).await;
    let (_, path, _) = open(client, &[attached(&store, "read_write")]).await;
    let before = ok(&client.get(&path).await);
    let resource = format!("{path}/resources/{}", store.id);
    for (at, body) in changes(&path, &store, &other) {
        denied(&blind.post(&at, &body).await, "memory:read");
    }
    assert_eq!(ok(&client.get(&path).await), before);
    // Calls that show nothing of the session need only the scope to change it.
    ok(&delete(&blind, &resource).await);
    ok(&delete(&blind, &path).await);
}
