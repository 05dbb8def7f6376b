//! Expiry: which memories nobody has used for their store's period.
//!
//! A life runs from the latest of read, write and restoration. Reads are
//! written late, so that what the index knows of a life is true only up to the
//! time through which every replica has written its reads.

use std::time::Duration;

use async_trait::async_trait;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::commit::{Change, Commit};
use crate::model::{Expiry, Head};

/// How far the replicas have written when memories were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessFlush {
    /// Through when all of them have; `None`: there is no replica.
    pub through: Option<Timestamp>,
    /// Whether one that lives does not get to write its reads.
    pub is_stalled: bool,
}

/// Whose period holds in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodOf {
    /// The store's own.
    Store,
    /// The tenant's, of stores that have none of their own.
    Tenant,
}

/// What is asked of the stores in which a memory may be past its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleStores {
    /// Those with a period of this kind.
    pub period_of: PeriodOf,
    /// The store before the first one wanted.
    pub after: Option<(TenantId, StoreId)>,
    /// By when a memory of it may have been past its time.
    pub until: Timestamp,
    /// Stores, at most.
    pub limit: u32,
}

/// A store in which a memory may be past its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleStore {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The store.
    pub store_id: StoreId,
    /// The period that holds in it.
    pub expiry: Expiry,
    /// No live memory has had its last sign of life before this.
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
    /// The latest of read, write and restoration, as far as it is written.
    pub alive_at: Timestamp,
}

impl Life {
    /// Whether it was over by `until`.
    pub fn is_over(&self, expiry: Expiry, until: Timestamp) -> bool {
        let ends_at = expiry.ends_at(self.alive_at);
        !self.is_pinned && ends_at.is_some_and(|ends_at| ends_at <= until)
    }
}

/// How long a session keeps the memories of its stores after its last use: who
/// works on a copy of them reads that.
pub const SESSION_KEEPS_FOR: Duration = Duration::from_hours(24);

/// Memories that are to expire.
#[derive(Debug, Clone)]
pub struct Expiration {
    /// The store.
    pub store_id: StoreId,
    /// The period by which they were found.
    pub expiry: Expiry,
    /// By when their lives were over.
    pub until: Timestamp,
    /// The memories, each with the id of the version that deletes it.
    pub memories: Vec<(MemoryId, VersionId)>,
    /// When they are deleted.
    pub now: Timestamp,
    /// The replica that does it.
    pub replica: Uuid,
}

impl Expiration {
    /// Whether a use of a session at `used_at` keeps them.
    pub(crate) fn is_kept_by(&self, used_at: Option<Timestamp>) -> bool {
        used_at.is_some_and(|used_at| used_at.plus(SESSION_KEEPS_FOR) > self.until)
    }

    /// The deletion of those that are past their time still.
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

/// Finds and deletes what nobody has used; for the jobs.
#[async_trait]
pub trait ExpiryIndex: Send + Sync {
    /// How far the replicas have written when memories were read.
    ///
    /// One that was not heard of for [`FORGOTTEN_AFTER`] has died, and its last
    /// reads with it; one that was heard of within [`LIVES_FOR`] and is behind
    /// by more than that is stalled.
    ///
    /// [`FORGOTTEN_AFTER`]: crate::FORGOTTEN_AFTER
    /// [`LIVES_FOR`]: crate::LIVES_FOR
    async fn access_flush(&self, now: Timestamp) -> Result<AccessFlush, IndexError>;

    /// Stores in which a memory may be past its time, by tenant and id; those
    /// without any period are not among them.
    async fn idle_stores(&self, wanted: &IdleStores) -> Result<Vec<IdleStore>, IndexError>;

    /// The live memories of a store, in the order of their ids.
    async fn lives(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Life>, IndexError>;

    /// When a session that is not archived and that a store is attached to was last
    /// used, or made, as far as it is written; `None`: there is none.
    ///
    /// Reads all of the store's attachments: for what is rare.
    async fn last_session_use(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Option<Timestamp>, IndexError>;

    /// Deletes memories whose lives are over, in one commit without an actor;
    /// answers how many.
    ///
    /// Looks again under the store's lock: one that was read, written or pinned
    /// since stays, and all do where another period holds by now, or where a
    /// session uses the store.
    async fn expire(&self, tenant_id: TenantId, expiration: &Expiration) -> Result<u64, IndexError>;

    /// Notes that no live memory of a store has had its last sign of life
    /// before `idle_since`.
    async fn set_idle_since(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        idle_since: Timestamp,
    ) -> Result<(), IndexError>;
}
