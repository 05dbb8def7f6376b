//! Stores of a tenant: infrequent operations, each in a transaction.

use async_trait::async_trait;
use keepsake_core::{SensitiveDataPolicy, StoreId, TenantId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::{audit, audit_within_quota};
use super::pool::Tx;
use super::reads::earlier_call;
use crate::commit::{CallMade, Idempotency};
use crate::database::Role;
use crate::model::{
    AuditAction, AuditObject, Audited, Grant, NewStore, Store, StoreChange, StoreCreation, StoreListing,
    StoreUpdate,
};
use crate::numbers::{signed, unsigned};
use crate::statements::{INSERT_ROOT, INSERT_STORE, RECORD_CALL, STORE, UPDATE_STORE};
use crate::updates::StoreRow;
use crate::{IndexError, StoreIndex, grants};

/// A tenant's number of stores, with a lock against concurrent creations; no row
/// for a tenant that is being deleted.
const LOCK_COUNT: &str = "SELECT store_count FROM tenant \
    WHERE tenant_id = $1 AND status <> 'deleting' FOR NO KEY UPDATE";

/// Selects a store and takes the lock of its commits.
const LOCK_STORE: &str = "SELECT store_id, name, description, metadata, policy, expires_unused_after, \
    memory_count, live_bytes, created_at, updated_at, archived_at, period_set_at FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE";

/// Selects stores of a tenant, newest first, after a creation time and an id.
const LIST_STORES: &str = "SELECT store_id, name, description, metadata, policy, expires_unused_after, \
    memory_count, live_bytes, created_at, updated_at, archived_at, period_set_at FROM store \
    WHERE tenant_id = $1 AND created_at >= $2 AND created_at <= $3 AND (created_at, store_id) < ($4, $5) \
    AND deleted_at IS NULL AND ($6 OR archived_at IS NULL) AND ($7 IS NULL OR store_id = ANY($7)) \
    ORDER BY created_at DESC, store_id DESC LIMIT $8";

#[async_trait]
impl StoreIndex for PostgresIndex {
    async fn create_store(
        &self,
        tenant_id: TenantId,
        store: &NewStore,
        stores_limit: u64,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<StoreCreation, IndexError> {
        let mut transaction = self.begin_as(Role::of_auditor(tenant_id, &audited.by)).await?;
        let count: Option<i64> = sqlx::query_scalar(LOCK_COUNT)
            .bind(tenant_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(count) = count.map(unsigned) else {
            return Ok(StoreCreation::NoTenant);
        };
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_store(call) {
                Some(store_id) => StoreCreation::Replayed { store_id },
                None => StoreCreation::KeyReused,
            });
        }
        if count >= stores_limit {
            return Ok(StoreCreation::TooMany { count });
        }
        insert_store(&mut transaction, tenant_id, store).await?;
        let (store_id, at) = (store.store_id, store.created_at);
        record_call(
            &mut transaction,
            tenant_id,
            CallMade::store(store_id),
            idempotency,
            at,
        )
        .await?;
        tell(&mut transaction, "store", tenant_id, Some(store_id.uuid()), at).await?;
        let (action, object) = (AuditAction::StoreCreated, AuditObject::new(store_id.uuid()));
        if let Err(refusal) = audit_within_quota(&mut transaction, tenant_id, audited, action, object).await?
        {
            return Ok(StoreCreation::OverQuota(refusal));
        }
        transaction.commit().await?;
        Ok(StoreCreation::Created)
    }

    async fn list_stores(
        &self,
        tenant_id: TenantId,
        listing: &StoreListing,
    ) -> Result<Vec<Store>, IndexError> {
        let (before, before_id) = listing
            .after
            .map_or((i64::MAX, Uuid::max()), |(created_at, store_id)| {
                (created_at.as_micros(), store_id.uuid())
            });
        let only = listing.only.as_ref();
        let only: Option<Vec<_>> = only.map(|only| only.iter().map(|store_id| store_id.uuid()).collect());
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(LIST_STORES)
            .bind(tenant_id.uuid())
            .bind(listing.created_from.map_or(i64::MIN, Timestamp::as_micros))
            .bind(listing.created_to.map_or(i64::MAX, Timestamp::as_micros))
            .bind(before)
            .bind(before_id)
            .bind(listing.include_archived)
            .bind(only)
            .bind(i64::from(listing.limit))
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        rows.iter().map(|row| Ok(store_of(row)?.store)).collect()
    }

    async fn update_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        change: &StoreChange,
        idempotency: Option<&Idempotency>,
        audited: &Audited,
    ) -> Result<StoreUpdate, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let Some(row) = lock_store(&mut transaction, tenant_id, store_id).await? else {
            return Ok(StoreUpdate::NoStore);
        };
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_store(call) {
                Some(same) if same == store_id => StoreUpdate::Replayed(row.store),
                _ => StoreUpdate::KeyReused,
            });
        }
        if row.store.archived_at.is_some() {
            return Ok(StoreUpdate::Archived);
        }
        let changed = match row.changed(change) {
            Ok(changed) => changed,
            Err(count) => return Ok(StoreUpdate::TooManyPairs { count }),
        };
        replace_store(&mut transaction, tenant_id, &row, &changed, change.now).await?;
        record_call(
            &mut transaction,
            tenant_id,
            CallMade::store(store_id),
            idempotency,
            change.now,
        )
        .await?;
        if let Some(action) = changed.change_since(&row) {
            let object = AuditObject::new(store_id.uuid());
            if let Err(refusal) =
                audit_within_quota(&mut transaction, tenant_id, audited, action, object).await?
            {
                return Ok(StoreUpdate::OverQuota(refusal));
            }
        }
        transaction.commit().await?;
        Ok(StoreUpdate::Done(changed.store))
    }

    async fn archive_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        audited: &Audited,
    ) -> Result<Option<Store>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let Some(row) = lock_store(&mut transaction, tenant_id, store_id).await? else {
            return Ok(None);
        };
        let archived = row.archived(audited.at);
        replace_store(&mut transaction, tenant_id, &row, &archived, audited.at).await?;
        if archived != row {
            let (action, object) = (AuditAction::StoreArchived, AuditObject::new(store_id.uuid()));
            audit(&mut transaction, tenant_id, audited, action, object).await?;
        }
        transaction.commit().await?;
        Ok(Some(archived.store))
    }

    async fn store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<Option<Store>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let row = sqlx::query(STORE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        transaction.commit().await?;
        row.map(|row| Ok(store_of(&row)?.store)).transpose()
    }

    async fn grant_bytes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        needed_bytes: u64,
        tenant_limit_bytes: u64,
    ) -> Result<Grant, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let granted: Option<i64> =
            sqlx::query_scalar("SELECT granted_bytes FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE")
                .bind(tenant_id.uuid())
                .fetch_optional(&mut *transaction)
                .await?;
        let Some(tenant_granted) = granted.map(unsigned) else {
            return Ok(Grant::NoStore);
        };
        let own: Option<i64> = sqlx::query_scalar(
            "SELECT granted_bytes FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(own) = own.map(unsigned) else {
            return Ok(Grant::NoStore);
        };
        let mut account = grants::Account {
            own,
            others: tenant_granted.saturating_sub(own),
        };
        if account.must_recall(needed_bytes, tenant_limit_bytes) {
            account.others = recall(&mut transaction, tenant_id, store_id).await?;
        }
        let Some(new_grant) = account.grant(needed_bytes, tenant_limit_bytes) else {
            // A recalled grant stays recalled, because it was unused.
            set_grants(
                &mut transaction,
                tenant_id,
                store_id,
                account.own,
                account.total(),
            )
            .await?;
            transaction.commit().await?;
            return Ok(Grant::Refused {
                wanted_bytes: account.others.saturating_add(needed_bytes),
            });
        };
        account.own = new_grant;
        set_grants(
            &mut transaction,
            tenant_id,
            store_id,
            account.own,
            account.total(),
        )
        .await?;
        transaction.commit().await?;
        Ok(Grant::Granted)
    }
}

