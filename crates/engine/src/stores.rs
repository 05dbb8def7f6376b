//! Memory stores.

mod draft;

use std::sync::Arc;

use keepsake_core::{ObjectKind, StoreId, TenantId};
use keepsake_index::{
    AuditedAction, Idempotency, Moment, Scope, Store, StoreFilter, StoreListing, StoreOrigin,
    StoreOriginStatus,
};

use crate::cursor::Query;
use crate::forks::begin_fork;
use crate::past::refusal;
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal};

pub(crate) use draft::{MAX_UNUSED_SECS, check_metadata, metadata_patch};
pub use draft::{StoreDraft, StoreEdit, StoreFork};

service!(pub Stores);

impl Stores {
    /// A credential that is bound to a list of stores is refused.
    #[tracing::instrument(name = "engine.create_store", level = "debug", skip_all)]
    pub async fn create(
        &self,
        principal: &Arc<Principal>,
        draft: StoreDraft,
        idempotency: Option<Idempotency>,
    ) -> Result<Store, EngineError> {
        principal.require_for_all_stores(Scope::StoresAdmin)?;
        let (stores, principal) = (self.clone(), Arc::clone(principal));
        let audited = self.context.audited_by(&principal);
        self.context
            .run_to_end(async move {
                let fork_of = draft.fork_of.clone();
                let mut store = draft.store(&stores.context)?;
                if let Some(fork) = fork_of {
                    store.forked_from = Some(stores.origin(&principal, &fork).await?);
                    if store.search_mode.is_none() {
                        let source = stores.find(principal.tenant_id, fork.memory_store_id).await?;
                        store.search_mode = source.search_mode;
                    }
                }
                let made = stores.add(&principal, &store, idempotency.as_ref(), &audited).await?;
                if made.store_id == store.store_id && made.forked_from.is_some() {
                    begin_fork(&stores.shared, principal.tenant_id, &store);
                }
                Ok(made)
            })
            .await
    }

    /// The point of another store that a new store gets the content of.
    async fn origin(&self, principal: &Principal, fork: &StoreFork) -> Result<StoreOrigin, EngineError> {
        let source_id = fork.memory_store_id;
        principal.require_in(Scope::MemoryRead, source_id)?;
        let seq = fork.at_seq.map(|seq| Moment::Seq(i64::try_from(seq).unwrap_or(i64::MAX)));
        let moment = seq.unwrap_or(Moment::Newest);
        let point = self.context.index.past.point(principal.tenant_id, source_id, moment).await;
        let point = point.map_err(refusal("fork_of.at_seq"))?;
        Ok(StoreOrigin {
            memory_store_id: source_id,
            seq: point.seq,
            status: StoreOriginStatus::Copying,
            skipped: 0,
            error: None,
        })
    }

    /// Returns the store that this call created, or an earlier identical call.
    async fn add(
        &self,
        principal: &Principal,
        store: &Store,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<Store, EngineError> {
        let (tenant_id, limit) = (principal.tenant_id, principal.limits.stores_per_tenant);
        let stores = &self.context.index.stores;
        let created = stores.create(tenant_id, store, limit, idempotency, audited).await;
        let store_id = self.context.counted(created)?.ok_or_else(|| principal.tenant_is_gone())?;
        self.find(tenant_id, store_id).await
    }

    #[tracing::instrument(name = "engine.store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn get(&self, principal: &Principal, store_id: StoreId) -> Result<Store, EngineError> {
        principal.require_outside_session(Scope::MemoryRead, store_id)?;
        Ok(shown_to(principal, self.find(principal.tenant_id, store_id).await?))
    }

