//! When memories were last read, and when keys and sessions were last used.
//!
//! A flush writes the last uses of objects of any tenant in one transaction; a time never
//! moves back. Uses of objects that are gone are dropped.

use std::cmp::Reverse;

use keepsake_core::{Actor, ApiKeyId, Id, SessionId, TenantId};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::model::LastUse;
use crate::numbers::hex;
use crate::search::MemoryPlace;

/// Locks stores against the removal of their memories' rows, which takes the store's
/// row `FOR UPDATE`. A later removal therefore sees and deletes a row that was
/// written under this lock. Commits take another lock and do not wait. Several stores
/// are always locked in the same order.
pub(crate) const LOCK_STORES: &str = "SELECT FROM store s WHERE (s.tenant_id, s.store_id) IN ( \
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
    /// Writes the latest reads of memories.
    pub async fn flush(&self, reads: &[LastUse<MemoryPlace, Actor>]) -> Result<(), IndexError> {
        let mut latest: Vec<_> = reads.iter().collect();
        latest.sort_by_key(|read| (read.key, Reverse(read.at)));
        latest.dedup_by_key(|read| read.key);
        let mut tx = self.0.write("flush_access", Role::Shared(None)).await?;
        for rows in self.0.json_parts(latest, |read| read.key.0, to_json) {
            tx.execute_on_postgres(LOCK_STORES, &rows).await?;
            let text = AssertSqlSafe(write(tx.choose(ROWS)));
            tx.query(text).bind(&rows).execute().await?;
        }
        tx.commit().await
    }

    pub async fn flush_keys(&self, uses: &[LastUse<(TenantId, ApiKeyId)>]) -> Result<(), IndexError> {
        self.flush_last_used("flush_key_use", ["api_key", "api_key_id"], uses).await
    }

    pub async fn flush_sessions(&self, uses: &[LastUse<(TenantId, SessionId)>]) -> Result<(), IndexError> {
        self.flush_last_used("flush_session_use", ["session", "session_id"], uses).await
    }

    /// Writes when rows of a table were used, in one round trip.
    async fn flush_last_used<K: Copy>(
        &self,
        call: &'static str,
        [table, id]: [&str; 2],
        uses: &[LastUse<(TenantId, Id<K>)>],
    ) -> Result<(), IndexError> {
        let row = |LastUse { key, at, .. }: &LastUse<(TenantId, Id<K>)>| {
            let (tenant_id, id) = (hex(key.0.uuid()), hex(key.1.uuid()));
            json!({ "tenant_id": tenant_id, "id": id, "used_at": at.as_micros() })
        };
        let mut tx = self.0.write_one(call, Role::Shared(None)).await?;
        let text = tx.choose([on_postgres(table, id, &tx.of_one_tenant("o")), on_sqlite(table, id)]);
        for rows in self.0.json_parts(uses, |used| used.key.0, row) {
            tx.query(AssertSqlSafe(text.clone())).bind(rows).execute().await?;
        }
        tx.commit().await
    }
}

fn to_json(read: &LastUse<MemoryPlace, Actor>) -> Value {
    let (tenant_id, store_id, memory_id) = read.key;
    json!({
        "tenant_id": hex(tenant_id.uuid()),
        "store_id": hex(store_id.uuid()),
        "memory_id": hex(memory_id.uuid()),
        "at": read.at.as_micros(),
        "reader": read.by.id(),
        "kind": read.by.kind(),
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

/// Every replica locks the rows in one order, and sees under the lock what another
/// replica wrote.
fn on_postgres(table: &str, id: &str, of_one_tenant: &str) -> String {
    format!(
        "WITH u AS (SELECT r.tenant_id, r.id, max(r.used_at) AS at FROM jsonb_to_recordset($1::jsonb) \
            AS r(tenant_id uuid, id uuid, used_at bigint) GROUP BY r.tenant_id, r.id), \
        locked AS (SELECT o.tenant_id, o.{id}, u.at FROM {table} o JOIN u ON o.tenant_id = u.tenant_id AND o.{id} = u.id \
            WHERE (o.last_used_at IS NULL OR o.last_used_at < u.at){of_one_tenant} \
            ORDER BY o.tenant_id, o.{id} FOR NO KEY UPDATE OF o) \
        UPDATE {table} o SET last_used_at = l.at FROM locked l WHERE o.tenant_id = l.tenant_id AND o.{id} = l.{id}{of_one_tenant}"
    )
}

fn on_sqlite(table: &str, id: &str) -> String {
    format!(
        "UPDATE {table} SET last_used_at = u.used_at FROM ( \
            SELECT unhex(r.value ->> 'tenant_id') AS t, unhex(r.value ->> 'id') AS id, \
                max(r.value ->> 'used_at') AS used_at FROM json_each($1) r GROUP BY 1, 2) u \
        WHERE tenant_id = u.t AND {id} = u.id AND (last_used_at IS NULL OR last_used_at < u.used_at)"
    )
}
