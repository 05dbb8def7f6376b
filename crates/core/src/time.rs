//! Points in time, in microseconds since the Unix epoch.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since the Unix epoch; both databases store this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Saturates at the latest time.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Saturates at the earliest time.
    #[must_use]
    pub fn minus(self, duration: std::time::Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Parses RFC 3339. Without an offset the time is UTC; a date means its midnight.
    ///
    /// Accepts every year of four digits, so that the last moments of 9999 can stand
    /// for "no bound".
    pub fn parse(text: &str) -> Option<Self> {
        let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
        if pieces.time_zone_annotation().is_some() {
            return None;
        }
        let epoch = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);
        let local = pieces.date().to_datetime(pieces.time().unwrap_or(jiff::civil::Time::midnight()));
        let offset_secs = pieces.to_numeric_offset().map_or(0, jiff::tz::Offset::seconds);
        let micros = local.duration_since(epoch).as_micros() - i128::from(offset_secs) * 1_000_000;
        i64::try_from(micros).ok().map(Self)
    }

    /// RFC 3339 in UTC with microseconds and `Z`, the format of every response.
    pub fn to_rfc3339(self) -> String {
        let instant = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        format!("{instant:.6}")
    }
}

/// The format of [`Timestamp::to_rfc3339`].
impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("not a time in RFC 3339 format"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_an_offset_and_written_with_microseconds() {
        let at = Timestamp::from_micros(1_700_000_000_123_456);
        assert_eq!(at.to_rfc3339(), "2023-11-14T22:13:20.123456Z");
        for text in
            ["2023-11-14T22:13:20.123456Z", "2023-11-14T23:13:20.123456+01:00", "2023-11-14T22:13:20.123456"]
        {
            assert_eq!(Timestamp::parse(text), Some(at), "{text}");
        }
        assert_eq!(Timestamp::parse("2023-11-14"), Timestamp::parse("2023-11-14T00:00:00Z"));
        for bad in ["", "yesterday", "2023-13-01", "2023-11-14T25:00:00Z", "1700000000"] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }
}
