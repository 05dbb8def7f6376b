//! Embeddings of memories for the search by meaning: written behind the commits, read by
//! replicas for searches.
//!
//! The version log of a store is the queue: [`Embeddings`] knows for each model through
//! which version the store is embedded. The index does not interpret the vectors.

mod statements;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use statements::{
    ADVANCE, BEGIN, BEGIN_AGAIN, CHANGES, CHANGES_ON_POSTGRES, CLAIM, EARLIER, EMBEDDED, HYBRID, KEEP, LOCK,
    LOCK_STORES, NEXT_STORES, OUTDATED, PAGE, PUT, REMOVE, REMOVE_EARLIER, REMOVE_STORE, RENEW, SAME_TEXT,
    SETTLE, SETTLED, STATES, UNSETTLE, UNSETTLE_STORES, UNSETTLED_TENANT, UNSETTLED_THROUGH, WORK,
    WORK_OF_NODES,
};

use crate::IndexError;
use crate::database::{Database, FromRow, Ids, Role, Row, RowLock, Tx, from_row};
use crate::model::Head;
use crate::numbers::{FIRST_STORE, LAST_STORE, signed};
use crate::removal::{PLAN_BY_KEYS, begin_removal};
use crate::stores::lock_live_store;
use crate::tenants::lock_live_tenant;

/// How long vectors of another model are kept at least.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// A page goes over so many versions for each version to embed: in a history, most are not current any more.
const VERSIONS_READ: u32 = 4;

/// The value of `embedded_by` of a store that the job left without a model. No model has this id.
const NO_MODEL: &str = "-";

/// The vectors of a memory's version: all its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingRow {
    pub memory_id: MemoryId,
    pub version_id: VersionId,
    pub chunks: u64,
    pub vectors: Arc<[u8]>,
}

/// The state of the vectors of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingState {
    pub store_id: StoreId,
    /// Whether the store is searched by meaning.
    pub is_hybrid: bool,
    /// The last edit; 0: the store has no vectors of the model. It grows with each write.
    pub edit: i64,
    /// Whether the vectors of another model are complete, and those of this one never were.
    pub is_replacing: bool,
    /// Live memories of the store.
    pub memory_count: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
}

/// What was written since an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingChanges {
    /// Whether the store is searched by meaning; if not, there are no rows.
    pub is_hybrid: bool,
    /// The last edit of the store; 0: it has no vectors of the model.
    pub edit: i64,
    /// Whether these are all vectors of the store, so that others must be dropped: the request
    /// had no edit, or one that the store has not reached, as vectors were removed or the
    /// database was restored since.
    pub is_whole: bool,
    /// Unordered. A vector counts only if its version is the memory's current one.
    pub rows: Vec<EmbeddingRow>,
}

/// A store in the order of [`Embeddings::work`]: the model that the job left it with, and its ids.
pub type EmbeddingPlace = (String, TenantId, StoreId);

/// Stores with work to do, among the next ones that changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmbeddingWork {
    /// The number of stores read.
    pub looked_at: u64,
    /// The last of these stores; `None`: none is left.
    pub last: Option<EmbeddingPlace>,
    /// Stores with versions that are not embedded.
    pub pending: Vec<(TenantId, StoreId)>,
    /// Stores with vectors that are not needed; see [`Embeddings::remove_outdated`].
    pub outdated: Vec<(TenantId, StoreId)>,
    /// Stores with neither; see [`Embeddings::settle`].
    pub idle: Vec<(TenantId, StoreId)>,
}

/// At most so much of a store in one page, but at least one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingLimits {
    /// Versions to embed. A page also goes over some versions that are not current any more.
    pub versions: u32,
    /// Bytes of the contents to embed.
    pub bytes: u64,
}

/// A store that a replica embeds by a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingClaim {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    pub model: Arc<str>,
    pub replica: Uuid,
}

/// The next versions of a store that are not embedded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingPage {
    /// Contents may be read under this purge epoch.
    pub purge_epoch: i64,
    /// The version through which the store is embedded.
    pub from: i64,
    /// The last version of the page.
    pub through: i64,
    /// Whether there was no later version.
    pub is_last: bool,
    /// The memories to embed: those whose current version is in the page. It leaves out settings of the store, and
    /// memories that were only moved, whose vectors [`Embeddings::put`] keeps.
    pub memories: Vec<Head>,
    /// Live memories of the store.
    pub memory_count: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
}

