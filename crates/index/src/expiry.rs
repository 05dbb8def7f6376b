//! Expiry: finds memories that were unused for their store's period.
//!
//! The last sign of life of a memory is its latest read, write or restoration.
//! Reads are flushed with a delay, so the index knows the last sign of life only up
//! to the time through which every replica has flushed its reads.

use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::commit::{Change, Commit, CommitOutcome, commit_changes};
use crate::database::{Database, Role, Tx};
use crate::memories::{ExpiryRow, HeadRow};
use crate::model::{Expiry, Head};
use crate::stores::lock_store;
use crate::{FORGOTTEN_AFTER, IndexError, LIVES_FOR};

/// The read times flushed by replicas: those with a heartbeat since `$1`, and of
/// these, those with a heartbeat since `$2`.
const ACCESS_FLUSH: &str = "SELECT min(access_flushed_through) AS through, \
    min(CASE WHEN heartbeat_at > $2 THEN access_flushed_through END) AS of_living FROM replica WHERE heartbeat_at > $1";

/// Selects due stores with their own period, after a given one.
pub(crate) const IDLE_BY_STORE: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.expires_unused_after IS NOT NULL AND s.deleted_at IS NULL AND t.status <> 'deleting' \
    AND s.idle_since + s.expires_unused_after * 1000000 <= $3 AND (s.tenant_id, s.store_id) > ($1, $2) \
    ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Selects due stores without a period, of tenants that have one, after a given
/// one.
pub(crate) const IDLE_BY_TENANT: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM tenant t JOIN store s ON s.tenant_id = t.tenant_id \
    WHERE (t.limits ->> 'expires_unused_after') IS NOT NULL AND t.tenant_id >= $1 AND t.status <> 'deleting' \
    AND s.expires_unused_after IS NULL AND s.deleted_at IS NULL AND s.idle_since <= $3 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $4";

/// Selects live memories of a store, after a given one. The access time is a
/// subquery per memory, so that no plan starts with all access times.
pub(crate) const LIVES: &str = "SELECT m.memory_id, m.pinned, m.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) AS active_at \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id > $3 AND m.deleted_at IS NULL \
    ORDER BY m.memory_id LIMIT $4";

/// The period of an existing store, and its tenant's limits.
pub(crate) const PERIOD: &str = "SELECT s.expires_unused_after, s.period_set_at, t.limits \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The last use of a session that has a store attached and is not archived.
const LAST_SESSION_USE: &str = "SELECT max(CASE WHEN s.last_used_at > s.created_at THEN s.last_used_at \
        ELSE s.created_at END) \
    FROM session_resource r CROSS JOIN session s WHERE r.tenant_id = $1 AND r.store_id = $2 \
    AND s.tenant_id = $1 AND s.session_id = r.session_id AND s.archived_at IS NULL AND s.deleted_at IS NULL";

/// Updates the lower bound of the last sign of life of a store's live memories.
const SET_IDLE_SINCE: &str =
    "UPDATE store SET idle_since = $3 WHERE tenant_id = $1 AND store_id = $2 AND idle_since < $3";

/// Selects memories by id, with their last signs of life. The statement has no
/// condition on live memories, because that would match a partial index without the
/// whole key.
pub(crate) const HEADS: &str = "SELECT m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, \
    m.sha256, m.claimed_by, m.claimed_until, m.pinned, m.updated_at, m.deleted_at IS NULL AS is_live, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) AS active_at \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id IN_IDS($3)";

/// The progress of the replicas in flushing read times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessFlush {
    /// The time through which all replicas have flushed; `None`: there is no replica.
    pub through: Option<Timestamp>,
    /// Whether a live replica fails to flush its reads.
    pub is_stalled: bool,
}

/// The source of the period of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodOf {
    /// The store's own setting.
    Store,
    /// The tenant's setting, for stores without one.
    Tenant,
}

/// A page of the stores that may have expired memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleStores {
    /// Only stores with a period from this source.
    pub period_of: PeriodOf,
    /// The last store of the previous page.
    pub after: Option<(TenantId, StoreId)>,
    /// The time by which a memory may have expired.
    pub until: Timestamp,
    /// Maximum number of stores.
    pub limit: u32,
}

/// A store that may have expired memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleStore {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The store.
    pub store_id: StoreId,
    /// Its effective period.
    pub expiry: Expiry,
    /// A lower bound of the last sign of life of its live memories.
    pub idle_since: Timestamp,
}

impl IdleStore {
    /// Whether one of its memories may have expired by `until`.
    pub fn may_have_expired(&self, until: Timestamp) -> bool {
        let earliest = self.expiry.ends_at(self.idle_since);
        earliest.is_some_and(|earliest| earliest <= until)
    }
}

/// A live memory, and its last sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The memory.
    pub memory_id: MemoryId,
    /// Whether it never expires.
    pub is_pinned: bool,
    /// The latest read, write or restoration, as far as it is flushed.
    pub alive_at: Timestamp,
}

