//! Grants: how a tenant's bytes are granted to its stores.
//!
//! A commit never writes the tenant's row. Each store holds a grant, in chunks, and
//! Σ live ≤ Σ granted ≤ limit always holds. So the tenant's limit is exact, without
//! one row that every write locks.

use keepsake_core::{Quota, Refused, StoreId, TenantId};

use crate::database::{Database, Role, RowLock, Tx};
use crate::numbers::unsigned;
use crate::{ChangeError, IndexError};

const OF_TENANT: &str = "SELECT granted_bytes FROM tenant WHERE tenant_id = $1";

const OF_STORE: &str =
    "SELECT granted_bytes FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Ordered by id, so that concurrent transactions cannot deadlock: two recalls of one
/// tenant (which the lock on the tenant's row excludes already), or a recall and the
/// deletion of a store.
const LOCK_STORES: &str = "SELECT store_id FROM store \
    WHERE tenant_id = $1 AND (store_id = $2 OR granted_bytes > live_bytes) ORDER BY store_id FOR NO KEY UPDATE";

const RECALL: &str = "UPDATE store SET granted_bytes = live_bytes \
    WHERE tenant_id = $1 AND store_id <> $2 AND granted_bytes > live_bytes";

const OF_OTHER_STORES: &str = "SELECT CAST(coalesce(sum(granted_bytes), 0) AS bigint) FROM store \
    WHERE tenant_id = $1 AND store_id <> $2";

const SET_OF_STORE: &str = "UPDATE store SET granted_bytes = $3 WHERE tenant_id = $1 AND store_id = $2";

const SET_OF_TENANT: &str = "UPDATE tenant SET granted_bytes = $2 WHERE tenant_id = $1";

/// Bytes granted beyond the request, so that most commits need no new grant; a store
/// that grows is granted an eighth of its size.
const CHUNK_BYTES: u64 = 1 << 20;

/// A tenant's grants, read from the rows of the tenant and its stores under their
/// locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    /// The grant of the requesting store.
    own: u64,
    /// The sum of the grants of the tenant's other stores.
    others: u64,
}

impl Account {
    /// Whether the limit has no room unless other stores return unused grants.
    const fn must_recall(&self, needed_bytes: u64, limit_bytes: u64) -> bool {
        self.others.saturating_add(needed_bytes) > limit_bytes
    }

    /// The store's new grant: a chunk more than needed if there is room.
    fn grant(&self, needed_bytes: u64, limit_bytes: u64) -> Option<u64> {
        let room = limit_bytes.checked_sub(self.others)?;
        if needed_bytes > room {
            return None;
        }
        let spare = CHUNK_BYTES.max(needed_bytes / 8);
        Some(needed_bytes.saturating_add(spare).min(room).max(self.own))
    }

    const fn total(&self) -> u64 {
        self.own.saturating_add(self.others)
    }
}

#[derive(Debug, Clone)]
pub struct Grants(pub(crate) Database);

impl Grants {
    /// Grants a store enough of its tenant's bytes to hold `needed_bytes`.
    ///
    /// Grants in chunks while the tenant has room. Without room, recalls unused grants of
    /// the tenant's other stores before it refuses. Locks the tenant, then stores by id;
    /// only commits of stores whose grants it recalls wait for it. Does nothing if the store
    /// no longer exists, which the next commit reports.
    pub async fn extend(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        needed_bytes: u64,
        tenant_limit_bytes: u64,
    ) -> Result<(), ChangeError> {
        let mut tx = self.0.write("grant_bytes", Role::Tenant(tenant_id)).await?;
        let Some(mut account) = read(&mut tx, tenant_id, store_id).await? else {
            return Ok(());
        };
        if account.must_recall(needed_bytes, tenant_limit_bytes) {
            account.others = recall(&mut tx, tenant_id, store_id).await?;
        }
        let new_grant = account.grant(needed_bytes, tenant_limit_bytes);
        // A recalled grant stays recalled even if the new grant is refused, because it
        // was unused.
        account.own = new_grant.unwrap_or(account.own);
        let query = tx.query(SET_OF_STORE).bind((tenant_id, store_id, account.own));
        query.execute().await?;
        let query = tx.query(SET_OF_TENANT).bind((tenant_id, account.total()));
        query.execute().await?;
        tx.commit().await?;
        if new_grant.is_none() {
            let wanted = account.others.saturating_add(needed_bytes);
            return Err(Refused::over(Quota::BytesPerTenant, wanted, tenant_limit_bytes).into());
        }
        Ok(())
    }
}

/// Reads the grants of a tenant, and locks the tenant; `None`: no such store.
async fn read(tx: &mut Tx, tenant_id: TenantId, store_id: StoreId) -> Result<Option<Account>, IndexError> {
    let query = tx.query_locking(OF_TENANT, RowLock::NoKeyUpdate);
    let of_tenant: Option<i64> = query.bind(tenant_id).optional_scalar().await?;
    let Some(of_tenant) = of_tenant.map(unsigned) else {
        return Ok(None);
    };
    let query = tx.query(OF_STORE).bind((tenant_id, store_id));
    let own: Option<i64> = query.optional_scalar().await?;
    Ok(own.map(unsigned).map(|own| Account { own, others: of_tenant.saturating_sub(own) }))
}

/// Recalls the unused grants of the tenant's other stores; returns the sum of their
/// remaining grants.
async fn recall(tx: &mut Tx, tenant_id: TenantId, store_id: StoreId) -> Result<u64, IndexError> {
    tx.execute_on_postgres(LOCK_STORES, (tenant_id, store_id)).await?;
    tx.query(RECALL).bind((tenant_id, store_id)).execute().await?;
    let query = tx.query(OF_OTHER_STORES).bind((tenant_id, store_id));
    Ok(unsigned(query.scalar().await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_includes_a_chunk_if_there_is_room_and_never_exceeds_the_limit() {
        for (own, others, needed, limit, granted) in [
            (0, 0, 10, 100 << 20, Some(10 + CHUNK_BYTES)),
            (5, 90, 10, 100, Some(10)),
            (5, 90, 11, 100, None),
            // The limit was lowered.
            (50, 200, 51, 100, None),
        ] {
            assert_eq!(Account { own, others }.grant(needed, limit), granted, "{needed} of {limit}");
        }
        let account = Account { own: 5, others: 90 };
        assert!(!account.must_recall(10, 100) && account.must_recall(11, 100));
    }
}
