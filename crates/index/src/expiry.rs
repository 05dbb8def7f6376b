//! Expiry: finds memories that were unused for their store's period, or whose expiry time
//! has come.
//!
//! The last sign of life of a memory is its latest read, write or restoration.
//! Reads are flushed with a delay, so the index knows the last sign of life only up
//! to the time through which every replica has flushed its reads.

use std::time::Duration;

use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{Commit, CommitChange, CommitOutcome, ProposedChange};
use crate::database::{Database, FromRow, Role, Row, Tx, commit_changes, from_row};
use crate::memories::find_all;
use crate::model::{Expiry, FoundMemory, Memory, MemoryTarget};
use crate::numbers::FIRST_STORE;
use crate::replicas::{FORGOTTEN_AFTER, LIVES_FOR};
use crate::search::FIRST_MEMORY;
use crate::stores::lock_store;

/// The read times flushed by replicas: those with a heartbeat since `$1`, and of
/// these, those with a heartbeat since `$2`.
const ACCESS_FLUSH: &str = "SELECT min(access_flushed_through) AS through, \
    min(CASE WHEN heartbeat_at > $2 THEN access_flushed_through END) AS of_living FROM replica WHERE heartbeat_at > $1";

/// Selects due stores with their own period, after a given one.
pub(crate) const IDLE_BY_STORE: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.expires_unused_after IS NOT NULL AND s.deleted_at IS NULL AND t.status <> 'deleting' \
    AND s.idle_since + s.expires_unused_after * 1000000 <= $3 AND (s.tenant_id, s.store_id) > ($1, $2) \
    ORDER BY s.tenant_id, s.store_id LIMIT $4 + 0";

/// Selects due stores without a period, of tenants that have one, after a given
/// one.
pub(crate) const IDLE_BY_TENANT: &str = "SELECT s.tenant_id, s.store_id, s.expires_unused_after, s.period_set_at, \
    t.limits, s.idle_since FROM tenant t JOIN store s ON s.tenant_id = t.tenant_id \
    WHERE (t.limits ->> 'expires_unused_after') IS NOT NULL AND t.tenant_id >= $1 AND t.status <> 'deleting' \
    AND s.expires_unused_after IS NULL AND s.deleted_at IS NULL AND s.idle_since <= $3 \
    AND (s.tenant_id, s.store_id) > ($1, $2) ORDER BY s.tenant_id, s.store_id LIMIT $4 + 0";

/// Selects live memories of a store, after a given one. The access time is a
/// subquery per memory, so that no plan starts with all access times.
pub(crate) const LIVES: &str = "SELECT m.memory_id, m.pinned, m.expires_at, m.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) AS active_at \
    FROM memory m WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id > $3 AND m.deleted_at IS NULL \
    ORDER BY m.memory_id LIMIT $4 + 0";

/// Selects memories whose expiry time has come, after a given one.
pub(crate) const DUE: &str = "SELECT m.expires_at, m.tenant_id, m.store_id, m.memory_id FROM memory m \
    WHERE m.expires_at IS NOT NULL AND NOT m.pinned AND m.expires_at <= $5 \
    AND (m.expires_at, m.tenant_id, m.store_id, m.memory_id) > ($4, $1, $2, $3) \
    ORDER BY m.expires_at, m.tenant_id, m.store_id, m.memory_id LIMIT $6 + 0";

/// The period of a store that is not deleted, and its tenant's limits.
pub(crate) const PERIOD: &str = "SELECT s.expires_unused_after, s.period_set_at, t.limits \
    FROM store s JOIN tenant t ON t.tenant_id = s.tenant_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The latest use of any session that has this store attached, without archived sessions.
const LAST_SESSION_USE: &str = "SELECT max(CASE WHEN s.last_used_at > s.created_at THEN s.last_used_at \
        ELSE s.created_at END) \
    FROM session_resource r CROSS JOIN session s WHERE r.tenant_id = $1 AND r.store_id = $2 \
    AND s.tenant_id = $1 AND s.session_id = r.session_id AND s.archived_at IS NULL AND s.deleted_at IS NULL";

/// Updates the lower bound of the last sign of life of a store's live memories.
const SET_IDLE_SINCE: &str =
    "UPDATE store SET idle_since = $3 WHERE tenant_id = $1 AND store_id = $2 AND idle_since < $3";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessFlush {
    /// The time through which all replicas have flushed; `None`: there is no replica.
    pub through: Option<Timestamp>,
    /// Whether a live replica fails to flush its reads.
    pub is_stalled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodOf {
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
    pub limit: u32,
}

/// A store that may have expired memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleStore {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    /// The effective period.
    pub expiry: Expiry,
    /// A lower bound of the last sign of life of the store's live memories.
    pub idle_since: Timestamp,
}

