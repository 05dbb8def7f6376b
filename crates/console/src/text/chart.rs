//! Charts as SVG, without scripts or inline styles, with the same numbers as a table.

use std::collections::BTreeMap;
use std::fmt::Write;

use keepsake_core::words;
use keepsake_index::date_of;

use super::markup::Markup;

const WIDTH: i64 = 720;
const HEIGHT: i64 = 180;
/// The place of the bars; the rest is for numbers and dates.
const LEFT: i64 = 48;
const TOP: i64 = 20;
const BOTTOM: i64 = HEIGHT - 24;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Bars between two dates on the axis, at least.
const DATES: i64 = 6;

/// A part of each bar.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    /// The number of its colour.
    pub(crate) colour: usize,
    pub(crate) by_day: BTreeMap<i64, u64>,
}

impl Series {
    fn of_day(&self, day: i64) -> u64 {
        self.by_day.get(&day).copied().unwrap_or_default()
    }
}

/// A bar for each day, from the first to the last, with parts.
pub(crate) struct DayChart<'a> {
    /// What is counted, such as `read`.
    pub(crate) counted: &'a str,
    /// In days since 1970.
    pub(crate) first_day: i64,
    pub(crate) last_day: i64,
    pub(crate) series: &'a [Series],
}

impl DayChart<'_> {
    fn of_day(&self, day: i64) -> impl Iterator<Item = (&Series, u64)> {
        self.series.iter().map(move |series| (series, series.of_day(day))).filter(|(_, number)| *number > 0)
    }

    fn total_of(&self, day: i64) -> u64 {
        self.of_day(day).map(|(_, number)| number).sum()
    }

    /// The day's numbers in words.
    fn words(&self, day: i64) -> String {
        let mut text = format!("{}: {}", date_of(day), words::counted(self.total_of(day), self.counted));
        if self.series.len() > 1 {
            let parts: Vec<_> = self.of_day(day).collect();
            for (place, (series, number)) in parts.into_iter().enumerate() {
                let before = if place == 0 { " – " } else { ", " };
                let _ = write!(text, "{before}{} {}", series.name, words::count(number));
            }
        }
        text
    }

    /// The bars and a table with their numbers. Without numbers, a sentence takes the place of both.
    pub(crate) fn draw(&self) -> Markup {
        if (self.first_day..=self.last_day).all(|day| self.total_of(day) == 0) {
            let days = words::counted(self.days().unsigned_abs(), "day");
            return Markup::trusted(format!("<p class=\"none\">None in these {days}.</p>"));
        }
        let mut html = self.plot();
        self.write_names(&mut html);
        self.write_table(&mut html);
        Markup::trusted(html)
    }

    fn days(&self) -> i64 {
        (self.last_day - self.first_day + 1).max(1)
    }

    fn plot(&self) -> String {
        let (first, last, days) = (self.first_day, self.last_day, self.days());
        let most = (first..=last).map(|day| self.total_of(day)).max().unwrap_or_default();
        let total: u64 = (first..=last).map(|day| self.total_of(day)).sum();
        let top = above(most);
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"group\" \
            aria-label=\"{} from {} to {}, at most {} a day\">",
            words::counted(total, self.counted),
            date_of(first),
            date_of(last),
            words::count(most),
        );
        for number in [0, top / 2, top] {
            let y = BOTTOM - scaled(number, top);
            let _ = write!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>");
            let _ = write!(
                svg,
                "<text class=\"label{}\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                if number > 0 { " number" } else { "" },
                LEFT - 6,
                y + 4,
                words::count(number),
            );
        }
        let ends = |day: i64| [day, day + 1].map(|day| LEFT + (WIDTH - LEFT) * (day - first) / days);
        self.draw_bars(&mut svg, ends, top);
        let between = (days / DATES).max(1);
        for day in first..=last {
            let [x, end] = ends(day);
            self.draw_day(&mut svg, day, [x, end]);
            if (last - day) % between == 0 && day - first >= between / 2 {
                let _ = write!(
                    svg,
                    "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
                    if day == last { end } else { i64::midpoint(x, end) },
                    HEIGHT - 6,
                    if day == last { "end" } else { "middle" },
                    short_date(&date_of(day)),
                );
            }
        }
        svg.push_str("</svg>");
        format!("<div class=\"plot\" tabindex=\"0\">{svg}</div>")
    }

    /// The bars, with one path for all parts of a colour.
    fn draw_bars(&self, svg: &mut String, ends: impl Fn(i64) -> [i64; 2], top: u64) {
        let mut paths = vec![String::new(); self.series.len()];
        for day in self.first_day..=self.last_day {
            let [x, end] = ends(day);
            let gap = i64::from(end - x > 4);
            let (x, width) = (x + gap, (end - x - 2 * gap).max(1));
            let (mut below, mut base) = (0, BOTTOM);
            for (series, path) in self.series.iter().zip(&mut paths) {
                let number = series.of_day(day);
                if number == 0 {
                    continue;
                }
                below += number;
                // Every number is visible.
                let y = (BOTTOM - scaled(below, top)).min(base - 1);
                let _ = write!(path, "M{x} {y}h{width}V{base}h-{width}z");
                base = y;
            }
        }
        for (series, path) in self.series.iter().zip(paths) {
            let _ = write!(svg, "<path class=\"c{}\" d=\"{path}\"/>", series.colour);
        }
    }

    /// The numbers of a day, which are shown while a pointer is over its bar or it has the focus. The
    /// title is also its name.
    fn draw_day(&self, svg: &mut String, day: i64, [x, end]: [i64; 2]) {
        let words = self.words(day);
        // A day without numbers is no stop of the keyboard.
        let focus = if self.total_of(day) > 0 { " tabindex=\"0\"" } else { "" };
        let (anchor, at) =
            if x > i64::midpoint(LEFT, WIDTH) { (" text-anchor=\"end\"", end) } else { ("", x) };
        let _ = write!(
            svg,
            "<g class=\"day\" role=\"img\"{focus}><title>{words}</title>\
            <path class=\"hit\" d=\"M{x} {TOP}h{width}V{BOTTOM}h-{width}z\"/>\
            <text class=\"value\" x=\"{at}\" y=\"12\"{anchor}>{words}</text></g>",
            width = end - x,
        );
    }

    /// The colours of the parts.
    fn write_names(&self, html: &mut String) {
        if self.series.len() < 2 {
            return;
        }
        html.push_str("<ul class=\"legend\">");
        for series in self.series {
            let total = words::count(series.by_day.values().sum());
            let _ = write!(
                html,
                "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"c{}\" width=\"10\" height=\"10\"/></svg> {} {total}</li>",
                series.colour, series.name,
            );
        }
        html.push_str("</ul>");
    }

    fn write_table(&self, html: &mut String) {
        html.push_str("<details class=\"numbers\"><summary>Show as table</summary>");
        let _ = write!(
            html,
            "<div class=\"scroll\" tabindex=\"0\"><table class=\"list\"><caption class=\"hidden\">The {}s of each day</caption>\
            <thead><tr><th scope=\"col\">Day</th>",
            self.counted
        );
        for series in self.series {
            let _ = write!(html, "<th scope=\"col\">{}</th>", series.name);
        }
        html.push_str("<th scope=\"col\">All</th></tr></thead><tbody>");
        for day in (self.first_day..=self.last_day).rev() {
            let _ = write!(html, "<tr><th scope=\"row\">{}</th>", date_of(day));
            for series in self.series {
                let _ = write!(html, "<td>{}</td>", words::count(series.of_day(day)));
            }
            let _ = write!(html, "<td>{}</td></tr>", words::count(self.total_of(day)));
        }
        html.push_str("</tbody></table></div></details>");
    }
}

