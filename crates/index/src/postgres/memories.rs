//! Memories by id, lists of them, and their pins; one database function for each.

use keepsake_core::{DirPath, MemoryId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresIndex;
use super::reads::head_of;
use crate::IndexError;
use crate::listing::Span;
use crate::model::{
    Depth, Expiry, FoundMemory, Memory, MemoryItem, MemoryListing, MemoryPage, MemoryTarget, Pin, PinOutcome,
    StoreState,
};
use crate::numbers::unsigned;

impl PostgresIndex {
    pub(super) async fn read_memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        let row = sqlx::query(
            "SELECT archived_at, purge_epoch, expires_unused_after, period_set_at, path, size_bytes, memory_id, \
             version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, pinned, created_at, updated_at, \
             last_read_at, active_at, deleted_at FROM read_memory($1, $2, $3)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(memory_id.uuid())
        .fetch_optional(&self.app)
        .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let deleted_at: Option<i64> = row.try_get(18)?;
        let target = match row.try_get::<Option<Uuid>, _>(6)? {
            None => MemoryTarget::Missing,
            Some(_) if deleted_at.is_some() => MemoryTarget::Deleted {
                version_id: VersionId::from_uuid(row.try_get(7)?),
                created_at: Timestamp::from_micros(row.try_get(14)?),
                is_pinned: row.try_get(13)?,
                last_read_at: row.try_get::<Option<i64>, _>(16)?.map(Timestamp::from_micros),
                active_at: row.try_get::<Option<i64>, _>(17)?.map(Timestamp::from_micros),
            },
            Some(_) => MemoryTarget::Live(memory_of(&row)?),
        };
        Ok(Some(FoundMemory {
            store: store_state_of(&row)?,
            expiry: expiry_of(&row, 2)?,
            target,
        }))
    }

    pub(super) async fn read_list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        let span = Span::of(listing);
        let after_name = span.as_ref().map(|span| span.after_name);
        let rows = sqlx::query(
            "SELECT archived_at, purge_epoch, expires_unused_after, period_set_at, path, size_bytes, memory_id, \
             version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, pinned, created_at, updated_at, \
             last_read_at, active_at, first_line FROM list_memories($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(listing.below.as_str())
        .bind(span.as_ref().map(|span| span.from))
        .bind(span.as_ref().map(|span| span.end.as_str()))
        .bind(after_name.filter(|_| listing.depth == Depth::Children))
        .bind(i64::from(listing.limit))
        .fetch_all(&self.app)
        .await?;
        let Some((first, rest)) = rows.split_first() else {
            return Ok(None);
        };
        Ok(Some(MemoryPage {
            store: store_state_of(first)?,
            expiry: expiry_of(first, 2)?,
            items: rest.iter().map(item_of).collect::<Result<_, _>>()?,
        }))
    }

    pub(super) async fn set_pin(&self, tenant_id: TenantId, pin: &Pin) -> Result<PinOutcome, IndexError> {
        let idempotency = pin.idempotency.as_ref();
        let row = sqlx::query("SELECT outcome, seq, pinned FROM set_pin($1, $2, $3, $4, $5, $6, $7, $8, $9)")
            .bind(tenant_id.uuid())
            .bind(pin.store_id.uuid())
            .bind(pin.memory_id.uuid())
            .bind(pin.expected.uuid())
            .bind(pin.is_pinned)
            .bind(pin.now.as_micros())
            .bind(idempotency.map(|call| call.scope_sha256.as_slice()))
            .bind(idempotency.map(|call| call.request_sha256.as_slice()))
            .bind(idempotency.map(|call| call.since.as_micros()))
            .fetch_one(&self.app)
            .await?;
        match row.try_get::<&str, _>(0)? {
            "done" => Ok(PinOutcome::Done {
                is_pinned: row.try_get(2)?,
            }),
            "replayed" => Ok(PinOutcome::Replayed { seq: row.try_get(1)? }),
            "key_reused" => Ok(PinOutcome::KeyReused),
            "stale" => Ok(PinOutcome::Stale),
            "archived" => Ok(PinOutcome::Archived),
            "no_store" => Ok(PinOutcome::NoStore),
            _ => Err(IndexError::Corrupt {
                table: "set_pin",
                what: "unknown outcome",
            }),
        }
    }
}

/// Reads the store's state from the first columns of several functions' results.
pub(super) fn store_state_of(row: &PgRow) -> Result<StoreState, IndexError> {
    let archived_at: Option<i64> = row.try_get(0)?;
    Ok(StoreState {
        is_archived: archived_at.is_some(),
        purge_epoch: row.try_get(1)?,
    })
}

/// Reads the expiry of a store's memories from two columns that begin at `first`.
pub(super) fn expiry_of(row: &PgRow, first: usize) -> Result<Expiry, IndexError> {
    Ok(Expiry {
        unused_after_secs: row.try_get::<Option<i64>, _>(first)?.map(unsigned),
        set_at: row
            .try_get::<Option<i64>, _>(first + 1)?
            .map(Timestamp::from_micros),
    })
}

fn memory_of(row: &PgRow) -> Result<Memory, IndexError> {
    Ok(Memory {
        head: head_of(row, [4, 5, 6, 7, 8, 9, 10, 11, 12])?,
        is_pinned: row.try_get(13)?,
        created_at: Timestamp::from_micros(row.try_get(14)?),
        updated_at: Timestamp::from_micros(row.try_get(15)?),
        last_read_at: row.try_get::<Option<i64>, _>(16)?.map(Timestamp::from_micros),
        active_at: row.try_get::<Option<i64>, _>(17)?.map(Timestamp::from_micros),
    })
}

fn item_of(row: &PgRow) -> Result<MemoryItem, IndexError> {
    let memory_id: Option<Uuid> = row.try_get(6)?;
    if memory_id.is_none() {
        return Ok(MemoryItem::Prefix(DirPath::from_trusted(row.try_get(4)?)));
    }
    Ok(MemoryItem::Memory {
        memory: Box::new(memory_of(row)?),
        first_line: row.try_get::<Option<String>, _>(18)?.unwrap_or_default(),
    })
}
