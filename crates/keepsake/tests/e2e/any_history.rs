//! Random histories over the tool and the API together, from two clients, with
//! calls sent again under their idempotency keys: after every step the store, its
//! search and its history equal a model in memory. At the end, so does every point of the past.

mod model;
mod past;
mod requests;

use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::test_runner::Config;
use tokio::runtime::Runtime;

use self::model::{Answer, Call, Edit, Mode, Model, Precondition, Tool};
use crate::prelude::*;

/// Histories that are tried before a change lands; `./tests/nightly` tries more.
const CASES: u32 = 15;
const STEPS: std::ops::Range<usize> = 10..80;
/// A random number; modulo the count, it is the index of a memory or of a version.
const ANY: std::ops::Range<usize> = 0..1_000;
/// Placeholder; the hash of the current content replaces it before the call is sent.
const RIGHT: &str = "right";

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        3 => prop::sample::select(vec!["a", "b", "é"]),
        // Beside a directory in the order of bytes, and not listed.
        1 => prop::sample::select(vec!["a-b", "a0", "B", ".h", "node_modules"]),
    ];
    prop::collection::vec(segment, 1..=3).prop_map(|segments| format!("/{}", segments.join("/")))
}

fn any_content() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "one\n", "one\ntwo\n", "two", "é\none\n"]).prop_map(str::to_owned)
}

fn any_hash() -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(RIGHT.to_owned()), 1 => Just(sha256("something else"))]
}

fn any_precondition() -> impl Strategy<Value = Option<Precondition>> {
    let hash = any_hash().prop_map(Precondition::Sha256);
    prop::option::of(prop_oneof![3 => hash, 1 => Just(Precondition::NotExists)])
}

fn any_tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        3 => (any_path(), any_content()).prop_map(|(path, content)| Tool::Create(path, content)),
        2 => (any_path(), prop::sample::select(vec!["one", "two"]))
            .prop_map(|(path, new)| Tool::Replace(path, "one".to_owned(), new.to_owned())),
        2 => (any_path(), 0_i64..3).prop_map(|(path, line)| Tool::Insert(path, line, "one\n".to_owned())),
        1 => any_path().prop_map(Tool::Delete),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Tool::Rename(from, to)),
        2 => (any_path(), any_content()).prop_map(|(path, text)| Tool::Append(path, text)),
    ]
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let pinned = prop::option::weighted(0.2, any::<bool>());
    (prop::option::of(any_content()), prop::option::of(any_path()), pinned)
        .prop_map(|(content, path, pinned)| Edit { content, path, pinned })
}

/// A call that is also an operation of batches.
fn any_operation() -> impl Strategy<Value = Call> {
    let mode = prop::sample::select(vec![Mode::CreateOnly, Mode::NotExists, Mode::Upsert]);
    prop_oneof![
        6 => (any_path(), any_content(), mode)
            .prop_map(|(path, content, mode)| Call::Create { path, content, mode }),
        6 => (ANY, any_edit(), any_precondition())
            .prop_map(|(memory, edit, precondition)| Call::Update { memory, edit, precondition }),
        3 => (ANY, prop::option::of(any_hash()))
            .prop_map(|(memory, expected)| Call::Delete { memory, expected }),
    ]
}

/// A call before it is known what there is.
fn any_call() -> impl Strategy<Value = Call> {
    let batched =
        |(call, is_atomic)| Call::Batched { call: Box::new(call), is_atomic, beside: String::new() };
    prop_oneof![
        15 => any_operation(),
        6 => (any_operation(), any::<bool>()).prop_map(batched),
        2 => ANY.prop_map(Call::Redact),
        3 => (ANY, any_precondition())
            .prop_map(|(version, precondition)| Call::Restore { version, precondition }),
        5 => any_tool().prop_map(Call::Tool),
        1 => any_path().prop_map(|path| Call::Erase { prefix: format!("{path}/") }),
    ]
}

