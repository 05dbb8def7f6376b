//! A tenant with a store, and short ways to change and to see what it holds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use keepsake_core::limits::LimitOverrides;
use keepsake_core::path::is_visible;
use keepsake_core::{
    Actor, ApiKeyId, BlobKey, ContentHash, DirPath, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId,
    TenantId, Timestamp, VersionId,
};
use keepsake_index::{
    ApiKey, Audited, Auditor, BlobDeletions, Change, Commit, CommitOutcome, Depth, Directory, Expiry,
    ExpiryChange, Grant, Head, HeadChange, Index, MemoryListing, MemoryPage, NewStore, Refusal, Scope,
    StoreCreation, Target, Tenant, TenantStatus, Upkeep,
};
use uuid::Uuid;

use crate::subject::{Raw, Subject, TextRow};

/// The default time of every action.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
/// A limit that no test reaches.
pub(crate) const PLENTY: u64 = 1 << 40;
/// The replica that commits.
pub(crate) const REPLICA: Uuid = Uuid::from_u128(0xfeed);

/// An id that no other call has answered.
pub(crate) fn next_uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u64_pair(0x0190_0000_0000_7000, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An action of the operator, at `NOW`.
pub(crate) fn audited() -> Audited {
    audited_by(Auditor::OperatorCli, NOW)
}

pub(crate) fn audited_by(by: Auditor, at: Timestamp) -> Audited {
    Audited { id: next_uuid(), at, by, entries_per_day: None }
}

/// An action of a tenant's credential, which may write any number of entries.
pub(crate) fn by_tenant(at: Timestamp) -> Audited {
    audited_by(Auditor::Credential(actor()), at)
}

/// An action of a job, which leaves no actor.
pub(crate) fn by_nobody(at: Timestamp) -> Audited {
    audited_by(Auditor::Job, at)
}

/// A key of a tenant, without its secret.
pub(crate) fn new_key(tenant_id: TenantId) -> ApiKey {
    ApiKey {
        api_key_id: ApiKeyId::from_uuid(next_uuid()),
        tenant_id,
        name: "key".to_owned(),
        scopes: vec![Scope::MemoryRead, Scope::StoresAdmin],
        store_ids: None,
        created_at: NOW,
        expires_at: None,
    }
}

/// `NOW` plus this number of seconds.
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

/// The state of a memory after a version with new content.
fn fresh_content(version_id: VersionId, at: MemoryPath, size_bytes: u64) -> HeadChange {
    HeadChange {
        path: at,
        blob_id: version_id,
        size_bytes,
        sha256: ContentHash::of(version_id.uuid().as_bytes()),
        content: None,
        first_line: Some(format!("first line of {version_id}")),
        expiry: ExpiryChange::default(),
        search: None,
    }
}

/// A new memory.
pub(crate) fn created(at: &str, size_bytes: u64) -> Change {
    let version_id = VersionId::from_uuid(next_uuid());
    Change {
        memory_id: MemoryId::from_uuid(next_uuid()),
        version_id,
        before: None,
        revives: None,
        after: Some(fresh_content(version_id, path(at), size_bytes)),
    }
}

/// New content for a memory.
pub(crate) fn edited(before: &Head, size_bytes: u64) -> Change {
    let version_id = VersionId::from_uuid(next_uuid());
    Change {
        memory_id: before.memory_id,
        version_id,
        before: Some(before.clone()),
        revives: None,
        after: Some(fresh_content(version_id, before.path.clone(), size_bytes)),
    }
}

/// Another path for a memory that keeps its content.
pub(crate) fn renamed(before: &Head, to: &str) -> Change {
    Change {
        memory_id: before.memory_id,
        version_id: VersionId::from_uuid(next_uuid()),
        before: Some(before.clone()),
        revives: None,
        after: Some(HeadChange {
            path: path(to),
            blob_id: before.blob_id,
            size_bytes: before.size_bytes,
            sha256: before.sha256,
            content: None,
            first_line: None,
            expiry: ExpiryChange::default(),
            search: None,
        }),
    }
}

/// The end of a memory.
pub(crate) fn deleted(before: &Head) -> Change {
    Change {
        memory_id: before.memory_id,
        version_id: VersionId::from_uuid(next_uuid()),
        before: Some(before.clone()),
        revives: None,
        after: None,
    }
}

/// The outcome of a commit in a store of which nothing was ever purged.
pub(crate) const fn committed(seq: i64) -> CommitOutcome {
    committed_at(seq, NOW)
}

/// The same, of versions that date from another time.
pub(crate) const fn committed_at(seq: i64, at: Timestamp) -> CommitOutcome {
    CommitOutcome::Committed { seq, purge_epoch: 0, at, expiry: NEVER }
}

/// The expiry of a store that has none.
pub(crate) const NEVER: Expiry = Expiry { unused_after_secs: None, set_at: None };

/// Makes a tenant.
pub(crate) async fn new_tenant(subject: &Subject) -> TenantId {
    new_tenant_of(&subject.index).await
}

async fn new_tenant_of(index: &Index) -> TenantId {
    let tenant = Tenant {
        tenant_id: TenantId::from_uuid(next_uuid()),
        external_id: None,
        name: "tenant".to_owned(),
        status: TenantStatus::Active,
        limits: LimitOverrides::default(),
        created_at: NOW,
    };
    assert!(index.tenants.create(&tenant, &audited()).await.unwrap());
    tenant.tenant_id
}

/// A store to be made.
pub(crate) fn new_store() -> NewStore {
    NewStore {
        store_id: StoreId::from_uuid(next_uuid()),
        name: "store".to_owned(),
        description: String::new(),
        metadata: serde_json::Map::new(),
        policy: SensitiveDataPolicy::Off,
        expires_unused_after: None,
        created_at: NOW,
    }
}

/// A store of a tenant.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) index: Index,
    pub(crate) raw: Raw,
    pub(crate) tenant_id: TenantId,
    pub(crate) store_id: StoreId,
}

