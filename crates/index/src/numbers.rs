//! Conversions between the values of rows and those of the domain.

use keepsake_core::ContentHash;
use uuid::Uuid;

use crate::IndexError;

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

/// Reads a SHA-256 from a row of `table`.
pub(crate) fn hash_of(bytes: &[u8], table: &'static str) -> Result<ContentHash, IndexError> {
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| IndexError::Corrupt {
        table,
        what: "a hash that is not 32 bytes",
    })?;
    Ok(bytes.into())
}
