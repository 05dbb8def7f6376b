//! The history of a store: versions by sequence number and by id, and lists of
//! them.

use keepsake_core::{Actor, ContentHash, Id, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role, Tx};
use crate::memories::StoreStateRow;
use crate::model::{FoundVersion, Operation, StoredContent, Version, VersionListing, VersionPage};
use crate::numbers::{hash_of, unsigned};

/// The columns of a [`VersionRow`].
const COLUMNS: &str = "seq, version_id, prev_seq, memory_id, op, path, blob_id, size_bytes, sha256, created_at, \
    actor_type, actor_id, redacted_at, redacted_by_type, redacted_by";

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
const PAGE: &str = "list_versions($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// The state of a store and its last sequence number; on SQLite.
const STATE: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, seq FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

/// When the last version at or before a sequence number was created; on SQLite.
const CREATED_AT: &str = "SELECT created_at FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq <= $3 \
    ORDER BY seq DESC LIMIT 1";

const WITH_CONTENT: &str = "SELECT v.version_id FROM version v \
    WHERE v.tenant_id = $1 AND v.store_id = $2 AND v.sha256 = $3 \
    AND EXISTS (SELECT 1 FROM store s WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) \
    ORDER BY v.seq DESC LIMIT $4";

/// The history of one store.
#[derive(Debug, Clone)]
pub struct Versions {
    database: Database,
}

#[derive(sqlx::FromRow)]
struct FoundRow {
    #[sqlx(flatten)]
    store: StoreStateRow,
    #[sqlx(flatten)]
    version: VersionRow,
}

#[derive(sqlx::FromRow)]
struct StateRow {
    #[sqlx(flatten)]
    store: StoreStateRow,
    seq: i64,
}

/// A version, if the row has one.
#[derive(sqlx::FromRow)]
pub(crate) struct VersionRow {
    seq: Option<i64>,
    version_id: Option<Uuid>,
    prev_seq: Option<i64>,
    memory_id: Option<Uuid>,
    op: Option<String>,
    path: Option<String>,
    blob_id: Option<Uuid>,
    size_bytes: Option<i64>,
    sha256: Option<Vec<u8>>,
    created_at: Option<i64>,
    actor_type: Option<String>,
    actor_id: Option<String>,
    redacted_at: Option<i64>,
    redacted_by_type: Option<String>,
    redacted_by: Option<String>,
}

impl Versions {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Finds the version with a sequence number of the store.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn find_at(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        seq: i64,
    ) -> Result<Option<Version>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_one("version_at", role).await?;
        let text = select(tx.choose(WITH_SEQ));
        let query = tx.query(text).bind(tenant_id.uuid()).bind(store_id.uuid());
        let row: Option<FoundRow> = query.bind(seq).optional().await?;
        row.map_or(Ok(None), |row| row.version.into_version())
    }

    /// Finds a version by its id; `None`: the store does not exist.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn find(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        version_id: VersionId,
    ) -> Result<Option<FoundVersion>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_one("version", role).await?;
        let text = select(tx.choose(WITH_ID));
        let query = tx.query(text).bind(tenant_id.uuid()).bind(store_id.uuid());
        let row: Option<FoundRow> = query.bind(version_id.uuid()).optional().await?;
        let Some(FoundRow { store, version }) = row else {
            return Ok(None);
        };
        Ok(Some(FoundVersion {
            store: store.state(),
            version: version.into_version()?,
        }))
    }

    /// Lists versions, newest first; `None`: the store does not exist.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &VersionListing,
    ) -> Result<Option<VersionPage>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_function("list_versions", role).await?;
        let page = if tx.is_postgres() {
            page_of_postgres(&mut tx, tenant_id, store_id, listing).await?
        } else {
            page_of_sqlite(&mut tx, tenant_id, store_id, listing).await?
        };
        tx.commit().await?;
        let Some((store, versions)) = page else {
            return Ok(None);
        };
        let versions = versions.into_iter();
        let versions = versions.filter_map(|row| row.into_version().transpose());
        Ok(Some(VersionPage {
            store: store.state(),
            versions: versions.collect::<Result<_, _>>()?,
        }))
    }

    /// Lists the versions of a store whose content has this hash, newest first.
    ///
    /// Reads the whole history, so it must be called rarely.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn with_content(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        sha256: ContentHash,
        limit: u32,
    ) -> Result<Vec<VersionId>, IndexError> {
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read("versions_with_content", role).await?;
        let query = tx
            .query(WITH_CONTENT)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid());
        let query = query.bind(sha256.as_bytes().as_slice()).bind(i64::from(limit));
        let ids: Vec<Uuid> = query.scalars().await?;
        tx.commit().await?;
        Ok(ids.into_iter().map(VersionId::from_uuid).collect())
    }
}

