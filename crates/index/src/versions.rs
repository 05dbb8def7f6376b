//! The history of a store: look-ups and lists of its versions.

use futures::future::BoxFuture;
use keepsake_core::{ContentHash, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::AssertSqlSafe;

use crate::IndexError;
use crate::database::{Database, FromRow, Ids, Role, Row, Tx, from_row};
use crate::model::{MemoryDeletion, Operation, StoreState, StoredContent, Version, VersionListing};

/// The columns of a [`Version`].
pub(crate) const VERSION_COLUMNS: &str = "seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, created_at, \
    actor_type, actor_id, redacted_at, redacted_by_type, redacted_by, undoes";

/// The state of a store, and its version with an id.
const WITH_ID: [&str; 2] = [
    "read_version($1, $2, NULL, $3)",
    "(SELECT archived_at, purge_epoch FROM store \
        WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL) s \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.version_id = $3",
];

/// The state of a store, and its version with a sequence number.
const WITH_SEQ: [&str; 2] = [
    "read_version($1, $2, $3, NULL)",
    "(SELECT archived_at, purge_epoch FROM store \
        WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL) s \
    LEFT JOIN version v ON v.tenant_id = $1 AND v.store_id = $2 AND v.seq = $3",
];

/// A row with the state of a store, and then a row for each version of a page; on
/// Postgres.
const PAGE: &str = "list_versions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// The state of a store and its last sequence number.
pub(crate) const STATE: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, seq FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// When the last version at or before a sequence number was created; on SQLite.
const CREATED_AT: &str = "SELECT created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq <= $3 \
    ORDER BY seq DESC LIMIT 1";

const WITH_CONTENT: &str = "SELECT v.version_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.sha256 = $3 \
    AND EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
    ORDER BY v.seq DESC LIMIT $4 + 0";

/// The versions with the ids `$3`.
const WITH_IDS: &str = "SELECT VERSION_COLUMNS \
    FROM_IDS($3) EACH[version v: v.tenant_id = $1 AND v.store_id = $2 AND v.version_id = ids.id] \
    WHERE EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL)";

/// The deletions before `$3` of memories that are still deleted and whose last content is kept; with a
/// path in `$4`, only the deletions of memories at this path.
const DELETIONS: &str = "SELECT v.seq, v.version_id, v.store_id, v.memory_id, v.path, b.size_bytes, b.sha256, \
        v.created_at, v.actor_type, v.actor_id, b.version_id AS restorable \
    FROM version v \
    JOIN memory m ON m.tenant_id = $1 AND m.store_id = $2 AND m.memory_id = v.memory_id \
    JOIN version b ON b.tenant_id = $1 AND b.store_id = $2 AND b.seq = v.prev_seq \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.op = 'deleted' AND v.op <> 'modified' AND v.seq < $3 \
    AND m.head_seq = v.seq AND b.blob_id IS NOT NULL AND ($4 IS NULL OR v.path = $4) \
    ORDER BY v.seq DESC LIMIT $5 + 0";

#[derive(Debug, Clone)]
pub struct Versions(pub(crate) Database);

/// A version, if the row has one. Of a page on Postgres, only the first row has the store.
struct VersionRow {
    store: Option<StoreState>,
    version: Option<Version>,
}

/// The state of a store and its last sequence number.
pub(crate) struct StateRow {
    pub(crate) store: StoreState,
    pub(crate) seq: i64,
}

from_row! {
    Version {
        version_id, seq, prev_seq, memory_id, operation = "op", path, created_at, redacted_at, undoes;
        content if "blob_id", created_by by ["actor_type", "actor_id"],
        redacted_by by ["redacted_by_type", "redacted_by"]
        .. r#type
    }
    MemoryDeletion {
        memory_store_id = "store_id", memory_id, path, deletion_version_id = "version_id",
        memory_version_id = "restorable", content_size_bytes = "size_bytes", content_sha256 = "sha256",
        deleted_at = "created_at", restorable_until = "created_at", seq;
        deleted_by by ["actor_type", "actor_id"]
        .. r#type
    }
    StoredContent { blob_id, size_bytes, sha256 }
    StateRow { seq; store }
}

impl FromRow for VersionRow {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self { store: row.read_unless_null("purge_epoch")?, version: row.read_unless_null("version_id")? })
    }
}

