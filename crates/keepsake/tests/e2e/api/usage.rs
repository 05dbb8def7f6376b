use crate::prelude::*;

const DAY_SECS: i64 = 86_400;

/// Whether a memory was accessed after this time, which becomes that of its last access.
async fn is_accessed_after(last: &mut String, store: &Store, memory: &Value) -> bool {
    let now = text(&store.basic(memory).await["last_accessed_at"]).to_owned();
    let before = std::mem::replace(last, now);
    *last > before
}

pub(super) async fn reading_content_is_access_and_listing_is_not(place: Place) {
    let (client, store) = (&place.client, place.new_store("read").await);
    let memory = store.create("/a", "one").await;
    let accessed = async || store.basic(&memory).await["last_accessed_at"].clone();
    client.all(&format!("{}?limit=5", store.memories())).await;
    accessed().await;
    assert!(accessed().await.is_null());
    let mut last = String::new();
    for read in [
        store.memory(&memory),
        format!("{}?view=full", store.memories()),
        format!("{}/search?query=one", store.path),
    ] {
        ok(&client.get(&read).await);
        assert!(is_accessed_after(&mut last, &store, &memory).await, "{read}");
        assert_eq!(accessed().await, last);
    }
    for (tool, input, is_access) in [
        ("memory", json!({"command": "view", "path": "/memories/a"}), true),
        ("memory_list", json!({}), false),
        ("memory_read", json!({"path": "/memories/a", "offset": 9}), false),
        ("memory_read", json!({"path": "/memories/a"}), true),
    ] {
        ok(&client.call(&store.id, &block(tool, &input)).await);
        assert_eq!(is_accessed_after(&mut last, &store, &memory).await, is_access, "{tool} {input}");
    }
    for (purpose, status) in [("backup", 200), ("person", 200), ("console", 400), ("", 400)] {
        let request = client.request(Method::GET, &store.memory(&memory));
        let answer = send(request.header("keepsake-purpose", purpose)).await;
        assert_eq!(answer.status, status, "{purpose}");
        assert_eq!(status == 200, !answer.text.contains("`keepsake-purpose`"), "{}", answer.text);
    }
    assert_eq!(accessed().await, last, "a backup and a person are no agent");
    let written = block("memory_write", &json!({"path": "/memories/a", "content": "one"}));
    let request = client.request(Method::POST, &format!("{}/tool_calls", store.path)).json(&written);
    ok(&send(request.header("keepsake-purpose", "person")).await);
    let is_access = is_accessed_after(&mut last, &store, &memory).await;
    assert!(is_access, "a change is a use, whoever makes it");
    // A change to the content that the memory has is none, but a use.
    let (at, batch) = (store.memory(&memory), format!("{}/batch", store.memories()));
    let restore = format!("{}/restore", store.version(&memory["memory_version_id"]));
    let upsert = json!({"type": "upsert", "path": "/a", "content": "one"});
    for (path, body, is_access) in [
        (&at, json!({"content": "one"}), true),
        (&at, json!({"pinned": false}), false),
        (&restore, json!({}), true),
        (&batch, json!({"operations": [upsert]}), true),
    ] {
        ok(&client.post(path, &body).await);
        assert_eq!(is_accessed_after(&mut last, &store, &memory).await, is_access, "{path} {body}");
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn reads_and_writes_of_each_day_are_counted_by_surface(place: Place) {
    let (client, store) = (&place.client, place.new_store("busy").await);
    let memory = store.create("/a", "one").await;
    for _ in 0..2 {
        store.read(&memory).await;
    }
    for input in [
        json!({"command": "view", "path": "/memories/a"}),
        json!({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "zero"}),
    ] {
        ok(&client.call(&store.id, &input).await);
    }
    ok(&client.get(&format!("{}/search?query=one", store.path)).await);
    // Two changes come after another one, and one is refused.
    let operations = json!({"operations": [{"type": "create", "path": "/a", "content": "x"}]});
    for (below, body, status) in [
        ("", json!({"path": "/a", "content": "x"}), 409),
        ("/batch", operations, 409),
        ("", json!({"path": "/.keepsake/tests.yaml", "content": "tests:\n- search: a\n  within: 3\n"}), 400),
    ] {
        let answer = client.post(&format!("{}{below}", store.memories()), &body).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    place.store().create("/elsewhere", "x").await;
    // The answer comes after a flush.
    ok(&client.get(&format!("{}/readers", store.path)).await);

    let daily =
        async |client: &Client, query: &str| ok(&client.get(&format!("/v1/usage/daily{query}")).await);
    // Midnight may be in between.
    let of_surface = |report: &Value, surface: &str| {
        let days = report["data"].as_array().unwrap().iter().filter(|day| day["surface"] == surface);
        days.fold([0, 0], |[reads, writes], day| {
            [reads + day["reads"].as_u64().unwrap(), writes + day["writes"].as_u64().unwrap()]
        })
    };
    let all = daily(client, "?days=7").await;
    let of_all = ["api", "tool", "search"].map(|surface| of_surface(&all, surface));
    assert_eq!(of_all, [[2, 2], [1, 1], [1, 0]], "{all}");
    shows(&all, &json!({"type": "daily_usage", "reads": 4, "writes": 3, "refusals": 1, "conflicts": 2}));
    assert!(text(&all["from"]) < text(&all["data"][0]["date"]), "{all}");
    let (store_id, rejected) = (&store.id, ["refusals", "conflicts"].map(|name| &all[name]));
    let most = json!({"memory_store_id": store_id, "name": "busy", "reads": 4, "writes": 2,
        "refusals": rejected[0], "conflicts": rejected[1]});
    assert_eq!((&all["most_written"][0], &all["most_refused"]), (&most, &json!([most])));
    let of_store = format!("?memory_store_id={}", store.id);
    shows(&daily(client, &of_store).await, &json!({"reads": 4, "writes": 2}));
    shows(&daily(&place.bound, "").await, &json!({"reads": 0, "writes": 1}));
    for stranger in [&place.bound, &place.stranger] {
        not_found(&stranger.get(&format!("/v1/usage/daily{of_store}")).await);
    }
    for days in ["0", "401"] {
        invalid(&client.get(&format!("/v1/usage/daily?days={days}")).await, "`days`");
    }
}

pub(super) async fn expiry_time_of_a_memory_is_set_and_removed(place: Place) {
    let store = place.new_store("timed").await;
    let time = "2999-12-31T00:00:00.000000Z";
    let new = json!({"path": "/a", "content": "a", "expires_at": "2999-12-31"});
    let memory = ok(&place.client.post(&store.memories(), &new).await);
    assert_eq!(memory["expires_at"], time);
    for (edit, expected) in [
        (json!({"expires_at": null, "content": "b"}), json!(time)),
        (json!({"path": "/b"}), json!(time)),
        (json!({"pinned": true}), Value::Null),
        (json!({"pinned": false}), json!(time)),
        (json!({"expires_at": "never"}), Value::Null),
        (json!({"expires_at": time}), json!(time)),
    ] {
        assert_eq!(store.update(&memory, &edit).await["expires_at"], expected, "{edit}");
        assert_eq!(store.read(&memory).await["expires_at"], expected, "{edit}");
    }
    for wrong in ["", "soon", "2020-01-01", "9999-12-31"] {
        let edit = json!({"expires_at": wrong, "content": "c"});
        invalid(&store.try_update(&memory, &edit).await, "`expires_at`");
        let new = json!({"path": "/new", "content": "", "expires_at": wrong});
        invalid(&place.client.post(&store.memories(), &new).await, "`expires_at`");
    }
    let pinned = json!({"path": "/pinned", "content": "", "pinned": true, "expires_at": null});
    assert_eq!(ok(&place.client.post(&store.memories(), &pinned).await)["pinned"], true);
    let both = json!({"expires_at": time, "pinned": true});
    invalid(&store.try_update(&memory, &both).await, "`expires_at`");
    assert_eq!(store.version_count().await, 4, "a refused change changes nothing");
    // Changes keep it, a deletion ends it.
    let insert = json!({"command": "insert", "path": "/memories/b", "insert_line": 0, "insert_text": "c"});
    let inserted = place.client.call(&store.id, &insert).await.tool_result();
    assert!(!inserted.is_error, "{inserted:?}");
    assert_eq!(store.read(&memory).await["expires_at"], time);
    shows(&ok(&store.upsert("/b", "d").await), &json!({"id": memory["id"], "expires_at": time}));
    let first = &memory["memory_version_id"];
    assert_eq!(store.restore(first).await["expires_at"], time);
    store.delete(&memory).await;
    assert_eq!(store.restore(first).await["expires_at"], Value::Null);
    assert_eq!(store.read(&memory).await["expires_at"], Value::Null);
}

async fn usage_of(store: &Store, query: &str) -> Value {
    ok(&store.client.get(&format!("{}/usage{query}", store.path)).await)
}

pub(super) async fn usage_lists_next_expiries_and_unread_memories(place: Place) {
    let new = json!({"name": "used", "expires_unused_after": 30 * DAY_SECS});
    let store = Store::make_with(&place.client, &new).await;
    let read = store.create("/read", "12").await;
    let unread = store.create("/unread", "345").await;
    let pinned = store.create("/pinned", "6").await;
    store.update(&pinned, &json!({"pinned": true})).await;
    store.update(&read, &json!({"content": "1234"})).await;
    store.read(&read).await;

    let usage = usage_of(&store, "").await;
    let expected = json!({
        "id": store.id, "type": "memory_store_usage", "memory_count": 3, "content_bytes": 8, "version_count": 4,
        "version_bytes": 10, "embedded_memory_count": 0, "embedding_bytes": 0,
        "expires_unused_after": 30 * DAY_SECS, "never_read_count": 2,
    });
    shows(&usage, &expected);
    assert_eq!(usage["limits"]["memories_per_store"], 2_000);
    let made = store.object().await;
    assert_eq!(micros(&usage["takes_effect_at"]) - micros(&made["created_at"]), DAY_SECS * 1_000_000);
    let next = usage["expiring_next"].as_array().unwrap();
    assert_eq!(strings(next, "path"), ["/unread", "/read"], "the pinned one never does");
    let history = store.history().await;
    let by = &history[0]["created_by"];
    let expected = json!({
        "memory_id": unread["id"], "content_size_bytes": 3, "last_accessed_at": null, "last_accessed_by": null,
        "last_written_by": by, "expires_at": unread["expires_at"],
    });
    shows(&next[0], &expected);
    shows(&next[1], &json!({"last_accessed_by": by, "last_written_by": by}));
    assert!(text(&next[1]["last_accessed_at"]) > text(&next[1]["last_written_at"]));
    for (item, since) in next.iter().zip(["last_written_at", "last_accessed_at"]) {
        assert_eq!(micros(&item["expires_at"]) - micros(&item[since]), 30 * DAY_SECS * 1_000_000, "{item}");
    }
    let never = usage["never_read"].as_array().unwrap();
    assert_eq!(strings(never, "path"), ["/unread", "/pinned"]);
    assert!(never[1]["expires_at"].is_null());
    let renamed = store.update(&unread, &json!({"path": "/moved"})).await;
    assert_eq!(micros(&renamed["expires_at"]) - micros(&renamed["updated_at"]), 30 * DAY_SECS * 1_000_000);
    ok(&place.client.post(&store.path, &json!({"expires_unused_after": 0})).await);
    assert!(store.read(&read).await["expires_at"].is_null());
}

pub(super) async fn usage_counts_content_that_stays_once(place: Place) {
    let (client, store) = (&place.client, place.new_store("plain").await);
    for number in 0..3 {
        store.create(&format!("/{number}"), "x").await;
    }
    let usage = usage_of(&store, "?limit=2").await;
    shows(&usage, &json!({"expires_unused_after": null, "takes_effect_at": null, "expiring_next": []}));
    assert_eq!(strings(usage["never_read"].as_array().unwrap(), "path"), ["/0", "/1"]);
    assert_eq!(usage["never_read_count"], 3);
    let memory = store.create("/3", "xx").await;
    for path in ["/4", "/5"] {
        store.update(&memory, &json!({"path": path})).await;
    }
    store.restore(&memory["memory_version_id"]).await;
    shows(&usage_of(&store, "").await, &json!({"version_count": 7, "version_bytes": 5}));
    assert!(usage["tenant_content_bytes"].as_u64() >= Some(3), "{usage}");
    // The sum is that of stores it may not see. A write shows whether bytes are too many.
    let of_store = json!({"name": "b", "scopes": ["memory:read"], "memory_store_ids": [place.store().id]});
    let reader = ok(&client.post("/v1/api_keys", &of_store).await);
    let reader = client.with_key(text(&reader["api_key"]));
    for (bound, fits) in [(&place.bound, Some(true)), (&reader, None)] {
        let of_bound = ok(&bound.get(&format!("{}/usage?added_bytes=1", place.store().path)).await);
        shows(&of_bound, &json!({"tenant_content_bytes": null, "fits_tenant": fits}));
    }
    invalid(&client.get(&format!("{}/usage?limit=101", store.path)).await, "limit");
    ok(&delete(client, &store.path).await);
    not_found(&client.get(&format!("{}/usage", store.path)).await);
}
