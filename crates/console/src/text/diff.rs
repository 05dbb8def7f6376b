//! The differences between two texts, line by line.

use std::sync::Arc;

use keepsake_core::words;
use keepsake_engine::LineDiff;
use similar::{ChangeTag, DiffOp, DiffTag, InlineChange, InlineChangeOptions, TextDiff};

use super::lines::push_cut;
use super::markup::{Markup, push_visible};
use crate::page::Refusal;
use crate::request::Caller;

/// Unchanged lines around each change.
const CONTEXT_LINES: usize = 3;
/// Limit of the HTML, so that a page stays small.
const MAX_BYTES: usize = 48 << 10;
/// Longer lines are cut.
const MAX_LINE_CHARS: usize = 2_000;
/// Larger changes are not compared word by word.
const MAX_WORDS_BYTES: usize = 8 << 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Side {
    /// Counted from 1.
    pub(crate) number: usize,
    pub(crate) text: Markup,
}

/// A line of either text, or of both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) old: Option<Side>,
    pub(crate) new: Option<Side>,
    /// Whether the line is in both texts.
    pub(crate) is_same: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Hunk {
    pub(crate) heading: String,
    /// Side by side: a removed line beside the line that replaces it.
    pub(crate) rows: Vec<Row>,
}

impl Hunk {
    /// One below the other: removed lines, then added lines.
    pub(crate) fn inline(&self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(self.rows.len() * 2);
        let mut added = Vec::new();
        for row in &self.rows {
            if row.is_same {
                rows.append(&mut added);
                rows.push(row.clone());
                continue;
            }
            if row.old.is_some() {
                rows.push(Row { old: row.old.clone(), ..Row::default() });
            }
            if row.new.is_some() {
                added.push(Row { new: row.new.clone(), ..Row::default() });
            }
        }
        rows.append(&mut added);
        rows
    }

