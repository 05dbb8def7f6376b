//! Replacements in a file, and the parts of a content that results show.

use std::ops::Range;

use serde::Serialize;

use super::super::edit::{Edit, count_newlines, only_match, replacement};
use super::super::error::ToolError;
use super::super::view::byte_at;
use super::result::PartOfFile;
use crate::content::ContentHash;
use crate::path::ToolPath;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replacement {
    /// Must occur exactly once.
    pub old_str: String,
    pub new_str: String,
}

/// Applies replacements in order, all of them or none.
///
/// Each `old_str` must occur exactly once in the result of the previous
/// replacements.
pub fn apply_edits(path: &ToolPath, content: &str, edits: &[Replacement]) -> Result<Edit, ToolError> {
    let mut content = content.to_owned();
    let mut changed: Vec<Range<usize>> = Vec::new();
    for (position, edit) in edits.iter().enumerate() {
        let place = only_match(path, &content, &edit.old_str)
            .map_err(|error| error.in_edit(position + 1, edits.len()))?;
        let new_str = replacement(&content, &edit.old_str, &edit.new_str);
        content.replace_range(place.clone(), &new_str);
        note_change(&mut changed, place, new_str.len());
    }
    Ok(Edit {
        shown_lines: changed.iter().map(|range| lines_of(&content, range)).collect(),
        ..Edit::whole(content)
    })
}

/// Records that a replacement turned the range `place` into `new_bytes` bytes, and moves
/// the earlier ranges accordingly.
fn note_change(changed: &mut Vec<Range<usize>>, place: Range<usize>, new_bytes: usize) {
    let moved = |position: usize| position - place.len() + new_bytes;
    let mut new = place.start..place.start + new_bytes;
    let mut kept = Vec::with_capacity(changed.len() + 1);
    for range in changed.drain(..) {
        if range.end < place.start {
            kept.push(range);
        } else if range.start > place.end {
            kept.push(moved(range.start)..moved(range.end));
        } else {
            let end = if range.end > place.end { moved(range.end) } else { new.end };
            new = range.start.min(new.start)..end.max(new.end);
        }
    }
    let at = kept.partition_point(|range| range.start < new.start);
    kept.insert(at, new);
    *changed = kept;
}

/// The first and last line of a range of bytes, counted from 1. A line break at the
/// end of the range does not change the next line.
fn lines_of(content: &str, range: &Range<usize>) -> (usize, usize) {
    let first = count_newlines(&content[..range.start]) + 1;
    let inside = &content[range.clone()];
    let is_whole_lines = inside.ends_with('\n') && content[..range.start].ends_with('\n');
    let last = first + count_newlines(inside) - usize::from(is_whole_lines);
    (first, last)
}

/// A part of a content, from the character `offset` on; the end is a valid offset.
///
/// Returns at most `limit` and at most `max_chars` characters.
pub fn read(
    path: &ToolPath,
    content: &str,
    offset: u64,
    limit: Option<u64>,
    max_chars: u64,
) -> Result<PartOfFile, ToolError> {
    let total_chars = content.chars().count() as u64;
    if offset > total_chars {
        return Err(ToolError::OffsetPastEnd { offset, total_chars });
    }
    // At least one character, so that every page makes progress.
    let max = limit.unwrap_or(u64::MAX).min(max_chars.max(1));
    let end = offset.saturating_add(max).min(total_chars);
    let from = byte_at(content, offset);
    let length = byte_at(&content[from..], end - offset);
    Ok(PartOfFile {
        path: path.display().to_owned(),
        content: content[from..from + length].to_owned(),
        offset,
        next_offset: (end < total_chars).then_some(end),
        total_chars,
        content_size_bytes: content.len() as u64,
        content_sha256: ContentHash::of(content.as_bytes()).to_string(),
    })
}
