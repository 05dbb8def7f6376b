//! Upkeep: compares blobs with rows, recounts counters, and deletes expired rows.

mod prunable;
mod recount;

use std::collections::BTreeMap;

use keepsake_core::{BlobKey, ContentHash, MemoryId, StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, FromRow, Mode, Role, Row, Tx, from_row};
use crate::numbers::{FIRST_KEY, FIRST_STORE};
use crate::postgres::damage;
use crate::search::{FIRST_MEMORY, MemoryPlace};
use crate::sessions::count_sessions;
use crate::stores::lock_store;
use crate::tenants::lock_live_tenant;

pub use prunable::Prunable;
pub use recount::{Counter, Recount, StoreCount, TenantCount};

/// Rows that reference blobs after a key: rows that introduced a blob, by the index of
/// version ids, and rows that share one, by the index of shared blobs.
const NAMED_BLOBS: &str = "SELECT v.tenant_id, v.store_id, v.blob_id, v.size_bytes, v.sha256, \
        s.store_id IS NOT NULL AS is_live \
    FROM (SELECT * FROM (SELECT tenant_id, store_id, version_id AS blob_id, size_bytes, sha256 FROM version \
            WHERE (tenant_id, store_id, version_id) > ($1, $2, $3) AND blob_id = version_id \
            ORDER BY tenant_id, store_id, version_id LIMIT $4 + 0) own \
        UNION SELECT * FROM (SELECT tenant_id, store_id, blob_id, size_bytes, sha256 FROM version \
            WHERE (tenant_id, store_id, blob_id) > ($1, $2, $3) AND blob_id <> version_id \
            ORDER BY tenant_id, store_id, blob_id LIMIT $4 + 0) shared) v \
    LEFT JOIN store s ON s.tenant_id = v.tenant_id AND s.store_id = v.store_id AND s.deleted_at IS NULL \
    ORDER BY v.tenant_id, v.store_id, v.blob_id LIMIT $4 + 0";

const BLOB_IS_NAMED: &str = "SELECT EXISTS (SELECT 1 FROM store \
        WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL) \
    AND (EXISTS (SELECT 1 FROM version WHERE tenant_id = $1 AND store_id = $2 AND version_id = $3 AND blob_id = $3) \
        OR EXISTS (SELECT 1 FROM version \
            WHERE tenant_id = $1 AND store_id = $2 AND blob_id BETWEEN $3 AND $3 AND blob_id <> version_id))";

/// The next rows of search terms after a key, and whether each is stray: it belongs to no
/// memory, or has numbers that no analyser writes. A row is not stray if the deletion of
/// its store or tenant has yet to remove it.
const TERMS_AFTER: &str = "SELECT d.tenant_id, d.store_id, d.memory_id, \
        (m.memory_id IS NULL OR d.analyser < 1 OR d.length < 0) \
        AND NOT EXISTS (SELECT 1 FROM store s \
            WHERE s.tenant_id = d.tenant_id AND s.store_id = d.store_id AND s.deleted_at IS NOT NULL) \
        AND NOT EXISTS (SELECT 1 FROM tenant_deletion t WHERE t.tenant_id = d.tenant_id AND t.ended_at IS NULL) \
        AS is_stray \
    FROM (SELECT tenant_id, store_id, memory_id, analyser, length FROM search_doc \
        WHERE (tenant_id, store_id, memory_id) > ($1, $2, $3) \
        ORDER BY tenant_id, store_id, memory_id LIMIT $4 + 0) d \
    LEFT JOIN memory m ON m.tenant_id = d.tenant_id AND m.store_id = d.store_id AND m.memory_id = d.memory_id \
    ORDER BY d.tenant_id, d.store_id, d.memory_id";

const STORES_AFTER: &str = "SELECT tenant_id, store_id, memory_count, live_bytes, version_count, version_bytes \
    FROM store WHERE (tenant_id, store_id) > ($1, $2) AND deleted_at IS NULL ORDER BY tenant_id, store_id LIMIT $3 + 0";

const TENANTS_AFTER: &str = "SELECT tenant_id FROM tenant WHERE tenant_id > $1 AND status <> 'deleting' ORDER BY tenant_id LIMIT $2 + 0";

/// All statements of a transaction on Postgres see one snapshot.
const ONE_SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// The last one of the next call records; no row if there are fewer.
const CALLS_UP_TO: &str = "SELECT tenant_id, scope_sha256 FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) ORDER BY tenant_id, scope_sha256 LIMIT 1 OFFSET $3";

const COUNT_CALLS: &str = "SELECT count(*) FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) AND (tenant_id, scope_sha256) <= ($3, $4) AND created_at < $5";

const PRUNE_CALLS: &str = "DELETE FROM idempotency \
    WHERE (tenant_id, scope_sha256) > ($1, $2) AND (tenant_id, scope_sha256) <= ($3, $4) AND created_at < $5";

/// A blob reference in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob {
    /// Its key.
    pub key: BlobKey,
    pub size_bytes: u64,
    /// `None`: the hash in the row is invalid.
    pub sha256: Option<ContentHash>,
    /// Whether readers may still need the blob: its store is not deleted.
    pub is_live: bool,
}

