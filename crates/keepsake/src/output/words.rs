//! Numbers and schedules in words.

use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;

/// A number of bytes with a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// A number of seconds in the largest unit that states it exactly.
pub(super) fn period(seconds: u64) -> String {
    let units = [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute")];
    let exact = units
        .into_iter()
        .find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = exact.unwrap_or((1, "second"));
    counted(seconds / unit, name)
}

/// A number and the name of what it counts: `1 blob`, `2,000 blobs`.
pub(crate) fn counted(count: u64, name: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {name}{plural}", HumanCount(count))
}

/// The value of a tenant's limit, in the unit that its name states.
pub(crate) fn limit(name: &str, value: u64) -> String {
    let is_period = name.ends_with("_secs") || name == "expires_unused_after";
    match value {
        0 if is_period || name == "versions_per_memory" => "none".to_owned(),
        _ if is_period => period(value),
        _ if name.contains("bytes") => bytes(value),
        _ => HumanCount(value).to_string(),
    }
}

/// When a job runs: `daily at 00:03 UTC`, `hourly at minute 3`, `every minute`.
///
/// Workers check a job more often than it runs, so it runs at the first trigger of
/// each period.
pub(super) fn schedule(job: &Value) -> String {
    let period_seconds = job["period_seconds"].as_u64().unwrap_or_default();
    let pattern = job["schedule"].as_str().unwrap_or_default();
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
    use serde_json::json;

    use super::*;

    #[test]
    fn schedules_are_words() {
        for (pattern, seconds, words) in [
            ("0 * * * * *", 60, "every minute"),
            ("50 3/10 * * * *", 3_600, "hourly at minute 3"),
            ("30 7/10 * * * *", 86_400, "daily at 00:07 UTC"),
            ("0 0 */2 * * *", 7_200, "every 2 hours"),
            ("0 * * * * *", 86_400, "every 1 day"),
        ] {
            let job = json!({"schedule": pattern, "period_seconds": seconds});
            assert_eq!(schedule(&job), words, "{pattern}");
        }
    }

    #[test]
    fn periods_are_exact() {
        for (seconds, text) in [
            (7_776_000, "90 days"),
            (5_400, "90 minutes"),
            (3_600, "1 hour"),
            (61, "61 seconds"),
            (0, "0 seconds"),
        ] {
            assert_eq!(period(seconds), text);
        }
    }

    #[test]
    fn limits_have_units() {
        for (name, value, text) in [
            ("bytes_per_memory", 102_400, "100.00 KiB"),
            ("session_bytes_per_tenant", 1 << 30, "1.00 GiB"),
            ("version_retention_secs", 2_592_000, "30 days"),
            ("version_age_secs", 0, "none"),
            ("requests_per_second", 0, "0"),
            ("memories_per_store", 2_000, "2,000"),
        ] {
            assert_eq!(limit(name, value), text, "{name}");
        }
    }

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(counted(1, "blob"), "1 blob");
        assert_eq!(counted(2_000, "blob"), "2,000 blobs");
    }
}
