//! Tenants: rare operations, each in a transaction.

use keepsake_core::TenantId;

use super::pool::Tx;
use crate::IndexError;
use crate::model::TenantStatus;

/// The status of a tenant, under a lock that keeps it from its end, and one of
/// two calls of the same name from being made beside the other.
const LOCK_STATUS: &str = "SELECT status FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE";

/// Locks a tenant against its end; `false`: it is not there, or about to go.
pub(super) async fn stays(transaction: &mut Tx, tenant_id: TenantId) -> Result<bool, IndexError> {
    let status: Option<String> = sqlx::query_scalar(LOCK_STATUS)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(status.is_some_and(|status| status != TenantStatus::Deleting.name()))
}
