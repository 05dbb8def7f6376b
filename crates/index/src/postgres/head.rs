//! Reads of memories and directories: one call of a function each.

use keepsake_core::MemoryPath;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, FromRow, Query, Role, Row, Tx, from_row};
use crate::memories::{HeadAt, MemoryAt, Place};
use crate::model::{Entry, Lookup, Target};

const BY_ID: &str = "SELECT element, archived_at IS NOT NULL AS is_archived, purge_epoch, expires_unused_after, \
    period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, \
    pinned, expires_at, created_at, updated_at, last_read_at, active_at, deleted_at, NULL AS first_line \
    FROM read_memories($1, $2, $3)";

pub(crate) const MEMORIES: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, \
    expires_unused_after, period_set_at, path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, \
    claimed_by, claimed_until, pinned, expires_at, created_at, updated_at, last_read_at, active_at, \
    NULL::bigint AS deleted_at, first_line FROM list_memories($1, $2, $3, $4, $5, $6, $7)";

const HEADS: &str = "SELECT element, path, size_bytes, archived_at IS NOT NULL AS is_archived, purge_epoch, memory_id, \
    version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries \
    FROM read_heads($1, $2, $3, $4)";

/// The first row is the target of the path, and the others are the entries of a directory.
const DIRECTORY: &str = "SELECT is_entry, is_directory, path, size_bytes, archived_at IS NOT NULL AS is_archived, \
    purge_epoch, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries \
    FROM read_directory($1, $2, $3, $4, $5)";

enum DirectoryRow {
    Found(Lookup),
    Entry(Entry),
}

impl FromRow for DirectoryRow {
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

/// The targets of paths.
pub(crate) fn heads<'t>(tx: &'t mut Tx, wanted: &[HeadAt]) -> Query<'t> {
    let [tenants, stores] = places(wanted.iter().map(|at| at.place));
    let paths: Vec<_> = wanted
        .iter()
        .map(|at| at.path.as_ref().map(MemoryPath::as_str))
        .collect();
    let directories: Vec<_> = wanted
        .iter()
        .map(|at| at.directory().as_str().to_owned())
        .collect();
    let query = tx.query(HEADS).bind_array(tenants).bind_array(stores);
    query.bind_array(paths).bind_array(directories)
}

/// Memories by their ids.
pub(crate) fn memories<'t>(tx: &'t mut Tx, wanted: &[MemoryAt]) -> Query<'t> {
    let [tenants, stores] = places(wanted.iter().map(|at| at.place));
    let ids: Vec<_> = wanted.iter().map(|at| at.memory_id.uuid()).collect();
    let query = tx.query(BY_ID).bind_array(tenants).bind_array(stores);
    query.bind_array(ids)
}

/// The columns of tenants and stores.
fn places(places: impl Iterator<Item = Place>) -> [Vec<Uuid>; 2] {
    let (tenants, stores) = places
        .map(|place| (place.tenant_id.uuid(), place.store_id.uuid()))
        .unzip();
    [tenants, stores]
}

/// The target of a path, with the entries of a directory.
pub(crate) async fn directory(
    database: &Database,
    at: &HeadAt,
    max_entries: u64,
) -> Result<Option<Lookup>, IndexError> {
    let role = Role::Tenant(at.place.tenant_id);
    let mut tx = database.read_one("directory", role).await?;
    let query = tx.query(DIRECTORY).bind((at.place.tenant_id, at.place.store_id));
    let query = query.bind((at.path.as_ref().map(MemoryPath::as_str), at.directory().as_str()));
    let rows: Vec<DirectoryRow> = query.bind(max_entries).all().await?;
    let mut found: Option<Lookup> = None;
    for row in rows {
        match (row, found.as_mut().map(|found| &mut found.target)) {
            (DirectoryRow::Found(target), _) => found = Some(target),
            (DirectoryRow::Entry(entry), Some(Target::Directory(directory))) => directory.entries.push(entry),
            (DirectoryRow::Entry(_), _) => {}
        }
    }
    Ok(found)
}
