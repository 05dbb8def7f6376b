//! The clients' work: edits of shared files, lives of separate files, reads.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keepsake_core::ContentHash;
use keepsake_testkit::history::{Change, Edit, ObservedMemory, Target, tag};
use keepsake_testkit::locked;
use reqwest::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::client::{Client, Ended, Ending, Request, Shared, StoreLog};
use super::random::Random;

const CLIENTS_PER_STORE: u64 = 5;
const SHARED_FILES: u64 = 4;
/// Lines above which a file is shortened.
const MAX_LINES: usize = 40;
const CALLS_PER_STORE: usize = 2_500;

/// A store that a group of clients uses, and what they know of it.
#[derive(Debug)]
struct Store {
    log: Arc<StoreLog>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Memories that were seen, by id and path.
    memories: Vec<(String, String)>,
    /// Versions whose content an acknowledged call names.
    versions: Vec<String>,
}

/// A group of clients: its store of the moment, and those before.
#[derive(Debug)]
pub(crate) struct Group {
    shared: Arc<Shared>,
    /// A client begins a step no sooner than this after its last one.
    pace: Duration,
    store: Mutex<Option<Arc<Store>>>,
    logs: Arc<Mutex<Vec<Arc<StoreLog>>>>,
}

impl Group {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        logs: &Arc<Mutex<Vec<Arc<StoreLog>>>>,
        pace: Duration,
    ) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), pace, store: Mutex::default(), logs: Arc::clone(logs) })
    }

    /// Starts the group's clients; they end once `stopping` is cancelled.
    pub(crate) fn start(
        self: &Arc<Self>,
        random: &mut Random,
        stopping: &CancellationToken,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        (0..CLIENTS_PER_STORE)
            .map(|_| {
                let client = Client::new(&self.shared, random.fork());
                let worker = Worker { client, group: Arc::clone(self), store: None, session: None };
                tokio::spawn(worker.work(stopping.clone()))
            })
            .collect()
    }

    fn current(&self) -> Option<Arc<Store>> {
        let store = locked(&self.store).clone()?;
        let calls = store.log.history().calls.len();
        (calls < CALLS_PER_STORE).then_some(store)
    }

    /// Takes a new store, unless another client was quicker.
    fn offer(&self, store_id: &str) -> Arc<Store> {
        let mut current = locked(&self.store);
        if let Some(store) = &*current
            && store.log.history().calls.len() < CALLS_PER_STORE
        {
            return Arc::clone(store);
        }
        let log = StoreLog::new(store_id);
        locked(&self.logs).push(Arc::clone(&log));
        let store = Arc::new(Store { log, known: Mutex::default() });
        *current = Some(Arc::clone(&store));
        store
    }
}

struct Worker {
    client: Client,
    group: Arc<Group>,
    store: Option<Arc<Store>>,
    /// A session on the store: its id, its token and the store's directory.
    session: Option<(String, String, String)>,
}

impl Worker {
    async fn work(mut self, stopping: CancellationToken) {
        while !stopping.is_cancelled() {
            let next_at = tokio::time::Instant::now() + self.group.pace;
            let Some(store) = self.choose_store().await else { continue };
            self.step(&store).await;
            tokio::time::sleep_until(next_at).await;
        }
        self.end_session().await;
    }

    async fn choose_store(&mut self) -> Option<Arc<Store>> {
        let current = if let Some(store) = self.group.current() {
            store
        } else {
            let key = format!("store-{}", self.client.shared.number());
            let request = Request::once("/v1/memory_stores".to_owned(), json!({"name": "torture"}), key);
            let made = self.client.call(&request).await;
            self.group.offer(made.body["id"].as_str()?)
        };
        if !self.store.as_ref().is_some_and(|store| Arc::ptr_eq(store, &current)) {
            self.end_session().await;
            self.store = Some(Arc::clone(&current));
        }
        Some(current)
    }

    async fn step(&mut self, store: &Store) {
        let number = self.client.shared.number();
        let shared = format!("/shared-{}.md", self.client.random.below(SHARED_FILES));
        match self.client.random.below(100) {
            0..18 => self.append(store, number, shared).await,
            18..30 => self.insert(store, number, shared).await,
            30..40 => self.replace(store, number, &shared).await,
            40..54 => self.update(store, number).await,
            54..60 => self.create(store, number).await,
            60..64 => self.create_by_tool(store, number).await,
            64..68 => self.delete(store, number).await,
            68..70 => self.delete_by_tool(store, number, &shared).await,
            70..74 => self.rename(store, number).await,
            74..76 => self.restore(store, number).await,
            76..78 => self.redact(store, number).await,
            78..85 => drop(self.view(store, &shared).await),
            85..92 => self.retrieve(store).await,
            92..95 => self.list(store).await,
            95..97 => self.search(store).await,
            _ => self.append_in_session(store, number, shared).await,
        }
    }

