//! Search terms of memories: written by commits, read by replicas for searches, and
//! added to older memories by a job.
//!
//! The index does not interpret the terms; it stores them with their content.

use std::sync::Arc;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role, RowLock};
use crate::memories::INCOMPLETE;
use crate::numbers::hash_of;

/// The position of a store and, unless `is_whole`, the memories that changed since
/// `$3`, and those in `$7`.
const CHANGES: [&str; 2] = [
    "SELECT seq, purge_epoch, version_id, is_whole, memory_id, path, blob_id, sha256, updated_at, terms \
    FROM search_changes($1, $2, $3, $4, $5, $6, $7)",
    "WITH place AS MATERIALIZED (SELECT s.seq, s.purge_epoch, \
            (SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = s.seq) \
                AS version_id, \
            $3 IS NULL OR $3 > s.seq OR $4 IS NOT s.purge_epoch OR $5 IS NOT ( \
                SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.seq = $3) \
                AS is_whole \
        FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
    SELECT seq, purge_epoch, version_id, is_whole, NULL AS memory_id, NULL AS path, NULL AS blob_id, \
        NULL AS sha256, NULL AS updated_at, NULL AS terms FROM place \
    UNION ALL SELECT NULL, NULL, NULL, NULL, c.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms \
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
    "SELECT m.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms FROM memory m \
    LEFT JOIN LATERAL (SELECT d.terms FROM search_doc d \
        WHERE d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id AND d.blob_id = m.blob_id \
            AND d.analyser = $3 LIMIT 1) d ON true \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL",
    "SELECT m.memory_id, m.path, m.blob_id, m.sha256, m.updated_at, d.terms FROM memory m \
    LEFT JOIN search_doc d ON d.tenant_id = $1 AND d.store_id = $2 AND d.memory_id = m.memory_id \
        AND d.blob_id = m.blob_id AND d.analyser = $3 \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL",
];

/// Live memories after a given one, and whether each one needs indexing. The limit
/// applies before the joins.
const UNINDEXED: &str = "SELECT p.tenant_id, p.store_id, p.memory_id, p.blob_id, p.sha256, \
    coalesce(s.purge_epoch, 0) AS purge_epoch, \
    s.store_id IS NOT NULL AND (d.blob_id IS NULL OR d.blob_id <> p.blob_id OR d.analyser < $5) AS is_unindexed \
    FROM (SELECT m.tenant_id, m.store_id, m.memory_id, m.blob_id, m.sha256 FROM memory m \
        WHERE (m.tenant_id, m.store_id, m.memory_id) > ($1, $2, $3) AND m.deleted_at IS NULL \
        ORDER BY m.tenant_id, m.store_id, m.memory_id LIMIT $4) p \
    LEFT JOIN store s ON s.tenant_id = p.tenant_id AND s.store_id = p.store_id AND s.deleted_at IS NULL \
    LEFT JOIN search_doc d ON d.tenant_id = p.tenant_id AND d.store_id = p.store_id AND d.memory_id = p.memory_id \
    ORDER BY p.tenant_id, p.store_id, p.memory_id";

const LOCK_STORE: &str =
    "SELECT seq FROM store WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// Writes the terms of a content, if the memory still has that content.
const PUT: &str = "INSERT INTO search_doc (tenant_id, store_id, memory_id, blob_id, analyser, length, terms) \
    SELECT $1, $2, m.memory_id, m.blob_id, $5, $6, $7 FROM memory m \
    WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $3 AND m.blob_id = $4 AND m.deleted_at IS NULL \
    ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE SET blob_id = excluded.blob_id, \
        analyser = excluded.analyser, length = excluded.length, terms = excluded.terms \
    WHERE search_doc.blob_id IS NULL OR search_doc.blob_id <> excluded.blob_id \
        OR search_doc.analyser < excluded.analyser";

/// The search terms of one content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchRow {
    /// The version of the analyser that made them; higher is newer.
    pub analyser: u32,
    /// The length of the content, as that analyser counts it.
    pub length: u32,
    /// The terms, encoded by that analyser.
    pub terms: Vec<u8>,
}

/// The position up to which a store's history was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlace {
    /// The sequence number of the last version.
    pub seq: i64,
    /// The purge epoch at that time.
    pub purge_epoch: i64,
    /// The version with that sequence number; `None`: retention removed it. A restored
    /// database has another version there, or none.
    pub version_id: Option<VersionId>,
}

impl SearchPlace {
    /// Its order among the positions of one history.
    pub const fn order(&self) -> (i64, i64) {
        (self.purge_epoch, self.seq)
    }
}

