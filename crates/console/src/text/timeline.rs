//! Timelines of runs as SVG, without scripts or inline styles.

use std::fmt::Write;

use keepsake_core::Timestamp;

use super::chart::short_date;
use super::markup::{Markup, push_escaped};

const WIDTH: i64 = 720;
/// The place of the bars; below them are the times.
const TOP: i64 = 20;
const BOTTOM: i64 = 44;
const HEIGHT: i64 = 64;
/// The height of a timeline without words.
const BAR_HEIGHT: i64 = 16;
/// Parts between two times on the axis. The times are multiples of them, such as midnight of each day.
const TIMES_EVERY: i64 = 6;
/// Half the width of a time, at most.
const EDGE: i64 = 24;

/// What happened in one part of the time.
pub(crate) struct Part {
    /// Its place, from 0.
    pub(crate) place: i64,
    /// `done`, `failed` or `open`.
    pub(crate) state: &'static str,
    /// The part in words.
    pub(crate) words: String,
}

/// Parts of a time, each with a bar if something happened in it.
pub(crate) struct Timeline<'a> {
    /// What is shown, in words.
    pub(crate) label: &'a str,
    pub(crate) first: Timestamp,
    pub(crate) part_micros: i64,
    /// The number of all parts.
    pub(crate) count: i64,
    pub(crate) parts: &'a [Part],
}

impl Timeline<'_> {
    /// The left and the right end of a part.
    fn ends_of(&self, place: i64) -> [i64; 2] {
        [place, place + 1].map(|place| WIDTH * place / self.count.max(1))
    }

    fn begin(&self, attributes: &str, height: i64) -> String {
        let mut svg =
            format!("<svg {attributes} viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" aria-label=\"");
        push_escaped(&mut svg, self.label);
        svg.push_str("\">");
        svg
    }

    /// Only bars, with their words on hover.
    pub(crate) fn draw_bars(&self) -> Markup {
        let mut svg = self.begin("class=\"timeline bars\" preserveAspectRatio=\"none\"", BAR_HEIGHT);
        let _ = write!(svg, "<rect class=\"track\" width=\"{WIDTH}\" height=\"{BAR_HEIGHT}\"/>");
        for part in self.parts {
            let [x, end] = self.ends_of(part.place);
            let _ = write!(
                svg,
                "<rect class=\"{}\" role=\"img\" x=\"{x}\" width=\"{}\" height=\"{BAR_HEIGHT}\"><title>",
                part.state,
                (end - x - 2).max(1),
            );
            push_escaped(&mut svg, &part.words);
            svg.push_str("</title></rect>");
        }
        svg.push_str("</svg>");
        Markup::trusted(svg)
    }

    /// Bars with times below them; each bar can have the focus, and then shows its words.
    pub(crate) fn draw(&self) -> Markup {
        let mut svg = self.begin("class=\"chart timeline\"", HEIGHT);
        let height = BOTTOM - TOP;
        let _ = write!(svg, "<rect class=\"track\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{height}\"/>");
        for place in 1..self.count {
            let at = self.first.as_micros() + place * self.part_micros;
            if at % (TIMES_EVERY * self.part_micros) != 0 {
                continue;
            }
            let x = self.ends_of(place)[0];
            // A time at an end is whole.
            let anchor = if x < EDGE {
                "start"
            } else if x > WIDTH - EDGE {
                "end"
            } else {
                "middle"
            };
            let _ = write!(
                svg,
                "<text class=\"label\" x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                HEIGHT - 4,
                time_of(Timestamp::from_micros(at)),
            );
        }
        for part in self.parts {
            let [x, end] = self.ends_of(part.place);
            let mut words = String::new();
            push_escaped(&mut words, &part.words);
            let (anchor, at) = if x > WIDTH / 2 { ("end", end) } else { ("start", x) };
            let _ = write!(
                svg,
                "<g class=\"day\" role=\"img\" tabindex=\"0\"><title>{words}</title>\
                <rect class=\"{}\" x=\"{x}\" y=\"{TOP}\" width=\"{}\" height=\"{height}\"/>\
                <text class=\"value\" x=\"{at}\" y=\"12\" text-anchor=\"{anchor}\" aria-hidden=\"true\">{words}</text></g>",
                part.state,
                (end - x - 2).max(1),
            );
        }
        svg.push_str("</svg>");
        Markup::trusted(format!("<div class=\"plot\" tabindex=\"0\">{svg}</div>"))
    }
}

/// The time of a day in UTC, or the date at midnight: `14:30`, `31 Jan`.
pub(crate) fn time_of(at: Timestamp) -> String {
    let text = at.to_rfc3339();
    if text.get(11..16) == Some("00:00") {
        return short_date(text.get(..10).unwrap_or_default());
    }
    text.get(11..16).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_bar_with_its_words() {
        let part = |place, state, words: &str| Part { place, state, words: words.to_owned() };
        let parts = [part(0, "done", "2 runs"), part(47, "failed", "1 run, <1> failed")];
        let first = Timestamp::from_micros(0);
        let line = Timeline { label: "a job", first, part_micros: 1_800_000_000, count: 48, parts: &parts };
        for drawn in [line.draw(), line.draw_bars()] {
            assert!(drawn.as_str().contains("<title>1 run, &lt;1&gt; failed</title>"), "{drawn}");
            assert!(drawn.as_str().contains("class=\"failed\""), "{drawn}");
        }
        let drawn = line.draw();
        assert_eq!(drawn.as_str().matches("tabindex=\"0\"><title>").count(), 2);
        assert!(drawn.as_str().contains(">12:00</text>"), "{drawn}");
        assert_eq!([time_of(first), time_of(Timestamp::from_micros(5_400_000_000))], ["1 Jan", "01:30"]);
    }
}
