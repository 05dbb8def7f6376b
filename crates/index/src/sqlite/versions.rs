//! The history of a store: versions by sequence number and by id, and lists of
//! them.

use async_trait::async_trait;
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::SqliteIndex;
use super::reads::store_state_of;
use crate::model::{FoundVersion, Operation, StoredContent, Version, VersionListing, VersionPage};
use crate::numbers::hash_of;
use crate::numbers::unsigned;
use crate::statements::VERSION;
use crate::{IndexError, VersionIndex};

const STATE: &str = "SELECT archived_at IS NOT NULL, purge_epoch, seq FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

const VERSION_AT: &str = "SELECT v.seq, v.version_id, v.prev_seq, v.memory_id, v.op, v.path, v.blob_id, v.size_bytes, \
    v.sha256, v.created_at, v.actor_type, v.actor_id, v.redacted_at, v.redacted_by_type, v.redacted_by \
    FROM store s JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = $3 \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// When the last version at or before a sequence number was created.
const MADE_AT: &str = "SELECT created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq <= $3 \
    ORDER BY seq DESC LIMIT 1";

/// Selects versions before `$3` and after `$4`, at most `$5`. The query uses the
/// index of the first given filter among memory (`$6`), actor (`$8`, `$9`) and
/// operation (`$7`), or else the primary key; the other filters are conditions.
const OF_MEMORY: &str = "SELECT seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, created_at, \
    actor_type, actor_id, redacted_at, redacted_by_type, redacted_by FROM version INDEXED BY version_memory \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $6 AND seq < $3 AND seq > $4 \
    AND ($7 IS NULL OR op = $7) AND ($9 IS NULL OR actor_type = $8 AND actor_id = $9) ORDER BY seq DESC LIMIT $5";

const OF_ACTOR: &str = "SELECT seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, created_at, \
    actor_type, actor_id, redacted_at, redacted_by_type, redacted_by FROM version INDEXED BY version_actor \
    WHERE tenant_id = $1 AND store_id = $2 AND actor_id = $9 AND seq < $3 AND seq > $4 \
    AND actor_type = $8 AND ($7 IS NULL OR op = $7) ORDER BY seq DESC LIMIT $5";

const OF_OPERATION: &str = "SELECT seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, \
    created_at, actor_type, actor_id, redacted_at, redacted_by_type, redacted_by FROM version INDEXED BY version_op \
    WHERE tenant_id = $1 AND store_id = $2 AND op = $7 AND op <> 'modified' AND seq < $3 AND seq > $4 \
    ORDER BY seq DESC LIMIT $5";

const OF_ALL: &str = "SELECT seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, created_at, \
    actor_type, actor_id, redacted_at, redacted_by_type, redacted_by FROM version \
    WHERE tenant_id = $1 AND store_id = $2 AND seq < $3 AND seq > $4 AND ($7 IS NULL OR op = $7) \
    ORDER BY seq DESC LIMIT $5";

#[async_trait]
impl VersionIndex for SqliteIndex {
    async fn version_at(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Version>, IndexError> {
        let row = sqlx::query(VERSION_AT)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(seq)
            .fetch_optional(&self.readers)
            .await?;
        row.map(|row| version_of(&row)).transpose()
    }

    async fn version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<Option<FoundVersion>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        let mut snapshot = connection.begin().await?;
        let Some(state) = store_row(&mut snapshot, tenant_id, store_id).await? else {
            return Ok(None);
        };
        let row = sqlx::query(VERSION)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(version_id.uuid())
            .fetch_optional(&mut *snapshot)
            .await?;
        snapshot.commit().await?;
        Ok(Some(FoundVersion {
            store: store_state_of(&state)?,
            version: row.map(|row| version_of(&row)).transpose()?,
        }))
    }

    async fn list_versions(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &VersionListing,
    ) -> Result<Option<VersionPage>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        let mut snapshot = connection.begin().await?;
        let Some(state) = store_row(&mut snapshot, tenant_id, store_id).await? else {
            return Ok(None);
        };
        let end = state.try_get::<i64, _>(2)? + 1;
        let mut before = listing.before.map_or(end, |before| before.min(end));
        if let Some(to) = listing.created_to {
            let after = Timestamp::from_micros(to.as_micros().saturating_add(1));
            before = seq_at(&mut snapshot, tenant_id, store_id, after, before).await?;
        }
        let mut after = 0;
        if let Some(from) = listing.created_from {
            after = seq_at(&mut snapshot, tenant_id, store_id, from, before).await? - 1;
        }
        let statement = match (listing.memory_id, &listing.actor, listing.operation) {
            (Some(_), ..) => OF_MEMORY,
            (None, Some(_), _) => OF_ACTOR,
            (None, None, Some(Operation::Created | Operation::Deleted)) => OF_OPERATION,
            (None, None, Some(Operation::Modified) | None) => OF_ALL,
        };
        let rows = sqlx::query(statement)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(before)
            .bind(after)
            .bind(listing.limit)
            .bind(listing.memory_id.map(keepsake_core::Id::uuid))
            .bind(listing.operation.map(Operation::name))
            .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
            .bind(listing.actor.as_ref().map(|(_, id)| id))
            .fetch_all(&mut *snapshot)
            .await?;
        snapshot.commit().await?;
        Ok(Some(VersionPage {
            store: store_state_of(&state)?,
            versions: rows.iter().map(version_of).collect::<Result<_, _>>()?,
        }))
    }

    async fn versions_with_content(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        sha256: ContentHash,
        limit: u32,
    ) -> Result<Vec<VersionId>, IndexError> {
        let ids: Vec<Uuid> = sqlx::query_scalar(
            "SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.sha256 = $3 \
             AND EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
             ORDER BY v.seq DESC LIMIT $4",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(sha256.as_bytes().as_slice())
        .bind(limit)
        .fetch_all(&self.readers)
        .await?;
        Ok(ids.into_iter().map(VersionId::from_uuid).collect())
    }
}

