//! The errors of the memory tool and of the agent tools.

use std::fmt;

use crate::content::ContentHash;
use crate::mended_json::NOT_UNICODE;
use crate::path::{Echo, PathError, ToolPathError, WholeUpTo, comma_separated};
use crate::{OverLimit, Quota, TestFileError};

/// A message repeats an `old_str` of at most this many characters whole.
const MAX_OLD_STR_CHARS: usize = 8_000;
/// Up to this number of matches, a message lists the line of each match; beyond it, each
/// line once.
const MAX_MATCHES_LISTED: usize = 20;
/// Lines of matches that a message lists; the rest are counted.
const MAX_LINES_LISTED: usize = 100;

/// Why a call failed; the model reads this text.
///
/// A call that fails with one of these errors changed nothing. Paths are written as
/// [`ToolPath`](crate::path::ToolPath) displays them (`/memories/...`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    #[error("Error: Field `{field}` is missing; it must be {expected}")]
    MissingField {
        field: &'static str,
        /// Such as "a string".
        expected: &'static str,
    },
    #[error("Error: Field `{field}` must be {expected}, but is {found}")]
    WrongType {
        field: &'static str,
        expected: &'static str,
        /// Such as "a number".
        found: &'static str,
    },
    #[error("Error: Field `{}` is unknown; {owner} has the fields {}", Echo(.field), quoted(.known))]
    UnknownField {
        field: String,
        /// The tool, or the object in the call.
        owner: &'static str,
        known: Vec<&'static str>,
    },
    /// A field of the call has the right type, but breaks a rule.
    #[error("Error: Field `{field}` {rule}")]
    OutOfBounds {
        field: &'static str,
        /// A phrase that follows the field.
        rule: String,
    },
    #[error("Error: Field `{}` {NOT_UNICODE}. Nothing was changed. Send the text without it.", Echo(.field))]
    NotUnicode {
        /// The field's name, or its path in the input.
        field: String,
    },
    #[error(
        "Error: Edit {number} of {total} failed, so no edit was applied: {}",
        without_label(.error)
    )]
    InEdit {
        /// Counted from 1.
        number: usize,
        total: usize,
        /// Its line numbers refer to the content after the previous edits.
        error: Box<ToolError>,
    },
    #[error("Error: {path} is a directory, not a file. List its entries with memory_list.")]
    IsDirectory { path: String },
    #[error("Error: {path} is a file, not a directory. Read it with memory_read.")]
    IsFile { path: String },
    /// `memory_read`: the offset is after the end of the file.
    #[error(
        "Error: Invalid `offset` parameter: {offset}. It should be within the characters of the file: \
         [0, {total_chars}]"
    )]
    OffsetPastEnd { offset: u64, total_chars: u64 },
    #[error(
        "Error: The precondition `not_exists` does not hold: {path} exists{}. \
         Nothing was changed. Read it, then decide whether to edit it.",
        known(", with content_sha256 ", .current.as_ref(), "")
    )]
    Exists {
        path: String,
        /// `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    #[error(
        "Error: The precondition does not hold: {path} has {}. Nothing was changed. \
         Read it again, then decide how to apply your change.",
        known("content_sha256 ", .current.as_ref(), "other content")
    )]
    ContentDiffers {
        path: String,
        /// `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    /// `memory_delete` of a directory with the hash of a file.
    #[error(
        "Error: {path} is a directory, which has no content_sha256. Nothing was deleted. To delete it with everything in it, omit `expected_content_sha256`."
    )]
    DirectoryHasNoHash { path: String },
    #[error(
        "Error: There is no tool of this name; the tools are {}",
        comma_separated(super::agent::quoted_names())
    )]
    UnknownTool,
    #[error("Error: Field `command` must be {}, but is `{}`", super::command::NAMES, Echo(.command))]
    UnknownCommand { command: String },
    #[error(transparent)]
    Path(#[from] ToolPathError),
    #[error("The path {path} does not exist. Please provide a valid path.")]
    NotFoundView { path: String },
    /// `str_replace`: there is no file at the path (perhaps a directory).
    #[error("Error: The path {path} does not exist. Please provide a valid path.")]
    NotFoundEdit { path: String },
    /// `insert`, `delete`, the source of `rename`: the path does not exist.
    #[error("Error: The path {path} does not exist")]
    NotFound { path: String },
    /// `create`: a file or directory exists at the path.
    #[error("Error: File {path} already exists")]
    AlreadyExists { path: String },
    #[error("Error: The destination {path} already exists")]
    DestinationExists { path: String },
    /// `create`, `rename`: a parent of the path is a file.
    #[error("Error: Path {path} cannot be created, because {file} is a file and not a directory")]
    ParentIsFile { path: String, file: String },
    #[error("Error: Cannot delete the /memories directory itself")]
    CannotDeleteRoot,
    #[error("Error: Cannot rename the /memories directory itself")]
    CannotRenameRoot,
    #[error("Error: Cannot delete {path}: a memory store is mounted there")]
    CannotDeleteMount { path: String },
    #[error("Error: Cannot rename {path}: a memory store is mounted there")]
    CannotRenameMount { path: String },
    #[error("Error: Cannot rename {from} to {to}: they are in different memory stores")]
    AcrossStores { from: String, to: String },
    #[error("Error: {path} is in a memory store that is attached read-only")]
    ReadOnly { path: String },
    /// The store of the path was deleted concurrently.
    #[error(
        "Error: The memory store of this path no longer exists. View /memories to see the current stores."
    )]
    StoreGone,
    #[error(
        "Error: The content of {path} is missing in the content store. Delete the file or write it anew; only \
         the operator can restore a backup"
    )]
    ContentMissing { path: String },
    /// The stored bytes are not the bytes that were written.
    #[error(
        "Error: The content of {path} is damaged in the content store. Delete the file or write it anew; only \
         the operator can restore a backup"
    )]
    ContentDamaged { path: String },
    #[error("Error: Cannot rename {from} to {to}: a directory cannot be moved into itself")]
    IntoItself { from: String, to: String },
    #[error(
        "Error: Cannot rename the directory: the new path of {} {rule}. Nothing was renamed.",
        known("", .path.as_ref(), "a file in it")
    )]
    PathBelowBreaksRule {
        /// The current path of the file; `None` if the caller may not read it.
        path: Option<String>,
        rule: PathError,
    },
    #[error(
        "Error: Invalid `view_range` parameter: [{start}, {end}]. \
         It should be within the range of lines of the file: [1, {lines}]"
    )]
    InvalidViewRange {
        start: i64,
        /// -1: the end of the file.
        end: i64,
        lines: usize,
    },
    /// `view`: the line numbers would not fit their column.
    #[error("File {path} exceeds maximum line limit of 999,999 lines.")]
    TooManyLines { path: String },
    #[error(
        "No replacement was performed, old_str `{}` did not appear verbatim in {path}.{hint}",
        WholeUpTo(MAX_OLD_STR_CHARS, .old_str)
    )]
    NoMatch {
        old_str: String,
        path: String,
        /// Advice if the text occurs with other line ends; otherwise empty.
        hint: &'static str,
    },
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{}` in lines: {}. \
         Please ensure it is unique",
        WholeUpTo(MAX_OLD_STR_CHARS, .old_str),
        listed(.lines)
    )]
    ManyMatches {
        old_str: String,
        /// The line each match starts in, in order; lines repeat.
        lines: Vec<usize>,
    },
    #[error("Error: No replacement was performed, because `old_str` is empty. Provide the text to replace.")]
    EmptyOldStr,
    #[error(
        "Error: Invalid `insert_line` parameter: {line}. \
         It should be within the range of lines of the file: [0, {lines}]"
    )]
    InvalidInsertLine { line: i64, lines: usize },
    #[error(
        "Error: File {path} would be {} the limit of {limit_bytes} bytes per file. \
         Nothing was changed. Shorten it, or split it into several files.",
        over(*.size_bytes, "over")
    )]
    FileTooLarge {
        path: String,
        /// `None`: the caller may not read it.
        size_bytes: Option<u64>,
        limit_bytes: u64,
    },
    #[error(
        "Error: File {path} would contain a NUL character, which a memory cannot hold. \
         Nothing was changed. Send the text without it."
    )]
    Nul { path: String },
    #[error(
        "Error: The memory store's sensitive-data policy refuses {found} of {path}. Nothing was changed. \
         Remove the secret; note instead where it is stored."
    )]
    Sensitive {
        path: String,
        /// The kinds and lines of the findings, without the secrets.
        found: String,
    },
    #[error(
        "Error: {path} is a setting of the memory store, which only its administrators change. Nothing was changed."
    )]
    Setting { path: String },
    #[error("Error: {path} is refused: {error}. Nothing was changed.")]
    Tests { path: String, error: TestFileError },
    #[error("Error: {}", over_limit(.0))]
    OverLimit(OverLimit),
    #[error("Error: The memory store is archived and read-only. Nothing was changed.")]
    Archived,
    /// Concurrent changes of the same path won every retry.
    #[error(
        "Error: {path} was repeatedly changed by others at the same time. Nothing was changed by this call. View it, then try again."
    )]
    Conflict { path: String },
}

impl ToolError {
    /// The error for a caller that may write but not read: without details of the
    /// existing content.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        match &mut self {
            Self::Exists { current, .. } | Self::ContentDiffers { current, .. } => *current = None,
            Self::PathBelowBreaksRule { path, .. } => *path = None,
            Self::FileTooLarge { size_bytes, .. } => *size_bytes = None,
            Self::OverLimit(over) => *over = over.concealed(),
            _ => {}
        }
        self
    }

    pub(crate) fn in_edit(self, number: usize, total: usize) -> Self {
        Self::InEdit { number, total, error: Box::new(self) }
    }
}

fn quoted(names: &[&str]) -> String {
    comma_separated(names.iter().map(|name| format!("`{name}`")))
}

/// The line of each match or, of many matches, each line once and the number of further
/// lines.
fn listed(lines: &[usize]) -> String {
    let mut lines = lines.to_vec();
    if lines.len() > MAX_MATCHES_LISTED {
        lines.dedup();
    }
    let more = lines.len().saturating_sub(MAX_LINES_LISTED);
    let first = comma_separated(lines.iter().take(MAX_LINES_LISTED));
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// The text of an error inside another error.
fn without_label(error: &ToolError) -> String {
    let text = error.to_string();
    text.strip_prefix("Error: ").unwrap_or(&text).to_owned()
}

/// A prefix and the value, or another text if there is no value.
fn known(before: &str, value: Option<&impl fmt::Display>, unknown: &str) -> String {
    match value {
        Some(value) => format!("{before}{value}"),
        None => unknown.to_owned(),
    }
}

fn over_limit(over: &OverLimit) -> String {
    const SHORTEN: &str = "Nothing was changed. Delete or shorten files that are no longer needed.";
    let maximum = over.maximum;
    match over.limit {
        Quota::MemoriesPerStore => format!(
            "The memory store would hold {} files, over its limit of {maximum} files. Nothing was changed. \
             Delete files that are no longer needed, or add to an existing one.",
            over.wanted.unwrap_or_default()
        ),
        Quota::BytesPerStore => {
            format!(
                "The memory store would hold {} its limit of {maximum} bytes. {SHORTEN}",
                over.bytes_over()
            )
        }
        Quota::BytesPerTenant => format!(
            "All memory stores together would hold {} their limit of {maximum} bytes. {SHORTEN}",
            over.bytes_over()
        ),
        _ => format!("Nothing was changed: {over}."),
    }
}

/// The phrase before an exceeded limit: the size and "over", or `unknown` without a size.
fn over(size_bytes: Option<u64>, unknown: &str) -> String {
    match size_bytes {
        Some(size_bytes) => format!("{size_bytes} bytes, over"),
        None => unknown.to_owned(),
    }
}
