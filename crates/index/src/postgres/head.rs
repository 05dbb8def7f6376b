//! Reads of memories and directories: one call of a function each.

use keepsake_core::{DirPath, MemoryPath};

use crate::IndexError;
use crate::database::{Database, Role, Tx};
use crate::memories::{PathRow, Place};
use crate::model::{Entry, Lookup};
use crate::numbers::{signed, unsigned};

pub(crate) const MEMORY: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, expires_unused_after, \
    period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, \
    pinned, created_at, updated_at, last_read_at, active_at, deleted_at, NULL AS first_line \
    FROM read_memory($1, $2, $3)";

pub(crate) const MEMORIES: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, \
    expires_unused_after, period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, \
    claimed_by, claimed_until, pinned, created_at, updated_at, last_read_at, active_at, NULL::bigint AS deleted_at, \
    first_line FROM list_memories($1, $2, $3, $4, $5, $6, $7)";

const HEAD: &str = "SELECT kind = 4 AS is_directory, path, size_bytes, archived_at IS NOT NULL AS is_archived, \
    purge_epoch, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries \
    FROM read_head($1, $2, $3, $4, $5)";

const CHILDREN: &str =
    "SELECT kind = 4 AS is_directory, path, size_bytes FROM visible_children($1, $2, $3, $4)";

#[derive(sqlx::FromRow)]
struct EntryRow {
    is_directory: bool,
    path: String,
    size_bytes: i64,
}

/// The first row is what is at the path; the others are a directory's entries.
#[derive(sqlx::FromRow)]
struct HeadRow {
    is_directory: bool,
    #[sqlx(flatten)]
    found: PathRow,
}

pub(crate) async fn read(
    database: &Database,
    place: Place,
    path: Option<&MemoryPath>,
    max_entries: u64,
) -> Result<Option<Lookup>, IndexError> {
    let directory = path.map_or_else(DirPath::root, MemoryPath::as_dir);
    let mut tx = database.read_one("head", Role::Tenant(place.tenant_id)).await?;
    let query = tx
        .query(HEAD)
        .bind(place.tenant_id.uuid())
        .bind(place.store_id.uuid())
        .bind(path.map(MemoryPath::as_str))
        .bind(directory.as_str())
        .bind(signed(max_entries));
    let rows: Vec<HeadRow> = query.all().await?;
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else {
        return Ok(None);
    };
    let entries = rows.map(|row| row.found.into_entry(row.is_directory));
    let entries = entries.collect::<Result<_, _>>()?;
    first.found.into_lookup(entries).map(Some)
}

/// The visible children of a directory, in display order.
pub(crate) async fn children(
    tx: &mut Tx,
    place: Place,
    directory: &str,
    limit: u64,
) -> Result<Vec<Entry>, IndexError> {
    let query = tx
        .query(CHILDREN)
        .bind(place.tenant_id.uuid())
        .bind(place.store_id.uuid())
        .bind(directory)
        .bind(signed(limit));
    let rows: Vec<EntryRow> = query.all().await?;
    let entry = |row: EntryRow| Entry {
        path: row.path,
        is_directory: row.is_directory,
        size_bytes: unsigned(row.size_bytes),
    };
    Ok(rows.into_iter().map(entry).collect())
}
