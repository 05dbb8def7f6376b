//! Reads of memories and directories on Postgres: one call of a function each.

use keepsake_core::MemoryPath;
use uuid::Uuid;

use super::{memory_columns, store_columns};
use crate::database::{Query, Tx};
use crate::model::{HeadLookup, MemoryLookup, StoreKey};
use crate::numbers::signed;

macro_rules! by_id {
    ($function:literal) => {
        concat!(
            "SELECT r.element, ",
            store_columns!("r."),
            ", ",
            memory_columns!("r."),
            ", r.last_read_at, r.active_at FROM ",
            $function,
            "($1, $2, $3) r"
        )
    };
}

macro_rules! heads {
    ($function:literal) => {
        concat!(
            "SELECT element, path, size_bytes, archived_at IS NOT NULL AS is_archived, purge_epoch, memory_id, \
             version_id, head_seq, blob_id, sha256, claimed_by, claimed_until, files, total_entries, entries FROM ",
            $function,
            "($1, $2, $3, $4, $5)"
        )
    };
}

/// For look-ups of any tenant, and for look-ups of one tenant on a distributed database.
const BY_ID: [&str; 2] = [by_id!("read_memories"), by_id!("read_memories_of")];

pub(super) const MEMORIES: &str = concat!(
    "SELECT ",
    store_columns!("r."),
    ", ",
    memory_columns!("r."),
    ", r.last_read_at, r.active_at FROM list_memories($1, $2, $3, $4, $5, $6, $7) r"
);

const HEADS: [&str; 2] = [heads!("read_heads"), heads!("read_heads_of")];

/// The targets of paths, with the entries of directories.
pub(super) fn heads<'t>(tx: &'t mut Tx, wanted: &[HeadLookup]) -> Query<'t> {
    let [tenants, stores] = columns(wanted.iter().map(|at| at.place.store));
    let paths: Vec<_> = wanted.iter().map(|at| at.place.path.as_ref().map(MemoryPath::as_str)).collect();
    let directories: Vec<_> = wanted.iter().map(|at| at.place.directory().as_str().to_owned()).collect();
    let max_entries: Vec<_> = wanted.iter().map(|at| signed(at.max_entries)).collect();
    let query = with_tenants(tx, HEADS, tenants).bind_array(stores);
    let query = query.bind_array(paths).bind_array(directories);
    query.bind_array(max_entries)
}

pub(super) fn memories<'t>(tx: &'t mut Tx, wanted: &[MemoryLookup]) -> Query<'t> {
    let [tenants, stores] = columns(wanted.iter().map(|(store, _)| *store));
    let ids: Vec<_> = wanted.iter().map(|(_, memory_id)| memory_id.uuid()).collect();
    with_tenants(tx, BY_ID, tenants).bind_array(stores).bind_array(ids)
}

/// A statement with the tenants of its look-ups, or the one tenant of all on a distributed
/// database, as the first parameter.
fn with_tenants<'t>(tx: &'t mut Tx, [of_any, of_one]: [&'static str; 2], tenants: Vec<Uuid>) -> Query<'t> {
    match tenants.first() {
        Some(&tenant) if tx.is_distributed() => tx.query(of_one).bind(tenant),
        _ => tx.query(of_any).bind_array(tenants),
    }
}

fn columns(stores: impl Iterator<Item = StoreKey>) -> [Vec<Uuid>; 2] {
    let (tenants, stores) = stores.map(|store| (store.tenant_id.uuid(), store.store_id.uuid())).unzip();
    [tenants, stores]
}
