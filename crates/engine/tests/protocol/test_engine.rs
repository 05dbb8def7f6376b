//! An engine on real backends, with a hook at each call of an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::{BlobStore, S3Blobs};
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, ContentHash, MemoryPath, StoreId, TenantId, Timestamp};
use keepsake_engine::{
    Clock, Engine, EngineError, EngineOptions, IndexBlobs, ManualClock, MemoryEdit, NewKey, NewMemory,
    NewTenant, OnTaken, Precondition, Principal, ShownMemory, ShownVersion, ToolAnswer, ToolCall,
    VersionQuery, View,
};
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Head, Idempotency, Index, PostgresIndex, Scope, SqliteIndex, Target};
use keepsake_testkit::postgres::TableLock;
use keepsake_testkit::{HookedBlobs, TestDatabase, VersionedPlace, fresh_database, fresh_s3, versioned_s3};
use serde_json::{Value, json};

const SQLITE_FILE: &str = "index.db";

/// Keeps the backends alive while a test runs.
enum Backend {
    Folder(tempfile::TempDir),
    Database(TestDatabase),
}

/// The bucket of a test.
pub(crate) enum Bucket {
    /// Keeps every version of deleted objects.
    Versioned(Box<VersionedPlace>),
    /// Keeps nothing of deleted objects.
    Plain,
}

impl Bucket {
    /// The number of objects; in a versioned bucket, of versions and delete markers.
    pub(crate) async fn objects(&self, setup: &TestEngine) -> usize {
        match self {
            Self::Versioned(place) => place.versions().await,
            Self::Plain => setup.blobs_there().await.len(),
        }
    }

    /// `versioned` where the bucket keeps versions, else `plain`.
    pub(crate) fn either<T>(&self, versioned: T, plain: T) -> T {
        match self {
            Self::Versioned(_) => versioned,
            Self::Plain => plain,
        }
    }
}

pub(crate) struct TestEngine {
    pub(crate) index: Index,
    /// The object store; unused when content is in the index.
    pub(crate) blobs: Arc<HookedBlobs>,
    has_object_store: bool,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Engine,
    pub(crate) principal: Arc<Principal>,
    pub(crate) store_id: StoreId,
    backend: Backend,
}

/// The location of content.
enum Content {
    /// In the index.
    Index,
    /// In this object store.
    Blobs(Arc<dyn BlobStore>),
}

impl TestEngine {
    /// With content in the index.
    pub(crate) async fn sqlite() -> Self {
        let (index, folder) = sqlite_index().await;
        Self::new(index, Content::Index, folder).await
    }

    /// With content in the index.
    pub(crate) async fn postgres() -> Self {
        let (index, database) = postgres_index(8).await;
        Self::new(index, Content::Index, database).await
    }

    pub(crate) async fn sqlite_and_s3() -> Self {
        let (index, folder) = sqlite_index().await;
        Self::new(index, Content::Blobs(fresh_s3().await), folder).await
    }

    pub(crate) async fn postgres_and_s3() -> Self {
        Self::postgres_with_connections(8).await
    }

    /// On a bucket that keeps versions, where the S3 server has such buckets, else
    /// on a plain one.
    pub(crate) async fn sqlite_and_versioned_s3() -> (Self, Bucket) {
        let (index, folder) = sqlite_index().await;
        let (blobs, bucket): (Arc<dyn BlobStore>, _) = match versioned_s3().await {
            Some(place) => {
                let blobs = S3Blobs::connect(place.options.clone()).await.unwrap();
                (Arc::new(blobs), Bucket::Versioned(Box::new(place)))
            }
            None => (fresh_s3().await, Bucket::Plain),
        };
        (Self::new(index, Content::Blobs(blobs), folder).await, bucket)
    }

    /// With S3.
    pub(crate) async fn postgres_with_connections(max_connections: u32) -> Self {
        let (index, database) = postgres_index(max_connections).await;
        Self::new(index, Content::Blobs(fresh_s3().await), database).await
    }

    async fn new(index: Index, content: Content, backend: Backend) -> Self {
        let (has_object_store, blobs) = match content {
            Content::Index => (false, Arc::new(IndexBlobs::new(index.clone())) as Arc<dyn BlobStore>),
            Content::Blobs(blobs) => (true, blobs),
        };
        let blobs = HookedBlobs::new(blobs);
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let engine = engine_on(&index, has_object_store.then_some(&blobs), &clock, |_| {});
        let tenant = new_tenant(&engine, LimitOverrides::default()).await;
        let principal = principal_of(&engine, tenant, &Scope::ALL).await;
        let store = engine.operator.create_store(tenant, "notes").await.unwrap();
        Self { index, blobs, has_object_store, clock, engine, principal, store_id: store.store_id, backend }
    }

