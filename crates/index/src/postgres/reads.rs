//! Reads of the request path.

use keepsake_core::{ContentHash, DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Row};
use uuid::Uuid;

use super::PostgresIndex;
use crate::IndexError;
use crate::listing::end_of;
use crate::model::{Claim, Directory, Entry, Head, Lookup, Replayed, StoreState, Target};
use crate::numbers::unsigned;
use crate::statements::EARLIER_CALL;

impl PostgresIndex {
    pub(super) async fn read_head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        let directory = path.map_or_else(DirPath::root, MemoryPath::as_dir);
        let rows = sqlx::query(
            "SELECT kind, path, size_bytes, archived_at, purge_epoch, memory_id, version_id, head_seq, blob_id, \
             sha256, claimed_by, claimed_until, files, total_entries FROM read_head($1, $2, $3, $4, $5)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(path.map(MemoryPath::as_str))
        .bind(directory.as_str())
        .bind(i64::try_from(max_entries).unwrap_or(i64::MAX))
        .fetch_all(&self.app)
        .await?;
        let Some((first, rest)) = rows.split_first() else {
            return Ok(None);
        };
        let archived_at: Option<i64> = first.try_get(3)?;
        let store = StoreState {
            is_archived: archived_at.is_some(),
            purge_epoch: first.try_get(4)?,
        };
        let target = match first.try_get::<i32, _>(0)? {
            1 => Target::Memory(head_of(first, [1, 2, 5, 6, 7, 8, 9, 10, 11])?),
            2 => Target::Directory(Directory {
                files: unsigned(first.try_get(12)?),
                size_bytes: unsigned(first.try_get(2)?),
                total_entries: unsigned(first.try_get::<Option<i64>, _>(13)?.unwrap_or_default()),
                entries: rest.iter().map(entry_of).collect::<Result<_, _>>()?,
            }),
            _ => Target::Missing,
        };
        Ok(Some(Lookup { store, target }))
    }

    pub(super) async fn read_root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let root = sqlx::query(
            "SELECT d.files, d.bytes, d.visible_children FROM store s JOIN directory d \
                 ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = '/' \
             WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(root) = root else {
            return Ok(None);
        };
        let rows = sqlx::query("SELECT kind, path, size_bytes FROM visible_children($1, $2, '/', $3)")
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(i64::try_from(max_entries).unwrap_or(i64::MAX))
            .fetch_all(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Some(Directory {
            files: unsigned(root.try_get(0)?),
            size_bytes: unsigned(root.try_get(1)?),
            total_entries: unsigned(root.try_get(2)?),
            entries: rows.iter().map(entry_of).collect::<Result<_, _>>()?,
        }))
    }

    pub(super) async fn read_heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let rows = sqlx::query(
            "SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until \
             FROM memory WHERE tenant_id = $1 AND store_id = $2 AND path >= $3 AND path < $4 \
             AND deleted_at IS NULL AND EXISTS (SELECT FROM store s \
                 WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) ORDER BY path",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(directory.as_str())
        .bind(end_of(directory))
        .fetch_all(&mut *transaction)
        .await?;
        transaction.commit().await?;
        rows.iter()
            .map(|row| head_of(row, [0, 1, 2, 3, 4, 5, 6, 7, 8]))
            .collect()
    }

    pub(super) async fn read_replayed(
        &self,
        tenant_id: TenantId,
        scope_sha256: &[u8; 32],
        since: Timestamp,
    ) -> Result<Option<Replayed>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let earlier = earlier_call(&mut *transaction, tenant_id, scope_sha256, since).await?;
        transaction.commit().await?;
        Ok(earlier)
    }
}

/// The record of an earlier call with the same key.
pub(super) async fn earlier_call(
    executor: impl PgExecutor<'_>,
    tenant_id: TenantId,
    scope_sha256: &[u8; 32],
    since: Timestamp,
) -> Result<Option<Replayed>, IndexError> {
    let row = sqlx::query(EARLIER_CALL)
        .bind(tenant_id.uuid())
        .bind(scope_sha256.as_slice())
        .bind(since.as_micros())
        .fetch_optional(executor)
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

/// Reads a head; `columns` are the positions of path, size, memory, version, seq,
/// blob, hash, claimant and the claim's end.
pub(super) fn head_of(row: &PgRow, columns: [usize; 9]) -> Result<Head, IndexError> {
    let [
        path,
        size,
        memory,
        version,
        seq,
        blob,
        sha256,
        claimed_by,
        claimed_until,
    ] = columns;
    let claimant: Option<Uuid> = row.try_get(claimed_by)?;
    let until: Option<i64> = row.try_get(claimed_until)?;
    Ok(Head {
        memory_id: MemoryId::from_uuid(row.try_get(memory)?),
        path: MemoryPath::from_trusted(row.try_get(path)?),
        version_id: VersionId::from_uuid(row.try_get(version)?),
        seq: row.try_get(seq)?,
        blob_id: VersionId::from_uuid(row.try_get(blob)?),
        size_bytes: unsigned(row.try_get(size)?),
        sha256: hash_of(row.try_get(sha256)?, "memory")?,
        claim: claimant.zip(until).map(|(replica, until)| Claim {
            replica,
            until: Timestamp::from_micros(until),
        }),
    })
}

fn entry_of(row: &PgRow) -> Result<Entry, IndexError> {
    Ok(Entry {
        path: row.try_get(1)?,
        is_directory: row.try_get::<i32, _>(0)? == 4,
        size_bytes: unsigned(row.try_get(2)?),
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

/// The request hash in the record of an idempotent call.
fn request_hash_of(bytes: &[u8]) -> Result<[u8; 32], IndexError> {
    bytes.try_into().map_err(|_| IndexError::Corrupt {
        table: "idempotency",
        what: "a hash that is not 32 bytes",
    })
}
