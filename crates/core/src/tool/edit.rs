//! Edits of a file: from the old content to the new content.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;

use super::error::ToolError;
use super::line_end::{hint_of_other_ends, line_end, with_line_end};
use super::view::{NUMBER_CHARS, push_numbered_lines};
use crate::path::ToolPath;
use crate::sensitive::{Finding, RedactedText, redaction_note};

/// Lines that a snippet shows before and after the change.
const SNIPPET_CONTEXT_LINES: usize = 2;
/// No snippet shortens a line of at most this many characters.
const MIN_LINE_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The file's new content.
    pub content: String,
    /// The first and last line of each changed part of `content`, counted from 1 and in
    /// ascending order; two parts can share a line. Empty if the result shows no lines.
    pub(super) shown_lines: Vec<(usize, usize)>,
    /// Only of an append: the number of lines of the file before the appended text.
    pub(super) lines_before: usize,
    /// The secrets that redaction replaced. An append counts their lines from the start of the
    /// appended text, any other edit from the start of the file.
    pub findings: Vec<Finding>,
}

impl Edit {
    /// The edit that sets the whole content of a file.
    pub const fn whole(content: String) -> Self {
        Self { content, shown_lines: Vec::new(), lines_before: 0, findings: Vec::new() }
    }

    /// The edit after a redaction of its content.
    #[must_use]
    pub fn redacted(self, redacted: RedactedText) -> Self {
        let after = |line| line_after(&self.content, &redacted, line);
        let shown_lines = self.shown_lines.iter();
        Self {
            shown_lines: shown_lines.map(|&(first, last)| (after(first), after(last))).collect(),
            content: redacted.text,
            lines_before: self.lines_before,
            findings: self.in_lines_sent(redacted.findings),
        }
    }

    /// Converts line numbers in the file to line numbers in the appended text, because line
    /// numbers in the file would reveal its length to a caller that may write but not read. Of
    /// other edits, the line numbers stay the same.
    #[must_use]
    pub fn in_lines_sent(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        for finding in &mut findings {
            finding.line = finding.line.saturating_sub(self.lines_before).max(1);
        }
        findings
    }

    /// The changed lines and two lines on either side; changes that are close share one
    /// snippet.
    ///
    /// With their numbers, the lines have at most seven eighths of `max_chars` characters:
    /// the rest is for the text around them. If they have more, long lines are shortened,
    /// and the last lines are left out.
    pub fn snippets(&self, max_chars: u64) -> Vec<Snippet> {
        if self.shown_lines.is_empty() {
            return Vec::new();
        }
        let lines: Vec<&str> = self.content.split('\n').collect();
        let wanted = self.wanted_lines(lines.len());
        let max_chars = usize::try_from(max_chars).unwrap_or(usize::MAX);
        let mut left = max_chars - max_chars / 8;
        let wanted_chars: usize =
            wanted.iter().flat_map(|range| &lines[range.clone()]).map(|line| numbered_chars(line)).sum();
        let max_line_chars =
            if wanted_chars <= left { usize::MAX } else { (max_chars / 8).max(MIN_LINE_CHARS) };
        let mut snippets = Vec::new();
        for range in wanted {
            let mut snippet =
                Snippet { first_line: range.start + 1, text: String::new(), is_cut: false, missing: None };
            for (position, line) in range.clone().zip(&lines[range.clone()]) {
                let shown = shortened(line, max_line_chars);
                let chars = numbered_chars(&shown);
                if chars > left {
                    snippet.missing = Some((position + 1, range.end));
                    break;
                }
                left -= chars;
                snippet.is_cut |= matches!(shown, Cow::Owned(_));
                if position > range.start {
                    snippet.text.push('\n');
                }
                snippet.text.push_str(&shown);
            }
            let is_last = snippet.missing.is_some();
            snippet.is_cut |= is_last;
            snippets.push(snippet);
            if is_last {
                break;
            }
        }
        snippets
    }

    /// The lines to show, counted from 0, as ranges that do not touch.
    fn wanted_lines(&self, line_count: usize) -> Vec<Range<usize>> {
        let mut wanted: Vec<Range<usize>> = Vec::new();
        for &(first, last) in &self.shown_lines {
            let from = first.saturating_sub(SNIPPET_CONTEXT_LINES + 1);
            let to = (last + SNIPPET_CONTEXT_LINES).min(line_count);
            match wanted.last_mut() {
                Some(before) if before.end >= from => before.end = to.max(before.end),
                _ => wanted.push(from..to),
            }
        }
        wanted
    }

