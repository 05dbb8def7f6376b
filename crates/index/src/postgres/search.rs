//! Search terms: one call of `search_changes_v2`, and what the job writes.

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use keepsake_core::{MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresIndex;
use super::reads::hash_of;
use crate::IndexError;
use crate::search::{
    MemoryPlace, SearchChange, SearchChanges, SearchHead, SearchIndex, SearchRow, SearchSince,
    SearchUpkeepIndex, Unindexed, UnindexedPage,
};
use crate::statements::search::{PUT_TERMS, UNINDEXED};

/// The lock that commits take, on a store that is there.
const LOCK: &str = "SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL \
    FOR NO KEY UPDATE";

#[async_trait]
impl SearchIndex for PostgresIndex {
    async fn search_changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError> {
        let unindexed: Vec<Uuid> = since.unindexed.iter().map(|memory_id| memory_id.uuid()).collect();
        let mut rows = sqlx::query(
            "SELECT seq, purge_epoch, is_whole, memory_id, path, blob_id, sha256, updated_at, terms \
             FROM search_changes_v2($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(since.place.map(|(seq, _)| seq))
        .bind(since.place.map(|(_, purge_epoch)| purge_epoch))
        .bind(i64::from(since.analyser))
        .bind(unindexed)
        .bind(since.may_be_whole)
        .fetch(&self.app);
        let Some(first) = rows.try_next().await? else {
            return Ok(None);
        };
        let mut changes = SearchChanges {
            seq: first.try_get(0)?,
            purge_epoch: first.try_get(1)?,
            is_whole: first.try_get(2)?,
            memories: Vec::new(),
        };
        // A whole store comes through here: one row at a time is in memory twice.
        while let Some(row) = rows.try_next().await? {
            changes.memories.push(change_of(&row)?);
        }
        Ok(Some(changes))
    }
}

fn change_of(row: &PgRow) -> Result<SearchChange, IndexError> {
    let head = match row.try_get::<Option<String>, _>(4)? {
        Some(path) => Some(SearchHead {
            path: MemoryPath::from_trusted(path),
            blob_id: VersionId::from_uuid(row.try_get(5)?),
            sha256: hash_of(row.try_get(6)?, "memory")?,
            updated_at: Timestamp::from_micros(row.try_get(7)?),
            terms: row.try_get::<Option<&[u8]>, _>(8)?.map(Arc::from),
        }),
        None => None,
    };
    Ok(SearchChange {
        memory_id: MemoryId::from_uuid(row.try_get(3)?),
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
        let mut transaction = self.jobs.begin().await?;
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

/// The ids of a place; before the first there are none.
fn ids_of(place: Option<MemoryPlace>) -> [Uuid; 3] {
    place.map_or([Uuid::nil(); 3], |(tenant, store, memory)| {
        [tenant.uuid(), store.uuid(), memory.uuid()]
    })
}