async fn store_row(
    snapshot: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<SqliteRow>, IndexError> {
    let row = sqlx::query(STATE).bind(tenant_id.uuid()).bind(store_id.uuid());
    Ok(row.fetch_optional(snapshot).await?)
}

/// The lowest sequence number, up to `high`, of the versions created at `at` or
/// later.
///
/// `created_at` never decreases with `seq`, so a binary search finds it.
async fn seq_at(
    snapshot: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    at: Timestamp,
    mut high: i64,
) -> Result<i64, IndexError> {
    let mut low = 0;
    while high - low > 1 {
        let middle = low.midpoint(high);
        let made_at: Option<i64> = sqlx::query_scalar(MADE_AT)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(middle)
            .fetch_optional(&mut *snapshot)
            .await?;
        if made_at.is_some_and(|made_at| made_at >= at.as_micros()) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// Reads a version's row, in the order of the columns of [`VERSION`].
pub(super) fn version_of(row: &SqliteRow) -> Result<Version, IndexError> {
    let corrupt = |what| IndexError::Corrupt {
        table: "version",
        what,
    };
    let blob_id: Option<Uuid> = row.try_get(6)?;
    let content = match blob_id {
        Some(blob_id) => Some(StoredContent {
            blob_id: VersionId::from_uuid(blob_id),
            size_bytes: unsigned(row.try_get(7)?),
            sha256: hash_of(row.try_get(8)?, "version")?,
        }),
        None => None,
    };
    let actor = |kind: usize, id: usize| match (row.try_get(kind)?, row.try_get(id)?) {
        (Some(kind), Some(id)) => Actor::from_stored(kind, id)
            .map(Some)
            .ok_or_else(|| corrupt("an actor that nobody is")),
        _ => Ok(None),
    };
    Ok(Version {
        seq: row.try_get(0)?,
        version_id: VersionId::from_uuid(row.try_get(1)?),
        prev_seq: row.try_get(2)?,
        memory_id: MemoryId::from_uuid(row.try_get(3)?),
        operation: Operation::parse(row.try_get(4)?).ok_or_else(|| corrupt("unknown operation"))?,
        path: row.try_get::<Option<String>, _>(5)?.map(MemoryPath::from_trusted),
        content,
        created_at: Timestamp::from_micros(row.try_get(9)?),
        created_by: actor(10, 11)?,
        redacted_at: row.try_get::<Option<i64>, _>(12)?.map(Timestamp::from_micros),
        redacted_by: actor(13, 14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{MADE_AT, OF_ACTOR, OF_ALL, OF_MEMORY, OF_OPERATION, VERSION};
    use crate::sqlite::plans::steps_of;

    #[tokio::test]
    async fn lists_go_by_the_index_of_their_filter() {
        for (statement, range) in [
            (VERSION, "(tenant_id=? AND store_id=? AND version_id=?)"),
            (MADE_AT, "(tenant_id=? AND store_id=? AND seq<?)"),
            (
                OF_MEMORY,
                "(tenant_id=? AND store_id=? AND memory_id=? AND seq>? AND seq<?)",
            ),
            (
                OF_ACTOR,
                "(tenant_id=? AND store_id=? AND actor_id=? AND seq>? AND seq<?)",
            ),
            (
                OF_OPERATION,
                "(tenant_id=? AND store_id=? AND op=? AND seq>? AND seq<?)",
            ),
            (
                OF_ALL,
                "PRIMARY KEY (tenant_id=? AND store_id=? AND seq>? AND seq<?)",
            ),
        ] {
            let steps = steps_of(statement).await;
            assert!(
                steps.iter().any(|step| step.ends_with(range)),
                "{range}: {steps:#?}"
            );
            assert!(
                !steps.iter().any(|step| step.contains("TEMP B-TREE")),
                "{steps:#?}"
            );
        }
    }
}
