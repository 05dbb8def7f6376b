//! Numbers, periods and schedules in words, for people.

/// Units of 1,024 and their names.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes with a unit: `5 B`, `100.00 KiB`.
pub fn bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut power = 1;
    while power < UNITS.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    // Two digits after the point, without floating point.
    let unit = 1_u128 << (10 * power);
    let hundredths = (u128::from(bytes) * 100 + unit / 2) / unit;
    format!("{}.{:02} {}", hundredths / 100, hundredths % 100, UNITS[power - 1])
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

/// The value of a tenant's limit, in the unit that its name states.
pub fn limit(name: &str, value: u64) -> String {
    let is_period = name.ends_with("_secs") || name == "expires_unused_after";
    match value {
        0 if is_period || name == "versions_per_memory" => "none".to_owned(),
        _ if is_period => period(value),
        _ if name.contains("bytes") => bytes(value),
        _ => count(value),
    }
}

/// When a job runs: `daily at 00:03 UTC`, `hourly at minute 3`, `every minute`.
///
/// Workers check a job more often than it runs, so it runs at the first trigger of
/// each period. `pattern` has six cron fields, seconds first.
pub fn schedule(pattern: &str, period_seconds: u64) -> String {
    let first_minute = pattern
        .split(' ')
        .nth(1)
        .and_then(|field| field.split('/').next())
        .and_then(|minute| minute.parse::<u8>().ok());
    match (period_seconds, first_minute) {
        (60, _) => "every minute".to_owned(),
        (3_600, Some(minute)) => format!("hourly at minute {minute}"),
        (86_400, Some(minute)) => format!("daily at 00:{minute:02} UTC"),
        _ => format!("every {}", period(period_seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        for (shown, text) in [
            (bytes(1_023), "1023 B"),
            (bytes(1_536), "1.50 KiB"),
            (bytes(u64::MAX), "16.00 EiB"),
            (count(1_234_567), "1,234,567"),
            (counted(1, "blob"), "1 blob"),
            (counted(2_000, "blob"), "2,000 blobs"),
            (counted(1, "memory"), "1 memory"),
            (counted(0, "memory"), "0 memories"),
            (period(7_776_000), "90 days"),
            (period(61), "61 seconds"),
            (period(0), "0 seconds"),
            (limit("bytes_per_memory", 102_400), "100.00 KiB"),
            (limit("version_retention_secs", 2_592_000), "30 days"),
            (limit("version_age_secs", 0), "none"),
            (limit("requests_per_second", 0), "0"),
            (limit("memories_per_store", 2_000), "2,000"),
            (schedule("0 * * * * *", 60), "every minute"),
            (schedule("50 3/10 * * * *", 3_600), "hourly at minute 3"),
            (schedule("30 7/10 * * * *", 86_400), "daily at 00:07 UTC"),
        ] {
            assert_eq!(shown, text);
        }
    }
}
