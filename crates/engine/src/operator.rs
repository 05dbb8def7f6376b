//! The operator's side: tenants and their keys.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_index::{ApiKey, Scope, Store, Tenant, TenantStatus};

use crate::{Engine, EngineError, StoreDraft};

/// A tenant to be made.
#[derive(Debug, Clone, Default)]
pub struct NewTenant {
    /// A name for people.
    pub name: String,
    /// The operator's own name for it, unique where set.
    pub external_id: Option<String>,
    /// Where its limits differ from the configured defaults.
    pub limits: LimitOverrides,
}

/// An API key to be made.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The only stores it sees; `None`: all of the tenant's.
    pub store_ids: Option<Vec<StoreId>>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
}

/// What the operator does; nothing here asks for a credential.
#[derive(Debug, Clone, Copy)]
pub struct Operator<'a> {
    engine: &'a Engine,
}

impl<'a> Operator<'a> {
    pub(crate) const fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Makes a tenant.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::TenantExists`],
    /// [`EngineError::Index`].
    pub async fn create_tenant(&self, new: NewTenant) -> Result<Tenant, EngineError> {
        check_name(&new.name)?;
        let now = self.engine.now();
        let tenant = Tenant {
            tenant_id: TenantId::from_uuid(self.engine.0.ids.uuid(now)),
            external_id: new.external_id,
            name: new.name,
            status: TenantStatus::Active,
            limits: new.limits,
            created_at: now,
        };
        if self.engine.0.index.create_tenant(&tenant).await? {
            Ok(tenant)
        } else {
            Err(EngineError::TenantExists)
        }
    }

    /// Makes an API key; its secret is known to the answer alone.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::TenantNotFound`],
    /// [`EngineError::Index`].
    pub async fn create_key(&self, new: NewKey) -> Result<(ApiKey, ApiKeySecret), EngineError> {
        check_name(&new.name)?;
        let now = self.engine.now();
        let secret = ApiKeySecret::from_random(self.engine.0.ids.secret());
        let key = ApiKey {
            api_key_id: ApiKeyId::from_uuid(self.engine.0.ids.uuid(now)),
            tenant_id: new.tenant_id,
            name: new.name,
            scopes: new.scopes,
            store_ids: new.store_ids,
            created_at: now,
            expires_at: new.expires_at,
        };
        if self.engine.0.index.create_api_key(&key, &secret.sha256()).await? {
            Ok((key, secret))
        } else {
            Err(EngineError::TenantNotFound)
        }
    }

    /// Makes a store for a tenant.
    ///
    /// # Errors
    /// [`EngineError::TenantNotFound`], [`EngineError::TooManyStores`],
    /// [`EngineError::Index`].
    pub async fn create_store(&self, tenant_id: TenantId, name: &str) -> Result<Store, EngineError> {
        let tenant = self
            .engine
            .0
            .index
            .tenant(tenant_id)
            .await?
            .ok_or(EngineError::TenantNotFound)?;
        let limits = self.engine.0.limits.with(&tenant.limits);
        let draft = StoreDraft {
            name: name.to_owned(),
            ..StoreDraft::default()
        };
        self.engine
            .make_store(tenant_id, draft, limits.stores_per_tenant, None)
            .await
    }
}

fn check_name(name: &str) -> Result<(), EngineError> {
    let is_good = (1..=255).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if is_good {
        return Ok(());
    }
    let rule = "must be 1 to 255 characters without control characters".to_owned();
    Err(EngineError::Invalid { field: "name", rule })
}
