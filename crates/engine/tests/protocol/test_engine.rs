//! An engine on real backends, with a hook at each call of an object store.

use std::future::Ready;
use std::path::PathBuf;
use std::sync::Mutex;

use futures::future::BoxFuture;
use keepsake_blobs::{BlobError, BlobStore, S3Blobs};
use keepsake_engine::{
    Engine, EngineOptions, IndexBlobs, KeyDraft, MEMORY_TOOL, NewTenant, OperationResult, Principal,
    Restoration, ToolAnswer,
};
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Head, Idempotency, PostgresIndex, Target};
use keepsake_testkit::{TestDatabase, VersionedPlace, fresh_database, versioned_s3};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::prelude::*;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);
pub(crate) const DAY: Duration = Duration::from_hours(24);

/// Keeps the backend alive while a test runs: a folder of SQLite, or a database.
#[derive(Default)]
struct Backend {
    folder: Option<TempDir>,
    database: Option<TestDatabase>,
}

/// A bucket; there is a place if it keeps every version of deleted objects.
pub(crate) struct Bucket(Option<VersionedPlace>);

impl Bucket {
    /// The number of objects; in a versioned bucket, of versions and delete markers.
    pub(crate) async fn objects(&self, setup: &TestEngine) -> usize {
        match &self.0 {
            Some(place) => place.versions().await,
            None => setup.blobs_there().await.len(),
        }
    }

    /// `versioned` where the bucket keeps versions, else `plain`.
    pub(crate) fn either<T>(&self, versioned: T, plain: T) -> T {
        if self.0.is_some() { versioned } else { plain }
    }
}

/// Clones share the backends and the store.
#[derive(Clone)]
pub(crate) struct TestEngine {
    pub(crate) index: Index,
    /// The object store; unused when content is in the index.
    pub(crate) blobs: Arc<HookedBlobs>,
    pub(crate) has_object_store: bool,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Engine,
    pub(crate) principal: Arc<Principal>,
    pub(crate) store_id: StoreId,
    backend: Arc<Backend>,
}

impl TestEngine {
    pub(crate) async fn sqlite() -> Self {
        Self::new(sqlite_index().await, None).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::new(postgres_index(8).await, None).await
    }

    pub(crate) async fn sqlite_and_s3() -> Self {
        Self::new(sqlite_index().await, Some(fresh_s3().await)).await
    }

    pub(crate) async fn postgres_and_s3() -> Self {
        Self::postgres_with_connections(8).await
    }

    /// On a bucket that keeps versions, where the S3 server has such buckets, else
    /// on a plain one.
    pub(crate) async fn sqlite_and_versioned_s3() -> (Self, Bucket) {
        let place = versioned_s3().await;
        let blobs: Arc<dyn BlobStore> = match &place {
            Some(place) => Arc::new(S3Blobs::connect(place.options.clone()).await.unwrap()),
            None => fresh_s3().await,
        };
        (Self::new(sqlite_index().await, Some(blobs)).await, Bucket(place))
    }

    pub(crate) async fn postgres_with_connections(max_connections: u32) -> Self {
        Self::new(postgres_index(max_connections).await, Some(fresh_s3().await)).await
    }

    async fn new((index, backend): (Index, Backend), object_store: Option<Arc<dyn BlobStore>>) -> Self {
        let has_object_store = object_store.is_some();
        let blobs = object_store.unwrap_or_else(|| Arc::new(IndexBlobs::new(index.clone())));
        let (blobs, backend) = (HookedBlobs::new(blobs), Arc::new(backend));
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let engine = engine_on(&index, has_object_store.then_some(&blobs), &clock, |_| {});
        let (principal, store_id) = new_tenant(&engine, json!({})).await;
        Self { index, blobs, has_object_store, clock, engine, principal, store_id, backend }
    }

    pub(crate) fn sqlite_file(&self) -> PathBuf {
        self.backend.folder.as_ref().expect("only SQLite has a file").path().join("index.db")
    }

    pub(crate) fn database(&self) -> &TestDatabase {
        self.backend.database.as_ref().expect("only a server has a database")
    }

    /// The same, where another engine does the work.
    pub(crate) fn on(&self, engine: Engine) -> Self {
        Self { engine, ..self.clone() }
    }