impl IdleStore {
    /// Whether one of its memories may have expired by `until`.
    pub fn may_have_expired(&self, until: Timestamp) -> bool {
        let earliest = self.expiry.ends_at(self.idle_since);
        earliest.is_some_and(|earliest| earliest <= until)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub memory_id: MemoryId,
    pub is_pinned: bool,
    pub expires_at: Option<Timestamp>,
    /// When its path, content or existence last changed.
    pub updated_at: Timestamp,
    /// The latest sign of life recorded with a read; `None`: it was never read.
    pub active_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueMemory {
    pub expires_at: Timestamp,
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    pub memory_id: MemoryId,
}

impl Life {
    /// The latest read, write or restoration, as far as it is flushed.
    pub fn alive_at(&self) -> Timestamp {
        self.active_at.map_or(self.updated_at, |active_at| self.updated_at.max(active_at))
    }

    pub fn is_due(&self, now: Timestamp) -> bool {
        !self.is_pinned && self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether the memory was unused for its period by `until`.
    pub fn is_over(&self, expiry: Expiry, until: Timestamp) -> bool {
        let ends_at = expiry.ends_at(self.alive_at());
        !self.is_pinned && ends_at.is_some_and(|ends_at| ends_at <= until)
    }
}

/// Time after a session's last use in which no unused memory of its stores expires, because
/// an agent may be working on a copy of them.
pub const SESSION_KEEPS_FOR: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpirationCause {
    /// The memories were unused for their store's period.
    Unused {
        /// The period used to select them.
        expiry: Expiry,
        /// The time by which the memories had expired.
        until: Timestamp,
    },
    /// The expiry time of the memories has come.
    Due,
}

#[derive(Debug, Clone)]
pub struct Expiration {
    pub store_id: StoreId,
    pub cause: ExpirationCause,
    /// Each memory has the id of the version that deletes it.
    pub memories: Vec<(MemoryId, VersionId)>,
    pub now: Timestamp,
    pub replica: Uuid,
}

impl Expiration {
    /// The commit that deletes the memories that are still expired.
    pub(crate) fn commit(&self, found: Vec<FoundMemory>) -> Commit {
        let memories = found.into_iter().filter_map(|found| match found.target {
            MemoryTarget::Live(memory) => Some(memory),
            MemoryTarget::Deleted { .. } | MemoryTarget::Missing => None,
        });
        let over = memories.filter(|memory| {
            let life = Life::from(memory);
            match self.cause {
                ExpirationCause::Unused { expiry, until } => life.is_over(expiry, until),
                ExpirationCause::Due => life.is_due(self.now),
            }
        });
        let changes = over.filter_map(|Memory { head, .. }| {
            let version_of = |(memory_id, version_id)| (memory_id == head.memory_id).then_some(version_id);
            Some(CommitChange {
                memory_id: head.memory_id,
                version_id: self.memories.iter().copied().find_map(version_of)?,
                wanted: ProposedChange::delete(head),
                search: None,
            })
        });
        Commit::of(self.store_id, self.now, self.replica, changes.collect())
    }
}

#[derive(Debug, Clone)]
pub struct UnusedMemories(pub(crate) Database);

struct EffectivePeriod(Expiry);

from_row! {
    DueMemory { expires_at, tenant_id, store_id, memory_id }
    Life { memory_id, is_pinned = "pinned", expires_at, updated_at, active_at }
}

impl FromRow for EffectivePeriod {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let limits = row.get("limits")?;
        Ok(Self(row.read::<Expiry>()?.or_limits(&limits)))
    }
}

impl FromRow for IdleStore {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            tenant_id: row.get("tenant_id")?,
            store_id: row.get("store_id")?,
            expiry: row.read::<EffectivePeriod>()?.0,
            idle_since: row.get("idle_since")?,
        })
    }
}

impl From<&Memory> for Life {
    fn from(memory: &Memory) -> Self {
        Self {
            memory_id: memory.head.memory_id,
            is_pinned: memory.is_pinned,
            expires_at: memory.expires_at,
            updated_at: memory.updated_at,
            active_at: memory.active_at,
        }
    }
}

impl UnusedMemories {
    /// A replica without a heartbeat for [`FORGOTTEN_AFTER`] counts as dead, and its last
    /// reads are lost. A replica with a heartbeat within [`LIVES_FOR`] that is behind by
    /// more than that is stalled.
    pub async fn access_flush(&self, now: Timestamp) -> Result<AccessFlush, IndexError> {
        let values = (now.minus(FORGOTTEN_AFTER), now.minus(LIVES_FOR));
        let (through, of_living): (_, Option<Timestamp>) =
            self.0.one("access_flush", Role::Job(None), ACCESS_FLUSH, values).await?;
        Ok(AccessFlush {
            through,
            is_stalled: of_living.is_some_and(|through| through < now.minus(LIVES_FOR)),
        })
    }

