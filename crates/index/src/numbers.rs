//! Conversions between the values of rows and documents, and those of the domain.

use keepsake_core::{BlobKey, ContentHash, StoreId, TenantId, Timestamp, VersionId};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

/// A store before every other store.
pub(crate) const FIRST_STORE: (TenantId, StoreId) = (FIRST_KEY.tenant_id, FIRST_KEY.store_id);

/// A store after every other store.
pub(crate) const LAST_STORE: (TenantId, StoreId) =
    (TenantId::from_uuid(Uuid::max()), StoreId::from_uuid(Uuid::max()));

/// A key before every other key.
pub(crate) const FIRST_KEY: BlobKey = BlobKey {
    tenant_id: TenantId::from_uuid(Uuid::nil()),
    store_id: StoreId::from_uuid(Uuid::nil()),
    blob_id: VersionId::from_uuid(Uuid::nil()),
};

/// A count or size in a row is never negative.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Converts a count or size to a row's value.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The first and the last time that a filter accepts, in microseconds.
pub(crate) fn period_of(from: Option<Timestamp>, to: Option<Timestamp>) -> (i64, i64) {
    (from.map_or(i64::MIN, Timestamp::as_micros), to.map_or(i64::MAX, Timestamp::as_micros))
}

/// An id as documents contain it: SQLite reads it with `unhex`.
pub(crate) fn hex(uuid: Uuid) -> String {
    uuid.simple().to_string()
}

pub(crate) fn hex_of(bytes: &[u8; 32]) -> String {
    ContentHash::from(*bytes).to_string()
}

/// Reads a time.
pub(crate) fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    i64::deserialize(deserializer).map(Timestamp::from_micros)
}

pub(crate) fn optional_micros<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Timestamp::from_micros))
}
