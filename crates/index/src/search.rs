//! Search terms of memories: written by commits, read by replicas for searches, and
//! added to older memories by a job.
//!
//! The index does not interpret the terms; it stores them with their content.

use std::sync::Arc;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, FromRow, Ids, Role, Row, from_row};
use crate::model::SearchRow;
use crate::numbers::FIRST_STORE;
use crate::stores::lock_live_store;

/// The position of a store and, unless `is_whole`, the memories that changed since
/// `$3`, and those in `$7`.
const CHANGES: [&str; 2] = [
    "SELECT seq, purge_epoch, version_id, is_whole, memory_id, path, head_id, blob_id, sha256, updated_at, terms \
    FROM search_changes($1, $2, $3, $4, $5, $6, $7)",
    "WITH place AS MATERIALIZED (SELECT s.seq, s.purge_epoch, \
            (SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = s.seq) \
                AS version_id, \
            $3 IS NULL OR $3 > s.seq OR $4 IS NOT s.purge_epoch OR $5 IS NOT ( \
                SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = $3) \
                AS is_whole \
        FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
    SELECT seq, purge_epoch, version_id, is_whole, NULL AS memory_id, NULL AS path, NULL AS head_id, NULL AS blob_id, \
        NULL AS sha256, NULL AS updated_at, NULL AS terms FROM place \
    UNION ALL SELECT NULL, NULL, NULL, NULL, c.memory_id, m.path, m.version_id, m.blob_id, m.sha256, m.updated_at, \
        d.terms \
    FROM (SELECT v.memory_id FROM place CROSS JOIN version v \
            ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq > $3 WHERE NOT place.is_whole \
        UNION SELECT unhex(u.value) FROM place CROSS JOIN json_each($7) u WHERE NOT place.is_whole) c \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = c.memory_id \
        AND m.deleted_at IS NULL \
    LEFT JOIN search_doc d ON d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id \
        AND d.blob_id = m.blob_id AND d.analyser = $6",
];

/// Every memory of a store with the terms of its content.
///
/// On Postgres the terms are looked up memory by memory, whatever the planner's
/// statistics say. It is not a database function, because a function would collect
/// all rows, some on disk, before it returned the first one.
const WHOLE: [&str; 2] = [
    "SELECT m.memory_id, m.path, m.version_id AS head_id, m.blob_id, m.sha256, m.updated_at, d.terms FROM memory m \
    LEFT JOIN LATERAL (SELECT d.terms FROM search_doc d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id AND d.blob_id = m.blob_id \
            AND d.analyser = $3 LIMIT 1) d ON true \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL",
    "SELECT m.memory_id, m.path, m.version_id AS head_id, m.blob_id, m.sha256, m.updated_at, d.terms FROM memory m \
    LEFT JOIN search_doc d ON d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id \
        AND d.blob_id = m.blob_id AND d.analyser = $3 \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL",
];

/// Live memories after a given one, and whether each one needs indexing. The limit
/// applies before the joins.
const UNINDEXED: &str = "SELECT p.tenant_id, p.store_id, p.memory_id, p.blob_id, p.sha256, \
    s.store_id IS NOT NULL AND (d.blob_id IS NULL OR d.blob_id <> p.blob_id OR d.analyser < $5) AS is_unindexed \
    FROM (SELECT m.tenant_id, m.store_id, m.memory_id, m.blob_id, m.sha256 FROM memory m \
        WHERE (m.tenant_id, m.store_id, m.memory_id) > ($1, $2, $3) AND m.deleted_at IS NULL \
        ORDER BY m.tenant_id, m.store_id, m.memory_id LIMIT $4 + 0) p \
    LEFT JOIN store s ON s.tenant_id = p.tenant_id AND s.store_id = p.store_id AND s.deleted_at IS NULL \
    LEFT JOIN search_doc d ON d.tenant_id = p.tenant_id AND d.store_id = p.store_id AND d.memory_id = p.memory_id \
    ORDER BY p.tenant_id, p.store_id, p.memory_id";

