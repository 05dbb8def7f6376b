//! A tenant with a store, and short ways to change and to see what it holds.

use keepsake_core::limits::LimitOverrides;
use keepsake_core::schemas::TenantType;
use keepsake_core::{Actor, ApiKeyId, ContentHash, DirPath, MemoryPath};
use keepsake_index::{
    AuditedAction, BlobDeletions, Directory, KeptMemory, MemoryPage, PinOutcome, ProposedChange, SqliteIndex,
    Store, StoredContent, Tenant,
};
use tempfile::TempDir;

use crate::prelude::*;

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
pub(crate) const PLENTY: u64 = 1 << 40;
/// The replica that commits.
pub(crate) const REPLICA: Uuid = Uuid::from_u128(0xfeed);

/// An id that no other call has answered.
pub(crate) fn next_uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u64_pair(0x0190_0000_0000_7000, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An action of the operator, at `NOW`.
pub(crate) fn audited() -> AuditedAction {
    audited_by(Auditor::OperatorCli, NOW)
}

pub(crate) fn audited_by(by: Auditor, at: Timestamp) -> AuditedAction {
    AuditedAction { id: next_uuid(), at, by, entries_per_day: None }
}

/// An action of a tenant's credential, which may write any number of entries.
pub(crate) fn by_tenant(at: Timestamp) -> AuditedAction {
    audited_by(Auditor::Credential(actor()), at)
}

pub(crate) fn after_seconds(seconds: i64) -> Timestamp {
    Timestamp::from_micros(NOW.as_micros() + seconds * 1_000_000)
}

pub(crate) fn path(text: &str) -> MemoryPath {
    MemoryPath::parse(text).unwrap()
}

pub(crate) fn dir(text: &str) -> DirPath {
    DirPath::from_trusted(text.to_owned())
}

pub(crate) fn listing(below: &str, depth: Depth, after: Option<String>, limit: u32) -> MemoryListing {
    MemoryListing { below: dir(below), depth, after, limit }
}

pub(crate) fn actor() -> Actor {
    Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(0xac7)))
}

pub(crate) fn created(at: &str, size_bytes: u64) -> CommitChange {
    let (memory_id, version_id) = (MemoryId::from_uuid(next_uuid()), VersionId::from_uuid(next_uuid()));
    let sha256 = ContentHash::of(version_id.uuid().as_bytes());
    let stored = StoredContent { blob_id: version_id, size_bytes, sha256 };
    let content = NewContent::Restored(stored, format!("first line of {version_id}").into());
    let wanted = ProposedChange::store(Origin::New, path(at), content);
    CommitChange { memory_id, version_id, wanted, search: None }
}

pub(crate) fn edited(before: &Head, size_bytes: u64) -> CommitChange {
    let mut edit = created(before.path.as_str(), size_bytes);
    (edit.memory_id, edit.wanted.from) = (before.memory_id, Origin::Live(before.clone()));
    edit
}

/// Another path for a memory that keeps its content.
pub(crate) fn renamed(before: &Head, to: &str) -> CommitChange {
    CommitChange { wanted: ProposedChange::rename(before.clone(), path(to)), ..edited(before, 0) }
}

pub(crate) fn deleted(before: &Head) -> CommitChange {
    CommitChange { wanted: ProposedChange::delete(before.clone()), ..edited(before, 0) }
}

/// The outcome of a commit in a store that has no period and of which nothing was ever purged.
pub(crate) const fn committed(seq: i64) -> CommitOutcome {
    let expiry = Expiry { unused_after_secs: None, set_at: None };
    CommitOutcome::Committed { seq, purge_epoch: 0, at: NOW, expiry }
}

pub(crate) fn new_tenant() -> Tenant {
    Tenant {
        tenant_id: TenantId::from_uuid(next_uuid()),
        r#type: TenantType,
        external_id: None,
        name: "tenant".to_owned(),
        status: TenantStatus::Active,
        search_mode: None,
        limits: LimitOverrides::default(),
        created_at: NOW,
    }
}

