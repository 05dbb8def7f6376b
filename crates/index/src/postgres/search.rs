//! Search terms: changes of a store, and writes of the indexing job.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{Stream, TryStreamExt};
use keepsake_core::{MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresIndex;
use crate::IndexError;
use crate::numbers::hash_of;
use crate::search::{
    MemoryPlace, SearchChange, SearchChanges, SearchHead, SearchIndex, SearchPlace, SearchRow, SearchSince,
    SearchUpkeepIndex, Unindexed, UnindexedPage,
};
use crate::statements::search::{PUT_TERMS, UNINDEXED};

/// Takes the lock of commits of an existing store.
const LOCK: &str = "SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL \
    FOR NO KEY UPDATE";

/// Selects every memory of a store with the terms of its content. The terms are
/// looked up memory by memory, whatever the planner's statistics say.
const WHOLE: &str = "SELECT m.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms FROM memory m \
    LEFT JOIN LATERAL (SELECT d.terms FROM search_doc d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id AND d.blob_id = m.blob_id \
            AND d.analyser = $3 LIMIT 1) d ON true \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL";

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search_changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError> {
        let unindexed: Vec<Uuid> = since.unindexed.iter().map(|memory_id| memory_id.uuid()).collect();
        let mut changes = {
            let mut rows = sqlx::query(
                "SELECT memory_id, path, blob_id, sha256, updated_at, terms, seq, purge_epoch, version_id, is_whole \
                 FROM search_changes($1, $2, $3, $4, $5, $6, $7)",
            )
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(since.place.map(|place| place.seq))
            .bind(since.place.map(|place| place.purge_epoch))
            .bind(since.place.and_then(|place| place.version_id).map(VersionId::uuid))
            .bind(i64::from(since.analyser))
            .bind(unindexed)
            .fetch(&self.app);
            let Some(first) = rows.try_next().await? else {
                return Ok(None);
            };
            SearchChanges {
                place: SearchPlace {
                    seq: first.try_get(6)?,
                    purge_epoch: first.try_get(7)?,
                    version_id: first.try_get::<Option<Uuid>, _>(8)?.map(VersionId::from_uuid),
                },
                is_whole: first.try_get(9)?,
                memories: changes_of(rows).await?,
            }
        };
        if changes.is_whole && since.may_be_whole {
            changes.memories = self.whole_store(tenant_id, store_id, since.analyser).await?;
        }
        Ok(Some(changes))
    }
}

impl PostgresIndex {
    /// The search data of a whole store. This is not a database function, because a
    /// function would collect all rows, some on disk, before it returned the first one.
    async fn whole_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        analyser: u32,
    ) -> Result<Vec<SearchChange>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(WHOLE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(i64::from(analyser))
            .fetch(&mut *transaction);
        let memories = changes_of(rows).await?;
        transaction.commit().await?;
        Ok(memories)
    }
}

/// Reads changes from rows; only one row at a time is in memory twice.
async fn changes_of(
    mut rows: impl Stream<Item = sqlx::Result<PgRow>> + Unpin,
) -> Result<Vec<SearchChange>, IndexError> {
    let mut changes = Vec::new();
    while let Some(row) = rows.try_next().await? {
        changes.push(change_of(&row)?);
    }
    Ok(changes)
}

fn change_of(row: &PgRow) -> Result<SearchChange, IndexError> {
    let head = match row.try_get::<Option<String>, _>(1)? {
        Some(path) => Some(SearchHead {
            path: MemoryPath::from_trusted(path),
            blob_id: VersionId::from_uuid(row.try_get(2)?),
            sha256: hash_of(row.try_get(3)?, "memory")?,
            updated_at: Timestamp::from_micros(row.try_get(4)?),
            terms: row.try_get::<Option<&[u8]>, _>(5)?.map(Arc::from),
        }),
        None => None,
    };
    Ok(SearchChange {
        memory_id: MemoryId::from_uuid(row.try_get(0)?),
        head,
    })
}

#[async_trait]
impl SearchUpkeepIndex for PostgresIndex {
    async fn unindexed_memories(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError> {
        let [tenant, store, memory] = ids_of(after);
        let rows = sqlx::query(UNINDEXED)
            .bind(tenant)
            .bind(store)
            .bind(memory)
            .bind(i64::from(limit))
            .bind(i64::from(analyser))
            .fetch_all(&self.jobs)
            .await?;
        let mut page = UnindexedPage {
            looked_at: rows.len() as u64,
            last: None,
            unindexed: Vec::new(),
        };
        for row in &rows {
            let place = (
                TenantId::from_uuid(row.try_get(0)?),
                StoreId::from_uuid(row.try_get(1)?),
                MemoryId::from_uuid(row.try_get(2)?),
            );
            page.last = Some(place);
            if row.try_get(6)? {
                page.unindexed.push(Unindexed {
                    place,
                    blob_id: VersionId::from_uuid(row.try_get(3)?),
                    sha256: hash_of(row.try_get(4)?, "memory")?,
                    purge_epoch: row.try_get(5)?,
                });
            }
        }
        Ok(page)
    }

    async fn put_search_rows(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        rows: &[(MemoryId, VersionId, SearchRow)],
    ) -> Result<u64, IndexError> {
        let mut transaction = self.jobs.begin(None).await?;
        let is_there = sqlx::query(LOCK)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?
            .is_some();
        let mut written = 0;
        for (memory_id, blob_id, row) in rows.iter().filter(|_| is_there) {
            written += sqlx::query(PUT_TERMS)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(memory_id.uuid())
                .bind(blob_id.uuid())
                .bind(i64::from(row.analyser))
                .bind(i64::from(row.length))
                .bind(&row.terms)
                .execute(&mut *transaction)
                .await?
                .rows_affected();
        }
        transaction.commit().await?;
        Ok(written)
    }
}

/// The ids of a position; nil ids for the position before all memories.
fn ids_of(place: Option<MemoryPlace>) -> [Uuid; 3] {
    place.map_or([Uuid::nil(); 3], |(tenant, store, memory)| {
        [tenant.uuid(), store.uuid(), memory.uuid()]
    })
}
