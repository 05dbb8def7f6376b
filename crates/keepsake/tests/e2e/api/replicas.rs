//! Two servers on the same stores: what one did the other one knows at once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::{
    STORES, Store, delete, invalid, not_found, ok, page_of, post_with, refused, strings, text,
};
use crate::support::{Client, Deployment, Pair, Tenant, eventually, secrets};

#[tokio::test(flavor = "multi_thread")]
async fn replicas_answer_as_one() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let servers = [deployment.start().await, deployment.start().await];
    let [here, there] = servers.each_ref().map(|server| server.client(&tenant));
    let store = |client: &Client| Store::new(client, &tenant.store_id.to_string());
    let stores = [store(&here), store(&there)];
    cursor_leads_on_elsewhere(&stores).await;
    duplicates_are_made_once(&here, &there).await;
    what_is_removed_is_served_nowhere(&here, &there).await;
    session_that_ends_here_ends_there(&here, &there, &tenant).await;
}

async fn cursor_leads_on_elsewhere(stores: &[Store; 2]) {
    for n in 0..7 {
        stores[n % 2].create(&format!("/{n}"), "x").await;
    }
    for list in [stores[0].memories(), stores[0].versions()] {
        let (mut listed, mut page) = (Vec::new(), String::new());
        for turn in 0.. {
            let client = &stores[turn % 2].client;
            let (items, next) = page_of(&client.get(&format!("{list}?limit=2{page}")).await);
            listed.extend(strings(&items, "id"));
            match next {
                Some(next) => page = format!("&page={next}"),
                None => break,
            }
        }
        assert_eq!(listed.len(), 7, "{listed:?}");
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), 7, "{listed:?}");
    }
}

async fn duplicates_are_made_once(here: &Client, there: &Client) {
    let post = async |client: &Client, path: &str, body: &Value| {
        post_with(client, path, body, ("idempotency-key", "same")).await
    };
    let new = json!({"name": "once"});
    let clients = (0..8).map(|n| if n % 2 == 0 { here } else { there });
    let made = futures::future::join_all(clients.clone().map(|client| post(client, STORES, &new))).await;
    let ids: BTreeSet<_> = strings(&made.iter().map(ok).collect::<Vec<_>>(), "id")
        .into_iter()
        .collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    invalid(
        &post(there, STORES, &json!({"name": "other"})).await,
        "Idempotency-Key",
    );

    let store = Store::new(here, ids.first().unwrap());
    let new = json!({"path": "/a", "content": "one"});
    let path = store.memories();
    let made = futures::future::join_all(clients.map(|client| post(client, &path, &new))).await;
    let versions: BTreeSet<_> = strings(&made.iter().map(ok).collect::<Vec<_>>(), "memory_version_id")
        .into_iter()
        .collect();
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert_eq!(store.version_count().await, 1);
}

async fn what_is_removed_is_served_nowhere(here: &Client, there: &Client) {
    let made = ok(&here.post(STORES, &json!({"name": "shared"})).await);
    let [ours, theirs] = [here, there].map(|client| Store::new(client, text(&made["id"])));
    let memory = ours.create("/a", "secret").await;
    let version = ours.version(&memory["memory_version_id"]);
    // Both have it in their caches.
    for store in [&ours, &theirs] {
        assert_eq!(store.read(&memory).await["content"], "secret");
        assert_eq!(ok(&store.client.get(&version).await)["content"], "secret");
    }
    ours.update(&memory, &json!({"content": "harmless"})).await;
    assert_eq!(theirs.read(&memory).await["content"], "harmless");
    ours.redact(&memory["memory_version_id"]).await;
    for shown in [
        there.get(&version).await,
        there.get(&format!("{}?view=full", theirs.versions())).await,
    ] {
        ok(&shown);
        assert!(!shown.text.contains("secret"), "{}", shown.text);
    }
    ours.delete(&memory).await;
    not_found(&there.get(&theirs.memory(&memory)).await);
    ok(&here.post(&format!("{}/archive", ours.path), &json!({})).await);
    invalid(&theirs.try_create("/b", "x").await, "archived");
    ok(&delete(here, &ours.path).await);
    not_found(&there.get(&theirs.path).await);
    not_found(&there.get(&version).await);
}

async fn session_that_ends_here_ends_there(here: &Client, there: &Client, tenant: &Tenant) {
    let store = json!({"type": "memory_store", "memory_store_id": tenant.store_id.to_string()});
    let new = json!({"agent": "a", "environment_id": "e", "resources": [store]});
    let session = ok(&here.post("/v1/sessions", &new).await);
    secrets::remember(text(&session["token"]), "a session's token");
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    let holder = there.with_key(text(&session["token"]));
    let calls = format!("{path}/tool_calls");
    let view = json!({"command": "view", "path": "/memories"});
    ok(&holder.post(&calls, &view).await);
    ok(&here.post(&format!("{path}/archive"), &json!({})).await);
    let is_refused = async || holder.post(&calls, &view).await.status != 200;
    eventually(
        "a token ends with its session",
        Duration::from_secs(5),
        is_refused,
    )
    .await;
    refused(&holder.post(&calls, &view).await, 401, "authentication_error");
}
