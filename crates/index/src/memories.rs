//! Memories of one store: reads of heads, and the one way to change them.

mod lookups;
mod pages;
mod postgres;
mod sqlite;

use keepsake_core::tool::DirectoryEntry;
use keepsake_core::{DirPath, MemoryId, MemoryPath, ObjectKind, Refused, StoreId, TenantId, Timestamp};
use serde::Serialize;
use serde_json::json;
use sqlx::types::Json;
use uuid::Uuid;

use crate::calls::{CallObject, earlier_call, record_call};
use crate::commit::{Commit, CommitOutcome, KeptMemory};
use crate::database::{Commits, Database, FromRow, Ids, Mode, Role, Row, Tx, from_row};
use crate::listing::end_of;
use crate::model::{
    Claim, Directory, DirectorySummary, EarlierCall, Expiry, FoundMemories, FoundMemory, Head, HeadLookup,
    Idempotency, Lookup, Memory, MemoryTarget, PathKey, PinOutcome, StoreKey, StoreState, Target,
};
use crate::stores::lock_live_store;
use crate::{ChangeError, IndexError};

use lookups::Lookups;

const HEADS_BELOW: &str = "SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, \
    claimed_until FROM memory WHERE tenant_id = $1 AND store_id = $2 AND path >= $3 AND path < $4 \
    AND deleted_at IS NULL AND EXISTS (SELECT 1 FROM store s \
        WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) ORDER BY path";

/// The columns of a store that a read of memories returns, with the name of the table
/// before each.
macro_rules! store_columns {
    ($table:literal) => {
        concat!(
            $table,
            "archived_at IS NOT NULL AS is_archived, ",
            $table,
            "purge_epoch, ",
            $table,
            "expires_unused_after, ",
            $table,
            "period_set_at"
        )
    };
}

/// The columns of a memory that a read returns, with the name of the table before each,
/// as in `m.`.
macro_rules! memory_columns {
    ($table:literal) => {
        memory_columns!($table: path size_bytes memory_id version_id head_seq blob_id sha256 claimed_by
            claimed_until pinned expires_at created_at updated_at deleted_at; first_line)
    };
    ($table:literal: $($column:ident)*; $last:ident) => {
        concat!($($table, stringify!($column), ", ",)* $table, stringify!($last))
    };
}

/// The columns of `memory_columns`, for a directory.
macro_rules! columns_of_directory {
    () => {
        "path, bytes, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
    };
}

use {columns_of_directory, memory_columns, store_columns};

/// The store, and the memories with the ids `$3` and those at the paths `$4`.
pub(crate) const FIND_ALL: &str = concat!(
    "SELECT ",
    store_columns!("s."),
    ", ",
    memory_columns!("m."),
    ", (SELECT a.last_read_at FROM memory_access a \
        WHERE a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id) AS last_read_at, \
    (SELECT a.active_at FROM memory_access a \
        WHERE a.tenant_id = $1 AND a.store_id = $2 AND a.memory_id = m.memory_id) AS active_at \
    FROM store s LEFT JOIN (SELECT ",
    memory_columns!("m."),
    " FROM_IDS($3) EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = ids.id] \
        UNION ALL SELECT ",
    memory_columns!("m."),
    " FROM_TEXTS($4) EACH[memory m: m.tenant_id = $1 AND m.store_id = $2 AND m.path = texts.text \
            AND m.deleted_at IS NULL] \
    ) m ON true \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL"
);

/// The directories at the paths `$3`.
pub(crate) const DIRECTORIES_AT: &str = "SELECT d.path, d.files, d.bytes AS size_bytes, \
        NULLIF(d.changed_at, 0) AS changed_at FROM_TEXTS($3) \
    EACH[directory d: d.tenant_id = $1 AND d.store_id = $2 AND d.path = texts.text]";

const ROOT: &str = "SELECT d.files, d.bytes AS size_bytes, d.visible_children AS total_entries FROM store s JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = '/' \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

const CLAIM: &str = "UPDATE memory SET claimed_by = $4, claimed_until = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 \
    AND (claimed_by IS NULL OR claimed_by = $4 OR claimed_until <= $5 OR claimed_until > $6 + $6 - $5)";

