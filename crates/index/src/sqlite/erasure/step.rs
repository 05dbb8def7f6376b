//! The database operations of a step of an erasure.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keepsake_core::{DirPath, ErasureId, MemoryPath, StoreId, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::super::commit::{emptied_paths, moved_rows};
use super::super::purge::{end_store, purge_batch};
use super::{json_of, uuids};
use crate::IndexError;
use crate::commit::CommitPlan;
use crate::directories::Directories;
use crate::erasure::{FORGOTTEN, Ground, Purged, TakenMemories, TakenVersion};
use crate::listing::end_of;
use crate::numbers::unsigned;
use crate::statements::sessions::TAKE_EVENTS_BELOW;
use crate::statements::{CALLS_THROUGH, CLAIM_BLOBS, COUNT_ERASED, FORGET_REQUEST, HISTORY_BELOW};

/// Deletes a batch of memories, and returns the fields that the step needs.
const TAKE_MEMORIES: &str = "DELETE FROM memory WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3)) \
    RETURNING path, size_bytes, deleted_at IS NULL";

/// Deletes the memories' related rows: access times and search documents.
const TAKE_BESIDE: [&str; 2] = [
    "DELETE FROM memory_access WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3))",
    "DELETE FROM search_doc WHERE tenant_id = $1 AND store_id = $2 AND memory_id IN (SELECT unhex(value) FROM json_each($3))",
];

/// Deletes a batch of the versions of some memories.
const TAKE_VERSIONS: &str = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq IN ( \
    SELECT v.seq FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN (SELECT unhex(value) FROM json_each($3)) LIMIT $4) \
    RETURNING blob_id, size_bytes";

/// Deletes events that contain paths of the versions of some memories.
const TAKE_EVENTS_OF: &str = "DELETE FROM session_event WHERE tenant_id = $1 AND (session_id, at, event_id) IN ( \
    SELECT e.session_id, e.at, e.event_id FROM (SELECT DISTINCT v.path FROM version v \
        WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.memory_id IN (SELECT unhex(value) FROM json_each($3)) AND v.path IS NOT NULL) p \
    JOIN session_event e ON e.tenant_id = $1 AND e.store_id = $2 AND (e.path = p.path OR e.new_path = p.path) LIMIT $4)";

/// Queues blobs that no version references any longer: neither the version that
/// introduced it, nor one that shares it.
const CONDEMN: &str = "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason, erasure_id) \
    SELECT $1, $2, unhex(b.value), $5, 0, 'erased', $4 FROM json_each($3) b \
    WHERE NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.version_id = unhex(b.value) AND v.blob_id = v.version_id) \
        AND NOT EXISTS (SELECT 1 FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 \
            AND v.blob_id BETWEEN unhex(b.value) AND unhex(b.value) AND v.blob_id <> v.version_id) \
    ON CONFLICT (tenant_id, store_id, blob_id) DO UPDATE SET reason = excluded.reason, \
        erasure_id = excluded.erasure_id, not_before = excluded.not_before RETURNING blob_id";

/// Deletes call records about deleted memories or stores.
const TAKE_CALLS: &str = "DELETE FROM idempotency AS i WHERE i.tenant_id = $1 AND i.scope_sha256 > $2 \
    AND ($3 IS NULL OR i.scope_sha256 <= $3) AND i.store_id IN (SELECT unhex(value) FROM json_each($4)) \
    AND CASE WHEN i.version_seq IS NULL \
        THEN NOT EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = i.store_id) \
        ELSE NOT EXISTS (SELECT 1 FROM memory m WHERE m.tenant_id = $1 AND m.store_id = i.store_id \
            AND m.memory_id = i.object_id) END";

/// The write connection during a step.
pub(super) struct Step<'a> {
    pub(super) connection: &'a mut SqliteConnection,
    pub(super) tenant_id: TenantId,
}

