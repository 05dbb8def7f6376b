//! Upkeep: blob references, recounts, and removal of old rows.

use std::collections::BTreeMap;

use async_trait::async_trait;
use keepsake_core::{BlobKey, DirPath, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row};
use uuid::Uuid;

use super::SqliteIndex;
use crate::IndexError;
use crate::commit::DirectoryDelta;
use crate::numbers::hash_of;
use crate::numbers::unsigned;
use crate::statements::operator::{COUNT_OLD_AUDIT, MOVE_AUDIT_HORIZON, PRUNE_AUDIT};
use crate::statements::sessions::{
    COUNT_ENDED_SESSIONS, COUNT_EVENTS, COUNT_EVENTS_OF_SESSIONS, COUNT_RESOURCES_OF_SESSIONS, PRUNE_EVENTS,
    PRUNE_EVENTS_OF_SESSIONS, PRUNE_RESOURCES_OF_SESSIONS, PRUNE_SESSIONS,
};
use crate::statements::upkeep::{
    BLOB_IS_NAMED_LIVE, CALLS_UP_TO, COUNT_CALLS, COUNT_CHANGES, COUNT_REPLICAS, COUNT_RUNS, DIRECTORIES,
    DROP_DIRECTORY, GRANT_TENANT, LIVE_MEMORIES, LOST_HEADS, MEND_DIRECTORY, MEND_STORE, MEND_TENANT,
    NAMED_BLOBS, PRUNE_CALLS, PRUNE_CHANGES, PRUNE_REPLICAS, PRUNE_RUNS, RECORDED, STORES_AFTER,
    TENANT_COUNT, TENANTS_AFTER, VERSIONS_HELD,
};
use crate::upkeep::{
    CallKey, Counter, FIRST_KEY, MEMORIES_AT_ONCE, NamedBlob, Prunable, PrunedCalls, Recorded, Recount,
    StoreCount, TenantCount, UpkeepIndex, Wrong,
};

