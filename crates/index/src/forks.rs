//! Stores with the content of another one, while it is copied.
//!
//! The end of a worker's lease, which grows with each worker, is its fence: a worker whose copy was
//! taken over records nothing any more.

use std::time::Duration;

use keepsake_core::{Actor, StoreId, TenantId, Timestamp};
use sqlx::types::Json;

use crate::IndexError;
use crate::database::{Database, Role, Tx, from_row};
use crate::model::StoreOrigin;

/// How long the replica that creates a store holds its copy.
pub const FORK_HELD_FOR: Duration = Duration::from_mins(2);

const INSERT: &str = "INSERT INTO store_fork (tenant_id, store_id, source_id, seq, actor_type, actor_id, created_at, \
    lease_until, copied) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)";

const FIND: &str = "SELECT source_id, seq, actor_type, actor_id, created_at, after_path, memories, copied FROM store_fork \
    WHERE tenant_id = $1 AND store_id = $2";

const ADVANCE: &str = "UPDATE store_fork SET after_path = $3, memories = $4, copied = $5, lease_until = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND lease_until = $7";

/// A lease that ends later than twice its length from the present, `$4`, was taken by a clock that was ahead, and
/// does not count.
const HOLD: &str = "UPDATE store_fork SET lease_until = $3 WHERE tenant_id = $1 AND store_id = $2 \
    AND (lease_until <= $4 OR lease_until > $3 + $3 - $4)";

const DELETE: &str = "DELETE FROM store_fork WHERE tenant_id = $1 AND store_id = $2 AND lease_until = $3";

const SET_ORIGIN: &str = "UPDATE store SET forked_from = $3 WHERE tenant_id = $1 AND store_id = $2";

/// Of each tenant the copy that no worker has held for the longest time.
const OPEN: &str = "SELECT tenant_id, store_id FROM (SELECT tenant_id, store_id, lease_until, \
        row_number() OVER (PARTITION BY tenant_id ORDER BY lease_until, store_id) AS place \
    FROM store_fork WHERE lease_until <= $1 OR lease_until > $3) waiting \
    WHERE place = 1 ORDER BY lease_until LIMIT $2 + 0";

/// A copy that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFork {
    pub source_id: StoreId,
    /// The point of the source.
    pub seq: i64,
    pub actor: Option<Actor>,
    pub created_at: Timestamp,
    /// The path of the last memory that was copied.
    pub after: Option<String>,
    pub counts: ForkCounts,
}

/// Counts of the memories of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForkCounts {
    /// Memories of the source at the point, when the copy began; `None`: not all are counted yet.
    pub memories: Option<u64>,
    pub copied: u64,
}

impl ForkCounts {
    /// Memories that are not copied.
    pub fn missing(self) -> u64 {
        self.memories.unwrap_or_default().saturating_sub(self.copied)
    }
}

#[derive(Debug, Clone)]
pub struct Forks(pub(crate) Database);

from_row! {
    ForkCounts { memories, copied }
    OpenFork { source_id, seq, created_at, after = "after_path"; actor by ["actor_type", "actor_id"], counts }
}

/// Records that a new store is to get the content of another one.
pub(crate) async fn begin(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    origin: &StoreOrigin,
    by: Option<&Actor>,
    (now, lease_until): (Timestamp, Timestamp),
) -> Result<(), IndexError> {
    let query = tx.query(INSERT).bind(store).bind((origin.memory_store_id, origin.seq));
    let query = query.bind((by.map(Actor::kind), by.map(Actor::id)));
    query.bind((now, lease_until)).execute().await?;
    Ok(())
}

impl Forks {
    pub async fn find(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Option<OpenFork>, IndexError> {
        self.0.optional("fork", Role::Tenant(tenant_id), FIND, (tenant_id, store_id)).await
    }

    /// Records up to which path memories were copied, and holds the copy until `until`, or releases it if
    /// that is the present; `false`: another worker has taken it over from the worker that held it until `held_until`.
    pub async fn advance(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        (after, counts): (&str, ForkCounts),
        held_until: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let values = (tenant_id, store_id, after, counts.memories, counts.copied, until, held_until);
        Ok(self.0.change("advance_fork", Role::Tenant(tenant_id), ADVANCE, values).await? > 0)
    }

    /// Claims the work on a copy until `until`; `false`: another worker's claim lasts beyond
    /// `now`.
    pub async fn hold(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let values = (tenant_id, store_id, until, now);
        Ok(self.0.change("hold_fork", Role::Tenant(tenant_id), HOLD, values).await? > 0)
    }

    /// Ends a copy, unless another worker has taken it over; `origin` is what the store shows of it from
    /// now on.
    pub async fn end(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        origin: &StoreOrigin,
        held_until: Timestamp,
    ) -> Result<(), IndexError> {
        let mut tx = self.0.write("end_fork", Role::Tenant(tenant_id)).await?;
        if tx.query(DELETE).bind((tenant_id, store_id, held_until)).execute().await? > 0 {
            tx.query(SET_ORIGIN).bind((tenant_id, store_id, Json(origin))).execute().await?;
        }
        tx.commit().await
    }

    /// Copies of all tenants that no worker holds: one of each tenant, whose turn has been due for the
    /// longest time.
    pub async fn open(&self, now: Timestamp, limit: u32) -> Result<Vec<(TenantId, StoreId)>, IndexError> {
        let values = (now, limit, now.plus(2 * FORK_HELD_FOR));
        self.0.all("open_forks", Role::Job(None), OPEN, values).await
    }
}
