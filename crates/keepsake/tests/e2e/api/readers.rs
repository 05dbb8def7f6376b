use crate::prelude::*;

impl Store {
    async fn readers(&self, query: &str) -> Vec<Value> {
        self.client.all(&format!("{}/readers?{query}", self.path)).await
    }
}

fn places(readers: &[Value]) -> Vec<(&str, u64)> {
    let mut places: Vec<_> =
        readers.iter().map(|reader| (text(&reader["surface"]), reader["count"].as_u64().unwrap())).collect();
    places.sort_unstable();
    places
}

pub(super) async fn readers_are_listed_by_version_session_and_surface(place: Place) {
    let (client, store) = (&place.client, place.new_store("read").await);
    let memory = store.create("/a", "one").await;
    let first = &memory["memory_version_id"];
    let (session, mounts) = open_session(client, &[&store.id]).await;
    let session_id = session.rsplit('/').next().unwrap();
    // Without content, nothing is shown.
    store.basic(&memory).await;
    ok(&client.get(&store.memories()).await);
    view_in(client, &session, "/memories").await;
    assert_eq!(store.readers("").await, [] as [Value; 0]);

    for read in [
        store.memory(&memory),
        format!("{}?at_seq=1", store.memory(&memory)),
        format!("{}?view=full", store.memories()),
        format!("{}?view=full&at_seq=1", store.memories()),
        store.version(first),
        format!("{}/search?query=one", store.path),
    ] {
        ok(&client.get(&read).await);
    }
    // A pin makes no version.
    ok(&client.post(&format!("{}?view=full", store.memory(&memory)), &json!({"pinned": true})).await);
    for path in ["/memories/a", "/memories/none"] {
        ok(&client.call(&store.id, &json!({"command": "view", "path": path})).await);
    }
    view_in(client, &session, &format!("{}/a", mounts[0])).await;
    let found = block("memory_search", &json!({"query": "one"}));
    ok(&client.post(&format!("{session}/tool_calls"), &found).await);
    let params = json!({"name": "memory_read", "arguments": {"path": "/memories/a"}});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    ok(&client.post(&format!("/mcp/{}", store.id), &message).await);
    for purpose in ["backup", "person"] {
        for request in [store.memory(&memory), format!("{}/search?query=one", store.path)] {
            ok(&send(client.request(Method::GET, &request).header("keepsake-purpose", purpose)).await);
        }
    }
    assert_eq!(client.get(&format!("{}/export?versions=true", store.path)).await.status, 200);

    let of_first = store.readers(&format!("memory_version_id={}", text(first))).await;
    let of_agents = [("search", 1), ("search", 1), ("tool", 1), ("tool", 1)];
    let of_others = [("api", 6), ("backup", 3), ("mcp", 1), ("person", 2)];
    assert_eq!(places(&of_first), [of_others, of_agents].concat());
    let in_session = |reader: &&Value| reader["session_id"] == session_id;
    let of_session: Vec<_> = of_first.iter().filter(in_session).cloned().collect();
    assert_eq!(places(&of_session), [("search", 1), ("tool", 1)]);
    assert_eq!(of_session, of_first[..2], "readers in a session come first");
    let key = ok(&client.get(&store.version(first)).await)["created_by"].clone();
    for reader in &of_first {
        let expected = json!({
            "type": "memory_reader", "memory_store_id": store.id, "memory_id": memory["id"],
            "memory_version_id": first, "path": "/a", "actor": key,
        });
        shows(reader, &expected);
        assert!(text(&reader["first_read_at"]) <= text(&reader["last_read_at"]), "{reader}");
    }
    assert_eq!(strings(&of_session, "session_id"), [session_id; 2]);
    // A rename makes a version, which a search shows, too. Readers of the newest version come first.
    let moved = store.update(&memory, &json!({"path": "/b"})).await;
    ok(&client.get(&format!("{}/search?query=one", store.path)).await);
    let of_memory = store.readers(&format!("memory_id={}&limit=1", text(&memory["id"]))).await;
    assert_eq!((of_memory.len(), &of_memory[0]["memory_version_id"]), (9, &moved["memory_version_id"]));
    shows(&of_memory[0], &json!({"path": "/b", "surface": "search", "count": 1}));
    for query in ["path=/b", "", "limit=3", &format!("path=/b&memory_id={}", text(&memory["id"]))] {
        let found = strings(&store.readers(query).await, "first_read_at");
        assert_eq!(found, strings(&of_memory, "first_read_at"));
    }
    let reads = client.all(&format!("{session}/reads?limit=1")).await;
    assert_eq!(strings(&reads, "surface"), ["search", "tool"], "the last one first");
    assert!(reads.iter().all(|read| in_session(&read)), "{reads:?}");
    let other = store.create("/other", "x").await;
    let of_other = format!("memory_version_id={}&path=/b", text(&other["memory_version_id"]));
    for query in ["path=/a", "memory_id=mem_00000000000000000000000001", &of_other] {
        not_found(&client.get(&format!("{}/readers?{query}", store.path)).await);
    }
    invalid(&client.get(&format!("{}/readers?path=a", store.path)).await, "`path`");
}

pub(super) async fn readers_are_recorded_where_the_store_says_so_and_go_with_their_version(place: Place) {
    let new = json!({"name": "quiet", "records_reads": false});
    let store = Store::make_with(&place.client, &new).await;
    let made = store.object().await;
    assert_eq!(made["records_reads"], false);
    let memory = store.create("/p/a", "one").await;
    let list = async || ok(&place.client.get(&format!("{}/readers", store.path)).await);
    store.read(&memory).await;
    let quiet = list().await;
    assert_eq!((&quiet["data"], &quiet["complete_from"]), (&json!([]), &Value::Null));

    let records = async |on: bool| ok(&place.client.post(&store.path, &json!({"records_reads": on})).await);
    assert_eq!(records(true).await["records_reads"], true);
    store.read(&memory).await;
    let recorded = list().await;
    let since = text(&recorded["complete_from"]);
    assert!(since > text(&made["created_at"]) && since < text(&recorded["complete_through"]), "{recorded}");
    assert_eq!(places(recorded["data"].as_array().unwrap()), [("api", 1)]);
    records(true).await;
    assert_eq!(list().await["complete_from"], since, "it was on");
    records(false).await;
    store.read(&memory).await;
    assert_eq!(list().await["data"], recorded["data"]);
    records(true).await;
    store.update(&memory, &json!({"content": "two"})).await;
    store.read(&memory).await;
    assert_eq!(list().await["data"].as_array().unwrap().len(), 2);
    store.redact(&memory["memory_version_id"]).await;
    let left = list().await;
    assert_eq!(left["data"].as_array().unwrap().len(), 1);
    assert_ne!(left["data"][0]["memory_version_id"], memory["memory_version_id"]);
    let below = json!({"memory_store_id": store.id, "path_prefix": "/p/"});
    let erasure = ok(&place.client.post("/v1/erasures", &below).await);
    assert_eq!(place.client.receipt(&erasure).await.json()["removed"]["memory_readers"], 1);
    assert_eq!(list().await["data"], json!([]));
}
