//! Definitions of the tools for models and programs: names, inputs, results.

use serde_json::{Value, json};

use super::{AgentTool, MAX_EDITS, MAX_HITS, MAX_LISTED};

/// The definition of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The tool's name in the protocol.
    pub name: &'static str,
    /// A name for people.
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
        description: "A file-like memory that outlasts the conversation. `command` is one of: view (a file with \
            line numbers, or a directory two levels deep), create (a new file, never over an existing one), \
            str_replace (a text that is in the file exactly once), insert (lines after a line number, 0 for the \
            top), delete (a file, or a directory with everything in it), rename (a file or a directory). Paths \
            begin with /memories.",
        input_schema: object(
            json!({
                "command": {
                    "type": "string",
                    "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
                    "description": "What to do.",
                },
                "path": text("What to view, create, edit or delete: /memories or a path below it."),
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "view: the first and the last line, counted from 1; -1 is the end.",
                },
                "file_text": text("create: the content."),
                "old_str": text("str_replace: the text to be replaced, exactly once in the file."),
                "new_str": text("str_replace: what takes its place; empty where left out."),
                "insert_line": {"type": "integer", "minimum": 0, "description": "insert: after this line; 0 is the top."},
                "insert_text": text("insert: the lines."),
                "old_path": text("rename: where it is."),
                "new_path": text("rename: where it goes."),
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
            "Lists the files of your memory with size, time of the last change and first line. Use it before a \
             task, to see what earlier sessions left. Without `path_prefix` it begins at /memories.",
        ),
        AgentTool::Search => (
            "Search memories",
            "Finds files by words in their content and path, the best match first, with a passage and its line. \
             Understands \"quoted phrases\", -excluded words, prefixes* and path:notes/. Use it when you do not know \
             which file to read.",
        ),
        AgentTool::Read => (
            "Read a memory",
            "Reads a file as it is, without line numbers, and tells its content_sha256. A long one comes in parts: \
             go on with the `offset` that the result names.",
        ),
        AgentTool::Write => (
            "Write a memory",
            "Makes a file, or replaces the whole content of the one at the path. Give a `precondition` where what \
             others wrote meanwhile must not be lost. To change a part of a file, use memory_edit or memory_append.",
        ),
        AgentTool::Edit => (
            "Edit a memory",
            "Replaces texts in a file. Each `old_str` must be in the file exactly once, counting what the edits \
             before it changed. All edits are made or none.",
        ),
        AgentTool::Append => (
            "Append to a memory",
            "Adds whole lines at the end of a file, and makes the file where it is missing. Right for logs and \
             lists of what was done: several agents may append to one file at a time.",
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
                "path_prefix": text("The directory, such as /memories/notes; /memories where left out."),
                "depth": number(0, Some(1), "0: everything below it (the default); 1: what is directly in it, with \
                    deeper files told by their directory alone."),
                "limit": number(1, Some(MAX_LISTED), "Entries of a page, 20 where left out."),
                "page": text("The cursor that the page before named."),
            }),
            &[],
        ),
        AgentTool::Search => object(
            json!({
                "query": text("What to look for."),
                "path_prefix": text("The directory to search, such as /memories/notes; all where left out."),
                "limit": number(1, Some(MAX_HITS), "Hits of a page, 10 where left out."),
                "page": text("The cursor that the page before named."),
            }),
            &["query"],
        ),
        AgentTool::Read => object(
            json!({
                "path": path(),
                "offset": number(0, None, "The first character, counted from 0; the beginning where left out."),
                "limit": number(1, None, "Characters, at most; as many as are allowed where left out."),
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
                            "old_str": text("The text to be replaced."),
                            "new_str": text("What takes its place; empty where left out."),
                        }),
                        &["old_str"],
                    ),
                    "description": "Made one after the other.",
                },
                "precondition": precondition(false),
            }),
            &["path", "edits"],
        ),
        AgentTool::Append => object(
            json!({"path": path(), "content": text("The lines."), "precondition": precondition(true)}),
            &["path", "content"],
        ),
        AgentTool::Delete => object(
            json!({
                "path": text("The file or directory."),
                "expected_content_sha256": text("Deletes the file only if it holds content of this hash."),
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
            "content_sha256": text("With the type content_sha256: the hash that a result told before."),
        }),
        &["type"],
    );
    schema["description"] = json!("What must be so; otherwise nothing is changed.");
    schema
}

fn output(tool: AgentTool) -> Value {
    match tool {
        AgentTool::List => {
            let file = object(
                json!({
                    "type": {"const": "file"},
                    "path": text("Where it is."),
                    "content_size_bytes": number(0, None, "Bytes."),
                    "updated_at": text("When it last changed, in RFC 3339."),
                    "first_line": text("What it begins with."),
                }),
                &["type", "path", "content_size_bytes", "updated_at", "first_line"],
            );
            let directory = object(
                json!({
                    "type": {"const": "directory"},
                    "path": text("Where it is; ends in /."),
                    "read_only": flag("Whether nothing below it may be changed."),
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
                    "line": number(1, None, "The line that the snippet begins in."),
                    "snippet": text("A passage with what matched between ⟦ and ⟧."),
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
                "content": text("The part, as it is."),
                "offset": number(0, None, "Its first character."),
                "next_offset": or_null("integer", "Where to go on."),
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
                    "text": text("The lines."),
                    "is_cut": flag("Whether there were too many to be shown."),
                }),
                &["first_line", "text", "is_cut"],
            );
            changed(
                json!({
                    "edits": number(1, None, "How many were made."),
                    "snippets": {"type": "array", "items": snippet},
                }),
                &["edits", "snippets"],
            )
        }
        AgentTool::Delete => object(
            json!({"path": text("What was deleted."), "deleted": {"const": true}}),
            &["path", "deleted"],
        ),
    }
}

/// The result of a change: the common properties and the given ones.
fn changed(properties: Value, required: &[&str]) -> Value {
    let redaction = object(
        json!({"kind": text("What it is."), "line": number(1, None, "The line that it started in.")}),
        &["kind", "line"],
    );
    let mut schema = object(
        json!({
            "path": text("The file."),
            "memory_id": text("The memory's id in the API."),
            "content_sha256": or_null("string", "SHA-256 of what it holds now."),
            "content_size_bytes": or_null("integer", "Bytes of what it holds now."),
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
