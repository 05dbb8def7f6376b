//! The command that reads: shows a file with line numbers, or lists a directory.

use std::fmt::{self, Write};

use super::edit::count_newlines;
use super::error::ToolError;
use crate::path::{DirPath, ToolPath};

/// The maximum number of lines whose numbers fit their column.
const MAX_LINES: usize = 999_999;
/// Characters before each line: the number's column and the tab.
pub(super) const NUMBER_CHARS: usize = 7;
/// Bytes allocated for the notice after the lines, which says how to read the rest.
const NOTICE_BYTES: usize = 160;

/// Renders a file's lines with their numbers.
///
/// Shows at most `max_chars` characters of numbered lines (the newlines between
/// them included, the header not); a notice says how to read the rest. A first line
/// that is too long is cut, so that every page makes progress; `offset` skips the
/// characters of the file before it, so that such a line can be read to its end. Only
/// `\n` ends a line, and an empty file is one empty line.
pub fn view_file(
    path: &ToolPath,
    content: &str,
    view_range: Option<(i64, i64)>,
    offset: u64,
    max_chars: u64,
) -> Result<String, ToolError> {
    let line_count = count_newlines(content) + 1;
    if line_count > MAX_LINES {
        return Err(ToolError::TooManyLines { path: path.display().to_owned() });
    }
    let (start, end) = view_range.unwrap_or((1, -1));
    let Some((first, last)) = resolve_range(start, end, line_count) else {
        return Err(ToolError::InvalidViewRange { start, end, lines: line_count });
    };
    let max_chars = usize::try_from(max_chars).unwrap_or(usize::MAX);
    let skipped_bytes: usize = content.split_inclusive('\n').take(first - 1).map(str::len).sum();
    let (first, skipped_bytes) = after_offset(content, offset, (first, last), skipped_bytes)?;
    let (skipped, selected) = content.split_at(skipped_bytes);

    let bytes_per_char = if selected.is_ascii() { 1 } else { 4 };
    let numbers_bytes = NUMBER_CHARS.saturating_mul(last - first + 1);
    let lines_bytes = (selected.len() + numbers_bytes).min(max_chars.saturating_mul(bytes_per_char));
    let mut text = String::with_capacity(path.display().len() + lines_bytes + NOTICE_BYTES);
    text.extend(["Here's the content of ", path.display(), " with line numbers:\n"]);

    let mut number = LineNumber::new(first);
    let mut chars_used = 0_usize;
    for (line_index, line) in (first..=last).zip(selected.split('\n')) {
        let line_chars = if bytes_per_char == 1 { line.len() } else { line.chars().count() };
        let separator_chars = usize::from(line_index > first);
        chars_used = chars_used.saturating_add(separator_chars + NUMBER_CHARS + line_chars);
        if chars_used > max_chars {
            if line_index == first {
                let range = ViewedRange { first, last, end, line_count };
                push_cut_line(&mut text, range, line, skipped, max_chars);
            } else {
                let (shown_to, next) = (line_index - 1, line_index);
                let notice = format!(
                    "\n\n[Lines {first}-{shown_to} of {line_count} shown. \
                     Continue with view_range [{next}, {end}].]"
                );
                text.push_str(&notice);
            }
            return Ok(text);
        }
        if separator_chars == 1 {
            text.push('\n');
        }
        number.push_to(&mut text);
        text.push_str(line);
    }
    Ok(text)
}

/// The line and the byte from which a view with `offset` shows the file. The requested
/// lines start at byte `skipped_bytes`.
fn after_offset(
    content: &str,
    offset: u64,
    (first, last): (usize, usize),
    skipped_bytes: usize,
) -> Result<(usize, usize), ToolError> {
    if offset == 0 {
        return Ok((first, skipped_bytes));
    }
    let total_chars = content.chars().count() as u64;
    if offset > total_chars {
        return Err(ToolError::OffsetPastEnd { offset, total_chars });
    }
    let from = byte_at(content, offset);
    if from <= skipped_bytes {
        return Ok((first, skipped_bytes));
    }
    let line = count_newlines(&content[..from]) + 1;
    if line > last {
        let rule = format!("must not be after the last line of `view_range`, {last}, but is in line {line}");
        return Err(ToolError::OutOfBounds { field: "offset", rule });
    }
    Ok((line, from))
}

