//! Who was shown which version: written with the access times, and listed.
//!
//! A flush writes reads of any tenant in one transaction. Reads of removed memories
//! are dropped, and so are those of stores that record none.

use keepsake_core::schemas::MemoryReaderType;
use keepsake_core::{SessionId, StoreId, Surface, TenantId, Timestamp};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::access_times::LOCK_STORES;
use crate::database::{Database, FromRow, Ids, Role, Row, Tx, from_row, named_columns, selects};
use crate::model::{
    MemoryReader, NO_SESSION, ReadVersions, ReaderCounts, ReaderPage, ReaderPlace, RecordedReads,
};
use crate::numbers::{hex, signed};
use crate::{FlushedBatch, IndexError};

/// The rows of the JSON parameter.
const ROWS: [&str; 2] = [
    "SELECT * FROM jsonb_to_recordset($1::jsonb) AS r(tenant_id uuid, store_id uuid, version_id uuid, \
        session_id uuid, kind text, actor text, surface text, first_at bigint, last_at bigint, reads bigint)",
    "SELECT unhex(value ->> 'tenant_id') AS tenant_id, unhex(value ->> 'store_id') AS store_id, \
        unhex(value ->> 'version_id') AS version_id, unhex(value ->> 'session_id') AS session_id, \
        value ->> 'kind' AS kind, value ->> 'actor' AS actor, value ->> 'surface' AS surface, \
        value ->> 'first_at' AS first_at, value ->> 'last_at' AS last_at, value ->> 'reads' AS reads \
        FROM json_each($1)",
];

/// Records that reads of before `$2` may be missing.
const NOTE_GAP: &str = "INSERT INTO tenant_counter AS c (tenant_id, sessions, session_bytes, audit_day, \
        audit_entries, reads_from) \
    SELECT t.tenant_id, 0, 0, 0, 0, $2 FROM tenant t WHERE t.tenant_id = $1 AND t.status <> 'deleting' \
    ON CONFLICT (tenant_id) DO UPDATE SET reads_from = excluded.reads_from \
    WHERE c.reads_from < excluded.reads_from";

/// Since when the reads of a store are recorded, and those of its tenant are complete.
const RECORDED_FROM: &str = "SELECT s.reads_from, \
        coalesce((SELECT c.reads_from FROM tenant_counter c WHERE c.tenant_id = $1), 0) AS complete_from \
    FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

const COMPLETE_FROM: &str = "SELECT reads_from FROM tenant_counter WHERE tenant_id = $1";

selects! {
    "r.store_id, r.memory_id, r.version_id, r.session_id, r.actor_type, r.actor_id, r.surface, r.first_read_at, \
        r.last_read_at, r.read_count, (SELECT v.path FROM version v WHERE v.tenant_id = $1 \
            AND v.store_id = r.store_id AND v.version_id BETWEEN r.version_id AND r.version_id \
            ORDER BY v.version_id LIMIT 1) AS path \
        FROM memory_read r WHERE r.tenant_id = $1 AND";
    pub(crate) const OF_STORE = "r.store_id = $2 \
        AND (r.memory_id, r.version_id, r.session_id, r.actor_type, r.actor_id, r.surface) < ($3, $4, $5, $6, $7, $8) \
        ORDER BY r.memory_id DESC, r.version_id DESC, r.session_id DESC, r.actor_type DESC, r.actor_id DESC, \
            r.surface DESC LIMIT $9 + 0";
    pub(crate) const OF_MEMORY = "r.store_id = $2 AND r.memory_id = $3 \
        AND (r.version_id, r.session_id, r.actor_type, r.actor_id, r.surface) < ($4, $5, $6, $7, $8) \
        ORDER BY r.version_id DESC, r.session_id DESC, r.actor_type DESC, r.actor_id DESC, r.surface DESC LIMIT $9 + 0";
    pub(crate) const OF_VERSION = "r.store_id = $2 AND r.memory_id = $3 AND r.version_id = $4 \
        AND (r.session_id, r.actor_type, r.actor_id, r.surface) < ($5, $6, $7, $8) \
        ORDER BY r.session_id DESC, r.actor_type DESC, r.actor_id DESC, r.surface DESC LIMIT $9 + 0";
    pub(crate) const OF_SESSION = "r.session_id = $2 \
        AND (r.first_read_at, r.version_id, r.actor_type, r.actor_id, r.surface) < ($3, $4, $5, $6, $7) \
        AND ($8 IS NULL OR r.store_id IN_IDS($8)) \
        AND EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = r.store_id \
            AND s.deleted_at IS NULL LIMIT 1 OFFSET 0) \
        ORDER BY r.first_read_at DESC, r.version_id DESC, r.actor_type DESC, r.actor_id DESC, r.surface DESC \
        LIMIT $9 + 0";
}

