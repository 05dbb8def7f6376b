//! A call of the memory tool, as the model sent it.

use serde_json::{Map, Value};

use super::error::ToolError;
use super::fields::{Fields, STRING};
use crate::path::{ToolPath, ToolRoot};

/// The values of the field `command`, for messages.
pub(super) const NAMES: &str = "one of `view`, `create`, `str_replace`, `insert`, `delete`, `rename`";

/// One call of the memory tool: its fields are there and of the right type.
///
/// Whether a line or a range is one that the file has is known only to who has
/// the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Shows a file with line numbers, or lists a directory.
    View {
        /// The file or directory.
        path: ToolPath,
        /// The first and last line, counted from 1, where not all are wanted;
        /// -1 is the end of the file. Has no meaning for a directory.
        view_range: Option<(i64, i64)>,
    },
    /// Makes a new file; never overwrites.
    Create {
        /// The file.
        path: ToolPath,
        /// Its content.
        file_text: String,
    },
    /// Replaces a text that appears in the file exactly once.
    StrReplace {
        /// The file.
        path: ToolPath,
        /// The text to be replaced.
        old_str: String,
        /// What takes its place; empty where the model sent none.
        new_str: String,
    },
    /// Puts whole lines into a file.
    Insert {
        /// The file.
        path: ToolPath,
        /// The line after which they go; 0 is the top.
        insert_line: i64,
        /// The lines.
        insert_text: String,
    },
    /// Removes a file, or a directory with everything in it.
    Delete {
        /// The file or directory.
        path: ToolPath,
    },
    /// Moves a file, or a directory with everything in it.
    Rename {
        /// Where it is.
        old_path: ToolPath,
        /// Where it goes.
        new_path: ToolPath,
    },
}

impl Command {
    /// Reads the input of a `tool_use` block whose paths lead to `root`.
    ///
    /// Fields that the command does not know are ignored, `null` is the same as
    /// absent, and a float without a fraction is an integer.
    ///
    /// # Errors
    /// [`ToolError`] for the first field that is missing, of the wrong type, an
    /// unknown command, or a path that is refused.
    pub fn parse(input: &Map<String, Value>, root: &ToolRoot) -> Result<Self, ToolError> {
        let fields = Fields { input, root };
        match fields.text("command", NAMES)? {
            "view" => Ok(Self::View {
                path: fields.path("path")?,
                view_range: fields.range("view_range")?,
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
            "delete" => Ok(Self::Delete {
                path: fields.path("path")?,
            }),
            "rename" => Ok(Self::Rename {
                old_path: fields.path("old_path")?,
                new_path: fields.path("new_path")?,
            }),
            unknown => Err(ToolError::UnknownCommand {
                command: unknown.to_owned(),
            }),
        }
    }

    /// The path it acts on; of a rename, the source.
    pub const fn path(&self) -> &ToolPath {
        match self {
            Self::View { path, .. }
            | Self::Create { path, .. }
            | Self::StrReplace { path, .. }
            | Self::Insert { path, .. }
            | Self::Delete { path } => path,
            Self::Rename { old_path, .. } => old_path,
        }
    }

    /// The command's name in the protocol.
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

    /// Whether it changes the store when it succeeds; only `view` does not.
    pub const fn is_change(&self) -> bool {
        !matches!(self, Self::View { .. })
    }

    /// Whether its answer shows what is in a file: edits show the lines around
    /// them.
    pub const fn shows_content(&self) -> bool {
        matches!(
            self,
            Self::View { .. } | Self::StrReplace { .. } | Self::Insert { .. }
        )
    }
}