/// A store, or a tenant without its stores.
pub type CountedPlace = (TenantId, Option<StoreId>);

pub type CallKey = (TenantId, [u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrunedCalls {
    /// Records that were removed, or would be.
    pub rows: u64,
    /// The last record that was read; `None`: there are no further records.
    pub last: Option<CallKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCounters {
    pub tenant_id: TenantId,
    pub store_id: StoreId,
    /// Live memories.
    pub memory_count: u64,
    /// Bytes of live memories.
    pub live_bytes: u64,
    /// Retained versions, including those of live memories.
    pub version_count: u64,
    /// Bytes of all retained content, including that of live memories.
    pub version_bytes: u64,
}

from_row! {
    StoreCounters { tenant_id, store_id, memory_count, live_bytes, version_count, version_bytes }
}

/// The rows of every tenant, for the jobs and `keepsake verify`.
#[derive(Debug, Clone)]
pub struct Upkeep(pub(crate) Database);

impl FromRow for NamedBlob {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        Ok(Self {
            key: row.read()?,
            size_bytes: row.get("size_bytes")?,
            sha256: row.get("sha256").ok(),
            is_live: row.get("is_live")?,
        })
    }
}

impl Upkeep {
    /// Reads every row of every table; returns the damage, in the database's messages. On
    /// SQLite it also checks every page and every index.
    ///
    /// Fails if the database cannot be read now.
    pub async fn find_damage(&self) -> Result<Vec<String>, IndexError> {
        let find = async {
            match self.0.sqlite() {
                Some(index) => index.find_damage().await,
                None => damage::find(&self.0).await,
            }
        };
        let role = Role::Job(None);
        self.0.measure("find_damage", role, Mode::Statement, find).await
    }

    /// The first `limit` rows that reference a blob with a key after `after`, ordered
    /// by key.
    ///
    /// Versions that reference the same blob with the same size and hash give one row.
    /// Versions of deleted stores are included until they are purged.
    pub async fn named_blobs(
        &self,
        after: Option<&BlobKey>,
        limit: u32,
    ) -> Result<Vec<NamedBlob>, IndexError> {
        let BlobKey { tenant_id, store_id, blob_id } = *after.unwrap_or(&FIRST_KEY);
        let after = (tenant_id, store_id.uuid(), blob_id.uuid());
        self.0.page("named_blobs", NAMED_BLOBS, after, limit, |after, limit| (after, limit)).await
    }

    /// The next `limit` memories with search terms, by tenant, store and memory; and
    /// whether the terms are stray: of no memory, or with numbers that no analyser
    /// writes.
    pub async fn terms_after(
        &self,
        after: Option<MemoryPlace>,
        limit: u32,
    ) -> Result<Vec<(MemoryPlace, bool)>, IndexError> {
        let (tenant_id, store_id, memory_id) = after.unwrap_or(FIRST_MEMORY);
        let after = (tenant_id, store_id.uuid(), memory_id.uuid());
        let rows: Vec<(TenantId, StoreId, MemoryId, bool)> =
            self.0.page("terms_after", TERMS_AFTER, after, limit, |after, limit| (after, limit)).await?;
        let row = |(tenant_id, store_id, memory_id, is_stray)| ((tenant_id, store_id, memory_id), is_stray);
        Ok(rows.into_iter().map(row).collect())
    }

    /// Whether a version of a store that is not deleted references a blob.
    pub async fn blob_is_named(&self, key: &BlobKey) -> Result<bool, IndexError> {
        self.0.scalar("blob_is_named", Role::Job(None), BLOB_IS_NAMED, key).await
    }

    /// The next stores after a given one that are not deleted, by tenant and id, with
    /// their counters.
    pub async fn stores_after(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<StoreCounters>, IndexError> {
        let values = (after.unwrap_or(FIRST_STORE), limit);
        self.0.all("stores_after", Role::Job(None), STORES_AFTER, values).await
    }

    /// The next tenants after a given one, by id, without those being deleted.
    pub async fn tenants_after(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<TenantId>, IndexError> {
        let values = (after.unwrap_or(FIRST_STORE.0), limit);
        let rows: Vec<(TenantId,)> =
            self.0.all("tenants_after", Role::Job(None), TENANTS_AFTER, values).await?;
        Ok(rows.into_iter().map(|(tenant_id,)| tenant_id).collect())
    }

    /// The next places after a given one: first all stores that are not deleted, then all
    /// tenants that are not being deleted. A repair of a store may change the grant of its
    /// tenant.
    pub async fn places_after(
        &self,
        after: Option<CountedPlace>,
        limit: u32,
    ) -> Result<Vec<CountedPlace>, IndexError> {
        let store = after.and_then(|(tenant_id, store_id)| Some((tenant_id, store_id?)));
        if after.is_none() || store.is_some() {
            let stores = self.stores_after(store, limit).await?;
            if !stores.is_empty() {
                return Ok(stores.iter().map(|store| (store.tenant_id, Some(store.store_id))).collect());
            }
        }
        let tenant_id = after.filter(|_| store.is_none()).map(|(tenant_id, _)| tenant_id);
        let tenants = self.tenants_after(tenant_id, limit).await?;
        Ok(tenants.into_iter().map(|tenant_id| (tenant_id, None)).collect())
    }

    /// Counts the data of a store, or the stores of a tenant and their grants, and compares
    /// the result with the counters; `None`: the place does not exist or is deleted.
    ///
    /// Without `repairs`, it reads one snapshot and takes no lock. With `repairs`, it counts
    /// under the locks of tenant and store, and writes the result; it returns the counters
    /// as they were before the write.
    pub async fn recount(
        &self,
        (tenant_id, store_id): CountedPlace,
        repairs: bool,
    ) -> Result<Option<Recount>, IndexError> {
        let call = if store_id.is_some() { "recount_store" } else { "recount_tenant" };
        let mut tx;
        if repairs {
            tx = self.0.write(call, Role::Job(None)).await?;
            // The locks of grants and commits, in their order.
            lock_live_tenant(&mut tx, tenant_id).await?;
            if let Some(store_id) = store_id {
                lock_store(&mut tx, tenant_id, store_id).await?;
            }
        } else {
            tx = self.0.read(call, Role::Job(None)).await?;
            tx.execute_on_postgres(ONE_SNAPSHOT, ()).await?;
        }
        let recount = match store_id {
            Some(store_id) => recount::recount_store(&mut tx, tenant_id, store_id, repairs).await?,
            None => recount::recount_tenant(&mut tx, tenant_id, repairs).await?,
        };
        tx.commit().await?;
        Ok(recount)
    }

    /// Removes records of calls made before a time, among the next `limit` after a
    /// given one; with `is_dry` it only counts them.
    pub async fn prune_calls(
        &self,
        after: Option<&CallKey>,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<PrunedCalls, IndexError> {
        let mut tx = self.begin_prune("prune_calls", is_dry).await?;
        let (tenant, scope) = after.map_or((Uuid::nil(), [0; 32]), |(tenant, scope)| (tenant.uuid(), *scope));
        let query = tx.query(CALLS_UP_TO).bind((tenant, scope.as_slice()));
        let last: Option<CallKey> = query.bind(i64::from(limit.max(1)) - 1).optional().await?;
        let (end, end_scope) =
            last.map_or((Uuid::max(), [u8::MAX; 32]), |(tenant, scope)| (tenant.uuid(), scope));
        let query = tx
            .query(if is_dry { COUNT_CALLS } else { PRUNE_CALLS })
            .bind(tenant)
            .bind(scope.as_slice())
            .bind(end)
            .bind(end_scope.as_slice())
            .bind(before);
        let rows = if is_dry { query.scalar().await? } else { query.execute().await? };
        tx.commit().await?;
        Ok(PrunedCalls { rows, last })
    }

    /// Removes at most `limit` rows from before a time; with `is_dry` it counts all such
    /// rows. Returns the number.
    pub async fn prune(
        &self,
        what: Prunable,
        before: Timestamp,
        limit: u32,
        is_dry: bool,
    ) -> Result<u64, IndexError> {
        if what == Prunable::EndedSessions && !is_dry {
            return self.prune_sessions(before, limit).await;
        }
        let mut tx = self.begin_prune("prune", is_dry).await?;
        let [count, remove] = what.texts();
        if is_dry {
            return tx.query(count).bind(before).scalar().await;
        }
        if what == Prunable::Audit {
            let query = tx.query(prunable::MOVE_AUDIT_HORIZON);
            query.bind(before).execute().await?;
        }
        let removed = tx.query(remove).bind((before, limit)).execute().await?;
        tx.commit().await?;
        Ok(removed)
    }

    /// Removes ended sessions as [`Self::prune`] does, and takes sessions that were not deleted out of the
    /// counters of their tenants.
    async fn prune_sessions(&self, before: Timestamp, limit: u32) -> Result<u64, IndexError> {
        let [_, remove] = Prunable::EndedSessions.texts();
        let mut tx = self.0.write("prune", Role::Job(None)).await?;
        let removed: Vec<(TenantId, i64, i64)> = tx.query(remove).bind((before, limit)).all().await?;
        let mut counted = BTreeMap::<_, [i64; 2]>::new();
        for (tenant_id, sessions, bytes) in &removed {
            let [of_tenant, bytes_of_tenant] = counted.entry(*tenant_id).or_default();
            *of_tenant += sessions;
            *bytes_of_tenant += sessions * bytes;
        }
        // In the order of the tenants, so that two calls cannot deadlock.
        for (tenant_id, [sessions, bytes]) in counted {
            if sessions > 0 {
                count_sessions(&mut tx, tenant_id, -sessions, -bytes).await?;
            }
        }
        tx.commit().await?;
        Ok(removed.len() as u64)
    }

    /// On Postgres each statement of a batch commits by itself.
    async fn begin_prune(&self, call: &'static str, is_dry: bool) -> Result<Tx, IndexError> {
        if is_dry {
            self.0.read_one(call, Role::Job(None)).await
        } else {
            self.0.write_one(call, Role::Job(None)).await
        }
    }
}
