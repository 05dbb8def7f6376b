//! Fits a table into the width of a terminal.

use std::collections::HashSet;

use console::measure_text_width;

use super::{Bytes, Column, Count, Flag, Format, Period, Time};

/// Spaces between two columns.
pub(super) const GAP: u16 = 2;
/// A text is broken into lines of at least this width, if other columns can give way.
const MIN_TEXT_WIDTH: usize = 16;
/// The width of a text where nothing else can give way.
const LEAST_TEXT_WIDTH: usize = 8;
/// Characters of an id after its prefix.
const ID_CHARS: usize = 26;
/// The first characters of an id are its time, in which neighbours are equal.
const MIN_ID_CHARS: usize = 10;

/// The columns that are shown, with their widths.
pub(super) type Layout = Vec<(usize, usize)>;

/// Chooses the columns to show. If they are too wide, ids are shortened first, then columns are left
/// out, and texts get several lines. An id is never broken.
pub(super) fn fit(columns: &[Column], rows: &mut [Vec<String>], width: usize) -> Layout {
    let mut fitting = Fitting { columns, shown: (0..columns.len()).collect(), width };
    if fitting.least(rows) > width {
        shorten_ids(rows);
    }
    while fitting.least(rows) > width
        && let Some(place) = fitting.to_leave_out(rows)
    {
        fitting.shown.remove(place);
    }
    fitting.widths(rows)
}

struct Fitting<'a> {
    columns: &'a [Column],
    /// The columns that are shown, by their place.
    shown: Vec<usize>,
    width: usize,
}

impl Fitting<'_> {
    fn natural_width(&self, column: usize, rows: &[Vec<String>]) -> usize {
        let cells = rows.iter().map(|row| measure_text_width(&row[column]));
        cells.max().unwrap_or_default().max(self.columns[column].0.len())
    }

    /// The width below which a column is not readable.
    fn least_width(&self, column: usize, rows: &[Vec<String>], of_text: usize) -> usize {
        let natural = self.natural_width(column, rows);
        if !is_broken(self.columns[column].2) {
            return natural;
        }
        let words = rows.iter().flat_map(|row| row[column].split_whitespace());
        let ids = words.filter(|word| is_id(word.trim_matches(['(', ')', ':', ',', ';'])));
        let ids = ids.map(|word| word.chars().count());
        let unbroken = ids.max().unwrap_or_default().max(self.columns[column].0.len());
        natural.min(of_text).max(unbroken)
    }

    fn least(&self, rows: &[Vec<String>]) -> usize {
        let widths = self.shown.iter().map(|column| self.least_width(*column, rows, MIN_TEXT_WIDTH));
        widths.sum::<usize>() + self.gaps()
    }

    fn gaps(&self) -> usize {
        usize::from(GAP) * self.shown.len().saturating_sub(1)
    }

    /// The place of the column that is missed least. The first column stays, and the last unless it
    /// has ids, which are named elsewhere in the line.
    fn to_leave_out(&self, rows: &[Vec<String>]) -> Option<usize> {
        let last = self.shown.len() - 1;
        let candidates = self.shown.iter().enumerate().skip(1).filter_map(|(place, column)| {
            let has_ids = rows.iter().any(|row| is_id(&row[*column]));
            let rank = match self.columns[*column].2 {
                _ if has_ids => 3,
                Flag => 0,
                Bytes | Count | Period => 1,
                Time => 2,
                _ => return None,
            };
            (place < last || has_ids).then_some((rank, std::cmp::Reverse(place)))
        });
        candidates.min().map(|(_, place)| place.0)
    }

    /// Gives the columns the width of the terminal: each text as much as it needs, or an equal
    /// share of the rest.
    fn widths(&self, rows: &[Vec<String>]) -> Layout {
        let of_text = if self.least(rows) > self.width { LEAST_TEXT_WIDTH } else { MIN_TEXT_WIDTH };
        let least = |column: &usize| (*column, self.least_width(*column, rows, of_text));
        let mut layout: Layout = self.shown.iter().map(least).collect();
        let taken = layout.iter().map(|(_, width)| width).sum::<usize>() + self.gaps();
        let mut left = self.width.saturating_sub(taken);
        let natural: Vec<_> = self.shown.iter().map(|column| self.natural_width(*column, rows)).collect();
        loop {
            let columns = layout.iter().zip(&natural);
            let growing = columns.filter(|((_, width), natural)| width < *natural).count();
            if growing == 0 || left == 0 {
                return layout;
            }
            let share = (left / growing).max(1);
            for ((_, width), natural) in layout.iter_mut().zip(&natural) {
                let grown = natural.saturating_sub(*width).min(share).min(left);
                *width += grown;
                left -= grown;
            }
        }
    }
}

