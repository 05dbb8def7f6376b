//! Stores: their properties, settings and totals.

use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::schemas::{self, MemoryStoreType};
use keepsake_core::{SearchMode, SensitiveDataPolicy, StoreId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The delay before a new or shorter expiry period takes effect.
const PERIOD_TAKES_EFFECT_AFTER: Duration = Duration::from_hours(24);

/// The state of a store that reads need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Whether the store is archived and therefore refuses new content.
    pub is_archived: bool,
    /// The purge epoch, which changes when history is removed, so that caches drop it.
    pub purge_epoch: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Expiry {
    /// Seconds after which an unread memory expires; `None`: never.
    pub unused_after_secs: Option<u64>,
    /// When a new or shorter period was set.
    #[serde(deserialize_with = "crate::numbers::optional_micros")]
    pub set_at: Option<Timestamp>,
}

impl Expiry {
    /// Falls back to the tenant's period if the store has none. The period then starts
    /// at the later change of the two.
    #[must_use]
    pub fn or_tenants(self, secs: Option<u64>, set_at: Option<Timestamp>) -> Self {
        if self.unused_after_secs.is_some() {
            return self;
        }
        Self { unused_after_secs: secs, set_at: self.set_at.max(set_at) }
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

    /// When an unpinned memory expires, by this period or at its expiry time,
    /// whichever is earlier; `None`: never.
    pub fn earliest(self, alive_at: Timestamp, expires_at: Option<Timestamp>) -> Option<Timestamp> {
        let times = [self.ends_at(alive_at), expires_at];
        times.into_iter().flatten().min()
    }

    pub fn in_effect_at(self) -> Option<Timestamp> {
        self.set_at.map(|set_at| set_at.plus(PERIOD_TAKES_EFFECT_AFTER))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct StoreFilter {
    /// Created at or after this time.
    pub created_from: Option<Timestamp>,
    /// Created at or before this time.
    pub created_to: Option<Timestamp>,
    pub include_archived: bool,
}

/// A page of a tenant's stores, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreListing {
    pub filter: StoreFilter,
    pub only: Option<Vec<StoreId>>,
    /// The creation time and id of the last store of the previous page.
    pub after: Option<(Timestamp, StoreId)>,
    pub limit: u32,
}

/// A change of a store; `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreChange {
    /// Validated.
    pub name: Option<String>,
    pub description: Option<String>,
    /// Metadata to set, or to remove with `None`.
    pub metadata: Vec<(String, Option<String>)>,
    pub policy: Option<SensitiveDataPolicy>,
    /// Seconds after which an unread memory expires; `Some(None)`: never.
    pub expires_unused_after: Option<Option<u64>>,
    pub records_reads: Option<bool>,
    /// `Some(None)`: the tenant's.
    pub search_mode: Option<Option<SearchMode>>,
    pub now: Timestamp,
}

/// A memory store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MemoryStore)]
pub struct Store {
    #[serde(rename = "id")]
    pub store_id: StoreId,
    #[schema(inline)]
    pub r#type: MemoryStoreType,
    pub name: String,
    /// Empty when unset.
    pub description: String,
    #[schema(value_type = schemas::Metadata)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    pub created_at: Timestamp,
    /// When its name, description, metadata or archiving last changed.
    pub updated_at: Timestamp,
    /// When it was archived; since then it accepts no new content.
    #[schema(required)]
    pub archived_at: Option<Timestamp>,
    /// Live memories.
    pub memory_count: u64,
    /// Bytes of the live memories.
    #[serde(rename = "content_bytes")]
    pub live_bytes: u64,
    /// Seconds after which an unused memory expires; null: the store has no
    /// expiry period.
    #[schema(required)]
    pub expires_unused_after: Option<u64>,
    /// How sensitive data in written content is handled.
    #[serde(rename = "sensitive_data_policy")]
    pub policy: SensitiveDataPolicy,
    /// Only there if the store was made with the content of another one, and the credential may see that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub forked_from: Option<StoreOrigin>,
    /// Whether the server records who was shown which version.
    pub records_reads: bool,
    /// How searches find its memories; null: as the tenant's setting says.
    #[schema(required)]
    pub search_mode: Option<SearchMode>,
    /// When a memory of the store last changed; `None`: never.
    #[serde(skip)]
    pub last_version_at: Option<Timestamp>,
}

/// The memory store whose content another one got, and how far it is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = MemoryStoreOrigin)]
pub struct StoreOrigin {
    pub memory_store_id: StoreId,
    /// The point of its history.
    pub seq: i64,
    pub status: StoreOriginStatus,
    /// Memories that were not copied: their content is gone or refused, their path was taken, or the copy
    /// failed before. 0 until the copy ends, and if it failed before the memories of the other store were counted.
    pub skipped: u64,
    /// Why the copy was broken off; only there if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub error: Option<String>,
}

keepsake_core::named_enum! {
    /// How far a store is copied.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum StoreOriginStatus {
        Copying = "copying",
        Done = "done",
        Failed = "failed",
    }
}

keepsake_core::shown_by_name! {
    StoreOriginStatus as "MemoryStoreOriginStatus" => "How far a memory store is copied.";
}

impl Store {
    /// A new store without a description, metadata and settings.
    pub fn new(store_id: StoreId, name: String, created_at: Timestamp) -> Self {
        Self {
            store_id,
            r#type: MemoryStoreType,
            name,
            description: String::new(),
            metadata: serde_json::Map::new(),
            created_at,
            updated_at: created_at,
            archived_at: None,
            memory_count: 0,
            live_bytes: 0,
            expires_unused_after: None,
            policy: SensitiveDataPolicy::Off,
            forked_from: None,
            records_reads: true,
            search_mode: None,
            last_version_at: None,
        }
    }
}
