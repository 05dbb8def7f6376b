//! The requests of each operation.
//!
//! To add an operation: add a line to [`CASES`] (or to [`OPEN`], where it takes
//! no credential) with bodies that its owner may send one after the other. For
//! each parameter that is new, say in [`meaning`] what it stands for; for an id
//! of a new kind, add a [`Kind`] and make one in `fixture`. A list with a new
//! kind of item needs two of them in `fixture`, for it to have a second page.

use serde_json::{Value, json};

use super::fixture::{Ids, Kind};

/// A body, and the ids that it holds besides those of the URL.
pub(super) struct Body {
    pub(super) kinds: &'static [Kind],
    pub(super) of: fn(&Ids) -> Value,
}

/// The meaning of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// An id, which may be another tenant's.
    Of(Kind),
    /// Nothing of anybody's; this value is good everywhere.
    Plain(&'static str),
}

const fn body(kinds: &'static [Kind], of: fn(&Ids) -> Value) -> Body {
    Body { kinds, of }
}

/// Operations that anyone may ask.
pub(super) const OPEN: [&str; 5] =
    ["mcp.protected_resource", "health.live", "health.ready", "reference.document", "reference.page"];

const NO_BODY: &[Body] = &[];
const EMPTY: &[Body] = &[body(&[], |_| json!({}))];
const STORE_UPDATES: &[Body] = &[
    body(&[], |_| json!({"name": "renamed", "metadata": {"a": "b"}})),
    body(&[], |_| json!({"sensitive_data_policy": "off"})),
];
const MEMORY_UPDATES: &[Body] = &[
    body(&[Kind::Hash], |ids| json!({"content": "new", "precondition": holds(ids)})),
    body(&[], |_| json!({"path": "/moved"})),
    body(&[], |_| json!({"expires_at": "2999-01-01"})),
    body(&[], |_| json!({"pinned": true})),
];
const BATCHES: &[Body] = &[
    body(&[Kind::Memory, Kind::Hash], |ids| {
        let update = json!({"type": "update", "memory_id": ids.get(Kind::Memory), "content": "new",
            "precondition": holds(ids)});
        json!({"operations": [{"type": "create", "path": "/batch/made", "content": "x"}, update]})
    }),
    body(&[Kind::Memory], |ids| {
        let pin = json!({"type": "update", "memory_id": ids.get(Kind::Memory), "pinned": true});
        json!({"atomic": true, "operations": [{"type": "upsert", "path": "/batch/made", "content": "y"}, pin]})
    }),
];
const RESTORATIONS: &[Body] =
    &[body(&[Kind::Hash], |ids| json!({"precondition": holds(ids)})), body(&[], |_| json!({}))];
const TOOL_CALLS: &[Body] = &[
    body(&[], |_| json!({"command": "view", "path": "/memories"})),
    body(&[Kind::Path], |ids| json!({"command": "view", "path": ids.path()})),
    body(&[], |_| json!({"command": "create", "path": "/memories/made", "file_text": "x"})),
    body(
        &[Kind::Path],
        |ids| json!({"command": "str_replace", "path": ids.path(), "old_str": "second", "new_str": "third"}),
    ),
    body(
        &[Kind::Path],
        |ids| json!({"command": "insert", "path": ids.path(), "insert_line": 0, "insert_text": "x"}),
    ),
    body(&[Kind::Path], |ids| {
        let input = json!({"command": "insert", "path": ids.path(), "insert_line": 0, "insert_text": "y"});
        json!({"type": "tool_use", "id": "toolu_1", "name": "memory", "input": input})
    }),
    body(&[], |_| block("memory_list", &json!({}))),
    body(&[], |_| block("memory_search", &json!({"query": "first second"}))),
    body(&[Kind::Path], |ids| block("memory_read", &json!({"path": ids.path()}))),
    body(&[Kind::Path], |ids| {
        let edits = json!([{"old_str": "third", "new_str": "fourth"}]);
        block("memory_edit", &json!({"path": ids.path(), "edits": edits}))
    }),
    body(&[], |_| block("memory_append", &json!({"path": "/memories/written", "content": "y"}))),
    body(&[], |_| block("memory_write", &json!({"path": "/memories/written", "content": "z"}))),
    body(&[], |_| block("memory_delete", &json!({"path": "/memories/written"}))),
    body(
        &[Kind::Path],
        |ids| json!({"command": "rename", "old_path": ids.path(), "new_path": "/memories/moved"}),
    ),
    body(
        &[Kind::Path],
        |ids| json!({"command": "rename", "old_path": "/memories/moved", "new_path": ids.path()}),
    ),
    body(&[Kind::Path], |ids| json!({"command": "delete", "path": ids.path()})),
];

