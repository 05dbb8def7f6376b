//! Expiry: finds memories that were unused for their store's period.
//!
//! The last sign of life of a memory is its latest read, write or restoration.
//! Reads are flushed with a delay, so the index knows the last sign of life only up
//! to the time through which every replica has flushed its reads.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{Change, Commit};
use crate::model::{Expiry, Head};

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
#[async_trait]
pub trait ExpiryIndex: Send + Sync {
    /// The progress of the replicas in flushing read times.
    ///
    /// A replica without a heartbeat for [`FORGOTTEN_AFTER`] counts as dead, and its
    /// last reads are lost. A replica with a heartbeat within [`LIVES_FOR`] that is
    /// behind by more than that is stalled.
    ///
    /// [`FORGOTTEN_AFTER`]: crate::FORGOTTEN_AFTER
    ///
    /// [`LIVES_FOR`]: crate::LIVES_FOR
    async fn access_flush(&self, now: Timestamp) -> Result<AccessFlush, IndexError>;

    /// Stores that may have expired memories, by tenant and id; leaves out stores
    /// without a period.
    async fn idle_stores(&self, wanted: &IdleStores) -> Result<Vec<IdleStore>, IndexError>;

    /// The live memories of a store, ordered by id.
    async fn lives(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Life>, IndexError>;

    /// The last use, or the creation, of a session that has the store attached and is
    /// not archived, as far as it is flushed; `None`: there is no such session.
    ///
    /// Reads all attachments of the store, so it must be called rarely.
    async fn last_session_use(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Option<Timestamp>, IndexError>;

    /// Deletes expired memories in one commit without an actor; returns their number.
    ///
    /// Checks each memory again under the store's lock. A memory that was read, written
    /// or pinned in the meantime is kept. All are kept if the period has changed, or if
    /// a session uses the store.
    async fn expire(&self, tenant_id: TenantId, expiration: &Expiration) -> Result<u64, IndexError>;

    /// Records a lower bound of the last sign of life of a store's live memories.
    async fn set_idle_since(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        idle_since: Timestamp,
    ) -> Result<(), IndexError>;
}
