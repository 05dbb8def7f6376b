//! Tenants, keys and stores, made in process: fast, and many at once.

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId, Timestamp};
use keepsake_engine::{Engine, EngineOptions, NewKey, NewTenant, TenantEdit};
use keepsake_index::{Index, Scope};
use serde_json::Value;

use super::{Deployment, secrets};

/// A tenant with a key that may do everything, and one store.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) id: TenantId,
    pub(crate) key: String,
    pub(crate) store_id: StoreId,
}

/// An engine on a deployment's stores that no server has yet.
pub(crate) struct Provision {
    engine: Engine,
    index: Index,
}

impl Deployment {
    /// Opens the deployment for making what a server is to find; on SQLite it
    /// must be closed before a server starts.
    pub(crate) async fn provision(&self) -> Provision {
        self.provision_on(self.index().await).await
    }

    pub(crate) async fn provision_on(&self, index: Index) -> Provision {
        let engine = Engine::new(index.clone(), self.object_store().await, EngineOptions::default());
        Provision { engine, index }
    }

    pub(crate) async fn tenant(&self) -> Tenant {
        // Boxed, because it is large: almost every test waits for it.
        Box::pin(self.tenant_with(LimitOverrides::default())).await
    }

    pub(crate) async fn tenant_with(&self, limits: LimitOverrides) -> Tenant {
        let provision = self.provision().await;
        let tenant = provision.tenant(limits).await;
        provision.close().await;
        tenant
    }
}

impl Provision {
    pub(crate) async fn tenant(&self, limits: LimitOverrides) -> Tenant {
        let new = NewTenant { name: "tests".to_owned(), external_id: None, limits };
        let id = self.engine.operator.tenants.create(new).await.unwrap().tenant_id;
        Tenant { id, key: self.key(id, &Scope::ALL, None).await, store_id: self.store(id).await }
    }

    /// Gives a tenant the limits that are named; the others stay.
    pub(crate) async fn set_limits(&self, tenant_id: TenantId, limits: &Value) {
        let edit = TenantEdit { limits: limits.as_object().unwrap().clone(), ..TenantEdit::default() };
        self.engine.operator.tenants.update(tenant_id, edit).await.unwrap();
    }

    pub(crate) async fn store(&self, tenant_id: TenantId) -> StoreId {
        self.engine.operator.create_store(tenant_id, "notes").await.unwrap().store_id
    }

    /// Makes a key; its secret is looked for in every server's output.
    pub(crate) async fn key(
        &self,
        tenant_id: TenantId,
        scopes: &[Scope],
        store_ids: Option<Vec<StoreId>>,
    ) -> String {
        let new = NewKey { scopes: scopes.to_vec(), store_ids, ..new_key(tenant_id) };
        self.make_key(new).await
    }

    pub(crate) async fn expired_key(&self, tenant_id: TenantId) -> String {
        let new = NewKey { expires_at: Some(Timestamp::from_micros(1)), ..new_key(tenant_id) };
        self.make_key(new).await
    }

    async fn make_key(&self, new: NewKey) -> String {
        let (_, secret) = self.engine.operator.keys.create(new).await.unwrap();
        secrets::remember(secret.expose(), "an API key");
        secret.expose().to_owned()
    }

    pub(crate) async fn close(self) {
        self.index.close().await;
    }
}

fn new_key(tenant_id: TenantId) -> NewKey {
    NewKey {
        tenant_id,
        name: "tests".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    }
}
