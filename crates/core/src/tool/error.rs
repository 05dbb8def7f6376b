//! The errors of the memory tool and of the agent tools.

use std::fmt;

use crate::content::ContentHash;
use crate::mended_json::NOT_UNICODE;
use crate::path::{Echo, PathError, ToolPathError, WholeUpTo, comma_separated};

/// Characters of `old_str` up to which a message repeats it whole.
const MAX_OLD_STR_CHARS: usize = 8_000;
/// Matches up to which a message lists the line of each; of more, each line once.
const MAX_MATCHES_LISTED: usize = 20;
/// Lines of matches that a message lists; the rest are counted.
const MAX_LINES_LISTED: usize = 100;

/// Why a call failed; the model reads this text.
///
/// A call that fails with one of these errors changed nothing. Paths are written as
/// [`ToolPath`](crate::path::ToolPath) displays them (`/memories/...`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call lacks a field that its command needs.
    #[error("Error: Field `{field}` is missing; it must be {expected}")]
    MissingField {
        /// The field's name.
        field: &'static str,
        /// The expected type, such as "a string".
        expected: &'static str,
    },
    /// A field of the call has the wrong type.
    #[error("Error: Field `{field}` must be {expected}, but is {found}")]
    WrongType {
        /// The field's name.
        field: &'static str,
        /// The expected type, such as "a string".
        expected: &'static str,
        /// The actual type, such as "a number".
        found: &'static str,
    },
    /// The call has a field that its tool does not have.
    #[error("Error: Field `{}` is unknown; {owner} has the fields {}", Echo(.field), quoted(.known))]
    UnknownField {
        /// The field's name.
        field: String,
        /// The tool, or the object in the call.
        owner: &'static str,
        /// The names of the fields that exist.
        known: Vec<&'static str>,
    },
    /// A field of the call has the right type, but breaks a rule.
    #[error("Error: Field `{field}` {rule}")]
    OutOfBounds {
        /// The field's name.
        field: &'static str,
        /// The rule, as a phrase that follows the field.
        rule: String,
    },
    /// A text of the call is not valid Unicode.
    #[error("Error: Field `{}` {NOT_UNICODE}. Nothing was changed. Send the text without it.", Echo(.field))]
    NotUnicode {
        /// The field's name, or its path in the input.
        field: String,
    },
    /// One of several edits failed.
    #[error(
        "Error: Edit {number} of {total} failed, so no edit was applied: {}",
        without_label(.error)
    )]
    InEdit {
        /// The number of the edit, counted from 1.
        number: usize,
        /// The number of edits.
        total: usize,
        /// The reason; its line numbers refer to the content after the previous edits.
        error: Box<ToolError>,
    },
    /// A directory is where a file was expected.
    #[error("Error: {path} is a directory, not a file. List its entries with memory_list.")]
    IsDirectory {
        /// The requested path.
        path: String,
    },
    /// A file is where a directory was expected.
    #[error("Error: {path} is a file, not a directory. Read it with memory_read.")]
    IsFile {
        /// The requested path.
        path: String,
    },
    /// `memory_read`: the offset is after the end of the file.
    #[error(
        "Error: Invalid `offset` parameter: {offset}. It should be within the characters of the file: \
         [0, {total_chars}]"
    )]
    OffsetPastEnd {
        /// The requested offset.
        offset: u64,
        /// The number of characters in the file.
        total_chars: u64,
    },
    /// A file exists at a path that was expected to be free.
    #[error(
        "Error: The precondition `not_exists` does not hold: {path} exists{}. \
         Nothing was changed. Read it, then decide whether to edit it.",
        known(", with content_sha256 ", .current.as_ref(), "")
    )]
    Exists {
        /// The path of the file.
        path: String,
        /// The hash of the existing content; `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    /// The content of a file differs from the content that the call expects.
    #[error(
        "Error: The precondition does not hold: {path} has {}. Nothing was changed. \
         Read it again, then decide how to apply your change.",
        known("content_sha256 ", .current.as_ref(), "other content")
    )]
    ContentDiffers {
        /// The path of the file.
        path: String,
        /// The hash of the existing content; `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    /// `memory_delete` of a directory with the hash of a file.
    #[error(
        "Error: {path} is a directory, which has no content_sha256. Nothing was deleted. To delete it with everything in it, omit `expected_content_sha256`."
    )]
    DirectoryHasNoHash {
        /// The directory.
        path: String,
    },
    /// No tool has this name.
    #[error(
        "Error: There is no tool of this name; the tools are {}",
        comma_separated(super::agent::quoted_names())
    )]
    UnknownTool,
    /// The field `command` is not one of the six commands.
    #[error("Error: Field `command` must be {}, but is `{}`", super::command::NAMES, Echo(.command))]
    UnknownCommand {
        /// The requested command.
        command: String,
    },
    /// A path is refused.
    #[error(transparent)]
    Path(#[from] ToolPathError),
    /// `view`: the path does not exist.
    #[error("The path {path} does not exist. Please provide a valid path.")]
    NotFoundView {
        /// The requested path.
        path: String,
    },
    /// `str_replace`: there is no file at the path (perhaps a directory).
    #[error("Error: The path {path} does not exist. Please provide a valid path.")]
    NotFoundEdit {
        /// The requested path.
        path: String,
    },
    /// `insert`, `delete`, the source of `rename`: the path does not exist.
    #[error("Error: The path {path} does not exist")]
    NotFound {
        /// The requested path.
        path: String,
    },
    /// `create`: a file or directory exists at the path.
    #[error("Error: File {path} already exists")]
    AlreadyExists {
        /// The requested path.
        path: String,
    },
    /// `rename`: a file or directory exists at the destination.
    #[error("Error: The destination {path} already exists")]
    DestinationExists {
        /// The destination.
        path: String,
    },
    /// `create`, `rename`: a parent of the path is a file.
    #[error("Error: Path {path} cannot be created, because {file} is a file and not a directory")]
    ParentIsFile {
        /// The requested path.
        path: String,
        /// The parent that is a file.
        file: String,
    },
    /// `delete` of `/memories`.
    #[error("Error: Cannot delete the /memories directory itself")]
    CannotDeleteRoot,
    /// `rename` from or to `/memories`.
    #[error("Error: Cannot rename the /memories directory itself")]
    CannotRenameRoot,
    /// `delete` of a session's mount.
    #[error("Error: Cannot delete {path}: a memory store is mounted there")]
    CannotDeleteMount {
        /// The mount.
        path: String,
    },
    /// `rename` from or to a session's mount.
    #[error("Error: Cannot rename {path}: a memory store is mounted there")]
    CannotRenameMount {
        /// The mount.
        path: String,
    },
    /// `rename` from one of a session's stores into another.
    #[error("Error: Cannot rename {from} to {to}: they are in different memory stores")]
    AcrossStores {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// A change in a store that is attached read-only.
    #[error("Error: {path} is in a memory store that is attached read-only")]
    ReadOnly {
        /// The requested path.
        path: String,
    },
    /// The store of the path was deleted concurrently.
    #[error(
        "Error: The memory store of this path no longer exists. View /memories to see the current stores."
    )]
    StoreGone,
    /// The content of the file is missing: a client can only write or delete the file.
    #[error(
        "Error: The content of {path} is missing in the content store. Delete the file or write it anew; only \
         the operator can restore a backup"
    )]
    ContentMissing {
        /// The file.
        path: String,
    },
    /// As [`Self::ContentMissing`], of a content whose stored bytes are not those written.
    #[error(
        "Error: The content of {path} is damaged in the content store. Delete the file or write it anew; only \
         the operator can restore a backup"
    )]
    ContentDamaged {
        /// The file.
        path: String,
    },
    /// `rename` of a directory to a path below itself.
    #[error("Error: Cannot rename {from} to {to}: a directory cannot be moved into itself")]
    IntoItself {
        /// The directory.
        from: String,
        /// The destination below it.
        to: String,
    },
    /// `rename` of a directory: the new path of one of its files breaks a rule.
    #[error(
        "Error: Cannot rename the directory: the new path of {} {rule}. Nothing was renamed.",
        known("", .path.as_ref(), "a file in it")
    )]
    PathBelowBreaksRule {
        /// The current path of the file; `None` if the caller may not read it.
        path: Option<String>,
        /// The rule that the new path breaks.
        rule: PathError,
    },
    /// `view`: the file does not have all lines of the range.
    #[error(
        "Error: Invalid `view_range` parameter: [{start}, {end}]. \
         It should be within the range of lines of the file: [1, {lines}]"
    )]
    InvalidViewRange {
        /// The first requested line.
        start: i64,
        /// The last requested line, or -1 for the end of the file.
        end: i64,
        /// The number of lines in the file.
        lines: usize,
    },
    /// `view`: the line numbers would not fit their column.
    #[error("File {path} exceeds maximum line limit of 999,999 lines.")]
    TooManyLines {
        /// The file.
        path: String,
    },
    /// `str_replace`: the text does not occur in the file.
    #[error(
        "No replacement was performed, old_str `{}` did not appear verbatim in {path}.{hint}",
        WholeUpTo(MAX_OLD_STR_CHARS, .old_str)
    )]
    NoMatch {
        /// The text to replace.
        old_str: String,
        /// The file.
        path: String,
        /// What to do if the text would occur with other line ends; empty if it would not.
        hint: &'static str,
    },
    /// `str_replace`: the text occurs in the file more than once.
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{}` in lines: {}. \
         Please ensure it is unique",
        WholeUpTo(MAX_OLD_STR_CHARS, .old_str),
        listed(.lines)
    )]
    ManyMatches {
        /// The text to replace.
        old_str: String,
        /// The line each match starts in, in order; lines repeat.
        lines: Vec<usize>,
    },
    /// `str_replace`: the text to be replaced is empty.
    #[error("Error: No replacement was performed, because `old_str` is empty. Provide the text to replace.")]
    EmptyOldStr,
    /// `insert`: the file has no such line.
    #[error(
        "Error: Invalid `insert_line` parameter: {line}. \
         It should be within the range of lines of the file: [0, {lines}]"
    )]
    InvalidInsertLine {
        /// The requested line.
        line: i64,
        /// The number of lines in the file.
        lines: usize,
    },
    /// The file would exceed its size limit.
    #[error(
        "Error: File {path} would be {} the limit of {limit_bytes} bytes per file. \
         Nothing was changed. Shorten it, or split it into several files.",
        over(*.size_bytes, "over")
    )]
    FileTooLarge {
        /// The file.
        path: String,
        /// The size the file would have; `None`: the caller may not read it.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// The file would contain U+0000.
    #[error(
        "Error: File {path} would contain a NUL character, which a memory cannot hold. \
         Nothing was changed. Send the text without it."
    )]
    Nul {
        /// The file.
        path: String,
    },
    /// The store's policy refuses sensitive data in the new content.
    #[error(
        "Error: The memory store's sensitive-data policy refuses {found} of {path}. Nothing was changed. \
         Remove the secret; note instead where it is stored."
    )]
    Sensitive {
        /// The file.
        path: String,
        /// The kinds and lines of the findings, without the secrets.
        found: String,
    },
    /// The store would exceed its limit of files.
    #[error(
        "Error: The memory store would hold {count} files, over its limit of {limit} files. \
         Nothing was changed. Delete files that are no longer needed, or add to an existing one."
    )]
    TooManyMemories {
        /// The number of files the store would have.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// The store would exceed its size limit.
    #[error(
        "Error: The memory store would hold {} its limit of {limit_bytes} bytes. \
         Nothing was changed. Delete or shorten files that are no longer needed.",
        over(*.size_bytes, "more than")
    )]
    StoreFull {
        /// The size the store would have; `None`: the caller may not read it.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// The tenant's stores together would exceed their size limit.
    #[error(
        "Error: All memory stores together would hold {} their limit of \
         {limit_bytes} bytes. Nothing was changed. Delete or shorten files that are no longer needed.",
        over(*.size_bytes, "more than")
    )]
    TenantFull {
        /// The size the stores would have together; `None`: the caller may not read
        /// them.
        size_bytes: Option<u64>,
        /// The limit.
        limit_bytes: u64,
    },
    /// The store is archived and therefore read-only.
    #[error("Error: The memory store is archived and read-only. Nothing was changed.")]
    Archived,
    /// Concurrent changes of the same path won every retry.
    #[error(
        "Error: {path} was repeatedly changed by others at the same time. Nothing was changed by this call. View it, then try again."
    )]
    Conflict {
        /// The path that the call tried to change.
        path: String,
    },
}

impl ToolError {
    /// The error for a caller that may write but not read: without details of the
    /// existing content.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        match &mut self {
            Self::Exists { current, .. } | Self::ContentDiffers { current, .. } => *current = None,
            Self::PathBelowBreaksRule { path, .. } => *path = None,
            Self::FileTooLarge { size_bytes, .. }
            | Self::StoreFull { size_bytes, .. }
            | Self::TenantFull { size_bytes, .. } => *size_bytes = None,
            _ => {}
        }
        self
    }

    /// Wraps the error of one of several edits.
    pub(crate) fn in_edit(self, number: usize, total: usize) -> Self {
        Self::InEdit { number, total, error: Box::new(self) }
    }
}

/// The names of fields, for a message.
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

/// That a size exceeds the limit that follows, with the size if it is known.
fn over(size_bytes: Option<u64>, unknown: &str) -> String {
    match size_bytes {
        Some(size_bytes) => format!("{size_bytes} bytes, over"),
        None => unknown.to_owned(),
    }
}