const CALLS_IN_SESSION: &[Body] = &[
    body(&[], |_| json!({"command": "view", "path": "/memories"})),
    body(&[], |ids| json!({"command": "view", "path": ids.get(Kind::MountedPath)})),
    body(
        &[],
        |ids| json!({"command": "insert", "path": ids.get(Kind::MountedPath), "insert_line": 0, "insert_text": "x"}),
    ),
    body(&[], |_| block("memory_list", &json!({}))),
    body(&[], |ids| json!({"command": "delete", "path": ids.get(Kind::MountedPath)})),
];

const MESSAGES: &[Body] = &[
    body(&[], |_| message("tools/list", &json!({}))),
    body(&[], |_| call("memory_list", &json!({}))),
    body(&[Kind::Path], |ids| call("memory_read", &json!({"path": ids.path()}))),
    body(&[], |_| message("resources/list", &json!({}))),
];

const MESSAGES_IN_SESSION: &[Body] = &[
    body(&[], |_| message("tools/list", &json!({}))),
    body(&[], |_| call("memory_list", &json!({}))),
    body(&[Kind::MountedPath], |ids| call("memory_read", &json!({"path": ids.get(Kind::MountedPath)}))),
    body(&[], |_| message("resources/list", &json!({}))),
    body(&[Kind::MountedPath], |ids| {
        call("memory_append", &json!({"path": ids.get(Kind::MountedPath), "content": "x"}))
    }),
    body(&[Kind::MountedPath], |ids| call("memory_delete", &json!({"path": ids.get(Kind::MountedPath)}))),
];

/// Operations that only a session's token is good for: an API key is answered 400.
pub(super) const OF_TOKENS: [&str; 1] = ["mcp.of_session"];

/// Operations that need a credential, by their ids, with what they are sent.
pub(super) const CASES: &[(&str, &[Body])] = &[
    ("memory_stores.create", &[body(&[], |_| json!({"name": "made"}))]),
    ("memory_stores.list", NO_BODY),
    ("memory_stores.retrieve", NO_BODY),
    ("memory_stores.update", STORE_UPDATES),
    ("memory_stores.update_by_patch", STORE_UPDATES),
    ("memory_stores.archive", EMPTY),
    ("memory_stores.usage", NO_BODY),
    ("memory_stores.changes.list", NO_BODY),
    ("memory_stores.changes.stream", NO_BODY),
    ("memory_stores.import", &[body(&[], |_| json!({"position": 0, "versions": []}))]),
    ("memory_stores.delete", NO_BODY),
    ("memories.create", &[body(&[], |_| json!({"path": "/made", "content": "x"}))]),
    ("memories.batch", BATCHES),
    ("memories.list", NO_BODY),
    ("memories.retrieve", NO_BODY),
    ("memories.update", MEMORY_UPDATES),
    ("memories.update_by_patch", MEMORY_UPDATES),
    ("memories.delete", NO_BODY),
    ("memories.search", NO_BODY),
    ("memory_stores.search", NO_BODY),
    ("memory_versions.list", NO_BODY),
    ("memory_versions.retrieve", NO_BODY),
    ("memory_versions.redact", EMPTY),
    ("memory_versions.restore", RESTORATIONS),
    ("tool_calls.create", TOOL_CALLS),
    ("tools.list", NO_BODY),
    ("mcp.of_session", MESSAGES_IN_SESSION),
    ("mcp.of_store", MESSAGES),
    (
        "api_keys.create",
        &[body(
            &[Kind::Store],
            |ids| json!({"name": "made", "scopes": ["memory:read"], "memory_store_ids": [ids.get(Kind::Store)]}),
        )],
    ),
    ("api_keys.list", NO_BODY),
    ("api_keys.retrieve", NO_BODY),
    ("api_keys.revoke", EMPTY),
    (
        "erasures.create",
        &[
            body(
                &[Kind::Store],
                |ids| json!({"memory_store_id": ids.get(Kind::Store), "path_prefix": "/none/"}),
            ),
            body(&[], |_| json!({"store_metadata": {"nobody": "has this"}})),
        ],
    ),
    (
        "sessions.create",
        &[body(
            &[Kind::Store],
            |ids| json!({"agent": "a", "environment_id": "e", "resources": [attached(ids.get(Kind::Store))]}),
        )],
    ),
    ("sessions.list", NO_BODY),
    ("sessions.retrieve", NO_BODY),
    ("sessions.update", &[body(&[], |_| json!({"title": "new"}))]),
    ("sessions.token", EMPTY),
    ("sessions.archive", EMPTY),
    ("sessions.delete", NO_BODY),
    ("sessions.tool_calls.create", CALLS_IN_SESSION),
    ("sessions.events.list", NO_BODY),
    ("sessions.events.stream", NO_BODY),
    ("sessions.resources.add", &[body(&[Kind::Spare], |ids| attached(ids.get(Kind::Spare)))]),
    ("sessions.resources.list", NO_BODY),
    ("sessions.resources.retrieve", NO_BODY),
    ("sessions.resources.update", &[body(&[], |_| json!({"access": "read_only", "instructions": "new"}))]),
    ("sessions.resources.delete", NO_BODY),
    ("erasures.list", NO_BODY),
    ("erasures.retrieve", NO_BODY),
    ("audit.list", NO_BODY),
];

