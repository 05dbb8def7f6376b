//! The objects that a credential sees, and its permissions.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::support::{
    Place, STORES, Store, all, delete, holds, not_found, ok, patch, refused, sha256, shows, strings, text,
};
use crate::support::Client;
use crate::support::client::{send, tool_calls};

/// A valid body of a route, and an invalid one.
fn bodies(path: &str) -> [Value; 2] {
    let good = if path.ends_with("/memories") {
        json!({"path": "/new", "content": "x"})
    } else if path.ends_with("/tool_calls") {
        json!({"command": "view", "path": "/memories"})
    } else if path.contains("/memories/") {
        json!({"content": "x", "path": "/moved"})
    } else if path.ends_with("/archive") || path.contains("/memory_versions/") {
        json!({})
    } else {
        json!({"name": "x"})
    };
    [good, json!({"unknown": true})]
}

fn request(client: &Client, method: &Method, path: &str, body: &Value) -> RequestBuilder {
    let request = client.request(method.clone(), path);
    if *method == Method::GET || *method == Method::DELETE { request } else { request.json(body) }
}

/// Every route below `/v1` with a store, a memory and a version that are there.
fn routes(store: &str, memory: &str, version: &str) -> Vec<(Method, String)> {
    let at = format!("{STORES}/{store}");
    vec![
        (Method::GET, at.clone()),
        (Method::POST, at.clone()),
        (Method::PATCH, at.clone()),
        (Method::GET, format!("{at}/memories")),
        (Method::GET, format!("{at}/search?query=one")),
        (Method::POST, format!("{at}/memories")),
        (Method::GET, format!("{at}/memories/{memory}")),
        (Method::POST, format!("{at}/memories/{memory}")),
        (Method::PATCH, format!("{at}/memories/{memory}")),
        (Method::GET, format!("{at}/memory_versions")),
        (Method::GET, format!("{at}/memory_versions/{version}")),
        (Method::POST, format!("{at}/memory_versions/{version}/restore")),
        (Method::POST, format!("{at}/memory_versions/{version}/redact")),
        (Method::DELETE, format!("{at}/memories/{memory}")),
        (Method::POST, format!("{at}/tool_calls")),
        (Method::POST, format!("{at}/archive")),
        (Method::DELETE, at),
    ]
}

/// Asks every such route for each of `ids` in turn, the first of which never
/// existed: all answers must be its 404.
async fn assert_all_alike(client: &Client, ids: &[[String; 3]], is_asked: fn(&str) -> bool) {
    let [store, memory, version] = &ids[0];
    let asked = routes(store, memory, version).into_iter().enumerate();
    for (number, (method, path)) in asked.filter(|(_, (_, path))| is_asked(path)) {
        for body in bodies(&path) {
            let never = send(request(client, &method, &path, &body)).await;
            for [store, memory, version] in &ids[1..] {
                let path = &routes(store, memory, version)[number].1;
                let answer = send(request(client, &method, path, &body)).await;
                assert_eq!(answer.lasting(), never.lasting(), "{method} {path} {body}");
            }
        }
        let [good, _] = bodies(&path);
        not_found(&send(request(client, &method, &path, &good)).await);
    }
}

fn is_below_a_store(path: &str) -> bool {
    path.contains("/memories/") || path.contains("/memory_versions/")
}

/// Unknown ids, well-formed and malformed.
fn nowhere() -> [Vec<String>; 3] {
    ["memstore_", "mem_", "memver_"].map(|prefix| {
        [
            format!("{prefix}00000000000000000000000001"),
            format!("{prefix}01ARZ3NDEKTSV4RRFFQ69G5FA"),
            format!("{prefix}01ARZ3NDEKTSV4RRFFQ69G5FAVX"),
            format!("{prefix}UUUUUUUUUUUUUUUUUUUUUUUUUU"),
            prefix.to_owned(),
            "x".to_owned(),
            "%00".to_owned(),
            "%FF".to_owned(),
            "..%2F".to_owned(),
            "apikey_01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
        ]
        .to_vec()
    })
}

