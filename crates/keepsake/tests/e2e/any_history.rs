//! Random histories over the tool and the API together, from two clients, with
//! calls sent again under their idempotency keys: after every step the store, its
//! search and its history equal a model in memory.

mod batched;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::Config;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use self::model::{Answer, Call, Mode, Model, Precondition, Tool, sha256};
use crate::support::client::send;
use crate::support::command::keepsake;
use crate::support::{Client, Deployment, Pair};

/// Histories that are tried before a change lands; `./tests/nightly` tries more.
const CASES: u32 = 15;
/// Steps of one.
const STEPS: std::ops::Range<usize> = 10..80;

/// A step before it is known what there is.
#[derive(Debug, Clone)]
enum Step {
    Create(String, String, Mode),
    Update(Index, Option<String>, Option<String>, Option<bool>, Guess),
    Delete(Index, Guess),
    Redact(Index),
    Restore(Index, Guess),
    Tool(Tool),
    /// Of all that ever stood below a path.
    Erase(String),
    /// In a batch, which may be atomic.
    Batched(Box<Step>, bool),
    /// Repeats the last call that had an idempotency key.
    Again,
}

/// What a precondition expects.
#[derive(Debug, Clone, Copy)]
enum Guess {
    Nothing,
    Right,
    Wrong,
    NotExists,
}

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

fn any_guess() -> impl Strategy<Value = Guess> {
    prop_oneof![
        4 => Just(Guess::Nothing),
        2 => Just(Guess::Right),
        1 => Just(Guess::Wrong),
        1 => Just(Guess::NotExists),
    ]
}

fn any_tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        3 => (any_path(), any_content()).prop_map(|(path, content)| Tool::Create(path, content)),
        2 => any_path().prop_map(|path| Tool::Replace(path, "one".to_owned(), "two".to_owned())),
        2 => (any_path(), 0_i64..3).prop_map(|(path, line)| Tool::Insert(path, line, "one\n".to_owned())),
        1 => any_path().prop_map(Tool::Delete),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Tool::Rename(from, to)),
        2 => (any_path(), any_content()).prop_map(|(path, text)| Tool::Append(path, text)),
    ]
}

/// A step that is also an operation of batches.
fn any_operation() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let mode = prop::sample::select(vec![Mode::CreateOnly, Mode::NotExists, Mode::Upsert]);
    prop_oneof![
        6 => (any_path(), any_content(), mode).prop_map(|(path, content, mode)| Step::Create(path, content, mode)),
        6 => (
            index(),
            prop::option::of(any_content()),
            prop::option::of(any_path()),
            prop::option::weighted(0.2, any::<bool>()),
            any_guess(),
        )
            .prop_map(|(memory, content, path, pinned, guess)| Step::Update(memory, content, path, pinned, guess)),
        3 => (index(), any_guess()).prop_map(|(memory, guess)| Step::Delete(memory, guess)),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        15 => any_operation(),
        6 => (any_operation(), any::<bool>()).prop_map(|(step, is_atomic)| Step::Batched(Box::new(step), is_atomic)),
        2 => index().prop_map(Step::Redact),
        3 => (index(), any_guess()).prop_map(|(version, guess)| Step::Restore(version, guess)),
        5 => any_tool().prop_map(Step::Tool),
        1 => any_path().prop_map(Step::Erase),
        3 => Just(Step::Again),
    ]
}

