//! Expiry of unused memories.

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{MemoryId, StoreId, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::types::Json;
use uuid::Uuid;

use super::SqliteIndex;
use super::commit::run_one;
use super::memories::expiry_of;
use super::reads::head_of;
use crate::commit::CommitOutcome;
use crate::expiry::{AccessFlush, Expiration, ExpiryIndex, IdleStore, IdleStores, Life, PeriodOf};
use crate::model::{Expiry, Head};
use crate::statements::expiry::{
    ACCESS_FLUSH, IDLE_BY_STORE, IDLE_BY_TENANT, LAST_SESSION_USE, LIVES, PERIOD, SET_IDLE_SINCE,
};
use crate::{FORGOTTEN_AFTER, IndexError, LIVES_FOR};

/// Selects live memories by id, with their last signs of life.
pub(super) const HEADS: &str = "SELECT m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256, \
    m.claimed_by, m.claimed_until, m.pinned, m.updated_at, \
    (SELECT a.active_at FROM memory_access a WHERE a.tenant_id = $1 AND a.store_id = $2 \
        AND a.memory_id = m.memory_id) \
    FROM json_each($3) c CROSS JOIN memory m \
    ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = unhex(c.value) WHERE m.deleted_at IS NULL";

#[async_trait]
impl ExpiryIndex for SqliteIndex {
    async fn access_flush(&self, now: Timestamp) -> Result<AccessFlush, IndexError> {
        let (through, of_living): (Option<i64>, Option<i64>) = sqlx::query_as(ACCESS_FLUSH)
            .bind(now.minus(FORGOTTEN_AFTER).as_micros())
            .bind(now.minus(LIVES_FOR).as_micros())
            .fetch_one(&self.readers)
            .await?;
        Ok(AccessFlush {
            through: through.map(Timestamp::from_micros),
            is_stalled: of_living.is_some_and(|through| through < now.minus(LIVES_FOR).as_micros()),
        })
    }

    async fn idle_stores(&self, wanted: &IdleStores) -> Result<Vec<IdleStore>, IndexError> {
        let (tenant, store) = wanted
            .after
            .map_or((Uuid::nil(), Uuid::nil()), |(tenant, store)| {
                (tenant.uuid(), store.uuid())
            });
        let rows = sqlx::query(match wanted.period_of {
            PeriodOf::Store => IDLE_BY_STORE,
            PeriodOf::Tenant => IDLE_BY_TENANT,
        })
        .bind(tenant)
        .bind(store)
        .bind(wanted.until.as_micros())
        .bind(wanted.limit)
        .fetch_all(&self.readers)
        .await?;
        rows.iter()
            .map(|row| {
                let limits: Json<LimitOverrides> = row.try_get(4)?;
                Ok(IdleStore {
                    tenant_id: TenantId::from_uuid(row.try_get(0)?),
                    store_id: StoreId::from_uuid(row.try_get(1)?),
                    expiry: expiry_of(row, 2)?.or_limits(&limits),
                    idle_since: Timestamp::from_micros(row.try_get(5)?),
                })
            })
            .collect()
    }

    async fn lives(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Life>, IndexError> {
        let rows = sqlx::query(LIVES)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(after.map_or(Uuid::nil(), MemoryId::uuid))
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| life_of(row, MemoryId::from_uuid(row.try_get(0)?), 1))
            .collect()
    }

    async fn last_session_use(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
    ) -> Result<Option<Timestamp>, IndexError> {
        let mut connection = self.readers.acquire().await?;
        last_session_use(&mut connection, tenant_id, store_id).await
    }

    async fn expire(&self, tenant_id: TenantId, expiration: &Expiration) -> Result<u64, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        if period(connection, tenant_id, expiration.store_id).await? != Some(expiration.expiry) {
            return Ok(0);
        }
        if expiration.is_kept_by(last_session_use(connection, tenant_id, expiration.store_id).await?) {
            return Ok(0);
        }
        let found = heads(connection, tenant_id, expiration).await?;
        let commit = expiration.commit(found);
        if commit.changes.is_empty() {
            return Ok(0);
        }
        match run_one(connection, tenant_id, &commit).await? {
            CommitOutcome::Committed { .. } => {}
            CommitOutcome::Replayed { .. } | CommitOutcome::KeyReused | CommitOutcome::Refused(_) => {
                return Ok(0);
            }
        }
        writer.commit().await?;
        Ok(commit.changes.len() as u64)
    }

    async fn set_idle_since(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        idle_since: Timestamp,
    ) -> Result<(), IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        sqlx::query(SET_IDLE_SINCE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(idle_since.as_micros())
            .execute(connection)
            .await?;
        writer.commit().await
    }
}

/// The effective period of a store; `None`: the store does not exist.
async fn period(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<Expiry>, IndexError> {
    let row = sqlx::query(PERIOD)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        let limits: Json<LimitOverrides> = row.try_get(2)?;
        Ok(expiry_of(&row, 0)?.or_limits(&limits))
    })
    .transpose()
}

async fn last_session_use(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<Timestamp>, IndexError> {
    let used_at: Option<i64> = sqlx::query_scalar(LAST_SESSION_USE)
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .fetch_one(connection)
        .await?;
    Ok(used_at.map(Timestamp::from_micros))
}

async fn heads(
    connection: &mut SqliteConnection,
    tenant_id: TenantId,
    expiration: &Expiration,
) -> Result<Vec<(Head, Life)>, IndexError> {
    let memories = expiration.memories.iter();
    let ids: Value = memories
        .map(|(memory_id, _)| json!(memory_id.uuid().simple().to_string()))
        .collect();
    let rows = sqlx::query(HEADS)
        .bind(tenant_id.uuid())
        .bind(expiration.store_id.uuid())
        .bind(ids.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let head = head_of(row, 0)?;
            let life = life_of(row, head.memory_id, 9)?;
            Ok((head, life))
        })
        .collect()
}

/// Reads a life from the columns that begin at `first`: pinned, last write, last
/// sign of life recorded with a read.
fn life_of(row: &SqliteRow, memory_id: MemoryId, first: usize) -> Result<Life, IndexError> {
    let (written_at, active_at): (i64, Option<i64>) = (row.try_get(first + 1)?, row.try_get(first + 2)?);
    Ok(Life {
        memory_id,
        is_pinned: row.try_get(first)?,
        alive_at: Timestamp::from_micros(active_at.map_or(written_at, |active_at| active_at.max(written_at))),
    })
}
