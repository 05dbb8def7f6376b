//! A text with line numbers, shown in parts.

use std::fmt::Write;

use keepsake_core::words;

use super::markup::{Markup, push_visible};

/// Limit of one part's HTML, so that a page stays small.
const MAX_BYTES: usize = 96 << 10;
/// Longer lines are cut; the file to save has whole lines.
const MAX_LINE_CHARS: usize = 8_000;

/// A part of a text, as items of a list.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// `li` elements.
    pub(crate) items: Markup,
    /// Number of the first line, counted from 1.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) total: usize,
    /// Whether a line is shown only in part.
    pub(crate) is_cut: bool,
}

impl Lines {
    /// The lines from `first` on, as many as fit on a page.
    pub(crate) fn from(text: &str, first: usize) -> Self {
        let total = text.lines().count();
        let first = first.clamp(1, total.max(1));
        let (mut html, mut last, mut is_cut) = (String::new(), first - 1, false);
        for line in text.lines().skip(first - 1) {
            if html.len() > MAX_BYTES {
                break;
            }
            last += 1;
            let _ = write!(html, "<li id=\"L{last}\">");
            is_cut |= push_cut(&mut html, line, MAX_LINE_CHARS);
            html.push_str("</li>");
        }
        Self { items: Markup::trusted(html), first, last, total, is_cut }
    }

    /// The line in which the next part begins.
    pub(crate) fn next(&self) -> Option<usize> {
        (self.last < self.total).then_some(self.last + 1)
    }

    /// The lines before this part, in words: `Lines 1 to 1,000`.
    pub(crate) fn before(&self) -> String {
        format!("Lines 1 to {}", words::count(self.first.saturating_sub(1) as u64))
    }

    /// The lines after this part, in words: `Lines 1,001 to 2,000`.
    pub(crate) fn after(&self) -> String {
        format!("Lines {} to {}", words::count(self.last as u64 + 1), words::count(self.total as u64))
    }

    /// How many lines come after this part: `1 more line`.
    pub(crate) fn left(&self) -> String {
        words::counted(self.total.saturating_sub(self.last) as u64, "more line")
    }
}

/// Appends a line, cut after `max_chars`. Returns whether the line was cut.
pub(crate) fn push_cut(html: &mut String, line: &str, max_chars: usize) -> bool {
    if let Some((end, _)) = line.char_indices().nth(max_chars) {
        push_visible(html, &line[..end]);
        let more = words::counted(line[end..].chars().count() as u64, "more character");
        let _ = write!(html, "<span class=\"cut\">… {more}</span>");
        true
    } else {
        push_visible(html, line);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_escaped_and_long_texts_split_into_parts() {
        let lines = Lines::from("a\n<b>\n", 1);
        assert_eq!(lines.items.as_str(), "<li id=\"L1\">a</li><li id=\"L2\">&lt;b&gt;</li>");
        assert_eq!((lines.first, lines.last, lines.total, lines.next()), (1, 2, 2, None));
        let text = "<line>\n".repeat(20_000);
        let first = Lines::from(&text, 1);
        assert!(first.items.len() < MAX_BYTES + 1_000);
        let second = Lines::from(&text, first.next().unwrap());
        assert_eq!(second.first, first.last + 1);
        assert!(first.after().ends_with(" to 20,000") && second.before().starts_with("Lines 1 to "));
        assert_eq!(Lines { last: 1, total: 2, ..Lines::default() }.left(), "1 more line");
        assert!(second.last > second.first);
        assert_eq!(Lines::from(&text, 1_000_000).first, 20_000);
        let endless = Lines::from(&"x".repeat(100_000), 1);
        assert!(endless.is_cut && endless.items.len() < 10_000);
        assert!(endless.items.as_str().contains("92,000 more characters"));
    }
}