/// Counts so many steps of SQLite's reads at a time.
pub(crate) async fn count_steps(index: &SqliteIndex, steps: i32) -> Arc<AtomicU64> {
    let counter = Arc::<AtomicU64>::default();
    let shared = Arc::clone(&counter);
    let add = move || {
        shared.fetch_add(1, Ordering::Relaxed);
    };
    index.watch_steps(steps, add).await.unwrap();
    counter
}

#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) index: Index,
    pub(crate) raw: Raw,
    pub(crate) tenant_id: TenantId,
    pub(crate) store_id: StoreId,
}

impl Place {
    /// A new store of a new tenant on the test's own Postgres.
    pub(crate) async fn on_postgres() -> (Self, PostgresIndex, OwnDatabase) {
        let (index, raw, database) = postgres_index().await;
        (Self::on(index.clone().into(), Raw::Postgres(raw)).await, index, database)
    }

    /// The same in the test's own file.
    pub(crate) async fn on_sqlite() -> (Self, SqliteIndex, TempDir) {
        let (index, raw, folder) = sqlite_index().await;
        (Self::on(index.clone().into(), Raw::Sqlite(raw)).await, index, folder)
    }

    pub(crate) async fn on(index: Index, raw: Raw) -> Self {
        let tenant = new_tenant();
        index.tenants.create(&tenant, &audited()).await.unwrap();
        Self::make(index, raw, tenant.tenant_id).await
    }

    pub(crate) async fn stranger(&self) -> Self {
        Self::on(self.index.clone(), self.raw.clone()).await
    }

    pub(crate) async fn sibling(&self) -> Self {
        Self::make(self.index.clone(), self.raw.clone(), self.tenant_id).await
    }

    async fn make(index: Index, raw: Raw, tenant_id: TenantId) -> Self {
        let store = Store::new(StoreId::from_uuid(next_uuid()), "store".to_owned(), NOW);
        let made = index.stores.create(tenant_id, &store, PLENTY, None, &by_tenant(NOW)).await.unwrap();
        assert_eq!(made, Some(store.store_id));
        Self { index, raw, tenant_id, store_id: store.store_id }
    }

    /// Deletes the store; its rows wait for the purge.
    pub(crate) async fn delete_store(&self) {
        let deleted = self.index.store_deletions.begin(self.tenant_id, self.store_id, &by_tenant(NOW)).await;
        deleted.unwrap();
    }

    /// The queue of blobs to delete, of all tenants.
    pub(crate) const fn queue(&self) -> &BlobDeletions {
        &self.index.blob_deletions
    }

    /// Its ids, as statements of the tables take them.
    pub(crate) fn ids(&self) -> [Uuid; 2] {
        [self.tenant_id.uuid(), self.store_id.uuid()]
    }