    /// The file of the index, on SQLite.
    pub(crate) fn sqlite_file(&self) -> PathBuf {
        let Backend::Folder(folder) = &self.backend else {
            panic!("only SQLite has a file");
        };
        folder.path().join(SQLITE_FILE)
    }

    /// Changes the database as its owner may, on Postgres.
    pub(crate) async fn as_owner(&self, statement: &str) {
        let Backend::Database(database) = &self.backend else {
            panic!("only a server has an owner");
        };
        database.execute(statement).await;
    }

    /// Locks a table of the database, on Postgres.
    pub(crate) async fn lock_table(&self, table: &str) -> TableLock {
        let Backend::Database(database) = &self.backend else {
            panic!("only a server locks a table");
        };
        database.lock_table(table).await
    }

    /// Another replica on the same backends, with separate caches and queues.
    pub(crate) fn replica(&self) -> Engine {
        self.replica_with(|_| {})
    }

    /// Another replica that is configured otherwise.
    pub(crate) fn replica_with(&self, change: impl FnOnce(&mut EngineOptions)) -> Engine {
        let blobs = self.has_object_store.then_some(&self.blobs);
        engine_on(&self.index, blobs, &self.clock, change)
    }

    /// The time that the engines see.
    pub(crate) fn engine_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Another tenant with these limits, and its store.
    pub(crate) async fn tenant_with(&self, limits: LimitOverrides) -> (Arc<Principal>, StoreId) {
        let tenant = new_tenant(&self.engine, limits).await;
        let store = self.engine.operator.create_store(tenant, "notes").await.unwrap();
        (principal_of(&self.engine, tenant, &Scope::ALL).await, store.store_id)
    }

    pub(crate) async fn try_call(&self, input: Value) -> Result<ToolAnswer, EngineError> {
        self.call_on(&self.engine, None, input).await
    }

    pub(crate) async fn call_on(
        &self,
        engine: &Engine,
        tool_use_id: Option<&str>,
        input: Value,
    ) -> Result<ToolAnswer, EngineError> {
        engine.tools.memory.call(&self.principal, self.store_id, tool_call(tool_use_id, input)).await
    }

    /// A call that must do what it says.
    pub(crate) async fn call(&self, input: Value) -> String {
        let answer = self.try_call(input).await.unwrap();
        assert!(!answer.is_error, "{}", answer.content);
        answer.content
    }

    pub(crate) async fn create(&self, path: &str, text: &str) -> String {
        self.call(create(path, text)).await
    }

    /// The content as the tool shows it, without line numbers.
    pub(crate) async fn text_at(&self, engine: &Engine, path: &str) -> String {
        let answer = self.call_on(engine, None, view(path)).await.unwrap();
        assert!(!answer.is_error, "{}", answer.content);
        let lines = answer.content.lines().skip(1).map(|line| line.split_once('\t').unwrap().1);
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn head(&self, path: &str) -> Option<Head> {
        let path = MemoryPath::parse(path).unwrap();
        let found =
            self.index.memories.head(self.principal.tenant_id, self.store_id, Some(&path), 0).await.unwrap();
        match found.unwrap().target {
            Target::Memory(head) => Some(head),
            Target::Missing | Target::Directory(_) => None,
        }
    }

    pub(crate) fn blob_key(&self, head: &Head) -> BlobKey {
        BlobKey { tenant_id: self.principal.tenant_id, store_id: self.store_id, blob_id: head.blob_id }
    }

    /// The blobs that are really there.
    pub(crate) async fn blobs_there(&self) -> Vec<BlobKey> {
        let mut there: Vec<BlobKey> = Vec::new();
        loop {
            let page = self.blobs.inner().list(None, there.last(), 1_000).await.unwrap();
            if page.is_empty() {
                return there;
            }
            there.extend(page.into_iter().map(|blob| blob.key));
        }
    }

    /// The name of an idempotent call of this tenant.
    pub(crate) fn call_named(&self, key: &str, body: &str) -> Idempotency {
        self.engine.calls.of_request(&self.principal, "POST", "/somewhere", key, body.as_bytes()).unwrap()
    }

    pub(crate) async fn try_make(&self, new: NewMemory) -> Result<ShownMemory, EngineError> {
        self.engine.memories.create(&self.principal, self.store_id, new).await
    }

    /// Makes a memory by the API.
    pub(crate) async fn make(&self, path: &str, content: &str) -> ShownMemory {
        self.try_make(new_memory(path, content)).await.unwrap()
    }

    pub(crate) async fn update(
        &self,
        memory: &ShownMemory,
        edit: MemoryEdit,
    ) -> Result<ShownMemory, EngineError> {
        let memory_id = memory.memory.head.memory_id;
        self.engine.memories.update(&self.principal, self.store_id, memory_id, edit).await
    }

    pub(crate) async fn delete(
        &self,
        memory: &ShownMemory,
        expected: Option<ContentHash>,
    ) -> Result<(), EngineError> {
        let memory_id = memory.memory.head.memory_id;
        self.engine.memories.delete(&self.principal, self.store_id, memory_id, expected).await
    }

    pub(crate) async fn read(&self, memory: &ShownMemory, view: View) -> ShownMemory {
        let memory_id = memory.memory.head.memory_id;
        let shown = self.engine.memories.get(&self.principal, self.store_id, memory_id, view).await;
        shown.unwrap()
    }

    pub(crate) async fn content_of(&self, memory: &ShownMemory) -> String {
        let shown = self.read(memory, View::Full).await;
        shown.content.unwrap().to_string()
    }

    /// What was done in the store, the last first.
    pub(crate) async fn operations(&self) -> Vec<&'static str> {
        let query = VersionQuery::default();
        let page =
            self.engine.versions.list(&self.principal, self.store_id, &query, View::Basic).await.unwrap();
        let operation = |shown: &ShownVersion| shown.version.operation.name();
        page.items.iter().map(operation).collect()
    }

