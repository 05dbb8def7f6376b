use crate::prelude::*;

pub(super) fn create(path: &str, content: &str) -> Value {
    json!({"type": "create", "path": path, "content": content})
}

fn statuses(body: &Value) -> Vec<&str> {
    let data = body["data"].as_array().unwrap();
    data.iter().map(|result| text(&result["status"])).collect()
}

pub(super) async fn results_come_in_the_order_sent(place: Place) {
    let (client, store) = (&place.client, place.store());
    let [edited, deleted] = [store.create("/edited", "one").await, store.create("/deleted", "one").await];
    let [moved, pinned] = [store.create("/moved", "one").await, store.create("/pinned", "one").await];
    let same = store.create("/same", "same").await;
    let not_exists = json!({"type": "not_exists"});
    let body = json!({"atomic": false, "operations": [
        {"type": "create", "path": "/made", "content": "x", "pinned": true, "precondition": not_exists},
        create("/edited", "x"),
        {"type": "update", "memory_id": edited["id"], "content": "two", "precondition": holds("one")},
        {"type": "upsert", "path": "/put", "content": "y", "expires_at": "2999-12-31"},
        {"type": "upsert", "path": "/same", "content": "same"},
        {"type": "update", "memory_id": moved["id"], "path": "/new/c", "precondition": not_exists},
        {"type": "update", "memory_id": pinned["id"], "pinned": true},
        {"type": "delete", "memory_id": deleted["id"], "expected_content_sha256": sha256("one")},
        {"type": "delete", "memory_id": "mem_00000000000000000000000001"},
        {"type": "delete", "memory_id": "mem_1"},
        create("/moved", "x"),
        create("/deleted", "x"),
    ]});
    let answer = ok(&store.batch(&body).await);
    assert_eq!(answer["type"], "memory_batch");
    let expected = [
        ("created", "/made", true),
        ("failed", "", false),
        ("updated", "/edited", false),
        ("created", "/put", false),
        ("unchanged", "/same", false),
        ("updated", "/new/c", false),
        ("updated", "/pinned", true),
        ("deleted", "", false),
        ("failed", "", false),
        ("failed", "", false),
        ("failed", "", false),
        ("failed", "", false),
    ];
    assert_eq!(statuses(&answer), expected.map(|(status, ..)| status));
    let data = answer["data"].as_array().unwrap();
    for (result, (status, path, is_pinned)) in data.iter().zip(expected) {
        assert_eq!(result["type"], "memory_batch_result");
        assert_eq!(result["error"].is_null(), status != "failed");
        assert_eq!(result["memory"].is_null(), path.is_empty());
        if !path.is_empty() {
            let memory = &result["memory"];
            shows(memory, &json!({"id": result["memory_id"], "path": path, "pinned": is_pinned}));
            assert_eq!(store.basic(memory).await["memory_version_id"], memory["memory_version_id"]);
        }
    }
    let conflict = json!({
        "type": "memory_path_conflict_error", "message": "another memory exists at the path: `/edited`",
        "conflicting_memory_id": edited["id"], "conflicting_path": "/edited",
    });
    assert_eq!(data[1]["error"], conflict);
    assert_eq!(data[3]["memory"]["expires_at"], "2999-12-31T00:00:00.000000Z");
    assert_eq!(data[4]["memory"]["memory_version_id"], same["memory_version_id"]);
    assert_eq!(data[7]["memory_id"], deleted["id"]);
    assert_eq!(data[8]["error"]["type"], "not_found_error");
    // A malformed operation refuses only itself.
    let malformed = json!({
        "type": "invalid_request_error",
        "message": "`operations` 9 is malformed: `memory_id` is not a whole id: `mem_` and 26 characters",
    });
    assert_eq!(data[9]["error"], malformed);
    // A path that another operation frees is still taken.
    for (result, holder) in [(&data[10], &moved), (&data[11], &deleted)] {
        assert_eq!(result["error"]["conflicting_memory_id"], holder["id"]);
    }
    assert_eq!(store.paths().await, ["/edited", "/made", "/new/c", "/pinned", "/put", "/same"]);
    // Neither the unchanged memory, nor the pin, nor a refusal is a version.
    assert_eq!(store.version_count().await, 5 + 5);
    let batch = format!("{}/batch", store.memories());
    for (operation, why) in [
        (r#"{"type": "create", "path": "/n", "content": "x", "content": "x"}"#, "duplicate field `content`"),
        (r#"{"type": "create", "path": "/new", "content": "\ud83d"}"#, "hex escape"),
        (r#"{"type": "create", "path": "/new"}"#, "content"),
        (r#"{"type": "create", "path": "/new", "content": "", "memory_id": "mem_1"}"#, "memory_id"),
        (r#"{"type": "delete", "memory_id": "mem_00000000000000000000000001", "content": ""}"#, "content"),
        (r#"{"type": "upsert", "path": "/new", "content": "", "expires_at": "soon"}"#, "`expires_at`"),
        ("{}", "type"),
    ] {
        let all = format!("[{}, {operation}]", create("/edited", "x"));
        let body = |is_atomic: bool| format!(r#"{{"atomic": {is_atomic}, "operations": {all}}}"#);
        let answer = ok(&post_text(client, &batch, body(false)).await);
        let told = text(&answer["data"][1]["error"]["message"]);
        assert!(told.starts_with("`operations` 1 is malformed: ") && told.contains(why), "{told}");
        invalid(&post_text(client, &batch, body(true)).await, "`operations` 1");
    }
    let body = json!({"operations": [create("/last", "x")]});
    let answer = ok(&client.post(&format!("{batch}?memories=false"), &body).await);
    let result = &answer["data"][0];
    assert_eq!((&result["status"], &result["memory"]), (&json!("created"), &Value::Null));
    assert!(result["memory_id"].is_string(), "{result}");
}

pub(super) async fn five_hundred_operations_or_eight_mebibytes_are_one_batch(place: Place) {
    let store = place.store();
    let text = "four kilobytes of text\n".repeat(180);
    let path = |number: usize| format!("/d{}/e{}/f{number}", number % 10, number % 7);
    let made = async |operations: Vec<Value>, status: &str| {
        let answer = ok(&store.batch(&json!({"operations": operations})).await);
        assert_eq!(statuses(&answer), [status; 500]);
        answer["data"].as_array().unwrap().clone()
    };
    let creations = (0..500).map(|number| create(&path(number), &format!("{number} {text}"))).collect();
    let results = made(creations, "created").await;
    assert_eq!(store.read(&results[499]["memory"]).await["content"], format!("499 {text}"));
    let ids = results.iter().map(|result| &result["memory_id"]);
    let edit = |id: &Value| json!({"type": "update", "memory_id": id, "content": "short"});
    made(ids.clone().map(edit).collect(), "updated").await;
    let hash = sha256("short");
    let delete = |id: &Value| json!({"type": "delete", "memory_id": id, "expected_content_sha256": hash});
    made(ids.map(delete).collect(), "deleted").await;
    let history = store.history().await;
    assert_eq!(history.len(), 1_500);
    for commit in history.chunks(500) {
        let is_of_commit = |version: &Value| version["created_at"] == commit[0]["created_at"];
        assert!(commit.iter().all(is_of_commit), "one commit has one time");
    }
    assert_eq!(store.paths().await, [""; 0]);
    let content = "x".repeat(100_000);
    let operations: Vec<_> = (0..83).map(|number| create(&format!("/{number}"), &content)).collect();
    let answer = ok(&store.batch(&json!({"operations": operations})).await);
    assert!(statuses(&answer).iter().all(|status| *status == "created"));
    let too_large = format!("{{\"operations\": [], \"x\": \"{}\"}}", "x".repeat(8 << 20));
    let batch = format!("{}/batch", store.memories());
    refused(&post_text(&place.client, &batch, too_large).await, 413, "invalid_request_error");
}

pub(super) async fn atomic_batch_fails_with_its_first_refused_operation(place: Place) {
    let store = place.store();
    let memory = store.create("/a", "one").await;
    let (failed, conflict) = ("memory_precondition_failed_error", "memory_path_conflict_error");
    let (invalid_request, missing) = ("invalid_request_error", "not_found_error");
    let (id, unknown) = (&memory["id"], "mem_00000000000000000000000001");
    let (other, not_exists) = (holds("other"), json!({"type": "not_exists"}));
    for (operation, status, kind) in [
        (create("/a", "x"), 409, conflict),
        (create("a", "x"), 400, invalid_request),
        (create("/nul", "\0"), 400, invalid_request),
        (json!({"type": "create", "path": "/a", "content": "x", "precondition": not_exists}), 409, failed),
        (json!({"type": "upsert", "path": "/free", "content": "x", "precondition": other}), 409, failed),
        (json!({"type": "update", "memory_id": id, "pinned": true, "precondition": other}), 409, failed),
        (json!({"type": "update", "memory_id": id, "path": "/moved", "precondition": other}), 409, failed),
        (json!({"type": "update", "memory_id": unknown, "content": "x"}), 404, missing),
        (json!({"type": "delete", "memory_id": "mem_1"}), 400, invalid_request),
    ] {
        let body = json!({"operations": [create("/b", "x"), operation]});
        let error = refused(&store.batch(&body).await, status, kind);
        assert_eq!(error["operation"], 1, "{error}");
    }
    assert_eq!(store.version_count().await, 1);
    assert_eq!(store.read(&memory).await["pinned"], false);
    operations_on_one_memory_or_path_are_refused(&store, &memory).await;
    // A directory is named by the first memory in it; `-` sorts before `/`.
    store.create("/d-e", "x").await;
    let inside = store.create("/d/x", "x").await;
    let body = json!({"operations": [create("/d", "x")]});
    assert_eq!(refused(&store.batch(&body).await, 409, conflict)["conflicting_memory_id"], inside["id"]);
    for (body, named) in [
        (json!({"operations": []}), "1 to 500"),
        (json!({"operations": vec![create("/b", ""); 501]}), "1 to 500"),
        (json!({"operations": [create("/b", "")], "atomic": "no"}), "atomic"),
        (json!({"operations": [{"type": "rename"}]}), "`operations` 0"),
    ] {
        invalid(&store.batch(&body).await, named);
    }
}

async fn operations_on_one_memory_or_path_are_refused(store: &Store, memory: &Value) {
    let update = json!({"type": "update", "memory_id": memory["id"], "content": "x"});
    let rename = json!({"type": "update", "memory_id": memory["id"], "path": "/b"});
    let delete = json!({"type": "delete", "memory_id": memory["id"]});
    let upsert = json!({"type": "upsert", "path": "/a", "content": "y"});
    let (id, path) = ("are about the same memory", "are about the same path");
    let above = "need one path as a memory and as a directory";
    for (one, other, why) in [
        (&create("/b", "x"), &rename, path),
        (&update, &delete, id),
        (&update, &upsert, id),
        (&create("/b", "x"), &create("/b/c/d", "y"), above),
        (&create("/b/c/d", "x"), &create("/b", "y"), above),
    ] {
        for is_atomic in [true, false] {
            let body = json!({"atomic": is_atomic, "operations": [create("/other", ""), one, other]});
            let named = format!("`operations` 1 and 2 {why}");
            invalid(&store.batch(&body).await, &named);
        }
    }
    assert_eq!(store.version_count().await, 1);
}
