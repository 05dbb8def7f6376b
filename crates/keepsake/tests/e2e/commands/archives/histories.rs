//! Imports of archives and of other stores with their history.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{COPY, counts, files, lines};
use crate::commands::{Person, words};
use crate::support::holding_proxy::HoldingProxy;
use crate::support::{Pair, eventually};

/// The lines of a file but for ids, which are new in each store, and marks of imported authors.
fn without_ids(file: &Path) -> Vec<Value> {
    let mut lines = lines(file);
    let mut memories = Vec::new();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        for field in ["id", "version_id", "memory_store_id"] {
            line.remove(field);
        }
        for field in ["created_by", "redacted_by"] {
            if let Some(author) = line.get_mut(field).and_then(Value::as_object_mut) {
                author.remove("imported");
            }
        }
        if let Some(memory) = line.remove("memory_id") {
            let known = memories.iter().position(|other| *other == memory);
            let number = known.unwrap_or(memories.len());
            if known.is_none() {
                memories.push(memory);
            }
            line.insert("memory".to_owned(), number.into());
        }
    }
    lines
}

/// A store with every kind of version.
async fn person_with_history(pair: Pair) -> Person {
    let person = Person::on(pair).await;
    person.create("/plan.md", "one\n").await;
    person.put("plan.md", "two\n").await;
    person.put("plan.md", "one\n").await;
    person.create("/dir/a.md", "a\n").await;
    person.create("/dir/b.md", "b\n").await;
    person.ok("memory mv dir/a.md dir/c.md").await;
    person.ok("memory rm plan.md -y").await;
    person.create("/plan.md", "another\n").await;
    let secret = person.create("/secret.md", "secret\n").await;
    person.put("secret.md", "public\n").await;
    let log = format!("memory log --memory {secret} -o json");
    let log = person.json(&log).await;
    let version = log["data"][1]["id"].as_str().unwrap();
    person.ok(&format!("memory redact {version} -y")).await;
    person.ok("memory pin dir/b.md").await;
    person
}

#[track_caller]
fn assert_equal_histories(one: &str, two: &str) {
    let [one, two] = [one, two].map(|archive| without_ids(&Path::new(archive).join("versions.jsonl")));
    assert_eq!(one, two);
}