/// Writes the terms of a content, if the memory still has that content.
const PUT: &str = "INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms) \
    SELECT $1, $2, m.memory_id, m.blob_id, $5, $6, $7 FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $3 AND m.blob_id = $4 AND m.deleted_at IS NULL \
    ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE SET blob_id = excluded.blob_id, \
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms \
    WHERE search_doc.blob_id IS NULL OR search_doc.blob_id <> excluded.blob_id \
        OR search_doc.analyser < excluded.analyser";

/// The position up to which a store's history was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlace {
    /// The sequence number of the last version.
    pub seq: i64,
    /// The purge epoch at that time.
    pub purge_epoch: i64,
    /// The version with that sequence number; `None`: retention removed it. After a restore from
    /// a backup, another version may have the number, or none.
    pub version_id: Option<VersionId>,
}

impl SearchPlace {
    /// Its order among the positions of one history.
    pub const fn order(&self) -> (i64, i64) {
        (self.purge_epoch, self.seq)
    }
}

/// The state of a replica's search index, from which it requests later changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchSince {
    /// The position up to which the search index is current; `None`: it is empty.
    pub place: Option<SearchPlace>,
    /// The version of the analyser whose terms the replica can read.
    pub analyser: u32,
    /// Memories that had no terms at the last read, and are read again.
    pub unindexed: Vec<MemoryId>,
    /// Whether the reply may contain all memories. If it is `false` and a complete
    /// reply is needed, the reply says only that.
    pub may_be_whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChanges {
    /// The position of the changes. Content may be read under its purge epoch.
    pub place: SearchPlace,
    /// Whether these are all memories of the store, so that others must be dropped: the
    /// request had no position, history was removed since, or the database was restored
    /// since.
    pub is_whole: bool,
    /// Unordered.
    pub memories: Vec<SearchChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChange {
    pub memory_id: MemoryId,
    /// `None`: the memory no longer exists.
    pub head: Option<SearchHead>,
}

/// The state of a memory that search needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHead {
    pub path: MemoryPath,
    pub version: SearchedVersion,
    /// The terms of its content; `None`: it has none, or only those of another analyser.
    pub terms: Option<Arc<[u8]>>,
}

/// The current version of a memory, as a search index keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchedVersion {
    pub version_id: VersionId,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    pub sha256: ContentHash,
    pub updated_at: Timestamp,
}

/// A memory's position in the order in which the job reads memories.
pub type MemoryPlace = (TenantId, StoreId, MemoryId);

/// A place before every other one.
pub(crate) const FIRST_MEMORY: MemoryPlace = (FIRST_STORE.0, FIRST_STORE.1, MemoryId::from_uuid(Uuid::nil()));

/// A page of memories, read by the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedPage {
    /// The number of memories read.
    pub looked_at: u64,
    /// The last of these memories; `None`: none is left.
    pub last: Option<MemoryPlace>,
    /// Memories whose content has no terms, or terms of an older analyser.
    pub unindexed: Vec<UnindexedMemory>,
}

/// A memory whose content needs analysis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedMemory {
    pub place: MemoryPlace,
    pub blob_id: VersionId,
    pub sha256: ContentHash,
}

#[derive(Debug, Clone)]
pub struct SearchTerms(pub(crate) Database);

/// The position of a store, or one of its changes.
struct SinceRow {
    /// The position, and whether the whole store must be read.
    place: Option<(SearchPlace, bool)>,
    change: Option<SearchChange>,
}

struct UnindexedRow {
    memory: UnindexedMemory,
    is_unindexed: bool,
}

from_row! {
    SearchPlace { seq, purge_epoch, version_id }
    SearchChange { memory_id; head if "path" }
    SearchHead { path, terms; version }
    SearchedVersion { version_id = "head_id", blob_id, sha256, updated_at }
}

