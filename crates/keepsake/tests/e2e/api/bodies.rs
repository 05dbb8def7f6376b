//! Request bodies: accepted and refused values.

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{Place, STORES, holds, invalid, ok, patch, post_text, refused, sha256, text};
use crate::support::client::{send, tool_calls};

pub(super) async fn unknown_fields_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let (restore, redact) = (format!("{version}/restore"), format!("{version}/redact"));
    let archive = format!("{}/archive", store.path);
    let hash = &memory["content_sha256"];
    for (path, body, named) in [
        (STORES, json!({"name": "a", "descripton": "b"}), "descripton"),
        (STORES, json!({"name": "a", "id": "memstore_1"}), "id"),
        (&store.path, json!({"nam": "a"}), "nam"),
        (&archive, json!({"force": true}), "force"),
        (&memories, json!({"path": "/b", "content": "x", "contents": "y"}), "contents"),
        (
            &memories,
            json!({"path": "/b", "content": "x", "precondtion": {"type": "not_exists"}}),
            "precondtion",
        ),
        (&memories, json!({"path": "/b", "content": "x", "view": "full"}), "view"),
        (&at, json!({"content": "x", "precondtion": null}), "precondtion"),
        (&at, json!({"contents": "x"}), "contents"),
        (
            &at,
            json!({"content": "x", "precondition": {"type": "content_sha256", "content_sha256": hash, "sha": "x"}}),
            "sha",
        ),
        (&redact, json!({"reason": "x"}), "reason"),
        (&restore, json!({"path": "/b"}), "path"),
    ] {
        invalid(&client.post(path, &body).await, &format!("`{named}`"));
    }
    for (path, body, named) in
        [(&store.path, json!({"nam": "a"}), "nam"), (&at, json!({"contents": "x"}), "contents")]
    {
        invalid(&patch(client, path, &body).await, &format!("`{named}`"));
    }
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.version_count().await, 1);
    assert!(store.object().await["archived_at"].is_null());
}

pub(super) async fn wrong_values_are_refused_by_the_field_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let memories = store.memories();
    for (body, named) in [
        (json!({"path": "/b"}), "content"),
        (json!({"path": "/b", "content": null}), "content"),
        (json!({"path": "/b", "content": 5}), "content"),
        (json!({"path": "/b", "content": ["x"]}), "content"),
        (json!({"path": "/b", "content": {"text": "x"}}), "content"),
        (json!({"content": "x"}), "path"),
        (json!({"path": null, "content": "x"}), "path"),
        (json!({"path": 5, "content": "x"}), "path"),
        (json!({"path": "", "content": "x"}), "path"),
    ] {
        invalid(&client.post(&memories, &body).await, named);
    }
    for (body, named) in [
        (json!({"content": 5}), "content"),
        (json!({"content": false}), "content"),
        (json!({"path": ["/b"]}), "path"),
        (json!({"path": ""}), "path"),
        (json!({"pinned": "yes"}), "pinned"),
        (json!({"pinned": 1}), "pinned"),
    ] {
        invalid(&store.try_update(&memory, &body).await, named);
        invalid(&patch(client, &store.memory(&memory), &body).await, named);
    }
    for (body, named) in [
        (json!({"name": 5}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"description": 5}), "description"),
        (json!({"metadata": []}), "metadata"),
        (json!({"expires_unused_after": "3600"}), "expires_unused_after"),
        (json!({"expires_unused_after": -1}), "expires_unused_after"),
        (json!({"expires_unused_after": 1.5}), "expires_unused_after"),
        (json!({"sensitive_data_policy": "on"}), "sensitive_data_policy"),
        (json!({"sensitive_data_policy": true}), "sensitive_data_policy"),
    ] {
        invalid(&client.post(&store.path, &body).await, named);
        invalid(&patch(client, &store.path, &body).await, named);
        let mut new = body;
        if new.get("name").is_none() {
            new["name"] = json!("a");
        }
        invalid(&client.post(STORES, &new).await, named);
    }
    let version = &memory["memory_version_id"];
    invalid(&store.try_restore(version, &json!({"precondition": 5})).await, "precondition");
    assert_eq!(store.read(&memory).await["memory_version_id"], *version);
    assert_eq!(store.paths().await, ["/a"]);
}