/// Turns a step into a call on the model's objects; `None`: there is no
/// suitable object.
fn call_of(step: Step, model: &Model) -> Option<Call> {
    let (memories, versions) = (model.memories.len(), model.versions.len());
    let precondition = |guess: Guess, memory: usize| match guess {
        Guess::Nothing => None,
        Guess::Right => Some(Precondition::Sha256(sha256(&model.memories[memory].content))),
        Guess::Wrong => Some(Precondition::Sha256(sha256("something else"))),
        Guess::NotExists => Some(Precondition::NotExists),
    };
    let call = match step {
        Step::Create(path, content, mode) => Call::Create { path, content, mode },
        Step::Tool(tool) => Call::Tool(tool),
        Step::Erase(path) => Call::Erase { prefix: format!("{path}/") },
        Step::Batched(step, is_atomic) => {
            let call = Box::new(call_of(*step, model)?);
            let beside = format!("{}/beside-{}", model.directory_left_by(&call), model.batches);
            Call::Batched { call, is_atomic, beside }
        }
        Step::Update(memory, content, path, pinned, guess) if memories > 0 => {
            let memory = memory.index(memories);
            let precondition =
                precondition(guess, memory).filter(|it| *it != Precondition::NotExists || path.is_some());
            Call::Update { memory, content, path, pinned, precondition }
        }
        Step::Delete(memory, guess) if memories > 0 => {
            let memory = memory.index(memories);
            let expected = match precondition(guess, memory) {
                Some(Precondition::Sha256(sha256)) => Some(sha256),
                Some(Precondition::NotExists) | None => None,
            };
            Call::Delete { memory, expected }
        }
        Step::Redact(version) if versions > 0 => Call::Redact { version: version.index(versions) },
        Step::Restore(version, guess) if versions > 0 => {
            let version = version.index(versions);
            Call::Restore { version, precondition: precondition(guess, model.versions[version].memory) }
        }
        Step::Again | Step::Update(..) | Step::Delete(..) | Step::Redact(_) | Step::Restore(..) => {
            return None;
        }
    };
    Some(call)
}

/// The answer to a repeated call is that of the first one, except for fields
/// that change independently.
fn assert_is_replay(first: &Value, again: &Value, told: &str) {
    let lasting = [
        "id",
        "path",
        "content",
        "content_sha256",
        "memory_version_id",
        "type",
        "is_error",
        "created_at",
        "updated_at",
    ];
    for field in lasting {
        assert_eq!(again[field], first[field], "`{field}` of the first answer {first}, again {told}");
    }
}

/// An answer to be repeated, and the version that it names.
type FirstAnswer = (Value, Option<usize>);