async fn history_is_equal_after_a_round_trip(pair: Pair) {
    let person = person_with_history(pair).await;
    let first = person.path("first");
    person.ok(&format!("export {first} --versions")).await;
    person.copy().await;
    let import = format!("import {first} --versions {COPY}");
    let dry = person.line(&format!("{import} --dry-run")).await;
    dry.ends(0, "10 of 10 versions would be imported");
    assert!(person.contents(COPY).await.is_empty());
    let imported = person.line(&import).await;
    imported.ends(0, "10 of 10 versions imported");
    assert_eq!(imported.stdout, counts([4, 0, 0, 0, 0]));
    let second = person.path("second");
    person.ok(&format!("export {second} --versions {COPY}")).await;
    assert_equal_histories(&first, &second);
    let [first, second] = [&first, &second].map(Path::new);
    let [one, two] = [first, second].map(|archive| without_ids(&archive.join("index.jsonl")));
    assert_eq!(one, two);
    for name in ["memories", "blobs"] {
        assert_eq!(files(&first.join(name)), files(&second.join(name)), "{name}");
    }
    let audit = person.json("audit -o json").await;
    let entries = audit["data"].as_array().unwrap().iter();
    let imports = entries.filter(|entry| entry["action"] == "memory_store.import");
    assert_eq!(imports.count(), 1);
    // The imported memories are searched and changed like others.
    let found = person.ok(&format!("memory search another {COPY}")).await;
    assert!(found.contains("plan.md"), "{found}");
    person.ok(&format!("memory mv plan.md new.md {COPY}")).await;
    person.ends(&import, 4, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_equal_after_a_round_trip_on_sqlite() {
    history_is_equal_after_a_round_trip(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_equal_after_a_round_trip_on_postgres_and_s3() {
    history_is_equal_after_a_round_trip(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_import_of_a_history_is_continued() {
    let person = Person::new().await;
    person.create_many(600).await;
    let archive = person.path("archive");
    person.ok(&format!("export {archive} --versions")).await;
    person.copy().await;
    let import = format!("import {archive} --versions {COPY}");
    let proxy = HoldingProxy::start(&person.server.url(), "/import", 2).await;
    let mut killed = person.run_until_held(&import, &[], &proxy).await;
    let is_partly_done = async || person.contents(COPY).await.len() >= 250;
    eventually("a part is written", Duration::from_mins(1), is_partly_done).await;
    killed.kill().await.unwrap();
    person.ok(&import).await;
    let second = person.path("second");
    person.ok(&format!("export {second} --versions {COPY}")).await;
    assert_equal_histories(&archive, &second);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_server_is_imported_with_its_history() {
    let (person, other) = (Person::new().await, person_with_history(Pair::PostgresS3).await);
    let theirs = other.path("theirs");
    other.ok(&format!("export {theirs} --versions")).await;
    let url = other.server.url();
    let import = format!("import --from-url {url} --from-store notes --versions");
    let key = [("KEEPSAKE_FROM_API_KEY", other.reader.as_str())];
    let imported = person.run_with(&words(&import), &key, "").await.ok();
    assert_eq!(imported, counts([4, 0, 0, 0, 0]));
    let ours = person.path("ours");
    person.ok(&format!("export {ours} --versions")).await;
    assert_equal_histories(&theirs, &ours);
}

#[tokio::test(flavor = "multi_thread")]
async fn history_needs_versions_and_an_empty_store() {
    let person = Person::new().await;
    person.create("/a.md", "one\n").await;
    let (plain, past) = (person.path("plain"), person.path("past"));
    person.ok(&format!("export {plain}")).await;
    person.ok(&format!("export {past} --versions")).await;
    person.copy().await;
    let import = |archive: &str| format!("import {archive} --versions {COPY}");
    person.ends(&import(&plain), 2, "has no versions").await;
    let put = format!("memory put other.md {COPY}");
    person.run_with(&words(&put), &[], "other\n").await.ok();
    person.ends(&import(&past), 4, "empty memory store").await;

    let file = Path::new(&past).join("versions.jsonl");
    let text = fs::read_to_string(&file).unwrap().replace("created", "modified");
    fs::write(&file, text).unwrap();
    person.ends(&import(&past), 1, "versions.jsonl").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_history_are_written_once_or_not_at_all() {
    let person = Person::new().await;
    let client = person.server.client(&person.tenant);
    let made = client.post("/v1/memory_stores", &json!({"name": "past"})).await;
    let store = format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap());
    let route = format!("{store}/import");
    let version = |memory: &str, path: &str| {
        json!({
            "memory_id": memory, "operation": "created", "path": path, "content": "x\n",
            "created_at": "2025-01-02T03:04:05Z",
            "created_by": {"type": "api_actor", "api_key_id": "apikey_of_another_server"},
        })
    };
    let deletion =
        json!({"memory_id": "unknown", "operation": "deleted", "created_at": "2025-01-02T03:04:06Z"});
    let mut future = version("mem_2", "/b.md");
    future["created_at"] = "2999-01-01T00:00:00Z".into();
    let first = version("mem_1", "/a.md");
    for (part, operation, reason) in [
        (json!([first, deletion]), 1, "operation"),
        (json!([first, version("mem_2", "/a.md")]), 1, "path"),
        (json!([first, version("mem_2", "/a.md/b")]), 1, "path"),
        (json!([first, future]), 1, "created_at"),
        (json!([version("", "/a.md")]), 0, "memory_id"),
    ] {
        let body = json!({"position": 0, "versions": part});
        let refused = client.post(&route, &body).await;
        assert!((400..=409).contains(&refused.status), "{part}: {}", refused.text);
        let error = &refused.json()["error"];
        assert_eq!(error["operation"], operation, "{part}: {}", refused.text);
        assert!(refused.text.contains(reason), "{part}: {}", refused.text);
        let listed = client.get(&format!("{store}/memory_versions")).await;
        assert_eq!(listed.json()["data"], json!([]), "{part}");
    }
    let part = json!({"position": 0, "versions": [version("mem_1", "/a.md"), version("mem_2", "/b.md")]});
    for _ in 0..2 {
        let imported = client.post(&route, &part).await;
        assert_eq!(imported.status, 200, "{}", imported.text);
        assert_eq!(imported.json()["position"], 2);
    }
    let other = json!({"position": 0, "versions": [version("mem_3", "/c.md")]});
    assert_eq!(client.post(&route, &other).await.status, 409);
    let next = json!({"position": 2, "versions": [version("mem_3", "/c.md")]});
    assert_eq!(client.post(&route, &next).await.status, 200);
    let versions = client.get(&format!("{store}/memory_versions")).await.json();
    for version in versions["data"].as_array().unwrap() {
        assert_eq!(version["created_at"], "2025-01-02T03:04:05.000000Z");
        assert_eq!(version["created_by"]["api_key_id"], "apikey_of_another_server");
    }
    // Whoever imports a history may claim any author.
    let own = format!("/v1/memory_stores/{}/memory_versions", person.tenant.store_id);
    person.create("/own.md", "mine").await;
    let victim = client.get(&own).await.json()["data"][0]["created_by"].clone();
    let mut claimed = version("mem_4", "/d.md");
    claimed["created_by"] = victim.clone();
    let part = json!({"position": 3, "versions": [claimed]});
    assert_eq!(client.post(&route, &part).await.status, 200);
    let author = victim["api_key_id"].as_str().unwrap();
    let by_key = format!("{store}/memory_versions?api_key_id={author}");
    assert_eq!(client.get(&by_key).await.json()["data"], json!([]));
    let with_imported = format!("{by_key}&include_imported=true");
    let all = client.get(&with_imported).await.json();
    let mut marked = victim;
    marked["imported"] = true.into();
    assert_eq!(all["data"][0]["created_by"], marked);
    assert_eq!(all["data"].as_array().unwrap().len(), 1);
    let live = json!({"position": 4, "redactions": [{"version": 3, "redacted_at": "2025-01-03T00:00:00Z"}]});
    let refused = client.post(&route, &live).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let new = json!({"path": "/own.md", "content": "y"});
    let made = client.post(&format!("{store}/memories"), &new).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let later = json!({"position": 4, "versions": [version("mem_4", "/d.md")]});
    let refused = client.post(&route, &later).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains("not imported"), "{}", refused.text);
}
