//! The requests of each operation.
//!
//! To add an operation: if it has a body, add a line to [`CASES`] with bodies that its owner
//! may send one after the other; if it takes no credential, add it to [`OPEN`]. For each
//! parameter that is new, say in [`meaning`] what it stands for; for an id of a new kind, add
//! it to `KINDS` and make one in `fixture`. A list with a new kind of item needs two of them
//! in `fixture`, for it to have a second page.

pub(super) const OPEN: [&str; 5] =
    ["mcp.protected_resource", "health.live", "health.ready", "reference.document", "reference.page"];

/// Operations that only a session's token is good for: an API key is answered 400.
pub(super) const OF_TOKENS: [&str; 1] = ["mcp.of_session"];

/// JSON, with kinds of ids in braces.
type Bodies = &'static [&'static str];

const EMPTY: Bodies = &["{}"];
const STORE_UPDATES: Bodies =
    &[r#"{"name": "renamed", "metadata": {"a": "b"}}"#, r#"{"sensitive_data_policy": "off"}"#];
const MEMORY_UPDATES: Bodies = &[
    r#"{"content": "new", "precondition": {"type": "content_sha256", "content_sha256": "{hash}"}}"#,
    r#"{"path": "/moved"}"#,
    r#"{"expires_at": "2999-01-01"}"#,
    r#"{"pinned": true}"#,
];
const BATCHES: Bodies = &[
    r#"{"operations": [{"type": "create", "path": "/batch/made", "content": "x"}, {"type": "update",
        "memory_id": "{memory}", "content": "new",
        "precondition": {"type": "content_sha256", "content_sha256": "{hash}"}}]}"#,
    r#"{"atomic": true, "operations": [{"type": "upsert", "path": "/batch/made", "content": "y"},
        {"type": "update", "memory_id": "{memory}", "pinned": true}]}"#,
];
const RESTORATIONS: Bodies =
    &[r#"{"precondition": {"type": "content_sha256", "content_sha256": "{hash}"}}"#, "{}"];
/// Blocks of agent tools have no id, so that none is a repeated call.
const TOOL_CALLS: Bodies = &[
    r#"{"command": "view", "path": "/memories"}"#,
    r#"{"command": "view", "path": "{path}"}"#,
    r#"{"command": "create", "path": "/memories/made", "file_text": "x"}"#,
    r#"{"command": "str_replace", "path": "{path}", "old_str": "second", "new_str": "third"}"#,
    r#"{"command": "insert", "path": "{path}", "insert_line": 0, "insert_text": "x"}"#,
    r#"{"type": "tool_use", "id": "toolu_1", "name": "memory",
        "input": {"command": "insert", "path": "{path}", "insert_line": 0, "insert_text": "y"}}"#,
    r#"{"type": "tool_use", "name": "memory_list", "input": {}}"#,
    r#"{"type": "tool_use", "name": "memory_search", "input": {"query": "first second"}}"#,
    r#"{"type": "tool_use", "name": "memory_read", "input": {"path": "{path}"}}"#,
    r#"{"type": "tool_use", "name": "memory_edit",
        "input": {"path": "{path}", "edits": [{"old_str": "third", "new_str": "fourth"}]}}"#,
    r#"{"type": "tool_use", "name": "memory_append", "input": {"path": "/memories/written", "content": "y"}}"#,
    r#"{"type": "tool_use", "name": "memory_write", "input": {"path": "/memories/written", "content": "z"}}"#,
    r#"{"type": "tool_use", "name": "memory_delete", "input": {"path": "/memories/written"}}"#,
    r#"{"command": "rename", "old_path": "{path}", "new_path": "/memories/moved"}"#,
    r#"{"command": "rename", "old_path": "/memories/moved", "new_path": "{path}"}"#,
    r#"{"command": "delete", "path": "{path}"}"#,
];
const CALLS_IN_SESSION: Bodies = &[
    r#"{"command": "view", "path": "/memories"}"#,
    r#"{"command": "view", "path": "{mounted_path}"}"#,
    r#"{"command": "insert", "path": "{mounted_path}", "insert_line": 0, "insert_text": "x"}"#,
    r#"{"type": "tool_use", "name": "memory_list", "input": {}}"#,
    r#"{"command": "delete", "path": "{mounted_path}"}"#,
];
const MESSAGES: Bodies = &[
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_list", "arguments": {}}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory_read", "arguments": {"path": "{path}"}}}"#,
];
const MESSAGES_IN_SESSION: Bodies = &[
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "memory_list", "arguments": {}}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory_read", "arguments": {"path": "{mounted_path}"}}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory_append", "arguments": {"path": "{mounted_path}", "content": "x"}}}"#,
    r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "memory_delete", "arguments": {"path": "{mounted_path}"}}}"#,
];

