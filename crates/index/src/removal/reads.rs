//! The removal of records of who was shown versions: with their memories and versions,
//! and by age and number.

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::{Removal, begin_removal};
use crate::IndexError;
use crate::database::{Database, Ids, Role, from_row};
use crate::reads::note_gap;

/// Records removed in one transaction, which may block other writers.
const BATCH: i64 = 200;

pub(super) const DELETE_OF_MEMORIES: &str = "DELETE FROM memory_read WHERE tenant_id = $1 AND store_id = $2 \
    AND (memory_id, version_id, session_id, actor_type, actor_id, surface) IN ( \
        SELECT r.memory_id, r.version_id, r.session_id, r.actor_type, r.actor_id, r.surface FROM memory_read r \
        WHERE r.tenant_id = $1 AND r.store_id = $2 AND r.memory_id IN_IDS($3) LIMIT $4 + 0)";

pub(super) const DELETE_OF_VERSIONS: &str = "DELETE FROM memory_read WHERE tenant_id = $1 AND store_id = $2 \
    AND (memory_id, version_id, session_id, actor_type, actor_id, surface) IN ( \
        SELECT r.memory_id, r.version_id, r.session_id, r.actor_type, r.actor_id, r.surface \
        FROM version v CROSS JOIN memory_read r \
        WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq IN_NUMBERS($3) \
            AND r.tenant_id = $1 AND r.store_id = $2 AND r.memory_id = v.memory_id AND r.version_id = v.version_id \
        LIMIT $4 + 0)";

/// Tenants with records after a given one.
const TENANTS: &str = "SELECT t.tenant_id, t.limits FROM tenant t WHERE t.tenant_id > $1 AND t.status <> 'deleting' \
    AND EXISTS (SELECT 1 FROM memory_read r WHERE r.tenant_id = t.tenant_id LIMIT 1 OFFSET 0) \
    ORDER BY t.tenant_id LIMIT $2 + 0";

/// Tenants after a given one. On a distributed database, the records are not looked up
/// together with the tenants.
const ALL_TENANTS: &str = "SELECT t.tenant_id, t.limits FROM tenant t \
    WHERE t.tenant_id > $1 AND t.status <> 'deleting' ORDER BY t.tenant_id LIMIT $2 + 0";

/// When the newest record beyond the newest `$2` of a tenant was last used.
pub(super) const SURPLUS: &str = "SELECT last_read_at FROM memory_read WHERE tenant_id = $1 \
    ORDER BY last_read_at DESC LIMIT 1 OFFSET $2";

const COUNT_OLD: &str = "SELECT count(*) FROM memory_read WHERE tenant_id = $1 AND last_read_at < $2";

pub(super) const DELETE_OLD: &str = "DELETE FROM memory_read WHERE tenant_id = $1 \
    AND (store_id, memory_id, version_id, session_id, actor_type, actor_id, surface) IN ( \
        SELECT store_id, memory_id, version_id, session_id, actor_type, actor_id, surface FROM memory_read \
        WHERE tenant_id = $1 AND last_read_at < $2 ORDER BY last_read_at LIMIT $3 + 0)";

/// A tenant with records of who was shown versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingTenant {
    pub tenant_id: TenantId,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
}

from_row!(RecordingTenant { tenant_id, limits });

impl Removal<'_> {
    /// Removes records of these memories; `false`: some are left.
    pub(super) async fn forget_readers_of(
        &mut self,
        memories: &[MemoryId],
    ) -> Result<(u64, bool), IndexError> {
        let query = self.query_with_lists(DELETE_OF_MEMORIES).bind((Ids(Some(memories)), BATCH));
        let removed = query.execute().await?;
        Ok((removed, removed < BATCH.unsigned_abs()))
    }

    /// Removes records of the versions with these sequence numbers; `false`: some are left.
    pub(super) async fn forget_readers_at(&mut self, places: &[i64]) -> Result<bool, IndexError> {
        let query = self.query_with_lists(DELETE_OF_VERSIONS).bind(json!(places).to_string());
        Ok(query.bind(BATCH).execute().await? < BATCH.unsigned_abs())
    }
}

/// Removes all records of a version, in several transactions. Its row must keep further
/// ones from being written.
pub(super) async fn forget_readers(
    database: &Database,
    (tenant_id, store_id): (TenantId, StoreId),
    seq: i64,
) -> Result<(), IndexError> {
    loop {
        let mut tx = database.write("forget_readers", Role::Tenant(tenant_id)).await?;
        begin_removal(&mut tx).await?;
        let is_done = Removal::of(&mut tx, tenant_id, store_id).forget_readers_at(&[seq]).await?;
        tx.commit().await?;
        if is_done {
            return Ok(());
        }
    }
}

/// The retention of records of who was shown versions.
#[derive(Debug, Clone)]
pub struct ReadRetention(pub(crate) Database);

impl ReadRetention {
    /// The next tenants with records after a given one, by id.
    pub async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<RecordingTenant>, IndexError> {
        let after = after.map_or(Uuid::nil(), TenantId::uuid);
        let text = if self.0.is_distributed() { ALL_TENANTS } else { TENANTS };
        self.0.all("tenants_with_reads", Role::Job(None), text, (after, limit)).await
    }

    /// The time before which a tenant's records are beyond the newest `maximum`; `None`: it
    /// has no more than these.
    pub async fn surplus(&self, tenant_id: TenantId, maximum: u64) -> Result<Option<Timestamp>, IndexError> {
        let values = (tenant_id, maximum);
        let found: Option<(Timestamp,)> =
            self.0.optional("surplus_reads", Role::Job(None), SURPLUS, values).await?;
        let just_after = |(at,): (Timestamp,)| Timestamp::from_micros(at.as_micros().saturating_add(1));
        Ok(found.map(just_after))
    }

    /// Removes the next records that were last used before a time, at most `limit`, the
    /// oldest first, in one transaction; with `is_dry` it counts all of them. Returns the
    /// number.
    pub async fn prune(
        &self,
        tenant_id: TenantId,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<u64, IndexError> {
        if is_dry {
            let values = (tenant_id, before);
            return self.0.scalar("count_old_reads", Role::Job(None), COUNT_OLD, values).await;
        }
        let mut tx = self.0.write("prune_reads", Role::Job(None)).await?;
        begin_removal(&mut tx).await?;
        let query = tx.query(DELETE_OLD).bind((tenant_id, before, limit));
        let removed = query.execute().await?;
        if removed > 0 {
            note_gap(&mut tx, tenant_id, before).await?;
        }
        tx.commit().await?;
        Ok(removed)
    }
}
