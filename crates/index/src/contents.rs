//! Content that is in the database instead of an object store.
//!
//! A commit inserts the content ([`NewContent::New`]). The transaction that queues
//! its blob for deletion deletes it.
//!
//! [`NewContent::New`]: crate::NewContent::New

use keepsake_core::{BlobKey, StoreId, TenantId};

use crate::IndexError;
use crate::database::{Database, Role, from_row};
use crate::numbers::FIRST_KEY;
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
    WHERE (tenant_id, store_id, blob_id) > ($1, $2, $3) ORDER BY tenant_id, store_id, blob_id LIMIT $4 + 0";

const LIST_TENANT: &str = "SELECT tenant_id, store_id, blob_id, CAST(length(bytes) AS bigint) AS size_bytes FROM content \
    WHERE tenant_id = $1 AND (store_id, blob_id) > ($2, $3) ORDER BY tenant_id, store_id, blob_id LIMIT $4 + 0";

#[derive(Debug, Clone)]
pub struct Contents(pub(crate) Database);

struct ListedRow {
    key: BlobKey,
    size_bytes: u64,
}

from_row! {
    ListedRow { size_bytes; key }
}

impl Contents {
    /// Reads the size of a content and, if it has at most `max_bytes`, its bytes; `None`: there is
    /// no such content.
    pub async fn read(
        &self,
        key: &BlobKey,
        max_bytes: u64,
    ) -> Result<Option<(u64, Option<Vec<u8>>)>, IndexError> {
        let role = Role::Tenant(key.tenant_id);
        let mut tx = self.0.read_one("read_content", role).await?;
        let text = tx.choose(READ);
        let query = tx.query(text).bind(key);
        query.bind(max_bytes).optional().await
    }

    /// Inserts content that comes from elsewhere, if a version names it; returns whether
    /// it was inserted. Does nothing if the content exists.
    pub async fn insert(&self, key: &BlobKey, bytes: &[u8]) -> Result<bool, IndexError> {
        let role = Role::Job(Some(key.tenant_id));
        let mut tx = self.0.write("insert_content", role).await?;
        // Queueing blobs for deletion takes the same lock.
        lock_store(&mut tx, key.tenant_id, key.store_id).await?;
        let query = tx.query(INSERT).bind(key);
        let inserted = query.bind(bytes).execute().await?;
        tx.commit().await?;
        Ok(inserted > 0)
    }

    /// Deletes a content; returns whether there was one.
    pub async fn delete(&self, key: &BlobKey) -> Result<bool, IndexError> {
        Ok(self.0.change("delete_content", Role::Job(Some(key.tenant_id)), DELETE, key).await? > 0)
    }

    /// Deletes all contents of a store; returns their number.
    pub async fn delete_store(&self, tenant_id: TenantId, store_id: StoreId) -> Result<u64, IndexError> {
        let role = Role::Job(Some(tenant_id));
        self.0.change("delete_contents", role, DELETE_STORE, (tenant_id, store_id)).await
    }

    /// The first `limit` contents after a key, in key order, with their sizes in
    /// bytes; only those of one tenant if `tenant_id` is set.
    pub async fn list(
        &self,
        tenant_id: Option<TenantId>,
        after: Option<&BlobKey>,
        limit: u32,
    ) -> Result<Vec<(BlobKey, u64)>, IndexError> {
        let after = after.unwrap_or(&FIRST_KEY);
        let (text, tenant_id) = match tenant_id {
            Some(tenant_id) => (LIST_TENANT, tenant_id),
            None => (LIST, after.tenant_id),
        };
        let values = (tenant_id, after.store_id, after.blob_id, limit);
        let rows: Vec<ListedRow> = self.0.all("list_contents", Role::Job(None), text, values).await?;
        Ok(rows.into_iter().map(|row| (row.key, row.size_bytes)).collect())
    }
}