/// A store, its model, and two clients.
struct History {
    clients: [Client; 2],
    api_key_ids: Vec<String>,
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
        let made = clients[0].post("/v1/memory_stores", &json!({"name": "any history"})).await;
        assert_eq!(made.status, 200, "{}", made.text);
        Self {
            clients: clients.clone(),
            api_key_ids: vec![String::new(); 2],
            store: format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap()),
            model: Model::default(),
            memory_ids: Vec::new(),
            version_ids: Vec::new(),
            last_keyed: None,
        }
    }

    async fn step(&mut self, step: Step, client: usize, key: Option<String>) {
        let is_again = matches!(step, Step::Again);
        let (by, key, call, first) = if is_again {
            let Some((by, key, call, first)) = self.last_keyed.clone() else {
                return;
            };
            (by, Some(key), call, first)
        } else {
            let Some(call) = call_of(step, &self.model) else {
                return;
            };
            (client, key, call, None)
        };
        let (method, path, body) = self.request_of(&call);
        let mut request = self.clients[by].request(method.clone(), &path);
        if let Call::Create { mode: Mode::Upsert, .. } = call {
            request = request.header("anthropic-beta", "managed-agents-2026-04-01");
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        let is_erasure = matches!(call, Call::Erase { .. });
        let key = key.filter(|_| method == Method::POST && !is_erasure);
        if let Some(key) = &key {
            request = request.header("idempotency-key", key);
        }
        let mut answer = send(request).await;
        if is_erasure {
            answer = self.ended(&answer.json()).await;
            // The records of calls about what it erased are gone.
            self.last_keyed = None;
        }
        let told = format!("{call:?} by {by}: {} {}", answer.status, answer.text);
        let (status, body) = match &call {
            Call::Batched { .. } => batched::first_answer(answer.status, &answer.json(), &told),
            _ => (answer.status, answer.json()),
        };
        if let Some((mut first, version)) = first {
            if let Some(text) = version.and_then(|version| self.model.text_without_lines(&call, version)) {
                first["content"] = json!(text);
            }
            if !version.is_some_and(|version: usize| self.model.versions[version].is_redacted) {
                assert_is_replay(&first, &body, &told);
            }
            self.check(&told).await;
            return;
        }
        let expected = self.model.apply(&call, by);
        self.check(&told).await;
        self.assert_answers(&expected, status, &body, &told);
        if let Some(key) = key {
            let is_done = match &call {
                Call::Batched { is_atomic: false, .. } => true,
                _ => matches!(
                    expected,
                    Answer::Memory(_)
                        | Answer::Deleted(_)
                        | Answer::Redacted(..)
                        | Answer::Tool { is_error: false }
                ),
            };
            // A repeated redaction is executed again, and its answer has less.
            let is_recorded = is_done && !matches!(expected, Answer::Redacted(..));
            let recorded = is_recorded.then(|| {
                let named = body["memory_version_id"].as_str();
                let named = self.version_ids.iter().position(|id| Some(id.as_str()) == named);
                (body, named.or(self.model.versions.len().checked_sub(1)))
            });
            self.last_keyed = Some((by, key, call, recorded));
        }
    }

    /// Waits for the end of an erasure.
    async fn ended(&self, erasure: &Value) -> crate::support::Answer {
        let path = format!("/v1/erasures/{}", erasure["id"].as_str().unwrap());
        let is_done = async || self.clients[0].get(&path).await.json()["state"] == "done";
        crate::support::eventually("the erasure is done", Duration::from_mins(3), is_done).await;
        self.clients[0].get(&path).await
    }

    fn request_of(&self, call: &Call) -> (Method, String, Option<Value>) {
        let store = &self.store;
        let condition = |precondition: &Option<Precondition>| batched::condition_of(precondition.as_ref());
        match call {
            Call::Create { path, content, mode } => {
                let precondition = (*mode == Mode::NotExists).then_some(Precondition::NotExists);
                let body =
                    json!({"path": path, "content": content, "precondition": condition(&precondition)});
                (Method::POST, format!("{store}/memories?view=full"), Some(body))
            }
            Call::Update { memory, content, path, pinned, precondition } => {
                let at = format!("{store}/memories/{}?view=full", self.memory_ids[*memory]);
                let body = json!({
                    "content": content, "path": path, "pinned": pinned, "precondition": condition(precondition),
                });
                (Method::POST, at, Some(body))
            }
            Call::Delete { memory, expected } => {
                let query = expected.as_ref().map(|expected| format!("?expected_content_sha256={expected}"));
                let id = &self.memory_ids[*memory];
                let at = format!("{store}/memories/{id}{}", query.unwrap_or_default());
                (Method::DELETE, at, None)
            }
            Call::Redact { version } => {
                let id = &self.version_ids[*version];
                (Method::POST, format!("{store}/memory_versions/{id}/redact"), None)
            }
            Call::Restore { version, precondition } => {
                let at = format!("{store}/memory_versions/{}/restore?view=full", self.version_ids[*version]);
                (Method::POST, at, Some(json!({"precondition": condition(precondition)})))
            }
            Call::Batched { call, is_atomic, beside } => {
                let body = batched::body_of(call, beside, *is_atomic, &self.memory_ids);
                (Method::POST, format!("{store}/memories/batch"), Some(body))
            }
            Call::Tool(tool) => (Method::POST, format!("{store}/tool_calls"), Some(input_of(tool))),
            Call::Erase { prefix } => {
                let store_id = store.rsplit('/').next();
                let body = json!({"memory_store_id": store_id, "path_prefix": prefix});
                (Method::POST, "/v1/erasures".to_owned(), Some(body))
            }
        }
    }

    fn assert_answers(&self, expected: &Answer, status: u16, body: &Value, told: &str) {
        let refused = |kind: &str| {
            assert_eq!(body["error"]["type"], kind, "{told}");
            assert_eq!(body["type"], "error", "{told}");
        };
        let status_expected = match expected {
            Answer::Memory(_)
            | Answer::Deleted(_)
            | Answer::Redacted(..)
            | Answer::Tool { .. }
            | Answer::Erased { .. } => 200,
            Answer::NotFound => 404,
            Answer::PreconditionFailed(..) | Answer::PathConflict(_) | Answer::Conflict => 409,
        };
        assert_eq!(status, status_expected, "expected {expected:?} of {told}");
        match expected {
            Answer::Memory(memory) => {
                let it = &self.model.memories[*memory];
                assert_eq!(body["id"], self.memory_ids[*memory], "{told}");
                assert_eq!(body["path"], it.path, "{told}");
                // The answer to a batch shows no content.
                if !body["content"].is_null() {
                    assert_eq!(body["content"], it.content, "{told}");
                }
                assert_eq!(body["content_sha256"], sha256(&it.content), "{told}");
                assert_eq!(body["content_size_bytes"], it.content.len(), "{told}");
                assert_eq!(body["pinned"], it.is_pinned, "{told}");
                let newest = self.model.versions.iter().rposition(|version| version.memory == *memory);
                assert_eq!(body["memory_version_id"], self.version_ids[newest.unwrap()], "{told}");
            }
            Answer::Deleted(memory) => {
                assert_eq!(
                    *body,
                    json!({"id": self.memory_ids[*memory], "type": "memory_deleted"}),
                    "{told}"
                );
            }
            Answer::Redacted(version, also_in) => {
                assert_eq!(body["id"], self.version_ids[*version], "{told}");
                assert!(body["content"].is_null() && body["redacted_at"].is_string(), "{told}");
                let also_in = also_in.as_ref().map(|versions| {
                    versions.iter().map(|version| &self.version_ids[*version]).collect::<Vec<_>>()
                });
                assert_eq!(body["content_also_in"], json!(also_in), "{told}");
            }
            Answer::Tool { is_error } => assert_eq!(body["is_error"], *is_error, "{told}"),
            Answer::Erased { memories, versions } => {
                let removed = &body["removed"];
                assert_eq!(removed["memories"], *memories, "{told}");
                assert_eq!(removed["memory_versions"], *versions, "{told}");
            }
            Answer::NotFound => refused("not_found_error"),
            Answer::Conflict => refused("conflict_error"),
            Answer::PreconditionFailed(memory, holds) => {
                refused("memory_precondition_failed_error");
                assert_eq!(body["error"]["memory_id"], self.memory_ids[*memory], "{told}");
                let holds = holds.as_ref().map(|content| sha256(content));
                assert_eq!(body["error"]["current_content_sha256"], json!(holds), "{told}");
            }
            Answer::PathConflict(memory) => {
                refused("memory_path_conflict_error");
                let id = &self.memory_ids[*memory];
                assert_eq!(body["error"]["conflicting_memory_id"], *id, "{told}");
                assert_eq!(body["error"]["conflicting_path"], self.model.memories[*memory].path, "{told}");
            }
        }
    }

    /// Compares the store and its history with the model.
    async fn check(&mut self, told: &str) {
        let versions = self.all("memory_versions?limit=100").await;
        let kept = self.model.versions.iter().enumerate();
        let kept: Vec<_> = kept.filter(|(_, version)| !version.is_erased).collect();
        assert_eq!(versions.len(), kept.len(), "number of versions after {told}");
        for (shown, (number, version)) in versions.iter().rev().zip(kept) {
            let at = format!("version {number} after {told}: {shown}");
            let id = shown["id"].as_str().unwrap();
            match self.version_ids.get(number) {
                Some(known) => assert_eq!(id, known, "{at}"),
                None => self.version_ids.push(id.to_owned()),
            }
            let memory_id = shown["memory_id"].as_str().unwrap();
            match self.memory_ids.get(version.memory) {
                Some(known) => assert_eq!(memory_id, known, "{at}"),
                None => self.memory_ids.push(memory_id.to_owned()),
            }
            assert_eq!(shown["operation"], version.operation, "{at}");
            assert_eq!(shown["path"], json!(version.path), "{at}");
            let hash = version.content.as_ref().map(|(content, _)| sha256(content));
            assert_eq!(shown["content_sha256"], json!(hash), "{at}");
            assert_eq!(shown["redacted_at"].is_string(), version.is_redacted, "{at}");
            let author = shown["created_by"]["api_key_id"].as_str().unwrap();
            let known = &mut self.api_key_ids[version.by];
            if known.is_empty() {
                author.clone_into(known);
            }
            assert_eq!(author, known, "{at}");
        }
        let shown = self.all("memories?limit=100").await;
        let live = self.model.memories.iter().enumerate().filter(|(_, memory)| memory.is_live);
        let live: BTreeMap<_, _> = live.map(|(number, memory)| (&memory.path, (number, memory))).collect();
        let shown: Vec<_> = shown
            .iter()
            .map(|it| json!([it["id"], it["path"], it["content_sha256"], it["pinned"]]))
            .collect();
        let expected: Vec<_> = live
            .values()
            .map(|(number, it)| json!([self.memory_ids[*number], it.path, sha256(&it.content), it.is_pinned]))
            .collect();
        assert_eq!(shown, expected, "memories after {told}");
        for word in ["one", "two"] {
            let mut found: Vec<_> = (self.all(&format!("search?query={word}&limit=20")).await)
                .iter()
                .map(|it| json!([it["memory_id"], it["path"], it["content_sha256"]]))
                .collect();
            found.sort_by_key(|it| it[1].to_string());
            let expected: Vec<_> = live
                .values()
                .filter(|(_, it)| it.content.contains(word))
                .map(|(number, it)| json!([self.memory_ids[*number], it.path, sha256(&it.content)]))
                .collect();
            assert_eq!(found, expected, "memories with `{word}` after {told}");
        }
        self.check_directories(told).await;
    }

    /// Compares what the store counts, and a directory, with the model: in turns the root
    /// and that of the last change.
    async fn check_directories(&self, told: &str) {
        let store = self.clients[0].get(&self.store).await.json();
        let (count, bytes) = self.model.counts();
        assert_eq!(
            (&store["memory_count"], &store["content_bytes"]),
            (&json!(count), &json!(bytes)),
            "counts after {told}"
        );
        let changed = self.model.directory_of_the_last_change();
        let directory = changed.filter(|_| self.model.versions.len().is_multiple_of(2));
        let directory = directory.unwrap_or_default();
        let view = json!({"command": "view", "path": format!("/memories{directory}")});
        let shown = self.clients[0].post(&format!("{}/tool_calls", self.store), &view).await;
        let shown = shown.tool_result().content;
        let (_, shown) = shown.split_once(":\n").unwrap_or(("", shown.as_str()));
        assert_eq!(shown, self.model.view(directory), "{directory:?} after {told}");
        let listed = self.all(&format!("memories?depth=1&limit=100&path_prefix={directory}/")).await;
        let listed: Vec<_> = listed.iter().map(|item| item["path"].as_str().unwrap()).collect();
        assert_eq!(listed, self.model.listing(directory), "{directory:?} after {told}");
    }

    /// Every item of a listing, page after page.
    async fn all(&self, listing: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut page = String::new();
        loop {
            let answer = self.clients[0].get(&format!("{}/{listing}{page}", self.store)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            let mut body = answer.json();
            items.append(body["data"].as_array_mut().unwrap());
            match body["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return items,
            }
        }
    }
}

fn input_of(tool: &Tool) -> Value {
    let at = |path: &str| format!("/memories{path}");
    match tool {
        Tool::Create(path, content) => json!({"command": "create", "path": at(path), "file_text": content}),
        Tool::Replace(path, old, new) => {
            json!({"command": "str_replace", "path": at(path), "old_str": old, "new_str": new})
        }
        Tool::Insert(path, line, text) => {
            json!({"command": "insert", "path": at(path), "insert_line": line, "insert_text": text})
        }
        Tool::Delete(path) => json!({"command": "delete", "path": at(path)}),
        Tool::Rename(from, to) => json!({"command": "rename", "old_path": at(from), "new_path": at(to)}),
        Tool::Append(path, text) => json!({
            "type": "tool_use", "name": "memory_append", "input": {"path": at(path), "content": text},
        }),
    }
}

fn any_history_is_that_of_the_model(pair: Pair) {
    let runtime = Arc::new(Runtime::new().unwrap());
    let (deployment, mut server, clients) = runtime.block_on(async {
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let tenant = provision.tenant(keepsake_core::limits::LimitOverrides::default()).await;
        let second_key = provision.key(tenant.id, &keepsake_index::Scope::ALL, None).await;
        provision.close().await;
        let server = deployment.start().await;
        let first = server.client(&tenant);
        let second = first.with_key(&second_key);
        (deployment, server, [first, second])
    });
    let step = (any_step(), 0_usize..2, prop::option::of(0_u64..u64::MAX));
    let histories = prop::collection::vec(step, STEPS);
    let config =
        Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let seed = Seed::new();
    let tried = seed.runner(config).run(&histories, |steps| {
        runtime.block_on(async {
            let mut history = History::begin(&clients).await;
            for (step, client, key) in steps {
                history.step(step, client, key.map(|key| format!("key {key}"))).await;
            }
        });
        Ok(())
    });
    if tried.is_ok() {
        runtime.block_on(async {
            server.end().await;
            let config = server.config_file();
            let verified = keepsake(&["verify", "--config", config.to_str().unwrap()]).await.ok();
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
fn any_history_is_that_of_the_model_on_postgres() {
    any_history_is_that_of_the_model(Pair::Postgres);
}

#[test]
#[ignore = "as the one above"]
fn any_history_is_that_of_the_model_on_sqlite_and_s3() {
    any_history_is_that_of_the_model(Pair::SqliteS3);
}