impl Versions {
    pub async fn find_at(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Version>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.0.read_one("version_at", role).await?;
        let text = select(tx.choose(WITH_SEQ));
        let found: Option<VersionRow> = tx.query(text).bind((tenant_id, store_id, seq)).optional().await?;
        Ok(found.and_then(|row| row.version))
    }

    /// Finds a version by its id, with the state of its store; `None`: the store does not exist.
    pub async fn find(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<Option<(StoreState, Option<Version>)>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.0.read_one("version", role).await?;
        let text = select(tx.choose(WITH_ID));
        let query = tx.query(text).bind((tenant_id, store_id, version_id));
        let found: Option<VersionRow> = query.optional().await?;
        Ok(found.and_then(|row| Some((row.store?, row.version))))
    }

    /// Finds the versions of a store that have these ids, in any order; an unknown id has none.
    pub async fn find_all(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_ids: &[VersionId],
    ) -> Result<Vec<Version>, IndexError> {
        let text = WITH_IDS.replace("VERSION_COLUMNS", VERSION_COLUMNS);
        let (role, values) = (Role::Tenant(tenant_id), (tenant_id, store_id, Ids(Some(version_ids))));
        self.0.all_with_lists("versions_by_id", role, &text, values).await
    }

    /// Lists versions, newest first, with the state of their store; `None`: the store does not
    /// exist.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &VersionListing,
    ) -> Result<Option<(StoreState, Vec<Version>)>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.0.read_function("list_versions", role).await?;
        let page = page_of(&mut tx, (tenant_id, store_id), listing).await?;
        tx.commit().await?;
        Ok(page)
    }

    /// Lists the memories that are deleted and can be restored, the last deleted first; `None`: the
    /// store does not exist. With a path, only the memories that had it when they were deleted.
    pub async fn deletions(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Option<Vec<MemoryDeletion>>, IndexError> {
        let store = (tenant_id, store_id);
        let mut tx = self.0.read("deletions", Role::Tenant(tenant_id)).await?;
        if tx.query(STATE).bind(store).optional::<StateRow>().await?.is_none() {
            return Ok(None);
        }
        let query = tx.query(DELETIONS).bind(store).bind(before.unwrap_or(i64::MAX));
        let deletions = query.bind(path.map(MemoryPath::as_str)).bind(limit).all().await?;
        tx.commit().await?;
        Ok(Some(deletions))
    }

    /// Lists the versions of a store whose content has this hash, newest first.
    ///
    /// Reads the whole history, so it must be called rarely.
    pub async fn with_content(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        sha256: ContentHash,
        limit: u32,
    ) -> Result<Vec<VersionId>, IndexError> {
        let (role, hash) = (Role::Tenant(tenant_id), sha256.as_bytes().as_slice());
        let values = (tenant_id, store_id, hash, limit);
        let rows: Vec<(VersionId,)> = self.0.all("versions_with_content", role, WITH_CONTENT, values).await?;
        Ok(rows.into_iter().map(|(version_id,)| version_id).collect())
    }
}

/// Selects the state of a store and versions. A function of Postgres returns versions as rows.
fn select(from: &str) -> AssertSqlSafe<String> {
    let columns = if from.contains("($1") {
        format!("(version_row).{}", VERSION_COLUMNS.replace(", ", ", (version_row)."))
    } else {
        VERSION_COLUMNS.to_owned()
    };
    AssertSqlSafe(format!(
        "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, {columns} FROM {from}"
    ))
}

type PageOf = for<'a> fn(&'a mut Tx, (TenantId, StoreId), &'a VersionListing) -> Page<'a>;
type Page<'a> = BoxFuture<'a, Result<Option<(StoreState, Vec<Version>)>, IndexError>>;

/// A page of versions; `None`: the store does not exist.
pub(crate) fn page_of<'a>(
    tx: &'a mut Tx,
    store: (TenantId, StoreId),
    listing: &'a VersionListing,
) -> Page<'a> {
    let page_of: PageOf = tx.choose([page_of_postgres, page_of_sqlite]);
    page_of(tx, store, listing)
}

