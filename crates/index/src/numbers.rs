//! Conversions between the signed integers of the databases and the unsigned ones
//! of the domain.

use uuid::Uuid;

/// Converts a count or size from a row, which is never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Converts a count or size to a row's value.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// An id as JSON parameters contain it: SQLite reads it with `unhex`.
pub(crate) fn hex(uuid: Uuid) -> String {
    uuid.simple().to_string()
}
