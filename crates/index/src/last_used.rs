//! When keys and sessions were last used.

use keepsake_core::{TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::numbers::hex;

/// Writes when rows of a table were used, by tenant and id, in one round trip; a time
/// never moves back. Drops uses of rows that are gone.
pub(crate) async fn flush(
    database: &Database,
    call: &'static str,
    [table, id]: [&str; 2],
    uses: impl Iterator<Item = (TenantId, Uuid, Timestamp)>,
) -> Result<(), IndexError> {
    let row = |(tenant_id, id, used_at): (TenantId, Uuid, Timestamp)| json!({ "tenant_id": hex(tenant_id.uuid()), "id": hex(id), "used_at": used_at.as_micros() });
    let rows: Value = uses.map(row).collect();
    let mut tx = database.write_one(call, Role::Shared(None)).await?;
    let text = if tx.is_postgres() { on_postgres(table, id) } else { on_sqlite(table, id) };
    let query = tx.query(AssertSqlSafe(text)).bind(rows.to_string());
    query.execute().await?;
    tx.commit().await
}

/// Every replica locks the rows in one order, and sees under the lock what another
/// replica wrote.
fn on_postgres(table: &str, id: &str) -> String {
    format!(
        "WITH u AS (SELECT r.tenant_id, r.id, max(r.used_at) AS at FROM jsonb_to_recordset($1::jsonb) \
            AS r(tenant_id uuid, id uuid, used_at bigint) GROUP BY r.tenant_id, r.id), \
        locked AS (SELECT o.tenant_id, o.{id}, u.at FROM {table} o JOIN u ON o.tenant_id = u.tenant_id AND o.{id} = u.id \
            WHERE o.last_used_at IS NULL OR o.last_used_at < u.at \
            ORDER BY o.tenant_id, o.{id} FOR NO KEY UPDATE OF o) \
        UPDATE {table} o SET last_used_at = l.at FROM locked l WHERE o.tenant_id = l.tenant_id AND o.{id} = l.{id}"
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
