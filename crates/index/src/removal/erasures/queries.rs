//! Erasures in the database.

use std::time::Duration;

use keepsake_core::schemas::ErasureType;
use keepsake_core::{BlobKey, ErasureId, ObjectKind, Refused, StoreId, TenantId, Timestamp, VersionId};
use serde_json::{Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use super::super::{IS_UNREFERENCED, STORE, StoreRow, begin_removal};
use super::steps::{Progress, Step};
use super::{
    Backups, ErasedBlobs, Erasure, ErasureListing, ErasureReceipt, ErasureState, MAX_OPEN_ERASURES,
    NewErasure, RowsErased, Selector, SelectorKind,
};
use crate::calls::{CallObject, earlier_object, record_call};
use crate::database::{
    Database, FromRow, Ids, Mode, Role, Row, RowLock, Tx, from_row, json_columns, named_columns, selects,
};
use crate::model::{AuditAction, AuditObject, AuditedAction, Idempotency};
use crate::numbers::{hex, unsigned};
use crate::tenants::lock_live_tenant;
use crate::{ChangeError, IndexError, audit};

selects! {
    "id, kind, store_id, state, counts, created_at, started_at, ended_at, attempts, error \
        FROM erasure WHERE tenant_id = $1 AND";
    const FIND = "id = $2";
    /// Erasures of a tenant, newest first, for all or some stores.
    const LIST = "id < $2 AND ($3 IS NULL OR store_id IN_IDS($3)) ORDER BY id DESC LIMIT $4 + 0";
}

const COUNT_OPEN: &str = "SELECT count(*) FROM erasure WHERE tenant_id = $1 AND ended_at IS NULL";

const INSERT: &str = "INSERT INTO erasure (tenant_id, id, selector, state, cursor, counts, created_at, kind, store_id) \
    VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8)";

/// A tenant's stores that have all of these metadata pairs.
const STORES_WITH: [&str; 2] = [
    "SELECT store_id FROM store WHERE tenant_id = $1 AND metadata @> $2 ORDER BY store_id",
    "SELECT s.store_id FROM store s WHERE s.tenant_id = $1 AND NOT EXISTS ( \
        SELECT 1 FROM json_each($2) wanted WHERE NOT EXISTS (SELECT 1 FROM json_each(s.metadata) pair \
            WHERE pair.key = wanted.key AND pair.type = wanted.type AND pair.atom = wanted.atom)) ORDER BY s.store_id",
];

/// Of each tenant the oldest open erasure that no worker holds. A lease that ends after `$3` was taken by a clock
/// that was ahead, and does not count.
const OPEN: &str = "SELECT tenant_id, id FROM (SELECT tenant_id, id, created_at, \
        row_number() OVER (PARTITION BY tenant_id ORDER BY created_at, id) AS place \
    FROM erasure WHERE ended_at IS NULL \
        AND (lease_until IS NULL OR lease_until <= $1 OR lease_until > $3)) waiting \
    WHERE place = 1 ORDER BY created_at LIMIT $2 + 0";

const WORK: &str = "SELECT selector, cursor, counts FROM erasure \
    WHERE tenant_id = $1 AND id = $2 AND ended_at IS NULL";

const MOVE: &str = "UPDATE erasure SET state = 'running', started_at = coalesce(started_at, $3), lease_until = $4, \
    selector = CASE WHEN $5 THEN selector END, cursor = $6, counts = $7 WHERE tenant_id = $1 AND id = $2";

const COUNT: &str = "UPDATE erasure SET lease_until = $3, counts = $4 WHERE tenant_id = $1 AND id = $2";

const FAIL: &str = "UPDATE erasure SET attempts = attempts + 1, error = $3, lease_until = $4 \
    WHERE tenant_id = $1 AND id = $2 AND ended_at IS NULL";

const FINISH: &str = "UPDATE erasure SET state = 'done', ended_at = $3, counts = $4, selector = NULL, \
    cursor = NULL, lease_until = NULL, error = NULL WHERE tenant_id = $1 AND id = $2";

const QUEUED_BLOBS: &str = "SELECT tenant_id, store_id, blob_id FROM blob_deletion WHERE erasure_id = $2 AND tenant_id = $1 LIMIT $3 + 0";

const DELETE_QUEUED: [&str; 2] = [
    "DELETE FROM blob_deletion b USING jsonb_to_recordset($3::jsonb) AS k(store_id uuid, blob_id uuid) \
    WHERE b.tenant_id = $1 AND b.store_id = k.store_id AND b.blob_id = k.blob_id AND b.erasure_id = $2",
    "DELETE FROM blob_deletion WHERE tenant_id = $1 AND erasure_id = $2 AND (store_id, blob_id) IN \
        (SELECT unhex(k.value ->> 'store_id'), unhex(k.value ->> 'blob_id') FROM json_each($3) k)",
];

/// Whether this erasure, or another one in the same stores, has queued blobs that
/// are not deleted yet.
const HAS_QUEUED: &str = "SELECT EXISTS (SELECT 1 FROM blob_deletion WHERE erasure_id = $2 AND tenant_id = $1) \
    OR EXISTS (SELECT 1 FROM blob_deletion WHERE tenant_id = $1 AND store_id IN_IDS($3) AND erasure_id IS NOT NULL)";

#[derive(Debug, Clone)]
pub struct Erasures(pub(crate) Database);

struct WorkRow {
    selector: Option<Selector>,
    cursor: Option<String>,
    counts: ErasureReceipt,
}

json_columns!(ErasureReceipt, Selector);
named_columns!(ErasureState, SelectorKind);

from_row!(WorkRow { selector, cursor, counts });

impl FromRow for Erasure {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let ErasureReceipt { memory_store_ids, removed, object_versions, steps } = row.get("counts")?;
        Ok(Self {
            erasure_id: row.get("id")?,
            r#type: ErasureType,
            state: row.get("state")?,
            selected_by: row.get("kind")?,
            store_id: row.get("store_id")?,
            memory_store_ids,
            created_at: row.get("created_at")?,
            started_at: row.get("started_at")?,
            ended_at: row.get("ended_at")?,
            failed_attempts: row.get("attempts")?,
            error: row.get("error")?,
            removed,
            object_versions,
            steps,
            backups: Backups::Outside,
        })
    }
}

