//! Two servers on the same stores: what one did the other one knows at once.

use super::idempotency::duplicates_are_made_once_through;
use super::races::{
    answered_edits_are_seen_through, one_update_meets_its_precondition_through,
    racing_changes_keep_every_count_through,
};
use super::store_tests::batches_at_once_keep_the_tests_through;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn replicas_answer_as_one() {
    let (deployment, tenant, _server, here) = started(Pair::PostgresS3).await;
    let second = deployment.start().await;
    let there = second.client(&tenant);
    let made = async |name: &str| {
        let store = Store::make(&here, name).await;
        [store.clone(), store.seen_by(&there)]
    };
    duplicates_are_made_once_through(&made("duplicates").await).await;
    what_is_removed_is_served_nowhere(&made("shared").await).await;
    session_that_ends_here_ends_there(&here, &there, &tenant).await;
    access_changed_here_is_changed_there(&here, &there, &tenant).await;
    let stores = made("raced").await;
    one_update_meets_its_precondition_through(&stores).await;
    answered_edits_are_seen_through(&stores).await;
    racing_changes_keep_every_count_through(&stores).await;
    cursor_leads_on_elsewhere(&stores).await;
    writes_are_found_at_once(&stores).await;
    batches_at_once_keep_the_tests_through(&made("tested").await).await;
}

async fn writes_are_found_at_once([ours, theirs]: &[Store; 2]) {
    let hits = async |store: &Store, word: &str| {
        page_of(&store.client.get(&format!("{}/search?query={word}", store.path)).await).0
    };
    // As many words as a memory can have.
    let words: Vec<_> = (0..14_600).map(|number| format!("w{number:05}")).collect();
    ours.create("/large.md", &words.join(" ")).await;
    assert_eq!(hits(theirs, "w14599").await[0]["path"], "/large.md");
    for letter in 'a'..='t' {
        let word = format!("walnut{letter}");
        let memory = ours.create(&format!("/{letter}.txt"), &word).await;
        assert_eq!(hits(theirs, &word).await.len(), 1, "{word}");
        theirs.delete(&memory).await;
        assert_eq!(hits(ours, &word).await.len(), 0, "{word}");
    }
}

async fn cursor_leads_on_elsewhere([ours, theirs]: &[Store; 2]) {
    for list in [ours.memories(), ours.versions()] {
        let (whole, _) = page_of(&ours.client.get(&format!("{list}?limit=100")).await);
        let (first, next) = page_of(&ours.client.get(&format!("{list}?limit=2")).await);
        let page = format!("{list}?limit=100&page={}", next.unwrap());
        let (rest, _) = page_of(&theirs.client.get(&page).await);
        assert!(strings(&[first, rest].concat(), "id").starts_with(&strings(&whole, "id")));
    }
}

async fn what_is_removed_is_served_nowhere([ours, theirs]: &[Store; 2]) {
    let (here, there) = (&ours.client, &theirs.client);
    let memory = ours.create("/a", "secret").await;
    let version = ours.version(&memory["memory_version_id"]);
    // Both have it in their caches.
    for store in [ours, theirs] {
        assert_eq!(store.read(&memory).await["content"], "secret");
        assert_eq!(ok(&store.client.get(&version).await)["content"], "secret");
    }
    ours.update(&memory, &json!({"content": "harmless"})).await;
    assert_eq!(theirs.read(&memory).await["content"], "harmless");
    ours.redact(&memory["memory_version_id"]).await;
    for shown in [there.get(&version).await, there.get(&format!("{}?view=full", theirs.versions())).await] {
        ok(&shown);
        assert!(!shown.text.contains("secret"), "{}", shown.text);
    }
    ours.delete(&memory).await;
    not_found(&there.get(&theirs.memory(&memory)).await);
    let erased = ours.create("/p/a", "secret").await;
    assert_eq!(theirs.read(&erased).await["content"], "secret");
    let prefix = json!({"memory_store_id": ours.id, "path_prefix": "/p/"});
    there.receipt(&ok(&here.post("/v1/erasures", &prefix).await)).await;
    not_found(&there.get(&theirs.memory(&erased)).await);
    not_found(&there.get(&theirs.version(&erased["memory_version_id"])).await);
    ours.archive().await;
    invalid(&theirs.try_create("/b", "x").await, "archived");
    ok(&delete(here, &ours.path).await);
    not_found(&there.get(&theirs.path).await);
    not_found(&there.get(&version).await);
}

/// A session that was made here, and its token's client there, which has used it.
async fn session_used_there(here: &Client, there: &Client, tenant: &Tenant) -> (String, Client) {
    let (session, path, _) = open(here, &[attached(&Store::of(here, tenant), "read_write")]).await;
    let holder = there.with_key(text(&session["token"]));
    ok(&view(&holder, &path).await);
    (path, holder)
}

async fn view(client: &Client, session: &str) -> Answer {
    let view = json!({"command": "view", "path": "/memories"});
    client.post(&format!("{session}/tool_calls"), &view).await
}

async fn session_that_ends_here_ends_there(here: &Client, there: &Client, tenant: &Tenant) {
    let archived = session_used_there(here, there, tenant).await;
    let deleted = session_used_there(here, there, tenant).await;
    let (key, key_path) = here.new_key(&["sessions:write", "memory:read", "memory:write"]).await;
    let of_key = session_used_there(&here.with_key(&key), there, tenant).await;

    ok(&here.post(&format!("{}/archive", archived.0), &json!({})).await);
    ok(&delete(here, &deleted.0).await);
    here.revoke(&key_path).await;
    for (path, holder) in [&archived, &deleted, &of_key] {
        let is_refused = async || view(holder, path).await.status != 200;
        eventually("the token has ended", Duration::from_secs(5), is_refused).await;
        refused(&view(holder, path).await, 401, "authentication_error");
    }
    invalid(&view(there, &archived.0).await, "archived");
    for path in [&deleted.0, &format!("{}/events", deleted.0)] {
        not_found(&there.get(path).await);
    }
    not_found(&delete(there, &deleted.0).await);
    // The session of the revoked key lives on, and so does a token of another key.
    let issued = ok(&here.post(&format!("{}/token", of_key.0), &json!({})).await);
    ok(&view(&there.with_key(secret(&issued, "token")), &of_key.0).await);
}

async fn access_changed_here_is_changed_there(here: &Client, there: &Client, tenant: &Tenant) {
    let (path, holder) = session_used_there(here, there, tenant).await;
    let calls = format!("{path}/tool_calls");
    let write = json!({"command": "create", "path": "/memories/notes/by-session", "file_text": "x"});
    assert_eq!(ok(&holder.post(&calls, &write).await)["is_error"], false);
    let resource = format!("{path}/resources/{}", tenant.store_id);
    ok(&here.post(&resource, &json!({"access": "read_only"})).await);
    let becomes = async |word: &str| {
        let is_said = async || holder.post(&calls, &write).await.text.contains(word);
        eventually(word, Duration::from_secs(5), is_said).await;
    };
    becomes("read-only").await;
    ok(&delete(here, &resource).await);
    becomes("None is attached").await;
    not_found(&holder.get(&format!("{STORES}/{}/memories", tenant.store_id)).await);
}