/// The first `$6` readers of the versions from `$4` to `$5` of a memory.
const COUNTS: &str = "SELECT count(DISTINCT CASE WHEN r.session_id <> $7 THEN r.session_id END) AS sessions, \
        count(DISTINCT CASE WHEN r.session_id = $7 THEN r.actor_id END) AS others, \
        count(*) >= $6 AS are_least, min(r.first_read_at) AS since \
    FROM (SELECT session_id, actor_id, first_read_at FROM memory_read WHERE tenant_id = $1 AND store_id = $2 \
        AND memory_id = $3 AND version_id >= $4 AND version_id <= $5 LIMIT $6 + 0) r";

#[derive(Debug, Clone)]
pub struct MemoryReads(pub(crate) Database);

struct RecordedFrom {
    reads_from: Option<Timestamp>,
    complete_from: Timestamp,
}

named_columns!(Surface);

from_row! {
    RecordedFrom { reads_from, complete_from }
    ReaderCounts { sessions, others, are_least, since }
}

impl FromRow for MemoryReader {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let session_id: SessionId = row.get("session_id")?;
        let actor = row.actor(["actor_type", "actor_id"])?;
        Ok(Self {
            r#type: MemoryReaderType,
            store_id: row.get("store_id")?,
            memory_id: row.get("memory_id")?,
            version_id: row.get("version_id")?,
            path: row.get("path")?,
            actor: actor
                .ok_or(IndexError::Corrupt { table: "memory_read", what: "a row without an actor" })?,
            session_id: (session_id != NO_SESSION).then_some(session_id),
            surface: row.get("surface")?,
            first_read_at: row.get("first_read_at")?,
            last_read_at: row.get("last_read_at")?,
            count: row.get("read_count")?,
        })
    }
}

impl MemoryReads {
    /// Adds reads to the rows of their readers, unless an earlier attempt did.
    pub async fn flush(&self, batch: FlushedBatch, reads: &[RecordedReads]) -> Result<(), IndexError> {
        let mut tx = self.0.write("flush_reads", Role::Shared(None)).await?;
        if !batch.begin(&mut tx, "reads").await? {
            return tx.commit().await;
        }
        for rows in self.0.json_parts(reads, |read| read.tenant_id, to_json) {
            tx.execute_on_postgres(LOCK_STORES, &rows).await?;
            let text =
                AssertSqlSafe(write(tx.choose(ROWS), ["v", "s", "m"].map(|table| tx.of_one_tenant(table))));
            tx.query(text).bind(&rows).execute().await?;
        }
        tx.commit().await
    }

    /// Records that reads of a tenant from before a time may be missing.
    pub async fn note_gap(&self, tenant_id: TenantId, before: Timestamp) -> Result<(), IndexError> {
        let role = Role::Shared(None);
        self.0.change("note_gap_of_reads", role, NOTE_GAP, (tenant_id, before)).await.map(drop)
    }