impl Place {
    /// A new store of a new tenant.
    pub(crate) async fn new(subject: &Subject) -> Self {
        Self::on(subject.index.clone(), subject.raw.clone()).await
    }

    /// A new store of a tenant.
    pub(crate) async fn of_tenant(subject: &Subject, tenant_id: TenantId) -> Self {
        Self::make(subject.index.clone(), subject.raw.clone(), tenant_id).await
    }

    /// A new store of a new tenant, in an index that is no subject's.
    pub(crate) async fn on(index: Index, raw: Raw) -> Self {
        let tenant_id = new_tenant_of(&index).await;
        Self::make(index, raw, tenant_id).await
    }

    /// The queue of blobs to delete, of all tenants.
    pub(crate) const fn queue(&self) -> &BlobDeletions {
        &self.index.blob_deletions
    }

    pub(crate) const fn upkeep(&self) -> &Upkeep {
        &self.index.upkeep
    }

    pub(crate) async fn make(index: Index, raw: Raw, tenant_id: TenantId) -> Self {
        let store = new_store();
        let made = index.stores.create(tenant_id, &store, PLENTY, None, &by_tenant(NOW)).await.unwrap();
        assert_eq!(made, StoreCreation::Created);
        Self { index, raw, tenant_id, store_id: store.store_id }
    }

    /// Its ids, as statements of the tables take them.
    pub(crate) fn ids(&self) -> [Uuid; 2] {
        [self.tenant_id.uuid(), self.store_id.uuid()]
    }

    pub(crate) fn blob(&self, blob_id: VersionId) -> BlobKey {
        BlobKey { tenant_id: self.tenant_id, store_id: self.store_id, blob_id }
    }