    pub(crate) fn inlined(self) -> Self {
        Self { rows: self.inline(), ..self }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Diff {
    pub(crate) hunks: Vec<Hunk>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Whether there are more changes than shown.
    pub(crate) is_cut: bool,
}

impl Diff {
    /// Compares two texts in a slot of the caller's tenant.
    pub(crate) async fn computed(caller: &Caller, old: Arc<str>, new: Arc<str>) -> Result<Self, Refusal> {
        let compare = move || Self::of(&old, &new);
        let diff = caller.engine.computations.run(caller.principal.tenant_id, compare).await?;
        Ok(diff)
    }

    /// Takes up to some hundreds of milliseconds.
    pub(crate) fn of(old: &str, new: &str) -> Self {
        let lines = LineDiff::of(old, new, CONTEXT_LINES);
        let LineDiff { added, removed, is_cut, before: first, .. } = lines;
        let mut shown = Self { added, removed, is_cut, hunks: Vec::new() };
        let Some(diff) = lines.compared else {
            return shown;
        };
        let mut bytes = 0;
        for ops in diff.grouped_ops(CONTEXT_LINES) {
            if bytes > MAX_BYTES {
                shown.is_cut = true;
                break;
            }
            let mut hunk = Hunk { heading: heading(&ops, first), rows: Vec::new() };
            for op in &ops {
                shown.is_cut |= push_rows(&diff, op, first, &mut hunk.rows, &mut bytes);
            }
            shown.hunks.push(hunk);
        }
        shown
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.added + self.removed == 0
    }
}

/// `before` is the number of lines before the compared ones.
fn heading(ops: &[DiffOp], before: usize) -> String {
    let first = ops.first().map_or((0, 0), |op| (op.old_range().start, op.new_range().start));
    let old: usize = ops.iter().map(|op| op.old_range().len()).sum();
    let new: usize = ops.iter().map(|op| op.new_range().len()).sum();
    format!("Lines {} → {}", lines_from(before + first.0 + 1, old), lines_from(before + first.1 + 1, new))
}

/// The numbers of `count` lines.
fn lines_from(first: usize, count: usize) -> String {
    match count {
        0 => "none".to_owned(),
        1 => words::count(first as u64),
        _ => format!("{}–{}", words::count(first as u64), words::count((first + count - 1) as u64)),
    }
}

/// Appends the rows of a change. Returns whether some rows did not fit.
fn push_rows(
    diff: &TextDiff<'_, '_, str>,
    op: &DiffOp,
    before: usize,
    rows: &mut Vec<Row>,
    bytes: &mut usize,
) -> bool {
    if *bytes > MAX_BYTES {
        return true;
    }
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let (_, old_range, new_range) = op.as_tag_tuple();
    let size: usize = old_range.clone().filter_map(|line| diff.old_slice(line)).map(str::len).sum();
    let size = size + new_range.clone().filter_map(|line| diff.new_slice(line)).map(str::len).sum::<usize>();
    let is_compared = op.tag() == DiffTag::Replace && size <= MAX_WORDS_BYTES;
    let changes = is_compared.then(|| compared_words(diff, op)).flatten();
    if let Some(changes) = changes {
        for change in &changes {
            push_words(change, before, &mut old, &mut new, bytes);
        }
    } else {
        for change in diff.iter_changes(op) {
            if *bytes > MAX_BYTES {
                return true;
            }
            let mut html = String::new();
            push_cut(&mut html, trimmed(change.value()), MAX_LINE_CHARS);
            *bytes += html.len() + 64;
            let line_at = |index: Option<usize>| {
                index.map(|index| Side { number: before + index + 1, text: Markup::trusted(html.clone()) })
            };
            match change.tag() {
                ChangeTag::Equal => rows.push(Row {
                    old: line_at(change.old_index()),
                    new: line_at(change.new_index()),
                    is_same: true,
                }),
                ChangeTag::Delete => old.extend(line_at(change.old_index())),
                ChangeTag::Insert => new.extend(line_at(change.new_index())),
            }
        }
    }
    let pairs = old.len().max(new.len());
    let (mut old, mut new) = (old.into_iter(), new.into_iter());
    rows.extend((0..pairs).map(|_| Row { old: old.next(), new: new.next(), is_same: false }));
    false
}

/// The replaced and the new lines, with their changed words. `None`: the shorter side shares less than half of its
/// words with the other one.
fn compared_words<'d>(diff: &'d TextDiff<'_, '_, str>, op: &DiffOp) -> Option<Vec<InlineChange<'d, str>>> {
    let mut options = InlineChangeOptions::new();
    // This ratio counts lines, too, and one line may replace many.
    options.min_ratio(0.0);
    let changes: Vec<_> = diff.iter_inline_changes_with_options(op, options).collect();
    let (mut shared, mut old, mut new) = (0, 0, 0);
    for change in &changes {
        for (is_changed, text) in change.values() {
            let bytes: usize = text.split_whitespace().map(str::len).sum();
            match change.tag() {
                ChangeTag::Delete => {
                    old += bytes;
                    shared += if *is_changed { 0 } else { bytes };
                }
                ChangeTag::Insert | ChangeTag::Equal => new += bytes,
            }
        }
    }
    (shared > 0 && 2 * shared >= old.min(new)).then_some(changes)
}

/// Appends a line with its changed words marked.
fn push_words(
    change: &InlineChange<'_, str>,
    before: usize,
    old: &mut Vec<Side>,
    new: &mut Vec<Side>,
    bytes: &mut usize,
) {
    let mut html = String::new();
    for (is_changed, text) in change.iter_strings_lossy() {
        let text = trimmed(&text);
        if is_changed && !text.is_empty() {
            html.push_str("<mark>");
            push_visible(&mut html, text);
            html.push_str("</mark>");
        } else {
            push_visible(&mut html, text);
        }
    }
    *bytes += html.len() + 64;
    let (sides, index) = match change.tag() {
        ChangeTag::Delete => (old, change.old_index()),
        ChangeTag::Insert | ChangeTag::Equal => (new, change.new_index()),
    };
    sides.push(Side { number: before + index.unwrap_or_default() + 1, text: Markup::trusted(html) });
}