async fn ids_in(store: &Store) -> [String; 3] {
    let memory = store.create("/theirs", "one").await;
    let (id, version) = (text(&memory["id"]), text(&memory["memory_version_id"]));
    [store.id.clone(), id.to_owned(), version.to_owned()]
}

pub(super) async fn malformed_ids_of_stores_answer_like_ids_that_never_existed(place: Place) {
    let store = place.store();
    let [id, memory, version] = ids_in(&store).await;
    let [stores, memories, versions] = nowhere();
    let malformed = stores.into_iter().chain([id.to_lowercase(), memory.clone()]);
    let ids: Vec<_> = malformed
        .enumerate()
        .map(|(number, store)| match number {
            0..10 => [store, memories[0].clone(), versions[0].clone()],
            _ => [store, memory.clone(), version.clone()],
        })
        .collect();
    assert_all_alike(&place.client, &ids, |_| true).await;
    assert_eq!(store.version_count().await, 1);
}

pub(super) async fn objects_of_another_store_answer_like_ids_that_never_existed(place: Place) {
    let (here, elsewhere) = (place.store(), place.new_store("elsewhere").await);
    let [_, memory, version] = ids_in(&elsewhere).await;
    let [_, memories, versions] = nowhere();
    let others = [(memory.clone(), version.clone()), (version, memory.clone())];
    let ids: Vec<_> = memories
        .into_iter()
        .zip(versions)
        .chain(others)
        .map(|(memory, version)| [here.id.clone(), memory, version])
        .collect();
    assert_all_alike(&place.client, &ids, is_below_a_store).await;
    // A filter by it finds nothing here.
    let listed = all(&place.client, &format!("{}?memory_id={memory}", here.versions())).await;
    assert_eq!(listed, [Value::Null; 0]);
    assert_eq!(elsewhere.version_count().await, 1);
}

pub(super) async fn deleted_store_answers_like_one_that_never_existed(place: Place) {
    let store = place.new_store("gone").await;
    let gone = ids_in(&store).await;
    let deleted = ok(&delete(&place.client, &store.path).await);
    assert_eq!(deleted, json!({"id": store.id, "type": "memory_store_deleted"}));
    let [stores, memories, versions] = nowhere();
    let never = [stores[0].clone(), memories[0].clone(), versions[0].clone()];
    assert_all_alike(&place.client, &[never, gone], |_| true).await;
    for query in ["limit=100", "limit=100&include_archived=true"] {
        let listed = all(&place.client, &format!("{STORES}?{query}")).await;
        assert!(!strings(&listed, "id").contains(&store.id));
    }
    let again = place.new_store("gone").await;
    assert_ne!(again.id, store.id);
    assert_eq!(again.paths().await, [""; 0]);
}

