//! Idempotent calls: what an earlier call with the same key did.

use keepsake_core::{StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{CallMade, Idempotency};
use crate::database::Tx;
use crate::model::Replayed;

const FIND: &str = "SELECT version_seq, object_id, request_sha256 FROM idempotency \
    WHERE tenant_id = $1 AND scope_sha256 = $2 AND created_at > $3";

/// Replaces a record that was too old to count.
const RECORD: &str = "INSERT INTO idempotency (tenant_id, scope_sha256, request_sha256, object_id, store_id, \
        version_seq, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
    ON CONFLICT (tenant_id, scope_sha256) DO UPDATE SET request_sha256 = excluded.request_sha256, \
        object_id = excluded.object_id, store_id = excluded.store_id, \
        version_seq = excluded.version_seq, created_at = excluded.created_at";

#[derive(sqlx::FromRow)]
struct CallRow {
    version_seq: Option<i64>,
    object_id: Option<Uuid>,
    request_sha256: Vec<u8>,
}

/// What an earlier call recorded, if it was made after `since`.
pub(crate) async fn earlier_call(
    tx: &mut Tx,
    tenant_id: TenantId,
    scope_sha256: &[u8; 32],
    since: Timestamp,
) -> Result<Option<Replayed>, IndexError> {
    let query = tx
        .query(FIND)
        .bind(tenant_id.uuid())
        .bind(scope_sha256.as_slice());
    let row: Option<CallRow> = query.bind(since.as_micros()).optional().await?;
    row.map(|row| {
        Ok(Replayed {
            seq: row.version_seq,
            object_id: row.object_id,
            request_sha256: row.request_sha256.try_into().map_err(|_| IndexError::Corrupt {
                table: "idempotency",
                what: "a hash that is not 32 bytes",
            })?,
        })
    })
    .transpose()
}

/// Records what a call did, if it has an idempotency key.
pub(crate) async fn record_call(
    tx: &mut Tx,
    tenant_id: TenantId,
    made: CallMade,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> Result<(), IndexError> {
    let Some(call) = idempotency else {
        return Ok(());
    };
    tx.query(RECORD)
        .bind(tenant_id.uuid())
        .bind(call.scope_sha256.as_slice())
        .bind(call.request_sha256.as_slice())
        .bind(made.object_id)
        .bind(made.store_id.map(StoreId::uuid))
        .bind(made.version_seq)
        .bind(at.as_micros())
        .execute()
        .await?;
    Ok(())
}
