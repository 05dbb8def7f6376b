//! Compares two texts line by line.

use std::time::Duration;

use similar::{DiffTag, TextDiff};

/// After this time a comparison ends, and has more changes than necessary.
const TIMEOUT: Duration = Duration::from_millis(100);

/// The lines that differ between two texts.
pub struct LineDiff<'t> {
    pub added: usize,
    pub removed: usize,
    /// Whether the changed range was too long to be compared as a whole. Then all lines of the
    /// range count as changed.
    pub is_cut: bool,
    /// The product of the numbers of compared lines, which bounds the time of the comparison.
    pub work: usize,
    /// The number of lines before the compared ones.
    pub before: usize,
    /// The changed range, with the lines around it; `None`: the texts are equal.
    pub compared: Option<TextDiff<'t, 't, str>>,
}

impl<'t> LineDiff<'t> {
    /// Maximum number of lines compared in each text, from the first to the last changed line.
    /// The time limit covers only the comparison; the work before and after it grows faster than
    /// the number of lines.
    pub const MAX_LINES: usize = 2_000;

    /// Compares two texts, with `context` unchanged lines around the changed range. Takes up to
    /// some hundreds of milliseconds.
    pub fn of(old: &'t str, new: &'t str, context: usize) -> Self {
        let [old, new]: [Vec<&str>; 2] = [old, new].map(|text| text.split_inclusive('\n').collect());
        let same = |(a, b): &(&&str, &&str)| a == b;
        let start = old.iter().zip(&new).take_while(same).count();
        let [old_rest, new_rest] = [&old[start..], &new[start..]];
        let end = old_rest.iter().rev().zip(new_rest.iter().rev());
        let end = end.take_while(same).count();
        let (removed, added) = (old_rest.len() - end, new_rest.len() - end);
        // Only the changed lines are compared, with the lines around them.
        let before = start.saturating_sub(context);
        let is_cut = removed.max(added) > Self::MAX_LINES;
        let mut diff = Self { added, removed, is_cut, work: 0, before, compared: None };
        if added + removed == 0 {
            return diff;
        }
        let [old, new] = [(&old, removed), (&new, added)].map(|(lines, changed)| {
            let last = (start + changed + context).min(lines.len());
            let compared = &lines[before..last];
            compared.get(..Self::MAX_LINES + 2 * context).unwrap_or(compared)
        });
        diff.work = old.len() * new.len();
        let compared = TextDiff::configure().timeout(TIMEOUT).diff_slices(old, new);
        if !is_cut {
            let changes = compared.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
            (diff.removed, diff.added) = changes.fold((0, 0), |(removed, added), op| {
                (removed + op.old_range().len(), added + op.new_range().len())
            });
        }
        diff.compared = Some(compared);
        diff
    }
}
