use crate::prelude::*;

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    let request = client.request(method.parse().unwrap(), path);
    send(if matches!(method, "GET" | "DELETE") { request } else { request.json(body) }).await
}

/// The isolation sweep does the same with good ids of others, for every operation.
pub(super) async fn malformed_ids_answer_like_ids_that_never_existed(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memory, version) = (text(&memory["id"]), text(&memory["memory_version_id"]));
    let (lower, stores) = (store.id.to_lowercase(), STORES.to_owned());
    let unknown = "mem_01ARZ3NDEKTSV4RRFFQ69G5FAVX";
    for (list, prefix, ids) in [
        (&stores, "memstore", [memory, &lower, "memstore_01ARZ3NDEKTSV4RRFFQ69G5FA", "%00", "..%2F"]),
        (&store.memories(), "mem", [version, unknown, "mem_U", "%FF", &lower]),
        (&store.versions(), "memver", [memory, unknown, "memver_U", "%FF", &lower]),
    ] {
        let never = format!("{list}/{prefix}_00000000000000000000000001");
        for method in ["GET", "PATCH", "DELETE"] {
            let expected = ask(client, method, &never, &json!({})).await.lasting();
            for id in ids {
                let answer = ask(client, method, &format!("{list}/{id}"), &json!({})).await;
                assert_eq!(answer.lasting(), expected, "{method} {list} {id}");
            }
        }
        not_found(&client.get(&never).await);
    }
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn each_route_asks_for_its_scope(place: Place) {
    let scopes = ["memory:read", "memory:write", "stores:admin", "keys:admin", "tenant:admin"];
    let [read, write, admin, of_keys, of_tenant] = scopes;
    let (store, second, third) = (place.store(), place.new_store("2").await, place.new_store("3").await);
    let [memory, doomed] = [store.create("/a", "one").await, store.create("/b", "one").await];
    let edited = store.create("/c", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let redact = format!("{}/redact", store.version(&edited["memory_version_id"]));
    let calls = tool_calls(&store.id);
    let (none, empty) = (Value::Null, json!({}));
    let operation = json!({"operations": [{"type": "create", "path": "/batch", "content": "x"}]});
    let view = json!({"command": "view", "path": "/memories"});
    let create = json!({"command": "create", "path": "/memories/called", "file_text": ""});
    let nothing = json!({"memory_store_id": store.id, "path_prefix": "/none/"});
    let routes = [
        (read, "GET", STORES, none.clone()),
        (read, "GET", &store.path, none.clone()),
        (read, "GET", &memories, none.clone()),
        (read, "GET", &at, none.clone()),
        (read, "GET", &store.versions(), none.clone()),
        (read, "GET", &version, none.clone()),
        (read, "GET", &format!("{}/readers", store.path), none.clone()),
        (read, "GET", "/v1/usage/daily", none.clone()),
        (read, "POST", &calls, view),
        (read, "POST", &calls, block("memory_read", &json!({"path": "/memories/a"}))),
        (read, "POST", &calls, block("memory_list", &json!({}))),
        (read, "POST", &calls, block("memory_search", &json!({"query": "one"}))),
        (read, "POST", &format!("{}/test", store.path), json!({"tests": "tests: []"})),
        (write, "POST", &memories, json!({"path": "/new", "content": "x"})),
        (write, "POST", &calls, create),
        (write, "POST", &calls, block("memory_write", &json!({"path": "/memories/w", "content": "x"}))),
        (write, "POST", &calls, block("memory_append", &json!({"path": "/memories/w", "content": "x"}))),
        (write, "POST", &calls, block("memory_delete", &json!({"path": "/memories/w"}))),
        (write, "POST", &format!("{memories}/batch"), operation),
        (write, "POST", &at, json!({"content": "x"})),
        (write, "PATCH", &at, json!({"content": "y"})),
        (write, "DELETE", &store.memory(&doomed), none.clone()),
        (admin, "POST", STORES, json!({"name": "a"})),
        (admin, "POST", &redact, empty.clone()),
        (admin, "POST", &format!("{}/archive", second.path), empty.clone()),
        (admin, "DELETE", &third.path, none.clone()),
        (of_keys, "GET", "/v1/api_keys", none.clone()),
        (of_tenant, "GET", "/v1/erasures", none),
        (of_tenant, "POST", "/v1/erasures", nothing),
    ];
    let keys = [
        (read, &place.reader),
        (write, &place.writer),
        (admin, &place.admin),
        (of_keys, &place.key(&[of_keys]).await),
        (of_tenant, &place.key(&[of_tenant]).await),
    ];
    for (scope, client) in &keys {
        assert_eq!(ok(&client.get("/v1/credential").await)["scopes"], json!([scope]));
    }
    for (needed, method, path, body) in &routes {
        // Keys without the scope come first: a deletion affects all keys.
        for (scope, client) in keys.iter().filter(|(scope, _)| scope != needed) {
            println!("{method} {path} with {scope}");
            denied(&ask(client, method, path, body).await, needed);
        }
        let (_, client) = keys.iter().find(|(scope, _)| scope == needed).unwrap();
        ok(&ask(client, method, path, body).await);
    }
    // Their answers would show existing content.
    let edits = json!([{"old_str": "o", "new_str": "0"}]);
    let edit = block("memory_edit", &json!({"path": "/memories/a", "edits": edits}));
    for (path, body) in [
        (&calls, edit),
        (&format!("{version}/restore"), empty.clone()),
        (&format!("{at}?view=full"), json!({"path": "/renamed"})),
        (&at, empty),
    ] {
        refused(&place.writer.post(path, &body).await, 403, "permission_error");
        if !path.starts_with(&at) {
            refused(&place.reader.post(path, &body).await, 403, "permission_error");
        }
    }
    assert_eq!(store.read(&memory).await["path"], "/a");
}

#[track_caller]
fn assert_hides(answer: &Value, secrets: &[&str]) {
    let text = answer.to_string();
    assert!(!secrets.iter().any(|secret| text.contains(secret)), "{secrets:?}: {text}");
}

pub(super) async fn write_only_key_sees_nothing_of_existing_memories(place: Place) {
    let store = place.store();
    let memory = store.create("/known", "secret of 18 bytes").await;
    let below = store.create("/dir/hidden", "x").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    // A memory that the key creates is shown in full.
    let made = store.seen_by(&place.writer).create("/own", "x").await;
    assert_eq!(store.basic(&made).await, made);
    let not_exists = json!({"type": "not_exists"});
    for (body, path, size) in [
        (json!({"path": "/moved"}), "/moved", 0),
        (json!({"pinned": true}), "", 0),
        // Nothing is changed by it, and the answer is the same as if it were.
        (json!({"path": "/own", "precondition": not_exists}), "", 0),
        (json!({"content": "secret of 18 bytes"}), "", 18),
        (json!({"content": "new"}), "", 3),
    ] {
        let answer = ok(&patch(&place.writer, &at, &body).await);
        let hash = body["content"].as_str().map_or_else(String::new, sha256);
        let shown = json!({
            "id": memory["id"], "path": path, "content_size_bytes": size, "content_sha256": hash,
            "memory_version_id": "", "last_accessed_at": null,
        });
        shows(&answer, &shown);
        let hidden = ["memory_version_id", "created_at", "updated_at"].map(|field| text(&memory[field]));
        assert_hides(&answer, &hidden);
    }
    let now = store.read(&memory).await;
    shows(&now, &json!({"content": "new", "path": "/moved"}));
    let hidden = [text(&now["content_sha256"]), "hidden", text(&now["id"]), text(&below["id"])];
    let create = |path: &str| json!({"path": path, "content": "y"});
    let expected = format!("{at}?expected_content_sha256={}", sha256("other"));
    for (method, path, body) in [
        ("PATCH", &at, json!({"content": "z", "precondition": holds("other")})),
        ("DELETE", &expected, Value::Null),
        ("POST", &memories, create("/moved")),
        ("POST", &memories, create("/moved/below")),
        ("POST", &memories, create("/dir")),
        ("POST", &memories, json!({"path": "/moved", "content": "y", "precondition": not_exists})),
    ] {
        let answer = ask(&place.writer, method, path, &body).await;
        assert_eq!(answer.status, 409, "{method} {path}: {}", answer.text);
        let error = &answer.json()["error"];
        // The message may name what was sent.
        assert_hides(error, if *path == memories { &hidden } else { &hidden[..2] });
        shows(error, &json!({"current_content_sha256": null, "memory_id": null}));
        assert_eq!(error["conflicting_memory_id"].as_str().unwrap_or_default(), "", "{error}");
    }
    batch_hides_existing_memories(&store, &place.writer, &now).await;
    // Replacing a memory by its path shows the memory's id only.
    let replaced = ok(&store.seen_by(&place.writer).upsert("/moved", "y").await);
    shows(&replaced, &json!({"id": now["id"], "memory_version_id": ""}));
    assert_hides(&replaced, &[text(&now["created_at"]), text(&now["content_sha256"])]);
}

/// `known` is at `/moved`; another memory is below `/dir`.
async fn batch_hides_existing_memories(store: &Store, writer: &Client, known: &Value) {
    let same = store.create("/same", "one").await;
    let stale = holds("other");
    let body = json!({"atomic": false, "operations": [
        {"type": "upsert", "path": "/same", "content": "one"},
        {"type": "upsert", "path": "/put", "content": "x"},
        {"type": "create", "path": "/dir", "content": "x"},
        {"type": "upsert", "path": "/other", "content": "x", "precondition": stale},
        {"type": "update", "memory_id": known["id"], "pinned": true, "precondition": stale},
        {"type": "create", "path": "/made", "content": "mine"},
    ]});
    let answer = ok(&store.seen_by(writer).batch(&body).await);
    let data = answer["data"].as_array().unwrap();
    assert_eq!(strings(data, "status"), ["updated", "updated", "failed", "failed", "failed", "created"]);
    assert_eq!(data[0]["memory_id"], same["id"]);
    assert_hides(&data[0], &[text(&same["memory_version_id"]), text(&same["created_at"])]);
    assert_eq!(data[1]["memory"]["memory_version_id"], "");
    assert_hides(&answer, &["hidden", text(&known["content_sha256"])]);
    assert_eq!(data[4]["error"]["memory_id"], Value::Null);
}

pub(super) async fn tool_results_hide_existing_content_from_a_write_only_key(place: Place) {
    let store = place.store();
    let memory = store.create("/a", &"a pelican\n".repeat(7)).await;
    store.create("/dir/hidden", "x").await;
    let path = "/memories/a";
    let write = |precondition: Value| json!({"path": path, "content": "y", "precondition": precondition});
    let stale = json!({"path": path, "expected_content_sha256": sha256("other")});
    let deep = format!("/memories{}", "/d".repeat(20));
    let rename = json!({"command": "rename", "old_path": "/memories/dir", "new_path": deep});
    for (tool, input, told) in [
        ("memory_write", write(holds("other")), "has other content"),
        ("memory_write", write(json!({"type": "not_exists"})), "/memories/a exists. "),
        ("memory_delete", stale, "has other content"),
        ("memory_append", json!({"path": path, "content": "x".repeat(102_400)}), "would be over the limit"),
        ("memory", rename, "the new path of a file in it"),
        ("memory", json!({"command": "create", "path": path, "file_text": "y"}), "already exists"),
    ] {
        let result = place.writer.tool(&place.tenant, &block(tool, &input)).await;
        assert!(result.is_error && result.content.contains(told), "{result:?}");
        let secrets = [text(&memory["content_sha256"]), "102471", "hidden", "pelican"];
        assert_hides(&json!(result.content), &secrets);
    }
    let mine = json!({"path": path, "content": "mine"});
    let written = format!("(4 bytes, content_sha256 {})", sha256("mine"));
    for (client, tool, told) in [
        (&place.writer, "memory_append", "its size and content_sha256 cannot be shown."),
        (&place.client, "memory_append", "(80 bytes, content_sha256 "),
        // The result of a write of a whole file has the hash of the written content.
        (&place.writer, "memory_write", &written),
    ] {
        let said = client.tool_ok(&place.tenant, &block(tool, &mine)).await;
        assert!(said.contains(told), "{said}");
    }
    // Findings have line numbers of the request.
    store.create("/long", &"line\n".repeat(30)).await;
    let secret = "one\nghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu\n";
    let append = block("memory_append", &json!({"path": "/memories/long", "content": secret}));
    for (policy, is_error) in [("reject", true), ("redact", false)] {
        ok(&patch(&place.client, &store.path, &json!({"sensitive_data_policy": policy})).await);
        let result = place.writer.tool(&place.tenant, &append).await;
        assert_eq!(result.is_error, is_error, "{result:?}");
        assert!(result.content.contains("in line 2"), "{result:?}");
    }
}

pub(super) async fn settings_need_the_scope_of_stores_and_a_bound_key_sees_one_store(place: Place) {
    let store = place.store();
    let before = store.object().await;
    let both = place.key(&["memory:read", "memory:write"]).await;
    for change in [
        json!({"metadata": {"user": "u1"}}),
        json!({"metadata": {"user": null}}),
        json!({"expires_unused_after": 0}),
        json!({"name": "changed", "sensitive_data_policy": "off"}),
        json!({"search_mode": null}),
    ] {
        for method in ["POST", "PATCH"] {
            denied(&ask(&both, method, &store.path, &change).await, "stores:admin");
        }
    }
    assert_eq!(store.object().await, before);
    ok(&patch(&both, &store.path, &json!({"name": "mine", "metadata": {}})).await);
    assert_eq!(store.object().await["name"], "mine");
    // An update that changes nothing shows the store.
    for body in [json!({}), json!({"name": "mine"})] {
        denied(&patch(&place.writer, &store.path, &body).await, "memory:read");
    }
    // A bound key lists and makes no other store.
    for name in ["one", "two"] {
        place.new_store(name).await;
    }
    assert_eq!(strings(&place.bound.all(&format!("{STORES}?limit=1")).await, "id"), [store.id.as_str()]);
    let selection = json!({"store_metadata": {"user": "nora"}});
    for (path, body) in [(STORES, json!({"name": "a"})), ("/v1/erasures", selection)] {
        refused(&place.bound.post(path, &body).await, 403, "permission_error");
    }
    ok(&patch(&place.bound, &store.path, &json!({"name": "its own"})).await);
    ok(&delete(&place.bound, &store.path).await);
}

/// `tests/sdk` has all else of archived stores.
pub(super) async fn archived_store_can_be_read_and_deleted_only(place: Place) {
    let (client, store) = (&place.client, place.new_store("a").await);
    let [kept, gone] = [store.create("/kept", "one").await, store.create("/gone", "x").await];
    let archived = store.archive().await;
    for answer in [
        store.upsert("/kept", "x").await,
        store.try_update(&kept, &json!({"path": "/moved"})).await,
        store.try_update(&kept, &json!({"pinned": true})).await,
        patch(client, &store.path, &json!({"metadata": {"k": "v"}})).await,
    ] {
        invalid(&answer, "archived");
    }
    invalid(&client.post(&store.path, &json!({"archived_at": null})).await, "archived_at");
    assert_eq!(store.version_count().await, 2);
    assert_eq!(store.object().await, archived);
    let batch = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/new", "content": "x"},
        {"type": "delete", "memory_id": gone["id"]},
    ]});
    let batch = ok(&store.batch(&batch).await);
    assert!(text(&batch["data"][0]["error"]["message"]).contains("archived"), "{batch}");
    assert_eq!(batch["data"][1]["status"], "deleted");
    assert_eq!(store.paths().await, ["/kept"]);
    let (path, edits) = ("/memories/kept", json!([{"old_str": "one", "new_str": "x"}]));
    for (tool, input, is_refused) in [
        ("memory_write", json!({"path": "/memories/new", "content": "x"}), true),
        ("memory_append", json!({"path": path, "content": "x"}), true),
        ("memory_edit", json!({"path": path, "edits": edits}), true),
        ("memory_read", json!({"path": path}), false),
        ("memory_delete", json!({"path": path}), false),
    ] {
        let told = client.call(&store.id, &block(tool, &input)).await.tool_result();
        assert_eq!(told.is_error, is_refused, "{}", told.content);
        assert_eq!(told.content.contains("archived"), is_refused, "{}", told.content);
    }
    assert_eq!(store.paths().await, [""; 0]);
    ok(&delete(client, &store.path).await);
}
