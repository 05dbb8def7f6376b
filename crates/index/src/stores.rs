//! Stores of a tenant.

use keepsake_core::{StoreId, TenantId};

use crate::IndexError;
use crate::database::{RowLock, Tx};

const SEQ: &str = "SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2";

/// Takes the lock of a store's commits, also of a deleted store.
pub(crate) async fn lock_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<(), IndexError> {
    if tx.is_postgres() {
        let query = tx.query_locking(SEQ, RowLock::NoKeyUpdate).bind(tenant_id.uuid());
        query.bind(store_id.uuid()).execute().await?;
    }
    Ok(())
}
