use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::Person;
use crate::support::command::{borrowed, start_keepsake};
use crate::support::eventually;

/// The time within which an event is shown.
const WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn store_is_created_changed_archived_and_deleted() {
    let person = Person::new().await;
    let create = "store create projects --description Plans --metadata team=a --metadata kind=b \
                  --expires-unused-after 90d --sensitive-data redact -o json";
    let made = person.json(create).await;
    assert_eq!(made["expires_unused_after"], 7_776_000);
    assert_eq!(made["metadata"], json!({"team": "a", "kind": "b"}));
    let update =
        "store update projects --name plans --remove-metadata kind --expires-unused-after never -o json";
    let changed = person.json(update).await;
    assert_eq!(changed["name"], "plans");
    assert_eq!(changed["metadata"], json!({"team": "a"}));
    assert_eq!(changed["expires_unused_after"], json!(null));

    let shown = person.ok("store get plans").await;
    for line in ["name                  plans", "description           Plans", "metadata              team=a"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    person.ends("store archive plans", 2, "").await;
    person.ok("store archive plans --yes").await;
    assert_eq!(person.ok("store ls").await.lines().count(), 2);
    assert_eq!(person.ok("store ls --all").await.lines().count(), 3);
    let deleted = person.ok("store delete plans --yes").await;
    let told = "deleted the memory store plans (memstore_";
    assert!(deleted.starts_with(told), "{deleted}");
    person.ends("store get plans", 3, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_several_stores_is_refused() {
    let person = Person::new().await;
    person.ok("store create twin").await;
    person.ok("store create twin").await;
    let told = "2 memory stores have the name `twin`; give an id: memstore_";
    person.ends("store get twin", 2, told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_audit_and_sessions_are_shown() {
    let person = Person::new().await;
    person.put("a.md", "12345").await;
    person.ok("store update notes --expires-unused-after 90d").await;
    let usage = person.ok("store usage").await;
    for shown in ["memories              1", "/a.md"] {
        assert!(usage.contains(shown), "{usage}");
    }
    let total = person.ok("usage").await;
    assert!(total.lines().last().unwrap().starts_with("total"), "{total}");

    person.ok("store create audited").await;
    let audit = person.json("audit --action memory_store.create -o json").await;
    assert_eq!(audit["data"][0]["action"], "memory_store.create");

    let client = person.server.client(&person.tenant);
    let resource = json!({"type": "memory_store", "memory_store_id": person.tenant.store_id});
    let body =
        json!({"agent": "agent_1", "environment_id": "env_1", "title": "Plan", "resources": [resource]});
    let session = client.post("/v1/sessions", &body).await.json();
    let id = session["id"].as_str().unwrap();
    let listed = person.ok("session list").await;
    assert!(listed.contains(id) && listed.contains("Plan"), "{listed}");
    let shown = person.ok(&format!("session show {id}")).await;
    assert!(shown.contains("/mnt/memory/notes"), "{shown}");

    let agent = client.with_key(session["token"].as_str().unwrap());
    let call = async |path: &str| {
        let input = json!({"command": "view", "path": path});
        let called = agent.post(&format!("/v1/sessions/{id}/tool_calls"), &input).await;
        assert_eq!(called.status, 200, "{}", called.text);
    };
    call("/memories").await;
    let events = async || {
        let events = person.json(&format!("session events {id} -o json")).await;
        events["data"].as_array().is_some_and(|events| events.len() == 1)
    };
    eventually("the event is listed", WITHIN, events).await;

    // Following shows the first call, and then each as it happens.
    let variables = person.variables();
    let follow = ["session", "events", id, "--follow"];
    let mut follower = start_keepsake(&follow, &borrowed(&variables));
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for path in ["/memories", "/memories/notes"] {
        let line = tokio::time::timeout(WITHIN, lines.next_line()).await;
        let line = line.unwrap().unwrap().unwrap();
        assert!(line.contains(&format!("\"path\":\"{path}\"")), "{line}");
        call("/memories/notes").await;
    }
}
