//! Definitions of the tools for models and programs: names, inputs, results.

use serde_json::{Value, json};

use super::{AgentTool, MAX_EDITS, MAX_HITS, MAX_LISTED};

/// The definition of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The tool's name in the protocol.
    pub name: &'static str,
    /// A display name.
    pub title: &'static str,
    /// The tool's effect and purpose.
    pub description: &'static str,
    /// JSON Schema of its input.
    pub input_schema: Value,
    /// JSON Schema of its structured result; `None`: the result is text only.
    pub output_schema: Option<Value>,
    /// Whether the tool is read-only.
    pub is_read_only: bool,
    /// Whether the tool can delete or overwrite data.
    pub is_destructive: bool,
    /// Whether repeating a call changes nothing further.
    pub is_idempotent: bool,
}

/// Every agent tool.
pub fn definitions() -> Vec<ToolDefinition> {
    AgentTool::ALL.into_iter().map(definition).collect()
}

/// The memory tool, for clients that need its input schema.
pub fn memory_definition() -> ToolDefinition {
    ToolDefinition {
        name: "memory",
        title: "Memory",
        description: "A memory of files that persists after the conversation. `command` is one of: view (shows a file with line numbers, or a directory two levels deep), create (creates a new file; never overwrites), str_replace (replaces a text that occurs exactly once in the file), insert (inserts lines after a line number; 0 is the top), delete (deletes a file, or a directory with everything in it), rename (renames a file or a directory). Paths start with /memories.",
        input_schema: object(
            json!({
                "command": {
                    "type": "string",
                    "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
                    "description": "The command.",
                },
                "path": text("The path to view, create, edit or delete: /memories or a path below it."),
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "view: the first and the last line, counted from 1; -1 is the end of the file.",
                },
                "file_text": text("create: the content."),
                "old_str": text("str_replace: the text to replace; it must occur exactly once in the file."),
                "new_str": text("str_replace: the replacement; empty by default."),
                "insert_line": {"type": "integer", "minimum": 0, "description": "insert: the line to insert after; 0 is the top."},
                "insert_text": text("insert: the lines to insert."),
                "old_path": text("rename: the current path."),
                "new_path": text("rename: the new path."),
            }),
            &["command"],
        ),
        output_schema: None,
        is_read_only: false,
        is_destructive: true,
        is_idempotent: false,
    }
}

fn definition(tool: AgentTool) -> ToolDefinition {
    let (title, description) = words(tool);
    let is_read_only = !tool.is_change();
    ToolDefinition {
        name: tool.name(),
        title,
        description,
        input_schema: input(tool),
        output_schema: Some(output(tool)),
        is_read_only,
        is_destructive: matches!(tool, AgentTool::Write | AgentTool::Edit | AgentTool::Delete),
        // A repeated edit is refused, and repeatedly appended lines are duplicated.
        is_idempotent: is_read_only || matches!(tool, AgentTool::Write),
    }
}

const fn words(tool: AgentTool) -> (&'static str, &'static str) {
    match tool {
        AgentTool::List => (
            "List memories",
            "Lists the files of your memory with size, time of the last change and first line. Use it before a task to see notes of earlier sessions. Without `path_prefix`, it lists /memories.",
        ),
        AgentTool::Search => (
            "Search memories",
            "Finds files by words in their content and path, best match first, with a passage and its line number. Supports \"quoted phrases\", -excluded words, prefixes* and path:notes/. Use it when you do not know which file to read.",
        ),
        AgentTool::Read => (
            "Read a memory",
            "Reads a file verbatim, without line numbers, and returns its content_sha256. A long file is returned in parts: continue with the `offset` in the result.",
        ),
        AgentTool::Write => (
            "Write a memory",
            "Creates a file, or replaces the whole content of an existing file. Set a `precondition` to avoid overwriting concurrent changes. To change a part of a file, use memory_edit or memory_append.",
        ),
        AgentTool::Edit => (
            "Edit a memory",
            "Replaces texts in a file. Each `old_str` must occur exactly once in the file, after the previous edits of the call. Either all edits are applied or none.",
        ),
        AgentTool::Append => (
            "Append to a memory",
            "Adds whole lines at the end of a file; creates the file if it does not exist. Use it for logs and progress lists: several agents can append to one file at the same time.",
        ),
        AgentTool::Delete => (
            "Delete memories",
            "Deletes a file, or a directory with everything in it.",
        ),
    }
}

fn input(tool: AgentTool) -> Value {
    let path = || text("The file, such as /memories/notes/today.md.");
    match tool {
        AgentTool::List => object(
            json!({
                "path_prefix": text("The directory, such as /memories/notes; /memories by default."),
                "depth": number(0, Some(1), "0: all files below it (the default); 1: only its direct entries; deeper files are represented by their directory."),
                "limit": number(1, Some(MAX_LISTED), "Entries per page; 20 by default."),
                "page": text("The cursor from the previous page."),
            }),
            &[],
        ),
        AgentTool::Search => object(
            json!({
                "query": text("The search query."),
                "path_prefix": text("The directory to search, such as /memories/notes; all directories by default."),
                "limit": number(1, Some(MAX_HITS), "Hits per page; 10 by default."),
                "page": text("The cursor from the previous page."),
            }),
            &["query"],
        ),
        AgentTool::Read => object(
            json!({
                "path": path(),
                "offset": number(0, None, "The first character, counted from 0; 0 by default."),
                "limit": number(1, None, "Maximum number of characters; the allowed maximum by default."),
            }),
            &["path"],
        ),
        AgentTool::Write => object(
            json!({"path": path(), "content": text("The whole content."), "precondition": precondition(true)}),
            &["path", "content"],
        ),
        AgentTool::Edit => object(
            json!({
                "path": path(),
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_EDITS,
                    "items": object(
                        json!({
                            "old_str": text("The text to replace."),
                            "new_str": text("The replacement; empty by default."),
                        }),
                        &["old_str"],
                    ),
                    "description": "Applied in order.",
                },
                "precondition": precondition(false),
            }),
            &["path", "edits"],
        ),
        AgentTool::Append => object(
            json!({"path": path(), "content": text("The lines to append."), "precondition": precondition(true)}),
            &["path", "content"],
        ),
        AgentTool::Delete => object(
            json!({
                "path": text("The file or directory."),
                "expected_content_sha256": text("Deletes the file only if its content has this hash."),
            }),
            &["path"],
        ),
    }
}

