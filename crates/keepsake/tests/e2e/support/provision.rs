//! Tenants, keys and stores, made in process: fast, and many at once.

use keepsake_core::{StoreId, TenantId, Timestamp};
use keepsake_engine::{Engine, EngineOptions, KeyDraft, ManualClock, NewTenant, Principal, StoreDraft};
use keepsake_index::{Auditor, Index, Scope, TenantChange};

use super::*;

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
        Box::pin(self.tenant_with(json!({}))).await
    }

    pub(crate) async fn tenant_with(&self, limits: Value) -> Tenant {
        let provision = self.provision().await;
        let tenant = provision.tenant_with(limits).await;
        provision.close().await;
        tenant
    }
}

impl Provision {
    pub(crate) async fn tenant(&self) -> Tenant {
        self.tenant_with(json!({})).await
    }

    pub(crate) async fn tenant_with(&self, limits: Value) -> Tenant {
        let limits = serde_json::from_value(limits).unwrap();
        let new = NewTenant { name: "tests".to_owned(), external_id: None, limits, search_mode: None };
        let id = self.engine.tenants.create(new, Auditor::OperatorCli).await.unwrap().tenant_id;
        Tenant { id, key: self.key(id, &Scope::ALL, None).await, store_id: self.store(id).await }
    }

    pub(crate) async fn set_limits(&self, tenant_id: TenantId, limits: &Value) {
        let change = TenantChange { limits: limits.as_object().unwrap().clone(), ..TenantChange::default() };
        self.engine.tenants.update(tenant_id, change, Auditor::OperatorCli).await.unwrap();
    }

    pub(crate) async fn store(&self, tenant_id: TenantId) -> StoreId {
        let draft = StoreDraft { name: "notes".to_owned(), ..StoreDraft::default() };
        let operator = self.operator(tenant_id).await;
        self.engine.stores.create(&operator, draft, None).await.unwrap().store_id
    }

    async fn operator(&self, tenant_id: TenantId) -> Arc<Principal> {
        self.engine.tenants.operator(tenant_id, Auditor::OperatorCli).await.unwrap()
    }

    /// Makes a key; its secret is looked for in every server's output.
    pub(crate) async fn key(&self, tenant: TenantId, scopes: &[Scope], only: Option<Vec<StoreId>>) -> String {
        let draft = KeyDraft { scopes: scopes.to_vec(), store_ids: only, ..key_draft() };
        make_key(&self.engine, &self.operator(tenant).await, draft).await
    }

    pub(crate) async fn expired_key(&self, tenant_id: TenantId) -> String {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
        let options = EngineOptions { clock, ..EngineOptions::default() };
        let in_the_past = Engine::new(self.index.clone(), None, options);
        let draft = KeyDraft { expires_at: Some(Timestamp::from_micros(1).to_rfc3339()), ..key_draft() };
        make_key(&in_the_past, &self.operator(tenant_id).await, draft).await
    }

    pub(crate) async fn close(self) {
        self.index.close().await;
    }
}

async fn make_key(engine: &Engine, operator: &Arc<Principal>, draft: KeyDraft) -> String {
    let secret = engine.keys.create(operator, draft, None).await.unwrap().secret.unwrap();
    secrets::remember(secret.expose(), "an API key");
    secret.expose().to_owned()
}

fn key_draft() -> KeyDraft {
    KeyDraft { name: "tests".to_owned(), scopes: Scope::ALL.to_vec(), store_ids: None, expires_at: None }
}