/// At most so many rows of one model in one transaction, with about so many bytes, but at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovalLimits {
    pub rows: u64,
    pub bytes: u64,
}

/// The removal of vectors that are not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedEmbeddings {
    pub rows: u64,
    /// Whether none is left.
    pub is_done: bool,
}

/// What became of the vectors of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingOutcome {
    /// Nothing was written: the store is gone or lexical, history was removed since, or the page
    /// was embedded meanwhile. The claim stays.
    Refused,
    /// The claim ended with the last version, and stays if `is_complete` is false.
    Written { is_complete: bool },
}

#[derive(Debug, Clone)]
pub struct Embeddings(pub(crate) Database);

/// The position of a store, or one of its changes.
struct ChangeRow {
    place: Option<EmbeddingChanges>,
    row: Option<EmbeddingRow>,
}

struct WorkRow {
    embedded_by: String,
    store: (TenantId, StoreId),
    is_pending: bool,
    has_outdated: bool,
}

struct HybridStore {
    seq: i64,
    purge_epoch: i64,
    memory_count: u64,
    live_bytes: u64,
}

struct PageRow {
    seq: i64,
    memory: Option<Head>,
}

from_row! {
    EmbeddingRow { memory_id, version_id, chunks, vectors }
    EmbeddingChanges { is_hybrid, edit .. is_whole, rows }
    EmbeddingState { store_id, is_hybrid, edit, is_replacing, memory_count, live_bytes }
    HybridStore { seq, purge_epoch, memory_count, live_bytes }
    PageRow { seq; memory if "memory_id" }
}

impl FromRow for ChangeRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self { place: row.read_unless_null("edit")?, row: row.read_unless_null("memory_id")? })
    }
}

impl FromRow for WorkRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            embedded_by: row.get("embedded_by")?,
            store: (row.get("tenant_id")?, row.get("store_id")?),
            is_pending: row.get("is_pending")?,
            has_outdated: row.get("has_outdated")?,
        })
    }
}

impl Embeddings {
    /// The states of the stores of a search, in one query; stores that do not exist are left
    /// out.
    pub async fn states(
        &self,
        tenant_id: TenantId,
        stores: &[StoreId],
        model: &str,
    ) -> Result<Vec<EmbeddingState>, IndexError> {
        let mut tx = self.0.read_one("embedding_states", Role::Tenant(tenant_id)).await?;
        let text = tx.choose(STATES);
        tx.query(text).bind((tenant_id, Ids(Some(stores)), model)).all().await
    }