fn precondition(may_not_exist: bool) -> Value {
    let types: &[&str] = if may_not_exist {
        &["not_exists", "content_sha256"]
    } else {
        &["content_sha256"]
    };
    let mut schema = object(
        json!({
            "type": {"type": "string", "enum": types},
            "content_sha256": text("With the type content_sha256: the hash from an earlier result."),
        }),
        &["type"],
    );
    schema["description"] = json!("The condition; if it does not hold, nothing is changed.");
    schema
}

fn output(tool: AgentTool) -> Value {
    match tool {
        AgentTool::List => {
            let file = object(
                json!({
                    "type": {"const": "file"},
                    "path": text("The path of the file."),
                    "content_size_bytes": number(0, None, "Bytes."),
                    "updated_at": text("The time of the last change, in RFC 3339 format."),
                    "first_line": text("The first line of the file."),
                }),
                &["type", "path", "content_size_bytes", "updated_at", "first_line"],
            );
            let directory = object(
                json!({
                    "type": {"const": "directory"},
                    "path": text("The path of the directory; ends with /."),
                    "read_only": flag("Whether everything below it is read-only."),
                }),
                &["type", "path", "read_only"],
            );
            object(
                json!({
                    "path": text("The directory."),
                    "entries": {"type": "array", "items": {"anyOf": [file, directory]}},
                    "next_page": or_null("string", "The cursor of the next page."),
                }),
                &["path", "entries", "next_page"],
            )
        }
        AgentTool::Search => {
            let hit = object(
                json!({
                    "path": text("The file."),
                    "score": {"type": "number", "description": "Higher is better; comparable within one search."},
                    "line": number(1, None, "The line in which the snippet begins."),
                    "snippet": text("A passage with the matches between ⟦ and ⟧."),
                }),
                &["path", "score", "line", "snippet"],
            );
            object(
                json!({
                    "hits": {"type": "array", "items": hit},
                    "next_page": or_null("string", "The cursor of the next page."),
                }),
                &["hits", "next_page"],
            )
        }
        AgentTool::Read => object(
            json!({
                "path": text("The file."),
                "content": text("The content of this part, verbatim."),
                "offset": number(0, None, "The offset of the first character."),
                "next_offset": or_null("integer", "The offset of the next part."),
                "total_chars": number(0, None, "Characters of the whole file."),
                "content_size_bytes": number(0, None, "Bytes of the whole file."),
                "content_sha256": text("SHA-256 of the whole file."),
            }),
            &[
                "path",
                "content",
                "offset",
                "next_offset",
                "total_chars",
                "content_size_bytes",
                "content_sha256",
            ],
        ),
        AgentTool::Write | AgentTool::Append => {
            let outcome = json!({"type": "string", "enum": ["created", "replaced", "appended"]});
            changed(json!({"outcome": outcome}), &["outcome"])
        }
        AgentTool::Edit => {
            let snippet = object(
                json!({
                    "first_line": number(1, None, "The number of the first line."),
                    "text": text("The lines to append."),
                    "is_cut": flag("Whether lines are omitted because of the limit."),
                }),
                &["first_line", "text", "is_cut"],
            );
            changed(
                json!({
                    "edits": number(1, None, "The number of applied edits."),
                    "snippets": {"type": "array", "items": snippet},
                }),
                &["edits", "snippets"],
            )
        }
        AgentTool::Delete => object(
            json!({"path": text("The deleted path."), "deleted": {"const": true}}),
            &["path", "deleted"],
        ),
    }
}

/// The result of a change: the common properties and the given ones.
fn changed(properties: Value, required: &[&str]) -> Value {
    let redaction = object(
        json!({"kind": text("The kind of secret."), "line": number(1, None, "The line in which it started.")}),
        &["kind", "line"],
    );
    let mut schema = object(
        json!({
            "path": text("The file."),
            "memory_id": text("The memory's id in the API."),
            "content_sha256": or_null("string", "SHA-256 of the current content."),
            "content_size_bytes": or_null("integer", "Bytes of the current content."),
            "redactions": {"type": "array", "items": redaction, "description": "Secrets that were replaced."},
        }),
        &[
            "path",
            "memory_id",
            "content_sha256",
            "content_size_bytes",
            "redactions",
        ],
    );
    if let (Value::Object(more), Value::Object(all)) = (properties, &mut schema["properties"]) {
        all.extend(more);
    }
    if let Value::Array(all) = &mut schema["required"] {
        all.extend(required.iter().map(|name| json!(name)));
    }
    schema
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "properties are written where they are used"
)]
fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn or_null(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}

fn number(least: u64, most: Option<u64>, description: &str) -> Value {
    let mut schema = json!({"type": "integer", "minimum": least, "description": description});
    if let Some(most) = most {
        schema["maximum"] = json!(most);
    }
    schema
}
