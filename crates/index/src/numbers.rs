//! Numbers between the databases, which have signed ones, and the domain.

/// A count or size, which is never negative in a row.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// A count or size as a row stores it.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
