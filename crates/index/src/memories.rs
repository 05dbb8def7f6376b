//! Memories of one store: reads of heads, and the one way to change them.

use futures::future::BoxFuture;
use keepsake_core::{DirPath, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use crate::calls::{earlier_call, record_call};
use crate::commit::{CallMade, Commit, CommitOutcome};
use crate::database::{Backend, Database, Role, RowLock, Tx};
use crate::listing::{Span, end_of};
use crate::model::{
    Claim, Depth, Directory, Entry, Expiry, FoundMemory, Head, Lookup, Memory, MemoryItem, MemoryListing,
    MemoryPage, MemoryTarget, Pin, PinOutcome, Replayed, StoreState, Target,
};
use crate::numbers::{hash_of, unsigned};
use crate::{IndexError, postgres, sqlite};

const HEADS_BELOW: &str = "SELECT path, size_bytes, memory_id, version_id, head_seq, blob_id, sha256, claimed_by, \
    claimed_until FROM memory WHERE tenant_id = $1 AND store_id = $2 AND path >= $3 AND path < $4 \
    AND deleted_at IS NULL AND EXISTS (SELECT 1 FROM store s \
        WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL) ORDER BY path";

const ROOT: &str = "SELECT d.files, d.bytes, d.visible_children FROM store s JOIN directory d \
        ON d.tenant_id = $1 AND d.store_id = $2 AND d.path = '/' \
    WHERE s.tenant_id = $1 AND s.store_id = $2 AND s.deleted_at IS NULL";

const LOCK_STORE: &str = "SELECT archived_at IS NOT NULL AS is_archived, purge_epoch FROM store \
    WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";

const CLAIM: &str = "UPDATE memory SET claimed_by = $4, claimed_until = $6 \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 \
    AND (claimed_by IS NULL OR claimed_by = $4 OR claimed_until <= $5)";

/// The condition on the memory's state is outside the `WHERE`: on an empty table,
/// Postgres would choose an index of live memories without their ids, and keep the plan.
const HEAD_SEQ: &str = "SELECT CASE WHEN version_id = $4 AND deleted_at IS NULL THEN head_seq END FROM memory \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3";

const SET_PIN: &str = "UPDATE memory SET pinned = coalesce($4, pinned) \
    WHERE tenant_id = $1 AND store_id = $2 AND memory_id = $3 RETURNING pinned";

/// Memories of one store.
#[derive(Debug, Clone)]
pub struct Memories {
    database: Database,
    #[cfg(feature = "planted-bugs")]
    pub(crate) bug: Option<std::sync::Arc<dyn crate::PlantedBug>>,
}

/// A head, if the row has one.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct HeadRow {
    path: Option<String>,
    size_bytes: Option<i64>,
    memory_id: Option<Uuid>,
    version_id: Option<Uuid>,
    head_seq: Option<i64>,
    blob_id: Option<Uuid>,
    sha256: Option<Vec<u8>>,
    claimed_by: Option<Uuid>,
    claimed_until: Option<i64>,
}

/// What reads need of a store. In a list, only the first row has it.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct StoreStateRow {
    is_archived: bool,
    purge_epoch: Option<i64>,
}

#[derive(Debug, sqlx::FromRow)]
pub(crate) struct ExpiryRow {
    expires_unused_after: Option<i64>,
    period_set_at: Option<i64>,
}

/// A memory or a directory, if the row has one.
#[derive(sqlx::FromRow)]
struct MemoryRow {
    #[sqlx(flatten)]
    store: StoreStateRow,
    #[sqlx(flatten)]
    expiry: ExpiryRow,
    #[sqlx(flatten)]
    head: HeadRow,
    pinned: Option<bool>,
    created_at: Option<i64>,
    updated_at: Option<i64>,
    last_read_at: Option<i64>,
    active_at: Option<i64>,
    deleted_at: Option<i64>,
    first_line: Option<String>,
}