/// The condition on the memory's state is outside the `WHERE`: on an empty table,
/// Postgres would choose an index of live memories without their ids, and keep the plan.
const HEAD_SEQ: &str = "SELECT CASE WHEN version_id = $4 AND deleted_at IS NULL THEN head_seq END FROM memory \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3";

const SET_PIN: &str = "UPDATE memory SET pinned = coalesce($4, pinned), \
        expires_at = nullif(coalesce($5, expires_at), 0) \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 RETURNING pinned, expires_at";

/// The visible children of a directory by name, as one JSON array: each row would be a
/// separate message from SQLite's thread. On SQLite they are merged from two index ranges
/// that each stop at the limit, and a file's path is computed from its parent and name,
/// so that the index covers the query.
const CHILDREN: [&str; 2] = [
    "SELECT visible_entries($1, $2, $3, $4)",
    "SELECT json_group_array(json_array(is_directory, path, size_bytes)) FROM ( \
    SELECT * FROM (SELECT 0 AS is_directory, parent || name AS path, name, size_bytes FROM memory \
        WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND deleted_at IS NULL \
        AND substr(name, 1, 1) <> '.' AND name <> 'node_modules' ORDER BY name LIMIT $4 + 0) \
    UNION ALL \
    SELECT * FROM (SELECT 1, path, name, bytes FROM directory \
        WHERE tenant_id = $1 AND store_id = $2 AND parent = $3 AND path <> '/' \
        AND substr(name, 1, 1) <> '.' AND name <> 'node_modules' ORDER BY name LIMIT $4 + 0) \
    ORDER BY name LIMIT $4 + 0)",
];

#[derive(Debug, Clone)]
pub struct Memories {
    database: Database,
    lookups: Lookups,
    commits: Commits,
}

from_row! {
    StoreState { is_archived, purge_epoch }
    Expiry { unused_after_secs = "expires_unused_after", set_at = "period_set_at" }
    Claim { replica = "claimed_by", until = "claimed_until" }
    Head { memory_id, path, version_id, seq = "head_seq"; content, claim if "claimed_by" }
    Directory { files, size_bytes, total_entries .. entries }
    DirectorySummary { path, files, size_bytes, changed_at }
    Memory { is_pinned = "pinned", expires_at, created_at, updated_at, last_read_at, active_at; head }
}

impl FromRow for Lookup {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let target = match row.read_unless_null("memory_id")? {
            Some(head) => Target::Memory(head),
            None => match row.read_unless_null::<Directory>("files")? {
                Some(mut directory) => {
                    let groups: Option<Json<Vec<EntryArrays>>> = row.get("entries")?;
                    let groups = groups.map(|groups| groups.0).unwrap_or_default();
                    directory.entries = groups.into_iter().flat_map(entries_of).collect();
                    Target::Directory(directory)
                }
                None => Target::Missing,
            },
        };
        Ok(Self { store: row.read()?, target })
    }
}

impl FromRow for FoundMemory {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let is_deleted = row.get::<Option<Timestamp>>("deleted_at")?.is_some();
        let target = if is_deleted {
            MemoryTarget::Deleted {
                memory_id: row.get("memory_id")?,
                version_id: row.get("version_id")?,
                created_at: row.get("created_at")?,
                is_pinned: row.get("pinned")?,
                last_read_at: row.get("last_read_at")?,
                active_at: row.get("active_at")?,
            }
        } else {
            let memory = row.read_unless_null("memory_id")?;
            memory.map_or(MemoryTarget::Missing, MemoryTarget::Live)
        };
        Ok(Self { store: row.read()?, expiry: row.read()?, target })
    }
}

impl Memories {
    pub(crate) fn new(database: Database) -> Self {
        Self { lookups: Lookups::new(&database), commits: Commits::new(&database), database }
    }

