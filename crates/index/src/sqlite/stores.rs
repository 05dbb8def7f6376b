//! Call records and the change feed, on a connection of SQLite.

use keepsake_core::{StoreId, TenantId, Timestamp};
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{CallMade, Idempotency};
use crate::statements::RECORD_CALL;

/// Records a call that created or changed an object, if the call is idempotent.
pub(super) async fn record_call(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    made: CallMade,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> Result<(), IndexError> {
    let Some(call) = idempotency else {
        return Ok(());
    };
    sqlx::query(RECORD_CALL)
        .bind(tenant_id.uuid())
        .bind(call.scope_sha256.as_slice())
        .bind(call.request_sha256.as_slice())
        .bind(made.object_id)
        .bind(made.store_id.map(StoreId::uuid))
        .bind(made.version_seq)
        .bind(at.as_micros())
        .execute(connection)
        .await?;
    Ok(())
}

/// Writes an entry of the change feed, in the transaction of the change.
pub(super) async fn tell(
    connection: &mut SqliteConnection,
    kind: &str,
    tenant_id: TenantId,
    object_id: Option<Uuid>,
    at: Timestamp,
) -> Result<(), IndexError> {
    sqlx::query("INSERT INTO change_feed (at, kind, tenant_id, object_id) VALUES ($1, $2, $3, $4)")
        .bind(at.as_micros())
        .bind(kind)
        .bind(tenant_id.uuid())
        .bind(object_id)
        .execute(connection)
        .await?;
    Ok(())
}
