//! Tenants, their API keys, and the resolution of credentials.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::{AuditAction, OverQuota};

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

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub tenant_id: TenantId,
    /// The operator's external id for the tenant, unique if set.
    pub external_id: Option<String>,
    /// A name for people.
    pub name: String,
    /// The status.
    pub status: TenantStatus,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
    /// When the tenant was created.
    pub created_at: Timestamp,
}

/// A change of a tenant; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantChange {
    /// A name for people.
    pub name: Option<String>,
    /// The operator's external id for the tenant; `Some(None)` removes it.
    pub external_id: Option<Option<String>>,
    /// Limits to set by name; null restores the configured value.
    pub limits: Map<String, Value>,
    /// The status.
    pub status: Option<TenantStatus>,
}

impl TenantChange {
    /// Applies the change to a tenant, at the time `now`.
    ///
    /// # Errors
    /// The limits are invalid.
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

    /// The audit action of the change.
    pub(crate) const fn action(&self) -> AuditAction {
        match self.status {
            Some(TenantStatus::Suspended) => AuditAction::TenantSuspended,
            Some(TenantStatus::Active) => AuditAction::TenantResumed,
            Some(TenantStatus::Deleting) | None => AuditAction::TenantUpdated,
        }
    }
}

/// The outcome of a change of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantUpdate {
    /// The changed tenant.
    Done(Box<Tenant>),
    /// Another tenant has this external id.
    ExternalIdTaken,
    /// The tenant is being deleted and cannot change.
    Deleting,
    /// The tenant does not exist.
    NoTenant,
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
    /// Its id.
    pub api_key_id: ApiKeyId,
    /// The tenant that owns it.
    pub tenant_id: TenantId,
    /// A name for people.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// The stores it is restricted to; `None`: all stores.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

/// An API key and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// When it was last used, accurate to a few minutes.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The outcome of the creation of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCreation {
    /// The key was created.
    Created,
    /// The same call created this key earlier.
    Replayed {
        /// The key, which may have been revoked since.
        api_key_id: ApiKeyId,
    },
    /// The idempotency key was reused with another request.
    KeyReused,
    /// The key that authenticated the call was revoked.
    MakerRevoked,
    /// A quota of the tenant refuses it.
    OverQuota(OverQuota),
    /// The tenant does not exist, or is being deleted.
    NoTenant,
}

/// A reference to a tenant in a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TenantName {
    /// By its id.
    Id(TenantId),
    /// By the operator's external id.
    External(String),
}

impl TenantName {
    /// Parses a reference: a text in the form of an id is an id, and any other text is
    /// an external id.
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::External(text.to_owned()), Self::Id)
    }
}

/// The current status and limits of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantStanding {
    /// Its id.
    pub tenant_id: TenantId,
    /// The status.
    pub status: TenantStatus,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
}

/// A use of an API key by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// The tenant that owns the key.
    pub tenant_id: TenantId,
    /// The key.
    pub api_key_id: ApiKeyId,
    /// The time of the request.
    pub used_at: Timestamp,
}

/// The tenant and permissions of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The tenant it belongs to.
    pub tenant_id: TenantId,
    /// The key.
    pub api_key_id: ApiKeyId,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// The stores it is restricted to; `None`: all stores.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// The status of its tenant.
    pub tenant_status: TenantStatus,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
}
