use serde_json::json;

use super::Person;
use crate::support::client::send;
use crate::support::command::start_keepsake;
use reqwest::Method;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test(flavor = "multi_thread")]
async fn store_is_created_changed_archived_and_deleted() {
    let person = Person::new().await;
    let made = person
        .run(&[
            "store",
            "create",
            "projects",
            "--description",
            "Plans",
            "--metadata",
            "team=a",
            "--metadata",
            "kind=b",
            "--expires-unused-after",
            "90d",
            "--sensitive-data",
            "redact",
            "-o",
            "json",
        ])
        .await
        .json();
    assert_eq!(made["expires_unused_after"], 7_776_000);
    assert_eq!(made["metadata"], json!({"team": "a", "kind": "b"}));
    let changed = person
        .run(&[
            "store",
            "update",
            "projects",
            "--name",
            "plans",
            "--remove-metadata",
            "kind",
            "--expires-unused-after",
            "never",
            "-o",
            "json",
        ])
        .await
        .json();
    assert_eq!(
        (&changed["name"], &changed["metadata"]),
        (&json!("plans"), &json!({"team": "a"}))
    );
    assert_eq!(changed["expires_unused_after"], json!(null));

    let shown = person.run(&["store", "get", "plans"]).await.ok();
    for line in [
        "name                  plans",
        "description           Plans",
        "metadata              team=a",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(person.run(&["store", "archive", "plans"]).await.code, Some(2));
    person.run(&["store", "archive", "plans", "--yes"]).await.ok();
    assert_eq!(person.run(&["store", "ls"]).await.ok().lines().count(), 2);
    assert_eq!(
        person.run(&["store", "ls", "--all"]).await.ok().lines().count(),
        3
    );
    let deleted = person.run(&["store", "delete", "plans", "--yes"]).await.ok();
    assert!(
        deleted.starts_with("deleted the memory store plans (memstore_"),
        "{deleted}"
    );
    assert_eq!(person.run(&["store", "get", "plans"]).await.code, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_several_stores_is_refused() {
    let person = Person::new().await;
    person.run(&["store", "create", "twin"]).await.ok();
    person.run(&["store", "create", "twin"]).await.ok();
    let refused = person.run(&["store", "get", "twin"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .stderr
            .contains("2 memory stores have the name `twin`; give an id: memstore_"),
        "{}",
        refused.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_audit_and_sessions_are_shown() {
    let person = Person::new().await;
    person.put("a.md", "12345").await;
    person
        .run(&["store", "update", "notes", "--expires-unused-after", "90d"])
        .await
        .ok();
    let usage = person.run(&["store", "usage"]).await.ok();
    assert!(
        usage.contains("memories              1") && usage.contains("/a.md"),
        "{usage}"
    );
    let total = person.run(&["usage"]).await.ok();
    assert!(total.lines().last().unwrap().starts_with("total"), "{total}");

    person.run(&["store", "create", "audited"]).await.ok();
    let audit = person
        .run(&["audit", "--action", "memory_store.create", "-o", "json"])
        .await
        .json();
    assert_eq!(audit["data"][0]["action"], "memory_store.create");

    let client = person.server.client(&person.tenant);
    let resource =
        json!({"type": "memory_store", "memory_store_id": person.tenant.store_id, "access": "read_write"});
    let body =
        json!({"agent": "agent_1", "environment_id": "env_1", "title": "Plan", "resources": [resource]});
    let session = client.post("/v1/sessions", &body).await.json();
    let id = session["id"].as_str().unwrap();
    let listed = person.run(&["session", "list"]).await.ok();
    assert!(listed.contains(id) && listed.contains("Plan"), "{listed}");
    let shown = person.run(&["session", "show", id]).await.ok();
    assert!(shown.contains("/mnt/memory/notes"), "{shown}");

    let token = session["token"].as_str().unwrap();
    let call = json!({"command": "view", "path": "/memories"});
    let called = crate::support::Client::new(&person.server.url(), token)
        .request(Method::POST, &format!("/v1/sessions/{id}/tool_calls"))
        .json(&call);
    assert_eq!(send(called).await.status, 200);
    let events = async || {
        let events = person.run(&["session", "events", id, "-o", "json"]).await.json();
        events["data"].as_array().is_some_and(|events| events.len() == 1)
    };
    crate::support::eventually("the event is listed", std::time::Duration::from_secs(30), events).await;

    // Following shows the first call, and then each as it happens.
    let variables = person.variables();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let mut follower = start_keepsake(&["session", "events", id, "--follow"], &variables);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for path in ["/memories", "/memories/notes"] {
        let line = tokio::time::timeout(std::time::Duration::from_secs(30), lines.next_line()).await;
        let line = line.unwrap().unwrap().unwrap();
        assert!(line.contains(&format!("\"path\":\"{path}\"")), "{line}");
        let call = json!({"command": "view", "path": "/memories/notes"});
        let called = crate::support::Client::new(&person.server.url(), token)
            .request(Method::POST, &format!("/v1/sessions/{id}/tool_calls"))
            .json(&call);
        assert_eq!(send(called).await.status, 200);
    }
}
