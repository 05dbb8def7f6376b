//! Stores: what they are called, how they behave, what they hold.

use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{SensitiveDataPolicy, StoreId, Timestamp};

use super::audit::OverQuota;

/// How long a new or shorter period of expiry waits before it has an effect.
const PERIOD_TAKES_EFFECT_AFTER: Duration = Duration::from_hours(24);

/// What a read needs to know of the store it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Whether the store takes no new content.
    pub is_archived: bool,
    /// Moves when history is removed, so that caches drop it.
    pub purge_epoch: i64,
}

/// When the memories of a store expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expiry {
    /// Seconds after which an unread memory expires; `None`: never.
    pub unused_after_secs: Option<u64>,
    /// When a new or shorter period was set.
    pub set_at: Option<Timestamp>,
}

impl Expiry {
    /// The tenant's period where the store has none of its own, begun when the
    /// later of both was changed.
    #[must_use]
    pub fn or_tenants(self, secs: Option<u64>, set_at: Option<Timestamp>) -> Self {
        if self.unused_after_secs.is_some() {
            return self;
        }
        Self {
            unused_after_secs: secs,
            set_at: self.set_at.max(set_at),
        }
    }

    pub(crate) fn or_limits(self, limits: &LimitOverrides) -> Self {
        let set_at = limits.period_set_at.map(Timestamp::from_micros);
        self.or_tenants(limits.unused_period_secs(), set_at)
    }

    /// When an unpinned memory with its last sign of life at `alive_at` expires;
    /// `None`: never.
    pub fn ends_at(self, alive_at: Timestamp) -> Option<Timestamp> {
        let period = Duration::from_secs(self.unused_after_secs?);
        Some(alive_at.plus(period)).max(self.in_effect_at())
    }

    /// From when on the period counts.
    pub fn in_effect_at(self) -> Option<Timestamp> {
        self.set_at.map(|set_at| set_at.plus(PERIOD_TAKES_EFFECT_AFTER))
    }
}

/// What is asked of a tenant's stores, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreListing {
    /// Made at or after this time.
    pub created_from: Option<Timestamp>,
    /// Made at or before this time.
    pub created_to: Option<Timestamp>,
    /// Whether archived ones are listed too.
    pub include_archived: bool,
    /// Of these alone.
    pub only: Option<Vec<StoreId>>,
    /// When the store before the first one wanted was made, and its id.
    pub after: Option<(Timestamp, StoreId)>,
    /// Stores, at most.
    pub limit: u32,
}

/// How a store is to change; `None` leaves a field as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreChange {
    /// Its name, checked.
    pub name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Metadata to set, or with `None` to remove.
    pub metadata: Vec<(String, Option<String>)>,
    /// Pairs of metadata it may have afterwards.
    pub metadata_pairs_limit: usize,
    /// What is done about sensitive data.
    pub policy: Option<SensitiveDataPolicy>,
    /// Seconds after which an unread memory expires; `Some(None)`: never.
    pub expires_unused_after: Option<Option<u64>>,
    /// When.
    pub now: Timestamp,
}

/// How changing a store went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUpdate {
    /// It is done; the store as it is now.
    Done(Store),
    /// The same call was made before; the store as it is now.
    Replayed(Store),
    /// The call's name was used for another request.
    KeyReused,
    /// It would have too many pairs of metadata.
    TooManyPairs {
        /// How many it would have.
        count: usize,
    },
    /// The store takes no changes.
    Archived,
    /// A quota of the tenant does not allow it.
    OverQuota(OverQuota),
    /// There is no such store.
    NoStore,
}

/// What one batch took off a deleted store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorePurge {
    /// Rows that went, of every table.
    pub rows: u64,
    /// Blobs queued for deletion.
    pub blobs: u64,
    /// Whether nothing of the store is left, its own row included.
    pub is_done: bool,
}

/// A store to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStore {
    /// Its id.
    pub store_id: StoreId,
    /// Its name, checked.
    pub name: String,
    /// Its description, empty when unset.
    pub description: String,
    /// Its metadata, a JSON object of strings.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// What is done about sensitive data.
    pub policy: SensitiveDataPolicy,
    /// Seconds after which an unread memory expires.
    pub expires_unused_after: Option<u64>,
    /// When it is made.
    pub created_at: Timestamp,
}

/// A store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Its id.
    pub store_id: StoreId,
    /// Its name.
    pub name: String,
    /// Its description, empty when unset.
    pub description: String,
    /// Its metadata.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// What is done about sensitive data.
    pub policy: SensitiveDataPolicy,
    /// Seconds after which an unread memory expires.
    pub expires_unused_after: Option<u64>,
    /// Live memories.
    pub memory_count: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its name, description, metadata or archiving last changed.
    pub updated_at: Timestamp,
    /// Since when it takes no new content.
    pub archived_at: Option<Timestamp>,
}

/// How making a store went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreCreation {
    /// It is there.
    Created,
    /// The same call made this one before.
    Replayed {
        /// The store, which may have been deleted since.
        store_id: StoreId,
    },
    /// The call's name was used for another request.
    KeyReused,
    /// The tenant has as many as it may.
    TooMany {
        /// How many it has.
        count: u64,
    },
    /// Another quota does not allow it.
    OverQuota(OverQuota),
    /// There is no such tenant.
    NoTenant,
}

/// How asking for bytes went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The store may hold what it asked for.
    Granted,
    /// The tenant's limit does not allow it.
    Refused {
        /// Bytes the tenant would hold.
        wanted_bytes: u64,
    },
    /// There is no such store.
    NoStore,
}
