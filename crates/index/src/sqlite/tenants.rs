//! Tenants: infrequent operations, each in a transaction.

use keepsake_core::TenantId;
use sqlx::sqlite::SqliteConnection;

use crate::IndexError;
use crate::model::TenantStatus;

/// Selects the status of a tenant.
const STATUS: &str = "SELECT status FROM tenant WHERE tenant_id = $1";

/// Whether a tenant exists and is not being deleted.
pub(super) async fn stays(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
) -> Result<bool, IndexError> {
    let status: Option<String> = sqlx::query_scalar(STATUS)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut *connection)
        .await?;
    Ok(status.is_some_and(|status| status != TenantStatus::Deleting.name()))
}