/// The state of a replica's search index, to request later changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchSince {
    /// The position up to which it is current; `None`: it is empty.
    pub place: Option<SearchPlace>,
    /// The version of the analyser whose terms the replica can read.
    pub analyser: u32,
    /// Memories that had no terms at the last read, and are read again.
    pub unindexed: Vec<MemoryId>,
    /// Whether the reply may contain all memories. If it is `false` and a complete
    /// reply is needed, the reply says only that.
    pub may_be_whole: bool,
}

/// The changes of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChanges {
    /// The position of the changes. Content may be read under its purge epoch.
    pub place: SearchPlace,
    /// Whether these are all memories of the store, so that others must be dropped: the
    /// request had no position, history was removed since, or the database was restored
    /// since.
    pub is_whole: bool,
    /// The changed memories, unordered.
    pub memories: Vec<SearchChange>,
}

/// The change of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchChange {
    /// The memory.
    pub memory_id: MemoryId,
    /// The memory's current state; `None`: it no longer exists.
    pub head: Option<SearchHead>,
}

/// The state of a memory that search needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHead {
    /// Its path.
    pub path: MemoryPath,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// The terms of this content; `None`: it has none, or only those of another
    /// analyser.
    pub terms: Option<Arc<[u8]>>,
}

/// A memory's position in the order in which the job reads memories.
pub type MemoryPlace = (TenantId, StoreId, MemoryId);

/// A page of memories, read by the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnindexedPage {
    /// The number of memories read.
    pub looked_at: u64,
    /// The last of these memories; `None`: none is left.
    pub last: Option<MemoryPlace>,
    /// Memories whose content has no terms, or terms of an older analyser.
    pub unindexed: Vec<Unindexed>,
}

/// A memory whose content needs analysis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unindexed {
    /// Its position.
    pub place: MemoryPlace,
    /// The blob that holds its content.
    pub blob_id: VersionId,
    /// SHA-256 of its content.
    pub sha256: ContentHash,
    /// The store's purge epoch, under which the content may be read.
    pub purge_epoch: i64,
}

/// Search terms of memories.
#[derive(Debug, Clone)]
pub struct SearchTerms {
    database: Database,
}

/// The position of a store, or one of its changes.
#[derive(sqlx::FromRow)]
struct SinceRow {
    seq: Option<i64>,
    purge_epoch: Option<i64>,
    version_id: Option<Uuid>,
    is_whole: Option<bool>,
    memory_id: Option<Uuid>,
    #[sqlx(flatten)]
    head: HeadRow,
}

#[derive(sqlx::FromRow)]
struct MemoryRow {
    memory_id: Uuid,
    #[sqlx(flatten)]
    head: HeadRow,
}

/// The state of a memory; without a path, it no longer exists.
#[derive(sqlx::FromRow)]
struct HeadRow {
    path: Option<String>,
    blob_id: Option<Uuid>,
    sha256: Option<Vec<u8>>,
    updated_at: Option<i64>,
    terms: Option<Arc<[u8]>>,
}

#[derive(sqlx::FromRow)]
struct UnindexedRow {
    tenant_id: Uuid,
    store_id: Uuid,
    memory_id: Uuid,
    blob_id: Uuid,
    sha256: Vec<u8>,
    purge_epoch: i64,
    is_unindexed: bool,
}

