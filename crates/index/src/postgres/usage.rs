//! How the memories of a store are used.

use async_trait::async_trait;
use keepsake_core::{Actor, MemoryId, MemoryPath, StoreId, TenantId, Timestamp};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresIndex;
use super::memories::expiry_of;
use super::reads::unsigned;
use crate::IndexError;
use crate::statements::expiry::{IDLE_MEMORIES, NEVER_READ, STORE_USAGE};
use crate::usage::{StoreUsage, UsageIndex, UsedMemory};

#[async_trait]
impl UsageIndex for PostgresIndex {
    async fn store_usage(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        limit: u32,
    ) -> Result<Option<StoreUsage>, IndexError> {
        let mut transaction = self.begin(tenant_id).await?;
        let row = sqlx::query(STORE_USAGE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let mut lists = Vec::with_capacity(2);
        for statement in [NEVER_READ, IDLE_MEMORIES] {
            let rows = sqlx::query(statement)
                .bind(tenant_id.uuid())
                .bind(store_id.uuid())
                .bind(i64::from(limit))
                .fetch_all(&mut *transaction)
                .await?;
            lists.push(rows.iter().map(used_memory).collect::<Result<_, _>>()?);
        }
        transaction.commit().await?;
        Ok(Some(StoreUsage {
            expiry: expiry_of(&row, 0)?,
            versions: unsigned(row.try_get(2)?),
            version_bytes: unsigned(row.try_get(3)?),
            never_read_count: unsigned(row.try_get(4)?),
            idle: lists.pop().unwrap_or_default(),
            never_read: lists.pop().unwrap_or_default(),
        }))
    }
}

fn used_memory(row: &PgRow) -> Result<UsedMemory, IndexError> {
    let time = |column| {
        row.try_get::<Option<i64>, _>(column)
            .map(|at| at.map(Timestamp::from_micros))
    };
    let actor = |kind, id| {
        let stored: (Option<&str>, Option<&str>) = (row.try_get(kind)?, row.try_get(id)?);
        // Reads that an earlier binary wrote have no kind.
        Ok::<_, IndexError>(match stored {
            (Some(kind), Some(id)) => Actor::from_stored(kind, id),
            _ => None,
        })
    };
    Ok(UsedMemory {
        memory_id: MemoryId::from_uuid(row.try_get(0)?),
        path: MemoryPath::from_trusted(row.try_get(1)?),
        size_bytes: unsigned(row.try_get(2)?),
        created_at: Timestamp::from_micros(row.try_get(3)?),
        updated_at: Timestamp::from_micros(row.try_get(4)?),
        last_read_at: time(5)?,
        read_by: actor(6, 7)?,
        active_at: time(8)?,
        written_by: actor(9, 10)?,
        is_pinned: row.try_get(11)?,
    })
}