    /// The folder of the database file.
    pub(crate) fn folder(&self) -> &Path {
        match &self.backend {
            Backend::Folder(folder) => folder.path(),
            Backend::Database(_) => panic!("Postgres has no file here"),
        }
    }

    pub(crate) async fn all_writes_end(&self) {
        assert!(self.engine.shut_down(Duration::from_secs(20)).await);
    }
}

async fn sqlite_index() -> (Index, Backend) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join(SQLITE_FILE).display());
    let index = Index::from(SqliteIndex::open(&url).await.unwrap());
    (index, Backend::Folder(folder))
}

async fn postgres_index(max_connections: u32) -> (Index, Backend) {
    let database = fresh_database().await;
    PostgresIndex::migrate(&database.url()).await.unwrap();
    let options = PostgresOptions { max_connections, ..PostgresOptions::new(database.url()) };
    let index = Index::from(PostgresIndex::connect(&options).await.unwrap());
    (index, Backend::Database(database))
}

pub(crate) fn engine_on(
    index: &Index,
    blobs: Option<&Arc<HookedBlobs>>,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut EngineOptions),
) -> Engine {
    let mut options = EngineOptions { clock: clock.clone(), ..EngineOptions::default() };
    change(&mut options);
    let blobs = blobs.map(|blobs| Arc::clone(blobs) as Arc<dyn BlobStore>);
    Engine::new(index.clone(), blobs, options)
}

async fn new_tenant(engine: &Engine, limits: LimitOverrides) -> TenantId {
    let new = NewTenant { name: "tests".to_owned(), external_id: None, limits };
    engine.operator.tenants.create(new).await.unwrap().tenant_id
}

pub(crate) async fn principal_of(engine: &Engine, tenant_id: TenantId, scopes: &[Scope]) -> Arc<Principal> {
    let new = NewKey {
        tenant_id,
        name: "tests".to_owned(),
        scopes: scopes.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = engine.operator.keys.create(new).await.unwrap();
    engine.auth.authenticate(secret.expose()).await.unwrap()
}

pub(crate) fn new_memory(path: &str, content: &str) -> NewMemory {
    NewMemory {
        path: path.to_owned(),
        content: content.to_owned(),
        expires_at: None,
        on_taken: OnTaken::Refuse,
        view: View::Basic,
        idempotency: None,
    }
}

pub(crate) fn edit_of(
    content: Option<&str>,
    path: Option<&str>,
    precondition: Option<Precondition>,
) -> MemoryEdit {
    MemoryEdit {
        content: content.map(str::to_owned),
        path: path.map(str::to_owned),
        pinned: None,
        expires_at: None,
        precondition,
        view: View::Basic,
        idempotency: None,
    }
}

pub(crate) fn tool_call(tool_use_id: Option<&str>, input: Value) -> ToolCall {
    let Value::Object(input) = input else { panic!("an input is an object") };
    ToolCall { tool_use_id: tool_use_id.map(str::to_owned), input, idempotency: None }
}

pub(crate) fn create(path: &str, text: &str) -> Value {
    json!({"command": "create", "path": path, "file_text": text})
}

pub(crate) fn insert(path: &str, line: u64, text: &str) -> Value {
    json!({"command": "insert", "path": path, "insert_line": line, "insert_text": text})
}

pub(crate) fn view(path: &str) -> Value {
    json!({"command": "view", "path": path})
}
