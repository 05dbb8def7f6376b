//! What the memory tool answers when it cannot do what was asked.

use std::fmt;

use crate::content::ContentHash;
use crate::path::{Echo, PathError, ToolPathError};

/// Why a call was not carried out; its text is what the model reads.
///
/// A call that ends in one of these changed nothing. Paths are as the memory
/// tool writes them (`/memories/...`), as [`ToolPath`](crate::path::ToolPath)
/// displays them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call lacks a field that its command needs.
    #[error("Error: Field `{field}` is missing; it must be {expected}")]
    MissingField {
        /// The field's name.
        field: &'static str,
        /// What the field must be, such as "a string".
        expected: &'static str,
    },
    /// A field of the call is not what it must be.
    #[error("Error: Field `{field}` must be {expected}, but is {found}")]
    WrongType {
        /// The field's name.
        field: &'static str,
        /// What the field must be, such as "a string".
        expected: &'static str,
        /// What the field is, such as "a number".
        found: &'static str,
    },
    /// A field of the call is of the right type, but breaks a rule.
    #[error("Error: Field `{field}` {rule}")]
    OutOfBounds {
        /// The field's name.
        field: &'static str,
        /// The rule, as a phrase that follows the field.
        rule: String,
    },
    /// One of several edits cannot be made.
    #[error(
        "Error: Edit {number} of {total} cannot be made, so none was: {}",
        WithoutLabel(.error)
    )]
    InEdit {
        /// Which, counted from 1.
        number: usize,
        /// How many there are.
        total: usize,
        /// Why; lines are those that the edits before it left.
        error: Box<ToolError>,
    },
    /// A directory is where a file was expected.
    #[error("Error: {path} is a directory, not a file. List what is in it with memory_list.")]
    IsDirectory {
        /// What was asked for.
        path: String,
    },
    /// A file is where a directory was expected.
    #[error("Error: {path} is a file, not a directory. Read it with memory_read.")]
    IsFile {
        /// What was asked for.
        path: String,
    },
    /// `memory_read`: the file ends before.
    #[error(
        "Error: Invalid `offset` parameter: {offset}. It should be within the characters of the file: \
         [0, {total_chars}]"
    )]
    OffsetPastEnd {
        /// The character asked for.
        offset: u64,
        /// How many the file has.
        total_chars: u64,
    },
    /// A file is at a path that was to be free.
    #[error(
        "Error: The precondition `not_exists` does not hold: {path} exists{}. \
         Nothing was changed. Read it, then decide whether to edit it.",
        Known(", with content_sha256 ", .current, "")
    )]
    Exists {
        /// What was to be made.
        path: String,
        /// What is there; `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    /// A file holds other content than the call expects.
    #[error(
        "Error: The precondition does not hold: {path} has {}. Nothing was changed. \
         Read it again, then decide what to do with what others changed.",
        Known("content_sha256 ", .current, "other content")
    )]
    ContentDiffers {
        /// What was to be changed.
        path: String,
        /// What is there; `None`: the caller may not read it.
        current: Option<ContentHash>,
    },
    /// `memory_delete` of a directory with the hash of a file.
    #[error(
        "Error: {path} is a directory, which has no content_sha256. Nothing was deleted. To delete it with \
         everything in it, leave `expected_content_sha256` out."
    )]
    DirectoryHasNoHash {
        /// The directory.
        path: String,
    },
    /// No tool is called so.
    #[error(
        "Error: There is no tool of this name; the tools are {}",
        super::agent::ToolNames
    )]
    UnknownTool,
    /// The field `command` names none of the six commands.
    #[error("Error: Field `command` must be {}, but is `{}`", super::command::NAMES, Echo(.command))]
    UnknownCommand {
        /// What the call asked for.
        command: String,
    },
    /// A path is refused.
    #[error(transparent)]
    Path(#[from] ToolPathError),
    /// `view`: nothing is there.
    #[error("The path {path} does not exist. Please provide a valid path.")]
    NotFoundView {
        /// What was asked for.
        path: String,
    },
    /// `str_replace`: no file is there (perhaps a directory).
    #[error("Error: The path {path} does not exist. Please provide a valid path.")]
    NotFoundEdit {
        /// What was asked for.
        path: String,
    },
    /// `insert`, `delete`, the source of `rename`: nothing is there.
    #[error("Error: The path {path} does not exist")]
    NotFound {
        /// What was asked for.
        path: String,
    },
    /// `create`: a file or directory is there.
    #[error("Error: File {path} already exists")]
    AlreadyExists {
        /// What was to be created.
        path: String,
    },
    /// `rename`: a file or directory is at the destination.
    #[error("Error: The destination {path} already exists")]
    DestinationExists {
        /// The destination.
        path: String,
    },
    /// `create`, `rename`: the path leads through a file.
    #[error("Error: Path {path} cannot be created, because {file} is a file and not a directory")]
    ParentIsFile {
        /// What was to be created.
        path: String,
        /// The file that is in the way.
        file: String,
    },
    /// `delete` of `/memories`.
    #[error("Error: Cannot delete the /memories directory itself")]
    CannotDeleteRoot,
    /// `rename` from or to `/memories`.
    #[error("Error: Cannot rename the /memories directory itself")]
    CannotRenameRoot,
    /// `delete` of a session's mount.
    #[error("Error: Cannot delete {path}: it is where a memory store is mounted")]
    CannotDeleteMount {
        /// The mount.
        path: String,
    },
    /// `rename` from or to a session's mount.
    #[error("Error: Cannot rename {path}: it is where a memory store is mounted")]
    CannotRenameMount {
        /// The mount.
        path: String,
    },
    /// `rename` from one of a session's stores into another.
    #[error("Error: Cannot rename {from} to {to}: they are in two memory stores")]
    AcrossStores {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// A change in a store that is attached for reading alone.
    #[error("Error: {path} is in a memory store that is attached read-only")]
    ReadOnly {
        /// What was to be changed.
        path: String,
    },
    /// The store that a path leads to was deleted a moment ago.
    #[error(
        "Error: The memory store of this path is not there any more. View /memories to see those that are."
    )]
    StoreGone,
    /// `rename` of a directory to a place below it.
    #[error("Error: Cannot rename {from} to {to}: a directory cannot be moved into itself")]
    IntoItself {
        /// The directory.
        from: String,
        /// The destination below it.
        to: String,
    },
    /// `rename` of a directory: the new path of a file in it breaks a rule.
    #[error(
        "Error: Cannot rename the directory: the new path of {} {rule}. Nothing was renamed.",
        Known("", .path, "a file in it")
    )]
    PathBelowBreaksRule {
        /// The current path of the file; `None` if the caller may not read it.
        path: Option<String>,
        /// The rule that its new path breaks.
        rule: PathError,
    },
    /// `view`: the range is not one of lines that the file has.
    #[error(
        "Error: Invalid `view_range` parameter: [{start}, {end}]. \
         It should be within the range of lines of the file: [1, {lines}]"
    )]
    InvalidViewRange {
        /// The first line asked for.
        start: i64,
        /// The last line asked for, or -1 for the end of the file.
        end: i64,
        /// How many lines the file has.
        lines: usize,
    },
    /// `view`: line numbers would not fit their column.
    #[error("File {path} exceeds maximum line limit of 999,999 lines.")]
    TooManyLines {
        /// The file.
        path: String,
    },
    /// `str_replace`: the text is not in the file.
    #[error("No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")]
    NoMatch {
        /// What was to be replaced.
        old_str: String,
        /// The file.
        path: String,
    },
    /// `str_replace`: the text is in the file more than once.
    #[error(
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {}. \
         Please ensure it is unique",
        CommaSeparated(.lines)
    )]
    ManyMatches {
        /// What was to be replaced.
        old_str: String,
        /// The line each match starts in, in order; lines repeat.
        lines: Vec<usize>,
    },
    /// `str_replace`: there is nothing to look for.
    #[error("Error: No replacement was performed, because `old_str` is empty. Give the text to be replaced.")]
    EmptyOldStr,
    /// `insert`: the file has no such line.
    #[error(
        "Error: Invalid `insert_line` parameter: {line}. \
         It should be within the range of lines of the file: [0, {lines}]"
    )]
    InvalidInsertLine {
        /// The line asked for.
        line: i64,
        /// How many lines the file has.
        lines: usize,
    },
    /// The file would be over the limit of bytes.
    #[error(
        "Error: File {path} would be {} the limit of {limit_bytes} bytes per file. \
         Nothing was changed. Shorten it, or split it into several files.",
        Over(.size_bytes, "over")
    )]
    FileTooLarge {
        /// The file.
        path: String,
        /// What it would measure; `None`: the caller may not read it.
        size_bytes: Option<u64>,
        /// What it may measure.
        limit_bytes: u64,
    },
    /// The file would hold U+0000.
    #[error(
        "Error: File {path} would contain a NUL character, which a memory cannot hold. \
         Nothing was changed. Send the text without it."
    )]
    Nul {
        /// The file.
        path: String,
    },
    /// The store refuses what was found in the new content.
    #[error(
        "Error: The memory store's sensitive-data policy refuses {found} of {path}. Nothing was changed. \
         Leave the secret out; note where it is kept instead."
    )]
    Sensitive {
        /// The file.
        path: String,
        /// What was found and where, without the secrets.
        found: String,
    },
    /// The store would hold more files than it may.
    #[error(
        "Error: The memory store would hold {count} files, over its limit of {limit} files. \
         Nothing was changed. Delete files that are no longer needed, or add to an existing one."
    )]
    TooManyMemories {
        /// How many files the store would hold.
        count: u64,
        /// How many it may hold.
        limit: u64,
    },
    /// The store's files would measure more than they may.
    #[error(
        "Error: The memory store would hold {} its limit of {limit_bytes} bytes. \
         Nothing was changed. Delete or shorten files that are no longer needed.",
        Over(.size_bytes, "more than")
    )]
    StoreFull {
        /// What the store's files would measure; `None`: the caller may not read them.
        size_bytes: Option<u64>,
        /// What they may measure.
        limit_bytes: u64,
    },
    /// The files of all the tenant's stores would measure more than they may.
    #[error(
        "Error: All memory stores together would hold {} their limit of \
         {limit_bytes} bytes. Nothing was changed. Delete or shorten files that are no longer needed.",
        Over(.size_bytes, "more than")
    )]
    TenantFull {
        /// What the files of all the stores would measure; `None`: the caller may not
        /// read them.
        size_bytes: Option<u64>,
        /// What they may measure.
        limit_bytes: u64,
    },
    /// The store is archived, so it can only be read.
    #[error("Error: The memory store is archived and can only be read. Nothing was changed.")]
    Archived,
    /// Others kept changing the same place first.
    #[error(
        "Error: {path} was changed by others at the same time, again and again. \
         Nothing was changed by this call. View it, then try again."
    )]
    Conflict {
        /// What the call was to change.
        path: String,
    },
}