/// What is at a path.
#[derive(sqlx::FromRow)]
pub(crate) struct PathRow {
    #[sqlx(flatten)]
    store: StoreStateRow,
    #[sqlx(flatten)]
    head: HeadRow,
    /// Only a directory has a number of files.
    files: Option<i64>,
    total_entries: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct RootRow {
    files: i64,
    bytes: i64,
    visible_children: i64,
}

impl Memories {
    pub(crate) const fn new(database: Database) -> Self {
        Self {
            database,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// Finds what is at a path, in one query; `None`: no such store.
    ///
    /// `path` is `None` for the root. A directory comes with at most `max_entries`
    /// of its listing, two levels deep in display order, and their total; with 0,
    /// neither the entries nor the total are read.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn head(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        path: Option<&MemoryPath>,
        max_entries: u64,
    ) -> Result<Option<Lookup>, IndexError> {
        let place = Place { tenant_id, store_id };
        match self.database.backend() {
            Backend::Postgres(_) => postgres::head::read(&self.database, place, path, max_entries).await,
            Backend::Sqlite(_) => sqlite::head::read(&self.database, place, path, max_entries).await,
        }
    }

    /// The direct children of a store's root, without hidden ones, in display order;
    /// `None`: no such store.
    ///
    /// Has at most `max_entries` entries; `total_entries` counts all of them.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn root(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        max_entries: u64,
    ) -> Result<Option<Directory>, IndexError> {
        let mut tx = self.database.read("root", Role::Tenant(tenant_id)).await?;
        let query = tx.query(ROOT).bind(tenant_id.uuid()).bind(store_id.uuid());
        let root: Option<RootRow> = query.optional().await?;
        let Some(root) = root else {
            return Ok(None);
        };
        let place = Place { tenant_id, store_id };
        let entries = if tx.is_postgres() {
            postgres::head::children(&mut tx, place, "/", max_entries).await?
        } else {
            sqlite::head::children(&mut tx, place, "/", max_entries).await?
        };
        tx.commit().await?;
        Ok(Some(Directory {
            files: unsigned(root.files),
            size_bytes: unsigned(root.bytes),
            total_entries: unsigned(root.visible_children),
            entries,
        }))
    }

    /// Every live memory below a directory, in path order.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn heads_below(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        directory: &DirPath,
    ) -> Result<Vec<Head>, IndexError> {
        let mut tx = self.database.read("heads_below", Role::Tenant(tenant_id)).await?;
        let query = tx.query(HEADS_BELOW).bind(tenant_id.uuid()).bind(store_id.uuid());
        let query = query.bind(directory.as_str()).bind(end_of(directory));
        let rows: Vec<HeadRow> = query.all().await?;
        tx.commit().await?;
        rows.into_iter()
            .filter_map(|row| row.into_head().transpose())
            .collect()
    }

