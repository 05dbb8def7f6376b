//! Charts as SVG, without scripts or inline styles.

use std::fmt::Write;

use keepsake_core::Timestamp;
use keepsake_index::DailyChanges;

use super::markup::Markup;

const MICROS_PER_DAY: i64 = 86_400_000_000;
pub(crate) const DAYS: i64 = 30;
const WIDTH: i64 = 600;
const HEIGHT: i64 = 96;

/// The first day of a chart that ends today.
pub(crate) fn first_day(now: Timestamp) -> Timestamp {
    let today = now.as_micros().div_euclid(MICROS_PER_DAY);
    Timestamp::from_micros((today - DAYS + 1) * MICROS_PER_DAY)
}

/// A bar for the changes of each day.
pub(crate) fn changes(days: &[DailyChanges], now: Timestamp) -> Markup {
    let first = first_day(now).as_micros() / MICROS_PER_DAY;
    let of_day = |day: i64| days.iter().find(|found| found.day == day).map_or(0, |found| found.changes);
    let most = days.iter().map(|day| day.changes).max().unwrap_or_default().max(1);
    let total: u64 = days.iter().map(|day| day.changes).sum();
    let step = WIDTH / DAYS;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
        aria-label=\"Changes per day in the last {DAYS} days: {total} in all, at most {most} a day\">\
        <line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{HEIGHT}\" y2=\"{HEIGHT}\"/>"
    );
    for offset in 0..DAYS {
        let changes = of_day(first + offset);
        let height = scaled(changes, most);
        let date = Timestamp::from_micros((first + offset) * MICROS_PER_DAY).to_rfc3339();
        let _ = write!(
            svg,
            "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{height}\"><title>{}: {changes}</title></rect>",
            offset * step + 2,
            HEIGHT - height,
            step - 4,
            &date[..10],
        );
    }
    svg.push_str("</svg>");
    Markup::trusted(svg)
}

/// The height of a bar. The bar of a day with any change is visible.
fn scaled(changes: u64, most: u64) -> i64 {
    if changes == 0 {
        return 1;
    }
    let height = u128::from(changes) * u128::from(HEIGHT.unsigned_abs() - 4) / u128::from(most);
    i64::try_from(height).unwrap_or(HEIGHT).max(3)
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
    fn chart_has_a_bar_for_each_day() {
        let now = Timestamp::from_micros(100 * MICROS_PER_DAY + 5);
        let svg = changes(&[DailyChanges { day: 100, changes: 7 }], now);
        assert_eq!(svg.as_str().matches("<rect").count(), 30);
        assert!(svg.as_str().contains("1970-04-11: 7"), "{svg}");
        assert!(svg.as_str().contains("7 in all, at most 7 a day"));
    }
}