    /// Lists readers of versions of a store: the newest memory and version first, and of a
    /// version those in the newest session first. `None`: the store does not exist.
    pub async fn of_store(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        versions: ReadVersions,
        after: Option<&ReaderPlace>,
        limit: u32,
    ) -> Result<Option<ReaderPage>, IndexError> {
        let after = after.unwrap_or(ReaderPlace::FIRST);
        let mut tx = self.0.read("readers", Role::Tenant(tenant_id)).await?;
        let query = tx.query(RECORDED_FROM).bind((tenant_id, store_id));
        let Some(from) = query.optional::<RecordedFrom>().await? else {
            return Ok(None);
        };
        let (text, memory_id, version_id) = match versions {
            ReadVersions::Store => (OF_STORE, after.memory_id, after.version_id),
            ReadVersions::Memory(memory_id) => (OF_MEMORY, memory_id, after.version_id),
            ReadVersions::Version(memory_id, version_id) => (OF_VERSION, memory_id, version_id),
        };
        let query = tx.query(text).bind((tenant_id, store_id, memory_id, version_id));
        let query = query.bind((after.session_id, &after.actor_type, &after.actor_id, &after.surface));
        let readers = query.bind(limit).all().await?;
        tx.commit().await?;
        let recorded_from = from.reads_from.map(|at| at.max(from.complete_from));
        Ok(Some(ReaderPage { readers, recorded_from }))
    }

    /// Lists the versions that a session was shown, the last one first. With `only`, those of
    /// these stores.
    pub async fn of_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
        only: Option<&[StoreId]>,
        after: Option<&ReaderPlace>,
        limit: u32,
    ) -> Result<ReaderPage, IndexError> {
        let after = after.unwrap_or(ReaderPlace::FIRST);
        let mut tx = self.0.read("session_reads", Role::Tenant(tenant_id)).await?;
        let from = tx.query(COMPLETE_FROM).bind(tenant_id).optional_scalar::<Timestamp>().await?;
        let query = tx.query_with_lists(OF_SESSION).bind((tenant_id, session_id));
        let query = query.bind((after.first_read_at, after.version_id));
        let query = query.bind((&after.actor_type, &after.actor_id, &after.surface));
        let readers = query.bind((Ids(only), limit)).all().await?;
        tx.commit().await?;
        Ok(ReaderPage { readers, recorded_from: Some(from.unwrap_or(Timestamp::from_micros(0))) })
    }

    /// Counts the readers of a memory, or of one version of it, up to `limit`.
    pub async fn counts(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        versions: ReadVersions,
        limit: u32,
    ) -> Result<ReaderCounts, IndexError> {
        let (memory_id, [from, to]) = match versions {
            ReadVersions::Store => return Ok(ReaderCounts::default()),
            ReadVersions::Memory(memory_id) => (memory_id, [Uuid::nil(), Uuid::max()]),
            ReadVersions::Version(memory_id, version_id) => (memory_id, [version_id.uuid(); 2]),
        };
        let values = (tenant_id, store_id, memory_id, from, to, limit, NO_SESSION);
        self.0.one("reader_counts", Role::Tenant(tenant_id), COUNTS, values).await
    }
}

/// As [`MemoryReads::note_gap`], in a transaction that removes reads.
pub(crate) async fn note_gap(tx: &mut Tx, tenant_id: TenantId, before: Timestamp) -> Result<(), IndexError> {
    tx.query(NOTE_GAP).bind((tenant_id, before)).execute().await?;
    Ok(())
}

fn to_json(reads: &RecordedReads) -> Value {
    let RecordedReads { tenant_id, store_id, version_id, reader, span } = reads;
    json!({
        "tenant_id": hex(tenant_id.uuid()),
        "store_id": hex(store_id.uuid()),
        "version_id": hex(version_id.uuid()),
        "session_id": hex(reader.session_id.unwrap_or(NO_SESSION).uuid()),
        "kind": reader.actor.kind(),
        "actor": reader.actor.id(),
        "surface": reader.surface.name(),
        "first_at": span.first_at.as_micros(),
        "last_at": span.last_at.as_micros(),
        "reads": signed(span.count),
    })
}