/// Whether values may take several lines.
fn is_broken(format: Format) -> bool {
    !matches!(format, Flag | Bytes | Count | Period | Time)
}

/// Whether a cell is an id, whole or shortened.
fn is_id(cell: &str) -> bool {
    cell.strip_suffix('…').map_or_else(|| parts_of_id(cell).is_some(), |short| parts(short).is_some())
}

/// The prefix of a whole id, and the rest.
fn parts_of_id(cell: &str) -> Option<(&str, &str)> {
    parts(cell).filter(|(_, rest)| rest.len() == ID_CHARS)
}

fn parts(cell: &str) -> Option<(&str, &str)> {
    let (prefix, rest) = cell.split_once('_')?;
    let is_prefix = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_rest = rest.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    (is_prefix && is_rest).then_some((prefix, rest))
}

/// Shortens all ids to the same length, at which different ids stay different.
fn shorten_ids(rows: &mut [Vec<String>]) {
    let ids: HashSet<_> = rows.iter().flatten().filter_map(|cell| parts_of_id(cell)).collect();
    let differ = |chars: &usize| {
        let short: HashSet<_> = ids.iter().map(|(prefix, rest)| (prefix, &rest[..*chars])).collect();
        short.len() == ids.len()
    };
    let Some(chars) = (MIN_ID_CHARS..ID_CHARS - 1).find(differ) else {
        return;
    };
    for cell in rows.iter_mut().flatten().filter(|cell| parts_of_id(cell).is_some()) {
        cell.truncate(cell.len() - (ID_CHARS - chars));
        cell.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Actor, Text};
    use super::*;

    #[test]
    fn ids_are_shortened_then_columns_left_out_and_texts_broken() {
        let columns = [
            ("VERSION", "", Text),
            ("TIME", "", Time),
            ("SIZE", "", Bytes),
            ("BY", "", Actor),
            ("PATH", "", Text),
        ];
        let row = |id: &str| {
            [id, "2 hours ago", "1.00 KiB", "support-bot · Ticket ZD-48502", "/memories/tickets/a.md"]
                .map(str::to_owned)
                .to_vec()
        };
        for (width, shown, version_width) in [
            (200, &[0, 1, 2, 3, 4][..], 33),
            (92, &[0, 1, 2, 3, 4], 33),
            (91, &[0, 1, 2, 3, 4], 20),
            (78, &[0, 1, 3, 4], 20),
            (60, &[0, 3, 4], 20),
            (40, &[0, 3, 4], 20),
        ] {
            let mut rows =
                vec![row("memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT"), row("memver_01KAK5R2M0E8V7Q3C4D8X6Y1ZT")];
            let layout = fit(&columns, &mut rows, width);
            let columns: Vec<_> = layout.iter().map(|(column, _)| *column).collect();
            assert_eq!(columns, shown, "{width}");
            let sum =
                layout.iter().map(|(_, width)| width).sum::<usize>() + usize::from(GAP) * (layout.len() - 1);
            assert!(sum <= width, "{width}: {layout:?}");
            assert_eq!(layout[0], (0, version_width), "{width}: {rows:?}");
            assert_eq!(measure_text_width(&rows[0][0]), version_width, "{width}: {rows:?}");
        }
        let found = "apikey_01KAK5R2M0E9V7Q3C4D8X6Y1ZT: memory:read, memory:write, stores:admin".to_owned();
        let mut rows = vec![vec![found, "make another key on the page Keys of the console".to_owned()]];
        assert!(fit(&[("FOUND", "", Text), ("WHAT TO DO", "", Text)], &mut rows, 60)[0].1 >= 34);
    }
}