impl Erasures {
    /// Records an erasure, in one transaction with its audit entry; returns the id of the
    /// erasure that this call recorded, or the same call earlier.
    ///
    /// The affected stores are determined here. A deleted store that is not purged yet
    /// still exists for an erasure.
    pub async fn create(
        &self,
        tenant_id: TenantId,
        erasure: &NewErasure,
        idempotency: Option<&Idempotency>,
    ) -> Result<ErasureId, ChangeError> {
        let mut tx = self.0.write("create_erasure", Role::Tenant(tenant_id)).await?;
        if !lock_live_tenant(&mut tx, tenant_id).await? {
            return Err(ChangeError::NotFound(ObjectKind::Tenant));
        }
        if let Some(earlier) = earlier_object(&mut tx, tenant_id, idempotency).await? {
            return Ok(earlier);
        }
        let open = tx.query(COUNT_OPEN).bind(tenant_id).scalar().await?;
        if unsigned(open) >= MAX_OPEN_ERASURES {
            return Err(Refused::TooManyErasures { maximum: MAX_OPEN_ERASURES }.into());
        }
        let selected = select(&mut tx, tenant_id, &erasure.selector, idempotency).await?;
        let (selector, progress) = selected.ok_or(ChangeError::NotFound(ObjectKind::Store))?;
        let (id, at) = (erasure.erasure_id.uuid(), erasure.audited.at);
        record_call(&mut tx, tenant_id, CallObject::object(id), idempotency, at).await?;
        tx.query(INSERT)
            .bind(tenant_id)
            .bind(id)
            .bind(Json(&selector))
            .bind(progress.to_text()?)
            .bind(Json(progress.receipt()))
            .bind(at)
            .bind(erasure.selector.kind().name())
            .bind(erasure.selector.store_id())
            .execute()
            .await?;
        let (action, object) = (AuditAction::ErasureCreated, AuditObject::new(id));
        audit::record(&mut tx, tenant_id, &erasure.audited, action, object).await?;
        tx.commit().await?;
        Ok(erasure.erasure_id)
    }

    pub async fn find(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
    ) -> Result<Option<Erasure>, IndexError> {
        self.0.optional("erasure", Role::Tenant(tenant_id), FIND, (tenant_id, erasure_id)).await
    }

