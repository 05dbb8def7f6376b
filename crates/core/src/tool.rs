//! The memory tool: what a model may ask for, and the texts it gets back.
//!
//! The tool (`memory_20250818`) is a protocol between models and whoever keeps
//! their memories: six commands over a tree of text files that the model sees
//! under `/memories`. Models are trained on the texts of its results, so those
//! are part of the protocol and are made here alone, exact to the byte. Where
//! the protocol has no text (a limit, a malformed call), the text is ours; it
//! starts with `Error: ` and says what was met and what to do about it.
//!
//! This module reads a call ([`Command::parse`]), applies edits to a content
//! ([`str_replace`], [`insert`]) and renders results ([`view_file`],
//! [`view_directory`]). It knows nothing of stores: the engine finds the
//! content, keeps the outcome, and reports what it found as a [`ToolError`].
//!
//! Every function takes time linear in what it is given, hostile or not.

pub mod agent;
mod command;
mod edit;
mod error;
mod fields;
mod protocol_text;
mod quote;
mod view;

pub use crate::path::{ToolPath, ToolPathError, ToolRoot, tool_display};
pub use command::Command;
pub use edit::{Edit, insert, str_replace};
pub use error::ToolError;
pub use protocol_text::{ProtocolOptions, protocol_text};
pub use quote::Quoted;
pub use view::{DirectoryEntry, format_size, max_entries_shown, view_directory, view_file};

/// The result of a `create` that made the file.
pub fn created_message(path: &ToolPath) -> String {
    format!("File created successfully at: {path}")
}

/// The result of an `insert`, which shows nothing of the file.
pub fn inserted_message(path: &ToolPath) -> String {
    format!("The file {path} has been edited.")
}

/// The result of a `delete` that removed the file or directory.
pub fn deleted_message(path: &ToolPath) -> String {
    format!("Successfully deleted {path}")
}

/// The result of a `rename` that moved the file or directory.
pub fn renamed_message(old_path: &ToolPath, new_path: &ToolPath) -> String {
    format!("Successfully renamed {old_path} to {new_path}")
}

#[cfg(test)]
mod tests;
