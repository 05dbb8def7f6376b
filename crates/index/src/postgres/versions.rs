//! The history of a store: versions by sequence number and by id, and lists of
//! them.

use async_trait::async_trait;
use keepsake_core::{Actor, ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresIndex;
use super::reads::store_state_of;
use crate::model::{FoundVersion, Operation, StoredContent, Version, VersionListing, VersionPage};
use crate::numbers::hash_of;
use crate::numbers::unsigned;
use crate::{IndexError, VersionIndex};

#[async_trait]
impl VersionIndex for PostgresIndex {
    async fn version_at(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Version>, IndexError> {
        let found = self.find_version(tenant_id, store_id, Some(seq), None).await?;
        Ok(found.and_then(|found| found.version))
    }

    async fn version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<Option<FoundVersion>, IndexError> {
        self.find_version(tenant_id, store_id, None, Some(version_id))
            .await
    }

    async fn list_versions(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &VersionListing,
    ) -> Result<Option<VersionPage>, IndexError> {
        let rows = sqlx::query(
            "SELECT archived_at, purge_epoch, seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, \
             sha256, created_at, actor_type, actor_id, redacted_at, redacted_by_type, redacted_by \
             FROM list_versions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(listing.memory_id.map(keepsake_core::Id::uuid))
        .bind(listing.operation.map(Operation::name))
        .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
        .bind(listing.actor.as_ref().map(|(_, id)| id))
        .bind(listing.created_from.map(Timestamp::as_micros))
        .bind(listing.created_to.map(Timestamp::as_micros))
        .bind(listing.before)
        .bind(i64::from(listing.limit))
        .fetch_all(&self.app)
        .await?;
        let Some((first, rest)) = rows.split_first() else {
            return Ok(None);
        };
        let versions = rest.iter().map(|row| version_of(row, 2));
        Ok(Some(VersionPage {
            store: store_state_of(first)?,
            versions: versions.collect::<Result<_, _>>()?,
        }))
    }

    async fn versions_with_content(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        sha256: ContentHash,
        limit: u32,
    ) -> Result<Vec<VersionId>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let ids: Vec<Uuid> = sqlx::query_scalar(
            "SELECT v.version_id FROM version v WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.sha256 = $3 \
             AND EXISTS (SELECT FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
             ORDER BY v.seq DESC LIMIT $4",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(sha256.as_bytes().as_slice())
        .bind(i64::from(limit))
        .fetch_all(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(ids.into_iter().map(VersionId::from_uuid).collect())
    }
}

impl PostgresIndex {
    async fn find_version(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seq: Option<i64>,
        version_id: Option<VersionId>,
    ) -> Result<Option<FoundVersion>, IndexError> {
        let row = sqlx::query(
            "SELECT archived_at, purge_epoch, seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, \
             sha256, created_at, actor_type, actor_id, redacted_at, redacted_by_type, redacted_by \
             FROM read_version($1, $2, $3, $4)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(seq)
        .bind(version_id.map(keepsake_core::Id::uuid))
        .fetch_optional(&self.app)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let is_there = row.try_get::<Option<i64>, _>(2)?.is_some();
        Ok(Some(FoundVersion {
            store: store_state_of(&row)?,
            version: is_there.then(|| version_of(&row, 2)).transpose()?,
        }))
    }
}

/// Reads a version from the columns that begin at `first`: seq, version, previous
/// seq, memory, operation, path, blob, size, hash, time, kind and id of the actor,
/// the redaction's time, kind and id of its actor.
pub(super) fn version_of(row: &PgRow, first: usize) -> Result<Version, IndexError> {
    let corrupt = |what| IndexError::Corrupt {
        table: "version",
        what,
    };
    let blob_id: Option<Uuid> = row.try_get(first + 6)?;
    let content = match blob_id {
        Some(blob_id) => Some(StoredContent {
            blob_id: VersionId::from_uuid(blob_id),
            size_bytes: unsigned(row.try_get(first + 7)?),
            sha256: hash_of(row.try_get(first + 8)?, "version")?,
        }),
        None => None,
    };
    let actor = |kind, id| match (row.try_get(kind)?, row.try_get(id)?) {
        (Some(kind), Some(id)) => Actor::from_stored(kind, id)
            .map(Some)
            .ok_or_else(|| corrupt("an actor that nobody is")),
        _ => Ok(None),
    };
    Ok(Version {
        seq: row.try_get(first)?,
        version_id: VersionId::from_uuid(row.try_get(first + 1)?),
        prev_seq: row.try_get(first + 2)?,
        memory_id: MemoryId::from_uuid(row.try_get(first + 3)?),
        operation: Operation::parse(row.try_get(first + 4)?).ok_or_else(|| corrupt("unknown operation"))?,
        path: row
            .try_get::<Option<String>, _>(first + 5)?
            .map(MemoryPath::from_trusted),
        content,
        created_at: Timestamp::from_micros(row.try_get(first + 9)?),
        created_by: actor(first + 10, first + 11)?,
        redacted_at: row
            .try_get::<Option<i64>, _>(first + 12)?
            .map(Timestamp::from_micros),
        redacted_by: actor(first + 13, first + 14)?,
    })
}