fn page_of_postgres<'a>(tx: &'a mut Tx, store: (TenantId, StoreId), listing: &'a VersionListing) -> Page<'a> {
    Box::pin(async move {
        let rows: Vec<VersionRow> = tx
            .query(select(PAGE))
            .bind(store)
            .bind(listing.memory_id)
            .bind(listing.operation.map(Operation::name))
            .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
            .bind(imported_kind(listing))
            .bind(listing.actor.as_ref().map(|(_, id)| id))
            .bind(listing.created_from)
            .bind(listing.created_to)
            .bind(listing.before)
            .bind(listing.limit)
            .all()
            .await?;
        let store = rows.first().and_then(|row| row.store);
        Ok(store.map(|store| (store, rows.into_iter().filter_map(|row| row.version).collect())))
    })
}

fn page_of_sqlite<'a>(tx: &'a mut Tx, store: (TenantId, StoreId), listing: &'a VersionListing) -> Page<'a> {
    Box::pin(async move {
        let Some(state) = tx.query(STATE).bind(store).optional::<StateRow>().await? else {
            return Ok(None);
        };
        let end = state.seq + 1;
        let mut before = listing.before.map_or(end, |before| before.min(end));
        if let Some(to) = listing.created_to {
            let after = Timestamp::from_micros(to.as_micros().saturating_add(1));
            before = first_since(tx, store, after, before).await?;
        }
        let mut after = 0;
        if let Some(from) = listing.created_from {
            after = first_since(tx, store, from, before).await? - 1;
        }
        let versions = tx
            .query(AssertSqlSafe(list_on_sqlite(listing)))
            .bind(store)
            .bind((before, after))
            .bind(listing.limit)
            .bind(listing.memory_id)
            .bind(listing.operation.map(Operation::name))
            .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
            .bind(listing.actor.as_ref().map(|(_, id)| id))
            .bind(imported_kind(listing))
            .all()
            .await?;
        Ok(Some((state.store, versions)))
    })
}

/// The name of the kind that imported versions by the actor have; `None`: such versions
/// do not count.
fn imported_kind(listing: &VersionListing) -> Option<&'static str> {
    let (kind, _) = listing.actor.as_ref().filter(|_| listing.includes_imported)?;
    Some(kind.imported_name())
}

/// Selects versions before `$3` and after `$4`, at most `$5`. The query uses the
/// index of the first given filter among memory (`$6`), actor (`$8` to `$10`) and
/// operation (`$7`), or else the primary key; the other filters are conditions.
fn list_on_sqlite(listing: &VersionListing) -> String {
    let (from, condition) = match (listing.memory_id, &listing.actor, listing.operation) {
        (Some(_), ..) => (
            "version INDEXED BY version_memory",
            "memory_id = $6 AND ($7 IS NULL OR op = $7) \
             AND ($9 IS NULL OR actor_type IN ($8, $10) AND actor_id = $9)",
        ),
        (None, Some(_), _) => (
            "version INDEXED BY version_actor",
            "actor_id = $9 AND actor_type IN ($8, $10) AND ($7 IS NULL OR op = $7)",
        ),
        (None, None, Some(Operation::Created | Operation::Deleted)) => {
            ("version INDEXED BY version_op", "op = $7 AND op <> 'modified'")
        }
        (None, None, Some(Operation::Modified) | None) => ("version", "($7 IS NULL OR op = $7)"),
    };
    format!(
        "SELECT {VERSION_COLUMNS} FROM {from} WHERE tenant_id = $1 AND store_id = $2 AND {condition} \
         AND seq < $3 AND seq > $4 ORDER BY seq DESC LIMIT $5 + 0"
    )
}

/// The lowest sequence number, up to `high`, of the versions created at `at` or later; on
/// SQLite.
///
/// `created_at` does not decrease with `seq`, so a binary search finds it. If a clock was
/// ahead, `created_at` may decrease, and a version between the two times may be missed.
pub(crate) async fn first_since(
    tx: &mut Tx,
    store: (TenantId, StoreId),
    at: Timestamp,
    mut high: i64,
) -> Result<i64, IndexError> {
    let mut low = 0;
    while high - low > 1 {
        let middle = low.midpoint(high);
        let query = tx.query(CREATED_AT).bind((store, middle));
        let created_at: Option<i64> = query.optional_scalar().await?;
        if created_at.is_some_and(|created_at| created_at >= at.as_micros()) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}