impl FromRow for SinceRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let place = row.read_unless_null("seq")?;
        Ok(Self { place: place.zip(row.get("is_whole")?), change: row.read_unless_null("memory_id")? })
    }
}

impl FromRow for UnindexedRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            memory: UnindexedMemory {
                place: (row.get("tenant_id")?, row.get("store_id")?, row.get("memory_id")?),
                blob_id: row.get("blob_id")?,
                sha256: row.get("sha256")?,
            },
            is_unindexed: row.get("is_unindexed")?,
        })
    }
}

impl SearchTerms {
    /// Returns the changes of a store since a position, in one query, or the whole
    /// store, in one more; `None`: the store does not exist.
    ///
    /// The cost grows with the size of the result. The result may include changes after
    /// the returned position and purge epoch; a later call returns those again.
    pub async fn changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.0.read_one("search_changes", role).await?;
        let known = since.place;
        let rows: Vec<SinceRow> = tx
            .query(tx.choose(CHANGES))
            .bind(tenant_id)
            .bind(store_id)
            .bind(known.map(|place| place.seq))
            .bind(known.map(|place| place.purge_epoch))
            .bind(known.and_then(|place| place.version_id))
            .bind(since.analyser)
            .bind(Ids(Some(&since.unindexed)))
            .all()
            .await?;
        drop(tx);
        let mut found = None;
        let mut memories = Vec::with_capacity(rows.len());
        for row in rows {
            found = found.or(row.place);
            memories.extend(row.change);
        }
        let Some((place, is_whole)) = found else {
            return Ok(None);
        };
        if is_whole && since.may_be_whole {
            let values = (tenant_id, store_id, since.analyser);
            memories = self.0.all("search_changes", role, self.0.choose(WHOLE), values).await?;
        }
        Ok(Some(SearchChanges { place, is_whole, memories }))
    }

    /// Reads the next `limit` live memories of all tenants after a position.
    pub async fn unindexed(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError> {
        let (tenant_id, store_id, memory_id) = after.unwrap_or(FIRST_MEMORY);
        let after = (tenant_id, store_id.uuid(), memory_id.uuid());
        let values = |after, limit| (after, limit, analyser);
        let rows: Vec<UnindexedRow> =
            self.0.page("unindexed_memories", UNINDEXED, after, limit, values).await?;
        Ok(UnindexedPage {
            looked_at: rows.len() as u64,
            last: rows.last().map(|row| row.memory.place),
            unindexed: rows.into_iter().filter(|row| row.is_unindexed).map(|row| row.memory).collect(),
        })
    }

    /// Writes the terms of memories of one store, under its lock; returns the number of
    /// memories written.
    ///
    /// Skips a memory if its content has changed, or if it already has terms by the
    /// same or a newer analyser.
    pub async fn put(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        rows: &[(MemoryId, VersionId, SearchRow)],
    ) -> Result<u64, IndexError> {
        let mut tx = self.0.write("put_search_rows", Role::Job(None)).await?;
        let store = lock_live_store(&mut tx, tenant_id, store_id).await?;
        let mut written = 0;
        for (memory_id, blob_id, row) in rows.iter().filter(|_| store.is_some()) {
            let query = tx.query(PUT).bind((tenant_id, store_id, *memory_id, *blob_id));
            let query = query.bind((row.analyser, row.length, row.terms.as_slice()));
            written += query.execute().await?;
        }
        tx.commit().await?;
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES, WHOLE};
    use crate::sqlite::plans::assert_steps;

    #[tokio::test]
    async fn searches_read_versions_by_range_and_memories_by_key() {
        let by_key = "sqlite_autoindex_search_doc_1 (tenant_id=? AND store_id=? AND memory_id=?)";
        let by_range = "SEARCH v USING PRIMARY KEY (tenant_id=? AND store_id=? AND seq>?)";
        assert_steps(CHANGES[1], &[by_range, by_key]).await;
        assert_steps(WHOLE[1], &[by_key]).await;
    }
}
