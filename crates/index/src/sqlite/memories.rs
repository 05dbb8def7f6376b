//! Memories by id, lists of them, and their pins.

use keepsake_core::{DirPath, MemoryId, StoreId, TenantId, Timestamp, VersionId};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::SqliteIndex;
use super::reads::{earlier_call, head_of};
use super::stores::record_call;
use crate::IndexError;
use crate::commit::CallMade;
use crate::listing::Span;
use crate::model::{
    Depth, Expiry, FoundMemory, Memory, MemoryItem, MemoryListing, MemoryPage, MemoryTarget, Pin, PinOutcome,
    StoreState,
};
use crate::numbers::unsigned;

/// Selects the store, and one of its memories by id.
const MEMORY: &str = "SELECT s.archived_at IS NOT NULL, s.purge_epoch, s.expires_unused_after, s.period_set_at, \
    m.path, m.size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, m.sha256, m.claimed_by, \
    m.claimed_until, m.pinned, m.created_at, m.updated_at, a.last_read_at, a.active_at, m.deleted_at \
    FROM store s \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $3 \
    LEFT JOIN memory_access a ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = $3 \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

/// Selects the store, and its memories ordered by path, between `$3` and `$4` (both
/// exclusive), at most `$5`.
const ALL_BELOW: &str = "SELECT s.archived_at IS NOT NULL, s.purge_epoch, s.expires_unused_after, s.period_set_at, \
    i.path, i.size_bytes, i.memory_id, i.version_id, i.head_seq, i.blob_id, i.sha256, i.claimed_by, \
    i.claimed_until, i.pinned, i.created_at, i.updated_at, a.last_read_at, a.active_at, i.first_line \
    FROM store s LEFT JOIN ( \
        SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, \
            pinned, created_at, updated_at, first_line FROM memory INDEXED BY memory_path \
        WHERE tenant_id = $1 AND store_id = $2 AND path > $3 AND path < $4 AND deleted_at IS NULL \
        ORDER BY path LIMIT $5 \
    ) i LEFT JOIN memory_access a ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = i.memory_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL ORDER BY i.path";

/// Selects the store, and the direct children of the directory `$6`: memories by
/// name after `$4`, directories by path after `$3`, at most `$5` of both. Each part
/// is a range of an index that stops at the limit. Directories are not ordered by
/// name, because a path ends in `/` and therefore sorts differently.
const CHILDREN: &str = "SELECT s.archived_at IS NOT NULL, s.purge_epoch, s.expires_unused_after, s.period_set_at, \
    i.path, i.size_bytes, i.memory_id, i.version_id, i.head_seq, i.blob_id, i.sha256, i.claimed_by, \
    i.claimed_until, i.pinned, i.created_at, i.updated_at, a.last_read_at, a.active_at, i.first_line \
    FROM store s LEFT JOIN ( \
        SELECT * FROM (SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, \
            claimed_until, pinned, created_at, updated_at, first_line FROM memory INDEXED BY memory_parent \
            WHERE tenant_id = $1 AND store_id = $2 AND parent = $6 AND name > $4 AND deleted_at IS NULL \
            ORDER BY name LIMIT $5) \
        UNION ALL \
        SELECT * FROM (SELECT path, bytes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL \
            FROM directory INDEXED BY directory_children \
            WHERE tenant_id = $1 AND store_id = $2 AND parent = $6 AND path > $3 AND path <> '/' \
            ORDER BY path LIMIT $5) \
        ORDER BY path LIMIT $5 \
    ) i LEFT JOIN memory_access a ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = i.memory_id \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL ORDER BY i.path";

/// Selects the store, and the head of a memory, before a change of its pin.
const PIN_GATE: &str = "SELECT s.archived_at IS NOT NULL, m.head_seq FROM store s \
    LEFT JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = $3 AND m.version_id = $4 \
        AND m.deleted_at IS NULL \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

impl SqliteIndex {
    pub(super) async fn read_memory(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        let row = sqlx::query(MEMORY)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(memory_id.uuid())
            .fetch_optional(&self.readers)
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
        let limit = span.as_ref().map_or(0, |_| i64::from(listing.limit));
        let query = match listing.depth {
            Depth::All => sqlx::query(ALL_BELOW),
            Depth::Children => sqlx::query(CHILDREN),
        };
        let second_bound = span.as_ref().map(|span| match listing.depth {
            Depth::All => span.end.as_str(),
            Depth::Children => span.after_name,
        });
        let query = query
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(span.as_ref().map(|span| span.from))
            .bind(second_bound)
            .bind(limit);
        let rows = match listing.depth {
            Depth::All => query,
            Depth::Children => query.bind(listing.below.as_str()),
        };
        let rows = rows.fetch_all(&self.readers).await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let items = rows.iter().filter_map(|row| item_of(row).transpose());
        Ok(Some(MemoryPage {
            store: store_state_of(first)?,
            expiry: expiry_of(first, 2)?,
            items: items.collect::<Result<_, _>>()?,
        }))
    }