    /// A tool's block, which can be sent again under its id.
    fn block(store: &Store, number: u64, name: &str, input: &Value) -> Request {
        let body = json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": input});
        Request::post(store.route("tool_calls"), body)
    }

    async fn use_tool(&mut self, store: &Store, number: u64, name: &str, input: &Value, change: Change) {
        let request = Self::block(store, number, name, input);
        self.client.change(&store.log, number, change, &request).await;
    }

    async fn append(&mut self, store: &Store, number: u64, path: String) {
        let text = tag(number);
        let input = json!({"path": format!("/memories{path}"), "content": text});
        let change = Change::Edit { path, edit: Edit::Append { text } };
        self.use_tool(store, number, "memory_append", &input, change).await;
    }

    async fn insert(&mut self, store: &Store, number: u64, path: String) {
        let text = tag(number);
        let input = json!({
            "command": "insert", "path": format!("/memories{path}"), "insert_line": 0, "insert_text": text,
        });
        let change = Change::Edit { path, edit: Edit::Insert { after: 0, text } };
        self.use_tool(store, number, "memory", &input, change).await;
    }

    /// Replaces a line that was there a moment ago.
    async fn replace(&mut self, store: &Store, number: u64, path: &str) {
        let Some(content) = self.view(store, path).await else { return };
        let lines: Vec<_> = content.lines().collect();
        let Some(old) = self.client.random.pick(&lines).map(|line| (*line).to_owned()) else { return };
        let new = tag(number);
        let input = json!({
            "command": "str_replace", "path": format!("/memories{path}"), "old_str": old, "new_str": new,
        });
        let change = Change::Edit { path: path.to_owned(), edit: Edit::Replace { old, new } };
        self.use_tool(store, number, "memory", &input, change).await;
    }

    /// Reads a memory, and writes it back with another line under a precondition.
    async fn update(&mut self, store: &Store, number: u64) {
        let Some((memory_id, _)) = self.known_memory(store) else { return };
        let Some(read) = self.client.read(&store.log, &memory_id).await else { return };
        let expected = read["content"].as_str().unwrap().to_owned();
        let lines: Vec<_> = expected.lines().collect();
        let kept = if lines.len() > MAX_LINES { &lines[lines.len() - MAX_LINES / 4..] } else { &lines[..] };
        let content = format!("{}\n{}\n", kept.join("\n"), tag(number));
        let mut body = json!({
            "content": content,
            "precondition": {"type": "content_sha256", "content_sha256": sha256(&expected)},
        });
        let path = store.route(&format!("memories/{memory_id}"));
        let mut request = if self.client.random.percent(30) {
            body["memory_id"] = json!(memory_id);
            batch_of(store, "update", body)
        } else {
            Request::post(path, body)
        };
        // Without a key a retry could land once more, after others restored the memory.
        if self.client.random.percent(70) {
            request.idempotency_key = Some(format!("update-{number}"));
        } else {
            request.is_repeatable = false;
        }
        let change = Change::Update { memory_id: memory_id.clone(), expected: Some(expected), content };
        let ended = self.client.change(&store.log, number, change, &request).await;
        self.note_conflict(store, &memory_id, &ended);
        store.note_version(&ended);
    }

    async fn create(&mut self, store: &Store, number: u64) {
        let path = format!("/own/{}.md", tag(number));
        let content = format!("{}\n", tag(number));
        let at = store.route("memories");
        let body = json!({"path": path, "content": content});
        let mut request = if self.client.random.percent(40) {
            batch_of(store, "create", body)
        } else {
            Request::post(at, body)
        };
        request.idempotency_key = Some(format!("create-{number}"));
        let change = Change::Create { path, content };
        let ended = self.client.change(&store.log, number, change, &request).await;
        store.note_memory(&ended.body);
        store.note_version(&ended);
    }

