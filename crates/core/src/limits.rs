//! The limits of a tenant; the defaults come from the configuration.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The limits in force for one tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one memory's content.
    pub bytes_per_memory: u64,
    /// Characters (Unicode scalar values) of one `view` result.
    pub max_view_chars: u64,
    /// Live memories in one store.
    pub memories_per_store: u64,
    /// Bytes of the live memories of one store.
    pub bytes_per_store: u64,
    /// Stores of the tenant that are not deleted.
    pub stores_per_tenant: u64,
    /// Bytes of the live memories of all the tenant's stores.
    pub bytes_per_tenant: u64,
    /// Sessions, archived ones included.
    pub sessions_per_tenant: u64,
    /// Bytes of the descriptions of these sessions: agents, titles, metadata, vault ids
    /// and instructions.
    pub session_bytes_per_tenant: u64,
    /// API keys that are active or were revoked within the last 30 days.
    pub api_keys_per_tenant: u64,
    /// Audit entries per day (UTC) that the tenant's own credentials cause. Actions
    /// that end or delete an object are never refused because of this limit.
    pub audit_entries_per_day: u64,
    /// Sustained requests per second; 0 refuses every request.
    pub requests_per_second: u64,
    /// Requests in one burst after an idle period; 0 refuses every request.
    pub request_burst: u64,
    /// Seconds for which a superseded version is kept if its memory was deleted or a
    /// limit on the memory's history is exceeded.
    pub version_retention_secs: u64,
    /// Seconds after which a version of a live memory is too old; 0: no limit.
    pub version_age_secs: u64,
    /// Versions of a live memory, the current one included; 0: no limit.
    pub versions_per_memory: u64,
    /// Seconds after which an unread memory expires, in stores without their own
    /// period; 0: never. Only a tenant's override sets it: a default in the
    /// configuration would have no known start date.
    #[serde(skip_serializing_if = "is_zero")]
    pub expires_unused_after: u64,
    /// When the current period started to apply; see [`LimitOverrides::replacing`].
    #[serde(skip)]
    pub period_set_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_per_memory: 102_400,
            max_view_chars: 16_000,
            memories_per_store: 2_000,
            bytes_per_store: 100 << 20,
            stores_per_tenant: 1_000,
            bytes_per_tenant: 10 << 30,
            sessions_per_tenant: 10_000,
            session_bytes_per_tenant: 1 << 30,
            api_keys_per_tenant: 1_000,
            audit_entries_per_day: 100_000,
            requests_per_second: 1_000,
            request_burst: 2_000,
            version_retention_secs: 30 * 86_400,
            version_age_secs: 0,
            versions_per_memory: 0,
            expires_unused_after: 0,
            period_set_at: None,
        }
    }
}

/// A tenant's overrides of the configured defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOverrides {
    /// Overrides [`Limits::bytes_per_memory`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_memory: Option<u64>,
    /// Overrides [`Limits::max_view_chars`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_view_chars: Option<u64>,
    /// Overrides [`Limits::memories_per_store`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memories_per_store: Option<u64>,
    /// Overrides [`Limits::bytes_per_store`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_store: Option<u64>,
    /// Overrides [`Limits::stores_per_tenant`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stores_per_tenant: Option<u64>,
    /// Overrides [`Limits::bytes_per_tenant`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_tenant: Option<u64>,
    /// Overrides [`Limits::sessions_per_tenant`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_per_tenant: Option<u64>,
    /// Overrides [`Limits::session_bytes_per_tenant`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_bytes_per_tenant: Option<u64>,
    /// Overrides [`Limits::api_keys_per_tenant`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_keys_per_tenant: Option<u64>,
    /// Overrides [`Limits::audit_entries_per_day`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_entries_per_day: Option<u64>,
    /// Overrides [`Limits::requests_per_second`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Overrides [`Limits::request_burst`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_burst: Option<u64>,
    /// Overrides [`Limits::version_retention_secs`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_retention_secs: Option<u64>,
    /// Overrides [`Limits::version_age_secs`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_age_secs: Option<u64>,
    /// Overrides [`Limits::versions_per_memory`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions_per_memory: Option<u64>,
    /// Sets [`Limits::expires_unused_after`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_unused_after: Option<u64>,
    /// When that period was last introduced or shortened, in microseconds. Stored with
    /// the overrides, but neither accepted from nor shown to clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_set_at: Option<i64>,
}

impl LimitOverrides {
    /// The expiry period; `None`: never.
    pub fn unused_period_secs(&self) -> Option<u64> {
        self.expires_unused_after.filter(|secs| *secs > 0)
    }

    /// Returns these limits as the successor of `before`, and records `now` if they
    /// introduce or shorten the expiry period.
    #[must_use]
    pub fn replacing(mut self, before: &Self, now: Timestamp) -> Self {
        let old = before.unused_period_secs();
        let is_new_or_shorter = self
            .unused_period_secs()
            .is_some_and(|new| old.is_none_or(|old| new < old));
        self.period_set_at = if is_new_or_shorter {
            Some(now.as_micros())
        } else {
            before.period_set_at
        };
        self
    }
}

impl Limits {
    /// The expiry period; `None`: never.
    pub fn unused_period_secs(&self) -> Option<u64> {
        Some(self.expires_unused_after).filter(|secs| *secs > 0)
    }

    /// These limits, with a tenant's overrides applied.
    #[must_use]
    pub fn with(&self, own: &LimitOverrides) -> Self {
        Self {
            bytes_per_memory: own.bytes_per_memory.unwrap_or(self.bytes_per_memory),
            max_view_chars: own.max_view_chars.unwrap_or(self.max_view_chars),
            memories_per_store: own.memories_per_store.unwrap_or(self.memories_per_store),
            bytes_per_store: own.bytes_per_store.unwrap_or(self.bytes_per_store),
            stores_per_tenant: own.stores_per_tenant.unwrap_or(self.stores_per_tenant),
            bytes_per_tenant: own.bytes_per_tenant.unwrap_or(self.bytes_per_tenant),
            sessions_per_tenant: own.sessions_per_tenant.unwrap_or(self.sessions_per_tenant),
            session_bytes_per_tenant: own
                .session_bytes_per_tenant
                .unwrap_or(self.session_bytes_per_tenant),
            api_keys_per_tenant: own.api_keys_per_tenant.unwrap_or(self.api_keys_per_tenant),
            audit_entries_per_day: own.audit_entries_per_day.unwrap_or(self.audit_entries_per_day),
            requests_per_second: own.requests_per_second.unwrap_or(self.requests_per_second),
            request_burst: own.request_burst.unwrap_or(self.request_burst),
            version_retention_secs: own.version_retention_secs.unwrap_or(self.version_retention_secs),
            version_age_secs: own.version_age_secs.unwrap_or(self.version_age_secs),
            versions_per_memory: own.versions_per_memory.unwrap_or(self.versions_per_memory),
            expires_unused_after: own.expires_unused_after.unwrap_or_default(),
            period_set_at: own.period_set_at.map(Timestamp::from_micros),
        }
    }
}
