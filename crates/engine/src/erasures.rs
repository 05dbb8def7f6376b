//! Erasures: requests to remove data of a tenant for good, and their receipts.
//!
//! A request is recorded and answered. The replica that received it starts the erasure at
//! once; the job `erase` finishes the erasures that the receiving replica did not finish.

use keepsake_core::{DirPath, ErasureId, ObjectKind, StoreId, schemas};
use keepsake_index::{Erasure, ErasureListing, Idempotency, NewErasure, Scope, Selector};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::cursor::Query;
use crate::jobs::begin_erasure;
use crate::request_fields::{invalid, parse_prefix};
use crate::shared::service;
use crate::stores::check_metadata;
use crate::{EngineError, Page, PageRequest, Principal};

/// The data to erase: a store, all memories that ever had a path below a
/// directory of it, or all stores with certain metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateErasure)]
pub struct ErasureRequest {
    /// The store; excludes `store_metadata`.
    #[serde(rename = "memory_store_id")]
    pub store_id: Option<StoreId>,
    /// Erases every memory of the store that ever had a path below this
    /// directory, and keeps the store.
    #[schema(value_type = Option<DirPath>)]
    pub path_prefix: Option<String>,
    /// Erases every store whose metadata has all these pairs, including
    /// archived and recently deleted stores.
    #[schema(value_type = Option<schemas::SelectedMetadata>)]
    pub store_metadata: Option<Map<String, Value>>,
}

impl ErasureRequest {
    fn selector(self) -> Result<Selector, EngineError> {
        match (self.store_id, self.path_prefix, self.store_metadata) {
            (Some(store_id), None, None) => Ok(Selector::Store(store_id)),
            (Some(store_id), Some(prefix), None) => {
                let below = parse_prefix(&prefix)?.as_str().to_owned();
                Ok(Selector::PathPrefix { store_id, below })
            }
            (None, None, Some(pairs)) if pairs.is_empty() => {
                invalid("store_metadata", "must have at least one pair")
            }
            (None, None, Some(pairs)) => {
                check_metadata("store_metadata", &pairs)?;
                Ok(Selector::StoreMetadata(pairs))
            }
            (None, Some(_), _) => invalid("path_prefix", "must come with `memory_store_id`"),
            (Some(_), _, Some(_)) => invalid("store_metadata", "must not come with `memory_store_id`"),
            (None, None, None) => invalid("memory_store_id", "or `store_metadata` is required"),
        }
    }
}

service!(pub Erasures);

impl Erasures {
    /// Records an erasure and starts it.
    ///
    /// A credential that is bound to stores may erase only data of those stores, and must
    /// not select stores by metadata. After a failure of the index the erasure may have
    /// been recorded.
    #[tracing::instrument(name = "engine.create_erasure", level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Principal,
        request: ErasureRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<Erasure, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        let selector = request.selector()?;
        match selector.store_id() {
            Some(store_id) => principal.require_store(store_id)?,
            None if principal.is_bound_to_stores() => {
                return Err(EngineError::PermissionDenied(Scope::TenantAdmin));
            }
            None => {}
        }
        let (erasures, tenant_id) = (self.clone(), principal.tenant_id);
        let audited = self.context.audited_by(principal);
        let erasure = NewErasure {
            erasure_id: ErasureId::from_uuid(self.context.ids.uuid(audited.at)),
            selector,
            audited,
        };
        self.context
            .run_to_end(async move {
                let index = &erasures.context.index;
                let erasure_id = index.erasures.create(tenant_id, &erasure, idempotency.as_ref()).await?;
                if erasure_id == erasure.erasure_id {
                    erasures.activity.forget(tenant_id, erasure.selector.store_id());
                    begin_erasure(&erasures.shared, tenant_id, erasure_id);
                }
                let found = index.erasures.find(tenant_id, erasure_id).await?;
                found.ok_or(EngineError::NotFound(ObjectKind::Erasure))
            })
            .await
    }

    /// The receipt, once the erasure is done.
    #[tracing::instrument(name = "engine.erasure", level = "debug", skip_all)]
    pub async fn get(&self, principal: &Principal, erasure_id: ErasureId) -> Result<Erasure, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        let found = self.context.index.erasures.find(principal.tenant_id, erasure_id).await?;
        let is_seen = |erasure: &Erasure| match (principal.store_ids(), erasure.store_id) {
            (None, _) => true,
            (Some(seen), Some(store_id)) => seen.contains(&store_id),
            (Some(_), None) => false,
        };
        found.filter(is_seen).ok_or(EngineError::NotFound(ObjectKind::Erasure))
    }

    /// Lists the erasures that the credential may see, newest first.
    #[tracing::instrument(name = "engine.erasures", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        page: &PageRequest,
    ) -> Result<Page<Erasure>, EngineError> {
        principal.require(Scope::TenantAdmin)?;
        let limit = page.limit(false)?;
        let identity = Query::of(&[b"erasures", principal.tenant_id.uuid().as_bytes()]);
        let cursors = &self.context.cursors;
        let after = cursors.after(identity, page).await?;
        let listing = ErasureListing {
            only: principal.store_ids().map(<[StoreId]>::to_vec),
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let items = self.context.index.erasures.list(principal.tenant_id, &listing).await?;
        cursors.page(identity, items, limit, |erasure| erasure.erasure_id).await
    }
}