    /// Makes all changes of `commit` or none, in one transaction.
    ///
    /// Checks, in this order and under the store's lock: the store, a replay,
    /// archiving, that every head is the one that was read, that new paths are
    /// free, the limits, the store's grant of bytes, and that no blob of the commit
    /// is condemned. A [`CommitOutcome::Refused`] has changed nothing.
    ///
    /// # Errors
    /// After [`IndexError::OutcomeUnknown`] and [`IndexError::DiskFailed`] the changes
    /// may or may not have been made.
    pub async fn commit(&self, tenant_id: TenantId, commit: &Commit) -> Result<CommitOutcome, IndexError> {
        #[cfg(feature = "planted-bugs")]
        if let Some(bug) = &self.bug {
            let memories = Self::new(self.database.clone());
            return bug.commit(&memories, tenant_id, commit).await;
        }
        // A trait object keeps the types of the callers' futures small.
        let committed: BoxFuture<'_, _> = match self.database.backend() {
            Backend::Postgres(_) => Box::pin(postgres::commit::commit(&self.database, tenant_id, commit)),
            Backend::Sqlite(index) => Box::pin(index.commits().commit(&self.database, tenant_id, commit)),
        };
        committed.await
    }

    /// Asks other replicas to let the next edit of a memory by `replica` go first,
    /// until `until`. Returns whether this was granted.
    ///
    /// It is a hint; only the compare-and-set of a commit prevents lost edits.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn claim_edit(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
        replica: Uuid,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, IndexError> {
        let mut tx = self.database.write("claim_edit", Role::Tenant(tenant_id)).await?;
        let query = tx.query(CLAIM).bind(tenant_id.uuid()).bind(store_id.uuid());
        let query = query.bind(memory_id.uuid()).bind(replica);
        let claimed = query
            .bind(now.as_micros())
            .bind(until.as_micros())
            .execute()
            .await?;
        tx.commit().await?;
        Ok(claimed > 0)
    }

    /// The record of an idempotent call, if it was made after `since`.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn replayed(
        &self,
        tenant_id: TenantId,
        scope_sha256: &[u8; 32],
        since: Timestamp,
    ) -> Result<Option<Replayed>, IndexError> {
        let mut tx = self.database.read("replayed", Role::Tenant(tenant_id)).await?;
        let earlier = earlier_call(&mut tx, tenant_id, scope_sha256, since).await?;
        tx.commit().await?;
        Ok(earlier)
    }

    /// Finds a memory by its id, in one query; `None`: no such store.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn find(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<Option<FoundMemory>, IndexError> {
        let mut tx = self.database.read_one("memory", Role::Tenant(tenant_id)).await?;
        let text = tx.choose([postgres::head::MEMORY, sqlite::head::MEMORY]);
        let query = tx.query(text).bind(tenant_id.uuid()).bind(store_id.uuid());
        let row: Option<MemoryRow> = query.bind(memory_id.uuid()).optional().await?;
        row.map(MemoryRow::into_found).transpose()
    }

    /// Lists memories in byte order of their paths; `None`: no such store.
    ///
    /// Reads about as many rows as it returns, however many memories are below the
    /// directory.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn list(
        &self,
        tenant_id: TenantId,
        store_id: StoreId,
        listing: &MemoryListing,
    ) -> Result<Option<MemoryPage>, IndexError> {
        let span = Span::of(listing);
        let role = Role::Tenant(tenant_id);
        let mut tx = self.database.read_one("list_memories", role).await?;
        let text = tx.choose(match listing.depth {
            Depth::All => [postgres::head::MEMORIES, sqlite::head::ALL_BELOW],
            Depth::Children => [postgres::head::MEMORIES, sqlite::head::CHILDREN_BELOW],
        });
        let after_name = span.as_ref().map(|span| span.after_name);
        let rows: Vec<MemoryRow> = tx
            .query(text)
            .bind(tenant_id.uuid())
            .bind(store_id.uuid())
            .bind(listing.below.as_str())
            .bind(span.as_ref().map(|span| span.from))
            .bind(span.as_ref().map(|span| span.end.as_str()))
            .bind(after_name.filter(|_| listing.depth == Depth::Children))
            .bind(i64::from(listing.limit))
            .all()
            .await?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(MemoryPage {
            store: first.store.state(),
            expiry: first.expiry.expiry(),
            items: rows
                .into_iter()
                .filter_map(|row| row.into_item().transpose())
                .collect::<Result<_, _>>()?,
        }))
    }

    /// Sets a memory's pin, if its head is the one that was read.
    ///
    /// Checks, in this order and under the store's lock: the store, a replay,
    /// archiving, and the head.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn pin(&self, tenant_id: TenantId, pin: &Pin) -> Result<PinOutcome, IndexError> {
        let mut tx = self.database.write("pin", Role::Tenant(tenant_id)).await?;
        let Some(store) = lock_store(&mut tx, tenant_id, pin.store_id).await? else {
            return Ok(PinOutcome::NoStore);
        };
        if let Some(call) = &pin.idempotency
            && let Some(earlier) = earlier_call(&mut tx, tenant_id, &call.scope_sha256, call.since).await?
        {
            let is_same = earlier.request_sha256 == call.request_sha256;
            return Ok(match earlier.seq.filter(|_| is_same) {
                Some(seq) => PinOutcome::Replayed { seq },
                None => PinOutcome::KeyReused,
            });
        }
        if store.is_archived {
            return Ok(PinOutcome::Archived);
        }
        let query = tx
            .query(HEAD_SEQ)
            .bind(tenant_id.uuid())
            .bind(pin.store_id.uuid());
        let query = query.bind(pin.memory_id.uuid()).bind(pin.expected.uuid());
        let Some(head_seq) = query.optional_scalar().await?.flatten() else {
            return Ok(PinOutcome::Stale);
        };
        let query = tx.query(SET_PIN).bind(tenant_id.uuid()).bind(pin.store_id.uuid());
        let query = query.bind(pin.memory_id.uuid()).bind(pin.is_pinned);
        let is_pinned = query.scalar().await?;
        let made = CallMade {
            object_id: pin.memory_id.uuid(),
            store_id: Some(pin.store_id),
            version_seq: Some(head_seq),
        };
        record_call(&mut tx, tenant_id, made, pin.idempotency.as_ref(), pin.now).await?;
        tx.commit().await?;
        Ok(PinOutcome::Done { is_pinned })
    }
}

/// A store and its tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) tenant_id: TenantId,
    pub(crate) store_id: StoreId,
}

/// Locks a store against commits until the end of the transaction; `None`: no such
/// store.
async fn lock_store(
    tx: &mut Tx,
    tenant_id: TenantId,
    store_id: StoreId,
) -> Result<Option<StoreState>, IndexError> {
    let query = tx.query_locking(LOCK_STORE, RowLock::NoKeyUpdate);
    let query = query.bind(tenant_id.uuid()).bind(store_id.uuid());
    let row: Option<StoreStateRow> = query.optional().await?;
    Ok(row.map(|row| row.state()))
}

pub(crate) const INCOMPLETE: IndexError = IndexError::Corrupt {
    table: "memory",
    what: "a row without all columns of a memory",
};