/// Makes a call one on the model's objects; `None`: there is no suitable object.
fn settled(mut call: Call, model: &Model) -> Option<Call> {
    let (memories, versions) = (model.memories.len(), model.versions.len());
    let settle = |hash: &mut String, memory: usize| {
        if *hash == RIGHT {
            *hash = sha256(&model.memories[memory].content);
        }
    };
    match &mut call {
        Call::Update { memory, edit, precondition } => {
            *memory = memory.checked_rem(memories)?;
            match precondition {
                Some(Precondition::Sha256(hash)) => settle(hash, *memory),
                // That there is no memory is about the new path.
                _ if edit.path.is_none() => *precondition = None,
                _ => {}
            }
        }
        Call::Delete { memory, expected } => {
            *memory = memory.checked_rem(memories)?;
            if let Some(hash) = expected {
                settle(hash, *memory);
            }
        }
        Call::Redact(version) => *version = version.checked_rem(versions)?,
        Call::Restore { version, precondition } => {
            *version = version.checked_rem(versions)?;
            if let Some(Precondition::Sha256(hash)) = precondition {
                settle(hash, model.versions[*version].memory);
            }
        }
        Call::Batched { call, beside, .. } => {
            **call = settled((**call).clone(), model)?;
            *beside = format!("{}/beside-{}", model.directory_left_by(call), model.batches);
        }
        Call::Create { .. } | Call::Tool(_) | Call::Erase { .. } => {}
    }
    Some(call)
}

/// Notes an id when it is shown first; later it must be the same.
fn assert_lasting(ids: &mut Vec<String>, number: usize, shown: &Value, at: &str) {
    if ids.get(number).is_none() {
        ids.push(shown.as_str().unwrap().to_owned());
    }
    assert_eq!(*shown, ids[number], "{at}");
}

type FirstAnswer = (Value, Option<usize>);

struct History {
    clients: [Client; 2],
    api_key_ids: BTreeMap<usize, String>,
    store: String,
    model: Model,
    memory_ids: Vec<String>,
    version_ids: Vec<String>,
    /// The last call with a key: who made it, with which key, and where it was
    /// carried out its answer, with the version that the answer names.
    last_keyed: Option<(usize, String, Call, Option<FirstAnswer>)>,
}

impl History {
    async fn begin(clients: &[Client; 2]) -> Self {
        Self {
            clients: clients.clone(),
            api_key_ids: BTreeMap::new(),
            store: Store::make(&clients[0], "any history").await.path,
            model: Model::default(),
            memory_ids: Vec::new(),
            version_ids: Vec::new(),
            last_keyed: None,
        }
    }

