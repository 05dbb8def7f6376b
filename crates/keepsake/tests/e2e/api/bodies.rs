//! Request bodies: accepted and refused values.

use reqwest::Method;
use serde_json::{Value, json};

use super::support::{Place, STORES, holds, invalid, ok, patch, post_text, refused, sha256, text};
use crate::support::client::{send, tool_calls};

pub(super) async fn unknown_fields_and_wrong_values_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let restore = format!("{version}/restore");
    let precondition = json!({"type": "content_sha256", "content_sha256": sha256("one"), "sha": "x"});
    for (path, body, named) in [
        (STORES, json!({"name": "a", "id": "memstore_1"}), "`id`"),
        (STORES, json!({"name": ""}), "name"),
        (&format!("{}/archive", store.path), json!({"force": true}), "`force`"),
        (&memories, json!({"path": "/b", "content": "x", "precondtion": null}), "`precondtion`"),
        (&memories, json!({"path": "/b", "content": "x", "view": "full"}), "`view`"),
        (&memories, json!({"path": "/b"}), "content"),
        (&memories, json!({"path": "/b", "content": null}), "content"),
        (&memories, json!({"content": "x"}), "path"),
        (&memories, json!({"path": null, "content": "x"}), "path"),
        (&memories, json!({"path": "", "content": "x"}), "path"),
        (&format!("{version}/redact"), json!({"reason": "x"}), "`reason`"),
        (&restore, json!({"path": "/b"}), "`path`"),
        (&restore, json!({"precondition": 5}), "precondition"),
    ] {
        invalid(&client.post(path, &body).await, named);
    }
    for (path, body, named) in [
        (&at, json!({"content": "x", "precondtion": null}), "`precondtion`"),
        (&at, json!({"content": "x", "precondition": precondition}), "`sha`"),
        (&at, json!({"content": 5}), "content"),
        (&at, json!({"path": ["/b"]}), "path"),
        (&at, json!({"path": ""}), "path"),
        (&at, json!({"pinned": "yes"}), "pinned"),
        (&store.path, json!({"nam": "a"}), "`nam`"),
        (&store.path, json!({"name": ""}), "name"),
        (&store.path, json!({"description": 5}), "description"),
        (&store.path, json!({"metadata": []}), "metadata"),
        (&store.path, json!({"expires_unused_after": -1}), "expires_unused_after"),
        (&store.path, json!({"expires_unused_after": 1.5}), "expires_unused_after"),
        (&store.path, json!({"sensitive_data_policy": "on"}), "sensitive_data_policy"),
    ] {
        invalid(&client.post(path, &body).await, named);
        invalid(&patch(client, path, &body).await, named);
        if *path == store.path && body.get("name").is_none() {
            let mut new = body;
            new["name"] = json!("a");
            invalid(&client.post(STORES, &new).await, named);
        }
    }
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.version_count().await, 1);
    assert!(store.object().await["archived_at"].is_null());
}

pub(super) async fn erasures_that_select_too_little_or_too_much_are_refused(place: Place) {
    let id = place.store().id;
    let below = |prefix: &str| json!({"memory_store_id": id, "path_prefix": prefix});
    let of = |pair: Value| json!({"store_metadata": pair});
    for (body, why) in [
        (json!({}), "`memory_store_id` or"),
        (json!({"path_prefix": "/a/"}), "`path_prefix` must come with"),
        (below("/a"), "`path_prefix`"),
        (below("a/"), "`path_prefix`"),
        (below("/a/../"), "`path_prefix`"),
        (below(""), "`path_prefix`"),
        (json!({"store_metadata": {"a": "b"}, "memory_store_id": id}), "`store_metadata` must not come with"),
        (json!({"store_metadata": {"a": "b"}, "path_prefix": "/a/"}), "`path_prefix` must come with"),
        (of(json!({})), "`store_metadata`"),
        (of(json!({"a": 1})), "`store_metadata`"),
        (of(json!({"a": "\0"})), "`store_metadata`"),
    ] {
        invalid(&place.client.post("/v1/erasures", &body).await, why);
    }
    assert_eq!(ok(&place.client.get("/v1/erasures").await)["data"], json!([]));
}

pub(super) async fn bodies_other_than_objects_are_refused(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, archive) = (store.memories(), format!("{}/archive", store.path));
    let texts = ["{", "nonsense", "[null]", "\"text\"", "5", "{} {}", "{},", "{\"name\"}", "\u{feff}"];
    let not_utf8 = b"{\"name\": \"\xff\"}".as_slice();
    for body in texts.map(str::as_bytes).into_iter().chain([not_utf8, &b"[".repeat(100_000)]) {
        for path in [&memories, &archive] {
            invalid(&post_text(client, path, body.to_vec()).await, "");
        }
    }
    for (path, value) in [
        (STORES, json!({"name": "b"})),
        (&store.path, json!({"name": "b"})),
        (&memories, json!({"path": "/b", "content": "x"})),
        (&store.memory(&memory), json!({"content": "x"})),
    ] {
        // Invalid: an array of the field values, and a valid object followed by more text.
        let fields: Vec<_> = value.as_object().unwrap().values().collect();
        invalid(&client.post(path, &json!(fields)).await, "");
        for more in ["x", "{}", "\0"] {
            invalid(&post_text(client, path, format!("{value}{more}")).await, "");
        }
        ok(&post_text(client, path, format!("\u{feff} \r\n\t{value}\n ")).await);
    }
    // A body that must hold something may not be empty.
    invalid(&post_text(client, &memories, "").await, "");
    assert_eq!(store.paths().await, ["/a", "/b"]);
    assert!(store.object().await["archived_at"].is_null());
}