pub(super) async fn erasures_that_select_too_little_or_too_much_are_refused(place: Place) {
    let id = place.store().id;
    let below = |prefix: &str| json!({"memory_store_id": id, "path_prefix": prefix});
    let of = |pair: Value| json!({"store_metadata": pair});
    let (mut both, mut prefixed) = (of(json!({"a": "b"})), of(json!({"a": "b"})));
    both["memory_store_id"] = json!(id);
    prefixed["path_prefix"] = json!("/a/");
    for (body, why) in [
        (json!({}), "`memory_store_id` or"),
        (json!({"path_prefix": "/a/"}), "`path_prefix` must come with"),
        (below("/a"), "`path_prefix`"),
        (below("a/"), "`path_prefix`"),
        (below("/a/../"), "`path_prefix`"),
        (below(""), "`path_prefix`"),
        (both, "`store_metadata` must not come with"),
        (prefixed, "`path_prefix` must come with"),
        (of(json!({})), "`store_metadata`"),
        (of(json!({"a": 1})), "`store_metadata`"),
        (of(json!({"a": "\0"})), "`store_metadata`"),
    ] {
        invalid(&place.client.post("/v1/erasures", &body).await, why);
    }
    let listed = ok(&place.client.get("/v1/erasures").await);
    assert_eq!(listed["data"], json!([]));
}