#[async_trait]
impl Ground for Step<'_> {
    async fn end_store(&mut self, store_id: StoreId, now: Timestamp) -> Result<(), IndexError> {
        end_store(self.connection, self.tenant_id, store_id, now).await?;
        Ok(())
    }

    async fn purge_store(&mut self, store_id: StoreId, limit: i64) -> Result<Purged, IndexError> {
        let never = Timestamp::from_micros(i64::MAX);
        purge_batch(self.connection, self.tenant_id, store_id, never, limit).await
    }

    async fn claim_blobs(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        with_orphans: bool,
    ) -> Result<(), IndexError> {
        sqlx::query(CLAIM_BLOBS)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(erasure_id.uuid())
            .bind(i64::MAX)
            .bind(with_orphans)
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }

    async fn versions(
        &mut self,
        store_id: StoreId,
        (after, through): (i64, i64),
        below: &DirPath,
        limit: i64,
    ) -> Result<Vec<(i64, Uuid, bool)>, IndexError> {
        Ok(sqlx::query_as(HISTORY_BELOW)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(after)
            .bind(through)
            .bind(limit)
            .bind(below.as_str())
            .bind(end_of(below))
            .fetch_all(&mut *self.connection)
            .await?)
    }

    async fn lock_store(&mut self, store_id: StoreId) -> Result<Option<bool>, IndexError> {
        Ok(sqlx::query_scalar(
            "SELECT deleted_at IS NOT NULL FROM store WHERE tenant_id = $1 AND store_id = $2",
        )
        .bind(self.tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *self.connection)
        .await?)
    }

    async fn take_memories(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
    ) -> Result<TakenMemories, IndexError> {
        let rows: Vec<(String, Option<i64>, bool)> = sqlx::query_as(TAKE_MEMORIES)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(json_of(memories))
            .fetch_all(&mut *self.connection)
            .await?;
        let mut besides = [0; 2];
        for (taken, statement) in besides.iter_mut().zip(TAKE_BESIDE) {
            let query = sqlx::query(statement)
                .bind(self.tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(json_of(memories));
            *taken = query.execute(&mut *self.connection).await?.rows_affected();
        }
        let live = rows.iter().filter(|(_, _, is_live)| *is_live);
        let live = live.map(|(path, size_bytes, _)| {
            let path = MemoryPath::from_trusted(path.clone());
            (path, unsigned(size_bytes.unwrap_or_default()))
        });
        Ok(TakenMemories {
            memories: rows.len() as u64,
            live: live.collect(),
            access_times: besides[0],
            search_documents: besides[1],
        })
    }

    async fn move_directories(&mut self, store_id: StoreId, plan: &CommitPlan) -> Result<(), IndexError> {
        let paths = plan.directories.keys().map(|directory| json!(directory.as_str()));
        let existing: Vec<(String, i64)> = sqlx::query_as(
            "SELECT path, files FROM directory WHERE tenant_id = $1 AND store_id = $2 \
             AND path IN (SELECT value FROM json_each($3))",
        )
        .bind(self.tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(paths.collect::<Value>().to_string())
        .fetch_all(&mut *self.connection)
        .await?;
        let existing: BTreeMap<_, _> = existing.into_iter().collect();
        let directories = Directories::of(&plan.directories, &existing);
        sqlx::query(
            "UPDATE directory SET files = files + (d.value ->> 3), bytes = bytes + (d.value ->> 4), \
                 visible_children = visible_children + (d.value ->> 5) \
             FROM json_each($3) d WHERE directory.tenant_id = $1 AND directory.store_id = $2 \
                 AND directory.path = d.value ->> 0",
        )
        .bind(self.tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(moved_rows(&directories))
        .execute(&mut *self.connection)
        .await?;
        sqlx::query(
            "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 \
             AND path IN (SELECT value FROM json_each($3))",
        )
        .bind(self.tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(emptied_paths(&directories))
        .execute(&mut *self.connection)
        .await?;
        Ok(())
    }

    async fn take_events_of(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<u64, IndexError> {
        let taken = sqlx::query(TAKE_EVENTS_OF)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(json_of(memories))
            .bind(limit)
            .execute(&mut *self.connection)
            .await?;
        Ok(taken.rows_affected())
    }

    async fn take_events_below(
        &mut self,
        store_id: StoreId,
        below: &DirPath,
        limit: i64,
    ) -> Result<u64, IndexError> {
        let taken = sqlx::query(TAKE_EVENTS_BELOW)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(below.as_str().trim_end_matches('/'))
            .bind(below.as_str())
            .bind(end_of(below))
            .bind(limit)
            .execute(&mut *self.connection)
            .await?;
        Ok(taken.rows_affected())
    }

    async fn take_versions(
        &mut self,
        store_id: StoreId,
        memories: &[Uuid],
        limit: i64,
    ) -> Result<Vec<TakenVersion>, IndexError> {
        let rows: Vec<(Option<Uuid>, Option<i64>)> = sqlx::query_as(TAKE_VERSIONS)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(json_of(memories))
            .bind(limit)
            .fetch_all(&mut *self.connection)
            .await?;
        let taken = rows
            .into_iter()
            .map(|(blob_id, size_bytes)| TakenVersion { blob_id, size_bytes });
        Ok(taken.collect())
    }

    async fn condemn(
        &mut self,
        store_id: StoreId,
        erasure_id: ErasureId,
        blobs: &[Uuid],
    ) -> Result<Vec<Uuid>, IndexError> {
        Ok(sqlx::query_scalar(CONDEMN)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(json_of(blobs))
            .bind(erasure_id.uuid())
            .bind(i64::MAX)
            .fetch_all(&mut *self.connection)
            .await?)
    }

    async fn count(&mut self, store_id: StoreId, taken: [i64; 4]) -> Result<(), IndexError> {
        let query = sqlx::query(COUNT_ERASED)
            .bind(self.tenant_id.uuid())
            .bind(store_id.uuid());
        let query = taken.into_iter().fold(query, sqlx::query::Query::bind);
        query.execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn take_calls(
        &mut self,
        stores: &[StoreId],
        after: &[u8],
        limit: i64,
    ) -> Result<(u64, Option<Vec<u8>>), IndexError> {
        let through: Option<Vec<u8>> = sqlx::query_scalar(CALLS_THROUGH)
            .bind(self.tenant_id.uuid())
            .bind(after)
            .bind(limit - 1)
            .fetch_optional(&mut *self.connection)
            .await?;
        let taken = sqlx::query(TAKE_CALLS)
            .bind(self.tenant_id.uuid())
            .bind(after)
            .bind(&through)
            .bind(uuids(stores))
            .execute(&mut *self.connection)
            .await?;
        Ok((taken.rows_affected(), through))
    }

    async fn forget_request(&mut self, scope_sha256: &[u8]) -> Result<(), IndexError> {
        sqlx::query(FORGET_REQUEST)
            .bind(self.tenant_id.uuid())
            .bind(scope_sha256)
            .bind(FORGOTTEN.as_slice())
            .execute(&mut *self.connection)
            .await?;
        Ok(())
    }
}