impl Life {
    /// Whether the memory had expired by `until`.
    pub fn is_over(&self, expiry: Expiry, until: Timestamp) -> bool {
        let ends_at = expiry.ends_at(self.alive_at);
        !self.is_pinned && ends_at.is_some_and(|ends_at| ends_at <= until)
    }
}

/// How long a session keeps the memories of its stores after its last use, because
/// an agent may be working on a copy of them.
pub const SESSION_KEEPS_FOR: Duration = Duration::from_hours(24);

/// Memories to expire.
#[derive(Debug, Clone)]
pub struct Expiration {
    /// The store.
    pub store_id: StoreId,
    /// The period used to select them.
    pub expiry: Expiry,
    /// The time by which they had expired.
    pub until: Timestamp,
    /// The memories, each with the id of the version that deletes it.
    pub memories: Vec<(MemoryId, VersionId)>,
    /// The time of the deletion.
    pub now: Timestamp,
    /// The replica that deletes them.
    pub replica: Uuid,
}

impl Expiration {
    /// Whether a use of a session at `used_at` keeps the memories.
    pub(crate) fn is_kept_by(&self, used_at: Option<Timestamp>) -> bool {
        used_at.is_some_and(|used_at| used_at.plus(SESSION_KEEPS_FOR) > self.until)
    }

    /// The commit that deletes the memories that are still expired.
    pub(crate) fn commit(&self, found: Vec<(Head, Life)>) -> Commit {
        let over = found
            .into_iter()
            .filter(|(_, life)| life.is_over(self.expiry, self.until));
        let changes = over.filter_map(|(head, life)| {
            let version_of = |(memory_id, version_id)| (memory_id == life.memory_id).then_some(version_id);
            Some(Change {
                memory_id: life.memory_id,
                version_id: self.memories.iter().copied().find_map(version_of)?,
                before: Some(head),
                revives: None,
                after: None,
            })
        });
        Commit {
            store_id: self.store_id,
            now: self.now,
            actor: None,
            replica: self.replica,
            memory_limit: u64::MAX,
            byte_limit: u64::MAX,
            idempotency: None,
            guard: None,
            purge_epoch: None,
            policy: None,
            changes: changes.collect(),
        }
    }
}

/// Finds and deletes unused memories; for the jobs.
#[derive(Debug, Clone)]
pub struct UnusedMemories {
    database: Database,
}

#[derive(sqlx::FromRow)]
struct FlushRow {
    through: Option<i64>,
    of_living: Option<i64>,
}

/// The period of a store, and its tenant's limits.
#[derive(sqlx::FromRow)]
struct PeriodRow {
    #[sqlx(flatten)]
    expiry: ExpiryRow,
    limits: Json<LimitOverrides>,
}

#[derive(sqlx::FromRow)]
struct IdleRow {
    tenant_id: Uuid,
    store_id: Uuid,
    idle_since: i64,
    #[sqlx(flatten)]
    period: PeriodRow,
}

#[derive(sqlx::FromRow)]
struct LifeRow {
    memory_id: Uuid,
    pinned: bool,
    updated_at: i64,
    active_at: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct FoundRow {
    is_live: bool,
    #[sqlx(flatten)]
    head: HeadRow,
    #[sqlx(flatten)]
    life: LifeRow,
}

impl UnusedMemories {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// The progress of the replicas in flushing read times.
    ///
    /// A replica without a heartbeat for [`FORGOTTEN_AFTER`] counts as dead, and its
    /// last reads are lost. A replica with a heartbeat within [`LIVES_FOR`] that is
    /// behind by more than that is stalled.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn access_flush(&self, now: Timestamp) -> Result<AccessFlush, IndexError> {
        let mut tx = self.database.read_one("access_flush", Role::Job(None)).await?;
        let query = tx
            .query(ACCESS_FLUSH)
            .bind(now.minus(FORGOTTEN_AFTER).as_micros());
        let row: FlushRow = query.bind(now.minus(LIVES_FOR).as_micros()).one().await?;
        Ok(AccessFlush {
            through: row.through.map(Timestamp::from_micros),
            is_stalled: row
                .of_living
                .is_some_and(|through| through < now.minus(LIVES_FOR).as_micros()),
        })
    }

