//! Calls that are sent as the first of two operations of a batch.

use serde_json::{Value, json};

use super::model::{Call, Mode, Precondition};

/// The body of a batch with the call, and with a new memory beside it.
pub(super) fn body_of(call: &Call, beside: &str, is_atomic: bool, memory_ids: &[String]) -> Value {
    let first = match call {
        Call::Create { path, content, mode } => {
            let condition = (*mode == Mode::NotExists).then_some(Precondition::NotExists);
            let kind = if *mode == Mode::Upsert { "upsert" } else { "create" };
            json!({"type": kind, "path": path, "content": content, "precondition": condition_of(condition.as_ref())})
        }
        Call::Update { memory, content, path, pinned, precondition } => json!({
            "type": "update", "memory_id": memory_ids[*memory], "content": content, "path": path, "pinned": pinned,
            "precondition": condition_of(precondition.as_ref()),
        }),
        Call::Delete { memory, expected } => json!({
            "type": "delete", "memory_id": memory_ids[*memory], "expected_content_sha256": expected,
        }),
        other => panic!("{other:?} is no operation of a batch"),
    };
    let second = json!({"type": "create", "path": beside, "content": ""});
    json!({"atomic": is_atomic, "operations": [first, second]})
}

/// A precondition as requests have it.
pub(super) fn condition_of(precondition: Option<&Precondition>) -> Value {
    match precondition {
        None => Value::Null,
        Some(Precondition::NotExists) => json!({"type": "not_exists"}),
        Some(Precondition::Sha256(sha256)) => json!({"type": "content_sha256", "content_sha256": sha256}),
    }
}

/// The answer to the first operation, as its single call would have it.
pub(super) fn first_answer(status: u16, body: &Value, told: &str) -> (u16, Value) {
    if status != 200 {
        assert_eq!(body["error"]["operation"], 0, "{told}");
        return (status, body.clone());
    }
    let first = &body["data"][0];
    if first["status"] == "deleted" {
        return (200, json!({"id": first["memory_id"], "type": "memory_deleted"}));
    }
    if first["error"].is_null() {
        return (200, first["memory"].clone());
    }
    let status = match first["error"]["type"].as_str() {
        Some("not_found_error") => 404,
        _ => 409,
    };
    (status, json!({"type": "error", "error": first["error"]}))
}