pub(super) async fn each_route_asks_for_its_scope(place: Place) {
    const READ: &str = "memory:read";
    const WRITE: &str = "memory:write";
    const ADMIN: &str = "stores:admin";
    const KEYS: &str = "keys:admin";
    const TENANT: &str = "tenant:admin";
    let store = place.store();
    let memory = store.create("/a", "one").await;
    let doomed = store.create("/doomed", "one").await;
    let edited = store.create("/edited", "secret").await;
    store.update(&edited, &json!({"content": "harmless"})).await;
    let second = place.new_store("second").await;
    let third = place.new_store("third").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let old = store.version(&edited["memory_version_id"]);
    let (calls, batch) = (tool_calls(&store.id), format!("{memories}/batch"));
    let [keys, erasures] = ["/v1/api_keys", "/v1/erasures"].map(str::to_owned);
    let (empty, named) = (json!({}), json!({"name": "a"}));
    let new = json!({"path": "/new", "content": "x"});
    let operation = json!({"operations": [{"type": "create", "path": "/batch", "content": "x"}]});
    let view = json!({"command": "view", "path": "/memories"});
    let create = json!({"command": "create", "path": "/memories/called", "file_text": ""});
    let nothing = json!({"memory_store_id": store.id, "path_prefix": "/none/"});
    let routes = [
        (READ, Method::GET, STORES.to_owned(), &empty),
        (READ, Method::GET, store.path.clone(), &empty),
        (READ, Method::GET, memories.clone(), &empty),
        (READ, Method::GET, format!("{memories}?view=full"), &empty),
        (READ, Method::GET, at.clone(), &empty),
        (READ, Method::GET, format!("{at}?view=basic"), &empty),
        (READ, Method::GET, store.versions(), &empty),
        (READ, Method::GET, version.clone(), &empty),
        (READ, Method::POST, calls.clone(), &view),
        (WRITE, Method::POST, memories.clone(), &new),
        (WRITE, Method::POST, calls, &create),
        (WRITE, Method::POST, batch, &operation),
        (WRITE, Method::POST, at.clone(), &json!({"content": "x"})),
        (WRITE, Method::PATCH, at.clone(), &json!({"content": "y"})),
        (WRITE, Method::DELETE, store.memory(&doomed), &empty),
        (ADMIN, Method::POST, STORES.to_owned(), &named),
        (ADMIN, Method::POST, format!("{old}/redact"), &empty),
        (ADMIN, Method::POST, format!("{}/archive", second.path), &empty),
        (ADMIN, Method::DELETE, third.path.clone(), &empty),
        (KEYS, Method::GET, keys, &empty),
        (TENANT, Method::GET, erasures.clone(), &empty),
        (TENANT, Method::POST, erasures, &nothing),
    ];
    let keys = [
        (READ, &place.reader),
        (WRITE, &place.writer),
        (ADMIN, &place.admin),
        (KEYS, &place.key(&[KEYS], None).await),
        (TENANT, &place.key(&[TENANT], None).await),
    ];
    for (needed, method, path, body) in &routes {
        // Keys without the scope come first: a deletion affects all keys.
        for (scope, client) in keys.iter().filter(|(scope, _)| scope != needed) {
            let answer = send(request(client, method, path, body)).await;
            let error = refused(&answer, 403, "permission_error");
            let told = text(&error["message"]);
            assert!(told.contains(needed), "{scope}: {method} {path}: {told}");
        }
        let (_, client) = keys.iter().find(|(scope, _)| scope == needed).unwrap();
        ok(&send(request(client, method, path, body)).await);
    }
    // A key without the read scope gets no content.
    let (full, restore) = (format!("{at}?view=full"), format!("{version}/restore"));
    for answer in [
        patch(&place.writer, &at, &empty).await,
        place.writer.post(&restore, &empty).await,
        place.reader.post(&restore, &empty).await,
        place.writer.post(&full, &json!({"path": "/renamed"})).await,
        patch(&place.writer, &full, &empty).await,
        place.writer.post(&format!("{restore}?view=full"), &empty).await,
    ] {
        refused(&answer, 403, "permission_error");
    }
    assert_eq!(store.read(&memory).await["path"], "/a");
}

