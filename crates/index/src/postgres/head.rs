//! Reads of memories and directories: one call of a function each.

use keepsake_core::{DirPath, MemoryPath};

use crate::IndexError;
use crate::database::{Database, FromRow, Role, Row, from_row};
use crate::memories::Place;
use crate::model::{Entry, Lookup, Target};

pub(crate) const MEMORY: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, expires_unused_after, \
    period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, \
    pinned, expires_at, created_at, updated_at, last_read_at, active_at, deleted_at, NULL AS first_line \
    FROM read_memory($1, $2, $3)";

pub(crate) const MEMORIES: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, \
    expires_unused_after, period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, \
    claimed_by, claimed_until, pinned, expires_at, created_at, updated_at, last_read_at, active_at, \
    NULL::bigint AS deleted_at, first_line FROM list_memories($1, $2, $3, $4, $5, $6, $7)";

/// The first row is the target of the path, and the others are the entries of a directory.
const HEAD: &str = "SELECT kind >= 3 AS is_entry, kind = 4 AS is_directory, path, size_bytes, \
    archived_at IS NOT NULL AS is_archived, purge_epoch, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, \
    claimed_until, files, total_entries FROM read_head($1, $2, $3, $4, $5)";

enum HeadRow {
    Found(Lookup),
    Entry(Entry),
}

impl FromRow for HeadRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(if row.get("is_entry")? {
            Self::Entry(row.read()?)
        } else {
            Self::Found(row.read()?)
        })
    }
}

from_row!(Entry {
    path,
    is_directory,
    size_bytes
});

pub(crate) async fn read(
    database: &Database,
    place: Place,
    path: Option<&MemoryPath>,
    max_entries: u64,
) -> Result<Option<Lookup>, IndexError> {
    let directory = path.map_or_else(DirPath::root, MemoryPath::as_dir);
    let mut tx = database.read_one("head", Role::Tenant(place.tenant_id)).await?;
    let query = tx.query(HEAD).bind((place.tenant_id, place.store_id));
    let query = query.bind((path.map(MemoryPath::as_str), directory.as_str()));
    let rows: Vec<HeadRow> = query.bind(max_entries).all().await?;
    let mut found: Option<Lookup> = None;
    for row in rows {
        match (row, found.as_mut().map(|found| &mut found.target)) {
            (HeadRow::Found(target), _) => found = Some(target),
            (HeadRow::Entry(entry), Some(Target::Directory(directory))) => directory.entries.push(entry),
            (HeadRow::Entry(_), _) => {}
        }
    }
    Ok(found)
}