#[async_trait]
impl UpkeepIndex for SqliteIndex {
    async fn named_blobs(&self, after: Option<&BlobKey>, limit: u32) -> Result<Vec<NamedBlob>, IndexError> {
        let after = after.unwrap_or(&FIRST_KEY);
        let rows = sqlx::query(NAMED_BLOBS)
            .bind(after.tenant_id.uuid())
            .bind(after.store_id.uuid())
            .bind(after.blob_id.uuid())
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                Ok(NamedBlob {
                    key: BlobKey {
                        tenant_id: TenantId::from_uuid(row.try_get(0)?),
                        store_id: StoreId::from_uuid(row.try_get(1)?),
                        blob_id: VersionId::from_uuid(row.try_get(2)?),
                    },
                    size_bytes: unsigned(row.try_get(3)?),
                    sha256: hash_of(row.try_get(4)?, "version").ok(),
                    is_live: row.try_get(5)?,
                })
            })
            .collect()
    }

    async fn blob_is_named(&self, key: &BlobKey) -> Result<bool, IndexError> {
        Ok(sqlx::query_scalar(BLOB_IS_NAMED_LIVE)
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid())
            .bind(key.blob_id.uuid())
            .fetch_one(&self.readers)
            .await?)
    }

    async fn stores_after(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<(TenantId, StoreId)>, IndexError> {
        let after = after.map_or((Uuid::nil(), Uuid::nil()), |(tenant, store)| {
            (tenant.uuid(), store.uuid())
        });
        let rows = sqlx::query(STORES_AFTER)
            .bind(after.0)
            .bind(after.1)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let tenant_id = TenantId::from_uuid(row.try_get(0)?);
                Ok((tenant_id, StoreId::from_uuid(row.try_get(1)?)))
            })
            .collect()
    }

    async fn recount_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        mends: bool,
    ) -> Result<Option<StoreCount>, IndexError> {
        if !mends {
            // A read transaction sees one snapshot from its first query on.
            let mut reader = self.readers.acquire().await?;
            let mut transaction = reader.begin().await?;
            let counted = count_store(&mut transaction, tenant_id, store_id).await?;
            transaction.commit().await?;
            return Ok(counted.map(|(count, _)| count));
        }
        let mut writer = self.writer.lock().await;
        // The single write connection serves as every lock.
        let connection = writer.begin().await?;
        let Some((count, wrong)) = count_store(connection, tenant_id, store_id).await? else {
            return Ok(None);
        };
        if count.has_drifted() {
            mend_store(connection, tenant_id, store_id, &count, wrong).await?;
        }
        writer.commit().await?;
        Ok(Some(count))
    }

    async fn tenants_after(&self, after: Option<TenantId>, limit: u32) -> Result<Vec<TenantId>, IndexError> {
        let tenants: Vec<Uuid> = sqlx::query_scalar(TENANTS_AFTER)
            .bind(after.map_or(Uuid::nil(), TenantId::uuid))
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        Ok(tenants.into_iter().map(TenantId::from_uuid).collect())
    }

    async fn recount_tenant(
        &self,
        tenant_id: TenantId,
        mends: bool,
    ) -> Result<Option<TenantCount>, IndexError> {
        if !mends {
            let mut reader = self.readers.acquire().await?;
            return count_tenant(&mut reader, tenant_id).await;
        }
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let count = count_tenant(connection, tenant_id).await?;
        if let Some(count) = count.filter(TenantCount::has_drifted) {
            sqlx::query(MEND_TENANT)
                .bind(tenant_id.uuid())
                .bind(count.store_count.counted)
                .bind(count.granted_bytes.counted)
                .execute(connection)
                .await?;
        }
        writer.commit().await?;
        Ok(count)
    }

    async fn prune_calls(
        &self,
        after: Option<&CallKey>,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<PrunedCalls, IndexError> {
        let (tenant, scope) = after.map_or((Uuid::nil(), [0; 32]), |(tenant, scope)| (tenant.uuid(), *scope));
        let last = sqlx::query(CALLS_UP_TO)
            .bind(tenant)
            .bind(scope.as_slice())
            .bind(i64::from(limit.max(1)) - 1)
            .fetch_optional(&self.readers)
            .await?;
        let last = match last {
            Some(row) => Some((TenantId::from_uuid(row.try_get(0)?), scope_of(row.try_get(1)?)?)),
            None => None,
        };
        let end = last.map_or((Uuid::max(), [u8::MAX; 32]), |(tenant, scope)| {
            (tenant.uuid(), scope)
        });
        let rows = if is_dry {
            let count: i64 = sqlx::query_scalar(COUNT_CALLS)
                .bind(tenant)
                .bind(scope.as_slice())
                .bind(end.0)
                .bind(end.1.as_slice())
                .bind(before.as_micros())
                .fetch_one(&self.readers)
                .await?;
            unsigned(count)
        } else {
            let mut writer = self.writer.lock().await;
            let removed = sqlx::query(PRUNE_CALLS)
                .bind(tenant)
                .bind(scope.as_slice())
                .bind(end.0)
                .bind(end.1.as_slice())
                .bind(before.as_micros())
                .execute(writer.begin().await?)
                .await?;
            writer.commit().await?;
            removed.rows_affected()
        };
        Ok(PrunedCalls { rows, last })
    }

    async fn prune(
        &self,
        what: Prunable,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<u64, IndexError> {
        let (count, remove) = match what {
            Prunable::JobRuns => (COUNT_RUNS, PRUNE_RUNS),
            Prunable::ChangeFeed => (COUNT_CHANGES, PRUNE_CHANGES),
            Prunable::Replicas => (COUNT_REPLICAS, PRUNE_REPLICAS),
            Prunable::SessionEvents => (COUNT_EVENTS, PRUNE_EVENTS),
            Prunable::EventsOfEndedSessions => (COUNT_EVENTS_OF_SESSIONS, PRUNE_EVENTS_OF_SESSIONS),
            Prunable::ResourcesOfEndedSessions => (COUNT_RESOURCES_OF_SESSIONS, PRUNE_RESOURCES_OF_SESSIONS),
            Prunable::EndedSessions => (COUNT_ENDED_SESSIONS, PRUNE_SESSIONS),
            Prunable::Audit => (COUNT_OLD_AUDIT, PRUNE_AUDIT),
        };
        if is_dry {
            let count: i64 = sqlx::query_scalar(count)
                .bind(before.as_micros())
                .fetch_one(&self.readers)
                .await?;
            return Ok(unsigned(count));
        }
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if what == Prunable::Audit {
            sqlx::query(MOVE_AUDIT_HORIZON)
                .bind(before.as_micros())
                .execute(&mut *connection)
                .await?;
        }
        let removed = sqlx::query(remove)
            .bind(before.as_micros())
            .bind(i64::from(limit))
            .execute(&mut *connection)
            .await?;
        writer.commit().await?;
        Ok(removed.rows_affected())
    }
}

fn scope_of(bytes: &[u8]) -> Result<[u8; 32], IndexError> {
    bytes.try_into().map_err(|_| IndexError::Corrupt {
        table: "idempotency",
        what: "a hash of another length",
    })
}

/// Counts a tenant's stores and grants in one statement.
async fn count_tenant(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
) -> Result<Option<TenantCount>, IndexError> {
    let row = sqlx::query(TENANT_COUNT)
        .bind(tenant_id.uuid())
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let counter = |recorded: usize, counted: usize| {
        Ok::<_, IndexError>(Counter {
            recorded: row.try_get(recorded)?,
            counted: row.try_get(counted)?,
        })
    };
    Ok(Some(TenantCount {
        store_count: counter(0, 2)?,
        granted_bytes: counter(1, 3)?,
    }))
}

/// Counts a store's data; also returns the correct rows of wrong directories.
async fn count_store(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<(StoreCount, Wrong)>, IndexError> {
    let (tenant, store) = (tenant_id.uuid(), store_id.uuid());
    let row = sqlx::query(RECORDED)
        .bind(tenant)
        .bind(store)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let recorded = Recorded {
        memory_count: row.try_get(0)?,
        live_bytes: row.try_get(1)?,
        version_count: row.try_get(2)?,
        version_bytes: row.try_get(3)?,
        granted_bytes: row.try_get(4)?,
    };
    let recount = count_memories(&mut *connection, tenant, store).await?;
    let versions = sqlx::query(VERSIONS_HELD)
        .bind(tenant)
        .bind(store)
        .fetch_one(&mut *connection)
        .await?;
    let lost_heads: i64 = sqlx::query_scalar(LOST_HEADS)
        .bind(tenant)
        .bind(store)
        .fetch_one(&mut *connection)
        .await?;
    let rows = sqlx::query(DIRECTORIES)
        .bind(tenant)
        .bind(store)
        .fetch_all(&mut *connection)
        .await?;
    let mut directories = BTreeMap::new();
    for row in &rows {
        let counts = DirectoryDelta {
            files: row.try_get(1)?,
            size_bytes: row.try_get(2)?,
            visible_children: row.try_get(3)?,
        };
        directories.insert(DirPath::from_trusted(row.try_get(0)?), counts);
    }
    let versions = (versions.try_get(0)?, versions.try_get(1)?);
    Ok(Some(recount.compare(
        recorded,
        versions,
        unsigned(lost_heads),
        directories,
    )))
}

async fn count_memories(
    connection: &mut SqliteConnection,
    tenant: Uuid,
    store: Uuid,
) -> Result<Recount, IndexError> {
    let mut recount = Recount::default();
    let mut after = String::new();
    loop {
        let rows = sqlx::query(LIVE_MEMORIES)
            .bind(tenant)
            .bind(store)
            .bind(&after)
            .bind(MEMORIES_AT_ONCE)
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            let path = MemoryPath::from_trusted(row.try_get(0)?);
            recount.add(&path, unsigned(row.try_get(1)?));
        }
        match rows.last() {
            Some(last) => after = last.try_get(0)?,
            None => return Ok(recount),
        }
    }
}

/// Writes the counts.
async fn mend_store(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
    count: &StoreCount,
    wrong: Wrong,
) -> Result<(), IndexError> {
    sqlx::query(MEND_STORE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(count.memory_count.counted)
        .bind(count.live_bytes.counted)
        .bind(count.version_count.counted)
        .bind(count.version_bytes.counted)
        .execute(&mut *connection)
        .await?;
    if count.overdrawn_bytes > 0 {
        sqlx::query(GRANT_TENANT)
            .bind(tenant_id.uuid())
            .bind(i64::try_from(count.overdrawn_bytes).unwrap_or(i64::MAX))
            .execute(&mut *connection)
            .await?;
    }
    for (path, counts) in wrong {
        let Some(counts) = counts else {
            sqlx::query(DROP_DIRECTORY)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(path.as_str())
                .execute(&mut *connection)
                .await?;
            continue;
        };
        let parent = path.parent().unwrap_or_else(DirPath::root);
        sqlx::query(MEND_DIRECTORY)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(path.as_str())
            .bind(parent.as_str())
            .bind(path.name())
            .bind(counts.files)
            .bind(counts.size_bytes)
            .bind(counts.visible_children)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
