//! Numbers, periods and schedules as people read and type them.

use crate::limits::MAX_LIMIT;

/// Units of 1,024 and their names.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes with a unit: `5 B`, `1.5 KiB`, `100 KiB`.
pub fn bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{} B", count(bytes));
    }
    let mut power = 1;
    while power < UNITS.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    // At most two digits after the point, without floating point.
    let unit = 1_u128 << (10 * power);
    let hundredths = (u128::from(bytes) * 100 + unit / 2) / unit;
    let whole = u64::try_from(hundredths / 100).unwrap_or(u64::MAX);
    let digits = format!("{}.{:02}", count(whole), hundredths % 100);
    format!("{} {}", digits.trim_end_matches('0').trim_end_matches('.'), UNITS[power - 1])
}

/// A number with a comma between thousands.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and the name of what it counts: `1 blob`, `2,000 blobs`, `2 memories`.
pub fn counted(number: u64, name: &str) -> String {
    let number_text = count(number);
    match name.strip_suffix("ory") {
        _ if number == 1 => format!("{number_text} {name}"),
        Some(stem) => format!("{number_text} {stem}ories"),
        None => format!("{number_text} {name}s"),
    }
}

/// A number of seconds in the largest unit that states it exactly.
pub fn period(seconds: u64) -> String {
    let units = [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute")];
    let exact = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = exact.unwrap_or((1, "second"));
    counted(seconds / unit, name)
}

/// Units of a period with their seconds. The first that states a period exactly is written.
const PERIOD_UNITS: [(&str, u64); 5] =
    [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60), ("s", 1), ("w", 7 * 24 * 60 * 60)];

/// Units of a size with their bytes. The first that states a size exactly is written.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// The seconds of a period, which is a whole number with the unit `s`, `m`, `h`, `d` or `w`.
pub fn parse_period(text: &str) -> Option<u64> {
    parse_with_unit(text, &PERIOD_UNITS)
}

fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit())?);
    let unit = unit.trim_start();
    // A single letter may mean another unit as a capital.
    let is_named = |name: &str| name == unit || (name.len() > 1 && name.eq_ignore_ascii_case(unit));
    let (_, size) = units.iter().find(|(name, _)| is_named(name))?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}

/// The kind of a tenant's limit.
enum LimitKind {
    Size,
    Period,
    Number,
}

impl LimitKind {
    fn of(name: &str) -> Self {
        if name.ends_with("_secs") || name == "expires_unused_after" {
            Self::Period
        } else if name.contains("bytes") {
            Self::Size
        } else {
            Self::Number
        }
    }

    const fn units(&self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Size => &SIZE_UNITS,
            Self::Period => &PERIOD_UNITS,
            Self::Number => &[],
        }
    }
}

/// The value of a tenant's limit, in the unit that its name states.
pub fn limit(name: &str, value: u64) -> String {
    match (LimitKind::of(name), value) {
        (_, 0) if ["version_age_secs", "versions_per_memory"].contains(&name) => "no limit".to_owned(),
        (LimitKind::Period, 0) => "none".to_owned(),
        (LimitKind::Period, _) => period(value),
        (LimitKind::Size, _) => bytes(value),
        (LimitKind::Number, _) => count(value),
    }
}

/// The value of a tenant's limit as a person types it, without loss: `100KiB`, `30d`.
pub fn typed_limit(name: &str, value: u64) -> String {
    let is_exact = |size: u64| value > 0 && value.is_multiple_of(size);
    let exact = LimitKind::of(name).units().iter().find(|(_, size)| is_exact(*size));
    exact.map_or_else(|| value.to_string(), |(unit, size)| format!("{}{unit}", value / size))
}

/// Examples of what [`parse_limit`] reads beside a plain number; empty: nothing.
pub fn limit_examples(name: &str) -> &'static str {
    match LimitKind::of(name) {
        LimitKind::Size => "such as 64KiB, 10MB or 1GiB",
        LimitKind::Period => "such as 12h or 30d",
        LimitKind::Number => "",
    }
}

