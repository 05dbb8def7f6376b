//! Snippets: the passage of a found memory with the most matches, or the passage
//! that is nearest in meaning.

use std::ops::Range;

use hashbrown::HashMap;

use crate::analyse::analyse;
use crate::chunks::MAX_CHUNK_BYTES;

/// The marks before and after each matched term in a snippet. The snippet leaves
/// out such characters of the content, so that they cannot be mistaken for marks.
pub const MARKS: (char, char) = ('⟦', '⟧');

/// Characters of the content in a snippet, without the marks.
pub const MAX_SNIPPET_CHARS: usize = 240;
/// Characters of the snippet before the first match.
const LEAD_CHARS: usize = 60;
/// Passages are equally good if the sums of their weights differ by less.
const TOLERANCE: f64 = 1e-9;
/// Replaces the removed part of a cut line.
const CUT: char = '…';

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    /// The line of the passage's start, counted from 1.
    pub line: usize,
    /// The text, with [`MARKS`] around each match. A cut line has an ellipsis.
    pub text: String,
}

/// Finds the terms of a query in contents.
#[derive(Debug, Clone, Default)]
pub struct Marker {
    weights: HashMap<Box<str>, f64>,
}

/// The position of a ranked term.
struct Match {
    range: Range<usize>,
    term: Box<str>,
    weight: f64,
}

impl Marker {
    pub(crate) fn add(&mut self, term: &str, weight: f64) {
        let known = self.weights.entry(term.into()).or_default();
        *known = known.max(weight);
    }

    /// The passage of `content` with the best matches; the beginning of `content` if
    /// nothing matches.
    pub fn snippet(&self, content: &str) -> Snippet {
        let matches = self.matches(content);
        let window = best_window(content, &matches);
        Snippet {
            line: 1 + content[..window.start].matches('\n').count(),
            text: marked(content, &window, &matches),
        }
    }

    /// A chunk of `content`, at most [`MAX_CHUNK_BYTES`], with its matches; as
    /// [`Self::snippet`] if `content` has no text there, because it was changed.
    pub fn passage(&self, content: &str, offset: usize, len: usize) -> Snippet {
        let start = content.floor_char_boundary(offset);
        let end = content.floor_char_boundary(offset.saturating_add(len.min(MAX_CHUNK_BYTES)));
        let passage = &content[start..end];
        if passage.trim().is_empty() {
            return self.snippet(content);
        }
        let blank_lines = passage.len() - passage.trim_start_matches(['\r', '\n']).len();
        let window = start + blank_lines..end;
        Snippet {
            line: 1 + content[..window.start].matches('\n').count(),
            text: marked(content, &window, &self.matches_in(content, window.clone())),
        }
    }

    fn matches(&self, content: &str) -> Vec<Match> {
        self.matches_in(content, 0..content.len())
    }

    fn matches_in(&self, content: &str, window: Range<usize>) -> Vec<Match> {
        let mut found: Vec<Match> = Vec::new();
        let start = window.start;
        analyse(&content[window], |token| {
            if let Some((term, weight)) = self.weights.get_key_value(token.term) {
                let range = start + token.range.start..start + token.range.end;
                found.push(Match { range, term: term.clone(), weight: *weight });
            }
        });
        found.sort_by_key(|one| (one.range.start, one.range.end));
        found
    }
}

/// The passage with the highest sum of weights, where each term counts once. Among
/// equal passages, the first one, without the text before its first match.
fn best_window(content: &str, matches: &[Match]) -> Range<usize> {
    let mut best = (0.0, 0);
    let mut counts: HashMap<&str, u32> = HashMap::new();
    let mut sum = 0.0;
    let mut last = 0;
    for (first, one) in matches.iter().enumerate() {
        // Counts bytes instead of characters, which is precise enough for the choice.
        while let Some(next) = matches.get(last)
            && next.range.end <= one.range.start + MAX_SNIPPET_CHARS - LEAD_CHARS
        {
            let count = counts.entry(&next.term).or_default();
            *count += 1;
            if *count == 1 {
                sum += next.weight;
            }
            last += 1;
        }
        // If a later, shorter passage has the same sum, it is chosen.
        let best_start = matches[best.1].range.start;
        let is_closer = one.range.start < best_start + MAX_SNIPPET_CHARS - LEAD_CHARS;
        if sum > best.0 + TOLERANCE || (is_closer && sum > best.0 - TOLERANCE) {
            best = (sum, first);
        }
        if let Some(count) = counts.get_mut(&*one.term).filter(|count| **count > 0) {
            *count -= 1;
            if *count == 0 {
                sum -= one.weight;
            }
        }
    }
    let start = matches.get(best.1).map_or(0, |one| one.range.start);
    around(content, start)
}

