//! Erasures: requests of tenants, and steps of the jobs.

mod step;

use async_trait::async_trait;
use keepsake_core::{BlobKey, ErasureId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::PostgresIndex;
use super::audit::audit;
use super::pool::Tx;
use super::purge::PLAN_ANEW;
use super::reads::earlier_call;
use super::stores::record_call;
use super::tenants::stays;
use crate::commit::{CallMade, Idempotency};
use crate::erasure::{
    ErasedBlobs, Erasure, ErasureCreation, ErasureListing, ErasureState, MAX_OPEN_ERASURES, NewErasure, Open,
    Progress, Receipt, RowsErased, Selector, advance,
};
use crate::model::{AuditAction, AuditObject, Audited};
use crate::numbers::unsigned;
use crate::statements::{
    COUNT_ERASURE, COUNT_OPEN_ERASURES, END_ERASURE, ERASURE, FAIL_ERASURE, INSERT_ERASURE, MOVE_ERASURE,
    OPEN_ERASURES, QUEUED_BLOBS, STORE_TO_ERASE,
};
use crate::{ErasureIndex, IndexError};
use step::Step;

/// Selects a tenant's stores that have all of these metadata pairs.
const STORES_WITH: &str =
    "SELECT store_id FROM store WHERE tenant_id = $1 AND metadata @> $2 ORDER BY store_id";

/// Selects erasures of a tenant, newest first, for all or some stores.
const LIST_ERASURES: &str = "SELECT id, kind, store_id, state, counts, created_at, started_at, ended_at, \
    attempts, error FROM erasure WHERE tenant_id = $1 AND id < $2 \
    AND ($3::uuid[] IS NULL OR store_id = ANY($3)) ORDER BY id DESC LIMIT $4";

/// Locks an open erasure for its worker.
const LOCK_ERASURE: &str = "SELECT selector, cursor, counts FROM erasure \
    WHERE tenant_id = $1 AND id = $2 AND ended_at IS NULL FOR UPDATE";

/// Whether this erasure, or another one in the same stores, has queued blobs that
/// are not deleted yet.
const HAS_BLOBS_LEFT: &str = "SELECT EXISTS (SELECT FROM blob_deletion WHERE erasure_id = $2) \
    OR EXISTS (SELECT FROM blob_deletion WHERE tenant_id = $1 AND store_id = ANY($3) AND erasure_id IS NOT NULL)";

/// Selects the blobs of a store, out of the given ones, that are neither referenced
/// by a version nor queued.
const FORGOTTEN_BLOBS: &str = "SELECT b.blob_id FROM unnest($3::uuid[]) AS b(blob_id) \
    WHERE NOT EXISTS (SELECT FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.version_id = b.blob_id AND v.blob_id = b.blob_id) \
        AND NOT EXISTS (SELECT FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.blob_id = b.blob_id AND v.blob_id <> v.version_id) \
        AND NOT EXISTS (SELECT FROM blob_deletion d WHERE d.tenant_id = $1 AND d.store_id = $2 \
            AND d.blob_id = b.blob_id)";

#[async_trait]
impl ErasureIndex for PostgresIndex {
    async fn create_erasure(
        &self,
        tenant_id: TenantId,
        erasure: &NewErasure,
        idempotency: Option<&Idempotency>,
    ) -> Result<ErasureCreation, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        if !stays(&mut transaction, tenant_id).await? {
            return Ok(ErasureCreation::NoTenant);
        }
        if let Some(call) = idempotency
            && let Some(earlier) =
                earlier_call(&mut *transaction, tenant_id, &call.scope_sha256, call.since).await?
        {
            return Ok(match earlier.same_erasure(call) {
                Some(erasure_id) => ErasureCreation::Replayed { erasure_id },
                None => ErasureCreation::KeyReused,
            });
        }
        let open: i64 = sqlx::query_scalar(COUNT_OPEN_ERASURES)
            .bind(tenant_id.uuid())
            .fetch_one(&mut *transaction)
            .await?;
        if unsigned(open) >= MAX_OPEN_ERASURES {
            return Ok(ErasureCreation::TooMany);
        }
        let Some((selector, progress)) = settle(&mut transaction, tenant_id, erasure, idempotency).await?
        else {
            return Ok(ErasureCreation::NoStore);
        };
        let made = CallMade::object(erasure.erasure_id.uuid());
        record_call(&mut transaction, tenant_id, made, idempotency, erasure.audited.at).await?;
        insert(&mut transaction, tenant_id, erasure, &selector, &progress).await?;
        transaction.commit().await?;
        Ok(ErasureCreation::Created)
    }

    async fn erasure(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
    ) -> Result<Option<Erasure>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let row = sqlx::query(ERASURE)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        transaction.commit().await?;
        row.map(|row| erasure_of(&row)).transpose()
    }

    async fn list_erasures(
        &self,
        tenant_id: TenantId,
        listing: &ErasureListing,
    ) -> Result<Vec<Erasure>, IndexError> {
        let only = listing.only.as_ref().map(|only| uuids(only));
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(LIST_ERASURES)
            .bind(tenant_id.uuid())
            .bind(listing.after.map_or(Uuid::max(), ErasureId::uuid))
            .bind(only)
            .bind(i64::from(listing.limit))
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        rows.iter().map(erasure_of).collect()
    }

    async fn open_erasures(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ErasureId)>, IndexError> {
        let rows = sqlx::query(OPEN_ERASURES)
            .bind(now.as_micros())
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
            .await?;
        rows.iter()
            .map(|row| {
                let tenant_id = TenantId::from_uuid(row.try_get(0)?);
                Ok((tenant_id, ErasureId::from_uuid(row.try_get(1)?)))
            })
            .collect()
    }

    async fn erase_rows(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<RowsErased, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        sqlx::query(PLAN_ANEW).execute(&mut *transaction).await?;
        let Some(mut open) = lock(&mut transaction, tenant_id, erasure_id).await? else {
            return Ok(RowsErased {
                is_done: true,
                ..RowsErased::default()
            });
        };
        let mut step = Step {
            transaction: &mut transaction,
            tenant_id,
        };
        advance(&mut step, &mut open, now, limit).await?;
        sqlx::query(MOVE_ERASURE)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(now.as_micros())
            .bind(lease_until.as_micros())
            .bind(open.selects_more())
            .bind(open.progress.to_text()?)
            .bind(Json(&open.receipt))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(open.rows_erased())
    }

    async fn queued_blobs(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        limit: u32,
    ) -> Result<Vec<BlobKey>, IndexError> {
        let rows = sqlx::query(QUEUED_BLOBS)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(i64::from(limit))
            .fetch_all(&self.jobs)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(BlobKey {
                    tenant_id,
                    store_id: StoreId::from_uuid(row.try_get(0)?),
                    blob_id: VersionId::from_uuid(row.try_get(1)?),
                })
            })
            .collect()
    }

    async fn blobs_erased(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        blobs: &ErasedBlobs,
        lease_until: Timestamp,
    ) -> Result<(), IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        let Some(mut open) = lock(&mut transaction, tenant_id, erasure_id).await? else {
            return Ok(());
        };
        let stores: Vec<_> = blobs.keys.iter().map(|key| key.store_id.uuid()).collect();
        let ids: Vec<_> = blobs.keys.iter().map(|key| key.blob_id.uuid()).collect();
        let removed = sqlx::query(
            "DELETE FROM blob_deletion b USING unnest($3::uuid[], $4::uuid[]) AS k(store_id, blob_id) \
             WHERE b.tenant_id = $1 AND b.store_id = k.store_id AND b.blob_id = k.blob_id AND b.erasure_id = $2",
        )
        .bind(tenant_id.uuid())
        .bind(erasure_id.uuid())
        .bind(stores)
        .bind(ids)
        .execute(&mut *transaction)
        .await?;
        open.receipt
            .count_blobs(removed.rows_affected() + blobs.orphans, blobs.object_versions);
        sqlx::query(COUNT_ERASURE)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(lease_until.as_micros())
            .bind(Json(&open.receipt))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn forgotten_blobs(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        blobs: &[VersionId],
    ) -> Result<Vec<VersionId>, IndexError> {
        let blobs = blobs.iter().map(|blob| blob.uuid()).collect::<Vec<_>>();
        let forgotten: Vec<Uuid> = sqlx::query_scalar(FORGOTTEN_BLOBS)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(blobs)
            .fetch_all(&self.jobs)
            .await?;
        Ok(forgotten.into_iter().map(VersionId::from_uuid).collect())
    }

    /// Does nothing: queries cannot see remains of deleted rows in the database files,
    /// and the database's own vacuum reclaims them.
    async fn overwrite_deleted(&self) -> Result<(), IndexError> {
        Ok(())
    }

    /// Does nothing: the database's operator manages its log.
    async fn empty_log(&self) -> Result<bool, IndexError> {
        Ok(true)
    }

    async fn erasure_failed(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        error: &'static str,
        retry_at: Timestamp,
    ) -> Result<(), IndexError> {
        sqlx::query(FAIL_ERASURE)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(error)
            .bind(retry_at.as_micros())
            .execute(&self.jobs)
            .await?;
        Ok(())
    }

    async fn finish_erasure(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        audited: &Audited,
    ) -> Result<bool, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        let Some(mut open) = lock(&mut transaction, tenant_id, erasure_id).await? else {
            return Ok(false);
        };
        let has_blobs: bool = sqlx::query_scalar(HAS_BLOBS_LEFT)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(uuids(&open.receipt.memory_store_ids))
            .fetch_one(&mut *transaction)
            .await?;
        if has_blobs || !open.progress.is_done() {
            return Ok(false);
        }
        open.receipt.end(audited.at);
        sqlx::query(END_ERASURE)
            .bind(tenant_id.uuid())
            .bind(erasure_id.uuid())
            .bind(audited.at.as_micros())
            .bind(Json(&open.receipt))
            .execute(&mut *transaction)
            .await?;
        let object = AuditObject::new(erasure_id.uuid());
        audit(
            &mut transaction,
            tenant_id,
            audited,
            AuditAction::ErasureFinished,
            object,
        )
        .await?;
        transaction.commit().await?;
        Ok(true)
    }
}

