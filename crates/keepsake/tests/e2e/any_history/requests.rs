//! The requests of calls, and the answers to batches as those of single calls.

use super::History;
use super::model::{Call, Mode, Precondition, Tool};
use crate::prelude::*;

impl History {
    /// The request of a call; its body is null if it has none.
    pub(super) fn request_of(&self, call: &Call) -> (Method, String, Value) {
        let store = &self.store;
        let version_path = |it: &usize| format!("{store}/memory_versions/{}", self.version_ids[*it]);
        let (path, body) = match call {
            Call::Create { .. } => (format!("{store}/memories?view=full"), self.body_of(call)),
            Call::Update { memory, .. } => {
                (format!("{store}/memories/{}?view=full", self.memory_ids[*memory]), self.body_of(call))
            }
            Call::Delete { memory, expected } => {
                let query = expected.as_ref().map(|expected| format!("?expected_content_sha256={expected}"));
                let (id, query) = (&self.memory_ids[*memory], query.unwrap_or_default());
                return (Method::DELETE, format!("{store}/memories/{id}{query}"), Value::Null);
            }
            Call::Redact(version) => (format!("{}/redact", version_path(version)), Value::Null),
            Call::Restore { version, precondition } => (
                format!("{}/restore?view=full", version_path(version)),
                json!({"precondition": condition_of(precondition.as_ref())}),
            ),
            Call::Tool(tool) => (format!("{store}/tool_calls"), input_of(tool)),
            Call::Erase { prefix } => {
                let body = json!({"memory_store_id": store.rsplit('/').next(), "path_prefix": prefix});
                ("/v1/erasures".to_owned(), body)
            }
            Call::Batched { call, is_atomic, beside } => {
                let second = json!({"type": "create", "path": beside, "content": ""});
                let body = json!({"atomic": is_atomic, "operations": [self.operation_of(call), second]});
                (format!("{store}/memories/batch"), body)
            }
        };
        (Method::POST, path, body)
    }

    fn body_of(&self, call: &Call) -> Value {
        let mut operation = self.operation_of(call);
        operation.as_object_mut().unwrap().retain(|field, _| field != "type" && field != "memory_id");
        operation
    }

    fn operation_of(&self, call: &Call) -> Value {
        match call {
            Call::Create { path, content, mode } => {
                let condition = (*mode == Mode::NotExists).then_some(&Precondition::NotExists);
                let kind = if *mode == Mode::Upsert { "upsert" } else { "create" };
                json!({"type": kind, "path": path, "content": content, "precondition": condition_of(condition)})
            }
            Call::Update { memory, edit, precondition } => json!({
                "type": "update", "memory_id": self.memory_ids[*memory], "content": edit.content, "path": edit.path,
                "pinned": edit.pinned, "precondition": condition_of(precondition.as_ref()),
            }),
            Call::Delete { memory, expected } => json!({
                "type": "delete", "memory_id": self.memory_ids[*memory], "expected_content_sha256": expected,
            }),
            other => panic!("{other:?} is no operation of a batch"),
        }
    }
}

fn condition_of(precondition: Option<&Precondition>) -> Value {
    match precondition {
        None => Value::Null,
        Some(Precondition::NotExists) => json!({"type": "not_exists"}),
        Some(Precondition::Sha256(sha256)) => json!({"type": "content_sha256", "content_sha256": sha256}),
    }
}

fn input_of(tool: &Tool) -> Value {
    let at = |path: &str| format!("/memories{path}");
    match tool {
        Tool::Create(path, content) => json!({"command": "create", "path": at(path), "file_text": content}),
        Tool::Replace(path, old, new) => {
            json!({"command": "str_replace", "path": at(path), "old_str": old, "new_str": new})
        }
        Tool::Insert(path, line, text) => {
            json!({"command": "insert", "path": at(path), "insert_line": line, "insert_text": text})
        }
        Tool::Delete(path) => json!({"command": "delete", "path": at(path)}),
        Tool::Rename(from, to) => json!({"command": "rename", "old_path": at(from), "new_path": at(to)}),
        Tool::Append(path, text) => json!({
            "type": "tool_use", "name": "memory_append", "input": {"path": at(path), "content": text},
        }),
    }
}

/// The answer to the first operation of a batch, as its single call would have it.
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
    let status = if first["error"]["type"] == "not_found_error" { 404 } else { 409 };
    (status, json!({"type": "error", "error": first["error"]}))
}
