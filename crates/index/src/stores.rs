//! Stores of a tenant.

mod change;

use keepsake_core::{DirPath, ObjectKind, Quota, Refused, SearchMode, StoreId, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use self::change::StoredStore;
use crate::calls::{CallObject, earlier_object, record_call};
use crate::database::{Database, Ids, Role, RowLock, Tx, from_row, selects};
use crate::model::{
    AuditAction, AuditObject, AuditedAction, Idempotency, Store, StoreChange, StoreListing, StoreState,
};
use crate::numbers::period_of;
use crate::{ChangeError, IndexError, audit, forks};

/// A tenant's number of stores; no row for a tenant that is being deleted.
const COUNT: &str = "SELECT store_count FROM tenant WHERE tenant_id = $1 AND status <> 'deleting'";

const COUNT_ONE_MORE: &str = "UPDATE tenant SET store_count = store_count + 1 WHERE tenant_id = $1";

const INSERT: &str = "INSERT INTO store (tenant_id, store_id, name, description, metadata, policy, \
    expires_unused_after, period_set_at, created_at, updated_at, forked_from, reads_from, search_mode, seq, \
    last_version_at, purge_epoch, memory_count, live_bytes, granted_bytes, version_count, version_bytes, retention_seq) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12, 0, 0, 0, 0, 0, 0, 0, 0, 0)";

/// A store always has its root directory.
const INSERT_ROOT: &str = "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, \
    visible_children) VALUES ($1, $2, '/', '/', '', 0, 0, 0)";

selects! {
    "store_id, name, description, metadata, policy, expires_unused_after, memory_count, live_bytes, created_at, \
        updated_at, NULLIF(last_version_at, 0) AS last_version_at, archived_at, period_set_at, forked_from, \
        reads_from, reads_from IS NOT NULL AS records_reads, search_mode FROM store \
        WHERE tenant_id = $1 AND deleted_at IS NULL AND";
    pub(crate) const FIND = "store_id = $2";
    /// Stores after a time of creation and an id, newest first.
    pub(crate) const LIST = "created_at >= $2 AND created_at <= $3 AND (created_at, store_id) < ($4, $5) \
        AND ($6 OR archived_at IS NULL) AND ($7 IS NULL OR store_id IN_IDS($7)) \
        ORDER BY created_at DESC, store_id DESC LIMIT $8 + 0";
}

/// Stores by id, and whether a directory of them has files.
pub(crate) const WITH_FILES: &str = "SELECT s.store_id, EXISTS (SELECT 1 FROM directory d \
        WHERE d.tenant_id = $1 AND d.store_id = s.store_id AND d.path = $3 AND d.files > 0) AS has_files \
    FROM store s WHERE s.tenant_id = $1 AND s.deleted_at IS NULL AND ($2 IS NULL OR s.store_id IN_IDS($2)) \
    ORDER BY s.store_id LIMIT $4 + 0";

const UPDATE: &str = "UPDATE store SET name = $3, description = $4, metadata = $5, policy = $6, \
    expires_unused_after = $7, period_set_at = $8, updated_at = $9, archived_at = $10, \
    reads_from = $11, search_mode = $12, embedded_by = '' WHERE tenant_id = $1 AND store_id = $2";

const LOCK: &str = "SELECT FROM store WHERE tenant_id = $1 AND store_id = $2 FOR NO KEY UPDATE";

const LIVE: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

#[derive(Debug, Clone)]
pub struct Stores(pub(crate) Database);

from_row! {
    Store {
        store_id, name, description, metadata, policy, expires_unused_after, memory_count, live_bytes,
        created_at, updated_at, last_version_at, archived_at, forked_from, records_reads,
        search_mode .. r#type
    }
    StoredStore { period_set_at, reads_from; store }
}

impl Stores {
    /// Creates a store, unless the tenant has `stores_limit` of them; returns the id of the
    /// store that this call created, or the same call earlier. `None`: the tenant does not
    /// exist, or is being deleted.
    pub async fn create(
        &self,
        tenant_id: TenantId,
        store: &Store,
        stores_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<Option<StoreId>, ChangeError> {
        let (store_id, at) = (store.store_id, store.created_at);
        let role = Role::of_auditor(tenant_id, &audited.by);
        let mut tx = self.0.write("create_store", role).await?;
        let query = tx.query_locking(COUNT, RowLock::NoKeyUpdate);
        let count = query.bind(tenant_id).optional_scalar().await?;
        let Some(count) = count else {
            return Ok(None);
        };
        if let Some(earlier) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return Ok(Some(earlier));
        }
        if count >= stores_limit {
            return Err(Refused::over(Quota::StoresPerTenant, count, stores_limit).into());
        }
        insert(&mut tx, tenant_id, store).await?;
        if let Some(origin) = &store.forked_from {
            let times = (at, at.plus(forks::FORK_HELD_FOR));
            forks::begin(&mut tx, (tenant_id, store_id), origin, audited.by.actor(), times).await?;
        }
        record_call(&mut tx, tenant_id, CallObject::store(store_id), idempotency, at).await?;
        let (action, object) = (AuditAction::StoreCreated, AuditObject::new(store_id.uuid()));
        audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
        tx.commit().await?;
        Ok(Some(store_id))
    }

    /// Finds a store that is not deleted.
    pub async fn find(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Option<Store>, IndexError> {
        self.0.optional("store", Role::Tenant(tenant_id), FIND, (tenant_id, store_id)).await
    }

    /// The first `limit` stores by id, of `only` or of all, and whether each has
    /// files below `directory`.
    pub async fn with_files(
        &self,
        tenant_id: TenantId,
        only: Option<&[StoreId]>,
        directory: &DirPath,
        limit: usize,
    ) -> Result<Vec<(StoreId, bool)>, IndexError> {
        let values = (tenant_id, Ids(only), directory.as_str(), limit as u64);
        self.0.all_with_lists("stores_with_files", Role::Tenant(tenant_id), WITH_FILES, values).await
    }

    /// Lists stores that are not deleted, newest first.
    pub async fn list(&self, tenant_id: TenantId, listing: &StoreListing) -> Result<Vec<Store>, IndexError> {
        let StoreListing { filter, only, after, limit } = listing;
        let before = after.map_or((i64::MAX, Uuid::max()), |(created_at, store_id)| {
            (created_at.as_micros(), store_id.uuid())
        });
        let period = period_of(filter.created_from, filter.created_to);
        let values = (tenant_id, period, before, filter.include_archived, Ids(only.as_deref()), *limit);
        self.0.all_with_lists("list_stores", Role::Tenant(tenant_id), LIST, values).await
    }

    /// Changes a store's name, description, metadata and settings.
    ///
    /// `updated_at` changes with the name, description or metadata. A change that the same
    /// call made earlier is not made again.
    pub async fn update(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        change: &StoreChange,
        idempotency: Option<&Idempotency>,
        audited: &AuditedAction,
    ) -> Result<Store, ChangeError> {
        let mut tx = self.0.write("update_store", Role::Tenant(tenant_id)).await?;
        let before = lock(&mut tx, tenant_id, store_id).await?;
        if let Some(same) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return if same == store_id { Ok(before.store) } else { Err(Refused::KeyReused.into()) };
        }
        if before.store.archived_at.is_some() {
            return Err(Refused::Archived.into());
        }
        let after = before.changed(change)?;
        replace(&mut tx, tenant_id, &before, &after).await?;
        let call = CallObject::store(store_id);
        record_call(&mut tx, tenant_id, call, idempotency, change.now).await?;
        if let Some(action) = after.change_since(&before) {
            let object = AuditObject::new(store_id.uuid());
            audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
        }
        tx.commit().await?;
        Ok(after.store)
    }

    /// Archives a store, which then refuses new content.
    ///
    /// Idempotent: an archived store is unchanged.
    pub async fn archive(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &AuditedAction,
    ) -> Result<Store, ChangeError> {
        let mut tx = self.0.write("archive_store", Role::Tenant(tenant_id)).await?;
        let before = lock(&mut tx, tenant_id, store_id).await?;
        let after = before.archived(audited.at);
        replace(&mut tx, tenant_id, &before, &after).await?;
        if after != before {
            let (action, object) = (AuditAction::StoreArchived, AuditObject::new(store_id.uuid()));
            audit::record(&mut tx, tenant_id, audited, action, object).await?;
        }
        tx.commit().await?;
        Ok(after.store)
    }
}

/// Takes the lock of a store's commits, also of a deleted store.
pub(crate) async fn lock_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<(), IndexError> {
    tx.execute_on_postgres(LOCK, (tenant_id, store_id)).await
}

/// Locks a store against commits until the end of the transaction; `None`: no such
/// store.
pub(crate) async fn lock_live_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreState>, IndexError> {
    let query = tx.query_locking(LIVE, RowLock::NoKeyUpdate);
    query.bind((tenant_id, store_id)).optional().await
}

/// Finds a store that is not deleted, and takes the lock of its commits.
async fn lock(tx: &mut Tx, tenant_id: TenantId, store_id: StoreId) -> Result<StoredStore, ChangeError> {
    let query = tx.query_locking(FIND, RowLock::NoKeyUpdate).bind((tenant_id, store_id));
    query.optional().await?.ok_or(ChangeError::NotFound(ObjectKind::Store))
}

async fn insert(tx: &mut Tx, tenant_id: TenantId, store: &Store) -> Result<(), IndexError> {
    tx.query(COUNT_ONE_MORE).bind(tenant_id).execute().await?;
    let period_set_at = store.expires_unused_after.map(|_| store.created_at.as_micros());
    tx.query(INSERT)
        .bind(tenant_id)
        .bind(store.store_id)
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.policy.name())
        .bind(store.expires_unused_after)
        .bind(period_set_at)
        .bind(store.created_at)
        .bind(store.forked_from.as_ref().map(Json))
        .bind(store.records_reads.then_some(store.created_at))
        .bind(store.search_mode.map(SearchMode::name))
        .execute()
        .await?;
    let query = tx.query(INSERT_ROOT).bind((tenant_id, store.store_id));
    query.execute().await?;
    Ok(())
}

/// Writes the fields of a store; does nothing if no field changed.
async fn replace(
    tx: &mut Tx,
    tenant_id: TenantId,
    before: &StoredStore,
    after: &StoredStore,
) -> Result<(), IndexError> {
    if before == after {
        return Ok(());
    }
    let StoredStore { store, period_set_at, reads_from } = after;
    tx.query(UPDATE)
        .bind(tenant_id)
        .bind(store.store_id)
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.policy.name())
        .bind(store.expires_unused_after)
        .bind(*period_set_at)
        .bind(store.updated_at)
        .bind(store.archived_at)
        .bind(*reads_from)
        .bind(store.search_mode.map(SearchMode::name))
        .execute()
        .await?;
    Ok(())
}
