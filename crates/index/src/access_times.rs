//! Access times: when memories were last read, and by whom.

use std::cmp::Reverse;

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::model::AccessRow;
use crate::numbers::hex;

/// Locks stores against the removal of their memories' rows, which takes the store's
/// row `FOR UPDATE`. A later removal therefore sees and deletes a row that was
/// written under this lock. Commits take another lock and do not wait. Several stores
/// are always locked in the same order. SQLite has one writer, and needs no lock.
const LOCK_STORES: &str = "SELECT FROM store s WHERE (s.tenant_id, s.store_id) IN ( \
        SELECT r.tenant_id, r.store_id FROM jsonb_to_recordset($1::jsonb) AS r(tenant_id uuid, store_id uuid)) \
    AND s.deleted_at IS NULL ORDER BY s.tenant_id, s.store_id FOR KEY SHARE";

/// The rows of the JSON parameter.
const ROWS: [&str; 2] = [
    "jsonb_to_recordset($1::jsonb) AS r(tenant_id uuid, store_id uuid, memory_id uuid, at bigint, reader text, \
        kind text)",
    "(SELECT unhex(value ->> 'tenant_id') AS tenant_id, unhex(value ->> 'store_id') AS store_id, \
        unhex(value ->> 'memory_id') AS memory_id, value ->> 'at' AS at, value ->> 'reader' AS reader, \
        value ->> 'kind' AS kind FROM json_each($1)) r",
];

#[derive(Debug, Clone)]
pub struct AccessTimes(pub(crate) Database);

impl AccessTimes {
    /// Writes the latest reads of memories of any tenant, in one transaction; a time
    /// never moves back.
    ///
    /// Drops reads of a store that was deleted, and of a memory that was erased.
    pub async fn flush(&self, rows: &[AccessRow]) -> Result<(), IndexError> {
        let mut latest: Vec<_> = rows.iter().collect();
        let memory = |row: &AccessRow| (row.tenant_id, row.store_id, row.memory_id);
        latest.sort_by_key(|row| (memory(row), Reverse(row.read_at)));
        latest.dedup_by_key(|row| memory(row));
        let rows: Value = latest.into_iter().map(to_json).collect();
        let rows = rows.to_string();
        let mut tx = self.0.write("flush_access", Role::Shared(None)).await?;
        if tx.is_postgres() {
            tx.query(LOCK_STORES).bind(&rows).execute().await?;
        }
        let text = AssertSqlSafe(write(tx.choose(ROWS)));
        tx.query(text).bind(&rows).execute().await?;
        tx.commit().await
    }
}

fn to_json(row: &AccessRow) -> Value {
    json!({
        "tenant_id": hex(row.tenant_id.uuid()),
        "store_id": hex(row.store_id.uuid()),
        "memory_id": hex(row.memory_id.uuid()),
        "at": row.read_at.as_micros(),
        "reader": row.read_by.id(),
        "kind": row.read_by.kind(),
    })
}

/// Every replica writes the rows in the same order, so that two flushes cannot
/// deadlock.
fn write(rows: &str) -> String {
    format!(
        "INSERT INTO memory_access AS a (tenant_id, store_id, memory_id, last_read_at, last_read_by, active_at, \
            last_read_by_type) \
        SELECT r.tenant_id, r.store_id, r.memory_id, r.at, r.reader, r.at, r.kind FROM {rows} \
        WHERE EXISTS (SELECT 1 FROM store s \
                WHERE s.tenant_id = r.tenant_id AND s.store_id = r.store_id AND s.deleted_at IS NULL) \
            AND EXISTS (SELECT 1 FROM memory m WHERE m.tenant_id = r.tenant_id AND m.store_id = r.store_id \
                AND m.memory_id = r.memory_id) \
        ORDER BY r.tenant_id, r.store_id, r.memory_id \
        ON CONFLICT (tenant_id, store_id, memory_id) DO UPDATE \
        SET last_read_at = excluded.last_read_at, last_read_by = excluded.last_read_by, \
            last_read_by_type = excluded.last_read_by_type, \
            active_at = CASE WHEN a.active_at > excluded.active_at THEN a.active_at ELSE excluded.active_at END \
        WHERE a.last_read_at < excluded.last_read_at"
    )
}