pub(super) async fn each_tool_asks_for_its_scope(place: Place) {
    let store = place.store();
    store.create("/a", "one").await;
    let (read, write) = ("memory:read", "memory:write");
    let path = "/memories/a";
    let of_path = json!({"path": path});
    let content = json!({"path": path, "content": "x"});
    let edit = json!({"path": path, "edits": [{"old_str": "o", "new_str": "0"}]});
    for (client, needed, tool, input) in [
        (&place.reader, write, "memory_write", &content),
        (&place.reader, write, "memory_append", &content),
        (&place.reader, write, "memory_edit", &edit),
        (&place.reader, write, "memory_delete", &of_path),
        // The answer of an edit would show existing content.
        (&place.writer, read, "memory_edit", &edit),
        (&place.writer, read, "memory_read", &of_path),
        (&place.writer, read, "memory_list", &json!({})),
        (&place.writer, read, "memory_search", &json!({"query": "one"})),
    ] {
        let block = json!({"type": "tool_use", "name": tool, "input": input});
        let error = refused(&client.call(&store.id, &block).await, 403, "permission_error");
        assert!(text(&error["message"]).contains(needed), "{tool}: {error}");
        let nowhere = "memstore_00000000000000000000000001";
        not_found(&place.client.call(nowhere, &block).await);
    }
    for tool in ["memory_read", "memory_forget"] {
        let block = json!({"type": "tool_use", "name": tool, "input": {}});
        assert!(place.client.call(&store.id, &block).await.tool_result().is_error);
        let nowhere = "memstore_00000000000000000000000001";
        not_found(&place.client.call(nowhere, &block).await);
    }
    assert_eq!(store.version_count().await, 1);
}

/// Checks that an answer has none of the secrets.
fn assert_hides(answer: &Value, secrets: &[&str]) {
    let text = answer.to_string();
    for secret in secrets {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

pub(super) async fn write_only_key_sees_nothing_of_existing_memories(place: Place) {
    let store = place.store();
    let memory = store.create("/known", "secret of 18 bytes").await;
    let below = store.create("/dir/hidden", "x").await;
    let at = store.memory(&memory);
    let secrets: Vec<_> = ["content_sha256", "memory_version_id", "created_at", "updated_at"]
        .map(|field| text(&memory[field]))
        .to_vec();
    // A memory that the key creates is shown in full.
    let made = store.seen_by(&place.writer).create("/own", "x").await;
    assert_eq!(store.basic(&made).await, made);
    assert_eq!(made["path"], "/own");
    let unchanged = json!({"path": "/own", "precondition": {"type": "not_exists"}});
    for (body, path, size) in [
        (json!({"path": "/moved"}), "/moved", 0),
        (json!({"pinned": true}), "", 0),
        (json!({"pinned": true, "path": "/moved"}), "/moved", 0),
        // Nothing is changed by it, and the answer is the same as if it were.
        (unchanged, "", 0),
        (json!({"content": "secret of 18 bytes"}), "", 18),
        (json!({"content": "new"}), "", 3),
    ] {
        let answer = ok(&patch(&place.writer, &at, &body).await);
        assert_eq!(answer["id"], memory["id"]);
        assert_eq!(answer["path"], path, "{body}: {answer}");
        assert_eq!(answer["content_size_bytes"], size, "{body}: {answer}");
        assert_eq!(answer["memory_version_id"], "", "{body}: {answer}");
        assert_eq!(answer["last_accessed_at"], Value::Null, "{body}: {answer}");
        let unsent = body.get("content").is_none();
        assert_eq!(answer["content_sha256"] == "", unsent, "{body}: {answer}");
        if unsent {
            assert_hides(&answer, &secrets);
        }
        assert_hides(&answer, &secrets[1..]);
    }
    let now = store.read(&memory).await;
    assert_eq!((text(&now["content"]), text(&now["path"])), ("new", "/moved"));
    let secrets = [text(&now["content_sha256"]), text(&now["id"]), text(&below["id"]), "hidden"];
    let stale = json!({"content": "z", "precondition": holds("other")});
    let expected = format!("{at}?expected_content_sha256={}", sha256("other"));
    let create = |path: &str| json!({"path": path, "content": "y"});
    let mut only_new = create("/moved");
    only_new["precondition"] = json!({"type": "not_exists"});
    let memories = store.memories();
    for (method, path, body) in [
        (Method::PATCH, &at, stale),
        (Method::DELETE, &expected, Value::Null),
        (Method::POST, &memories, create("/moved")),
        (Method::POST, &memories, create("/moved/below")),
        (Method::POST, &memories, create("/dir")),
        (Method::POST, &memories, only_new),
    ] {
        let answer = send(request(&place.writer, &method, path, &body)).await;
        assert_eq!(answer.status, 409, "{method} {path}: {}", answer.text);
        // The message may name the path that was sent, never a memory of others.
        let error = answer.json()["error"].clone();
        assert_hides(&error, &secrets[..1]);
        assert_hides(&error, &secrets[3..]);
        if !path.contains(text(&now["id"])) {
            assert_hides(&error, &secrets[1..3]);
        }
        for field in ["current_content_sha256", "memory_id"] {
            assert_eq!(error.get(field).unwrap_or(&Value::Null), &Value::Null, "{error}");
        }
        let conflicting = error.get("conflicting_memory_id");
        assert_eq!(conflicting.unwrap_or(&json!("")), "", "{error}");
    }
    batch_hides_existing_memories(&place, &now).await;
    // Replacing a memory by its path shows the memory's id only.
    let replaced = ok(&store.seen_by(&place.writer).upsert("/moved", "y").await);
    shows(&replaced, &json!({"id": now["id"], "memory_version_id": ""}));
    let secrets = [text(&now["created_at"]), text(&now["content_sha256"])];
    assert_hides(&replaced, &secrets);
}

/// A call of a tool as a block.
fn block(tool: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "name": tool, "input": input})
}

