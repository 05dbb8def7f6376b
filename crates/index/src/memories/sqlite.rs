//! Reads of memories and directories on SQLite.

use std::sync::LazyLock;

use keepsake_core::MemoryPath;
use serde_json::{Value, json};

use super::{children, columns_of_directory, memory_columns, store_columns};
use crate::IndexError;
use crate::database::{Answer, Database, Packing, Role, Tx};
use crate::model::{
    Depth, Directory, FoundMemory, HeadLookup, Lookup, MemoryLookup, PathKey, StoreKey, Target,
};
use crate::numbers::hex;
use crate::sqlite::SqliteIndex;

/// The memories of a page: a range of an index, in its order. The columns of the store
/// are NULL.
macro_rules! memories_of_page {
    ($index:literal, $range:literal, $order:literal) => {
        concat!(
            "SELECT * FROM (SELECT NULL AS is_archived, NULL AS purge_epoch, NULL AS expires_unused_after, \
                NULL AS period_set_at, ",
            memory_columns!("m."),
            ", a.last_read_at, a.active_at FROM memory m INDEXED BY ",
            $index,
            " LEFT JOIN memory_access a \
                ON a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id \
            WHERE m.tenant_id = $1 AND m.store_id = $2 AND m.deleted_at IS NULL AND ",
            $range,
            " ORDER BY ",
            $order,
            " LIMIT $7 + 0)"
        )
    };
}

/// The row of the store, which follows those of its memories. The columns of memories are NULL.
macro_rules! store_of_page {
    () => {
        concat!(
            " UNION ALL SELECT ",
            store_columns!("s."),
            ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL \
            FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL"
        )
    };
}

/// The stores and memories of the array `$1`, of which each element is `[tenant, store,
/// memory]`. `CROSS JOIN` makes SQLite begin with the array.
const BY_ID: &str = concat!(
    "SELECT j.key AS element, ",
    store_columns!("s."),
    ", ",
    memory_columns!("m."),
    ", a.last_read_at, a.active_at FROM json_each($1) j CROSS JOIN store s \
        ON s.tenant_id = unhex(j.value ->> 0) AND s.store_id = unhex(j.value ->> 1) AND s.deleted_at IS NULL \
    LEFT JOIN memory m \
        ON m.tenant_id = s.tenant_id AND m.store_id = s.store_id AND m.memory_id = unhex(j.value ->> 2) \
    LEFT JOIN memory_access a \
        ON a.tenant_id = s.tenant_id AND a.store_id = s.store_id AND a.memory_id = unhex(j.value ->> 2)"
);

/// The memories between the paths `$4` and `$5` (both exclusive), at most `$7`, and the
/// store.
const ALL_BELOW: &str =
    concat!(memories_of_page!("memory_path", "m.path > $4 AND m.path < $5", "m.path"), store_of_page!(),);

/// The direct children of the directory `$3`: at most `$7` memories by name after `$6`,
/// at most `$7` directories by path after `$4`, and the store. Each part is a range of an
/// index that stops at the limit. Directories are not ordered by name, because a
/// path ends in `/` and therefore sorts differently.
const CHILDREN_BELOW: &str = concat!(
    memories_of_page!("memory_parent", "m.parent = $3 AND m.name > $6", "m.name"),
    " UNION ALL SELECT * FROM (SELECT NULL, NULL, NULL, NULL, ",
    columns_of_directory!(),
    ", NULL, NULL FROM directory INDEXED BY directory_children \
        WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND path > $4 AND path <> '/' \
        ORDER BY path LIMIT $7 + 0)",
    store_of_page!(),
);

/// [`ALL_BELOW`] and [`CHILDREN_BELOW`], with their rows packed.
static PAGES: LazyLock<[Packing; 2]> = LazyLock::new(|| {
    [ALL_BELOW, CHILDREN_BELOW].map(|statement| Packing::of(statement, COLUMNS, COLUMNS_OF_BYTES))
});

const COLUMNS: &str = concat!(store_columns!(""), ", ", memory_columns!(""), ", last_read_at, active_at");
const COLUMNS_OF_BYTES: &[&str] = &["memory_id", "version_id", "blob_id", "sha256", "claimed_by"];

pub(super) fn page(depth: Depth) -> &'static Packing {
    let [all, children] = &*PAGES;
    match depth {
        Depth::All => all,
        Depth::Children => children,
    }
}