/// The day and the month of a date: `4 Nov`.
pub(super) fn short_date(date: &str) -> String {
    let mut numbers = date.split('-').skip(1).map(|number| number.parse::<usize>().unwrap_or_default());
    let (month, day) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    format!("{day} {}", MONTHS.get(month.wrapping_sub(1)).unwrap_or(&""))
}

/// The end of an axis: 2, 4 or 10 times a power of ten, and at least the number.
fn above(number: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        let found =
            [2, 4, 10].into_iter().map(|times| power.saturating_mul(times)).find(|end| *end >= number);
        if let Some(end) = found {
            return end;
        }
        power = power.saturating_mul(10);
    }
}

/// The height of a number.
fn scaled(number: u64, top: u64) -> i64 {
    let height = u128::from(number) * u128::from((BOTTOM - TOP).unsigned_abs()) / u128::from(top.max(1));
    i64::try_from(height).unwrap_or(BOTTOM - TOP)
}

/// At most 100. `None`: there is no limit.
pub(crate) fn percent(used: u64, limit: u64) -> Option<u64> {
    if limit == 0 {
        return None;
    }
    let percent = u128::from(used) * 100 / u128::from(limit);
    Some(u64::try_from(percent).unwrap_or(100).min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_a_bar_and_a_row_for_each_day() {
        let series = |name, colour, day, number| Series { name, colour, by_day: [(day, number)].into() };
        let series = [series("Tools", 0, 100, 7), series("API", 2, 100, 1_000_000)];
        let chart = DayChart { counted: "read", first_day: 71, last_day: 100, series: &series };
        let drawn = chart.draw();
        let count = |part: &str| drawn.as_str().matches(part).count();
        assert_eq!(
            (count("class=\"day\""), count("tabindex=\"0\"><title>"), count("<tr><th scope=\"row\">")),
            (30, 1, 30)
        );
        assert!(drawn.as_str().contains("1970-04-11: 1,000,007 reads – Tools 7, API 1,000,000<"), "{drawn}");
        assert!(drawn.as_str().contains("<td>7</td><td>1,000,000</td>"), "{drawn}");
        assert_eq!((count("<path class=\"c0\""), count("<path class=\"c2\"")), (1, 1), "{drawn}");
        let parts = |start: &str, end: &str| -> Vec<String> {
            let parts = drawn.as_str().split(start).skip(1);
            parts.map(|part| part.split_once(end).unwrap().0.to_owned()).collect()
        };
        let rows = parts("<tr><th scope=\"row\">", "</td></tr>").into_iter().rev().map(|row| {
            let (day, numbers) = row.split_once("</th>").unwrap();
            format!("{day}: {}", numbers.rsplit('>').next().unwrap())
        });
        assert!(rows.eq(parts("<title>", " read")), "{drawn}");
        let empty = DayChart { series: &[], ..chart }.draw();
        assert_eq!(empty.as_str(), "<p class=\"none\">None in these 30 days.</p>");
        for (number, end) in [(1, 2), (2, 2), (3, 4), (5, 10), (11, 20), (u64::MAX, u64::MAX)] {
            assert_eq!(above(number), end);
        }
    }
}