/// The selection of a request, and the cursor at the start of its work; `None`: the
/// store does not exist.
async fn settle(
    transaction: &mut Tx,
    tenant_id: TenantId,
    erasure: &NewErasure,
    call: Option<&Idempotency>,
) -> Result<Option<(Selector, Progress)>, IndexError> {
    let scope = call.map(|call| &call.scope_sha256);
    if let Selector::StoreMetadata(pairs) = &erasure.selector {
        let stores: Vec<Uuid> = sqlx::query_scalar(STORES_WITH)
            .bind(tenant_id.uuid())
            .bind(Json(pairs))
            .fetch_all(&mut **transaction)
            .await?;
        let stores = stores.into_iter().map(StoreId::from_uuid).collect();
        let progress = Progress::new(stores, true, 0, scope);
        return Ok(Some((erasure.selector.clone(), progress)));
    }
    let Some(store_id) = erasure.selector.store_id() else {
        return Ok(None);
    };
    let row = sqlx::query(STORE_TO_ERASE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let (seq, is_deleted) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Some(Progress::of_store(
        &erasure.selector,
        store_id,
        seq,
        is_deleted,
        scope,
    )))
}

async fn insert(
    transaction: &mut Tx,
    tenant_id: TenantId,
    erasure: &NewErasure,
    selector: &Selector,
    progress: &Progress,
) -> Result<(), IndexError> {
    sqlx::query(INSERT_ERASURE)
        .bind(tenant_id.uuid())
        .bind(erasure.erasure_id.uuid())
        .bind(Json(selector))
        .bind(progress.to_text()?)
        .bind(Json(progress.receipt()))
        .bind(erasure.audited.at.as_micros())
        .bind(erasure.selector.kind())
        .bind(erasure.selector.store_id().map(StoreId::uuid))
        .execute(&mut **transaction)
        .await?;
    let object = AuditObject::new(erasure.erasure_id.uuid());
    audit(
        transaction,
        tenant_id,
        &erasure.audited,
        AuditAction::ErasureCreated,
        object,
    )
    .await
}