    /// Finds the target of a path; `None`: no such store.
    ///
    /// `path` is `None` for the root. A directory comes with at most `max_entries` of its
    /// listing, two levels deep in display order, and with the total of the listing. For
    /// a path that looks like that of a file, these take a second query. With
    /// `max_entries` 0, neither is read.
    pub async fn head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        let head = async |max_entries| {
            let place = PathKey { store: StoreKey { tenant_id, store_id }, path: path.cloned() };
            let at = HeadLookup { place, max_entries };
            let head = self.lookups.head(at);
            let role = Role::Tenant(tenant_id);
            self.database.measure("head", role, Mode::Statement, head).await
        };
        let first = if looks_like_a_directory(path) { max_entries } else { 0 };
        let found = head(first).await?;
        let is_directory = matches!(&found, Some(found) if matches!(found.target, Target::Directory(_)));
        if is_directory && first < max_entries {
            return head(max_entries).await;
        }
        Ok(found)
    }

    /// The direct children of a store's root, without hidden ones, in display order;
    /// `None`: no such store.
    ///
    /// Has at most `max_entries` entries; `total_entries` counts all of them.
    pub async fn root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        let mut tx = self.database.read("root", Role::Tenant(tenant_id)).await?;
        let root: Option<Directory> = tx.query(ROOT).bind((tenant_id, store_id)).optional().await?;
        let Some(mut root) = root else {
            return Ok(None);
        };
        let store = StoreKey { tenant_id, store_id };
        root.entries = children(&mut tx, store, "/", max_entries).await?;
        tx.commit().await?;
        Ok(Some(root))
    }

    /// Every live memory below a directory, in path order.
    pub async fn heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        let values = (tenant_id, store_id, directory.as_str(), end_of(directory));
        self.database.all("heads_below", Role::Tenant(tenant_id), HEADS_BELOW, values).await
    }

    /// Makes all changes of `commit` or none, in one transaction.
    ///
    /// Checks, in this order and under the store's lock: the store, a replay,
    /// archiving, that every head is unchanged since it was read, that new paths are
    /// free, the limits, the store's grant of bytes, and that no blob of the commit
    /// is condemned. A [`CommitOutcome::Refused`] has changed nothing.
    ///
    /// After [`IndexError::OutcomeUnknown`] and [`IndexError::DiskFailed`] the changes
    /// may or may not have been made.
    pub async fn commit(&self, tenant_id: TenantId, commit: &Commit) -> Result<CommitOutcome, IndexError> {
        self.commits.run(&self.database, tenant_id, commit).await
    }

    /// Asks other replicas to let the next edit of a memory by `replica` go first, until
    /// `until`. Returns whether this was granted. An earlier claim that ends more than
    /// twice as far in the future was made by a clock that is wrong, and does not count.
    ///
    /// A claim is a hint; only the compare-and-set of a commit prevents lost edits.
    pub async fn claim_edit(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
        replica: Uuid,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let values = (tenant_id, store_id, memory_id, replica, now, until);
        Ok(self.database.change("claim_edit", Role::Tenant(tenant_id), CLAIM, values).await? > 0)
    }

    /// The record of the same call made earlier.
    pub async fn replayed(
        &self,
        tenant_id: TenantId,
        call: &Idempotency,
    ) -> Result<Option<EarlierCall>, ChangeError> {
        let mut tx = self.database.read("replayed", Role::Tenant(tenant_id)).await?;
        let earlier = earlier_call(&mut tx, tenant_id, Some(call)).await;
        tx.commit().await?;
        earlier
    }

    /// Finds a memory by its id, in one query; `None`: no such store.
    pub async fn find(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        let store = StoreKey { tenant_id, store_id };
        let memory = self.lookups.memory((store, memory_id));
        let role = Role::Tenant(tenant_id);
        self.database.measure("memory", role, Mode::Statement, memory).await
    }

    /// Finds memories by their ids and at paths, and which of the paths are
    /// directories; `None`: no such store.
    pub async fn find_all(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        ids: &[MemoryId],
        paths: &[&str],
    ) -> Result<Option<FoundMemories>, IndexError> {
        let mut tx = self.database.read("memories", Role::Tenant(tenant_id)).await?;
        let rows = find_all(&mut tx, (tenant_id, store_id), ids, paths).await?;
        let directories: Vec<_> = paths.iter().map(|path| format!("{path}/")).collect();
        let directories = directories_at(&mut tx, (tenant_id, store_id), &directories).await?;
        tx.commit().await?;
        let Some(found) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(FoundMemories {
            store: found.store,
            expiry: found.expiry,
            memories: rows.into_iter().filter_map(|found| Some((found.target.memory_id()?, found))).collect(),
            directories: directories.into_iter().map(|found| DirPath::from_trusted(found.path)).collect(),
        }))
    }

    /// What is below directories; paths at which no directory is are left out.
    pub async fn directories(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        paths: &[&str],
    ) -> Result<Vec<DirectorySummary>, IndexError> {
        let mut tx = self.database.read("directories", Role::Tenant(tenant_id)).await?;
        let found = directories_at(&mut tx, (tenant_id, store_id), paths).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Sets a memory's pin or expiry time, if its head is unchanged since it was read. Creates no
    /// version.
    ///
    /// Checks, in this order and under the store's lock: the store, a replay,
    /// archiving, and the head.
    pub async fn pin(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        kept: &KeptMemory,
        idempotency: Option<&Idempotency>,
        now: Timestamp,
    ) -> Result<PinOutcome, ChangeError> {
        let mut tx = self.database.write("pin", Role::Tenant(tenant_id)).await?;
        let store = lock_live_store(&mut tx, tenant_id, store_id).await?;
        let store = store.ok_or(ChangeError::NotFound(ObjectKind::Store))?;
        if let Some(earlier) = earlier_call(&mut tx, tenant_id, idempotency).await? {
            let seq = earlier.seq.ok_or(Refused::KeyReused)?;
            return Ok(PinOutcome::Replayed { seq });
        }
        if store.is_archived {
            return Err(Refused::Archived.into());
        }
        let query = tx.query(HEAD_SEQ).bind((tenant_id, store_id, kept.memory_id));
        let Some(head_seq) = query.bind(kept.expected).optional_scalar().await?.flatten() else {
            return Ok(PinOutcome::Stale);
        };
        let query = tx.query(SET_PIN).bind((tenant_id, store_id, kept.memory_id));
        let query = query.bind((kept.expiry.is_pinned, kept.expiry.stored_time()));
        let (is_pinned, expires_at) = query.one().await?;
        let made = CallObject {
            object_id: kept.memory_id.uuid(),
            store_id: Some(store_id),
            version_seq: Some(head_seq),
            is_kept: true,
        };
        record_call(&mut tx, tenant_id, made, idempotency, now).await?;
        tx.commit().await?;
        Ok(PinOutcome::Done { is_pinned, expires_at })
    }
}