/// Every replica writes the rows in the same order, so that two flushes cannot
/// deadlock. Versions, stores and memories are looked up by their keys, whatever the
/// planner's statistics say: only the index of version ids has a range of them in order.
fn write(rows: &str, [of_version, of_store, of_memory]: [String; 3]) -> String {
    format!(
        "WITH r AS MATERIALIZED ( \
            SELECT n.*, (SELECT v.memory_id FROM version v WHERE v.tenant_id = n.tenant_id \
                AND v.store_id = n.store_id AND v.version_id BETWEEN n.version_id AND n.version_id \
                AND v.redacted_at IS NULL{of_version} ORDER BY v.version_id LIMIT 1) AS memory_id \
            FROM ({rows}) n) \
        INSERT INTO memory_read AS a (tenant_id, store_id, memory_id, version_id, session_id, actor_type, actor_id, \
            surface, first_read_at, last_read_at, read_count) \
        SELECT r.tenant_id, r.store_id, r.memory_id, r.version_id, r.session_id, r.kind, r.actor, r.surface, \
            r.first_at, r.last_at, r.reads FROM r \
        WHERE r.memory_id IS NOT NULL \
            AND EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = r.tenant_id AND s.store_id = r.store_id \
                AND s.deleted_at IS NULL AND s.reads_from <= r.last_at{of_store} LIMIT 1 OFFSET 0) \
            AND EXISTS (SELECT 1 FROM memory m WHERE m.tenant_id = r.tenant_id AND m.store_id = r.store_id \
                AND m.memory_id = r.memory_id{of_memory} LIMIT 1 OFFSET 0) \
        ORDER BY r.tenant_id, r.store_id, r.memory_id, r.version_id, r.session_id, r.kind, r.actor, r.surface \
        ON CONFLICT (tenant_id, store_id, memory_id, version_id, session_id, actor_type, actor_id, surface) \
        DO UPDATE SET read_count = a.read_count + excluded.read_count, \
            first_read_at = CASE WHEN a.first_read_at < excluded.first_read_at \
                THEN a.first_read_at ELSE excluded.first_read_at END, \
            last_read_at = CASE WHEN a.last_read_at > excluded.last_read_at \
                THEN a.last_read_at ELSE excluded.last_read_at END"
    )
}

#[cfg(test)]
mod tests {
    use super::{COUNTS, OF_MEMORY, OF_SESSION, OF_STORE, OF_VERSION, ROWS, write};
    use crate::sqlite::plans::{assert_searches, assert_steps, reads_whole_store};

    #[tokio::test]
    async fn readers_are_ranges_of_a_key_in_its_order() {
        let of = "r USING PRIMARY KEY (tenant_id=? AND store_id=? AND ";
        for (statement, range) in [
            (OF_STORE, "(memory_id,version_id,session_id,"),
            (OF_MEMORY, "memory_id=? AND (version_id,session_id,"),
            (OF_VERSION, "memory_id=? AND version_id=? AND (session_id,"),
        ] {
            assert_searches(statement, &[&format!("{of}{range}")]).await;
        }
        let of_session =
            "memory_read_session (tenant_id=? AND session_id=? AND (first_read_at,version_id)<(?,?))";
        let of_memory =
            "PRIMARY KEY (tenant_id=? AND store_id=? AND memory_id=? AND version_id>? AND version_id<?)";
        let of_version = "version_id (tenant_id=? AND store_id=? AND version_id>? AND version_id<?)";
        for (statement, part) in [
            (OF_SESSION, of_session),
            (COUNTS, of_memory),
            (&write(ROWS[1], <[String; 3]>::default()), of_version),
        ] {
            let steps = assert_steps(statement, &[part]).await;
            let reads_stores = |step: &String| step.starts_with("SEARCH s ");
            assert!(!steps.iter().any(|step| reads_whole_store(step) && !reads_stores(step)), "{steps:#?}");
        }
    }
}