    /// The result of the memory tool: `message` or, if the edit has lines to show, a
    /// snippet with two lines on either side; then a list of the replaced secrets.
    pub fn to_message(&self, message: String, max_chars: u64) -> String {
        let message = match self.snippets(max_chars).first() {
            Some(snippet) => {
                let mut text =
                    "The memory file has been edited. Here is the snippet showing the change (with \
                                line numbers):\n"
                        .to_owned();
                snippet.push_to(&mut text);
                if let Some((first, last)) = snippet.missing {
                    let notice = format!(
                        "\n\n[Lines {first}-{last} not shown. View them with view_range [{first}, {last}].]"
                    );
                    text.push_str(&notice);
                }
                text
            }
            None => message,
        };
        message + &redaction_note(self.findings.iter().map(Finding::kind_and_line), 0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The number of the first line, counted from 1.
    pub first_line: usize,
    pub text: String,
    /// Whether lines are shortened or missing because of the limit.
    pub is_cut: bool,
    /// The first and last line that are missing at the end.
    #[serde(skip)]
    missing: Option<(usize, usize)>,
}

impl Snippet {
    pub(super) fn push_to(&self, text: &mut String) {
        if self.missing.is_none_or(|(first, _)| first > self.first_line) {
            push_numbered_lines(text, self.first_line, self.text.split('\n'));
        }
    }
}

/// The characters of a line in a snippet, with its number and a newline.
fn numbered_chars(line: &str) -> usize {
    NUMBER_CHARS + line.chars().count() + 1
}

/// A line, cut after `max_chars` characters, with the number of characters left out.
fn shortened(line: &str, max_chars: usize) -> Cow<'_, str> {
    match line.char_indices().nth(max_chars) {
        Some((cut, _)) => {
            let left = line[cut..].chars().count();
            format!("{}… [{left} more characters]", &line[..cut]).into()
        }
        None => line.into(),
    }
}

/// The new number of a line of `content`, after redaction merged several lines into
/// one.
fn line_after(content: &str, redacted: &RedactedText, line: usize) -> usize {
    let lost_before = redacted.findings.iter().map(|finding| {
        let lines = count_newlines(&content[finding.range.clone()]);
        line.saturating_sub(finding.line).min(lines)
    });
    line - lost_before.sum::<usize>()
}

/// Replaces `old_str`, which must occur in `content` exactly once; overlapping matches
/// count.
///
/// If `old_str` has no line break, the line breaks of `new_str` become line ends of the
/// file. The result shows the changed lines.
pub fn str_replace(path: &ToolPath, content: &str, old_str: &str, new_str: &str) -> Result<Edit, ToolError> {
    let Range { start, end } = only_match(path, content, old_str)?;
    let new_str = replacement(content, old_str, new_str);
    let rest = &content[end..];
    let mut edited = String::with_capacity(start + new_str.len() + rest.len());
    edited.extend([&content[..start], &*new_str, rest]);

    let first_line = count_newlines(&content[..start]) + 1;
    let last_line = first_line + count_newlines(&new_str);
    // If both texts end with a newline, the line after the change is unchanged.
    let rest_kept_its_start = new_str.ends_with('\n') && old_str.ends_with('\n');
    let last_line = last_line - usize::from(rest_kept_its_start);
    Ok(Edit { shown_lines: vec![(first_line, last_line)], ..Edit::whole(edited) })
}

/// The text that replaces `old_str`. The author of an `old_str` with a line break knows the
/// line ends of the file, so `new_str` is then used unchanged.
pub(super) fn replacement<'a>(content: &str, old_str: &str, new_str: &'a str) -> Cow<'a, str> {
    match line_end(content) {
        Some(end) if !old_str.contains(['\r', '\n']) => with_line_end(new_str, end),
        _ => new_str.into(),
    }
}

/// The byte range of the only occurrence of `old_str` in `content`.
pub(super) fn only_match(path: &ToolPath, content: &str, old_str: &str) -> Result<Range<usize>, ToolError> {
    let Some(first_character) = old_str.chars().next() else {
        return Err(ToolError::EmptyOldStr);
    };
    let Some(start) = content.find(old_str) else {
        let (path, hint) = (path.display().to_owned(), hint_of_other_ends(content, old_str));
        return Err(ToolError::NoMatch { old_str: old_str.to_owned(), path, hint });
    };
    if content[start + first_character.len_utf8()..].contains(old_str) {
        let lines = match_lines(content, old_str);
        return Err(ToolError::ManyMatches { old_str: old_str.to_owned(), lines });
    }
    Ok(start..start + old_str.len())
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

/// Inserts `insert_text` as whole lines after line `insert_line`; 0 is the top.
///
/// The new lines get the line ends of the file, and the new content ends with a newline.
/// The empty text after the last newline is not a line to insert after.
pub fn insert(content: &str, insert_line: i64, insert_text: &str) -> Result<Edit, ToolError> {
    let lacks_last_newline = !content.is_empty() && !content.ends_with('\n');
    let line_count = count_newlines(content) + usize::from(lacks_last_newline);
    let after_line = usize::try_from(insert_line)
        .ok()
        .filter(|&line| line <= line_count)
        .ok_or(ToolError::InvalidInsertLine { line: insert_line, lines: line_count })?;
    let split: usize = content.split_inclusive('\n').take(after_line).map(str::len).sum();
    Ok(Edit::whole(with_lines(content, split, insert_text)))
}

/// Appends `text` as whole lines, as [`insert`] does.
pub fn append(content: &str, text: &str) -> Edit {
    Edit { lines_before: content.lines().count(), ..Edit::whole(with_lines(content, content.len(), text)) }
}

/// Inserts the lines of `text` at a byte of a content. Newlines at the end of `text` count
/// as one newline, so a text of newlines only is one empty line.
fn with_lines(content: &str, at: usize, text: &str) -> String {
    let end = line_end(content).or_else(|| line_end(text)).unwrap_or("\n");
    let text = with_line_end(text, end);
    let text = text.trim_end_matches(end);
    let (before, after) = content.split_at(at);
    let mut edited = String::with_capacity(content.len() + text.len() + 3 * end.len());
    edited.push_str(before);
    if !before.is_empty() && !before.ends_with('\n') {
        edited.push_str(end);
    }
    edited.extend([text, end, after]);
    if !edited.ends_with('\n') {
        edited.push_str(end);
    }
    edited
}

pub(super) fn count_newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}