/// What a parameter of a path, a query or a header stands for.
pub(super) fn meaning(parameter: &str) -> Meaning {
    match parameter {
        "memory_store_id" | "memory_store_ids[]" | "object_id" => Meaning::Of(Kind::Store),
        "memory_id" => Meaning::Of(Kind::Memory),
        "memory_version_id" => Meaning::Of(Kind::Version),
        "api_key_id" | "actor_id" => Meaning::Of(Kind::ApiKey),
        "erasure_id" => Meaning::Of(Kind::Erasure),
        "session_id" => Meaning::Of(Kind::Session),
        "resource_id" => Meaning::Of(Kind::Resource),
        "expected_content_sha256" => Meaning::Of(Kind::Hash),
        "path" => Meaning::Of(Kind::ApiPath),
        "path_prefix" => Meaning::Of(Kind::Directory),
        "page" => Meaning::Of(Kind::Page),
        // A name from the issuer of a token; tenants may share it.
        "service_account_id" => Meaning::Plain("ci"),
        "created_at[gt]" | "created_at[gte]" => Meaning::Plain("2020-01-01"),
        "created_at[lt]" | "created_at[lte]" => Meaning::Plain("2999-01-01"),
        // Client-defined names, which tenants may share.
        "agent_id" => Meaning::Plain("agent_1"),
        "deployment_id" => Meaning::Plain("depl_1"),
        "agent_version" | "after" => Meaning::Plain("0"),
        "statuses[]" => Meaning::Plain("idle"),
        "event_deltas[]" => Meaning::Plain("agent.message"),
        "types[]" => Meaning::Plain("agent.tool_use"),
        "order" => Meaning::Plain("asc"),
        "include_archived" | "include_imported" | "keep_tidy" | "file_index" => Meaning::Plain("true"),
        "depth" | "limit" => Meaning::Plain("1"),
        "operation" => Meaning::Plain("created"),
        "topic" => Meaning::Plain("gardens"),
        "action" => Meaning::Plain("memory_store.create"),
        "view" => Meaning::Plain("full"),
        // The name of both memories of the fixture.
        "query" => Meaning::Plain("one,two"),
        // Anything but `true`, so that the header below makes creations replace.
        "beta" => Meaning::Plain("false"),
        "anthropic-beta" => Meaning::Plain("managed-agents-2026-04-01"),
        unknown => panic!("`{unknown}` is new: say in isolation/cases.rs what it stands for"),
    }
}

/// The request bodies of an operation.
pub(super) fn bodies(operation_id: &str) -> &'static [Body] {
    let case = CASES.iter().find(|(id, _)| *id == operation_id);
    case.unwrap_or_else(|| panic!("{operation_id} has no case in isolation/cases.rs")).1
}

/// A block of an agent tool; without an id, so that none is a repeated call.
fn block(name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "name": name, "input": input})
}

fn attached(store: &str) -> Value {
    json!({"type": "memory_store", "memory_store_id": store})
}

/// A request of MCP.
fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn call(tool: &str, arguments: &Value) -> Value {
    message("tools/call", &json!({"name": tool, "arguments": arguments}))
}

fn holds(ids: &Ids) -> Value {
    json!({"type": "content_sha256", "content_sha256": ids.get(Kind::Hash)})
}
