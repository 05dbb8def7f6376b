//! The memory tool: its commands and the exact texts of its results.
//!
//! The tool (`memory_20250818`) is a protocol between a model and a memory service:
//! six commands over a tree of text files that the model sees under `/memories`.
//! Models are trained on the texts of its results, so these texts are part of the
//! protocol. Only this module produces them, exact to the byte. Where the protocol
//! has no text (a limit, a malformed call), Keepsake defines one: it starts with
//! `Error: `, states the problem and says how to resolve it.
//!
//! This module parses a call ([`Command::parse`]), applies it to a content
//! ([`ToolInput::edit`]) and renders results ([`Command::message`], [`view_file`],
//! [`view_directory`]). It does not access stores: the engine reads the content,
//! stores the result, and reports a failure as a [`ToolError`].
//!
//! Every function takes time linear in its input, even if the input is hostile.

pub mod agent;
mod command;
mod edit;
mod error;
mod fields;
mod input;
mod line_end;
mod protocol_text;
mod quote;
mod view;

pub use crate::path::{ToolPath, ToolPathError, ToolRoot, tool_display};
pub use command::Command;
pub use edit::{Edit, append, insert, str_replace};
pub use error::ToolError;
pub use input::ToolInput;
pub use line_end::{line_end, with_line_end};
pub use protocol_text::{MAX_TOPIC_BYTES, ProtocolOptions, protocol_text};
pub use quote::QuotedText;
pub use view::{DirectoryEntry, format_size, max_entries_shown, view_directory, view_file};

#[cfg(test)]
mod tests;