/// The memories with these ids, and those at these paths. If none exists, one missing memory, which has
/// the state of the store.
pub(crate) async fn find_all(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    ids: &[MemoryId],
    paths: &[&str],
) -> Result<Vec<FoundMemory>, IndexError> {
    let values = (store, Ids(Some(ids)), json!(paths).to_string());
    tx.query_with_lists(FIND_ALL).bind(values).all().await
}

async fn directories_at(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    paths: &[impl Serialize],
) -> Result<Vec<DirectorySummary>, IndexError> {
    tx.query_with_lists(DIRECTORIES_AT).bind(store).bind(json!(paths).to_string()).all().await
}

/// Whether a path is more likely that of a directory: its last name has no extension.
fn looks_like_a_directory(path: Option<&MemoryPath>) -> bool {
    path.is_none_or(|path| !path.name().contains('.'))
}

/// The visible children of a directory, in display order.
async fn children(
    tx: &mut Tx,
    store: StoreKey,
    directory: &str,
    limit: u64,
) -> Result<Vec<DirectoryEntry>, IndexError> {
    let children: Json<EntryArrays> = tx
        .query(tx.choose(CHILDREN))
        .bind((store.tenant_id, store.store_id))
        .bind((directory, limit))
        .scalar()
        .await?;
    Ok(entries_of(children.0))
}

/// Entries of a directory as the statements return them: 1 for a directory or 0 for a
/// file, path, bytes.
type EntryArrays = Vec<(i64, String, u64)>;

/// Siblings, in display order.
fn entries_of(arrays: EntryArrays) -> Vec<DirectoryEntry> {
    let entry = |(is_directory, path, size_bytes)| DirectoryEntry {
        path,
        is_directory: is_directory == 1,
        size_bytes,
    };
    let mut entries: Vec<_> = arrays.into_iter().map(entry).collect();
    // The rows are sorted, but an aggregate does not promise to keep their order, and is
    // slower if it must.
    entries.sort_by(|one, other| name_of(one).cmp(name_of(other)));
    entries
}

fn name_of(sibling: &DirectoryEntry) -> &str {
    sibling.path.trim_end_matches('/')
}