pub(super) async fn other_than_json_is_415(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (memories, at, calls) = (store.memories(), store.memory(&memory), tool_calls(&store.id));
    let send_as = async |method: &str, path: &str, media_type: Option<&str>| {
        let body = r#"{"path": "/b", "content": "x"}"#;
        let request = client.request(method.parse().unwrap(), path).body(body);
        send(match media_type {
            Some(media_type) => request.header("content-type", media_type),
            None => request,
        })
        .await
    };
    for (method, path) in [("POST", STORES), ("PATCH", &at), ("POST", &memories), ("POST", &calls)] {
        for media_type in [None, Some(""), Some("json"), Some("text/json"), Some("application/jsonx")] {
            let error = refused(&send_as(method, path, media_type).await, 415, "invalid_request_error");
            assert!(text(&error["message"]).contains("application/json"), "{error}");
        }
    }
    let packed = client.request(Method::POST, &memories).header("content-type", "application/json");
    let packed = send(packed.header("content-encoding", "identity, gzip").body("x")).await;
    let error = refused(&packed, 415, "invalid_request_error");
    assert!(text(&error["message"]).contains("encoding `gzip`"), "{error}");
    assert_eq!(store.version_count().await, 1);
    ok(&send_as("POST", &memories, Some("Application/JSON; charset=utf-8")).await);
}

pub(super) async fn bodies_of_archive_redact_and_restore_may_be_left_out(place: Place) {
    let store = place.store();
    let first = store.create("/a", "one").await;
    store.update(&first, &json!({"content": "two"})).await;
    let version = store.version(&first["memory_version_id"]);
    let post = async |path: &str, media_type: &str, body: String| {
        let request = place.client.request(Method::POST, path).body(body);
        send(if media_type.is_empty() { request } else { request.header("content-type", media_type) }).await
    };
    let restore = format!("{version}/restore");
    // A condition is read, whatever the content type.
    let condition = json!({"precondition": holds("three")}).to_string();
    refused(&post(&restore, "", condition).await, 409, "memory_precondition_failed_error");
    for (media_type, body) in [("", ""), ("", "{}"), ("application/json", " { }\n"), ("text/plain", "{}")] {
        let restored = ok(&post(&restore, media_type, body.to_owned()).await);
        assert_eq!(restored["content_sha256"], first["content_sha256"]);
    }
    store.delete(&first).await;
    let redacted = ok(&post(&format!("{version}/redact"), "", String::new()).await);
    assert!(redacted["content_sha256"].is_null(), "{redacted}");
    let archived = ok(&post(&format!("{}/archive", store.path), "", String::new()).await);
    assert!(archived["archived_at"].is_string(), "{archived}");
}

pub(super) async fn body_over_the_limit_is_413(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let limit_bytes = 6 * 102_400 + (64 << 10);
    let padded = |body: &Value, bytes: usize| {
        let text = body.to_string();
        " ".repeat(bytes - text.len()) + &text
    };
    let bodies = [
        (store.memories(), json!({"path": "/b", "content": "x"})),
        (store.memory(&memory), json!({"content": "two"})),
        (tool_calls(&store.id), json!({"command": "view", "path": "/memories"})),
    ];
    for (path, body) in &bodies {
        let answer = post_text(client, path, padded(body, limit_bytes + 1)).await;
        let error = refused(&answer, 413, "invalid_request_error");
        assert!(text(&error["message"]).contains(&limit_bytes.to_string()), "{error}");
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
        (json!({"type": "tool_result", "content": "x"}), "not a tool call"),
        (json!({"type": "tool_use", "id": "t", "name": "memory"}), "`input`"),
        (json!({"type": "tool_use", "id": "t", "name": "memory", "input": []}), "`input`"),
        (json!({"type": "tool_use", "id": "t", "input": view}), "`name`"),
        (json!({"type": "tool_use", "id": 7, "name": "memory", "input": view}), "`id`"),
        (json!({"type": "tool_use", "id": "", "name": "memory", "input": view}), "`id`"),
        (json!([view]), "the body is not valid"),
    ] {
        invalid(&client.post(&path, &body).await, named);
    }
    let block = r#"{"type":"tool_use","name":"memory_write","input":{"path":"/memories/a","content":"1""#;
    for (path, body, named) in [
        (&path, r#"{"command":"view","path":"/memories","path":"/memories"}"#.to_owned(), "`path`"),
        (&path, format!(r#"{block},"content":"2"}}}}"#), "`content`"),
        (&path, format!(r#"{block}}},"id":"t1","id":"t2"}}"#), "`id`"),
        (&STORES.to_owned(), r#"{"name":"a","metadata":{"key":"1","key":"2"}}"#.to_owned(), "`key`"),
    ] {
        invalid(&post_text(client, path, body).await, &format!("duplicate field {named}"));
    }
    // Errors that the model can correct are tool results.
    for input in [json!({"command": "dance"}), json!({"command": 5}), json!({"command": "view", "path": 5})] {
        assert!(client.tool(&place.tenant, &input).await.is_error, "{input}");
    }
    let edit = br#"{"type": "tool_use", "name": "memory_edit", "input": {"edits": [{"new_str": "\ud83d"}]}}"#;
    let bytes = b"{\"command\": \"create\", \"file_text\": \"\xed\xa0\xbd\"}";
    for (body, field) in [(&edit[..], "edits[0].new_str"), (bytes, "file_text")] {
        let told = ok(&post_text(client, &path, body).await);
        let refusal = format!("Error: Field `{field}` has a character that is not valid Unicode");
        assert!(told["is_error"] == true && text(&told["content"]).starts_with(&refusal), "{told}");
    }
    let block = r#"{"type": "tool_use", "id": "\udc00", "name": "memory", "input": {"command": "view"}}"#;
    invalid(&post_text(client, &path, block).await, "`id` has a character");
}