pub(super) async fn tool_results_hide_existing_content_from_a_write_only_key(place: Place) {
    let store = place.store();
    let memory = store.create("/a", &"a pelican\n".repeat(7)).await;
    store.create("/dir/hidden", "x").await;
    let path = "/memories/a";
    let write = |precondition: Value| json!({"path": path, "content": "y", "precondition": precondition});
    let expected = json!({"path": path, "expected_content_sha256": sha256("other")});
    let much = json!({"path": path, "content": "x".repeat(102_400)});
    let deep = format!("/memories{}", "/d".repeat(20));
    let rename = json!({"command": "rename", "old_path": "/memories/dir", "new_path": deep});
    let create = json!({"command": "create", "path": path, "file_text": "y"});
    let not_exists = json!({"type": "not_exists"});
    for (tool, input, told) in [
        ("memory_write", write(holds("other")), "has other content"),
        ("memory_write", write(not_exists), "/memories/a exists. "),
        ("memory_delete", expected, "has other content"),
        ("memory_append", much, "would be over the limit"),
        ("memory", rename, "the new path of a file in it"),
        ("memory", create, "already exists"),
    ] {
        let call = block(tool, &input);
        let result = place.writer.tool(&place.tenant, &call).await;
        assert!(result.is_error && result.content.contains(told), "{result:?}");
        for secret in [text(&memory["content_sha256"]), "102471", "hidden", "pelican"] {
            assert!(!result.content.contains(secret), "{result:?}");
        }
        // A key that may read is refused for the same reason.
        let read = place.client.tool(&place.tenant, &call).await;
        assert!(read.is_error, "{read:?}");
    }
    let mine = json!({"path": path, "content": "mine"});
    let written = format!("(4 bytes, content_sha256 {})", sha256("mine"));
    let hidden = "its size and content_sha256 cannot be shown.";
    for (client, tool, told) in [
        (&place.writer, "memory_append", hidden),
        (&place.client, "memory_append", "(80 bytes, content_sha256 "),
        // The result of a write of a whole file has the hash of the written content.
        (&place.writer, "memory_write", &written),
    ] {
        let said = client.tool_ok(&place.tenant, &block(tool, &mine)).await;
        assert!(said.contains(told), "{said}");
    }
}