    pub(crate) async fn find(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Store, EngineError> {
        let found = self.context.index.stores.find(tenant_id, store_id).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::Store))
    }

    /// Lists the stores that the credential may see, newest first.
    #[tracing::instrument(name = "engine.stores", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        filter: &StoreFilter,
        page: &PageRequest,
    ) -> Result<Page<Store>, EngineError> {
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let limit = page.limit(false)?;
        let identity = Query::filtered("stores", principal.tenant_id, filter)?;
        let cursors = &self.context.cursors;
        let after = cursors.after(identity, page).await?;
        let listing = StoreListing {
            filter: filter.clone(),
            only: principal.store_ids().map(<[StoreId]>::to_vec),
            after,
            // One more item shows whether there is another page.
            limit: limit + 1,
        };
        let items = self.context.index.stores.list(principal.tenant_id, &listing).await?;
        let items: Vec<_> = items.into_iter().map(|store| shown_to(principal, store)).collect();
        cursors.page(identity, items, limit, |store| (store.created_at, store.store_id)).await
    }

    /// Changes a store's name, description, metadata and settings.
    ///
    /// The sensitive-data policy, the expiry period, the recording of reads, the search mode and the
    /// metadata also need the scope `stores:admin`; erasures select stores by metadata. The answer
    /// shows the store, so a credential without that scope needs `memory:read`.
    #[tracing::instrument(name = "engine.update_store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn update(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        edit: StoreEdit,
        idempotency: Option<Idempotency>,
    ) -> Result<Store, EngineError> {
        principal.require(Scope::MemoryWrite)?;
        let is_of_settings = edit.policy.is_some()
            || edit.expires_unused_after.is_some()
            || edit.records_reads.is_some()
            || edit.search_mode.is_some();
        if is_of_settings || !edit.metadata.is_empty() {
            principal.require(Scope::StoresAdmin)?;
        }
        if principal.require(Scope::StoresAdmin).is_err() {
            principal.require(Scope::MemoryRead)?;
        }
        principal.require_store(store_id)?;
        principal.require_no_session()?;
        let audited = self.context.audited_by(principal);
        let change = edit.check(audited.at)?;
        let (context, tenant_id) = (Arc::clone(&self.context), principal.tenant_id);
        let updated = self.context.run_to_end(async move {
            let (stores, call) = (&context.index.stores, idempotency.as_ref());
            context.counted(stores.update(tenant_id, store_id, &change, call, &audited).await)
        });
        Ok(shown_to(principal, updated.await?))
    }

    /// An archived store accepts no new content. This cannot be undone. Idempotent.
    #[tracing::instrument(name = "engine.archive_store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn archive(&self, principal: &Arc<Principal>, store_id: StoreId) -> Result<Store, EngineError> {
        principal.require_in(Scope::StoresAdmin, store_id)?;
        let (context, tenant_id) = (Arc::clone(&self.context), principal.tenant_id);
        let audited = self.context.audited_by(principal);
        let archived = self.context.run_to_end(async move {
            Ok(context.index.stores.archive(tenant_id, store_id, &audited).await?)
        });
        Ok(shown_to(principal, archived.await?))
    }

    /// Deletes a store, which is invisible to every reader at once. After a failure of
    /// the index the store may have been deleted.
    ///
    /// The job `purge-stores` removes its memories, versions and blobs afterwards, in
    /// batches.
    #[tracing::instrument(name = "engine.delete_store", level = "debug", skip_all, fields(gen_ai.memory.store.id = %store_id))]
    pub async fn delete(&self, principal: &Arc<Principal>, store_id: StoreId) -> Result<(), EngineError> {
        principal.require_in(Scope::StoresAdmin, store_id)?;
        let (context, tenant_id) = (Arc::clone(&self.context), principal.tenant_id);
        let audited = self.context.audited_by(principal);
        self.context
            .run_to_end(async move {
                Ok(context.index.store_deletions.begin(tenant_id, store_id, &audited).await?)
            })
            .await
    }

    /// Fails if the store does not exist.
    pub(crate) async fn require(&self, principal: &Principal, store_id: StoreId) -> Result<(), EngineError> {
        principal.require(Scope::MemoryRead)?;
        self.find(principal.tenant_id, store_id).await?;
        Ok(())
    }
}

/// The store as a credential sees it: without its origin, if that is a store that the credential may not see.
fn shown_to(principal: &Principal, mut store: Store) -> Store {
    let is_seen = |origin: &StoreOrigin| principal.require_store(origin.memory_store_id).is_ok();
    store.forked_from = store.forked_from.filter(is_seen);
    store
}
