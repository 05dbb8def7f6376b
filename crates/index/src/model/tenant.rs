//! Tenants, their API keys, and the resolution of credentials.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::AuditAction;

keepsake_core::named_enum! {
    /// A permission of a credential.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Scope {
        /// Read memories.
        #[serde(rename = "memory:read")]
        MemoryRead = "memory:read",
        /// Change memories.
        #[serde(rename = "memory:write")]
        MemoryWrite = "memory:write",
        /// Create, archive and delete stores, redact versions.
        #[serde(rename = "stores:admin")]
        StoresAdmin = "stores:admin",
        /// Create and end sessions.
        #[serde(rename = "sessions:write")]
        SessionsWrite = "sessions:write",
        /// Create and revoke keys.
        #[serde(rename = "keys:admin")]
        KeysAdmin = "keys:admin",
        /// Change the tenant's settings, erase data.
        #[serde(rename = "tenant:admin")]
        TenantAdmin = "tenant:admin",
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| {
            format!("`{text}` is not a scope; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

keepsake_core::named_enum! {
    /// The status of a tenant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TenantStatus {
        /// The tenant's requests are served.
        Active = "active",
        /// Requests are refused; the data is kept.
        Suspended = "suspended",
        /// Requests are refused, and the data is being deleted.
        Deleting = "deleting",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub tenant_id: TenantId,
    /// The operator's external id for the tenant, unique if set.
    pub external_id: Option<String>,
    /// A name for people.
    pub name: String,
    pub status: TenantStatus,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
    pub created_at: Timestamp,
}

/// A change of a tenant; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantChange {
    pub name: Option<String>,
    /// The operator's external id for the tenant; `Some(None)` removes it.
    pub external_id: Option<Option<String>>,
    /// Limits to set by name; null restores the configured value.
    pub limits: Map<String, Value>,
    pub status: Option<TenantStatus>,
}

impl TenantChange {
    pub fn of_status(status: TenantStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Fails if the changed limits are invalid.
    pub fn applied_to(&self, tenant: &Tenant, now: Timestamp) -> Result<Tenant, serde_json::Error> {
        let mut changed = tenant.clone();
        if let Some(name) = &self.name {
            changed.name.clone_from(name);
        }
        if let Some(external_id) = &self.external_id {
            changed.external_id.clone_from(external_id);
        }
        if let Some(status) = self.status {
            changed.status = status;
        }
        if !self.limits.is_empty() {
            let mut limits = serde_json::to_value(&tenant.limits)?;
            for (name, limit) in &self.limits {
                limits[name] = limit.clone();
            }
            let limits: LimitOverrides = serde_json::from_value(limits)?;
            changed.limits = limits.replacing(&tenant.limits, now);
        }
        Ok(changed)
    }

    pub(crate) const fn action(&self) -> AuditAction {
        match self.status {
            Some(TenantStatus::Suspended) => AuditAction::TenantSuspended,
            Some(TenantStatus::Active) => AuditAction::TenantResumed,
            Some(TenantStatus::Deleting) | None => AuditAction::TenantUpdated,
        }
    }
}

/// The totals of a tenant, from its counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Stores that are not deleted.
    pub stores: u64,
    /// Live memories.
    pub memories: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
    /// Retained versions, including those of live memories.
    pub versions: u64,
    /// Bytes of all retained content, including that of live memories.
    pub version_bytes: u64,
    /// Bytes granted to its stores, whether used or not.
    pub granted_bytes: u64,
    /// API keys that are not revoked.
    pub api_keys: u64,
    /// Sessions, archived ones included.
    pub sessions: u64,
    /// Bytes of these sessions' descriptions.
    pub session_bytes: u64,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub api_key_id: ApiKeyId,
    pub tenant_id: TenantId,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// The stores that the key is restricted to; `None`: all stores.
    pub store_ids: Option<Vec<StoreId>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Accurate to a few minutes.
    pub last_used_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// A reference to a tenant in a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TenantName {
    Id(TenantId),
    External(String),
}

impl TenantName {
    /// Parses a reference: a text in the form of an id is an id, and any other text is
    /// an external id.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::External(text.to_owned()), Self::Id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub tenant_id: TenantId,
    pub api_key_id: ApiKeyId,
    pub scopes: Vec<Scope>,
    /// The stores that the key is restricted to; `None`: all stores.
    pub store_ids: Option<Vec<StoreId>>,
    pub expires_at: Option<Timestamp>,
    pub is_revoked: bool,
    pub tenant_status: TenantStatus,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
}