    /// Makes a call; `None`: the last one that had an idempotency key, again.
    async fn step(&mut self, call: Option<Call>, client: usize, key: Option<String>) {
        let (by, key, call, first) = if let Some(call) = call {
            let Some(call) = settled(call, &self.model) else { return };
            (client, key, call, None)
        } else {
            let Some((by, key, call, first)) = self.last_keyed.clone() else { return };
            (by, Some(key), call, first)
        };
        let (method, path, body) = self.request_of(&call);
        let is_erasure = matches!(call, Call::Erase { .. });
        let key = key.filter(|_| method == Method::POST && !is_erasure);
        let mut request = self.clients[by].request(method, &path);
        if let Call::Create { mode: Mode::Upsert, .. } = call {
            request = request.header("anthropic-beta", "managed-agents-2026-04-01");
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        if let Some(key) = &key {
            request = request.header("idempotency-key", key);
        }
        let mut answer = send(request).await;
        if is_erasure {
            answer = self.clients[0].receipt(&answer.json()).await;
            // The records of calls about what it erased are gone.
            self.last_keyed = None;
        }
        let told = format!("{call:?} by {by}: {} {}", answer.status, answer.text);
        let (status, body) = match &call {
            Call::Batched { .. } => requests::first_answer(answer.status, &answer.json(), &told),
            _ => (answer.status, answer.json()),
        };
        if let Some((mut first, version)) = first {
            if let Some(text) = version.and_then(|version| self.model.text_without_lines(&call, version)) {
                first["content"] = json!(text);
            }
            // The answer is the first one, except for fields that change independently.
            let lasting =
                "id path content content_sha256 memory_version_id type is_error created_at updated_at";
            let is_redacted = version.is_some_and(|version: usize| self.model.versions[version].is_redacted);
            for field in lasting.split(' ').filter(|_| !is_redacted) {
                assert_eq!(body[field], first[field], "`{field}` of the first answer {first}, again {told}");
            }
            self.check(&told).await;
            return;
        }
        let expected = self.model.apply(&call, by);
        self.check(&told).await;
        self.assert_answers(&expected, status, &body, &told);
        if let Some(key) = key {
            // Refusals are not recorded, and a repeated redaction is carried out again.
            let is_done =
                matches!(expected, Answer::Memory(_) | Answer::Deleted(_) | Answer::Tool { is_error: false });
            let is_recorded = is_done || matches!(call, Call::Batched { is_atomic: false, .. });
            let recorded = is_recorded.then(|| {
                let named = body["memory_version_id"].as_str();
                let named = self.version_ids.iter().position(|id| Some(id.as_str()) == named);
                (body, named.or(self.model.versions.len().checked_sub(1)))
            });
            self.last_keyed = Some((by, key, call, recorded));
        }
    }

    fn assert_answers(&self, expected: &Answer, status: u16, body: &Value, told: &str) {
        let error = &body["error"];
        let refused = |code: u16, kind: &str| {
            let shown = json!([status, body["type"], error["type"]]);
            assert_eq!(shown, json!([code, "error", kind]), "expected {expected:?} of {told}");
        };
        let done = |shown: &Value, expected: Value| assert_eq!((status, shown), (200, &expected), "{told}");
        match expected {
            Answer::Memory(memory) => {
                let it = &self.model.memories[*memory];
                let newest = self.model.versions.iter().rposition(|version| version.memory == *memory);
                let (id, newest) = (&self.memory_ids[*memory], &self.version_ids[newest.unwrap()]);
                let fields = "id path content_sha256 content_size_bytes pinned memory_version_id";
                let shown = fields.split(' ').map(|field| body[field].clone()).collect();
                let (hash, bytes) = (sha256(&it.content), it.content.len());
                done(&shown, json!([id, it.path, hash, bytes, it.is_pinned, newest]));
                // The answer to a batch shows no content.
                assert!(body["content"].is_null() || body["content"] == it.content, "{told}");
            }
            Answer::Deleted(memory) => {
                done(body, json!({"id": self.memory_ids[*memory], "type": "memory_deleted"}));
            }
            Answer::Redacted(version, also_in) => {
                done(&body["id"], json!(self.version_ids[*version]));
                assert!(body["content"].is_null() && body["redacted_at"].is_string(), "{told}");
                let ids = |versions: &Vec<usize>| {
                    versions.iter().map(|version| self.version_ids[*version].clone()).collect::<Vec<_>>()
                };
                assert_eq!(body["content_also_in"], json!(also_in.as_ref().map(ids)), "{told}");
            }
            Answer::Tool { is_error } => done(&body["is_error"], json!(is_error)),
            Answer::Erased { memories, versions } => {
                let removed = &body["removed"];
                done(&json!([removed["memories"], removed["memory_versions"]]), json!([memories, versions]));
            }
            Answer::NotFound => refused(404, "not_found_error"),
            Answer::Conflict => refused(409, "conflict_error"),
            Answer::PreconditionFailed(memory, holds) => {
                refused(409, "memory_precondition_failed_error");
                assert_eq!(error["memory_id"], self.memory_ids[*memory], "{told}");
                let holds = holds.as_ref().map(|content| sha256(content));
                assert_eq!(error["current_content_sha256"], json!(holds), "{told}");
            }
            Answer::PathConflict(memory) => {
                refused(409, "memory_path_conflict_error");
                assert_eq!(error["conflicting_memory_id"], self.memory_ids[*memory], "{told}");
                assert_eq!(error["conflicting_path"], self.model.memories[*memory].path, "{told}");
            }
        }
    }

    async fn check(&mut self, told: &str) {
        let versions = self.all("memory_versions?limit=100").await;
        let kept = self.model.versions.iter().enumerate();
        let kept: Vec<_> = kept.filter(|(_, version)| !version.is_erased).collect();
        assert_eq!(versions.len(), kept.len(), "number of versions after {told}");
        for (shown, (number, version)) in versions.iter().rev().zip(kept) {
            let at = format!("version {number} after {told}: {shown}");
            assert_lasting(&mut self.version_ids, number, &shown["id"], &at);
            assert_lasting(&mut self.memory_ids, version.memory, &shown["memory_id"], &at);
            let hash = version.text().map(|content| sha256(content));
            let shown_fields = json!([shown["operation"], shown["path"], shown["content_sha256"]]);
            assert_eq!(shown_fields, json!([version.operation, version.path, hash]), "{at}");
            assert_eq!(shown["redacted_at"].is_string(), version.is_redacted, "{at}");
            let author = shown["created_by"]["api_key_id"].as_str().unwrap();
            let known = self.api_key_ids.entry(version.by).or_insert_with(|| author.to_owned());
            assert_eq!(author, *known, "{at}");
        }
        let shown = self.all("memories?limit=100").await;
        let live = self.model.memories.iter().enumerate().filter(|(_, memory)| memory.is_live);
        let live: BTreeMap<_, _> = live.map(|(number, memory)| (&memory.path, (number, memory))).collect();
        let shown = shown.iter().map(|it| json!([it["id"], it["path"], it["content_sha256"], it["pinned"]]));
        let expected = live.values().map(|(number, it)| {
            json!([self.memory_ids[*number], it.path, sha256(&it.content), it.is_pinned])
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "memories after {told}");
        for word in ["one", "two"] {
            let hits = self.all(&format!("search?query={word}&limit=20")).await;
            let found = hits.iter().map(|it| json!([it["memory_id"], it["path"], it["content_sha256"]]));
            let mut found: Vec<_> = found.collect();
            found.sort_by_key(|it| it[1].to_string());
            let holding = live.values().filter(|(_, it)| it.content.contains(word));
            let expected = holding.map(|(n, it)| json!([self.memory_ids[*n], it.path, sha256(&it.content)]));
            assert_eq!(found, expected.collect::<Vec<_>>(), "memories with `{word}` after {told}");
        }
        self.check_directories(told).await;
    }

    /// Compares what the store counts, and a directory, with the model: in turns the root
    /// and that of the last change.
    async fn check_directories(&self, told: &str) {
        let store = self.clients[0].get(&self.store).await.json();
        let counts = json!([store["memory_count"], store["content_bytes"]]);
        assert_eq!(counts, json!(self.model.counts()), "counts after {told}");
        let changed = self.model.directory_of_the_last_change();
        let directory = changed.filter(|_| self.model.versions.len().is_multiple_of(2));
        let directory = directory.unwrap_or_default();
        let view = json!({"command": "view", "path": format!("/memories{directory}")});
        let shown = self.clients[0].post(&format!("{}/tool_calls", self.store), &view).await;
        let shown = shown.tool_result().content;
        let (_, shown) = shown.split_once(":\n").unwrap_or(("", shown.as_str()));
        assert_eq!(shown, self.model.view(directory), "{directory:?} after {told}");
    }

    async fn all(&self, listing: &str) -> Vec<Value> {
        self.clients[0].all(&format!("{}/{listing}", self.store)).await
    }
}

fn any_history_is_that_of_the_model(pair: Pair) {
    let runtime = Runtime::new().unwrap();
    let (deployment, mut server, clients) = runtime.block_on(async {
        let (deployment, _, server, first) = started(pair).await;
        let second = first.with_key(&first.new_key(&Scope::ALL.map(Scope::name)).await.0);
        (deployment, server, [first, second])
    });
    let call = prop::option::weighted(0.91, any_call());
    let steps = prop::collection::vec((call, 0_usize..2, prop::option::of(0_u64..u64::MAX)), STEPS);
    let config =
        Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let seed = Seed::new();
    let tried = seed.runner(config).run(&steps, |steps| {
        runtime.block_on(async {
            let mut history = History::begin(&clients).await;
            for (call, client, key) in steps {
                history.step(call, client, key.map(|key| format!("key {key}"))).await;
            }
            history.check_past().await;
        });
        Ok(())
    });
    if tried.is_ok() {
        runtime.block_on(async {
            server.end().await;
            let verified = server.beside("verify").await.ok();
            assert!(verified.ends_with("all is well\n"), "{verified}");
        });
    }
    drop((server, deployment));
    tried.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_history_is_that_of_the_model_on_postgres_and_s3() {
    any_history_is_that_of_the_model(Pair::PostgresS3);
}

#[test]
fn any_history_is_that_of_the_model_on_sqlite() {
    any_history_is_that_of_the_model(Pair::Sqlite);
}

#[test]
#[ignore = "the pairs above have both databases and both places of content; this one runs at night"]
fn any_history_is_that_of_the_model_on_the_other_pairs() {
    any_history_is_that_of_the_model(Pair::Postgres);
    any_history_is_that_of_the_model(Pair::SqliteS3);
}