pub(super) async fn bodies_other_than_objects_are_refused(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let version = store.version(&memory["memory_version_id"]);
    let whole = r#"{"path": "/b", "content": "x", "name": "b", "description": "c"}"#;
    let routes = [
        STORES.to_owned(),
        store.path.clone(),
        store.memories(),
        store.memory(&memory),
        format!("{}/archive", store.path),
        format!("{version}/redact"),
        format!("{version}/restore"),
    ];
    let mut bodies: Vec<Vec<u8>> = [
        "{",
        "nonsense",
        "[]",
        "\"text\"",
        "5",
        "true",
        "{} {}",
        "{},",
        "{}x",
        "{\"name\"}",
        "{'name': 'a'}",
        "{\"name\": \"\\ud800\"}",
        "\u{feff}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    bodies.push(b"{\"name\": \"\xff\"}".to_vec());
    bodies.push(b"[".repeat(100_000));
    bodies.push([br#"{"metadata": "#.as_slice(), &b"{\"k\": ".repeat(100_000)].concat());
    bodies.push(whole.replace('}', "").into_bytes());
    for path in &routes {
        for body in &bodies {
            invalid(&post_text(client, path, body.clone()).await, "");
        }
    }
    // A list of field values is not an object.
    for (path, list) in [
        (STORES, json!(["a", "b", null, null, null])),
        (STORES, json!(["a", "b", {}, 60, "off"])),
        (&store.path, json!(["a", null, null, null, null])),
        (&store.memories(), json!(["/b", "x", null])),
        (&store.memories(), json!({"path": "/b", "content": "x", "precondition": ["not_exists"]})),
        (&store.memory(&memory), json!([null, "/b", null, null])),
        (&format!("{version}/restore"), json!([null])),
    ] {
        invalid(&client.post(path, &list).await, "");
    }
    // A valid value with trailing text is refused.
    for (path, value) in [
        (STORES, json!({"name": "b"})),
        (&store.path, json!({"name": "b"})),
        (&store.memories(), json!({"path": "/b", "content": "x"})),
        (&store.memory(&memory), json!({"content": "x"})),
    ] {
        for more in ["x", "{}", ",", "\0", "null"] {
            invalid(&post_text(client, path, format!("{value}{more}")).await, "");
        }
        ok(&post_text(client, path, format!(" \r\n\t{value}\n ")).await);
    }
    // A body that must hold something may not be empty.
    for path in [STORES, &store.memories()] {
        invalid(&post_text(client, path, "").await, "");
    }
    assert_eq!(store.paths().await, ["/a", "/b"]);
    assert!(store.object().await["archived_at"].is_null());
}

pub(super) async fn other_than_json_is_415(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (named, content) = (json!({"name": "b"}), json!({"content": "x"}));
    let new = json!({"path": "/b", "content": "x"});
    let call = json!({"command": "create", "path": "/memories/b", "file_text": "x"});
    for (method, path, body) in [
        (Method::POST, STORES, &named),
        (Method::POST, &store.path, &named),
        (Method::PATCH, &store.path, &named),
        (Method::POST, &store.memories(), &new),
        (Method::POST, &store.memory(&memory), &content),
        (Method::PATCH, &store.memory(&memory), &content),
        (Method::POST, &tool_calls(&store.id), &call),
    ] {
        for media_type in [
            None,
            Some(""),
            Some("json"),
            Some("text/plain"),
            Some("text/json"),
            Some("application/jsonx"),
            Some("application/x-www-form-urlencoded"),
            Some("multipart/form-data"),
        ] {
            let request = client.request(method.clone(), path).body(body.to_string());
            let answer = send(match media_type {
                Some(media_type) => request.header("content-type", media_type),
                None => request,
            })
            .await;
            let error = refused(&answer, 415, "invalid_request_error");
            assert!(text(&error["message"]).contains("application/json"), "{error}");
        }
    }
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.version_count().await, 1);
    for (media_type, path) in
        [("application/json", "/b"), ("application/json; charset=utf-8", "/c"), ("Application/JSON", "/d")]
    {
        let request = client.request(Method::POST, &store.memories()).header("content-type", media_type);
        let body = json!({"path": path, "content": "x"}).to_string();
        ok(&send(request.body(body)).await);
    }
}

pub(super) async fn bodies_of_archive_redact_and_restore_may_be_left_out(place: Place) {
    let client = &place.client;
    for (number, (media_type, body)) in [
        (None, None),
        (None, Some("")),
        (None, Some("{}")),
        (Some("application/json"), None),
        (Some("application/json"), Some("")),
        (Some("application/json"), Some("{}")),
        (Some("application/json"), Some(" { }\n")),
        (Some("text/plain"), Some("")),
        (Some("text/plain"), Some("{}")),
        (Some("application/octet-stream"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let store = place.new_store(&format!("body {number}")).await;
        let first = store.create("/a", "one").await;
        store.update(&first, &json!({"content": "two"})).await;
        let version = store.version(&first["memory_version_id"]);
        let post = async |path: &str| {
            let mut request = client.request(Method::POST, path);
            if let Some(media_type) = media_type {
                request = request.header("content-type", media_type);
            }
            if let Some(body) = body {
                request = request.body(body);
            }
            ok(&send(request).await)
        };
        let restored = post(&format!("{version}/restore")).await;
        assert_eq!(restored["content_sha256"], first["content_sha256"]);
        store.update(&first, &json!({"content": "three"})).await;
        store.redact(&restored["memory_version_id"]).await;
        let redacted = post(&format!("{version}/redact")).await;
        assert!(redacted["content_sha256"].is_null(), "{redacted}");
        let archived = post(&format!("{}/archive", store.path)).await;
        assert!(archived["archived_at"].is_string(), "{archived}");
    }
    // A condition is read, whatever the content type.
    let store = place.new_store("condition").await;
    let memory = store.create("/a", "one").await;
    let version = store.version(&memory["memory_version_id"]);
    store.update(&memory, &json!({"content": "two"})).await;
    let condition = json!({"precondition": holds("three")});
    let request = client.request(Method::POST, &format!("{version}/restore")).body(condition.to_string());
    refused(&send(request).await, 409, "memory_precondition_failed_error");
}

/// A body with trailing spaces, of `bytes` bytes in total.
fn padded(body: &Value, bytes: usize) -> String {
    let body = body.to_string();
    let spaces = " ".repeat(bytes - body.len());
    body + &spaces
}

pub(super) async fn body_over_the_limit_is_413(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let limit_bytes = 6 * 102_400 + (64 << 10);
    let bodies = [
        (store.memories(), json!({"path": "/b", "content": "x"})),
        (store.memory(&memory), json!({"content": "two"})),
        (STORES.to_owned(), json!({"name": "b"})),
        (store.path.clone(), json!({"description": "b"})),
        (tool_calls(&store.id), json!({"command": "view", "path": "/memories"})),
    ];
    for (path, body) in &bodies {
        let answer = post_text(client, path, padded(body, limit_bytes + 1)).await;
        let error = refused(&answer, 413, "invalid_request_error");
        let limit = limit_bytes.to_string();
        assert!(text(&error["message"]).contains(&limit), "{error}");
    }
    assert_eq!(store.version_count().await, 1);
    for (path, body) in &bodies {
        ok(&post_text(client, path, padded(body, limit_bytes)).await);
    }
    // Six characters for each byte of content.
    let escaped = format!(r#"{{"path": "/c", "content": "{}"}}"#, r"\u0041".repeat(102_400));
    let made = ok(&post_text(client, &store.memories(), escaped).await);
    assert_eq!(made["content_sha256"], sha256(&"A".repeat(102_400)));
}

pub(super) async fn invalid_tool_call_is_400_and_a_bad_input_is_a_tool_error(place: Place) {
    let client = &place.client;
    let path = tool_calls(place.tenant.store_id);
    let view = json!({"command": "view", "path": "/memories"});
    for (body, named) in [
        (json!({}), "not a tool call"),
        (json!({"path": "/memories"}), "not a tool call"),
        (json!({"type": "tool_result", "content": "x"}), "not a tool call"),
        (json!({"type": "tool_use", "id": "t", "name": "memory"}), "`input`"),
        (json!({"type": "tool_use", "id": "t", "name": "memory", "input": []}), "`input`"),
        (json!({"type": "tool_use", "id": "t", "input": view}), "`name`"),
        (json!({"type": "tool_use", "id": 7, "name": "memory", "input": view}), "`id`"),
        (json!({"type": "tool_use", "id": "", "name": "memory", "input": view}), "`id`"),
        (json!([view]), "the body is not valid"),
        (json!(null), "the body is not valid"),
    ] {
        invalid(&client.post(&path, &body).await, named);
    }
    invalid(&post_text(client, &path, "{\"command\":").await, "the body is not valid");
    // Errors that the model can correct are tool results.
    for input in [json!({"command": "dance"}), json!({"command": 5}), json!({"command": "view", "path": 5})] {
        assert!(client.tool(&place.tenant, &input).await.is_error, "{input}");
    }
}