async fn lock(
    transaction: &mut Tx,
    tenant_id: TenantId,
    erasure_id: ErasureId,
) -> Result<Option<Open>, IndexError> {
    let row = sqlx::query(LOCK_ERASURE)
        .bind(tenant_id.uuid())
        .bind(erasure_id.uuid())
        .fetch_optional(&mut **transaction)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let selector: Option<Json<Selector>> = row.try_get(0)?;
    let receipt: Option<Json<Receipt>> = row.try_get(2)?;
    let open = Open::of(
        erasure_id,
        selector.map(|selector| selector.0),
        row.try_get(1)?,
        receipt.map(|receipt| receipt.0),
    );
    open.map(Some)
}

fn erasure_of(row: &PgRow) -> Result<Erasure, IndexError> {
    let time =
        |column| Ok::<_, IndexError>(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_micros));
    let receipt: Option<Json<Receipt>> = row.try_get(4)?;
    Ok(Erasure {
        erasure_id: ErasureId::from_uuid(row.try_get(0)?),
        kind: row.try_get::<Option<String>, _>(1)?.unwrap_or_default(),
        store_id: row.try_get::<Option<Uuid>, _>(2)?.map(StoreId::from_uuid),
        state: ErasureState::parse(row.try_get(3)?).ok_or(IndexError::Corrupt {
            table: "erasure",
            what: "unknown state",
        })?,
        receipt: receipt.map(|receipt| receipt.0).unwrap_or_default(),
        created_at: Timestamp::from_micros(row.try_get(5)?),
        started_at: time(6)?,
        ended_at: time(7)?,
        failed_attempts: unsigned(row.try_get(8)?),
        error: row.try_get(9)?,
    })
}

fn uuids(stores: &[StoreId]) -> Vec<Uuid> {
    stores.iter().map(|store_id| store_id.uuid()).collect()
}
