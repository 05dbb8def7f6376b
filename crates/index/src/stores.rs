//! Stores of a tenant.

mod change;

use keepsake_core::{SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use serde_json::{Map, Value};
use sqlx::types::Json;
use uuid::Uuid;

use self::change::StoredStore;
use crate::calls::{earlier_call, record_call};
use crate::change_feed::announce;
use crate::commit::{CallMade, Idempotency};
use crate::database::{Database, Role, RowLock, Tx};
use crate::model::{
    AuditAction, AuditObject, Audited, NewStore, Store, StoreChange, StoreCreation, StoreListing, StoreUpdate,
};
use crate::numbers::{signed, unsigned};
use crate::{IndexError, audit};

/// A tenant's number of stores; no row for a tenant that is being deleted.
const COUNT: &str = "SELECT store_count FROM tenant WHERE tenant_id = $1 AND status <> 'deleting'";

const COUNT_ONE_MORE: &str = "UPDATE tenant SET store_count = store_count + 1 WHERE tenant_id = $1";

const INSERT: &str = "INSERT INTO store (tenant_id, store_id, name, description, metadata, policy, \
    expires_unused_after, period_set_at, created_at, updated_at, seq, last_version_at, purge_epoch, memory_count, \
    live_bytes, granted_bytes, version_count, version_bytes, retention_seq) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, 0, 0, 0, 0, 0, 0, 0, 0, 0)";

/// A store always has its root directory.
const INSERT_ROOT: &str = "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, \
    visible_children) VALUES ($1, $2, '/', '/', '', 0, 0, 0)";

pub(crate) const FIND: &str = "SELECT store_id, name, description, metadata, policy, expires_unused_after, \
    memory_count, live_bytes, created_at, updated_at, archived_at, period_set_at FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Stores after a time of creation and an id, newest first.
pub(crate) const LIST: &str = "SELECT store_id, name, description, metadata, policy, expires_unused_after, \
    memory_count, live_bytes, created_at, updated_at, archived_at, period_set_at FROM store \
    WHERE tenant_id = $1 AND created_at >= $2 AND created_at <= $3 AND (created_at, store_id) < ($4, $5) \
    AND deleted_at IS NULL AND ($6 OR archived_at IS NULL) AND ($7 IS NULL OR store_id IN_IDS($7)) \
    ORDER BY created_at DESC, store_id DESC LIMIT $8";

const UPDATE: &str = "UPDATE store SET name = $3, description = $4, metadata = $5, policy = $6, \
    expires_unused_after = $7, period_set_at = $8, updated_at = $9, archived_at = $10 \
    WHERE tenant_id = $1 AND store_id = $2";

const SEQ: &str = "SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2";

/// Stores of one tenant.
#[derive(Debug, Clone)]
pub struct Stores {
    database: Database,
}

#[derive(sqlx::FromRow)]
struct StoreRow {
    store_id: Uuid,
    name: String,
    description: String,
    metadata: Json<Map<String, Value>>,
    policy: String,
    expires_unused_after: Option<i64>,
    memory_count: i64,
    live_bytes: i64,
    created_at: i64,
    updated_at: i64,
    archived_at: Option<i64>,
    period_set_at: Option<i64>,
}

impl Stores {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Creates a store, unless the tenant has `stores_limit` of them.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn create(
        &self,
        tenant_id: TenantId,
        store: &NewStore,
        stores_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<StoreCreation, IndexError> {
        let (store_id, at) = (store.store_id, store.created_at);
        let role = Role::of_auditor(tenant_id, &audited.by);
        let mut tx = self.database.write("create_store", role).await?;
        let query = tx.query_locking(COUNT, RowLock::NoKeyUpdate);
        let count = query.bind(tenant_id.uuid()).optional_scalar().await?;
        let Some(count) = count.map(unsigned) else {
            return Ok(StoreCreation::NoTenant);
        };
        if let Some(call) = idempotency
            && let Some(earlier) = earlier_call(&mut tx, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_store(call) {
                Some(store_id) => StoreCreation::Replayed { store_id },
                None => StoreCreation::KeyReused,
            });
        }
        if count >= stores_limit {
            return Ok(StoreCreation::TooMany { count });
        }
        insert(&mut tx, tenant_id, store).await?;
        record_call(&mut tx, tenant_id, CallMade::store(store_id), idempotency, at).await?;
        announce(&mut tx, "store", tenant_id, Some(store_id.uuid()), at).await?;
        let (action, object) = (AuditAction::StoreCreated, AuditObject::new(store_id.uuid()));
        if let Err(refusal) = audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await? {
            return Ok(StoreCreation::OverQuota(refusal));
        }
        tx.commit().await?;
        Ok(StoreCreation::Created)
    }

    /// Finds a store that is not deleted.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn find(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Option<Store>, IndexError> {
        let mut tx = self.database.read("store", Role::Tenant(tenant_id)).await?;
        let query = tx.query(FIND).bind(tenant_id.uuid()).bind(store_id.uuid());
        let row: Option<StoreRow> = query.optional().await?;
        tx.commit().await?;
        row.map(|row| Ok(row.into_stored()?.store)).transpose()
    }

    /// Lists stores that are not deleted, newest first.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn list(&self, tenant_id: TenantId, listing: &StoreListing) -> Result<Vec<Store>, IndexError> {
        let (before, before_id) = listing
            .after
            .map_or((i64::MAX, Uuid::max()), |(created_at, store_id)| {
                (created_at.as_micros(), store_id.uuid())
            });
        let only = listing.only.as_ref();
        let mut tx = self.database.read("list_stores", Role::Tenant(tenant_id)).await?;
        let rows: Vec<StoreRow> = tx
            .query_with_ids(LIST)
            .bind(tenant_id.uuid())
            .bind(listing.created_from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.created_to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(before)
            .bind(before_id)
            .bind(listing.include_archived)
            .bind_ids(only.map(|only| only.iter().map(|store_id| store_id.uuid()).collect()))
            .bind(i64::from(listing.limit))
            .all()
            .await?;
        tx.commit().await?;
        rows.into_iter().map(|row| Ok(row.into_stored()?.store)).collect()
    }

    /// Changes a store's name, description, metadata, policy and period of expiry.
    ///
    /// `updated_at` changes with the name, description or metadata.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn update(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        change: &StoreChange,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<StoreUpdate, IndexError> {
        let mut tx = self
            .database
            .write("update_store", Role::Tenant(tenant_id))
            .await?;
        let Some(before) = lock(&mut tx, tenant_id, store_id).await? else {
            return Ok(StoreUpdate::NoStore);
        };
        if let Some(call) = idempotency
            && let Some(earlier) = earlier_call(&mut tx, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_store(call) {
                Some(same) if same == store_id => StoreUpdate::Replayed(before.store),
                _ => StoreUpdate::KeyReused,
            });
        }
        if before.store.archived_at.is_some() {
            return Ok(StoreUpdate::Archived);
        }
        let after = match before.changed(change) {
            Ok(after) => after,
            Err(count) => return Ok(StoreUpdate::TooManyPairs { count }),
        };
        replace(&mut tx, tenant_id, &before, &after, change.now).await?;
        let call = CallMade::store(store_id);
        record_call(&mut tx, tenant_id, call, idempotency, change.now).await?;
        if let Some(action) = after.change_since(&before) {
            let object = AuditObject::new(store_id.uuid());
            let recorded = audit::record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
            if let Err(refusal) = recorded {
                return Ok(StoreUpdate::OverQuota(refusal));
            }
        }
        tx.commit().await?;
        Ok(StoreUpdate::Done(after.store))
    }

    /// Archives a store, which then refuses new content; `None`: no such store.
    ///
    /// Idempotent: an archived store is unchanged.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn archive(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &Audited,
    ) -> Result<Option<Store>, IndexError> {
        let mut tx = self
            .database
            .write("archive_store", Role::Tenant(tenant_id))
            .await?;
        let Some(before) = lock(&mut tx, tenant_id, store_id).await? else {
            return Ok(None);
        };
        let after = before.archived(audited.at);
        replace(&mut tx, tenant_id, &before, &after, audited.at).await?;
        if after != before {
            let (action, object) = (AuditAction::StoreArchived, AuditObject::new(store_id.uuid()));
            audit::record(&mut tx, tenant_id, audited, action, object).await?;
        }
        tx.commit().await?;
        Ok(Some(after.store))
    }
}

