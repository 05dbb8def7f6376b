//! Definitions of the tools for models and programs: names, inputs, results.

use serde_json::{Value, json};

use super::{AgentTool, MAX_EDITS, MAX_HITS, MAX_LISTED};

/// The schema of an object with these required and optional properties.
macro_rules! object {
    ({$($required:literal: $schema:expr),* $(,)?}, {$($optional:literal: $other:expr),* $(,)?}) => {
        json!({
            "type": "object",
            "properties": {$($required: $schema,)* $($optional: $other,)*},
            "required": [$($required),*],
        })
    };
    ($required:tt) => {
        object!($required, {})
    };
}

#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The tool's name in the protocol.
    pub name: &'static str,
    /// A display name.
    pub title: &'static str,
    pub description: &'static str,
    pub input_schema: Value,
    /// JSON Schema of its structured result; `None`: the result is text only.
    pub output_schema: Option<Value>,
    pub is_read_only: bool,
    /// Whether the tool can delete or overwrite data.
    pub is_destructive: bool,
    /// Whether repeating a call changes nothing further.
    pub is_idempotent: bool,
}

pub fn definitions() -> Vec<ToolDefinition> {
    AgentTool::ALL.into_iter().map(definition).collect()
}

/// The memory tool, for clients that need its input schema.
pub fn memory_definition() -> ToolDefinition {
    ToolDefinition {
        name: "memory",
        title: "Memory",
        description: "A memory of files that persists after the conversation. `command` is one of: view (shows a file with line numbers, or a directory two levels deep), create (creates a new file; never overwrites), str_replace (replaces a text that occurs exactly once in the file), insert (inserts lines after a line number; 0 is the top), delete (deletes a file, or a directory with everything in it), rename (renames a file or a directory). Paths start with /memories.",
        input_schema: object!(
            {
                "command": json!({
                    "type": "string",
                    "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
                    "description": "The command.",
                }),
            },
            {
                "path": text("The path to view, create, edit or delete: /memories or a path below it."),
                "view_range": json!({
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "view: the first and the last line, counted from 1; -1 is the end of the file.",
                }),
                "file_text": text("create: the content."),
                "old_str": text("str_replace: the text to replace; it must occur exactly once in the file."),
                "new_str": text("str_replace: the replacement; empty by default."),
                "offset": number(0, None, "view: characters of the file to skip, to read on in a long line."),
                "insert_line": number(0, None, "insert: the line to insert after; 0 is the top."),
                "insert_text": text("insert: the lines to insert."),
                "old_path": text("rename: the current path."),
                "new_path": text("rename: the new path."),
            }
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
        input_schema: closed(input(tool)),
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
            "Finds files by meaning and by words in their content and path, best match first, with a passage and its line number. Say what you look for in your own words, in any language. \"Quoted phrases\" are found word for word; -excluded words, prefixes* and path:notes/ narrow the search. Use it when you do not know which file to read.",
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
        AgentTool::Delete => ("Delete memories", "Deletes a file, or a directory with everything in it."),
    }
}

/// The schema of an object without other properties.
fn closed(mut schema: Value) -> Value {
    schema["additionalProperties"] = json!(false);
    schema
}

fn input(tool: AgentTool) -> Value {
    let path = text("The file, such as /memories/notes/today.md.");
    let page = text("The cursor from the previous page.");
    match tool {
        AgentTool::List => object!({}, {
            "path_prefix": text("The directory, such as /memories/notes; /memories by default."),
            "depth": number(0, Some(1), "0: all files below it (the default); 1: only its direct entries; deeper files are represented by their directory."),
            "limit": number(1, Some(MAX_LISTED), "Entries per page; 20 by default."),
            "page": page,
        }),
        AgentTool::Search => object!({"query": text("What to look for: words, or a question.")}, {
            "path_prefix": text("The directory to search, such as /memories/notes; all directories by default."),
            "limit": number(1, Some(MAX_HITS), "Hits per page; 10 by default."),
            "page": page,
        }),
        AgentTool::Read => object!({"path": path}, {
            "offset": number(0, None, "The first character, counted from 0; 0 by default."),
            "limit": number(1, None, "Maximum number of characters; the allowed maximum by default."),
        }),
        AgentTool::Write => object!(
            {"path": path, "content": text("The whole content.")},
            {"precondition": precondition(&["not_exists", "content_sha256"])}
        ),
        AgentTool::Edit => object!(
            {
                "path": path,
                "edits": json!({
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_EDITS,
                    "items": closed(object!(
                        {"old_str": text("The text to replace.")},
                        {"new_str": text("The replacement; empty by default.")}
                    )),
                    "description": "Applied in order.",
                }),
            },
            {"precondition": precondition(&["content_sha256"])}
        ),
        AgentTool::Append => object!(
            {"path": path, "content": text("The lines to append.")},
            {"precondition": precondition(&["not_exists", "content_sha256"])}
        ),
        AgentTool::Delete => object!(
            {"path": text("The file or directory.")},
            {"expected_content_sha256": text("Deletes the file only if its content has this hash.")}
        ),
    }
}

fn precondition(types: &[&str]) -> Value {
    let mut schema = closed(object!(
        {"type": json!({"type": "string", "enum": types})},
        {"content_sha256": text("With the type content_sha256: the hash from an earlier result.")}
    ));
    schema["description"] = json!("The condition; if it does not hold, nothing is changed.");
    schema
}

fn output(tool: AgentTool) -> Value {
    let next_page = or_null("string", "The cursor of the next page.");
    match tool {
        AgentTool::List => {
            let file = object!({
                "type": json!({"const": "file"}),
                "path": text("The path of the file."),
                "content_size_bytes": number(0, None, "Bytes."),
                "updated_at": text("The time of the last change, in RFC 3339 format."),
                "first_line": text("The first line of the file."),
            });
            let directory = object!({
                "type": json!({"const": "directory"}),
                "path": text("The path of the directory; ends with /."),
                "read_only": flag("Whether everything below it is read-only."),
            });
            object!({
                "path": text("The directory."),
                "entries": list(&json!({"anyOf": [file, directory]})),
                "next_page": next_page,
            })
        }
        AgentTool::Search => {
            let hit = object!({
                "path": text("The file."),
                "score": json!({"type": "number", "description": "Higher is better; comparable within one search."}),
                "line": number(1, None, "The line in which the snippet begins."),
                "snippet": text("The passage that matches; words of the query are between ⟦ and ⟧."),
            });
            object!({"hits": list(&hit), "next_page": next_page})
        }
        AgentTool::Read => object!({
            "path": text("The file."),
            "content": text("The content of this part, verbatim."),
            "offset": number(0, None, "The offset of the first character."),
            "next_offset": or_null("integer", "The offset of the next part."),
            "total_chars": number(0, None, "Characters of the whole file."),
            "content_size_bytes": number(0, None, "Bytes of the whole file."),
            "content_sha256": text("SHA-256 of the whole file."),
        }),
        AgentTool::Write | AgentTool::Append => change_result(object!({
            "outcome": json!({"type": "string", "enum": ["created", "replaced", "appended"]}),
        })),
        AgentTool::Edit => {
            let snippet = object!({
                "first_line": number(1, None, "The number of the first line."),
                "text": text("The lines."),
                "is_cut": flag("Whether lines are shortened or omitted because of the limit."),
            });
            change_result(object!({
                "edits": number(1, None, "The number of applied edits."),
                "snippets": list(&snippet),
            }))
        }
        AgentTool::Delete => object!({"path": text("The deleted path."), "deleted": json!({"const": true})}),
    }
}

/// The schema of the result of a change: the common properties and those of `more`.
fn change_result(mut more: Value) -> Value {
    let redaction = object!({
        "kind": text("The kind of secret."),
        "line": number(1, None, "The line in which it started."),
    });
    let mut schema = object!({
        "path": text("The file."),
        "memory_id": text("The memory's id in the API."),
        "content_sha256": or_null("string", "SHA-256 of the current content."),
        "content_size_bytes": or_null("integer", "Bytes of the current content."),
        "redactions": json!({"type": "array", "items": redaction, "description": "Secrets that were replaced."}),
        "redactions_left_out": number(0, None, "The number of further secrets that were replaced; each is [redacted:…] in the file."),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut schema["properties"], &mut more["properties"]) {
        all.append(more);
    }
    if let (Value::Array(all), Value::Array(more)) = (&mut schema["required"], &mut more["required"]) {
        all.append(more);
    }
    schema
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn or_null(kind: &str, description: &str) -> Value {
    json!({"type": [kind, "null"], "description": description})
}

fn number(min: u64, max: Option<u64>, description: &str) -> Value {
    let mut schema = json!({"type": "integer", "minimum": min, "description": description});
    if let Some(max) = max {
        schema["maximum"] = json!(max);
    }
    schema
}
