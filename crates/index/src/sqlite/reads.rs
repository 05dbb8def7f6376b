//! Reads of the request path.

use keepsake_core::{ContentHash, DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::SqliteIndex;
use crate::IndexError;
use crate::listing::end_of;
use crate::model::{Claim, Directory, Entry, Head, Lookup, Replayed, StoreState, Target};
use crate::numbers::unsigned;
use crate::statements::EARLIER_CALL;

/// Selects the store, and the memory or directory at a path, in one query.
const HEAD: &str = "SELECT s.archived_at IS NOT NULL, s.purge_epoch, \
    m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256, \
    m.claimed_by, m.claimed_until, d.files, d.bytes, d.visible_children \
    FROM store s \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.path = $3 AND m.deleted_at IS NULL \
    LEFT JOIN directory d ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = $4 \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// The number of entries that the subdirectories add to a listing.
const GRANDCHILDREN: &str = "SELECT coalesce(sum(visible_children), 0) FROM directory \
    WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND path <> '/' \
    AND substr(name, 1, 1) <> '.' AND name <> 'node_modules'";

/// The visible children of one directory by name, as one JSON array, merged from
/// two index ranges that each stop at the limit. One row holds all of them, because
/// each row is a separate message from SQLite's thread. A file's path is computed
/// from its parent and name, so that the index covers the query.
const CHILDREN: &str = "SELECT json_group_array(json_array(is_directory, path, size_bytes) ORDER BY name) FROM ( \
    SELECT * FROM (SELECT 0 AS is_directory, parent || name AS path, name, size_bytes FROM memory \
        WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND deleted_at IS NULL \
        AND substr(name, 1, 1) <> '.' AND name <> 'node_modules' ORDER BY name LIMIT $4) \
    UNION ALL \
    SELECT * FROM (SELECT 1, path, name, bytes FROM directory \
        WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND path <> '/' \
        AND substr(name, 1, 1) <> '.' AND name <> 'node_modules' ORDER BY name LIMIT $4) \
    ORDER BY name LIMIT $4)";

impl SqliteIndex {
    pub(super) async fn read_head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        let found = lookup(&mut connection, tenant_id, store_id, path).await?;
        let Some(Lookup {
            target: Target::Directory(_),
            ..
        }) = &found
        else {
            return Ok(found);
        };
        if max_entries == 0 {
            return Ok(found);
        }
        // The listing needs several queries, so it repeats the lookup in one snapshot.
        let mut snapshot = connection.begin().await?;
        let mut found = lookup(&mut snapshot, tenant_id, store_id, path).await?;
        if let Some(Lookup {
            target: Target::Directory(directory),
            ..
        }) = &mut found
        {
            let at = path.map_or_else(DirPath::root, MemoryPath::as_dir);
            list(&mut snapshot, tenant_id, store_id, &at, max_entries, directory).await?;
        }
        snapshot.commit().await?;
        Ok(found)
    }

    pub(super) async fn read_root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        let mut snapshot = connection.begin().await?;
        let found = lookup(&mut snapshot, tenant_id, store_id, None).await?;
        let Some(Target::Directory(mut directory)) = found.map(|found| found.target) else {
            return Ok(None);
        };
        let limit = usize::try_from(max_entries).unwrap_or(usize::MAX);
        directory.entries = children(&mut snapshot, tenant_id, store_id, "/", limit).await?;
        snapshot.commit().await?;
        Ok(Some(directory))
    }

    pub(super) async fn read_heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        let rows = sqlx::query(
            "SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, \
             claimed_by, claimed_until FROM memory \
             WHERE tenant_id = $1 AND store_id = $2 AND path >= $3 AND path < $4 AND deleted_at IS NULL \
             AND EXISTS (SELECT 1 FROM store s \
                 WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) ORDER BY path",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(directory.as_str())
        .bind(end_of(directory))
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(|row| head_of(row, 0)).collect()
    }

    pub(super) async fn read_replayed(
        &self,
        tenant_id: TenantId,
        scope_sha256: &[u8; 32],
        since: Timestamp,
    ) -> Result<Option<Replayed>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        earlier_call(&mut connection, tenant_id, scope_sha256, since).await
    }
}

/// The record of an earlier call with the same key.
pub(super) async fn earlier_call(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    scope_sha256: &[u8; 32],
    since: Timestamp,
) -> Result<Option<Replayed>, IndexError> {
    let row = sqlx::query(EARLIER_CALL)
        .bind(tenant_id.uuid())
        .bind(scope_sha256.as_slice())
        .bind(since.as_micros())
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(Replayed {
            seq: row.try_get(0)?,
            object_id: row.try_get(1)?,
            request_sha256: request_hash_of(row.try_get(2)?)?,
        })
    })
    .transpose()
}

