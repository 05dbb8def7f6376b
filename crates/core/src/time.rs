//! Points in time, in microseconds since the Unix epoch.

/// A point in time; both databases store it as this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time that is `duration` later, or the last one there is.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The time that is `duration` earlier, or the first one there is.
    #[must_use]
    pub fn minus(self, duration: std::time::Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Reads RFC 3339; without an offset it is UTC, a date is its midnight.
    pub fn parse(text: &str) -> Option<Self> {
        let utc = jiff::tz::TimeZone::UTC;
        let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
            // The parser of dates and times would pass over what follows them.
            let has_zone = text.contains(['[', 'Z', 'z', '+']) || text.matches('-').count() > 2;
            let civil = text.parse::<jiff::civil::DateTime>().ok().filter(|_| !has_zone)?;
            Some(civil.to_zoned(utc).ok()?.timestamp())
        })?;
        Some(Self(instant.as_microsecond()))
    }

    /// RFC 3339 in UTC with microseconds and `Z`, as every answer writes times.
    pub fn to_rfc3339(self) -> String {
        let instant = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        format!("{instant:.6}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_an_offset() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(Timestamp::parse(&at.to_rfc3339()), Some(at));
        assert_eq!(Timestamp::parse("2023-11-14T23:13:20.123456+01:00"), Some(at));
        assert_eq!(Timestamp::parse("2023-11-14T22:13:20.123456"), Some(at));
        assert_eq!(
            Timestamp::parse("2023-11-14"),
            Timestamp::parse("2023-11-14T00:00:00Z")
        );
        for bad in [
            "",
            "yesterday",
            "2023-13-01",
            "2023-11-14T25:00:00Z",
            "1700000000",
        ] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_has_microseconds_and_z() {
        assert_eq!(
            Timestamp::from_micros(0).to_rfc3339(),
            "1970-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            Timestamp::from_micros(1_700_000_000_123_456).to_rfc3339(),
            "2023-11-14T22:13:20.123456Z"
        );
    }
}