    /// A commit of `changes` that no limit stops.
    pub(crate) fn commit_of(&self, changes: Vec<Change>) -> Commit {
        Commit {
            store_id: self.store_id,
            now: NOW,
            actor: Some(actor()),
            replica: REPLICA,
            memory_limit: PLENTY,
            byte_limit: PLENTY,
            idempotency: None,
            guard: None,
            purge_epoch: None,
            policy: None,
            changes,
            kept: Vec::new(),
            results: None,
        }
    }

    /// Commits, asking for bytes whenever the store needs a grant.
    pub(crate) async fn run(&self, commit: &Commit) -> CommitOutcome {
        self.run_within(commit, PLENTY).await
    }

    /// Commits, asking for bytes of a tenant that may hold `tenant_limit_bytes`.
    pub(crate) async fn run_within(&self, commit: &Commit, tenant_limit_bytes: u64) -> CommitOutcome {
        loop {
            let outcome = self.index.memories.commit(self.tenant_id, commit).await.unwrap();
            let CommitOutcome::Refused(Refusal::NeedsGrant { size_bytes }) = outcome else {
                return outcome;
            };
            let grant =
                self.index.grants.extend(self.tenant_id, self.store_id, size_bytes, tenant_limit_bytes);
            if grant.await.unwrap() != Grant::Granted {
                return outcome;
            }
        }
    }

    /// Commits changes and returns the outcome.
    pub(crate) async fn try_changes(&self, changes: Vec<Change>) -> CommitOutcome {
        self.run(&self.commit_of(changes)).await
    }

    /// Commits changes that nothing refuses; answers the last `seq`.
    pub(crate) async fn change(&self, changes: Vec<Change>) -> i64 {
        match self.try_changes(changes).await {
            CommitOutcome::Committed { seq, .. } => seq,
            other => panic!("not committed: {other:?}"),
        }
    }