/// The stores, and the memory or the directory, of each element `[tenant, store, path,
/// directory]` of the array `$1`.
const HEADS: &str = "SELECT j.key AS element, s.archived_at IS NOT NULL AS is_archived, s.purge_epoch, \
    m.path, coalesce(m.size_bytes, d.bytes) AS size_bytes, m.memory_id, m.version_id, m.head_seq, m.blob_id, \
    m.sha256, m.claimed_by, m.claimed_until, iif(m.memory_id IS NULL, d.files, NULL) AS files, \
    d.visible_children AS total_entries, NULL AS entries FROM json_each($1) j CROSS JOIN store s \
        ON s.tenant_id = unhex(j.value ->> 0) AND s.store_id = unhex(j.value ->> 1) AND s.deleted_at IS NULL \
    LEFT JOIN memory m ON m.tenant_id = s.tenant_id AND m.store_id = s.store_id AND m.path = j.value ->> 2 \
        AND m.deleted_at IS NULL \
    LEFT JOIN directory d ON d.tenant_id = s.tenant_id AND d.store_id = s.store_id AND d.path = j.value ->> 3";

/// The number of entries that subdirectories add to a listing.
const GRANDCHILDREN: &str = "SELECT coalesce(sum(visible_children), 0) FROM directory \
    WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND path <> '/' \
    AND substr(name, 1, 1) <> '.' AND name <> 'node_modules'";

/// The targets of paths, with the entries of directories. Caches the answers.
pub(super) async fn heads(
    database: &Database,
    index: &SqliteIndex,
    call: &'static str,
    wanted: &[HeadLookup],
) -> Result<Vec<Answer<Lookup>>, IndexError> {
    let moment = index.known().moment();
    let mut answers = look_up(database, call, wanted).await?;
    for (at, found) in answers.iter_mut().filter_map(|answer| answer.with_job(wanted)) {
        index.known().keep_target(moment, at, found);
    }
    Ok(answers)
}

/// Like [`heads`], but only reads the file, in one snapshot.
async fn look_up(
    database: &Database,
    call: &'static str,
    wanted: &[HeadLookup],
) -> Result<Vec<Answer<Lookup>>, IndexError> {
    let element = |HeadLookup { place, .. }: &HeadLookup| {
        let [tenant, store] = hex_of(place.store);
        json!([tenant, store, place.path.as_ref().map(MemoryPath::as_str), place.directory().as_str()])
    };
    let elements = wanted.iter().map(element).collect::<Value>().to_string();
    if wanted.iter().all(|at| at.max_entries == 0) {
        return database.all(call, Role::Anonymous, HEADS, elements).await;
    }
    let mut tx = database.read(call, Role::Anonymous).await?;
    let mut answers: Vec<Answer<Lookup>> = tx.query(HEADS).bind(elements).all().await?;
    for (at, found) in answers.iter_mut().filter_map(|answer| answer.with_job(wanted)) {
        if let Target::Directory(directory) = &mut found.target {
            list(&mut tx, &at.place, at.max_entries, directory).await?;
        }
    }
    tx.commit().await?;
    Ok(answers)
}

/// Memories by id. Caches the answers.
pub(super) async fn memories(
    database: &Database,
    index: &SqliteIndex,
    call: &'static str,
    wanted: &[MemoryLookup],
) -> Result<Vec<Answer<FoundMemory>>, IndexError> {
    let moment = index.known().moment();
    let element = |&(store, memory_id): &MemoryLookup| {
        let [tenant, store] = hex_of(store);
        json!([tenant, store, hex(memory_id.uuid())])
    };
    let elements = wanted.iter().map(element).collect::<Value>().to_string();
    let mut answers: Vec<Answer<FoundMemory>> = database.all(call, Role::Anonymous, BY_ID, elements).await?;
    for (at, found) in answers.iter_mut().filter_map(|answer| answer.with_job(wanted)) {
        index.known().keep_memory(moment, *at, found);
    }
    Ok(answers)
}

fn hex_of(store: StoreKey) -> [String; 2] {
    [hex(store.tenant_id.uuid()), hex(store.store_id.uuid())]
}

/// Fills in a directory's listing and its total, two levels deep.
async fn list(
    tx: &mut Tx,
    at: &PathKey,
    max_entries: u64,
    directory: &mut Directory,
) -> Result<(), IndexError> {
    let (store, at) = (at.store, at.directory());
    let query = tx.query(GRANDCHILDREN).bind((store.tenant_id, store.store_id));
    directory.total_entries += query.bind(at.as_str()).scalar::<u64>().await?;
    let mut remaining = max_entries;
    for child in children(tx, store, at.as_str(), remaining).await? {
        if remaining == 0 {
            break;
        }
        remaining -= 1;
        let descend = child.is_directory.then(|| child.path.clone());
        directory.entries.push(child);
        if let Some(path) = descend.filter(|_| remaining > 0) {
            let grandchildren = children(tx, store, &path, remaining).await?;
            remaining -= grandchildren.len() as u64;
            directory.entries.extend(grandchildren);
        }
    }
    Ok(())
}
