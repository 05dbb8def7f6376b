//! Tenants: infrequent operations, each in a transaction.

use keepsake_core::TenantId;

use super::pool::Tx;
use crate::IndexError;
use crate::model::TenantStatus;

/// Selects the status of a tenant with a lock that prevents its deletion, and that
/// serialises two calls with the same idempotency key.
const LOCK_STATUS: &str = "SELECT status FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE";

/// Locks a tenant against its deletion; `false`: it does not exist, or is being
/// deleted.
pub(super) async fn stays(transaction: &mut Tx, tenant_id: TenantId) -> Result<bool, IndexError> {
    let status: Option<String> = sqlx::query_scalar(LOCK_STATUS)
        .bind(tenant_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    Ok(status.is_some_and(|status| status != TenantStatus::Deleting.name()))
}