    pub(crate) async fn create(&self, at: &str, size_bytes: u64) -> Head {
        self.change(vec![created(at, size_bytes)]).await;
        self.memory(at).await
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

    /// The page of a listing.
    pub(crate) async fn page(&self, listing: &MemoryListing) -> MemoryPage {
        let found = self.index.memories.list(self.tenant_id, self.store_id, listing);
        found.await.unwrap().expect("the store exists")
    }

    /// The paths below a directory.
    pub(crate) async fn paths_below(&self, directory: &str) -> Vec<String> {
        self.heads_below(directory).await.iter().map(|head| head.path.as_str().to_owned()).collect()
    }

    /// Every row that a commit of the store may move.
    pub(crate) async fn rows(&self) -> Vec<Vec<Option<String>>> {
        let mut rows = Vec::new();
        for query in [
            "SELECT CAST(seq AS TEXT), CAST(last_version_at AS TEXT), CAST(memory_count AS TEXT), \
             CAST(live_bytes AS TEXT), CAST(version_count AS TEXT), CAST(version_bytes AS TEXT), \
             CAST(purge_epoch AS TEXT) FROM store WHERE tenant_id = $1 AND store_id = $2",
            "SELECT path, parent, name, CAST(head_seq AS TEXT), CAST(size_bytes AS TEXT), first_line, \
             CAST(created_at AS TEXT), CAST(updated_at AS TEXT), CAST(deleted_at AS TEXT) FROM memory \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY memory_id",
            "SELECT CAST(seq AS TEXT), CAST(prev_seq AS TEXT), op, path, CAST(size_bytes AS TEXT), \
             CAST(created_at AS TEXT), actor_type, actor_id FROM version \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq",
            "SELECT path, parent, name, CAST(files AS TEXT), CAST(bytes AS TEXT), CAST(visible_children AS TEXT) \
             FROM directory WHERE tenant_id = $1 AND store_id = $2 ORDER BY path",
            "SELECT CAST(version_seq AS TEXT), CAST(created_at AS TEXT) FROM idempotency \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY scope_sha256",
            "SELECT CAST(not_before AS TEXT), CAST(attempts AS TEXT), reason FROM blob_deletion \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY blob_id",
        ] {
            rows.extend(self.raw.rows(query, &self.ids()).await);
            rows.push(Vec::new());
        }
        rows
    }

    /// Holds every counter against a recount of what it counts.
    pub(crate) async fn assert_recount(&self) {
        self.assert_recount_with_gaps().await;
        let gaps =
            "SELECT coalesce(max(seq), 0) - count(*) FROM version WHERE tenant_id = $1 AND store_id = $2";
        assert_eq!(self.raw.numbers(gaps, &self.ids()).await, [[0]], "`seq` has gaps");
    }

    /// The same, of a store whose history was removed in part.
    pub(crate) async fn assert_recount_with_gaps(&self) {
        loop {
            let before = self.store_counters().await;
            let (counted, recounted) = (self.counted_directories().await, self.recount().await);
            // A commit that its caller has abandoned may land in between.
            if before == self.store_counters().await {
                assert_eq!(counted, recounted.0);
                assert_eq!(before, recounted.1);
                return;
            }
        }
    }

    /// Memories, live bytes, versions and their bytes.
    async fn store_counters(&self) -> Vec<i64> {
        let counters = "SELECT memory_count, live_bytes, version_count, version_bytes FROM store \
                        WHERE tenant_id = $1 AND store_id = $2";
        self.raw.numbers(counters, &self.ids()).await.remove(0)
    }

    async fn counted_directories(&self) -> BTreeMap<String, [i64; 3]> {
        let counters = "SELECT path, CAST(files AS TEXT), CAST(bytes AS TEXT), CAST(visible_children AS TEXT) \
                        FROM directory WHERE tenant_id = $1 AND store_id = $2";
        let rows = self.raw.rows(counters, &self.ids()).await;
        let counts = |row: &TextRow| [number(row, 1), number(row, 2), number(row, 3)];
        rows.iter().map(|row| (text(row, 0).to_owned(), counts(row))).collect()
    }

    /// What the directories and the store should count.
    async fn recount(&self) -> (BTreeMap<String, [i64; 3]>, Vec<i64>) {
        let heads = "SELECT path, CAST(size_bytes AS TEXT) FROM memory \
                     WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL";
        let heads = self.raw.rows(heads, &self.ids()).await;
        let heads: Vec<_> = heads.iter().map(|row| (path(text(row, 0)), number(row, 1))).collect();
        let versions = "SELECT count(*), CAST(coalesce(sum(CASE WHEN blob_id = version_id THEN size_bytes \
                        ELSE 0 END), 0) AS BIGINT) FROM version \
                        WHERE tenant_id = $1 AND store_id = $2";
        let versions = self.raw.numbers(versions, &self.ids()).await.remove(0);
        let counters = vec![
            i64::try_from(heads.len()).unwrap(),
            heads.iter().map(|head| head.1).sum(),
            versions[0],
            versions[1],
        ];
        (recounted_directories(&heads), counters)
    }
}

/// Directory rows (files, bytes, visible children) as the memories make them.
fn recounted_directories(memories: &[(MemoryPath, i64)]) -> BTreeMap<String, [i64; 3]> {
    let mut directories = BTreeMap::from([(DirPath::root(), [0, 0, 0])]);
    for (at, size_bytes) in memories {
        for directory in at.ancestors() {
            let counts: &mut [i64; 3] = directories.entry(directory).or_default();
            counts[0] += 1;
            counts[1] += size_bytes;
        }
        directories.entry(at.parent()).or_default()[2] += i64::from(is_visible(at.name()));
    }
    for directory in directories.keys().cloned().collect::<Vec<_>>() {
        if let Some(parent) = directory.parent() {
            directories.entry(parent).or_default()[2] += i64::from(is_visible(directory.name()));
        }
    }
    directories.into_iter().map(|(directory, counts)| (directory.as_str().to_owned(), counts)).collect()
}

fn text(row: &[Option<String>], column: usize) -> &str {
    row[column].as_deref().unwrap()
}

fn number(row: &[Option<String>], column: usize) -> i64 {
    text(row, column).parse().unwrap()
}
