use super::*;

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
            let number = memories.iter().position(|other| *other == memory).unwrap_or(memories.len());
            memories.push(memory);
            line.insert("memory".to_owned(), number.into());
        }
    }
    lines
}

/// A store with every kind of version, and with paths and contents that are hard to keep.
async fn person_with_history(pair: Pair) -> Person {
    let person = Person::with(pair, &ServerConfig::default()).await;
    let long_name = format!("{}.md", "n".repeat(300));
    for (path, content) in [
        ("dir/a.md", "one\r\ntwo"),
        ("dir/b.md", "one\r\ntwo"),
        ("dir/B.md", "another case\n"),
        ("Grüße/日本.md", "🎉\n"),
        ("empty", ""),
        (&long_name, "long name\n"),
        ("plan.md", "one\n"),
        ("plan.md", "two\n"),
        ("plan.md", "one\n"),
        ("secret.md", "secret\n"),
        ("secret.md", ""),
    ] {
        person.put(path, content).await;
    }
    person.ok("memory mv dir/a.md dir/c.md").await;
    person.ok("memory rm plan.md -y").await;
    person.put("plan.md", "another\n").await;
    let log = person.json("memory log secret.md -o json").await;
    let version = log["data"][1]["id"].as_str().unwrap();
    person.ok(&format!("memory redact {version} -y")).await;
    // Another memory takes the path that a redacted version left.
    person.put("moved.md", "first\n").await;
    person.ok("memory mv moved.md kept.md").await;
    person.put("moved.md", "another\n").await;
    person.put("kept.md", "second\n").await;
    let log = person.json("memory log kept.md -o json").await;
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

on_pairs! { history_is_equal_after_a_round_trip }

async fn history_is_equal_after_a_round_trip(pair: Pair) {
    let person = person_with_history(pair).await;
    let [first, packed, second] = ["first", "packed.tar.zst", "second"].map(|name| person.path(name));
    person.ok(&format!("export {first} --versions")).await;
    let manifest = person.json(&format!("export {packed} --versions -o json")).await;
    let counted = &manifest["counts"];
    assert_eq!(json!([counted["memories"], counted["versions"]]), json!([10, 18]));
    // From one server to another.
    let (other, third) = (Person::new().await, person.path("third"));
    let import = format!("import --from-url {} --from-store notes --versions", person.server.url());
    let key = [("KEEPSAKE_FROM_API_KEY", person.reader.as_str())];
    assert_eq!(other.line_with(&import, &key, "").await.ok(), counts([10, 0, 0, 0, 0]));
    other.ok(&format!("export {third} --versions")).await;
    assert_equal_histories(&first, &third);
    person.ok("store create copy").await;
    let import = format!("import {packed} --versions {COPY}");
    person.line(&format!("{import} --dry-run")).await.ends(0, "18 of 18 versions would be imported");
    assert!(person.contents(COPY).await.is_empty());
    assert_eq!(person.ok(&import).await, counts([10, 0, 0, 0, 0]));
    assert_eq!(person.ok(&import).await, counts([0, 0, 10, 0, 0]));
    person.ok(&format!("export {second} --versions {COPY}")).await;
    assert_equal_histories(&first, &second);
    let [first, second] = [&first, &second].map(Path::new);
    let [one, two] = [first, second].map(|archive| without_ids(&archive.join("index.jsonl")));
    assert_eq!(one, two);
    let elsewhere = one.iter().filter(|entry| entry["file"].is_string());
    assert_eq!(elsewhere.count(), 2, "the long name and the other case");
    for name in ["memories", "blobs"] {
        let found = files(first.join(name));
        assert_eq!(found, files(second.join(name)), "{name}");
        assert!(!found.values().any(|content| content == b"secret\n"), "a redacted content");
    }
    assert_eq!(person.client().all("/v1/audit?action=memory_store.import").await.len(), 1);
    // The imported memories are searched and changed like others.
    let found = person.ok(&format!("memory search another {COPY}")).await;
    assert!(found.contains("plan.md"), "{found}");
    person.ok(&format!("memory mv plan.md new.md {COPY}")).await;
    person.ends(&import, 4, "").await;
    let plain = person.path("plain");
    person.ok(&format!("export {plain}")).await;
    person.ends(&format!("import {plain} --versions {COPY}"), 2, "the source has no versions").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_imports_of_files_and_of_a_history_are_continued() {
    let person = Person::new().await;
    let import = format!("import {}", person.many(1_100));
    let proxy = HoldingProxy::start(&person.server.url(), "/memories/batch", 2).await;
    person.kill_when_partly_done(&import, &proxy, "").await;
    let before = person.contents("").await.len();
    assert!((200..1_100).contains(&before), "{before}");
    let result = person.json(&format!("{import} -o json")).await;
    let results = result["data"].as_array().unwrap();
    let count = |of: &str| results.iter().filter(|file| file["result"] == of).count();
    assert_eq!(count("created") + count("unchanged"), 1_100);
    assert!(count("unchanged") >= before, "{before}");
    assert_eq!(person.contents("").await.len(), 1_100);
    let log = person.ok("memory log -n 2000 -o jsonl").await;
    assert_eq!(log.lines().count(), 1_100, "nothing was written twice");
    let [archive, second] = ["archive", "second"].map(|name| person.path(name));
    person.ok(&format!("export {archive} --versions")).await;
    person.ok("store create copy").await;
    let import = format!("import {archive} --versions {COPY}");
    let proxy = HoldingProxy::start(&person.server.url(), "/import", 2).await;
    person.kill_when_partly_done(&import, &proxy, COPY).await;
    person.ok(&import).await;
    person.ok(&format!("export {second} --versions {COPY}")).await;
    assert_equal_histories(&archive, &second);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_history_are_written_once_or_not_at_all() {
    let person = Person::new().await;
    let client = person.client();
    let store = Store::make(&client, "past").await;
    let route = format!("{}/import", store.path);
    let import = async |position: u32, versions: Value| {
        let part = json!({"position": position, "versions": versions});
        client.post(&route, &part).await
    };
    let versions = async |query: &str| client.all(&format!("{}?{query}", store.versions())).await;
    let (time, key) = ("2025-01-02T03:04:05Z", "apikey_of_another_server");
    let version = |memory: &str, path: &str| {
        let mut it = json!({"memory_id": memory, "operation": "created", "path": path, "content": "x\n"});
        it["created_at"] = time.into();
        it["created_by"] = json!({"type": "api_actor", "api_key_id": key});
        it
    };
    let deletion = json!({"memory_id": "unknown", "operation": "deleted", "created_at": time});
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
        let refused = import(0, part).await;
        assert!((400..=409).contains(&refused.status) && refused.text.contains(reason), "{}", refused.text);
        assert_eq!(refused.json()["error"]["operation"], operation, "{reason}: {}", refused.text);
        assert!(versions("").await.is_empty(), "{reason}");
    }
    for _ in 0..2 {
        let imported = import(0, json!([first, version("mem_2", "/b.md")])).await;
        assert_eq!((imported.status, &imported.json()["position"]), (200, &json!(2)), "{}", imported.text);
    }
    let third = json!([version("mem_3", "/c.md")]);
    assert_eq!(import(0, third.clone()).await.status, 409);
    assert_eq!(import(2, third).await.status, 200);
    for version in versions("").await {
        assert_eq!(version["created_at"], "2025-01-02T03:04:05.000000Z");
        assert_eq!(version["created_by"]["api_key_id"], key);
    }
    // Whoever imports a history may claim any author.
    person.put("own.md", "mine").await;
    let mut victim = person.store().history().await[0]["created_by"].clone();
    let mut claimed = version("mem_4", "/d.md");
    claimed["created_by"] = victim.clone();
    assert_eq!(import(3, json!([claimed])).await.status, 200);
    let by_key = format!("api_key_id={}", victim["api_key_id"].as_str().unwrap());
    assert!(versions(&by_key).await.is_empty());
    let all = versions(&format!("{by_key}&include_imported=true")).await;
    victim["imported"] = true.into();
    assert_eq!((all.len(), &all[0]["created_by"]), (1, &victim));
    let live = json!({"position": 4, "redactions": [{"version": 3, "redacted_at": "2025-01-03T00:00:00Z"}]});
    assert_eq!(client.post(&route, &live).await.status, 400);
    store.create("/own.md", "y").await;
    let refused = import(4, json!([version("mem_4", "/d.md")])).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains("not imported"), "{}", refused.text);
}