/// The first and last line of a range; `None` if the file does not have them.
fn resolve_range(start: i64, end: i64, line_count: usize) -> Option<(usize, usize)> {
    let first = usize::try_from(start).ok().filter(|line| (1..=line_count).contains(line))?;
    if end == -1 {
        return Some((first, line_count));
    }
    let last = usize::try_from(end).ok().filter(|&line| line >= first)?;
    Some((first, last.min(line_count)))
}

/// The lines that a view shows, with the end as it was requested.
#[derive(Clone, Copy)]
struct ViewedRange {
    first: usize,
    last: usize,
    end: i64,
    line_count: usize,
}

/// Shows the start of a line that does not fit, and how to read the rest.
fn push_cut_line(text: &mut String, range: ViewedRange, line: &str, skipped: &str, max_chars: usize) {
    let ViewedRange { first, last, end, line_count } = range;
    let shown_chars = max_chars.saturating_sub(NUMBER_CHARS);
    let shown = line.char_indices().nth(shown_chars).map_or(line, |(cut, _)| &line[..cut]);
    push_numbered_lines(text, first, [shown]);
    let total_chars = line.chars().count();
    let offset_chars = skipped.chars().count() + shown_chars;
    let next = if first < last {
        format!("view_range [{}, {end}]", first + 1)
    } else if last == line_count {
        format!("view with offset {offset_chars}")
    } else {
        format!("view with offset {offset_chars} and view_range [{first}, {end}]")
    };
    let notice = format!(
        "\n\n[Line {first} cut: {shown_chars} of {total_chars} characters shown. \
         Read on with memory_read and offset {offset_chars}, or {next}.]"
    );
    text.push_str(&notice);
}

/// The byte offset of a character; the end of the text if there is no such
/// character.
pub(super) fn byte_at(text: &str, character: u64) -> usize {
    let Ok(character) = usize::try_from(character) else {
        return text.len();
    };
    if text.is_ascii() {
        return character.min(text.len());
    }
    text.char_indices().nth(character).map_or(text.len(), |(position, _)| position)
}

/// Appends lines with their numbers, newlines between them.
pub(super) fn push_numbered_lines<'a>(
    text: &mut String,
    first_number: usize,
    lines: impl IntoIterator<Item = &'a str>,
) {
    let mut number = LineNumber::new(first_number);
    for (position, line) in lines.into_iter().enumerate() {
        if position > 0 {
            text.push('\n');
        }
        number.push_to(text);
        text.push_str(line);
    }
}

/// The column of line numbers, incremented in place.
///
/// Viewing is the most frequent operation, and formatting each number separately
/// would take most of its time.
struct LineNumber {
    /// Digits, right-aligned, then the tab. Has more room than the column, because a
    /// snippet may come from a file that is too long to view.
    column: [u8; 21],
    /// The index of the first digit.
    digits_from: usize,
}

impl LineNumber {
    /// The index of the tab.
    const TAB: usize = 20;

    fn new(first: usize) -> Self {
        let mut column = [b' '; 21];
        column[Self::TAB] = b'\t';
        let digits = first.to_string();
        let digits_from = Self::TAB - digits.len();
        column[digits_from..Self::TAB].copy_from_slice(digits.as_bytes());
        Self { column, digits_from }
    }

    /// Appends the number and increments it.
    fn push_to(&mut self, text: &mut String) {
        let column_from = self.digits_from.min(Self::TAB + 1 - NUMBER_CHARS);
        text.push_str(std::str::from_utf8(&self.column[column_from..]).unwrap_or_default());
        let mut position = Self::TAB - 1;
        while self.column[position] == b'9' {
            self.column[position] = b'0';
            position -= 1;
        }
        if position < self.digits_from {
            self.digits_from = position;
            self.column[position] = b'0';
        }
        self.column[position] += 1;
    }
}