/// Reads the value of a tenant's limit: a whole number, of bytes or seconds if it has no unit. The
/// error is the rule, as a phrase that follows the limit's name.
pub fn parse_limit(name: &str, text: &str) -> Result<u64, String> {
    let number: Option<u64> =
        text.parse().ok().or_else(|| parse_with_unit(text, LimitKind::of(name).units()));
    if number.is_some_and(|number| number > MAX_LIMIT) {
        return Err(format!("must be at most {}", limit(name, MAX_LIMIT)));
    }
    number.ok_or_else(|| match LimitKind::of(name) {
        LimitKind::Size => format!("must be a whole number of bytes or of a unit, {}", limit_examples(name)),
        LimitKind::Period => {
            format!("must be a whole number of seconds or of a unit, {}", limit_examples(name))
        }
        LimitKind::Number => "must be a whole number".to_owned(),
    })
}

/// When a job runs: `daily at 00:03 UTC`, `hourly at minute 3`, `every minute`.
///
/// Workers check a job more often than it runs, so it runs at the first trigger of
/// each period. `pattern` has six cron fields, seconds first.
pub fn schedule(pattern: &str, period_seconds: u64) -> String {
    match (period_seconds, first_minute(pattern)) {
        (60, _) => "every minute".to_owned(),
        (3_600, Some(minute)) => format!("hourly at minute {minute}"),
        (86_400, Some(minute)) => format!("daily at 00:{minute:02} UTC"),
        _ => format!("every {}", period(period_seconds)),
    }
}

/// The first minute of an hour or a day in which the schedule of a job triggers it.
pub fn first_minute(pattern: &str) -> Option<u8> {
    pattern.split(' ').nth(1)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        for (shown, text) in [
            (bytes(1_023), "1,023 B"),
            (bytes(1_536), "1.5 KiB"),
            (bytes(u64::MAX), "16 EiB"),
            (count(1_234_567), "1,234,567"),
            (counted(1, "blob"), "1 blob"),
            (counted(2_000, "memory"), "2,000 memories"),
            (period(7_776_000), "90 days"),
            (period(61), "61 seconds"),
            (limit("bytes_per_memory", 102_400), "100 KiB"),
            (limit("version_retention_secs", 2_592_000), "30 days"),
            (limit("version_age_secs", 0), "no limit"),
            (limit("requests_per_second", 0), "0"),
            (schedule("0 * * * * *", 60), "every minute"),
            (schedule("50 3/10 * * * *", 3_600), "hourly at minute 3"),
            (schedule("30 7/10 * * * *", 86_400), "daily at 00:07 UTC"),
        ] {
            assert_eq!(shown, text);
        }
    }

    #[test]
    fn limits_are_typed_with_units() {
        for (name, typed, value, shown) in [
            ("bytes_per_memory", "64kib", 65_536, "64KiB"),
            ("bytes_per_store", "10 MB", 10_000_000, "10MB"),
            ("bytes_per_store", "7", 7, "7B"),
            ("version_age_secs", "12h", 43_200, "12h"),
            ("version_age_secs", "2w", 1_209_600, "14d"),
            ("version_age_secs", "0", 0, "0"),
            ("request_burst", "2000", 2_000, "2000"),
        ] {
            assert_eq!(parse_limit(name, typed), Ok(value), "{typed}");
            assert_eq!(typed_limit(name, value), shown);
            assert_eq!(parse_limit(name, shown), Ok(value), "{shown}");
        }
        for (name, typed) in [
            ("bytes_per_memory", "1d"),
            ("bytes_per_memory", "1.5MB"),
            ("bytes_per_memory", "9000TiB"),
            ("bytes_per_memory", "99999999TiB"),
            ("request_burst", "2k"),
            ("version_age_secs", "-1d"),
            ("version_age_secs", "2M"),
        ] {
            assert!(parse_limit(name, typed).is_err(), "{typed}");
        }
    }
}
