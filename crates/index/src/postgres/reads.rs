//! Columns that several readers share.

use keepsake_core::{TenantId, Timestamp};
use sqlx::{PgExecutor, Row};

use crate::IndexError;
use crate::model::Replayed;
use crate::statements::EARLIER_CALL;

/// The record of an earlier call with the same key.
pub(super) async fn earlier_call(
    executor: impl PgExecutor<'_>,
    tenant_id: TenantId,
    scope_sha256: &[u8; 32],
    since: Timestamp,
) -> Result<Option<Replayed>, IndexError> {
    let row = sqlx::query(EARLIER_CALL)
        .bind(tenant_id.uuid())
        .bind(scope_sha256.as_slice())
        .bind(since.as_micros())
        .fetch_optional(executor)
        .await?;
    row.map(|row| {
        Ok(Replayed {
            seq: row.try_get(0)?,
            object_id: row.try_get(1)?,
            request_sha256: request_hash_of(row.try_get(2)?)?,
        })
    })
    .transpose()
}

/// The request hash in the record of an idempotent call.
fn request_hash_of(bytes: &[u8]) -> Result<[u8; 32], IndexError> {
    bytes.try_into().map_err(|_| IndexError::Corrupt {
        table: "idempotency",
        what: "a hash that is not 32 bytes",
    })
}
