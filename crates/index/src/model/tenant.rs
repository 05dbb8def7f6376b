//! Tenants, their API keys, and the resolution of credentials.

use std::fmt;
use std::str::FromStr;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::schemas::{self, ApiKeyType, TenantType, TenantUsageType};
use keepsake_core::{
    ApiKeyId, Limits, SearchMode, StoreId, TenantId, Timestamp, null_as_default, null_or_value,
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::audit::AuditAction;

keepsake_core::named_enum! {
    /// A permission of a credential.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
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

keepsake_core::shown_by_name! {
    Scope as "Scope" => "A permission of a credential.";
    TenantStatus as "TenantStatus" => "The status of a tenant.";
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Tenant {
    #[serde(rename = "id")]
    pub tenant_id: TenantId,
    #[schema(inline)]
    pub r#type: TenantType,
    pub name: String,
    // The operator's own id for the tenant, unique if set.
    #[schema(required)]
    pub external_id: Option<String>,
    pub status: TenantStatus,
    /// The limits that differ from the configured ones.
    #[serde(serialize_with = "without_start_of_period")]
    #[schema(value_type = Limits)]
    pub limits: LimitOverrides,
    /// How searches find memories of stores that have no `search_mode`; null: `hybrid`.
    #[schema(required)]
    pub search_mode: Option<SearchMode>,
    pub created_at: Timestamp,
}

/// Callers do not see when the expiry period was set.
fn without_start_of_period<S: Serializer>(limits: &LimitOverrides, serializer: S) -> Result<S::Ok, S::Error> {
    LimitOverrides { period_set_at: None, ..limits.clone() }.serialize(serializer)
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateTenant)]
pub struct TenantChange {
    /// A display name.
    #[schema(value_type = Option<schemas::TenantName>)]
    pub name: Option<String>,
    /// Your own unique id for the tenant; null removes it.
    #[serde(default, deserialize_with = "null_or_value")]
    #[schema(value_type = Option<schemas::TenantName>)]
    pub external_id: Option<Option<String>>,
    /// Limits to set; null resets a limit to the configured value, and omitted
    /// limits stay unchanged. Lowering a limit on live data deletes nothing;
    /// lowering a limit on history deletes older versions.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::LimitPatch>)]
    pub limits: Map<String, Value>,
    /// How searches find memories of stores that have no `search_mode`; null: `hybrid`.
    #[serde(default, deserialize_with = "null_or_value")]
    #[schema(value_type = Option<SearchMode>)]
    pub search_mode: Option<Option<SearchMode>>,
    #[serde(skip)]
    pub status: Option<TenantStatus>,
    /// The own limits that the change replaces: it is refused if the tenant has others. Null stands for the
    /// configured value.
    #[serde(skip)]
    pub replaced_limits: Map<String, Value>,
    /// The search mode that the change replaces; `None`: any.
    #[serde(skip)]
    pub replaced_search_mode: Option<Option<SearchMode>>,
    /// The name that the change replaces; `None`: any.
    #[serde(skip)]
    pub replaced_name: Option<String>,
    /// The external id that the change replaces; `None`: any.
    #[serde(skip)]
    pub replaced_external_id: Option<Option<String>>,
}

/// Whether a field has neither the value that a change replaces nor the value that it sets.
fn is_overtaken<T: PartialEq>(replaced: Option<&T>, set: Option<&T>, has: &T) -> bool {
    replaced.is_some_and(|replaced| replaced != has) && set != Some(has)
}

impl TenantChange {
    pub fn of_status(status: TenantStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Whether another change came first, so that the tenant has neither the values that this one replaces nor
    /// the values that it sets.
    pub(crate) fn comes_late(&self, tenant: &Tenant) -> Result<bool, serde_json::Error> {
        let own = serde_json::to_value(&tenant.limits)?;
        let has_other = |(name, replaced): (&String, &Value)| {
            let limit = own.get(name).unwrap_or(&Value::Null);
            limit != replaced && self.limits.get(name) != Some(limit)
        };
        let (mode, external_id) = (self.search_mode.as_ref(), self.external_id.as_ref());
        let is_late = is_overtaken(self.replaced_search_mode.as_ref(), mode, &tenant.search_mode)
            || is_overtaken(self.replaced_name.as_ref(), self.name.as_ref(), &tenant.name)
            || is_overtaken(self.replaced_external_id.as_ref(), external_id, &tenant.external_id);
        Ok(is_late || self.replaced_limits.iter().any(has_other))
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
        if let Some(search_mode) = self.search_mode {
            changed.search_mode = search_mode;
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

/// A tenant before and after an update, as read and written in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantUpdate {
    pub before: Tenant,
    pub after: Tenant,
}

impl TenantUpdate {
    /// The changed settings for the audit, by name: the former value (`from`) and the new one (`to`) of a limit and
    /// of `search_mode`, null for the configured value; nothing of `name` and `external_id`. `None`: no setting was
    /// changed.
    pub(crate) fn changes(&self) -> Result<Option<Map<String, Value>>, serde_json::Error> {
        let (before, after) = (&self.before, &self.after);
        let [was, is] = [serde_json::to_value(&before.limits)?, serde_json::to_value(&after.limits)?];
        let mut changes = Map::new();
        for name in LimitOverrides::NAMES.iter().filter(|name| was[**name] != is[**name]) {
            changes.insert((*name).to_owned(), json!({"from": was[*name], "to": is[*name]}));
        }
        if before.search_mode != after.search_mode {
            let [from, to] = [before, after].map(|tenant| tenant.search_mode.map(SearchMode::name));
            changes.insert("search_mode".to_owned(), json!({"from": from, "to": to}));
        }
        let names =
            [("name", before.name != after.name), ("external_id", before.external_id != after.external_id)];
        for (name, _) in names.into_iter().filter(|(_, is_changed)| *is_changed) {
            changes.insert(name.to_owned(), json!({}));
        }
        Ok((!changes.is_empty()).then_some(changes))
    }
}

/// A tenant's usage, by its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TenantUsage {
    #[serde(rename = "id")]
    pub tenant_id: TenantId,
    #[schema(inline)]
    pub r#type: TenantUsageType,
    /// Stores that are not deleted.
    #[serde(rename = "memory_stores")]
    pub stores: u64,
    /// Live memories.
    pub memories: u64,
    /// Bytes of the live memories.
    #[serde(rename = "content_bytes")]
    pub live_bytes: u64,
    /// Versions kept, those of live memories included.
    #[serde(rename = "memory_versions")]
    pub versions: u64,
    /// Bytes of all content kept, that of live memories included.
    pub version_bytes: u64,
    /// Bytes granted to its stores, used or not.
    pub granted_bytes: u64,
    /// Keys that are not revoked.
    pub api_keys: u64,
    /// Live and archived sessions.
    pub sessions: u64,
    /// Bytes of the sessions' descriptions.
    pub session_bytes: u64,
    /// The limits in force.
    pub limits: Limits,
}

/// What a tenant stores, by its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantSize {
    pub tenant_id: TenantId,
    /// Stores that are not deleted.
    pub stores: u64,
    /// Live memories.
    pub memories: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ApiKey {
    #[serde(rename = "id")]
    pub api_key_id: ApiKeyId,
    #[schema(inline)]
    pub r#type: ApiKeyType,
    #[serde(rename = "workspace_id")]
    pub tenant_id: TenantId,
    pub name: String,
    pub scopes: Vec<Scope>,
    /// The only stores that the key can access; null: all stores.
    #[serde(rename = "memory_store_ids")]
    #[schema(required)]
    pub store_ids: Option<Vec<StoreId>>,
    pub created_at: Timestamp,
    /// When the key expires; null: never.
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
    /// When a request last used the key, accurate to half a minute.
    #[schema(required)]
    pub last_used_at: Option<Timestamp>,
    /// When the key was revoked.
    #[schema(required)]
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
    pub tenant_name: String,
    pub key_name: String,
}
