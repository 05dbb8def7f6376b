//! Tenants, their keys, and what a credential stands for.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::{AuditAction, OverQuota};

/// What a credential may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Read memories.
    #[serde(rename = "memory:read")]
    MemoryRead,
    /// Change memories.
    #[serde(rename = "memory:write")]
    MemoryWrite,
    /// Create, archive and delete stores, redact versions.
    #[serde(rename = "stores:admin")]
    StoresAdmin,
    /// Create and end sessions.
    #[serde(rename = "sessions:write")]
    SessionsWrite,
    /// Make and revoke keys.
    #[serde(rename = "keys:admin")]
    KeysAdmin,
    /// Change the tenant's settings, erase.
    #[serde(rename = "tenant:admin")]
    TenantAdmin,
}

impl Scope {
    /// Every scope there is.
    pub const ALL: [Self; 6] = [
        Self::MemoryRead,
        Self::MemoryWrite,
        Self::StoresAdmin,
        Self::SessionsWrite,
        Self::KeysAdmin,
        Self::TenantAdmin,
    ];

    /// The scope's name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryRead => "memory:read",
            Self::MemoryWrite => "memory:write",
            Self::StoresAdmin => "stores:admin",
            Self::SessionsWrite => "sessions:write",
            Self::KeysAdmin => "keys:admin",
            Self::TenantAdmin => "tenant:admin",
        }
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
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|scope| scope.name()).collect();
                format!("`{text}` is not a scope; there are {}", known.join(", "))
            })
    }
}

/// Whether a tenant is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantStatus {
    /// Served.
    Active,
    /// Kept, not served.
    Suspended,
    /// Not served, and about to be gone.
    Deleting,
}

impl TenantStatus {
    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Deleting => "deleting",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Active, Self::Suspended, Self::Deleting]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub tenant_id: TenantId,
    /// The operator's own name for it, unique where set.
    pub external_id: Option<String>,
    /// A name for people.
    pub name: String,
    /// Whether it is served.
    pub status: TenantStatus,
    /// Where its limits differ from the configured defaults.
    pub limits: LimitOverrides,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How a tenant is to change; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantChange {
    /// A name for people.
    pub name: Option<String>,
    /// The operator's own name for it, or none.
    pub external_id: Option<Option<String>>,
    /// Limits to set by name, or with null to take the configured ones.
    pub limits: Map<String, Value>,
    /// Whether it is served.
    pub status: Option<TenantStatus>,
}

impl TenantChange {
    /// The tenant after the change, now.
    ///
    /// # Errors
    /// What the limits are that do not make sense.
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

    /// What the audit calls it.
    pub(crate) const fn action(&self) -> AuditAction {
        match self.status {
            Some(TenantStatus::Suspended) => AuditAction::TenantSuspended,
            Some(TenantStatus::Active) => AuditAction::TenantResumed,
            Some(TenantStatus::Deleting) | None => AuditAction::TenantUpdated,
        }
    }
}

/// How changing a tenant went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantUpdate {
    /// It is as it was asked for.
    Done(Box<Tenant>),
    /// Another tenant has this external id.
    ExternalIdTaken,
    /// It is about to be gone, and changes no more.
    Deleting,
    /// There is no such tenant.
    NoTenant,
}

/// What a tenant holds, as its counters say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Stores that are not deleted.
    pub stores: u64,
    /// Live memories.
    pub memories: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
    /// Versions kept, those of live memories included.
    pub versions: u64,
    /// Bytes of all content kept, that of live memories included.
    pub version_bytes: u64,
    /// Bytes granted to its stores, used or not.
    pub granted_bytes: u64,
    /// Keys that were not revoked.
    pub api_keys: u64,
    /// Live and archived sessions.
    pub sessions: u64,
    /// Bytes of these sessions' descriptions.
    pub session_bytes: u64,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub api_key_id: ApiKeyId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees, where it is bound to some.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// An API key and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedKey {
    /// The key.
    pub key: ApiKey,
    /// When a request last carried it, to within a few minutes.
    pub last_used_at: Option<Timestamp>,
    /// Since when it is good for nothing.
    pub revoked_at: Option<Timestamp>,
}

/// How making a key went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCreation {
    /// It is there.
    Created,
    /// The same call made this one before.
    Replayed {
        /// The key, which may have been revoked since.
        api_key_id: ApiKeyId,
    },
    /// The call's name was used for another request.
    KeyReused,
    /// The key that makes it is good no more.
    MakerRevoked,
    /// A quota of the tenant does not allow it.
    OverQuota(OverQuota),
    /// There is no such tenant, or it is about to be gone.
    NoTenant,
}

/// A tenant, as a token names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TenantName {
    /// By its id.
    Id(TenantId),
    /// By the operator's own name for it.
    External(String),
}

impl TenantName {
    /// What reads as an id is one; everything else is an external id.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::External(text.to_owned()), Self::Id)
    }
}

/// What a tenant may do at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantStanding {
    /// Its id.
    pub tenant_id: TenantId,
    /// Whether it is served.
    pub status: TenantStatus,
    /// Where its limits differ from the configured defaults.
    pub limits: LimitOverrides,
}

/// A request that an API key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUse {
    /// Whose key it is.
    pub tenant_id: TenantId,
    /// The key.
    pub api_key_id: ApiKeyId,
    /// When.
    pub used_at: Timestamp,
}

/// What a credential stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The tenant it belongs to.
    pub tenant_id: TenantId,
    /// The key.
    pub api_key_id: ApiKeyId,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees, where it is bound to some.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// Whether it was revoked.
    pub is_revoked: bool,
    /// Whether its tenant is served.
    pub tenant_status: TenantStatus,
    /// Where the tenant's limits differ from the configured defaults.
    pub limits: LimitOverrides,
}