impl StoreRow {
    fn into_stored(self) -> Result<StoredStore, IndexError> {
        let store = Store {
            store_id: StoreId::from_uuid(self.store_id),
            name: self.name,
            description: self.description,
            metadata: self.metadata.0,
            policy: SensitiveDataPolicy::parse(&self.policy).ok_or(IndexError::Corrupt {
                table: "store",
                what: "unknown policy",
            })?,
            expires_unused_after: self.expires_unused_after.map(unsigned),
            memory_count: unsigned(self.memory_count),
            live_bytes: unsigned(self.live_bytes),
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: Timestamp::from_micros(self.updated_at),
            archived_at: self.archived_at.map(Timestamp::from_micros),
        };
        let period_set_at = self.period_set_at.map(Timestamp::from_micros);
        Ok(StoredStore { store, period_set_at })
    }
}

/// Takes the lock of a store's commits, also of a deleted store.
pub(crate) async fn lock_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<(), IndexError> {
    if tx.is_postgres() {
        let query = tx.query_locking(SEQ, RowLock::NoKeyUpdate).bind(tenant_id.uuid());
        query.bind(store_id.uuid()).execute().await?;
    }
    Ok(())
}

/// Finds a store that is not deleted, and takes the lock of its commits.
async fn lock(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoredStore>, IndexError> {
    let query = tx
        .query_locking(FIND, RowLock::NoKeyUpdate)
        .bind(tenant_id.uuid());
    let row: Option<StoreRow> = query.bind(store_id.uuid()).optional().await?;
    row.map(StoreRow::into_stored).transpose()
}

async fn insert(tx: &mut Tx, tenant_id: TenantId, store: &NewStore) -> Result<(), IndexError> {
    tx.query(COUNT_ONE_MORE).bind(tenant_id.uuid()).execute().await?;
    let period_set_at = store.expires_unused_after.map(|_| store.created_at.as_micros());
    tx.query(INSERT)
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.policy.name())
        .bind(store.expires_unused_after.map(signed))
        .bind(period_set_at)
        .bind(store.created_at.as_micros())
        .execute()
        .await?;
    let query = tx.query(INSERT_ROOT).bind(tenant_id.uuid());
    query.bind(store.store_id.uuid()).execute().await?;
    Ok(())
}

/// Writes the fields of a store that changed, and announces the change; does nothing
/// if no field changed.
async fn replace(
    tx: &mut Tx,
    tenant_id: TenantId,
    before: &StoredStore,
    after: &StoredStore,
    now: Timestamp,
) -> Result<(), IndexError> {
    if before == after {
        return Ok(());
    }
    let StoredStore { store, period_set_at } = after;
    tx.query(UPDATE)
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.policy.name())
        .bind(store.expires_unused_after.map(signed))
        .bind(period_set_at.map(Timestamp::as_micros))
        .bind(store.updated_at.as_micros())
        .bind(store.archived_at.map(Timestamp::as_micros))
        .execute()
        .await?;
    announce(tx, "store", tenant_id, Some(store.store_id.uuid()), now).await
}
