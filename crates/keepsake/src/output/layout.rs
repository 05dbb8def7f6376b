//! Fits a table into the width of a terminal.

use std::collections::HashSet;

use console::measure_text_width;

use super::{Aside, Author, Bytes, Column, Count, Flag, Period, Time};

/// Spaces between two columns.
pub(super) const GAP: u16 = 2;
/// Ids are shortened before a text is broken into lines that are narrower than this.
const WIDE_TEXT: usize = 32;
/// Flags and numbers are left out before a text is narrower than this.
const MEDIUM_TEXT: usize = 24;
/// Asides and authors are left out before a text is narrower than this.
const NARROW_TEXT: usize = 15;
/// Times and ids are left out before a text is narrower than this.
const TIGHT_TEXT: usize = 12;
/// The width of a text where nothing else can give way.
const LEAST_TEXT: usize = 8;
/// Characters of an id after its prefix.
const ID_CHARS: usize = 26;
/// The first characters of an id are its time, in which neighbours are equal.
const MIN_ID_CHARS: usize = 10;

/// The columns that are shown, with their widths.
pub(super) type Layout = Vec<(usize, usize)>;

/// Chooses the columns to show. If they are too wide, ids are shortened first, then numbers are left
/// out, then asides, authors and times, and texts get several lines. An id is never broken.
pub(super) fn fit(columns: &[Column], rows: &mut [Vec<String>], width: usize) -> Layout {
    let mut fitting = Fitting { columns, shown: (0..columns.len()).collect(), width };
    if fitting.least(rows, WIDE_TEXT) > width {
        shorten_ids(rows);
    }
    for (of_text, max_rank) in
        [(MEDIUM_TEXT, Rank::Number), (NARROW_TEXT, Rank::Author), (TIGHT_TEXT, Rank::Id)]
    {
        while fitting.least(rows, of_text) > width
            && let Some(place) = fitting.to_leave_out(rows, max_rank)
        {
            fitting.shown.remove(place);
        }
    }
    fitting.widths(rows)
}

/// How much a column is missed that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Flag,
    Number,
    Aside,
    Author,
    Time,
    Id,
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
        // Other values may take several lines.
        if matches!(self.columns[column].2, Flag | Bytes | Count | Period | Time) {
            return natural;
        }
        let words = rows.iter().flat_map(|row| row[column].split_whitespace());
        let with_ids = words.filter(|word| ids(word).next().is_some()).map(measure_text_width);
        let unbroken = with_ids.max().unwrap_or_default().max(self.columns[column].0.len());
        natural.min(of_text).max(unbroken)
    }

    fn least(&self, rows: &[Vec<String>], of_text: usize) -> usize {
        let widths = self.shown.iter().map(|column| self.least_width(*column, rows, of_text));
        widths.sum::<usize>() + self.gaps()
    }

    fn gaps(&self) -> usize {
        usize::from(GAP) * self.shown.len().saturating_sub(1)
    }

    /// The place of the column that is missed least, up to a rank. The first column stays, and the last
    /// unless it is an aside or has ids, which are named elsewhere in the line.
    fn to_leave_out(&self, rows: &[Vec<String>], max_rank: Rank) -> Option<usize> {
        let last = self.shown.len() - 1;
        let candidates = self.shown.iter().enumerate().skip(1).filter_map(|(place, column)| {
            let has_ids = rows.iter().any(|row| is_id(&row[*column]));
            let rank = match self.columns[*column].2 {
                _ if has_ids => Rank::Id,
                Flag => Rank::Flag,
                Bytes | Count | Period => Rank::Number,
                Aside => Rank::Aside,
                Author => Rank::Author,
                Time => Rank::Time,
                _ => return None,
            };
            let may_go = rank <= max_rank && (place < last || matches!(rank, Rank::Aside | Rank::Id));
            may_go.then_some((rank, std::cmp::Reverse(place)))
        });
        candidates.min().map(|(_, place)| place.0)
    }

    /// Gives the columns the width of the terminal: each text as much as it needs, or an equal
    /// share of the rest.
    fn widths(&self, rows: &[Vec<String>]) -> Layout {
        let of_text = if self.least(rows, NARROW_TEXT) > self.width { LEAST_TEXT } else { NARROW_TEXT };
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

/// The ids in a cell, whole or shortened, also between other words. A path has none.
fn ids(cell: &str) -> impl Iterator<Item = &str> {
    let words = cell.split_whitespace().filter(|word| !word.contains('/'));
    let is_between = |letter: char| !letter.is_ascii_alphanumeric() && !"_…".contains(letter);
    words.flat_map(move |word| word.split(is_between)).filter(|part| is_id(part))
}

/// Whether a text is an id, whole or shortened.
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
    let whole: HashSet<_> =
        rows.iter().flatten().flat_map(|cell| ids(cell)).filter_map(parts_of_id).collect();
    let differ = |chars: &usize| {
        let short: HashSet<_> = whole.iter().map(|(prefix, rest)| (prefix, &rest[..*chars])).collect();
        short.len() == whole.len()
    };
    let Some(chars) = (MIN_ID_CHARS..ID_CHARS - 1).find(differ) else {
        return;
    };
    for cell in rows.iter_mut().flatten() {
        let whole: Vec<_> = ids(cell).filter(|id| parts_of_id(id).is_some()).map(str::to_owned).collect();
        for id in whole {
            *cell = cell.replace(&id, &format!("{}…", &id[..id.len() - (ID_CHARS - chars)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;

    #[test]
    fn ids_are_shortened_then_columns_left_out_and_texts_broken() {
        let kinds = [("VERSION", Text), ("TIME", Time), ("SIZE", Bytes), ("BY", Author), ("PATH", Text)];
        let columns = kinds.map(|(name, kind)| (name, "", kind));
        let rest = ["2 hours ago", "1.25 KiB", "support-bot · Ticket ZD-48502", "/memories/tickets/a.md"];
        let row =
            |id: &'static str| [id].iter().chain(&rest).map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (width, shown, version_width) in [
            (111, &[0, 1, 2, 3, 4][..], 33),
            (93, &[0, 1, 2, 3, 4], 20),
            (92, &[0, 1, 3, 4], 20),
            (66, &[0, 1, 4], 20),
            (47, &[0, 1, 4], 20),
            (40, &[0, 4], 20),
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
        let columns = [columns[0], columns[1], columns[4], ("BEFORE", "", Aside)];
        let mut rows = vec![row("memver_01KAK5R2M0E9V7Q3C4D8X6Y1ZT")];
        rows[0].drain(2..4);
        rows[0].push("/memories/renamed/a.md".to_owned());
        let shown: Vec<_> = fit(&columns, &mut rows, 60).iter().map(|(column, _)| *column).collect();
        assert_eq!(shown, [0, 1, 2], "the time is missed more than an aside");
        let id = "apikey_01KAK5R2M0E9V7Q3C4D8X6Y1ZT";
        let found = format!("dev ({id}): 5 memories");
        let mut rows = vec![vec!["ok".to_owned(), found, "long ".repeat(20)]];
        let columns = [("RESULT", "", Text), ("FOUND", "", Text), ("WHAT TO DO", "", Text)];
        let layout = fit(&columns, &mut rows, 60);
        assert_eq!(rows[0][1], "dev (apikey_01KAK5R2M0…): 5 memories");
        assert!(layout[1].1 >= "(apikey_01KAK5R2M0…):".chars().count(), "{layout:?}");
    }
}