/// Selects the state of a store and versions.
fn select(from: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!(
        "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch, {COLUMNS} FROM {from}"
    ))
}

type Page = (StoreStateRow, Vec<VersionRow>);

async fn page_of_postgres(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    listing: &VersionListing,
) -> Result<Option<Page>, IndexError> {
    let rows: Vec<FoundRow> = tx
        .query(select(PAGE))
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(listing.memory_id.map(Id::uuid))
        .bind(listing.operation.map(Operation::name))
        .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
        .bind(listing.actor.as_ref().map(|(_, id)| id))
        .bind(listing.created_from.map(Timestamp::as_micros))
        .bind(listing.created_to.map(Timestamp::as_micros))
        .bind(listing.before)
        .bind(i64::from(listing.limit))
        .all()
        .await?;
    let mut rows = rows.into_iter();
    let store = rows.next().map(|first| first.store);
    Ok(store.map(|store| (store, rows.map(|row| row.version).collect())))
}

async fn page_of_sqlite(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    listing: &VersionListing,
) -> Result<Option<Page>, IndexError> {
    let query = tx.query(STATE).bind(tenant_id.uuid()).bind(store_id.uuid());
    let Some(state) = query.optional::<StateRow>().await? else {
        return Ok(None);
    };
    let end = state.seq + 1;
    let mut before = listing.before.map_or(end, |before| before.min(end));
    if let Some(to) = listing.created_to {
        let after = Timestamp::from_micros(to.as_micros().saturating_add(1));
        before = first_since(tx, tenant_id, store_id, after, before).await?;
    }
    let mut after = 0;
    if let Some(from) = listing.created_from {
        after = first_since(tx, tenant_id, store_id, from, before).await? - 1;
    }
    let versions = tx
        .query(AssertSqlSafe(list_on_sqlite(listing)))
        .bind(tenant_id.uuid())
        .bind(store_id.uuid())
        .bind(before)
        .bind(after)
        .bind(i64::from(listing.limit))
        .bind(listing.memory_id.map(Id::uuid))
        .bind(listing.operation.map(Operation::name))
        .bind(listing.actor.as_ref().map(|(kind, _)| kind.name()))
        .bind(listing.actor.as_ref().map(|(_, id)| id))
        .all()
        .await?;
    Ok(Some((state.store, versions)))
}

/// Selects versions before `$3` and after `$4`, at most `$5`. The query uses the
/// index of the first given filter among memory (`$6`), actor (`$8`, `$9`) and
/// operation (`$7`), or else the primary key; the other filters are conditions.
fn list_on_sqlite(listing: &VersionListing) -> String {
    let (from, condition) = match (listing.memory_id, &listing.actor, listing.operation) {
        (Some(_), ..) => (
            "version INDEXED BY version_memory",
            "memory_id = $6 AND ($7 IS NULL OR op = $7) AND ($9 IS NULL OR actor_type = $8 AND actor_id = $9)",
        ),
        (None, Some(_), _) => (
            "version INDEXED BY version_actor",
            "actor_id = $9 AND actor_type = $8 AND ($7 IS NULL OR op = $7)",
        ),
        (None, None, Some(Operation::Created | Operation::Deleted)) => {
            ("version INDEXED BY version_op", "op = $7 AND op <> 'modified'")
        }
        (None, None, Some(Operation::Modified) | None) => ("version", "($7 IS NULL OR op = $7)"),
    };
    format!(
        "SELECT {COLUMNS} FROM {from} WHERE tenant_id = $1 AND store_id = $2 AND {condition} \
         AND seq < $3 AND seq > $4 ORDER BY seq DESC LIMIT $5"
    )
}