    /// Lists erasures, newest first.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        listing: &ErasureListing,
    ) -> Result<Vec<Erasure>, IndexError> {
        let before = listing.after.map_or(Uuid::max(), ErasureId::uuid);
        let values = (tenant_id, before, Ids(listing.only.as_deref()), listing.limit);
        self.0.all_with_lists("list_erasures", Role::Tenant(tenant_id), LIST, values).await
    }

    /// Open erasures that no worker holds, each for `length`: the oldest one of each tenant.
    pub async fn open(
        &self,
        now: Timestamp,
        length: Duration,
        limit: u32,
    ) -> Result<Vec<(TenantId, ErasureId)>, IndexError> {
        self.0.all("open_erasures", Role::Job(None), OPEN, (now, limit, now.plus(2 * length))).await
    }

    /// Deletes the next rows, at most about `limit`, in one transaction.
    ///
    /// Each deletion changes the store's purge epoch. Blobs that become unreferenced
    /// are queued for the erasure, not for the drain. Idempotent when all rows are
    /// deleted, and for a finished erasure.
    pub async fn erase_rows(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<RowsErased, IndexError> {
        let mut tx = self.0.write("erase_rows", Role::Job(None)).await?;
        begin_removal(&mut tx).await?;
        let Some(work) = lock(&mut tx, tenant_id, erasure_id).await? else {
            return Ok(RowsErased { is_done: true, ..RowsErased::default() });
        };
        let mut step = Step {
            tenant_id,
            erasure_id,
            below: work.selector.and_then(|selector| selector.below()),
            progress: Progress::parse(work.cursor)?,
            receipt: work.counts,
            live_memories: None,
            now,
            limit: limit.max(1),
        };
        step.run(&mut tx).await?;
        tx.query(MOVE)
            .bind(tenant_id)
            .bind(erasure_id)
            .bind(now)
            .bind(lease_until)
            .bind(step.progress.selects_more())
            .bind(step.progress.to_text()?)
            .bind(Json(&step.receipt))
            .execute()
            .await?;
        tx.commit().await?;
        Ok(RowsErased { live_memories: step.live_memories, ..step.progress.rows_erased() })
    }

    /// Blobs that an erasure has queued and that no worker has reported as deleted.
    pub async fn queued_blobs(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        limit: u32,
    ) -> Result<Vec<BlobKey>, IndexError> {
        let values = (tenant_id, erasure_id, limit);
        self.0.all("queued_blobs", Role::Job(None), QUEUED_BLOBS, values).await
    }

    /// Removes blobs from the queue and counts each of them once.
    pub async fn blobs_erased(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        blobs: &ErasedBlobs,
        lease_until: Timestamp,
    ) -> Result<(), IndexError> {
        let mut tx = self.0.write("blobs_erased", Role::Job(None)).await?;
        let Some(work) = lock(&mut tx, tenant_id, erasure_id).await? else {
            return Ok(());
        };
        let key =
            |key: &BlobKey| json!({"store_id": hex(key.store_id.uuid()), "blob_id": hex(key.blob_id.uuid())});
        let keys: Value = blobs.keys.iter().map(key).collect();
        let query = tx.query(tx.choose(DELETE_QUEUED)).bind((tenant_id, erasure_id));
        let removed = query.bind(keys.to_string()).execute().await?;
        let mut receipt = work.counts;
        receipt.removed.blobs += removed + blobs.orphans;
        receipt.object_versions.count(blobs.object_versions, removed + blobs.orphans);
        let query = tx.query(COUNT).bind((tenant_id, erasure_id, lease_until));
        query.bind(Json(&receipt)).execute().await?;
        tx.commit().await
    }

    /// The blobs of a store, out of the given ones, that no version references and that
    /// are not queued for deletion. Such blobs were deleted earlier and have no row left.
    pub async fn forgotten_blobs(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        blobs: &[VersionId],
    ) -> Result<Vec<VersionId>, IndexError> {
        let text = format!(
            "SELECT ids.id FROM_IDS($3) WHERE {IS_UNREFERENCED} \
             AND NOT EXISTS (SELECT 1 FROM blob_deletion d WHERE d.tenant_id = $1 AND d.store_id = $2 \
                 AND d.blob_id = ids.id)"
        );
        let mut tx = self.0.read_one("forgotten_blobs", Role::Job(None)).await?;
        tx.query_with_lists(&text).bind((tenant_id, store_id, Ids(Some(blobs)))).scalars().await
    }

    /// Overwrites remains of deleted rows in the database file, if there is one.
    ///
    /// Does nothing on Postgres: queries cannot see remains of deleted rows in its
    /// files, and the database's own vacuum reclaims them.
    pub async fn overwrite_deleted(&self) -> Result<(), IndexError> {
        let Some(index) = self.0.sqlite() else {
            return Ok(());
        };
        self.0.measure("overwrite_deleted", Role::Job(None), Mode::Write, index.vacuum()).await
    }

    /// Empties the log beside the database file, if there is one; `false`: a reader
    /// prevents it now. The operator of a Postgres server manages its log.
    pub async fn empty_log(&self) -> Result<bool, IndexError> {
        let Some(index) = self.0.sqlite() else {
            return Ok(true);
        };
        self.0.measure("empty_log", Role::Job(None), Mode::Write, index.truncate_log()).await
    }

    /// Like [`Erasures::empty_log`], but only if rows were removed for good since the log
    /// was last emptied: by a redaction, a retention, or the deletion of a store or a
    /// tenant.
    pub async fn empty_log_of_removals(&self) -> Result<bool, IndexError> {
        match self.0.sqlite() {
            Some(index) => index.truncate_log_of_removals().await,
            None => Ok(true),
        }
    }

    /// Records a failed attempt; the next attempt is at `retry_at`.
    pub async fn fail(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        error: &'static str,
        retry_at: Timestamp,
    ) -> Result<(), IndexError> {
        let values = (tenant_id, erasure_id, error, retry_at);
        self.0.change("erasure_failed", Role::Job(None), FAIL, values).await.map(drop)
    }

    /// Finishes an erasure without any row or blob left, with its audit entry.
    ///
    /// Returns `false` and changes nothing if something is left, or if the erasure has
    /// already finished. Blobs that another erasure has queued in the same stores count
    /// as left, because that erasure may have deleted rows that this one selects as
    /// well.
    pub async fn finish(
        &self,
        tenant_id: TenantId,
        erasure_id: ErasureId,
        audited: &AuditedAction,
    ) -> Result<bool, IndexError> {
        let mut tx = self.0.write("finish_erasure", Role::Job(None)).await?;
        let Some(work) = lock(&mut tx, tenant_id, erasure_id).await? else {
            return Ok(false);
        };
        let mut receipt = work.counts;
        let values = (tenant_id, erasure_id, Ids(Some(&receipt.memory_store_ids)));
        let has_blobs: bool = tx.query_with_lists(HAS_QUEUED).bind(values).scalar().await?;
        if has_blobs || !Progress::parse(work.cursor)?.is_done() {
            return Ok(false);
        }
        receipt.end(audited.at);
        let query = tx.query(FINISH).bind((tenant_id, erasure_id, audited.at));
        query.bind(Json(&receipt)).execute().await?;
        let (action, object) = (AuditAction::ErasureFinished, AuditObject::new(erasure_id.uuid()));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// The selection of a request, and the cursor at the start of its work; `None`: the
/// store does not exist.
async fn select(
    tx: &mut Tx,
    tenant_id: TenantId,
    selector: &Selector,
    call: Option<&Idempotency>,
) -> Result<Option<(Selector, Progress)>, IndexError> {
    let scope = call.map(|call| &call.scope_sha256);
    if let Selector::StoreMetadata(pairs) = selector {
        let query = tx.query(tx.choose(STORES_WITH)).bind((tenant_id, Json(pairs)));
        let stores = query.scalars().await?;
        return Ok(Some((selector.clone(), Progress::new(stores, true, 0, scope))));
    }
    let Some(store_id) = selector.store_id() else {
        return Ok(None);
    };
    let store: Option<StoreRow> = tx.query(STORE).bind((tenant_id, store_id)).optional().await?;
    Ok(store.map(|store| {
        // A store that is already deleted is erased as a whole.
        let selector = if store.is_deleted { Selector::Store(store_id) } else { selector.clone() };
        let is_whole = selector.below().is_none();
        (selector, Progress::new(vec![store_id], is_whole, store.seq, scope))
    }))
}

/// Locks an open erasure, so that two workers on it take turns.
async fn lock(
    tx: &mut Tx,
    tenant_id: TenantId,
    erasure_id: ErasureId,
) -> Result<Option<WorkRow>, IndexError> {
    let query = tx.query_locking(WORK, RowLock::Update).bind(tenant_id);
    query.bind(erasure_id).optional().await
}
