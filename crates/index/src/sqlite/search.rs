//! Search terms: changes of a store, and writes of the indexing job.

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use keepsake_core::{MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::SqliteIndex;
use crate::IndexError;
use crate::numbers::hash_of;
use crate::search::{
    MemoryPlace, SearchChange, SearchChanges, SearchHead, SearchIndex, SearchPlace, SearchRow, SearchSince,
    SearchUpkeepIndex, Unindexed, UnindexedPage,
};
use crate::statements::search::{PUT_TERMS, UNINDEXED};

/// Selects a store's last sequence number and its version, and the version at `$3`.
const STORE: &str = "SELECT s.seq, s.purge_epoch, \
        (SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = s.seq), \
        (SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = $3) \
    FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// Whether a store exists and is not deleted.
const STORE_IS_THERE: &str =
    "SELECT EXISTS (SELECT 1 FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL)";

/// Selects every memory of a store with the terms of its content.
pub(super) const WHOLE: &str = "SELECT m.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms \
    FROM memory m LEFT JOIN search_doc d ON d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id \
        AND d.blob_id = m.blob_id AND d.analyser = $3 \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL";

/// Selects the memories with versions after a sequence number, and the memories in
/// `$5`.
pub(super) const SINCE: &str = "SELECT c.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms \
    FROM (SELECT v.memory_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq > $4 \
        UNION SELECT unhex(value) FROM json_each($5)) c \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = c.memory_id \
        AND m.deleted_at IS NULL \
    LEFT JOIN search_doc d ON d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id \
        AND d.blob_id = m.blob_id AND d.analyser = $3";

#[async_trait]
impl SearchIndex for SqliteIndex {
    async fn search_changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError> {
        // Reads the position first: commits between the two queries are returned again
        // by the next call.
        let place: Option<(i64, i64, Option<Uuid>, Option<Uuid>)> = sqlx::query_as(STORE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(since.place.map(|place| place.seq))
            .fetch_optional(&self.readers)
            .await?;
        let Some((seq, purge_epoch, version_id, at_known)) = place else {
            return Ok(None);
        };
        let goes_on = |known: &SearchPlace| {
            known.purge_epoch == purge_epoch
                && known.seq <= seq
                && known.version_id.map(VersionId::uuid) == at_known
        };
        let known = since.place.filter(goes_on);
        let mut changes = SearchChanges {
            place: SearchPlace {
                seq,
                purge_epoch,
                version_id: version_id.map(VersionId::from_uuid),
            },
            is_whole: known.is_none(),
            memories: Vec::new(),
        };
        if changes.is_whole && !since.may_be_whole {
            return Ok(Some(changes));
        }
        let query = sqlx::query(if known.is_some() { SINCE } else { WHOLE })
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(since.analyser);
        let query = match known {
            Some(known) if known.seq == seq && since.unindexed.is_empty() => {
                return Ok(Some(changes));
            }
            Some(known) => query.bind(known.seq).bind(hexes(&since.unindexed)),
            None => query,
        };
        let mut rows = query.fetch(&self.readers);
        while let Some(row) = rows.try_next().await? {
            changes.memories.push(change_of(&row)?);
        }
        Ok(Some(changes))
    }
}

fn change_of(row: &SqliteRow) -> Result<SearchChange, IndexError> {
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
impl SearchUpkeepIndex for SqliteIndex {
    async fn unindexed_memories(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError> {
        let [tenant, store, memory] = after.map_or([Uuid::nil(); 3], |(tenant, store, memory)| {
            [tenant.uuid(), store.uuid(), memory.uuid()]
        });
        let rows = sqlx::query(UNINDEXED)
            .bind(tenant)
            .bind(store)
            .bind(memory)
            .bind(limit)
            .bind(analyser)
            .fetch_all(&self.readers)
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
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let is_there: bool = sqlx::query_scalar(STORE_IS_THERE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .fetch_one(&mut *connection)
            .await?;
        let mut written = 0;
        for (memory_id, blob_id, row) in rows.iter().filter(|_| is_there) {
            written += sqlx::query(PUT_TERMS)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(memory_id.uuid())
                .bind(blob_id.uuid())
                .bind(row.analyser)
                .bind(row.length)
                .bind(&row.terms)
                .execute(&mut *connection)
                .await?
                .rows_affected();
        }
        writer.commit().await?;
        Ok(written)
    }
}

/// Ids in the form that the statement reads.
fn hexes(ids: &[MemoryId]) -> String {
    let ids = ids.iter().map(|id| json!(id.uuid().simple().to_string()));
    ids.collect::<Value>().to_string()
}