    /// Stores that may have expired memories, by tenant and id; leaves out stores
    /// without a period.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn idle_stores(&self, wanted: &IdleStores) -> Result<Vec<IdleStore>, IndexError> {
        let (tenant, store) = wanted
            .after
            .map_or((Uuid::nil(), Uuid::nil()), |(tenant, store)| {
                (tenant.uuid(), store.uuid())
            });
        let mut tx = self.database.read_one("idle_stores", Role::Job(None)).await?;
        let query = tx.query(match wanted.period_of {
            PeriodOf::Store => IDLE_BY_STORE,
            PeriodOf::Tenant => IDLE_BY_TENANT,
        });
        let query = query.bind(tenant).bind(store).bind(wanted.until.as_micros());
        let rows: Vec<IdleRow> = query.bind(i64::from(wanted.limit)).all().await?;
        let store = |row: IdleRow| IdleStore {
            tenant_id: TenantId::from_uuid(row.tenant_id),
            store_id: StoreId::from_uuid(row.store_id),
            expiry: row.period.effective(),
            idle_since: Timestamp::from_micros(row.idle_since),
        };
        Ok(rows.into_iter().map(store).collect())
    }

    /// The live memories of a store, ordered by id.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn lives(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Life>, IndexError> {
        let mut tx = self.database.read_one("lives", Role::Job(None)).await?;
        let query = tx.query(LIVES).bind(tenant_id.uuid()).bind(store_id.uuid());
        let query = query.bind(after.map_or(Uuid::nil(), MemoryId::uuid));
        let rows: Vec<LifeRow> = query.bind(i64::from(limit)).all().await?;
        Ok(rows.iter().map(LifeRow::life).collect())
    }

    /// The last use, or the creation, of a session that has the store attached and is
    /// not archived, as far as it is flushed; `None`: there is no such session.
    ///
    /// Reads all attachments of the store, so it must be called rarely.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn last_session_use(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Option<Timestamp>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read("last_session_use", role).await?;
        let used_at = last_session_use(&mut tx, tenant_id, store_id).await?;
        tx.commit().await?;
        Ok(used_at)
    }

    /// Deletes expired memories in one commit without an actor; returns their number.
    ///
    /// Checks each memory again under the store's lock. A memory that was read, written
    /// or pinned in the meantime is kept. All are kept if the period has changed, or if
    /// a session uses the store.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn expire(&self, tenant_id: TenantId, expiration: &Expiration) -> Result<u64, IndexError> {
        let store_id = expiration.store_id;
        let mut tx = self.database.write("expire", Role::Tenant(tenant_id)).await?;
        // The following statements see every commit from before the lock was acquired.
        lock_store(&mut tx, tenant_id, store_id).await?;
        let query = tx.query(PERIOD).bind(tenant_id.uuid()).bind(store_id.uuid());
        let period: Option<PeriodRow> = query.optional().await?;
        if period.map(|row| row.effective()) != Some(expiration.expiry) {
            return Ok(0);
        }
        if expiration.is_kept_by(last_session_use(&mut tx, tenant_id, store_id).await?) {
            return Ok(0);
        }
        let commit = expiration.commit(heads(&mut tx, tenant_id, expiration).await?);
        if commit.changes.is_empty() {
            return Ok(0);
        }
        match commit_changes(&mut tx, tenant_id, &commit).await? {
            CommitOutcome::Committed { .. } => {}
            CommitOutcome::Replayed { .. } | CommitOutcome::KeyReused | CommitOutcome::Refused(_) => {
                return Ok(0);
            }
        }
        tx.commit().await?;
        Ok(commit.changes.len() as u64)
    }

    /// Records a lower bound of the last sign of life of a store's live memories.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn set_idle_since(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        idle_since: Timestamp,
    ) -> Result<(), IndexError> {
        let mut tx = self.database.write_one("set_idle_since", Role::Job(None)).await?;
        let query = tx
            .query(SET_IDLE_SINCE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid());
        query.bind(idle_since.as_micros()).execute().await?;
        tx.commit().await
    }
}

async fn last_session_use(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<Timestamp>, IndexError> {
    let query = tx
        .query(LAST_SESSION_USE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid());
    let used_at: Option<i64> = query.scalar().await?;
    Ok(used_at.map(Timestamp::from_micros))
}

async fn heads(
    tx: &mut Tx,
    tenant_id: TenantId,
    expiration: &Expiration,
) -> Result<Vec<(Head, Life)>, IndexError> {
    let memories = expiration.memories.iter();
    let ids = memories.map(|(memory_id, _)| memory_id.uuid()).collect();
    let query = tx.query_with_ids(HEADS).bind(tenant_id.uuid());
    let query = query.bind(expiration.store_id.uuid()).bind_ids(Some(ids));
    let rows: Vec<FoundRow> = query.all().await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows.into_iter().filter(|row| row.is_live) {
        let life = row.life.life();
        found.extend(row.head.into_head()?.map(|head| (head, life)));
    }
    Ok(found)
}

impl PeriodRow {
    /// The effective period of the store.
    fn effective(&self) -> Expiry {
        self.expiry.expiry().or_limits(&self.limits)
    }
}

impl LifeRow {
    fn life(&self) -> Life {
        let alive_at = self.active_at.unwrap_or(self.updated_at).max(self.updated_at);
        Life {
            memory_id: MemoryId::from_uuid(self.memory_id),
            is_pinned: self.pinned,
            alive_at: Timestamp::from_micros(alive_at),
        }
    }
}