pub(super) async fn findings_of_a_write_only_key_have_line_numbers_of_the_request(place: Place) {
    let store = place.store();
    store.create("/a", &"line\n".repeat(30)).await;
    let secret = "one\nghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu\n";
    let append = json!({"path": "/memories/a", "content": secret});
    let append = block("memory_append", &append);
    for (policy, is_error) in [("reject", true), ("redact", false)] {
        let policy = json!({"sensitive_data_policy": policy});
        ok(&patch(&place.client, &store.path, &policy).await);
        let result = place.writer.tool(&place.tenant, &append).await;
        assert_eq!(result.is_error, is_error, "{result:?}");
        assert!(result.content.contains("in line 2"), "{result:?}");
    }
}

/// `known` is at `/moved`; another memory is below `/dir`.
async fn batch_hides_existing_memories(place: &Place, known: &Value) {
    let store = place.store();
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
    let path = format!("{}/batch", store.memories());
    let answer = ok(&place.writer.post(&path, &body).await);
    let data = answer["data"].as_array().unwrap();
    assert_eq!(strings(data, "status"), ["updated", "updated", "failed", "failed", "failed", "created"]);
    assert_eq!(data[0]["memory_id"], same["id"]);
    let secrets = [text(&same["memory_version_id"]), text(&same["created_at"])];
    assert_hides(&data[0], &secrets);
    assert_eq!(data[1]["memory"]["memory_version_id"], "");
    assert_hides(&answer, &["hidden", text(&known["content_sha256"])]);
    assert_eq!(data[4]["error"]["memory_id"], Value::Null);
}

pub(super) async fn metadata_expiry_and_policy_need_the_scope_of_stores(place: Place) {
    let store = place.new_store("of many").await;
    let before = store.object().await;
    let metadata = json!({"metadata": {"user": "u1"}});
    let both = place.key(&["memory:read", "memory:write"], None).await;
    for change in [
        &metadata,
        &json!({"metadata": {"user": null}}),
        &json!({"expires_unused_after": 60}),
        &json!({"expires_unused_after": 0}),
        &json!({"sensitive_data_policy": "reject"}),
        &json!({"name": "changed", "sensitive_data_policy": "off"}),
    ] {
        for answer in [both.post(&store.path, change).await, patch(&both, &store.path, change).await] {
            let error = refused(&answer, 403, "permission_error");
            assert!(text(&error["message"]).contains("stores:admin"), "{error}");
        }
    }
    assert_eq!(store.object().await, before);
    let named = json!({"name": "mine", "metadata": {}});
    ok(&patch(&both, &store.path, &named).await);
    ok(&patch(&place.client, &store.path, &metadata).await);
    let shown = store.object().await;
    shows(&shown, &json!({"name": "mine", "metadata": {"user": "u1"}}));
    // An update that changes nothing shows the store.
    for body in [json!({}), json!({"name": "mine"})] {
        let answer = patch(&place.writer, &store.path, &body).await;
        let error = refused(&answer, 403, "permission_error");
        assert!(text(&error["message"]).contains("memory:read"), "{error}");
    }
}

pub(super) async fn bound_key_sees_no_other_store(place: Place) {
    let own = place.store();
    own.seen_by(&place.bound).create("/a", "one").await;
    for n in 0..6 {
        place.new_store(&format!("more {n}")).await;
    }
    for limit in [1, 2, 100] {
        let listed = all(&place.bound, &format!("{STORES}?limit={limit}")).await;
        assert_eq!(strings(&listed, "id"), [own.id.as_str()]);
    }
    let selection = json!({"store_metadata": {"user": "nora"}});
    for answer in [
        place.bound.post(STORES, &json!({"name": "a"})).await,
        place.bound.post("/v1/erasures", &selection).await,
    ] {
        refused(&answer, 403, "permission_error");
    }
    assert_eq!(all(&place.client, &format!("{STORES}?limit=100")).await.len(), 7);
    let named = json!({"name": "mine"});
    assert_eq!(ok(&patch(&place.bound, &own.path, &named).await)["name"], "mine");
    ok(&delete(&place.bound, &own.path).await);
    let listed = all(&place.bound, &format!("{STORES}?limit=100")).await;
    assert_eq!(listed, [Value::Null; 0]);
}
