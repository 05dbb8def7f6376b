//! Content that is in the database instead of an object store.
//!
//! A commit inserts it ([`HeadChange::content`]), and the transaction that queues its
//! blob for deletion deletes it.
//!
//! [`HeadChange::content`]: crate::HeadChange::content

use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::numbers::unsigned;
use crate::stores::lock_store;

const READ: [&str; 2] = [
    "SELECT size_bytes, bytes FROM read_content($1, $2, $3, $4)",
    "SELECT length(bytes) AS size_bytes, CASE WHEN length(bytes) <= $4 THEN bytes END AS bytes FROM content \
     WHERE tenant_id = $1 AND store_id = $2 AND blob_id = $3",
];

/// Inserts content that a version names and that is not there yet.
const INSERT: &str = "INSERT INTO content (tenant_id, store_id, blob_id, bytes) \
    SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT 1 FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3) \
    OR EXISTS (SELECT 1 FROM version \
        WHERE tenant_id = $1 AND store_id = $2 AND blob_id BETWEEN $3 AND $3 AND blob_id <> version_id) \
    ON CONFLICT DO NOTHING";

const DELETE: &str = "DELETE FROM content WHERE tenant_id = $1 AND store_id = $2 AND blob_id = $3";

const DELETE_STORE: &str = "DELETE FROM content WHERE tenant_id = $1 AND store_id = $2";

const LIST: &str = "SELECT tenant_id, store_id, blob_id, CAST(length(bytes) AS bigint) AS size_bytes FROM content \
    WHERE (tenant_id, store_id, blob_id) > ($1, $2, $3) ORDER BY tenant_id, store_id, blob_id LIMIT $4";

const LIST_TENANT: &str = "SELECT tenant_id, store_id, blob_id, CAST(length(bytes) AS bigint) AS size_bytes FROM content \
    WHERE tenant_id = $1 AND (store_id, blob_id) > ($2, $3) ORDER BY tenant_id, store_id, blob_id LIMIT $4";

/// Content in the database.
#[derive(Debug, Clone)]
pub struct Contents {
    database: Database,
}

/// A content in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptContent {
    /// Its size.
    pub size_bytes: u64,
    /// The content; `None`: it is larger than the caller accepts.
    pub bytes: Option<Vec<u8>>,
}

#[derive(sqlx::FromRow)]
struct ContentRow {
    size_bytes: i64,
    bytes: Option<Vec<u8>>,
}

#[derive(sqlx::FromRow)]
struct ListedRow {
    tenant_id: Uuid,
    store_id: Uuid,
    blob_id: Uuid,
    size_bytes: i64,
}

impl Contents {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Reads a content of at most `max_bytes`; `None`: there is no such content.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn read(&self, key: &BlobKey, max_bytes: u64) -> Result<Option<KeptContent>, IndexError> {
        let role = Role::Tenant(key.tenant_id);
        let mut tx = self.database.read_one("read_content", role).await?;
        let text = tx.choose(READ);
        let query = tx
            .query(text)
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid());
        let query = query.bind(key.blob_id.uuid());
        let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
        let row: Option<ContentRow> = query.bind(max_bytes).optional().await?;
        Ok(row.map(|row| KeptContent {
            size_bytes: unsigned(row.size_bytes),
            bytes: row.bytes,
        }))
    }

    /// Inserts content that comes from elsewhere, if a version names it; returns
    /// whether it was inserted. Does nothing if the content is there.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn insert(&self, key: &BlobKey, bytes: &[u8]) -> Result<bool, IndexError> {
        let role = Role::Job(Some(key.tenant_id));
        let mut tx = self.database.write("insert_content", role).await?;
        // What queues blobs for deletion holds this lock too.
        lock_store(&mut tx, key.tenant_id, key.store_id).await?;
        let query = tx
            .query(INSERT)
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid());
        let inserted = query.bind(key.blob_id.uuid()).bind(bytes).execute().await?;
        tx.commit().await?;
        Ok(inserted > 0)
    }

    /// Deletes a content; returns whether there was one.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn delete(&self, key: &BlobKey) -> Result<bool, IndexError> {
        let role = Role::Job(Some(key.tenant_id));
        let mut tx = self.database.write_one("delete_content", role).await?;
        let query = tx
            .query(DELETE)
            .bind(key.tenant_id.uuid())
            .bind(key.store_id.uuid());
        let deleted = query.bind(key.blob_id.uuid()).execute().await?;
        tx.commit().await?;
        Ok(deleted > 0)
    }

    /// Deletes all contents of a store; returns their number.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn delete_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<u64, IndexError> {
        let role = Role::Job(Some(tenant_id));
        let mut tx = self.database.write_one("delete_contents", role).await?;
        let query = tx
            .query(DELETE_STORE)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid());
        let deleted = query.execute().await?;
        tx.commit().await?;
        Ok(deleted)
    }

    /// The first `limit` contents after a key, in key order, with their sizes in
    /// bytes; only those of one tenant if `tenant_id` is set.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: u32,
    ) -> Result<Vec<(BlobKey, u64)>, IndexError> {
        let mut tx = self.database.read_one("list_contents", Role::Job(None)).await?;
        let [tenant, store, blob] = after.map_or([Uuid::nil(); 3], |key| {
            [key.tenant_id.uuid(), key.store_id.uuid(), key.blob_id.uuid()]
        });
        let query = match tenant_id {
            Some(tenant_id) => tx.query(LIST_TENANT).bind(tenant_id.uuid()),
            None => tx.query(LIST).bind(tenant),
        };
        let query = query.bind(store).bind(blob);
        let rows: Vec<ListedRow> = query.bind(i64::from(limit)).all().await?;
        let listed = |row: ListedRow| {
            let key = BlobKey {
                tenant_id: TenantId::from_uuid(row.tenant_id),
                store_id: StoreId::from_uuid(row.store_id),
                blob_id: VersionId::from_uuid(row.blob_id),
            };
            (key, unsigned(row.size_bytes))
        };
        Ok(rows.into_iter().map(listed).collect())
    }
}