    /// Stores that may have expired memories, by tenant and id; leaves out stores
    /// without a period.
    pub async fn idle_stores(&self, wanted: &IdleStores) -> Result<Vec<IdleStore>, IndexError> {
        let text = match wanted.period_of {
            PeriodOf::Store => IDLE_BY_STORE,
            PeriodOf::Tenant => IDLE_BY_TENANT,
        };
        let values = (wanted.after.unwrap_or(FIRST_STORE), wanted.until, wanted.limit);
        self.0.all("idle_stores", Role::Job(None), text, values).await
    }

    /// The live memories of a store, ordered by id.
    pub async fn lives(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Life>, IndexError> {
        let values = (tenant_id, store_id, after.map_or(Uuid::nil(), MemoryId::uuid), limit);
        self.0.all("lives", Role::Job(None), LIVES, values).await
    }

    /// Memories whose expiry time had come by `until`, the earliest first.
    pub async fn due(
        &self,
        after: Option<DueMemory>,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<DueMemory>, IndexError> {
        let place = |due: DueMemory| (due.tenant_id, due.store_id, due.memory_id);
        let expires_at = after.map_or(i64::MIN, |due| due.expires_at.as_micros());
        let values = (after.map_or(FIRST_MEMORY, place), expires_at, until, limit);
        self.0.all("due_memories", Role::Job(None), DUE, values).await
    }

    /// The last use, or the creation, of a session that has the store attached and is not
    /// archived, as far as uses are flushed; `None`: there is no such session.
    ///
    /// Reads all attachments of the store, so it must be called rarely.
    pub async fn last_session_use(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Option<Timestamp>, IndexError> {
        let values = (tenant_id, store_id);
        self.0.scalar("last_session_use", Role::Tenant(tenant_id), LAST_SESSION_USE, values).await
    }

    /// Deletes expired memories in one commit without an actor; returns their number.
    ///
    /// Checks each memory again under the store's lock. Keeps a memory that was pinned in
    /// the meantime, or whose expiry time was changed. Keeps an unused memory also if it
    /// was read or written, if the period has changed, or if a session uses the store.
    pub async fn expire(&self, tenant_id: TenantId, expiration: &Expiration) -> Result<u64, IndexError> {
        let store_id = expiration.store_id;
        let mut tx = self.0.write("expire", Role::Tenant(tenant_id)).await?;
        // The following statements see every commit from before the lock was acquired.
        lock_store(&mut tx, tenant_id, store_id).await?;
        if let ExpirationCause::Unused { expiry, until } = expiration.cause
            && !is_unused(&mut tx, (tenant_id, store_id), expiry, until).await?
        {
            return Ok(0);
        }
        let ids: Vec<_> = expiration.memories.iter().map(|(memory_id, _)| *memory_id).collect();
        let commit = expiration.commit(find_all(&mut tx, (tenant_id, store_id), &ids, &[]).await?);
        if commit.changes.is_empty() {
            return Ok(0);
        }
        match commit_changes(&mut tx, tenant_id, &commit).await? {
            CommitOutcome::Committed { .. } => {}
            _ => return Ok(0),
        }
        tx.commit().await?;
        Ok(commit.changes.len() as u64)
    }

    /// Records a lower bound of the last sign of life of a store's live memories.
    pub async fn set_idle_since(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        idle_since: Timestamp,
    ) -> Result<(), IndexError> {
        let values = (tenant_id, store_id, idle_since);
        self.0.change("set_idle_since", Role::Job(None), SET_IDLE_SINCE, values).await.map(drop)
    }
}

/// Whether the store still has this period, and no session used it within a day.
async fn is_unused(
    tx: &mut Tx,
    (tenant_id, store_id): (TenantId, StoreId),
    expiry: Expiry,
    until: Timestamp,
) -> Result<bool, IndexError> {
    let period: Option<EffectivePeriod> = tx.query(PERIOD).bind((tenant_id, store_id)).optional().await?;
    if period.map(|period| period.0) != Some(expiry) {
        return Ok(false);
    }
    let query = tx.query(LAST_SESSION_USE).bind((tenant_id, store_id));
    let used_at: Option<Timestamp> = query.scalar().await?;
    Ok(used_at.is_none_or(|used_at| used_at.plus(SESSION_KEEPS_FOR) <= until))
}