/// The passage around `start`: from the beginning of the line, or from shortly
/// before `start` if the line begins too far away.
fn around(content: &str, start: usize) -> Range<usize> {
    let line_start = content[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let back = content[line_start..start]
        .char_indices()
        .rev()
        .take(LEAD_CHARS)
        .last()
        .map_or(start, |(offset, _)| line_start + offset);
    let end = content[back..]
        .char_indices()
        .nth(MAX_SNIPPET_CHARS)
        .map_or(content.len(), |(offset, _)| back + offset);
    back..end
}

/// The text of `window` with its matches marked.
fn marked(content: &str, window: &Range<usize>, matches: &[Match]) -> String {
    let mut text = String::with_capacity(window.len() + 64);
    let unmarked = |range: Range<usize>| {
        let letters = content[range].chars();
        letters.filter(|letter| *letter != MARKS.0 && *letter != MARKS.1)
    };
    if content[..window.start].chars().next_back().is_some_and(|before| before != '\n') {
        text.push(CUT);
    }
    let mut at = window.start;
    for range in merged(matches, window) {
        text.extend(unmarked(at..range.start));
        text.push(MARKS.0);
        text.extend(unmarked(range.clone()));
        text.push(MARKS.1);
        at = range.end;
    }
    text.extend(unmarked(at..window.end));
    let is_cut = !content[..window.end].ends_with('\n') && !content[window.end..].starts_with('\n');
    if is_cut && window.end < content.len() {
        text.push(CUT);
    }
    text
}

/// The ranges of the matches in `window`, with overlapping ranges merged.
fn merged(matches: &[Match], window: &Range<usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for one in matches {
        if one.range.start < window.start || one.range.end > window.end {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if one.range.start < last.end => last.end = last.end.max(one.range.end),
            _ => ranges.push(one.range.clone()),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(terms: &[&str]) -> Marker {
        let mut marker = Marker::default();
        for term in terms {
            marker.add(term, 1.0);
        }
        marker
    }

    #[test]
    fn snippet_is_the_best_passage_with_its_line_and_marks() {
        let passages = "alpha\nnothing here\n\nthe beta and the Alpha\nend";
        for (terms, content, line, text) in [
            (&["alpha", "beta"][..], passages, 4, "the ⟦beta⟧ and the ⟦Alpha⟧\nend"),
            // Without a match it is the beginning.
            (&["x"], "first\nsecond", 1, "first\nsecond"),
            // Marks of the content are removed.
            (&["b"], "⟦a⟧ b ⟦c⟧", 1, "a ⟦b⟧ c"),
            // Neighbouring pairs are marked as one.
            (&["部署", "署服"], "我们部署服务", 1, "我们⟦部署服⟧务"),
        ] {
            let snippet = marker(terms).snippet(content);
            assert_eq!((snippet.line, snippet.text.as_str()), (line, text));
        }
        assert_eq!(marker(&[]).snippet("").text, "");
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let content = format!("{}needle {}", "é ".repeat(500), "猫".repeat(500));
        let snippet = marker(&["needle"]).snippet(&content);
        assert!(snippet.text.starts_with('…') && snippet.text.ends_with('…'));
        assert!(snippet.text.contains("⟦needle⟧"));
        assert_eq!(snippet.line, 1);
        assert_eq!(snippet.text.chars().count(), MAX_SNIPPET_CHARS + 4);
    }

    #[test]
    fn passage_is_a_chunk_with_its_line_and_marks() {
        let content = "alpha\n\nthe béta\nand alpha of a chunk\nend";
        let marker = marker(&["alpha"]);
        let snippet = marker.passage(content, 6, 32);
        assert_eq!((snippet.line, snippet.text.as_str()), (3, "the béta\nand ⟦alpha⟧ of a chunk\n"));
        // Inside of a character and of lines.
        assert_eq!(marker.passage(content, 13, 13).text, "…éta\nand ⟦alpha⟧…");
        let long = "x".repeat(2_000);
        assert_eq!(marker.passage(&long, 0, usize::MAX).text.len(), MAX_CHUNK_BYTES + CUT.len_utf8());
        // The content was changed: nothing is there.
        for (offset, len) in [(5, 2), (90, 9), (usize::MAX, usize::MAX), (3, 0)] {
            assert_eq!(marker.passage(content, offset, len), marker.snippet(content), "{offset}");
        }
    }
}