/// The lowest sequence number, up to `high`, of the versions created at `at` or
/// later; on SQLite.
///
/// `created_at` never decreases with `seq`, so a binary search finds it.
async fn first_since(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
    at: Timestamp,
    mut high: i64,
) -> Result<i64, IndexError> {
    let mut low = 0;
    while high - low > 1 {
        let middle = low.midpoint(high);
        let query = tx.query(CREATED_AT).bind(tenant_id.uuid()).bind(store_id.uuid());
        let created_at: Option<i64> = query.bind(middle).optional_scalar().await?;
        if created_at.is_some_and(|created_at| created_at >= at.as_micros()) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

impl VersionRow {
    /// The version; `None`: the row has none.
    pub(crate) fn into_version(self) -> Result<Option<Version>, IndexError> {
        let corrupt = |what| IndexError::Corrupt {
            table: "version",
            what,
        };
        let incomplete = || corrupt("a row without all columns of a version");
        let Some(version_id) = self.version_id else {
            return Ok(None);
        };
        let actor = |kind: Option<String>, id: Option<String>| {
            let found = kind.zip(id);
            let actor =
                found.map(|(kind, id)| Actor::from_stored(&kind, &id).ok_or(corrupt("unknown actor")));
            actor.transpose()
        };
        let content = |blob_id| {
            Ok::<_, IndexError>(StoredContent {
                blob_id: VersionId::from_uuid(blob_id),
                size_bytes: unsigned(self.size_bytes.ok_or_else(incomplete)?),
                sha256: hash_of(&self.sha256.ok_or_else(incomplete)?, "version")?,
            })
        };
        let operation = self.op.as_deref().and_then(Operation::parse);
        Ok(Some(Version {
            seq: self.seq.ok_or_else(incomplete)?,
            version_id: VersionId::from_uuid(version_id),
            prev_seq: self.prev_seq,
            memory_id: MemoryId::from_uuid(self.memory_id.ok_or_else(incomplete)?),
            operation: operation.ok_or_else(|| corrupt("unknown operation"))?,
            path: self.path.map(MemoryPath::from_trusted),
            content: self.blob_id.map(content).transpose()?,
            created_at: Timestamp::from_micros(self.created_at.ok_or_else(incomplete)?),
            created_by: actor(self.actor_type, self.actor_id)?,
            redacted_at: self.redacted_at.map(Timestamp::from_micros),
            redacted_by: actor(self.redacted_by_type, self.redacted_by)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::actor::ActorKind;

    use super::*;
    use crate::sqlite::plans::steps_of;

    #[tokio::test]
    async fn lists_use_the_index_of_their_filter() {
        let list = |memory_id, actor, operation| {
            list_on_sqlite(&VersionListing {
                memory_id,
                operation,
                actor,
                ..VersionListing::default()
            })
        };
        let memory_id = Some(MemoryId::from_uuid(Uuid::nil()));
        let actor = Some((ActorKind::User, String::new()));
        let range = "(tenant_id=? AND store_id=? AND";
        for (statement, end) in [
            (select(WITH_ID[1]).0, "version_id=?)"),
            (select(WITH_SEQ[1]).0, "seq=?)"),
            (CREATED_AT.to_owned(), "seq<?)"),
            (
                list(memory_id, actor.clone(), None),
                "memory_id=? AND seq>? AND seq<?)",
            ),
            (list(None, actor, None), "actor_id=? AND seq>? AND seq<?)"),
            (
                list(None, None, Some(Operation::Deleted)),
                "op=? AND seq>? AND seq<?)",
            ),
            (list(None, None, None), "seq>? AND seq<?)"),
        ] {
            let steps = steps_of(&statement).await;
            assert!(
                steps.iter().any(|step| step.contains(&format!("{range} {end}"))),
                "{end}: {steps:#?}"
            );
            assert!(
                !steps.iter().any(|step| step.contains("TEMP B-TREE")),
                "{steps:#?}"
            );
        }
    }
}