impl SearchTerms {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Returns the changes of a store since a position, in one query, or the whole
    /// store, in one more; `None`: the store does not exist.
    ///
    /// The cost grows with the size of the result. The result may include changes after
    /// the returned position and purge epoch; a later call returns those again.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn changes(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        since: &SearchSince,
    ) -> Result<Option<SearchChanges>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_one("search_changes", role).await?;
        let known = since.place;
        let rows: Vec<SinceRow> = tx
            .query(tx.choose(CHANGES))
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(known.map(|place| place.seq))
            .bind(known.map(|place| place.purge_epoch))
            .bind(known.and_then(|place| place.version_id).map(VersionId::uuid))
            .bind(i64::from(since.analyser))
            .bind_ids(Some(since.unindexed.iter().map(|id| id.uuid()).collect()))
            .all()
            .await?;
        drop(tx);
        let mut found = None;
        let mut memories = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(memory_id) = row.memory_id {
                memories.push(row.head.into_change(memory_id)?);
            } else {
                found = row.into_place();
            }
        }
        let Some((place, is_whole)) = found else {
            return Ok(None);
        };
        if is_whole && since.may_be_whole {
            memories = self.whole_store(tenant_id, store_id, since.analyser).await?;
        }
        Ok(Some(SearchChanges {
            place,
            is_whole,
            memories,
        }))
    }

    async fn whole_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        analyser: u32,
    ) -> Result<Vec<SearchChange>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read("search_changes", role).await?;
        let query = tx.query(tx.choose(WHOLE)).bind(tenant_id.uuid());
        let query = query.bind(store_id.uuid()).bind(i64::from(analyser));
        let rows: Vec<MemoryRow> = query.all().await?;
        tx.commit().await?;
        let change = |row: MemoryRow| row.head.into_change(row.memory_id);
        rows.into_iter().map(change).collect()
    }

    /// Reads the next `limit` live memories of all tenants after a position.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn unindexed(
        &self,
        after: Option<MemoryPlace>,
        analyser: u32,
        limit: u32,
    ) -> Result<UnindexedPage, IndexError> {
        let [tenant, store, memory] = after.map_or([Uuid::nil(); 3], |(tenant, store, memory)| {
            [tenant.uuid(), store.uuid(), memory.uuid()]
        });
        let role = Role::Job(None);
        let mut tx = self.database.read_one("unindexed_memories", role).await?;
        let query = tx.query(UNINDEXED).bind(tenant).bind(store).bind(memory);
        let query = query.bind(i64::from(limit)).bind(i64::from(analyser));
        let rows: Vec<UnindexedRow> = query.all().await?;
        let unindexed = rows.iter().filter(|row| row.is_unindexed);
        Ok(UnindexedPage {
            looked_at: rows.len() as u64,
            last: rows.last().map(UnindexedRow::place),
            unindexed: unindexed.map(UnindexedRow::unindexed).collect::<Result<_, _>>()?,
        })
    }

    /// Writes the terms of memories of one store, under its lock; returns the number of
    /// memories written.
    ///
    /// Skips a memory if its content has changed, or if it already has terms by the
    /// same or a newer analyser.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn put(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        rows: &[(MemoryId, VersionId, SearchRow)],
    ) -> Result<u64, IndexError> {
        let mut tx = self.database.write("put_search_rows", Role::Job(None)).await?;
        let lock = tx.query_locking(LOCK_STORE, RowLock::NoKeyUpdate);
        let lock = lock.bind(tenant_id.uuid()).bind(store_id.uuid());
        let is_there = lock.optional_scalar::<i64>().await?.is_some();
        let mut written = 0;
        for (memory_id, blob_id, row) in rows.iter().filter(|_| is_there) {
            written += tx
                .query(PUT)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(memory_id.uuid())
                .bind(blob_id.uuid())
                .bind(i64::from(row.analyser))
                .bind(i64::from(row.length))
                .bind(row.terms.as_slice())
                .execute()
                .await?;
        }
        tx.commit().await?;
        Ok(written)
    }
}

impl SinceRow {
    /// The position, and whether the whole store must be read.
    fn into_place(self) -> Option<(SearchPlace, bool)> {
        let place = SearchPlace {
            seq: self.seq?,
            purge_epoch: self.purge_epoch?,
            version_id: self.version_id.map(VersionId::from_uuid),
        };
        Some((place, self.is_whole?))
    }
}

impl HeadRow {
    fn into_change(self, memory_id: Uuid) -> Result<SearchChange, IndexError> {
        let head = |path| {
            Ok::<_, IndexError>(SearchHead {
                path: MemoryPath::from_trusted(path),
                blob_id: VersionId::from_uuid(self.blob_id.ok_or(INCOMPLETE)?),
                sha256: hash_of(&self.sha256.ok_or(INCOMPLETE)?, "memory")?,
                updated_at: Timestamp::from_micros(self.updated_at.ok_or(INCOMPLETE)?),
                terms: self.terms,
            })
        };
        Ok(SearchChange {
            memory_id: MemoryId::from_uuid(memory_id),
            head: self.path.map(head).transpose()?,
        })
    }
}

impl UnindexedRow {
    fn place(&self) -> MemoryPlace {
        (
            TenantId::from_uuid(self.tenant_id),
            StoreId::from_uuid(self.store_id),
            MemoryId::from_uuid(self.memory_id),
        )
    }

    fn unindexed(&self) -> Result<Unindexed, IndexError> {
        Ok(Unindexed {
            place: self.place(),
            blob_id: VersionId::from_uuid(self.blob_id),
            sha256: hash_of(&self.sha256, "memory")?,
            purge_epoch: self.purge_epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES, WHOLE};
    use crate::sqlite::plans::steps_of;

    #[tokio::test]
    async fn searches_read_versions_by_range_and_memories_by_key() {
        let by_key = "PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=?)";
        for (statement, parts) in [
            (
                CHANGES[1],
                [
                    "SEARCH v USING PRIMARY KEY (tenant_id=? AND store_id=? AND seq>?)",
                    by_key,
                ],
            ),
            (WHOLE[1], ["SEARCH m USING ", by_key]),
        ] {
            let steps = steps_of(statement).await;
            for part in parts {
                assert!(steps.iter().any(|step| step.contains(part)), "{part}: {steps:#?}");
            }
        }
    }
}
