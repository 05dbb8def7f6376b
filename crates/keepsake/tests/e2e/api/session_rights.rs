//! Sessions and their tokens can do no more than the credentials that made them.

use super::sessions::{call, create_file, of_resources, view};
use crate::prelude::*;

const READS: [&str; 2] = ["sessions:write", "memory:read"];

pub(super) async fn session_has_no_more_rights_than_its_maker(place: Place) {
    let store = place.store();
    for (scopes, access, missing) in [
        (["memory:read", "memory:write"], "read_only", "sessions:write"),
        (["sessions:write", "memory:write"], "read_only", "memory:read"),
        (READS, "read_write", "memory:write"),
    ] {
        let maker = place.key(&scopes).await;
        denied(&maker.post(SESSIONS, &attaching(&[attached(&store, access)])).await, missing);
    }
    let reader = place.key(&READS).await;
    let (_, path, holder) = open(&reader, &[attached(&store, "read_only")]).await;
    let (resource, tokens) = (format!("{path}/resources/{}", store.id), format!("{path}/token"));
    let (write, file) = (json!({"access": "read_write"}), create_file("/memories/notes/a"));
    denied(&reader.post(&resource, &write).await, "memory:write");
    secret(&ok(&reader.post(&tokens, &json!({})).await), "token");
    // Once another key grants write access, the reader neither gets a token nor calls a
    // tool, and the token that it has does not write.
    ok(&place.client.post(&resource, &write).await);
    denied(&reader.post(&tokens, &json!({})).await, "memory:write");
    denied(&reader.post(&format!("{path}/tool_calls"), &file).await, "memory:write");
    let (told, is_error) = call(&holder, &path, &file).await;
    assert!(is_error && told.contains("read-only"), "{told}");
    denied(&store.seen_by(&holder).try_create("/a", "x").await, "memory:write");
    assert_eq!(of_resources(&ok(&holder.get(&path).await), "access"), ["read_only"]);
    assert_eq!(store.version_count().await, 0);
}

pub(super) async fn token_reaches_no_store_that_its_key_may_not_see(place: Place) {
    let (owner, own, other) = (&place.client, place.store(), place.new_store("other").await);
    let (_, path, holder) = open(&place.bound, &[attached(&own, "read_write")]).await;
    ok(&owner.post(&format!("{path}/resources"), &attached(&other, "read_write")).await);
    let hidden = "/memories/other/secret.md";
    assert!(!call(owner, &path, &create_file(hidden)).await.1);
    let (root, _) = call(&holder, &path, &view("/memories")).await;
    assert!(root.contains("notes") && !root.contains("other"), "{root}");
    assert!(call(&holder, &path, &view(hidden)).await.1);
    not_found(&other.seen_by(&holder).try_create("/a", "x").await);
    assert_eq!(of_resources(&ok(&holder.get(&path).await), "memory_store_id"), [own.id]);
    let told = json!(holder.all(&format!("{path}/events?limit=100")).await).to_string();
    assert!(!told.contains("other/"), "{told}");
    // The token of a key that sees all reaches both, and no store that is not attached.
    place.new_store("apart").await.create("/secret.md", "x").await;
    let issued = ok(&owner.post(&format!("{path}/token"), &json!({})).await);
    let holder = owner.with_key(secret(&issued, "token"));
    assert!(!call(&holder, &path, &view(hidden)).await.1);
    assert_eq!(strings(&holder.all("/v1/search?query=secret").await, "memory_store_id"), [other.id]);
}

/// The isolation sweep does the same with each route.
async fn assert_hidden(client: &Client, path: &str) {
    not_found(&client.post(&format!("{path}/tool_calls"), &view("/memories")).await);
    not_found(&client.get(path).await);
}

pub(super) async fn bound_key_sees_only_sessions_of_its_stores(place: Place) {
    let (owner, bound) = (&place.client, &place.bound);
    let own = attached(&place.store(), "read_only");
    let other = attached(&place.new_store("other").await, "read_only");
    let (mine, at, _) = open(owner, std::slice::from_ref(&own)).await;
    for resources in [&[own.clone(), other.clone()][..], &[]] {
        let (_, path, _) = open(owner, resources).await;
        assert_hidden(bound, &path).await;
    }
    let list = format!("{SESSIONS}?limit=100");
    assert_eq!(strings(&bound.all(&list).await, "id"), [text(&mine["id"])]);
    not_found(&bound.post(SESSIONS, &attaching(std::slice::from_ref(&other))).await);
    invalid(&bound.post(SESSIONS, &attaching(&[])).await, "`resources`");
    let title = json!({"title": "mine"});
    let rename = async || post_with(bound, &at, &title, ("idempotency-key", "k")).await;
    ok(&rename().await);
    ok(&owner.post(&format!("{at}/resources"), &other).await);
    // The same call again would be answered with the session as it is now.
    not_found(&rename().await);
    assert_hidden(bound, &at).await;
    assert_eq!(bound.all(&list).await, [] as [Value; 0]);
}

pub(super) async fn each_route_of_sessions_asks_for_its_scopes(place: Place) {
    let (client, store, other) = (&place.client, place.store(), place.new_store("other").await);
    let blind = place.key(&["sessions:write", "memory:write"]).await;
    let (_, path, _) = open(client, &[attached(&store, "read_write")]).await;
    let (resource, calls) = (format!("{path}/resources/{}", store.id), format!("{path}/tool_calls"));
    let before = ok(&client.get(&path).await);
    for (at, body) in [
        (SESSIONS, attaching(&[])),
        (&path, json!({"title": "x"})),
        (&format!("{path}/archive"), json!({})),
        (&format!("{path}/token"), json!({})),
        (&format!("{path}/resources"), attached(&other, "read_only")),
        (&resource, json!({"access": "read_only"})),
    ] {
        denied(&blind.post(at, &body).await, "memory:read");
        for unable in [&place.reader, &place.writer, &place.admin] {
            refused(&unable.post(at, &body).await, 403, "permission_error");
        }
    }
    for (unable, at) in [(&place.reader, &path), (&place.writer, &resource), (&place.admin, &path)] {
        refused(&delete(unable, at).await, 403, "permission_error");
    }
    assert_eq!(ok(&client.get(&path).await), before);
    ok(&place.reader.post(&calls, &view("/memories")).await);
    let lists = [&path, &resource, &format!("{path}/events"), &SESSIONS.to_owned()];
    for at in lists {
        ok(&place.reader.get(at).await);
    }
    for unable in [&place.writer, &place.admin] {
        refused(&unable.post(&calls, &view("/memories")).await, 403, "permission_error");
        for at in lists {
            refused(&unable.get(at).await, 403, "permission_error");
        }
    }
    // Calls that show nothing of the session need only the scope to change it.
    ok(&delete(&blind, &resource).await);
    ok(&delete(&blind, &path).await);
}
