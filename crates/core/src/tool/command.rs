//! A call of the memory tool, as the model sent it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::edit::{Edit, insert, str_replace};
use super::error::ToolError;
use super::fields::{Fields, STRING};
use super::input::ToolInput;
use crate::path::{ToolPath, ToolRoot};

/// The values of the field `command`, for messages.
pub(super) const NAMES: &str = "one of `view`, `create`, `str_replace`, `insert`, `delete`, `rename`";

/// One call of the memory tool, with every field present and of the right type.
///
/// Whether a line or a range exists in the file is checked later, with the content. Two
/// calls with the same meaning are equal as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Shows a file with line numbers, or lists a directory.
    View {
        path: ToolPath,
        /// The first and last line, counted from 1, for a part of a file; -1 means the
        /// end of the file. Ignored for a directory.
        view_range: Option<(i64, i64)>,
        /// Characters of a file to skip. Ignored for a directory.
        offset: u64,
    },
    /// Creates a new file; never overwrites.
    Create { path: ToolPath, file_text: String },
    /// Replaces a text that occurs exactly once in the file.
    StrReplace {
        path: ToolPath,
        old_str: String,
        /// Empty if the model sent none.
        new_str: String,
    },
    /// Inserts whole lines into a file.
    Insert {
        path: ToolPath,
        /// The line after which the text is inserted; 0 is the top.
        insert_line: i64,
        insert_text: String,
    },
    /// Deletes a file, or a directory with everything in it.
    Delete { path: ToolPath },
    /// Moves a file, or a directory with everything in it.
    Rename { old_path: ToolPath, new_path: ToolPath },
}

impl Command {
    /// Parses the input of a `tool_use` block with paths below `root`.
    ///
    /// Unknown fields are ignored, `null` is the same as absent, and a float without a
    /// fraction or a number in a string is an integer.
    pub fn parse(input: &Map<String, Value>, root: &ToolRoot) -> Result<Self, ToolError> {
        let fields = Fields::new(input, root);
        match fields.text("command", NAMES)? {
            // The notice below a line that was cut names `memory_read`, which a model that has only
            // the memory tool can send as a command.
            "view" | "memory_read" => Ok(Self::View {
                path: fields.path("path")?,
                view_range: fields.range("view_range")?,
                offset: fields.bounded("offset", 0, u64::MAX)?.unwrap_or(0),
            }),
            "create" => Ok(Self::Create {
                path: fields.path("path")?,
                file_text: fields.text("file_text", STRING)?.to_owned(),
            }),
            "str_replace" => Ok(Self::StrReplace {
                path: fields.path("path")?,
                old_str: fields.text("old_str", STRING)?.to_owned(),
                new_str: fields.optional_text("new_str")?.unwrap_or_default().to_owned(),
            }),
            "insert" => Ok(Self::Insert {
                path: fields.path("path")?,
                insert_line: fields.integer("insert_line")?,
                insert_text: fields.text("insert_text", STRING)?.to_owned(),
            }),
            "delete" => Ok(Self::Delete { path: fields.path("path")? }),
            "rename" => {
                Ok(Self::Rename { old_path: fields.path("old_path")?, new_path: fields.path("new_path")? })
            }
            unknown => Err(ToolError::UnknownCommand { command: unknown.to_owned() }),
        }
    }

    /// The result of a change that was made; `None` for `view`.
    ///
    /// Shows no content if `edit` is `None`: an edit can be impossible to determine later.
    pub fn message(&self, edit: Option<&Edit>, max_chars: u64) -> Option<String> {
        let message = match self {
            Self::View { .. } => return None,
            Self::Create { path, .. } => format!("File created successfully at: {path}"),
            Self::StrReplace { path, .. } | Self::Insert { path, .. } => {
                format!("The file {path} has been edited.")
            }
            Self::Delete { path } => format!("Successfully deleted {path}"),
            Self::Rename { old_path, new_path } => {
                format!("Successfully renamed {old_path} to {new_path}")
            }
        };
        Some(match edit {
            Some(edit) => edit.to_message(message, max_chars),
            None => message,
        })
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::View { .. } => "view",
            Self::Create { .. } => "create",
            Self::StrReplace { .. } => "str_replace",
            Self::Insert { .. } => "insert",
            Self::Delete { .. } => "delete",
            Self::Rename { .. } => "rename",
        }
    }
}

impl ToolInput for Command {
    fn path(&self) -> &ToolPath {
        match self {
            Self::View { path, .. }
            | Self::Create { path, .. }
            | Self::StrReplace { path, .. }
            | Self::Insert { path, .. }
            | Self::Delete { path } => path,
            Self::Rename { old_path, .. } => old_path,
        }
    }

    fn is_change(&self) -> bool {
        !matches!(self, Self::View { .. })
    }

    // Edits show the lines around the change.
    fn shows_content(&self) -> bool {
        matches!(self, Self::View { .. } | Self::StrReplace { .. } | Self::Insert { .. })
    }

    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError> {
        let missing = |path: &ToolPath| path.display().to_owned();
        match self {
            Self::Create { file_text, .. } => Ok(Some(Edit::whole(file_text.clone()))),
            Self::StrReplace { path, old_str, new_str } => {
                let before = before.ok_or_else(|| ToolError::NotFoundEdit { path: missing(path) })?;
                str_replace(path, before, old_str, new_str).map(Some)
            }
            Self::Insert { path, insert_line, insert_text } => {
                let before = before.ok_or_else(|| ToolError::NotFound { path: missing(path) })?;
                insert(before, *insert_line, insert_text).map(Some)
            }
            Self::View { .. } | Self::Delete { .. } | Self::Rename { .. } => Ok(None),
        }
    }
}
