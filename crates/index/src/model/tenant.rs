//! Tenants, their keys, and what a credential stands for.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

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
}

impl TenantStatus {
    /// The name the index stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suspended => "suspended",
        }
    }

    /// Reads a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Active, Self::Suspended]
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