    /// The rows of the store in a table.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let rows = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
        self.raw.number(&rows, &self.ids()).await
    }

    pub(crate) fn blob(&self, blob_id: VersionId) -> BlobKey {
        BlobKey { tenant_id: self.tenant_id, store_id: self.store_id, blob_id }
    }

    /// A commit of these changes.
    pub(crate) fn commit_of(&self, changes: Vec<CommitChange>) -> Commit {
        Commit { actor: Some(actor()), ..Commit::of(self.store_id, NOW, REPLICA, changes) }
    }

    /// Commits, asking for bytes whenever the store needs a grant.
    pub(crate) async fn run(&self, commit: &Commit) -> CommitOutcome {
        loop {
            let outcome = self.index.memories.commit(self.tenant_id, commit).await.unwrap();
            let CommitOutcome::NeedsGrant { size_bytes } = outcome else {
                return outcome;
            };
            let grant = self.index.grants.extend(self.tenant_id, self.store_id, size_bytes, PLENTY);
            grant.await.unwrap();
        }
    }

    pub(crate) async fn try_changes(&self, changes: Vec<CommitChange>) -> CommitOutcome {
        self.run(&self.commit_of(changes)).await
    }

    /// Commits changes that nothing refuses.
    pub(crate) async fn change(&self, changes: Vec<CommitChange>) {
        let outcome = self.try_changes(changes).await;
        assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
    }

    /// Makes a change; answers the memory after it.
    pub(crate) async fn changed(&self, change: CommitChange) -> Head {
        let at = change.wanted.path.clone().unwrap();
        self.change(vec![change]).await;
        self.memory(at.as_str()).await
    }

    pub(crate) async fn create(&self, at: &str, size_bytes: u64) -> Head {
        self.changed(created(at, size_bytes)).await
    }

    /// Pins a memory, or says when it expires.
    pub(crate) async fn pin(&self, head: &Head, expiry: ExpiryChange) {
        let (memories, kept) = (&self.index.memories, KeptMemory::of(head, expiry));
        let pinned = memories.pin(self.tenant_id, self.store_id, &kept, None, NOW).await.unwrap();
        assert!(matches!(pinned, PinOutcome::Done { .. }), "{pinned:?}");
    }

    /// The target of a path; `/` is the root.
    pub(crate) async fn target(&self, at: &str, max_entries: u64) -> Target {
        let at = (at != "/").then(|| path(at));
        let found =
            self.index.memories.head(self.tenant_id, self.store_id, at.as_ref(), max_entries).await.unwrap();
        found.expect("the store exists").target
    }

    pub(crate) async fn memory(&self, at: &str) -> Head {
        match self.target(at, 0).await {
            Target::Memory(head) => head,
            other => panic!("no memory at {at}: {other:?}"),
        }
    }

    pub(crate) async fn directory(&self, at: &str, max_entries: u64) -> Directory {
        match self.target(at, max_entries).await {
            Target::Directory(directory) => directory,
            other => panic!("no directory at {at}: {other:?}"),
        }
    }

    pub(crate) async fn heads_below(&self, directory: &str) -> Vec<Head> {
        self.index.memories.heads_below(self.tenant_id, self.store_id, &dir(directory)).await.unwrap()
    }

    pub(crate) async fn page(&self, listing: &MemoryListing) -> MemoryPage {
        let found = self.index.memories.list(self.tenant_id, self.store_id, listing);
        found.await.unwrap().expect("the store exists")
    }

    pub(crate) async fn paths_below(&self, directory: &str) -> Vec<String> {
        self.heads_below(directory).await.iter().map(|head| head.path.as_str().to_owned()).collect()
    }

    /// Every row that a commit of the store may move.
    pub(crate) async fn rows(&self) -> Vec<TextRow> {
        let mut rows = Vec::new();
        let of_store = "seq last_version_at memory_count live_bytes version_count version_bytes purge_epoch";
        for (table, order, columns) in [
            ("store", "store_id", of_store),
            ("memory", "memory_id", "path head_seq size_bytes first_line created_at updated_at deleted_at"),
            ("version", "seq", "seq prev_seq op path size_bytes created_at actor_type actor_id"),
            ("directory", "path", "path parent files bytes visible_children changed_at"),
            ("idempotency", "scope_sha256", "version_seq created_at"),
            ("blob_deletion", "blob_id", "not_before attempts reason"),
        ] {
            let texts = columns.replace(' ', " AS TEXT), CAST(");
            let query = format!(
                "SELECT CAST({texts} AS TEXT) FROM {table} WHERE tenant_id = $1 AND store_id = $2 ORDER BY {order}"
            );
            rows.extend(self.raw.rows(&query, &self.ids()).await);
            rows.push(Vec::new());
        }
        rows
    }

    /// Holds every counter against a recount of what it counts.
    pub(crate) async fn assert_recount(&self) {
        self.assert_recount_with_gaps().await;
        let gaps =
            "SELECT coalesce(max(seq), 0) - count(*) FROM version WHERE tenant_id = $1 AND store_id = $2";
        assert_eq!(self.raw.number(gaps, &self.ids()).await, 0, "`seq` has gaps");
    }

    /// The same, of a store whose history was removed in part.
    pub(crate) async fn assert_recount_with_gaps(&self) {
        let upkeep = &self.index.upkeep;
        for store_id in [Some(self.store_id), None] {
            let count = upkeep.recount((self.tenant_id, store_id), false).await.unwrap().unwrap();
            assert!(!count.has_drifted() && count.lost_heads() == 0, "{count:?}");
        }
    }
}
