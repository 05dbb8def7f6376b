//! The methods that every call of a tool has.

use super::edit::Edit;
use super::error::ToolError;
use crate::path::ToolPath;

/// A parsed call of the memory tool or of an agent tool.
pub trait ToolInput {
    /// The path that the call reads or changes; the source of a rename.
    fn path(&self) -> &ToolPath;

    /// Whether a successful call changes the store.
    fn is_change(&self) -> bool;

    /// Whether the result shows paths or content that the call does not name, which
    /// needs the right to read.
    fn shows_content(&self) -> bool;

    /// Applies the call to a file's content; `None` before: there is no file. Returns
    /// `None` for calls that bring no content.
    fn edit(&self, before: Option<&str>) -> Result<Option<Edit>, ToolError>;
}
