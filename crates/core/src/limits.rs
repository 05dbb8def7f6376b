//! What a tenant may hold and see; the defaults are the configuration's.

use serde::{Deserialize, Serialize};

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
    /// Requests in a second, over time; 0 lets none pass.
    pub requests_per_second: u64,
    /// Requests that may come at once after a quiet time; 0 lets none pass.
    pub request_burst: u64,
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
            requests_per_second: 1_000,
            request_burst: 2_000,
        }
    }
}

/// A tenant's own values, where they differ from the configured defaults.
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
    /// Overrides [`Limits::requests_per_second`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Overrides [`Limits::request_burst`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_burst: Option<u64>,
}

impl Limits {
    /// These limits with a tenant's own values in place of the defaults.
    #[must_use]
    pub fn with(&self, own: &LimitOverrides) -> Self {
        Self {
            bytes_per_memory: own.bytes_per_memory.unwrap_or(self.bytes_per_memory),
            max_view_chars: own.max_view_chars.unwrap_or(self.max_view_chars),
            memories_per_store: own.memories_per_store.unwrap_or(self.memories_per_store),
            bytes_per_store: own.bytes_per_store.unwrap_or(self.bytes_per_store),
            stores_per_tenant: own.stores_per_tenant.unwrap_or(self.stores_per_tenant),
            bytes_per_tenant: own.bytes_per_tenant.unwrap_or(self.bytes_per_tenant),
            requests_per_second: own.requests_per_second.unwrap_or(self.requests_per_second),
            request_burst: own.request_burst.unwrap_or(self.request_burst),
        }
    }
}