async fn lookup(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    path: Option<&MemoryPath>,
) -> Result<Option<Lookup>, IndexError> {
    let directory = path.map_or_else(DirPath::root, MemoryPath::as_dir);
    let row = sqlx::query(HEAD)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(path.map(MemoryPath::as_str))
        .bind(directory.as_str())
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let store = StoreState {
        is_archived: row.try_get(0)?,
        purge_epoch: row.try_get(1)?,
    };
    let is_memory = row.try_get::<Option<&[u8]>, _>(4)?.is_some();
    let files: Option<i64> = row.try_get(11)?;
    let target = match (is_memory, files) {
        (true, _) => Target::Memory(head_of(&row, 2)?),
        (false, Some(files)) => Target::Directory(Directory {
            files: unsigned(files),
            size_bytes: unsigned(row.try_get(12)?),
            total_entries: unsigned(row.try_get(13)?),
            entries: Vec::new(),
        }),
        (false, None) => Target::Missing,
    };
    Ok(Some(Lookup { store, target }))
}

/// Fills in a directory's listing and its total, two levels deep.
async fn list(
    snapshot: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    at: &DirPath,
    max_entries: u64,
    directory: &mut Directory,
) -> Result<(), IndexError> {
    let below: i64 = sqlx::query_scalar(GRANDCHILDREN)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(at.as_str())
        .fetch_one(&mut *snapshot)
        .await?;
    directory.total_entries += unsigned(below);
    let mut remaining = usize::try_from(max_entries).unwrap_or(usize::MAX);
    for child in children(snapshot, tenant_id, store_id, at.as_str(), remaining).await? {
        if remaining == 0 {
            break;
        }
        remaining -= 1;
        let descend = child.is_directory.then(|| child.path.clone());
        directory.entries.push(child);
        if let Some(path) = descend.filter(|_| remaining > 0) {
            let grandchildren = children(snapshot, tenant_id, store_id, &path, remaining).await?;
            remaining -= grandchildren.len();
            directory.entries.extend(grandchildren);
        }
    }
    Ok(())
}

async fn children(
    snapshot: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    directory: &str,
    limit: usize,
) -> Result<Vec<Entry>, IndexError> {
    let children: Json<Vec<(i64, String, i64)>> = sqlx::query_scalar(CHILDREN)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(directory)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_one(snapshot)
        .await?;
    let entry = |(is_directory, path, size_bytes): (i64, String, i64)| Entry {
        path,
        is_directory: is_directory == 1,
        size_bytes: unsigned(size_bytes),
    };
    Ok(children.0.into_iter().map(entry).collect())
}

/// The request hash in the record of an idempotent call.
fn request_hash_of(bytes: &[u8]) -> Result<[u8; 32], IndexError> {
    bytes.try_into().map_err(|_| IndexError::Corrupt {
        table: "idempotency",
        what: "a hash that is not 32 bytes",
    })
}

/// Reads a head from the columns that begin at `first`: path, size, memory,
/// version, seq, blob, hash, claimant, the claim's end.
pub(super) fn head_of(row: &SqliteRow, first: usize) -> Result<Head, IndexError> {
    let claimant: Option<Uuid> = row.try_get(first + 7)?;
    let until: Option<i64> = row.try_get(first + 8)?;
    Ok(Head {
        path: MemoryPath::from_trusted(row.try_get(first)?),
        size_bytes: unsigned(row.try_get(first + 1)?),
        memory_id: MemoryId::from_uuid(row.try_get(first + 2)?),
        version_id: VersionId::from_uuid(row.try_get(first + 3)?),
        seq: row.try_get(first + 4)?,
        blob_id: VersionId::from_uuid(row.try_get(first + 5)?),
        sha256: hash_of(row.try_get(first + 6)?, "memory")?,
        claim: claimant.zip(until).map(|(replica, until)| Claim {
            replica,
            until: Timestamp::from_micros(until),
        }),
    })
}

pub(super) fn hash_of(bytes: &[u8], table: &'static str) -> Result<ContentHash, IndexError> {
    <[u8; 32]>::try_from(bytes)
        .map(ContentHash::from)
        .map_err(|_| IndexError::Corrupt {
            table,
            what: "a hash that is not 32 bytes",
        })
}