    /// The vectors of a store that were written since an edit, in one query; since 0, all.
    /// `None`: the store does not exist.
    ///
    /// The cost grows with the size of the result. Vectors that were removed are not in it.
    pub async fn changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        model: &str,
        since_edit: i64,
    ) -> Result<Option<EmbeddingChanges>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let values = (tenant_id, store_id, model, since_edit);
        let rows: Vec<ChangeRow> = if since_edit > 0 {
            let mut tx = self.0.read_one("embedding_changes", role).await?;
            let text = tx.choose([CHANGES_ON_POSTGRES, CHANGES]);
            tx.query(text).bind(values).all().await?
        } else {
            self.0.all("embedding_changes", role, CHANGES, values).await?
        };
        // One row has the state of the store; each other row has the vectors of a memory.
        let mut state = None;
        let mut written = Vec::with_capacity(rows.len());
        for ChangeRow { place, row } in rows {
            state = state.or(place);
            written.extend(row);
        }
        Ok(state.map(|state| EmbeddingChanges {
            is_whole: since_edit <= 0 || state.edit < since_edit,
            rows: written,
            ..state
        }))
    }

    /// Reads the next `limit` stores of all tenants after one that changed since
    /// [`Self::settle`] with the same model. Without a model nothing is pending, and only vectors
    /// of lexical stores are outdated.
    pub async fn work(
        &self,
        model: Option<&str>,
        now: Timestamp,
        after: Option<EmbeddingPlace>,
        limit: u32,
    ) -> Result<EmbeddingWork, IndexError> {
        let mark = model.unwrap_or(NO_MODEL);
        let (after_mark, after) = match &after {
            Some((mark, tenant_id, store_id)) => (mark.as_str(), (*tenant_id, *store_id)),
            None => ("", FIRST_STORE),
        };
        let later = if after_mark > mark { (after_mark, after) } else { (mark, LAST_STORE) };
        let known = if self.0.is_distributed() { Some(model.unwrap_or_default()) } else { model };
        let values = (after, known, now.minus(KEPT_FOR), limit, (after_mark, mark), later);
        let mut tx = self.0.read("embedding_work", Role::Job(None)).await?;
        tx.execute_on_postgres(PLAN_BY_KEYS, ()).await?;
        let text = if tx.is_distributed() { WORK_OF_NODES } else { WORK };
        let rows: Vec<WorkRow> = tx.query(text).bind(values).all().await?;
        let stores =
            |needs: fn(&WorkRow) -> bool| rows.iter().filter(|row| needs(row)).map(|row| row.store).collect();
        Ok(EmbeddingWork {
            looked_at: rows.len() as u64,
            last: rows.last().map(|row| (row.embedded_by.clone(), row.store.0, row.store.1)),
            pending: stores(|row| row.is_pending),
            outdated: stores(|row| row.has_outdated),
            idle: stores(|row| !row.is_pending && !row.has_outdated),
        })
    }

    /// Makes [`Self::work`] look at the next `limit` stores of a tenant whose mode or status changed;
    /// `false`: there is no such tenant.
    pub async fn unsettle(&self, limit: u32) -> Result<bool, IndexError> {
        let mut tx = self.0.write("unsettle_embeddings", Role::Job(None)).await?;
        tx.execute_on_postgres(PLAN_BY_KEYS, ()).await?;
        let query = tx.query_locking(UNSETTLED_TENANT, RowLock::NoKeyUpdate);
        let Some((tenant_id, after)) = query.optional::<(TenantId, StoreId)>().await? else {
            return Ok(false);
        };
        let next: Vec<StoreId> = tx.query(NEXT_STORES).bind((tenant_id, after, limit)).scalars().await?;
        tx.query_with_lists(UNSETTLE_STORES).bind((tenant_id, Ids(Some(&next)))).execute().await?;
        let last = next.last().filter(|_| next.len() >= limit as usize).copied();
        tx.query(UNSETTLED_THROUGH).bind((tenant_id, last)).execute().await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Leaves those of these stores out of [`Self::work`] with this model in which nothing is to
    /// be done until they change: by a commit, or a change of the store, of the mode or the
    /// status of the tenant, or of the model.
    pub async fn settle(
        &self,
        model: Option<&str>,
        stores: &[(TenantId, StoreId)],
    ) -> Result<(), IndexError> {
        let mut by_tenant: BTreeMap<TenantId, Vec<StoreId>> = BTreeMap::new();
        for (tenant_id, store_id) in stores {
            by_tenant.entry(*tenant_id).or_default().push(*store_id);
        }
        for (tenant_id, store_ids) in by_tenant {
            let mut tx = self.0.write("settle_embeddings", Role::Job(None)).await?;
            tx.execute_on_postgres(PLAN_BY_KEYS, ()).await?;
            // A change of the tenant sees these stores afterwards, or is seen here.
            lock_live_tenant(&mut tx, tenant_id).await?;
            let query = tx.query_with_lists(tx.choose(LOCK_STORES)).bind((tenant_id, Ids(Some(&store_ids))));
            let locked: Vec<StoreId> = query.scalars().await?;
            let query = tx.query_with_lists(SETTLED).bind((tenant_id, Ids(Some(&locked)), model));
            let settled: Vec<StoreId> = query.scalars().await?;
            if !settled.is_empty() {
                let values = (tenant_id, Ids(Some(&settled)), model.unwrap_or(NO_MODEL));
                tx.query_with_lists(SETTLE).bind(values).execute().await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Claims a store until `until` and reads the next versions that are not embedded.
    ///
    /// `None`: the store is gone, lexical or embedded, or another replica's claim of it has not
    /// ended. A replica may claim its store again at any time, and [`Self::renew`] its claim.
    pub async fn claim(
        &self,
        claim: &EmbeddingClaim,
        now: Timestamp,
        until: Timestamp,
        limits: EmbeddingLimits,
    ) -> Result<Option<EmbeddingPage>, IndexError> {
        let place = (claim.tenant_id, claim.store_id);
        let mut tx = self.0.write("claim_embedding", Role::Job(None)).await?;
        tx.execute_on_postgres(LOCK, place).await?;
        let store: Option<HybridStore> = tx.query(HYBRID).bind(place).optional().await?;
        let Some(store) = store.filter(|store| store.seq > 0) else {
            return Ok(None);
        };
        tx.query(BEGIN).bind(place).bind(&*claim.model).execute().await?;
        let query = tx.query(CLAIM).bind(place).bind(&*claim.model);
        let query = query.bind((now, claim.replica, until, store.seq));
        let Some(from) = query.optional_scalar::<i64>().await? else {
            return Ok(None);
        };
        let limits = EmbeddingLimits { versions: limits.versions.max(1), ..limits };
        let read = limits.versions.saturating_mul(VERSIONS_READ);
        let rows: Vec<PageRow> = tx.query(tx.choose(PAGE)).bind((place, from, read)).all().await?;
        let is_all = rows.len() < read as usize;
        let mut page = page_of(&store, from, (rows, is_all), limits);
        // Vectors of a store that is embedded again may be removed meanwhile.
        if from > 0 {
            let kept: HashSet<_> = with_same_text(&mut tx, claim, &page).await?.into_iter().collect();
            page.memories.retain(|memory| !kept.contains(&memory.memory_id));
        }
        tx.commit().await?;
        Ok(Some(page))
    }

    /// Prolongs a claim whose page takes long; `false`: another replica has the store, or the page
    /// was embedded meanwhile.
    pub async fn renew(
        &self,
        claim: &EmbeddingClaim,
        page: &EmbeddingPage,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let values = (claim.tenant_id, claim.store_id, &*claim.model, claim.replica, page.from, until);
        let renewed = self.0.change("renew_embedding", Role::Job(None), RENEW, values).await?;
        Ok(renewed > 0)
    }

    /// Writes the vectors of a page, and keeps those of memories that were only moved, under the store's lock.
    ///
    /// Skips a memory if the version is not its current one. A memory of the page without a
    /// row has no vectors from now on, as those of earlier versions are removed.
    pub async fn put(
        &self,
        claim: &EmbeddingClaim,
        page: &EmbeddingPage,
        rows: &[EmbeddingRow],
    ) -> Result<EmbeddingOutcome, IndexError> {
        let (place, model) = ((claim.tenant_id, claim.store_id), &*claim.model);
        let mut tx = self.0.write("put_embeddings", Role::Job(None)).await?;
        let locked = lock_live_store(&mut tx, claim.tenant_id, claim.store_id).await?;
        if locked.is_none_or(|store| store.purge_epoch != page.purge_epoch) {
            return Ok(EmbeddingOutcome::Refused);
        }
        let Some(store) = tx.query(HYBRID).bind(place).optional::<HybridStore>().await? else {
            return Ok(EmbeddingOutcome::Refused);
        };
        let query = tx.query(EMBEDDED).bind(place).bind(model);
        if query.optional_scalar::<i64>().await? != Some(page.from) {
            return Ok(EmbeddingOutcome::Refused);
        }
        let kept = with_same_text(&mut tx, claim, page).await?;
        if !kept.is_empty() {
            tx.query_with_lists(KEEP).bind((place, model, Ids(Some(&kept)))).execute().await?;
        }
        write_rows(&mut tx, claim, rows).await?;
        let query = tx.query_with_lists(EARLIER).bind(place);
        let earlier: Vec<MemoryId> = query.bind((model, page.from, page.through)).scalars().await?;
        if !earlier.is_empty() {
            tx.query_with_lists(REMOVE_EARLIER).bind((place, model, Ids(Some(&earlier)))).execute().await?;
        }
        let query = tx.query(ADVANCE).bind(place).bind((model, page.through, claim.replica));
        let is_complete = page.through >= store.seq;
        query.bind((is_complete, page.is_last)).execute().await?;
        tx.commit().await?;
        Ok(EmbeddingOutcome::Written { is_complete })
    }

    /// Removes vectors of a store that are not needed, within `limits`.
    ///
    /// If the store is not searched by meaning, no vector is needed. Else those of other models are not needed
    /// once those of `model` are complete. They are kept if a replica has begun to write vectors of
    /// either model within the hour before `now`.
    pub async fn remove_outdated(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        model: Option<&str>,
        now: Timestamp,
        limits: RemovalLimits,
    ) -> Result<RemovedEmbeddings, IndexError> {
        let place = (tenant_id, store_id);
        let mut tx = self.0.write("remove_outdated_embeddings", Role::Job(None)).await?;
        begin_removal(&mut tx).await?;
        lock_live_store(&mut tx, tenant_id, store_id).await?;
        let query = tx.query(OUTDATED).bind(place).bind((model, now.minus(KEPT_FOR)));
        let outdated: Vec<String> = query.scalars().await?;
        let mut removed = RemovedEmbeddings { rows: 0, is_done: true };
        for model in &outdated {
            tx.query(BEGIN_AGAIN).bind(place).bind(model).execute().await?;
            tx.query(UNSETTLE).bind(place).bind(model).execute().await?;
            let query = tx.query(REMOVE).bind(place).bind(model);
            removed.rows += query.bind((limits.rows, limits.bytes)).execute().await?;
            // The model's row goes with its last vectors.
            removed.is_done = tx.query(REMOVE_STORE).bind(place).bind(model).execute().await? > 0;
            if !removed.is_done {
                break;
            }
        }
        tx.commit().await?;
        Ok(removed)
    }
}

/// The memories of a page that have the vectors of their current text.
async fn with_same_text(
    tx: &mut Tx,
    claim: &EmbeddingClaim,
    page: &EmbeddingPage,
) -> Result<Vec<MemoryId>, IndexError> {
    let query = tx.query_with_lists(SAME_TEXT).bind((claim.tenant_id, claim.store_id));
    query.bind((&*claim.model, page.from, page.through)).scalars().await
}

/// On Postgres in one statement. On SQLite one for each row, which is prepared once.
async fn write_rows(tx: &mut Tx, claim: &EmbeddingClaim, rows: &[EmbeddingRow]) -> Result<(), IndexError> {
    let (place, model) = ((claim.tenant_id, claim.store_id), &*claim.model);
    let text = tx.choose(PUT);
    for rows in rows.chunks(tx.rows_at_once()) {
        let query = tx.query(text).bind(place).bind(model);
        let query = query.bind_column(rows.iter().map(|row| row.memory_id.uuid()).collect::<Vec<_>>());
        let query = query.bind_column(rows.iter().map(|row| row.version_id.uuid()).collect::<Vec<_>>());
        let query = query.bind_column(rows.iter().map(|row| signed(row.chunks)).collect::<Vec<_>>());
        let query = query.bind_column(rows.iter().map(|row| &*row.vectors).collect::<Vec<_>>());
        query.execute().await?;
    }
    Ok(())
}

/// The page of the first versions within the limits, of the next rows or all.
fn page_of(
    store: &HybridStore,
    from: i64,
    (rows, mut is_last): (Vec<PageRow>, bool),
    limits: EmbeddingLimits,
) -> EmbeddingPage {
    let (mut through, mut size_bytes, mut memories) = (from, 0, Vec::new());
    for PageRow { seq, memory } in rows {
        if let Some(memory) = memory.filter(|memory| !memory.path.is_setting()) {
            size_bytes += memory.content.size_bytes;
            let is_full = size_bytes > limits.bytes || memories.len() >= limits.versions as usize;
            if is_full && !memories.is_empty() {
                is_last = false;
                break;
            }
            memories.push(memory);
        }
        through = seq;
    }
    if is_last {
        // Retention may have removed the store's last versions, so no row has their numbers.
        through = through.max(store.seq);
    }
    let HybridStore { purge_epoch, memory_count, live_bytes, .. } = *store;
    EmbeddingPage { purge_epoch, from, through, is_last, memories, memory_count, live_bytes }
}