async fn insert_store(transaction: &mut Tx, tenant_id: TenantId, store: &NewStore) -> Result<(), IndexError> {
    sqlx::query("UPDATE tenant SET store_count = store_count + 1 WHERE tenant_id = $1")
        .bind(tenant_id.uuid())
        .execute(&mut **transaction)
        .await?;
    let period_set_at = store.expires_unused_after.map(|_| store.created_at.as_micros());
    sqlx::query(INSERT_STORE)
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .bind(&store.name)
        .bind(&store.description)
        .bind(Json(&store.metadata))
        .bind(store.policy.name())
        .bind(store.expires_unused_after.map(signed))
        .bind(period_set_at)
        .bind(store.created_at.as_micros())
        .execute(&mut **transaction)
        .await?;
    sqlx::query(INSERT_ROOT)
        .bind(tenant_id.uuid())
        .bind(store.store_id.uuid())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Recalls the unused grants of the tenant's other stores; returns the sum of their
/// remaining grants.
async fn recall(transaction: &mut Tx, tenant_id: TenantId, store_id: StoreId) -> Result<u64, IndexError> {
    // Ordered by id, so that concurrent transactions cannot deadlock: two recalls of
    // one tenant (which the lock on the tenant's row excludes already), or a recall
    // and the deletion of a store.
    sqlx::query(
        "SELECT store_id FROM store WHERE tenant_id = $1 AND (store_id = $2 OR granted_bytes > live_bytes) \
         ORDER BY store_id FOR NO KEY UPDATE",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .execute(&mut **transaction)
    .await?;
    sqlx::query(
        "UPDATE store SET granted_bytes = live_bytes \
         WHERE tenant_id = $1 AND store_id <> $2 AND granted_bytes > live_bytes",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .execute(&mut **transaction)
    .await?;
    let others: i64 = sqlx::query_scalar(
        "SELECT coalesce(sum(granted_bytes), 0)::bigint FROM store WHERE tenant_id = $1 AND store_id <> $2",
    )
    .bind(tenant_id.uuid())
    .bind(store_id.uuid())
    .fetch_one(&mut **transaction)
    .await?;
    Ok(unsigned(others))
}

async fn set_grants(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    store_bytes: u64,
    tenant_bytes: u64,
) -> Result<(), IndexError> {
    sqlx::query("UPDATE store SET granted_bytes = $3 WHERE tenant_id = $1 AND store_id = $2")
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(i64::try_from(store_bytes).unwrap_or(i64::MAX))
        .execute(&mut **transaction)
        .await?;
    sqlx::query("UPDATE tenant SET granted_bytes = $2 WHERE tenant_id = $1")
        .bind(tenant_id.uuid())
        .bind(i64::try_from(tenant_bytes).unwrap_or(i64::MAX))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

async fn lock_store(
    transaction: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreRow>, IndexError> {
    let row = sqlx::query(LOCK_STORE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    row.map(|row| store_of(&row)).transpose()
}

/// Writes the changed fields of a store, and an entry of the change feed; writes
/// nothing if no field changed.
async fn replace_store(
    transaction: &mut Tx,
    tenant_id: TenantId,
    before: &StoreRow,
    after: &StoreRow,
    now: Timestamp,
) -> Result<(), IndexError> {
    if before == after {
        return Ok(());
    }
    let StoreRow { store, period_set_at } = after;
    sqlx::query(UPDATE_STORE)
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
        .execute(&mut **transaction)
        .await?;
    tell(transaction, "store", tenant_id, Some(store.store_id.uuid()), now).await
}

/// Records a call that created or changed an object, if the call is idempotent.
pub(super) async fn record_call(
    transaction: &mut Tx,
    tenant_id: TenantId,
    made: CallMade,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> Result<(), IndexError> {
    let Some(call) = idempotency else {
        return Ok(());
    };
    sqlx::query(RECORD_CALL)
        .bind(tenant_id.uuid())
        .bind(call.scope_sha256.as_slice())
        .bind(call.request_sha256.as_slice())
        .bind(made.object_id)
        .bind(made.store_id.map(StoreId::uuid))
        .bind(made.version_seq)
        .bind(at.as_micros())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Reads a store's row, in the order of the columns of [`STORE`].
fn store_of(row: &PgRow) -> Result<StoreRow, IndexError> {
    let store = Store {
        store_id: StoreId::from_uuid(row.try_get(0)?),
        name: row.try_get(1)?,
        description: row.try_get(2)?,
        metadata: row.try_get::<Json<_>, _>(3)?.0,
        policy: SensitiveDataPolicy::parse(row.try_get(4)?).ok_or(IndexError::Corrupt {
            table: "store",
            what: "unknown policy",
        })?,
        expires_unused_after: row.try_get::<Option<i64>, _>(5)?.map(unsigned),
        memory_count: unsigned(row.try_get(6)?),
        live_bytes: unsigned(row.try_get(7)?),
        created_at: Timestamp::from_micros(row.try_get(8)?),
        updated_at: Timestamp::from_micros(row.try_get(9)?),
        archived_at: row.try_get::<Option<i64>, _>(10)?.map(Timestamp::from_micros),
    };
    let period_set_at = row.try_get::<Option<i64>, _>(11)?.map(Timestamp::from_micros);
    Ok(StoreRow { store, period_set_at })
}

/// Writes an entry of the change feed, in the transaction of the change.
pub(super) async fn tell(
    transaction: &mut Tx,
    kind: &str,
    tenant_id: TenantId,
    object_id: Option<Uuid>,
    at: Timestamp,
) -> Result<(), IndexError> {
    sqlx::query("INSERT INTO change_feed (at, kind, tenant_id, object_id) VALUES ($1, $2, $3, $4)")
        .bind(at.as_micros())
        .bind(kind)
        .bind(tenant_id.uuid())
        .bind(object_id)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