/// One line of a directory's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The path in the store; in a list of mounts, it begins with the mount's name. The path of a directory
    /// ends in `/`.
    pub path: String,
    pub is_directory: bool,
    /// Bytes of the file, or of all files below the directory.
    pub size_bytes: u64,
}

impl DirectoryEntry {
    /// The path below the viewed directory, without a slash at either end.
    pub fn path_below(&self, directory: &DirPath) -> &str {
        self.path.get(directory.as_str().len()..).unwrap_or_default().trim_end_matches('/')
    }
}

/// Renders a directory's listing.
///
/// `entries` are in display order, and may be only the first of `total_entries`.
/// Shows at most `max_chars` characters of listing (the newlines between lines
/// included, the header not). The directory's own line is always shown, and a
/// notice says how many entries are left out.
pub fn view_directory(
    path: &ToolPath,
    size_bytes: u64,
    entries: &[DirectoryEntry],
    total_entries: u64,
    max_chars: u64,
) -> String {
    let (directory, above) = (path.display(), path.dir());
    let mut text = format!(
        "Here're the files and directories up to 2 levels deep in {directory}, \
         excluding hidden items and node_modules:\n"
    );
    let own_line = format!("{}\t{directory}", format_size(size_bytes));
    let mut chars_used = chars(&own_line);
    text.push_str(&own_line);

    let mut shown = 0;
    for entry in entries {
        let slash = if entry.is_directory { "/" } else { "" };
        let line_from = text.len();
        text.push('\n');
        push_size(&mut text, entry.size_bytes);
        for part in ["\t", directory, "/", entry.path_below(&above), slash] {
            text.push_str(part);
        }
        let line_chars = chars(text.get(line_from..).unwrap_or_default());
        chars_used = chars_used.saturating_add(line_chars);
        if chars_used > max_chars {
            text.truncate(line_from);
            break;
        }
        shown += 1;
    }
    if shown < total_entries {
        let left = total_entries - shown;
        let notice = format!("\n\n[{left} more entries not shown. View a subdirectory to see them.]");
        text.push_str(&notice);
    }
    text
}

/// The maximum number of entries that [`view_directory`] can show.
///
/// A listing of `path` within `max_chars` cannot have more entries, so the engine
/// need not read more.
pub fn max_entries_shown(path: &ToolPath, max_chars: u64) -> u64 {
    let directory_chars = chars(path.display());
    let own_line_chars = chars("0B\t") + directory_chars;
    let shortest_entry_chars = chars("\n0B\t/x") + directory_chars;
    max_chars.saturating_sub(own_line_chars) / shortest_entry_chars
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

/// A size as listings show it: `0B` to `1023B`, then `1.5K`, `2.0M`, `1.2G`.
///
/// Units are powers of 1024, with one decimal, rounded half up.
pub fn format_size(bytes: u64) -> String {
    let mut text = String::new();
    push_size(&mut text, bytes);
    text
}

/// Appends a size as [`format_size`] shows it.
fn push_size(text: &mut String, bytes: u64) {
    let mut push = |size: fmt::Arguments<'_>| {
        // Writing into a string cannot fail.
        let _ = text.write_fmt(size);
    };
    if bytes < 1024 {
        return push(format_args!("{bytes}B"));
    }
    let tenths_in = |shift: u32| ((u128::from(bytes) * 10) + (1 << (shift - 1))) >> shift;
    for (unit, shift) in [("K", 10), ("M", 20)] {
        let tenths = tenths_in(shift);
        // A size that rounds up to 1024.0 of a unit is 1.0 of the next unit.
        if tenths < 10_240 {
            return push(format_args!("{}.{}{unit}", tenths / 10, tenths % 10));
        }
    }
    let tenths = tenths_in(30);
    push(format_args!("{}.{}G", tenths / 10, tenths % 10));
}
