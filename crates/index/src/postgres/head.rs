//! Reads of memories and directories: one call of a function each.

use keepsake_core::MemoryPath;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, FromRow, Query, Role, Row, Tx};
use crate::memories::{EntryArrays, HeadAt, MemoryAt, StoreKey, entries_of, memory_columns, store_columns};
use crate::model::{Entry, Lookup, Target};

const BY_ID: &str = concat!(
    "SELECT r.element, ",
    store_columns!("r."),
    ", ",
    memory_columns!("r."),
    ", r.last_read_at, r.active_at FROM read_memories($1, $2, $3) r"
);

pub(crate) const MEMORIES: &str = concat!(
    "SELECT ",
    store_columns!("r."),
    ", ",
    memory_columns!("r."),
    ", r.last_read_at, r.active_at FROM list_memories($1, $2, $3, $4, $5, $6, $7) r"
);

const HEADS: &str = "SELECT element, path, size_bytes, archived_at IS NOT NULL AS is_archived, purge_epoch, memory_id, \
    version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries \
    FROM read_heads($1, $2, $3, $4)";

/// The first row is the target of the path. All have entries of a directory.
const DIRECTORY: &str = "SELECT path, size_bytes, archived_at IS NOT NULL AS is_archived, purge_epoch, memory_id, \
    version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries, entries \
    FROM read_directory($1, $2, $3, $4, $5)";

struct DirectoryRow {
    found: Lookup,
    entries: Vec<Entry>,
}

impl FromRow for DirectoryRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let entries: Option<EntryArrays> = row.get("entries")?;
        Ok(Self {
            found: row.read()?,
            entries: entries.map(entries_of).unwrap_or_default(),
        })
    }
}

/// The targets of paths.
pub(crate) fn heads<'t>(tx: &'t mut Tx, wanted: &[HeadAt]) -> Query<'t> {
    let [tenants, stores] = columns(wanted.iter().map(|at| at.store));
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
    let [tenants, stores] = columns(wanted.iter().map(|at| at.store));
    let ids: Vec<_> = wanted.iter().map(|at| at.memory_id.uuid()).collect();
    let query = tx.query(BY_ID).bind_array(tenants).bind_array(stores);
    query.bind_array(ids)
}

/// The columns of tenants and stores.
fn columns(stores: impl Iterator<Item = StoreKey>) -> [Vec<Uuid>; 2] {
    let (tenants, stores) = stores
        .map(|store| (store.tenant_id.uuid(), store.store_id.uuid()))
        .unzip();
    [tenants, stores]
}

/// The target of a path, with the entries of a directory.
pub(crate) async fn directory(
    database: &Database,
    at: &HeadAt,
    max_entries: u64,
) -> Result<Option<Lookup>, IndexError> {
    let role = Role::Tenant(at.store.tenant_id);
    let mut tx = database.read_one("directory", role).await?;
    let query = tx.query(DIRECTORY).bind((at.store.tenant_id, at.store.store_id));
    let query = query.bind((at.path.as_ref().map(MemoryPath::as_str), at.directory().as_str()));
    let mut rows = query.bind(max_entries).all::<DirectoryRow>().await?.into_iter();
    let Some(DirectoryRow { mut found, entries }) = rows.next() else {
        return Ok(None);
    };
    if let Target::Directory(directory) = &mut found.target {
        directory.entries = entries;
        directory.entries.extend(rows.flat_map(|row| row.entries));
    }
    Ok(Some(found))
}
