//! The two commands that edit a file: from the old content to the new content.

use std::ops::Range;

use super::error::ToolError;
use super::view::push_numbered_lines;
use crate::path::ToolPath;
use crate::sensitive::{Listed, Redacted};

/// Lines that a snippet shows before and after the change.
const SNIPPET_CONTEXT_LINES: usize = 2;

/// The outcome of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The file's new content.
    pub content: String,
    /// The result for the model, valid after the content is stored.
    pub message: String,
    /// The first and last changed line, if the result shows them.
    shown_lines: Option<(usize, usize)>,
}

impl Edit {
    /// An edit whose result does not show the content.
    pub const fn with_message(content: String, message: String) -> Self {
        Self {
            content,
            message,
            shown_lines: None,
        }
    }

    /// The edit after a redaction of its content.
    ///
    /// The result shows the redacted content, followed by a list of the replaced
    /// secrets.
    #[must_use]
    pub fn redacted(self, redacted: Redacted) -> Self {
        let message = match self.shown_lines {
            Some((first, last)) => {
                let [first, last] = [first, last].map(|line| line_after(&self.content, &redacted, line));
                snippet(&redacted.text, first, last)
            }
            None => self.message,
        };
        let count = redacted.findings.len();
        let secrets = if count == 1 { "secret" } else { "secrets" };
        Self {
            message: format!(
                "{message}\n{count} {secrets} replaced by `[redacted:…]`, as the memory store's sensitive-data \
                 policy asks: {}.",
                Listed(&redacted.findings)
            ),
            content: redacted.text,
            shown_lines: None,
        }
    }
}

/// The new number of a line of `content`, after redaction merged several lines into
/// one.
pub(super) fn line_after(content: &str, redacted: &Redacted, line: usize) -> usize {
    let lost_before = redacted.findings.iter().map(|finding| {
        let lines = count_newlines(&content[finding.range.clone()]);
        line.saturating_sub(finding.line).min(lines)
    });
    line - lost_before.sum::<usize>()
}

/// Replaces `old_str`, which must occur in `content` exactly once.
///
/// The message shows the changed lines and two lines on either side.
///
/// # Errors
/// [`ToolError::EmptyOldStr`], [`ToolError::NoMatch`], or
/// [`ToolError::ManyMatches`] (overlapping matches count).
pub fn str_replace(path: &ToolPath, content: &str, old_str: &str, new_str: &str) -> Result<Edit, ToolError> {
    let Range { start, end } = only_match(path, content, old_str)?;
    let rest = &content[end..];
    let mut edited = String::with_capacity(start + new_str.len() + rest.len());
    edited.extend([&content[..start], new_str, rest]);

    let first_line = count_newlines(&content[..start]) + 1;
    let last_line = first_line + count_newlines(new_str);
    // If both texts end with a newline, the line after the change is unchanged.
    let rest_kept_its_start = new_str.ends_with('\n') && old_str.ends_with('\n');
    let last_line = last_line - usize::from(rest_kept_its_start);
    Ok(Edit {
        message: snippet(&edited, first_line, last_line),
        content: edited,
        shown_lines: Some((first_line, last_line)),
    })
}

/// The byte range of the only occurrence of `old_str` in `content`.
///
/// # Errors
/// As [`str_replace`].
pub(super) fn only_match(path: &ToolPath, content: &str, old_str: &str) -> Result<Range<usize>, ToolError> {
    let Some(first_character) = old_str.chars().next() else {
        return Err(ToolError::EmptyOldStr);
    };
    let Some(start) = content.find(old_str) else {
        return Err(ToolError::NoMatch {
            old_str: old_str.to_owned(),
            path: path.display().to_owned(),
        });
    };
    if content[start + first_character.len_utf8()..].contains(old_str) {
        let lines = match_lines(content, old_str);
        return Err(ToolError::ManyMatches {
            old_str: old_str.to_owned(),
            lines,
        });
    }
    Ok(start..start + old_str.len())
}

/// The result of an edit of the lines `first_line..=last_line`.
fn snippet(content: &str, first_line: usize, last_line: usize) -> String {
    let from_line = first_line.saturating_sub(SNIPPET_CONTEXT_LINES).max(1);
    let line_count = last_line + SNIPPET_CONTEXT_LINES + 1 - from_line;
    let lines = content.split('\n').skip(from_line - 1).take(line_count);
    let mut message =
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            .to_owned();
    push_numbered_lines(&mut message, from_line, lines);
    message
}

/// The start line of each match of `needle`, including overlapping matches.
///
/// Uses the search of Knuth, Morris and Pratt, because a new search after every
/// match would take quadratic time for a needle such as `aaaa…`.
fn match_lines(content: &str, needle: &str) -> Vec<usize> {
    let needle = needle.as_bytes();
    let fallbacks = fallbacks(needle);
    let mut lines = Vec::new();
    let mut line = 1;
    let mut counted_to = 0;
    let mut matched = 0;
    for (position, &byte) in content.as_bytes().iter().enumerate() {
        while matched > 0 && (matched == needle.len() || needle[matched] != byte) {
            matched = fallbacks[matched - 1];
        }
        if needle[matched] == byte {
            matched += 1;
        }
        if matched == needle.len() {
            let start = position + 1 - needle.len();
            line += count_newlines(&content[counted_to..start]);
            counted_to = start;
            lines.push(line);
        }
    }
    lines
}

/// For each prefix of `needle`, its longest proper prefix that is also its suffix.
fn fallbacks(needle: &[u8]) -> Vec<usize> {
    let mut fallbacks = vec![0; needle.len()];
    let mut matched = 0;
    for position in 1..needle.len() {
        while matched > 0 && needle[matched] != needle[position] {
            matched = fallbacks[matched - 1];
        }
        if needle[matched] == needle[position] {
            matched += 1;
        }
        fallbacks[position] = matched;
    }
    fallbacks
}

/// Inserts `insert_text` after line `insert_line`; 0 is the top.
///
/// The trailing newlines of the text count as one, so that the text is whole lines
/// (one empty line if the text has only newlines). The new content ends with a
/// newline. The empty tail after a last newline is not a line to insert after.
///
/// # Errors
/// [`ToolError::InvalidInsertLine`] when `content` has no such line.
pub fn insert(
    path: &ToolPath,
    content: &str,
    insert_line: i64,
    insert_text: &str,
) -> Result<Edit, ToolError> {
    let lacks_last_newline = !content.is_empty() && !content.ends_with('\n');
    let line_count = count_newlines(content) + usize::from(lacks_last_newline);
    let after_line = usize::try_from(insert_line)
        .ok()
        .filter(|&line| line <= line_count)
        .ok_or(ToolError::InvalidInsertLine {
            line: insert_line,
            lines: line_count,
        })?;

    let split: usize = content.split_inclusive('\n').take(after_line).map(str::len).sum();
    let (before, after) = content.split_at(split);
    let inserted = insert_text.trim_end_matches('\n');
    let mut edited = String::with_capacity(content.len() + inserted.len() + 2);
    edited.push_str(before);
    if !before.is_empty() && !before.ends_with('\n') {
        edited.push('\n');
    }
    edited.push_str(inserted);
    edited.push('\n');
    edited.push_str(after);
    if !edited.ends_with('\n') {
        edited.push('\n');
    }
    Ok(Edit::with_message(edited, super::inserted_message(path)))
}

fn count_newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}