/// The request bodies of each operation that has one, by the operation's id.
pub(super) const CASES: &[(&str, Bodies)] = &[
    (
        "memory_stores.create",
        &[r#"{"name": "made"}"#, r#"{"name": "made", "fork_of": {"memory_store_id": "{store}"}}"#],
    ),
    ("memory_stores.update", STORE_UPDATES),
    ("memory_stores.update_by_patch", STORE_UPDATES),
    ("memory_stores.archive", EMPTY),
    ("memory_stores.import", &[r#"{"position": 0, "versions": []}"#]),
    (
        "memory_stores.undo",
        &[
            r#"{"session_id": "{session}"}"#,
            r#"{"api_key_id": "{api_key}", "path_prefix": "{directory}", "dry_run": true}"#,
        ],
    ),
    ("memory_stores.restore", &[r#"{"at_seq": 1, "path_prefix": "{directory}", "dry_run": true}"#]),
    (
        "memory_stores.test",
        &[r#"{"tests": "tests:\n- search: first second\n  finds: /none\n- max_files: 1\n"}"#],
    ),
    ("memories.create", &[r#"{"path": "/made", "content": "x"}"#]),
    ("memories.batch", BATCHES),
    ("memories.update", MEMORY_UPDATES),
    ("memories.update_by_patch", MEMORY_UPDATES),
    ("memory_versions.redact", EMPTY),
    ("memory_versions.restore", RESTORATIONS),
    ("tool_calls.create", TOOL_CALLS),
    ("mcp.of_session", MESSAGES_IN_SESSION),
    ("mcp.of_store", MESSAGES),
    ("api_keys.create", &[r#"{"name": "made", "scopes": ["memory:read"], "memory_store_ids": ["{store}"]}"#]),
    ("api_keys.revoke", EMPTY),
    (
        "erasures.create",
        &[
            r#"{"memory_store_id": "{store}", "path_prefix": "/none/"}"#,
            r#"{"store_metadata": {"nobody": "has this"}}"#,
        ],
    ),
    (
        "sessions.create",
        &[r#"{"agent": "a", "environment_id": "e",
            "resources": [{"type": "memory_store", "memory_store_id": "{store}"}]}"#],
    ),
    ("sessions.update", &[r#"{"title": "new"}"#]),
    ("sessions.token", EMPTY),
    ("sessions.archive", EMPTY),
    ("sessions.tool_calls.create", CALLS_IN_SESSION),
    ("sessions.resources.add", &[r#"{"type": "memory_store", "memory_store_id": "{spare}"}"#]),
    ("sessions.resources.update", &[r#"{"access": "read_only", "instructions": "new"}"#]),
];

pub(super) fn bodies(operation_id: &str) -> Bodies {
    let case = CASES.iter().find(|(id, _)| *id == operation_id);
    case.map(|(_, bodies)| *bodies).unwrap_or_default()
}

/// Whether a parameter of a query goes with the other values. Those of an archive do not go with a
/// body of JSON, and `api::imports` sends them; no memory of the fixture was there in 2020.
pub(super) fn is_sent(operation_id: &str, parameter: &str) -> bool {
    match operation_id {
        "memory_stores.import" => !["on_conflict", "prefix", "dry_run"].contains(&parameter),
        "memories.retrieve" => parameter != "at",
        _ => true,
    }
}

/// What a parameter of a path, a query or a header stands for: a kind of id in braces, which
/// may be another tenant's, or nothing of anybody's.
pub(super) fn meaning(parameter: &str) -> &'static str {
    match parameter {
        "memory_store_id" | "memory_store_ids[]" | "object_id" => "{store}",
        "other_store_id" => "{spare}",
        "memory_id" => "{memory}",
        "memory_version_id" => "{version}",
        "api_key_id" | "actor_id" => "{api_key}",
        "erasure_id" => "{erasure}",
        "undo_id" => "{undo}",
        "session_id" => "{session}",
        "resource_id" => "{resource}",
        "expected_content_sha256" => "{hash}",
        "path" => "{api_path}",
        "path_prefix" | "prefix" => "{directory}",
        "page" => "{page}",
        // Names from clients and from the issuer of a token, which tenants may share.
        "service_account_id" => "ci",
        "agent_id" => "agent_1",
        "deployment_id" => "depl_1",
        "agent_version" | "after" | "from_seq" | "to_seq" => "0",
        // The fixture's stores have as many versions.
        "at_seq" => "7",
        "created_at[gt]" | "created_at[gte]" | "at" | "from" | "to" => "2020-01-01",
        "created_at[lt]" | "created_at[lte]" => "2999-01-01",
        "statuses[]" => "idle",
        "event_deltas[]" => "agent.message",
        "types[]" => "agent.tool_use",
        "order" => "asc",
        "include_archived" | "include_imported" | "keep_tidy" | "file_index" | "versions" | "memories"
        | "dry_run" | "explain" => "true",
        "on_conflict" => "replace",
        "depth" | "limit" | "days" | "added_bytes" => "1",
        "operation" => "created",
        "topic" => "gardens",
        "action" => "memory_store.create",
        "view" => "full",
        // The name of both memories of the fixture.
        "query" => "one,two",
        // Anything but `true`, so that the header below makes creations replace.
        "beta" => "false",
        "anthropic-beta" => "managed-agents-2026-04-01",
        unknown => panic!("`{unknown}` is new: say in isolation/cases.rs what it stands for"),
    }
}

/// A path of a route with what its parameters stand for.
pub(super) fn meant(path: &str) -> String {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    names.fold(path.to_owned(), |path, (name, _)| path.replace(&format!("{{{name}}}"), meaning(name)))
}