    async fn create_by_tool(&mut self, store: &Store, number: u64) {
        let path = format!("/own/{}.md", tag(number));
        let content = format!("{}\n", tag(number));
        let input = json!({"command": "create", "path": format!("/memories{path}"), "file_text": content});
        let change = Change::Create { path, content };
        self.use_tool(store, number, "memory", &input, change).await;
    }

    async fn delete(&mut self, store: &Store, number: u64) {
        let Some((memory_id, path)) = self.known_memory(store) else { return };
        // Shared files are deleted seldom.
        if !path.starts_with("/own/") && !self.client.random.percent(10) {
            return;
        }
        let Some(read) = self.client.read(&store.log, &memory_id).await else { return };
        let expected = read["content"].as_str().unwrap().to_owned();
        let expects = format!("expected_content_sha256={}", sha256(&expected));
        let path = store.route(&format!("memories/{memory_id}?{expects}"));
        let request = Request { method: Method::DELETE, is_repeatable: false, ..Request::get(path) };
        let target = Target::Memory(memory_id.clone());
        let change = Change::Delete { target, expected: Some(expected) };
        let ended = self.client.change(&store.log, number, change, &request).await;
        self.note_conflict(store, &memory_id, &ended);
    }

    async fn delete_by_tool(&mut self, store: &Store, number: u64, shared: &str) {
        let path = match self.known_memory(store) {
            Some((_, path)) if path.starts_with("/own/") => path,
            _ => shared.to_owned(),
        };
        let input = json!({"command": "delete", "path": format!("/memories{path}")});
        let change = Change::Delete { target: Target::Path(path), expected: None };
        self.use_tool(store, number, "memory", &input, change).await;
    }

    async fn rename(&mut self, store: &Store, number: u64) {
        let Some((memory_id, path)) = self.known_memory(store).filter(|(_, path)| path.starts_with("/own/"))
        else {
            return;
        };
        let to = format!("/own/renamed-{}.md", tag(number));
        let (target, request) = if self.client.random.percent(50) {
            let input = json!({
                "command": "rename", "old_path": format!("/memories{path}"), "new_path": format!("/memories{to}"),
            });
            (Target::Path(path), Self::block(store, number, "memory", &input))
        } else {
            let at = store.route(&format!("memories/{memory_id}"));
            let request = Request::once(at, json!({"path": to}), format!("rename-{number}"));
            (Target::Memory(memory_id), request)
        };
        self.client.change(&store.log, number, Change::Rename { target, to }, &request).await;
    }

    async fn restore(&mut self, store: &Store, number: u64) {
        let Some(version_id) = self.known_version(store) else { return };
        let path = store.route(&format!("memory_versions/{version_id}/restore"));
        let request = Request::once(path, json!({}), format!("restore-{number}"));
        self.client.change(&store.log, number, Change::Restore { version_id }, &request).await;
    }

    async fn redact(&mut self, store: &Store, number: u64) {
        let Some(version_id) = self.known_version(store) else { return };
        let path = store.route(&format!("memory_versions/{version_id}/redact"));
        let request = Request::post(path, json!({}));
        self.client.change(&store.log, number, Change::Redact { version_id }, &request).await;
    }

    async fn view(&mut self, store: &Store, path: &str) -> Option<String> {
        let body = json!({"command": "view", "path": format!("/memories{path}")});
        let url = store.route("tool_calls");
        let ended = self.client.call(&Request::post(url, body)).await;
        let shown = match ended.outcome {
            Ending::Done => ended.body["content"].as_str()?.to_owned(),
            // A missing file; a view that is sent again has no effect either way.
            Ending::Refused(200) | Ending::Unknown if ended.body["is_error"] == true => {
                self.client.saw(&store.log, ended.at, Target::Path(path.to_owned()), ObservedMemory::Absent);
                return None;
            }
            Ending::Refused(_) | Ending::Unknown => return self.client.unread(),
        };
        let lines = shown.lines().skip(1).map(|line| line.split_once('\t').map(|(_, text)| text));
        let content = lines.collect::<Option<Vec<_>>>()?.join("\n");
        let saw = ObservedMemory::Content(content.clone());
        self.client.saw(&store.log, ended.at, Target::Path(path.to_owned()), saw);
        Some(content)
    }

    async fn retrieve(&mut self, store: &Store) {
        let Some((memory_id, _)) = self.known_memory(store) else { return };
        if let Some(read) = self.client.read(&store.log, &memory_id).await {
            store.note_memory(&read);
        }
    }

