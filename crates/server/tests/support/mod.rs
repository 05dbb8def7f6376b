//! A server on a new SQLite index, with a tenant, its key and a store.

use axum::Router;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{Engine, EngineOptions, NewKey, NewTenant};
use keepsake_index::{Index, Scope, SqliteIndex};
use keepsake_server::{Lifecycle, ServerOptions, router};

pub(crate) struct Server {
    pub(crate) router: Router,
    /// The key of the tenant, with all scopes.
    pub(crate) secret: String,
    /// The path of the store's route.
    pub(crate) store: String,
    _folder: tempfile::TempDir,
}

impl Server {
    pub(crate) async fn with(limits: LimitOverrides, options: &ServerOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("index.db").display());
        let index = Index::from(SqliteIndex::open(&url).await.unwrap());
        let engine = Engine::new(index, None, EngineOptions::default());
        let tenant = NewTenant { name: "tests".to_owned(), external_id: None, limits };
        let tenant_id = engine.operator.tenants.create(tenant).await.unwrap().tenant_id;
        let key = NewKey {
            tenant_id,
            name: "tests".to_owned(),
            scopes: Scope::ALL.to_vec(),
            store_ids: None,
            expires_at: None,
        };
        let (_, secret) = engine.operator.keys.create(key).await.unwrap();
        let store = engine.operator.create_store(tenant_id, "notes").await.unwrap();
        Self {
            router: router(engine, options, Lifecycle::default()),
            secret: secret.expose().to_owned(),
            store: format!("/v1/memory_stores/{}", store.store_id),
            _folder: folder,
        }
    }
}
