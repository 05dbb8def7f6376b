use crate::prelude::*;

/// `tests/sdk` has other fields of stores and memories.
pub(super) async fn unknown_fields_and_wrong_values_are_refused_by_name(place: Place) {
    let (client, store) = (&place.client, place.store());
    let memory = store.create("/a", "one").await;
    let (at, memories) = (store.memory(&memory), store.memories());
    let version = store.version(&memory["memory_version_id"]);
    let restore = format!("{version}/restore");
    let (id, erasures, stores) = (&store.id, "/v1/erasures".to_owned(), STORES.to_owned());
    let [undo, import] = ["undo", "import"].map(|route| format!("{}/{route}", store.path));
    let below = |prefix: &str| json!({"memory_store_id": id, "path_prefix": prefix});
    let of = |pair: Value| json!({"store_metadata": pair});
    let both = json!({"store_metadata": {"a": "b"}, "memory_store_id": id});
    let prefixed = json!({"store_metadata": {"a": "b"}, "path_prefix": "/a/"});
    for (path, body, named) in [
        (&erasures, json!({}), "`memory_store_id` or"),
        (&erasures, json!({"path_prefix": "/a/"}), "`path_prefix` must come with"),
        (&erasures, below("/a"), "`path_prefix`"),
        (&erasures, below("a/"), "`path_prefix`"),
        (&erasures, below("/a/../"), "`path_prefix`"),
        (&erasures, below(""), "`path_prefix`"),
        (&erasures, both, "`store_metadata` must not come with"),
        (&erasures, prefixed, "`path_prefix` must come with"),
        (&erasures, of(json!({})), "`store_metadata`"),
        (&erasures, of(json!({"a": 1})), "`store_metadata`"),
        (&erasures, of(json!({"a": "\0"})), "`store_metadata`"),
        (&store.path, json!({"search_mode": "words"}), "`search_mode` must be `lexical` or `hybrid`"),
        (
            &stores,
            json!({"name": "b", "fork_of": [id]}),
            "`fork_of`: invalid type: sequence, expected an object",
        ),
        (&undo, json!({"created_at": ["2026-01-01"]}), "`created_at`: invalid type"),
        (&undo, json!({"after_seq": "3"}), "expected an integer from 0"),
        (&import, json!({"position": 0, "versions": [["a"]]}), "`versions[0]`: invalid type"),
        (&memories, json!({"path": "/b", "content": "x", "view": "full"}), "`view`"),
        (&memories, json!({"path": "/b", "content": "x", "precondition": holds("one")}), "precondition"),
        (&memories, json!({"path": null, "content": "x"}), "path"),
        (&format!("{version}/redact"), json!({"reason": "x"}), "`reason`"),
        (&restore, json!({"path": "/b"}), "`path`"),
        (&restore, json!({"precondition": 5}), "precondition"),
        (&at, json!({"path": ["/b"]}), "path"),
        (&at, json!({"pinned": "yes"}), "pinned"),
    ] {
        let answer = client.post(path, &body).await;
        invalid(&answer, named);
        assert!(!answer.text.contains(" column "), "{}", answer.text);
        if *path == at {
            invalid(&patch(client, path, &body).await, named);
        }
    }
    assert_eq!(store.paths().await, ["/a"]);
    assert_eq!(store.version_count().await, 1);
    assert_eq!(ok(&client.get(&erasures).await)["data"], json!([]));
}

pub(super) async fn bodies_other_than_objects_are_refused(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (memories, archive) = (store.memories(), format!("{}/archive", store.path));
    let texts = ["{", "nonsense", "[null]", "\"text\"", "5", "{} {}", "{},", "{\"name\"}", "\u{feff}"];
    let not_utf8 = b"{\"name\": \"\xff\"}".as_slice();
    for body in texts.map(str::as_bytes).into_iter().chain([not_utf8, &b"[".repeat(100_000)]) {
        for path in [&memories, &archive] {
            invalid(&post_text(client, path, body.to_vec()).await, "");
        }
    }
    // A valid object that is followed by more text.
    let new = json!({"path": "/b", "content": "x"});
    for more in ["x", "{}", "\0"] {
        invalid(&post_text(client, &memories, format!("{new}{more}")).await, "");
    }
    ok(&post_text(client, &memories, format!("\u{feff} \r\n\t{new}\n ")).await);
    // A body that must hold something may not be empty.
    invalid(&post_text(client, &memories, "").await, "the body is not valid: it is empty");
    assert_eq!(store.paths().await, ["/b"]);
    assert!(store.object().await["archived_at"].is_null());
}

pub(super) async fn other_than_json_is_415_and_over_the_limit_413(place: Place) {
    let (client, store) = (&place.client, place.store());
    let (memories, calls) = (store.memories(), tool_calls(&store.id));
    let send_as = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = client.request(Method::POST, path).body(r#"{"path": "/b", "content": "x"}"#);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        send(request).await
    };
    for (headers, named) in [
        (&[][..], "application/json"),
        (&[("content-type", "text/json")], "application/json"),
        (&[("content-type", "application/jsonx")], "application/json"),
        (&[("content-type", "application/json"), ("content-encoding", "identity, gzip")], "encoding `gzip`"),
    ] {
        for path in [STORES, &memories, &calls] {
            refused_for(&send_as(path, headers).await, 415, "invalid_request_error", named);
        }
    }
    assert_eq!(store.version_count().await, 0);
    let made = ok(&send_as(&memories, &[("content-type", "Application/JSON; charset=utf-8")]).await);
    // Where a body may be left out, as `tests/sdk` does it, it needs no type, and a condition is read.
    let restore = format!("{}/restore", store.version(&made["memory_version_id"]));
    store.update(&made, &json!({"content": "y"})).await;
    let condition = json!({"precondition": holds("x")}).to_string();
    let unmet = send(client.request(Method::POST, &restore).body(condition)).await;
    refused(&unmet, 409, "memory_precondition_failed_error");
    let limit_bytes = 6 * 102_400 + (64 << 10);
    let padded = |bytes: usize| {
        let body = json!({"path": "/a", "content": "x"}).to_string();
        " ".repeat(bytes - body.len()) + &body
    };
    for path in [&memories, &calls] {
        let answer = post_text(client, path, padded(limit_bytes + 1)).await;
        refused_for(&answer, 413, "invalid_request_error", &limit_bytes.to_string());
    }
    ok(&post_text(client, &memories, padded(limit_bytes)).await);
    // Six characters for each byte of content, also in the answer.
    let escaped = format!(r#"{{"path": "/c", "content": "{}"}}"#, r"\u0001".repeat(102_400));
    let made = ok(&post_text(client, &memories, escaped).await);
    assert_eq!(store.read(&made).await["content"], "\u{1}".repeat(102_400));
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
    let named = r#"{"type": "tool_use", "name": "memory\ud83d", "input": {"command": "view"}}"#;
    let told = ok(&post_text(client, &path, named).await);
    assert!(text(&told["content"]).starts_with("Error: There is no tool of this name"), "{told}");
    let cut = post_text(client, &path, r#"{"command": "view""#).await;
    invalid(&cut, "the body is not valid: EOF while parsing");
    let block = r#"{"type": "tool_use", "id": "\udc00", "name": "memory", "input": {"command": "view"}}"#;
    invalid(&post_text(client, &path, block).await, "`id` has a character");
}