    pub(super) async fn set_pin(&self, tenant_id: TenantId, pin: &Pin) -> Result<PinOutcome, IndexError> {
        let mut writer = self.writer.lock().await;
        let connection = writer.begin().await?;
        let row = sqlx::query(PIN_GATE)
            .bind(tenant_id.uuid())
            .bind(pin.store_id.uuid())
            .bind(pin.memory_id.uuid())
            .bind(pin.expected.uuid())
            .fetch_optional(&mut *connection)
            .await?;
        let Some(row) = row else {
            return Ok(PinOutcome::NoStore);
        };
        if let Some(call) = &pin.idempotency
            && let Some(earlier) =
                earlier_call(&mut *connection, tenant_id, &call.scope_sha256, call.since).await?
        {
            let is_same = earlier.request_sha256 == call.request_sha256;
            return Ok(match earlier.seq.filter(|_| is_same) {
                Some(seq) => PinOutcome::Replayed { seq },
                None => PinOutcome::KeyReused,
            });
        }
        if row.try_get(0)? {
            return Ok(PinOutcome::Archived);
        }
        let Some(head_seq) = row.try_get::<Option<i64>, _>(1)? else {
            return Ok(PinOutcome::Stale);
        };
        let is_pinned = sqlx::query_scalar(
            "UPDATE memory SET pinned = coalesce($4, pinned) \
             WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 RETURNING pinned",
        )
        .bind(tenant_id.uuid())
        .bind(pin.store_id.uuid())
        .bind(pin.memory_id.uuid())
        .bind(pin.is_pinned)
        .fetch_one(&mut *connection)
        .await?;
        let made = CallMade {
            object_id: pin.memory_id.uuid(),
            store_id: Some(pin.store_id),
            version_seq: Some(head_seq),
        };
        record_call(connection, tenant_id, made, pin.idempotency.as_ref(), pin.now).await?;
        writer.commit().await?;
        Ok(PinOutcome::Done { is_pinned })
    }
}

/// Reads the store's state from the first columns of several queries.
pub(super) fn store_state_of(row: &SqliteRow) -> Result<StoreState, IndexError> {
    Ok(StoreState {
        is_archived: row.try_get(0)?,
        purge_epoch: row.try_get(1)?,
    })
}

/// Reads the expiry of a store's memories from two columns that begin at `first`.
pub(super) fn expiry_of(row: &SqliteRow, first: usize) -> Result<Expiry, IndexError> {
    Ok(Expiry {
        unused_after_secs: row.try_get::<Option<i64>, _>(first)?.map(unsigned),
        set_at: row
            .try_get::<Option<i64>, _>(first + 1)?
            .map(Timestamp::from_micros),
    })
}

fn memory_of(row: &SqliteRow) -> Result<Memory, IndexError> {
    Ok(Memory {
        head: head_of(row, 4)?,
        is_pinned: row.try_get(13)?,
        created_at: Timestamp::from_micros(row.try_get(14)?),
        updated_at: Timestamp::from_micros(row.try_get(15)?),
        last_read_at: row.try_get::<Option<i64>, _>(16)?.map(Timestamp::from_micros),
        active_at: row.try_get::<Option<i64>, _>(17)?.map(Timestamp::from_micros),
    })
}

/// Reads an item; `None`: the row has only the store.
fn item_of(row: &SqliteRow) -> Result<Option<MemoryItem>, IndexError> {
    let memory_id: Option<Uuid> = row.try_get(6)?;
    if memory_id.is_some() {
        return Ok(Some(MemoryItem::Memory {
            memory: Box::new(memory_of(row)?),
            first_line: row.try_get::<Option<String>, _>(18)?.unwrap_or_default(),
        }));
    }
    let path: Option<String> = row.try_get(4)?;
    Ok(path.map(|path| MemoryItem::Prefix(DirPath::from_trusted(path))))
}

#[cfg(test)]
mod tests {
    use super::{ALL_BELOW, CHILDREN, MEMORY};
    use crate::sqlite::plans::steps_of;

    #[tokio::test]
    async fn lists_are_ranges_of_indexes_that_stop_at_the_limit() {
        for (statement, ranges) in [
            (MEMORY, &["(tenant_id=? AND store_id=? AND memory_id=?)"] as &[_]),
            (ALL_BELOW, &["(tenant_id=? AND store_id=? AND path>? AND path<?)"]),
            (
                CHILDREN,
                &[
                    "memory_parent (tenant_id=? AND store_id=? AND parent=? AND name>?)",
                    "directory_children (tenant_id=? AND store_id=? AND parent=? AND path>?)",
                ],
            ),
        ] {
            let steps = steps_of(statement).await;
            for range in ranges {
                assert!(
                    steps.iter().any(|step| step.contains(range)),
                    "{range}: {steps:#?}"
                );
            }
            let reads_store = |step: &&String| step.ends_with("(tenant_id=? AND store_id=?)");
            assert_eq!(steps.iter().filter(reads_store).count(), 1, "{steps:#?}");
        }
    }
}