impl ToolError {
    /// The error for a caller that may write but not read: without details of the
    /// existing content.
    #[must_use]
    pub fn concealed(self) -> Self {
        match self {
            Self::Exists { path, .. } => Self::Exists { path, current: None },
            Self::ContentDiffers { path, .. } => Self::ContentDiffers { path, current: None },
            Self::PathBelowBreaksRule { rule, .. } => Self::PathBelowBreaksRule { path: None, rule },
            Self::FileTooLarge {
                path, limit_bytes, ..
            } => Self::FileTooLarge {
                path,
                size_bytes: None,
                limit_bytes,
            },
            Self::StoreFull { limit_bytes, .. } => Self::StoreFull {
                size_bytes: None,
                limit_bytes,
            },
            Self::TenantFull { limit_bytes, .. } => Self::TenantFull {
                size_bytes: None,
                limit_bytes,
            },
            other => other,
        }
    }

    /// The same of one of several edits.
    pub(crate) fn in_edit(self, number: usize, total: usize) -> Self {
        Self::InEdit {
            number,
            total,
            error: Box::new(self),
        }
    }
}

/// Writes an error inside of another one.
struct WithoutLabel<'a>(&'a ToolError);

impl fmt::Display for WithoutLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.strip_prefix("Error: ").unwrap_or(&text))
    }
}

/// Writes a prefix and the value, or another text if there is no value.
struct Known<'a, T>(&'static str, &'a Option<T>, &'static str);

impl<T: fmt::Display> fmt::Display for Known<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(before, known, unknown) = self;
        match known {
            Some(known) => write!(f, "{before}{known}"),
            None => f.write_str(unknown),
        }
    }
}

/// Writes that a size is over the limit that follows, with the size if it is known.
struct Over<'a>(&'a Option<u64>, &'static str);

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(Some(size_bytes), _) => write!(f, "{size_bytes} bytes, over"),
            Self(None, unknown) => f.write_str(unknown),
        }
    }
}

/// Writes numbers as `1, 3, 3`.
struct CommaSeparated<'a>(&'a [usize]);

impl fmt::Display for CommaSeparated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, number) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{number}")?;
        }
        Ok(())
    }
}