impl HeadRow {
    /// The head; `None`: the row has none.
    pub(crate) fn into_head(self) -> Result<Option<Head>, IndexError> {
        let Some(memory_id) = self.memory_id else {
            return Ok(None);
        };
        let claim = self.claimed_by.zip(self.claimed_until);
        Ok(Some(Head {
            memory_id: MemoryId::from_uuid(memory_id),
            path: MemoryPath::from_trusted(self.path.ok_or(INCOMPLETE)?),
            version_id: VersionId::from_uuid(self.version_id.ok_or(INCOMPLETE)?),
            seq: self.head_seq.ok_or(INCOMPLETE)?,
            // A deleted memory has no content.
            blob_id: VersionId::from_uuid(self.blob_id.ok_or(INCOMPLETE)?),
            size_bytes: unsigned(self.size_bytes.ok_or(INCOMPLETE)?),
            sha256: hash_of(&self.sha256.ok_or(INCOMPLETE)?, "memory")?,
            claim: claim.map(|(replica, until)| Claim {
                replica,
                until: Timestamp::from_micros(until),
            }),
        }))
    }
}

impl PathRow {
    /// The entry of a directory that the row holds.
    pub(crate) fn into_entry(self, is_directory: bool) -> Result<Entry, IndexError> {
        Ok(Entry {
            path: self.head.path.ok_or(INCOMPLETE)?,
            is_directory,
            size_bytes: unsigned(self.head.size_bytes.ok_or(INCOMPLETE)?),
        })
    }

    /// What is at the path; `entries` are the directory's.
    pub(crate) fn into_lookup(self, entries: Vec<Entry>) -> Result<Lookup, IndexError> {
        let store = self.store.state();
        let target = if let Some(files) = self.files {
            Target::Directory(Directory {
                files: unsigned(files),
                size_bytes: unsigned(self.head.size_bytes.unwrap_or_default()),
                total_entries: unsigned(self.total_entries.unwrap_or_default()),
                entries,
            })
        } else {
            self.head.into_head()?.map_or(Target::Missing, Target::Memory)
        };
        Ok(Lookup { store, target })
    }
}

impl StoreStateRow {
    pub(crate) fn state(&self) -> StoreState {
        StoreState {
            is_archived: self.is_archived,
            purge_epoch: self.purge_epoch.unwrap_or_default(),
        }
    }
}

impl ExpiryRow {
    pub(crate) fn expiry(&self) -> Expiry {
        Expiry {
            unused_after_secs: self.expires_unused_after.map(unsigned),
            set_at: self.period_set_at.map(Timestamp::from_micros),
        }
    }
}

impl MemoryRow {
    fn into_found(self) -> Result<FoundMemory, IndexError> {
        let (store, expiry) = (self.store.state(), self.expiry.expiry());
        let target = match (self.head.memory_id, self.deleted_at) {
            (None, _) => MemoryTarget::Missing,
            (Some(_), Some(_)) => MemoryTarget::Deleted {
                version_id: VersionId::from_uuid(self.head.version_id.ok_or(INCOMPLETE)?),
                created_at: Timestamp::from_micros(self.created_at.ok_or(INCOMPLETE)?),
                is_pinned: self.pinned.ok_or(INCOMPLETE)?,
                last_read_at: self.last_read_at.map(Timestamp::from_micros),
                active_at: self.active_at.map(Timestamp::from_micros),
            },
            (Some(_), None) => MemoryTarget::Live(self.into_memory()?.ok_or(INCOMPLETE)?),
        };
        Ok(FoundMemory {
            store,
            expiry,
            target,
        })
    }

    fn into_memory(self) -> Result<Option<Memory>, IndexError> {
        let Some(head) = self.head.into_head()? else {
            return Ok(None);
        };
        Ok(Some(Memory {
            head,
            is_pinned: self.pinned.ok_or(INCOMPLETE)?,
            created_at: Timestamp::from_micros(self.created_at.ok_or(INCOMPLETE)?),
            updated_at: Timestamp::from_micros(self.updated_at.ok_or(INCOMPLETE)?),
            last_read_at: self.last_read_at.map(Timestamp::from_micros),
            active_at: self.active_at.map(Timestamp::from_micros),
        }))
    }

    /// The item of a list; `None`: the row has only the store.
    fn into_item(mut self) -> Result<Option<MemoryItem>, IndexError> {
        if self.head.memory_id.is_none() {
            let directory = self.head.path.map(DirPath::from_trusted);
            return Ok(directory.map(MemoryItem::Prefix));
        }
        let first_line = self.first_line.take().unwrap_or_default();
        let memory = self.into_memory()?;
        Ok(memory.map(|memory| MemoryItem::Memory {
            memory: Box::new(memory),
            first_line,
        }))
    }
}