    /// The same, where another replica does the work, with separate caches and queues.
    pub(crate) fn elsewhere(&self) -> Self {
        self.elsewhere_with(|_| {})
    }

    pub(crate) fn elsewhere_with(&self, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let blobs = self.has_object_store.then_some(&self.blobs);
        self.on(engine_on(&self.index, blobs, &self.clock, change))
    }

    /// The same on another replica, at another time.
    pub(crate) fn at(&self, time: Timestamp, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let clock = Arc::new(ManualClock::new(time));
        let there = self.elsewhere_with(|options| {
            options.clock = clock.clone();
            change(options);
        });
        Self { clock, ..there }
    }

    /// The same on a replica for which every blob is older than any request.
    pub(crate) fn worker(&self) -> Self {
        self.at(SystemClock.now().plus(2 * DAY).max(self.now()), |_| {})
    }

    /// The same on a replica that keeps deleted blobs for a week.
    pub(crate) fn delaying(&self) -> Self {
        self.elsewhere_with(|options| options.blob_deletion_delay = 7 * DAY)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The same in the store of another tenant, with these limits.
    pub(crate) async fn of_tenant_with(&self, limits: Value) -> Self {
        let (principal, store_id) = new_tenant(&self.engine, limits).await;
        Self { principal, store_id, ..self.clone() }
    }

    /// A new key of the tenant's.
    pub(crate) async fn key_with(&self, scopes: &[Scope], life: Option<Duration>) -> String {
        let expires_at = life.map(|life| self.now().plus(life));
        new_key(&self.engine, self.principal.tenant_id, scopes, expires_at).await
    }

    pub(crate) async fn edit_store(&self, edit: StoreEdit) {
        self.engine.stores.update(&self.principal, self.store_id, edit, None).await.unwrap();
    }

    /// Runs a job, as an operator does; answers with its counts.
    pub(crate) async fn run(&self, job: impl Job + 'static) -> Value {
        self.counts(job, RunRequest::manual(false)).await
    }

    pub(crate) async fn dry_run(&self, job: impl Job + 'static) -> Value {
        self.counts(job, RunRequest::manual(true)).await
    }

    /// Runs a job as its schedule does; answers with its counts.
    pub(crate) async fn run_in_slot(&self, job: impl Job + 'static) -> Value {
        self.counts(job, RunRequest::SCHEDULED).await
    }

    async fn counts(&self, job: impl Job + 'static, request: RunRequest) -> Value {
        // No two runs begin at once.
        self.clock.advance(Duration::from_micros(1));
        match self.engine.jobs.run(Arc::new(job), request, &CancellationToken::new()).await {
            Ok(RunOutcome::Ran(counts)) => counts,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// How a job ends that its schedule runs.
    pub(crate) async fn outcome(&self, job: impl Job + 'static) -> RunOutcome {
        self.engine.jobs.run(Arc::new(job), RunRequest::SCHEDULED, &CancellationToken::new()).await.unwrap()
    }

    /// Runs a job on a worker that is shutting down: it ends after its first batch.
    pub(crate) async fn run_stopped(&self, job: impl Job + 'static) {
        let stopping = CancellationToken::new();
        stopping.cancel();
        let stopped = self.engine.jobs.run(Arc::new(job), RunRequest::SCHEDULED, &stopping).await;
        assert!(matches!(stopped, Ok(RunOutcome::Ran(_))), "{stopped:?}");
    }

    pub(crate) async fn try_call(&self, input: Value) -> Result<ToolAnswer, EngineError> {
        let call = tool_call(input);
        self.engine.tools.call(&self.principal, self.store_id, call).await
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
    pub(crate) async fn text_at(&self, path: &str) -> String {
        let shown = self.call(view(path)).await;
        let lines = shown.lines().skip(1).map(|line| line.split_once('\t').unwrap().1);
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn head(&self, path: &str) -> Option<Head> {
        let (path, tenant_id) = (MemoryPath::parse(path).unwrap(), self.principal.tenant_id);
        let found = self.index.memories.head(tenant_id, self.store_id, Some(&path), 0).await.unwrap();
        match found.unwrap().target {
            Target::Memory(head) => Some(head),
            Target::Missing | Target::Directory(_) => None,
        }
    }

    pub(crate) fn blob_key(&self, head: &Head) -> BlobKey {
        BlobKey {
            tenant_id: self.principal.tenant_id,
            store_id: self.store_id,
            blob_id: head.content.blob_id,
        }
    }

    /// A key of the store that no row names.
    pub(crate) fn orphan_key(&self, blob: u128) -> BlobKey {
        blob_key(self.principal.tenant_id.uuid().as_u128(), self.store_id.uuid().as_u128(), blob)
    }

    pub(crate) async fn plant(&self, key: BlobKey) -> BlobKey {
        self.blobs.inner().put(&key, Bytes::from_static(b"orphan")).await.unwrap();
        key
    }

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

    pub(crate) fn call_named(&self, key: &str, body: &str) -> Idempotency {
        self.engine.calls.of_request(&self.principal, "POST", "/somewhere", key, body.as_bytes()).unwrap()
    }

    pub(crate) async fn try_make(&self, new: NewMemory) -> Result<ShownMemory, EngineError> {
        self.engine.memories.create(&self.principal, self.store_id, new).await
    }

    pub(crate) async fn make(&self, path: &str, content: &str) -> ShownMemory {
        self.try_make(new_memory(path, content)).await.unwrap()
    }

    pub(crate) async fn try_batch(&self, batch: Value) -> Result<Vec<OperationResult>, EngineError> {
        let batch = serde_json::from_value(batch).unwrap();
        self.engine.memories.batch(&self.principal, self.store_id, batch).await
    }

    /// Writes contents to their paths in one commit.
    pub(crate) async fn write_all(&self, memories: impl Iterator<Item = (String, String)>) {
        let upsert = |(path, content)| json!({"type": "upsert", "path": path, "content": content});
        let operations: Vec<_> = memories.map(upsert).collect();
        self.try_batch(json!({"operations": operations})).await.unwrap();
    }

    pub(crate) async fn update(
        &self,
        memory: &ShownMemory,
        edit: MemoryEdit,
    ) -> Result<ShownMemory, EngineError> {
        let memory_id = memory.memory.head.memory_id;
        self.engine.memories.update(&self.principal, self.store_id, memory_id, edit).await
    }

    pub(crate) async fn delete(&self, memory: &ShownMemory) {
        let memory_id = memory.memory.head.memory_id;
        self.engine.memories.delete(&self.principal, self.store_id, memory_id, None).await.unwrap();
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

    pub(crate) async fn redact(&self, memory: &ShownMemory) {
        let version_id = memory.memory.head.version_id;
        self.engine.versions.redact(&self.principal, self.store_id, version_id).await.unwrap();
    }

    pub(crate) async fn restore(&self, memory: &ShownMemory) -> Result<ShownMemory, EngineError> {
        let restoration = Restoration { precondition: None, view: View::Full, idempotency: None };
        let version_id = memory.memory.head.version_id;
        self.engine.memories.restore(&self.principal, self.store_id, version_id, restoration).await
    }

    /// What was done in the store, the last first.
    pub(crate) async fn operations(&self) -> Vec<&'static str> {
        let query = VersionQuery::default();
        let page = self.engine.versions.list(&self.principal, self.store_id, &query, View::Basic).await;
        page.unwrap().items.iter().map(|shown| shown.version.operation.name()).collect()
    }

    pub(crate) async fn all_writes_end(&self) {
        assert!(self.engine.shut_down(Duration::from_secs(20)).await);
    }
}

async fn sqlite_index() -> (Index, Backend) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("index.db").display());
    let index = Index::from(SqliteIndex::open(&url).await.unwrap());
    (index, Backend { folder: Some(folder), ..Backend::default() })
}

async fn postgres_index(max_connections: u32) -> (Index, Backend) {
    let database = fresh_database().await;
    PostgresIndex::migrate(&database.url()).await.unwrap();
    let options = PostgresOptions { max_connections, ..PostgresOptions::new(database.url()) };
    let index = Index::from(PostgresIndex::connect(&options).await.unwrap());
    (index, Backend { database: Some(database), ..Backend::default() })
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

/// A tenant with a store, and a key that may do everything.
async fn new_tenant(engine: &Engine, limits: Value) -> (Arc<Principal>, StoreId) {
    let Value::Object(limits) = limits else { panic!("limits are an object") };
    let new = NewTenant { name: "tests".to_owned(), external_id: None, limits, search_mode: None };
    let tenant_id = engine.tenants.create(new, Auditor::OperatorCli).await.unwrap().tenant_id;
    let key = new_key(engine, tenant_id, &Scope::ALL, None).await;
    let draft = StoreDraft { name: "notes".to_owned(), ..StoreDraft::default() };
    let operator = engine.tenants.operator(tenant_id, Auditor::OperatorCli).await.unwrap();
    let store = engine.stores.create(&operator, draft, None).await.unwrap();
    (engine.auth.authenticate(&key).await.unwrap(), store.store_id)
}

async fn new_key(
    engine: &Engine,
    tenant_id: TenantId,
    scopes: &[Scope],
    expires_at: Option<Timestamp>,
) -> String {
    let (name, scopes) = ("tests".to_owned(), scopes.to_vec());
    let expires_at = expires_at.map(Timestamp::to_rfc3339);
    let draft = KeyDraft { name, scopes, store_ids: None, expires_at };
    let operator = engine.tenants.operator(tenant_id, Auditor::OperatorCli).await.unwrap();
    let made = engine.keys.create(&operator, draft, None).await.unwrap();
    made.secret.unwrap().expose().to_owned()
}

pub(crate) fn short_of(whole: Duration, part: Duration) -> Duration {
    whole.checked_sub(part).unwrap()
}

type Hooked = BoxFuture<'static, Result<(), BlobError>>;

/// A hook that awaits `act` at its first call only; `act` may call the hook again.
pub(crate) fn once(
    act: impl Future<Output = ()> + Send + 'static,
) -> impl Fn(&BlobKey) -> Hooked + Send + Sync + 'static {
    let act = Mutex::new(Some(act));
    move |_: &BlobKey| -> Hooked {
        let act = act.lock().unwrap().take();
        Box::pin(async move {
            if let Some(act) = act {
                act.await;
            }
            Ok(())
        })
    }
}

/// A hook of the blob store: calls after the first ones hang. The `Notify` tells when one does.
pub(crate) fn hanging_after(
    first: usize,
) -> (impl Fn(&BlobKey) -> Hooked + Send + Sync + 'static, Arc<Notify>) {
    let (begun, hangs) = (AtomicUsize::new(0), Arc::<Notify>::default());
    let told = Arc::clone(&hangs);
    let hook = move |_: &BlobKey| -> Hooked {
        if begun.fetch_add(1, Ordering::SeqCst) < first {
            return Box::pin(ready(Ok(())));
        }
        told.notify_one();
        Box::pin(std::future::pending())
    };
    (hook, hangs)
}

pub(crate) fn unavailable() -> Result<(), BlobError> {
    Err(BlobError::Unavailable("as the test wants it".to_owned()))
}

pub(crate) fn fails(_: &BlobKey) -> Ready<Result<(), BlobError>> {
    ready(unavailable())
}

pub(crate) fn new_memory(path: &str, content: &str) -> NewMemory {
    NewMemory { path: path.to_owned(), content: content.to_owned(), ..NewMemory::default() }
}

pub(crate) fn new_content(content: &str) -> MemoryEdit {
    MemoryEdit { content: Some(content.to_owned()), ..MemoryEdit::default() }
}

pub(crate) fn new_path(path: &str) -> MemoryEdit {
    MemoryEdit { path: Some(path.to_owned()), ..MemoryEdit::default() }
}

pub(crate) fn pin(pinned: bool) -> MemoryEdit {
    MemoryEdit { pinned: Some(pinned), ..MemoryEdit::default() }
}

pub(crate) fn tool_call(input: Value) -> ToolCall {
    let Value::Object(input) = input else { panic!("an input is an object") };
    let name = MEMORY_TOOL.to_owned();
    ToolCall { name, tool_use_id: None, input, not_unicode: None, idempotency: None }
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

pub(crate) fn rename(old_path: &str, new_path: &str) -> Value {
    json!({"command": "rename", "old_path": old_path, "new_path": new_path})
}

pub(crate) fn delete(path: &str) -> Value {
    json!({"command": "delete", "path": path})
}