fn trimmed(line: &str) -> &str {
    line.trim_end_matches(['\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(word: &str, count: usize) -> String {
        (1..=count).map(|line| format!("{word}{line}\n")).collect::<Vec<_>>().concat()
    }

    fn numbers(row: &Row) -> (Option<usize>, Option<usize>) {
        let number = |side: &Option<Side>| side.as_ref().map(|side| side.number);
        (number(&row.old), number(&row.new))
    }

    #[test]
    fn changed_lines_are_paired_and_changed_words_marked() {
        let diff = Diff::of("1\n2\n3\n", "1\n2x\n3\n4\n");
        assert_eq!((diff.added, diff.removed, diff.hunks.len()), (2, 1, 1));
        let rows = &diff.hunks[0].rows;
        let [first, third] = [1, 3].map(|number| (Some(number), Some(number)));
        let split: Vec<_> = rows.iter().map(numbers).collect();
        assert_eq!(split, [first, (Some(2), Some(2)), third, (None, Some(4))]);
        let inline: Vec<_> = diff.hunks[0].inline().iter().map(numbers).collect();
        assert_eq!(inline, [first, (Some(2), None), (None, Some(2)), third, (None, Some(4))]);
        let diff = Diff::of("the <b>old</b> word is here\n", "the <b>new</b> word is here\n");
        let new = diff.hunks[0].rows[0].new.as_ref().unwrap().text.as_str();
        assert!(new.contains("<mark>") && !new.contains("<b>"), "{new}");
        // So are those of a script without spaces.
        let diff = Diff::of("客户在三十天内可以退款。\n", "客户在四十天内可以退款。\n");
        let new = diff.hunks[0].rows[0].new.as_ref().unwrap().text.as_str();
        assert!(new.contains("<mark>四</mark>十"), "{new}");
        // One line replaces many, and many replace one.
        let (one, many) = ("alpha beta gamma\n", "alpha beta\nred\ngreen\nblue\npink\ngamma\n");
        for (old, new) in [(one, many), (many, one)] {
            let sides =
                Diff::of(old, new).hunks.remove(0).rows.into_iter().flat_map(|row| [row.old, row.new]);
            let texts: Vec<_> = sides.flatten().map(|side| side.text.to_string()).collect();
            let marked = ["red", "green", "blue", "pink"].map(|word| format!("<mark>{word}</mark>"));
            assert!(marked.iter().all(|text| texts.contains(text)), "{texts:?}");
            assert!(texts.iter().any(|text| text == "alpha beta"), "{texts:?}");
        }
    }

    #[test]
    fn large_differences_are_cut() {
        // Each changed line between two equal ones, so that its words are compared.
        let apart = |word: &str| format!("{}\n\n", format!("{word} ").repeat(200)).repeat(200);
        for (old, new, lines) in
            [(numbered("old ", 20_000), numbered("new ", 20_000), 20_000), (apart("old"), apart("new"), 200)]
        {
            let diff = Diff::of(&old, &new);
            assert!(diff.is_cut);
            let rows = diff.hunks.iter().flat_map(|hunk| &hunk.rows);
            let bytes: usize = rows.filter_map(|row| row.new.as_ref()).map(|side| side.text.len()).sum();
            assert!(bytes < 2 * MAX_BYTES, "{bytes}");
            assert_eq!((diff.added, diff.removed), (lines, lines));
        }
    }

    #[test]
    fn texts_of_many_or_endless_lines_are_compared_within_limits() {
        let text = |word: &str| {
            format!("{}{}{}", "a\n".repeat(5), word.repeat(LineDiff::MAX_LINES), "z\n".repeat(5))
        };
        for (old, new, changed) in [
            (text("old\n"), text("new\n"), LineDiff::MAX_LINES),
            ("x".repeat(100_000), "y".repeat(100_000), 1),
            (String::new(), String::new(), 0),
        ] {
            let diff = Diff::of(&old, &new);
            assert_eq!((diff.added, diff.removed), (changed, changed));
        }
        let diff = Diff::of(&"a\n".repeat(51_200), &"b\na\n".repeat(25_600));
        assert!(diff.is_cut);
        let rows: usize = diff.hunks.iter().map(|hunk| hunk.rows.len()).sum();
        assert!(rows <= 2 * LineDiff::MAX_LINES, "{rows}");
    }

    #[test]
    fn only_changed_lines_of_long_texts_are_compared() {
        let text = numbered("", 50_000);
        let diff = Diff::of(&text, &text.replace("\n25000\n", "\nnew\nlines\n"));
        assert_eq!((diff.added, diff.removed, diff.is_cut), (2, 1, false));
        assert_eq!(diff.hunks[0].heading, "Lines 24,997–25,003 → 24,997–25,004");
        let inline: Vec<_> = diff.hunks[0].inline().iter().map(numbers).collect();
        assert_eq!(inline[2..5], [(Some(24_999), Some(24_999)), (Some(25_000), None), (None, Some(25_000))]);
    }
}