    /// Lists with content, which reads each memory that is shown.
    async fn list(&mut self, store: &Store) {
        let path = store.route("memories?view=full&limit=20");
        let ended = self.client.call(&Request::get(path)).await;
        if ended.outcome != Ending::Done {
            self.client.unread::<()>();
            return;
        }
        for memory in ended.body["data"].as_array().unwrap() {
            store.note_memory(memory);
            let (Some(id), Some(content)) = (memory["id"].as_str(), memory["content"].as_str()) else {
                continue;
            };
            let saw = ObservedMemory::Content(content.to_owned());
            self.client.saw(&store.log, ended.at, Target::Memory(id.to_owned()), saw);
        }
    }

    async fn search(&mut self, store: &Store) {
        let path = store.route("search?query=shared");
        if self.client.call(&Request::get(path)).await.outcome != Ending::Done {
            self.client.unread::<()>();
        }
    }

    async fn append_in_session(&mut self, store: &Store, number: u64, path: String) {
        if self.session.is_none() {
            self.session = self.begin_session(store).await;
        }
        let Some((session_id, token, directory)) = &self.session else { return };
        let text = tag(number);
        let input = json!({"path": format!("{directory}{path}"), "content": text});
        let mut request = Self::block(store, number, "memory_append", &input);
        request.path = format!("/v1/sessions/{session_id}/tool_calls");
        request.token = Some(token.clone());
        let change = Change::Edit { path, edit: Edit::Append { text } };
        self.client.change(&store.log, number, change, &request).await;
    }

    async fn begin_session(&mut self, store: &Store) -> Option<(String, String, String)> {
        let resource = json!({
            "type": "memory_store", "memory_store_id": store.log.store_id, "access": "read_write",
        });
        let body =
            json!({"agent": "agent_torture", "environment_id": "env_torture", "resources": [resource]});
        let mut request = Request::post("/v1/sessions".to_owned(), body);
        request.is_repeatable = false;
        let made = self.client.call(&request).await.body;
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        Some((text(&made["id"])?, text(&made["token"])?, text(&made["resources"][0]["mount_path"])?))
    }

    async fn end_session(&mut self) {
        if let Some((session_id, ..)) = self.session.take() {
            let path = format!("/v1/sessions/{session_id}/archive");
            self.client.call(&Request::post(path, json!({}))).await;
        }
    }

    /// A failed precondition names what the memory holds: a read.
    fn note_conflict(&self, store: &Store, memory_id: &str, ended: &Ended) {
        let error = &ended.body["error"];
        if error["type"] != "memory_precondition_failed_error" {
            return;
        }
        if let Some(sha256) = error["current_content_sha256"].as_str() {
            let target = Target::Memory(memory_id.to_owned());
            self.client.saw(&store.log, ended.at, target, ObservedMemory::Sha256(sha256.to_owned()));
        }
    }

    fn known_memory(&mut self, store: &Store) -> Option<(String, String)> {
        self.client.random.pick(&store.known().memories).cloned()
    }

    fn known_version(&mut self, store: &Store) -> Option<String> {
        self.client.random.pick(&store.known().versions).cloned()
    }
}

impl Store {
    fn known(&self) -> MutexGuard<'_, Known> {
        locked(&self.known)
    }

    fn route(&self, rest: &str) -> String {
        format!("/v1/memory_stores/{}/{rest}", self.log.store_id)
    }

    fn note_memory(&self, memory: &Value) {
        let (Some(id), Some(path)) = (memory["id"].as_str(), memory["path"].as_str()) else { return };
        let mut known = self.known();
        match known.memories.iter_mut().find(|(known, _)| known == id) {
            Some((_, at)) => path.clone_into(at),
            None => known.memories.push((id.to_owned(), path.to_owned())),
        }
    }

    fn note_version(&self, ended: &Ended) {
        if ended.outcome == Ending::Done
            && let Some(version_id) = ended.body["memory_version_id"].as_str()
        {
            self.known().versions.push(version_id.to_owned());
        }
    }
}

fn batch_of(store: &Store, kind: &str, mut operation: Value) -> Request {
    operation["type"] = json!(kind);
    let path = store.route("memories/batch");
    Request::post(path, json!({"operations": [operation]}))
}

fn sha256(content: &str) -> String {
    ContentHash::of(content.as_bytes()).to_string()
}

/// How long clients may take to end their last calls.
pub(crate) const LAST_CALLS: Duration = Duration::from_mins(2);
