//! The calls of the benchmark, for the server and for the floor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HeaderValue;
use hyper::{Request, StatusCode};
use keepsake_config::Failure;
use keepsake_core::{StoreId, TenantId};
use serde_json::Value;

use super::plan::{Command, PAGE, Scenario};
use super::requests::{Operation, PreparedStore};
use super::words::Numbers;

/// The number of different contents; memories share them.
const CONTENTS: usize = 64;
/// Length of a line of content, including the newline.
const LINE_BYTES: usize = 64;
/// Two texts of the same length; an edit replaces one by the other.
const STATES: [&str; 2] = ["state alpha", "state omega"];
/// The number of words of a search.
const SEARCHED_WORDS: usize = 3;
const WORDS: [&str; 24] = [
    "agent", "answer", "budget", "customer", "deadline", "deploy", "email", "error", "invoice", "language",
    "meeting", "memory", "office", "paris", "prefers", "project", "release", "report", "review", "server",
    "ticket", "upgrade", "version", "weekly",
];

/// A store and its credentials.
#[derive(Debug, Clone)]
pub(super) struct BenchStore {
    pub(super) store_id: StoreId,
    pub(super) api_key: String,
    /// For the floor; unknown if only credentials were given.
    pub(super) tenant_id: Option<TenantId>,
}

/// The target of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Floor,
    /// The peer that is a server too.
    AiMemory,
}

/// A request and the check of its response.
pub(super) struct Call {
    pub(super) request: Request<Full<Bytes>>,
    pub(super) expected: Expected,
}

/// The call of a response, for [`Workload::check`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    command: Command,
    /// The memory that the call creates to start with, or edits.
    memory: Option<usize>,
    side: Side,
}

/// The index of a connection, its random numbers and the number of its calls.
pub(super) struct Worker {
    index: usize,
    of: usize,
    numbers: Numbers,
    step: usize,
}

impl Worker {
    pub(super) fn new(index: usize, of: usize) -> Self {
        // An odd seed, the same in every run, so that runs are comparable.
        Self {
            index,
            of,
            numbers: Numbers::new(2 * index as u64 + 1),
            // The turns of agents are not in step.
            step: index * 7,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        // The high bits of xorshift are more random.
        usize::try_from((self.numbers.next() >> 16) % bound).unwrap_or_default()
    }

    /// A number below `bound`, small ones far more often (Zipf's law).
    fn skewed_below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.numbers.skewed(bound)).unwrap_or_default()
    }
}

/// The calls over one layout of stores.
pub(super) struct Workload {
    stores: Vec<PreparedStore>,
    /// The first segment of all paths of this run.
    folder: String,
    /// Contents as JSON strings without their quotes.
    contents: Vec<String>,
    /// The index in [`STATES`] of each memory.
    states: Vec<AtomicBool>,
    /// The id of each memory at ai-memory.
    peer_ids: Vec<OnceLock<String>>,
    is_skewed: bool,
    seeded: AtomicUsize,
    read: AtomicUsize,
    created: AtomicU64,
    /// Size of the response to a view, which is the same for every memory; 0 before
    /// the first.
    view_answer_bytes: AtomicUsize,
}

impl Workload {
    /// Calls for `stores`, which get `memories` in total.
    ///
    /// # Errors
    /// [`Failure`] if a key is not a valid header value.
    pub(super) fn new(
        stores: &[BenchStore],
        run: &str,
        memories: usize,
        content_bytes: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            stores: stores.iter().map(PreparedStore::new).collect::<Result<_, Failure>>()?,
            folder: format!("bench-{run}"),
            contents: (0..CONTENTS).map(|seed| escaped(&content(seed, content_bytes))).collect(),
            states: (0..memories).map(|_| AtomicBool::new(false)).collect(),
            peer_ids: (0..memories).map(|_| OnceLock::new()).collect(),
            is_skewed: false,
            seeded: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            created: AtomicU64::new(0),
            view_answer_bytes: AtomicUsize::new(0),
        })
    }

    /// The same, with some memories read far more often than others.
    pub(super) fn skewed(mut self, is_skewed: bool) -> Self {
        self.is_skewed = is_skewed;
        self
    }

    /// How many stores there are.
    pub(super) fn store_count(&self) -> usize {
        self.stores.len()
    }

    /// How many memories there are to start with.
    pub(super) fn memory_count(&self) -> usize {
        self.states.len()
    }

    /// The call that creates the next memory that is read and edited.
    pub(super) fn seed(&self, side: Side, host: &HeaderValue) -> Option<Call> {
        let memory = self.seeded.fetch_add(1, Ordering::Relaxed);
        (memory < self.states.len()).then(|| {
            let mut call = self.call_at(side, Command::Create, host, memory, &self.memory_path(memory), "");
            call.expected.memory = Some(memory);
            call
        })
    }

    /// The call that reads the next memory, each once.
    pub(super) fn read_next(&self, side: Side, host: &HeaderValue) -> Option<Call> {
        let memory = self.read.fetch_add(1, Ordering::Relaxed);
        (memory < self.states.len())
            .then(|| self.call_at(side, Command::View, host, memory, &self.memory_path(memory), ""))
    }

    /// The next call of a scenario.
    pub(super) fn next(
        &self,
        side: Side,
        scenario: Scenario,
        host: &HeaderValue,
        worker: &mut Worker,
    ) -> Call {
        let command = scenario.command(worker.numbers.next() >> 16, worker.step);
        worker.step += 1;
        self.call_of(side, command, host, worker)
    }

    /// The next call of a command.
    pub(super) fn call_of(
        &self,
        side: Side,
        command: Command,
        host: &HeaderValue,
        worker: &mut Worker,
    ) -> Call {
        match command {
            Command::StrReplace => {
                // Connections never edit the same memory.
                let memory = worker.index + worker.of * worker.below(self.states.len() / worker.of);
                let mut call = self.call_at(side, command, host, memory, &self.memory_path(memory), "");
                call.expected.memory = (side != Side::Floor).then_some(memory);
                call
            }
            Command::Create => {
                let number = self.created.fetch_add(1, Ordering::Relaxed);
                let path = format!("/new-{}/c{number:010}.md", self.folder);
                let memory = usize::try_from(number).unwrap_or_default();
                self.call_at(side, command, host, memory, &path, "")
            }
            _ => {
                let memory = if self.is_skewed {
                    worker.skewed_below(self.states.len())
                } else {
                    worker.below(self.states.len())
                };
                let words: Vec<_> = (0..SEARCHED_WORDS).map(|_| WORDS[worker.below(WORDS.len())]).collect();
                self.call_at(side, command, host, memory, &self.memory_path(memory), &words.join("+"))
            }
        }
    }

    fn call_at(
        &self,
        side: Side,
        command: Command,
        host: &HeaderValue,
        memory: usize,
        path: &str,
        words: &str,
    ) -> Call {
        let state = self.states.get(memory).is_some_and(|state| state.load(Ordering::Relaxed));
        let content = &self.contents[memory % self.contents.len()];
        let edited = (side == Side::AiMemory && command == Command::StrReplace && !state)
            .then(|| content.replacen(STATES[0], STATES[1], 1));
        let operation = Operation {
            command,
            directory: path.rsplit_once('/').map_or("", |(directory, _)| directory),
            path,
            content: edited.as_ref().unwrap_or(content),
            edit: [STATES[usize::from(state)], STATES[usize::from(!state)]],
            words,
            peer_id: self.peer_ids.get(memory).and_then(OnceLock::get).map_or("", String::as_str),
        };
        Call {
            request: operation.request(side, &self.stores[memory % self.stores.len()], host),
            expected: Expected { command, memory: None, side },
        }
    }

    /// Memories of a store are in directories of [`PAGE`].
    fn memory_path(&self, memory: usize) -> String {
        let directory = memory / self.stores.len() / PAGE;
        format!("/{}/d{directory:06}/m{memory:010}.md", self.folder)
    }

    /// Checks a response, and records the new state of an edited memory.
    ///
    /// # Errors
    /// The unexpected response.
    pub(super) fn check(&self, expected: &Expected, status: StatusCode, body: &[u8]) -> Result<(), String> {
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(body)));
        }
        if expected.side == Side::Server {
            self.check_answer(expected.command, body)?;
        }
        let Some(memory) = expected.memory else {
            return Ok(());
        };
        if expected.command == Command::StrReplace {
            self.states[memory].fetch_xor(true, Ordering::Relaxed);
        } else if expected.side == Side::AiMemory {
            let created: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
            let id = created["id"].as_str().ok_or("ai-memory answered without an id")?;
            self.peer_ids[memory].set(id.to_owned()).map_err(|_| "a memory was made twice")?;
        }
        Ok(())
    }

    fn check_answer(&self, command: Command, body: &[u8]) -> Result<(), String> {
        if matches!(command, Command::List | Command::Search) {
            let is_filled = body.windows(FILLED.len()).any(|window| window == FILLED);
            return if is_filled { Ok(()) } else { Err("a list is empty".to_owned()) };
        }
        if !is_success(body) {
            return Err(String::from_utf8_lossy(body).into_owned());
        }
        if matches!(command, Command::View | Command::ViewUncached) {
            let (seen, now) = (&self.view_answer_bytes, body.len());
            let first = seen.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            if first.is_err_and(|before| before != now) {
                return Err("the size of a view's response differs from others".to_owned());
            }
        }
        Ok(())
    }
}

/// Whether a tool result is a success.
fn is_success(body: &[u8]) -> bool {
    // Quotes inside strings are escaped, so this can only be the field.
    body.windows(SUCCESS.len()).rev().take(SUCCESS_WITHIN_BYTES).any(|window| window == SUCCESS)
        || serde_json::from_slice::<serde_json::Value>(body)
            .is_ok_and(|result| result.get("is_error") == Some(&serde_json::Value::Bool(false)))
}

/// A list with at least one object.
const FILLED: &[u8] = br#""data":[{"#;
const SUCCESS: &[u8] = br#""is_error":false"#;
/// The end of the body in which the field is searched before parsing the body.
const SUCCESS_WITHIN_BYTES: usize = 64;

/// Lines of words, the same in every run, with one of the two states first.
fn content(seed: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + LINE_BYTES);
    text.push_str(STATES[0]);
    let mut word = Worker::new(seed, 1);
    while text.len() < bytes {
        let mut line = String::from(if text.contains('\n') { "" } else { " " });
        while line.len() < LINE_BYTES {
            line.push_str(WORDS[word.below(WORDS.len())]);
            line.push(' ');
        }
        line.truncate(LINE_BYTES - 1 - text.len() % LINE_BYTES);
        text.push_str(&line);
        text.push('\n');
    }
    text.truncate(bytes);
    text
}

fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> Workload {
        let store = BenchStore {
            store_id: StoreId::from_uuid(uuid::Uuid::from_u128(2)),
            api_key: "ks_live_x".to_owned(),
            tenant_id: Some(TenantId::from_uuid(uuid::Uuid::from_u128(1))),
        };
        Workload::new(&[store.clone(), store], "run", 8, 2_048).unwrap()
    }

    fn host() -> HeaderValue {
        HeaderValue::from_static("127.0.0.1:1")
    }

    #[test]
    fn contents_have_a_fixed_length_and_line_count() {
        for bytes in [20, 2_047, 2_048, 100_000] {
            let lines = content(0, bytes).matches('\n').count();
            for seed in 0..CONTENTS {
                let text = content(seed, bytes);
                assert_eq!((text.len(), text.matches('\n').count()), (bytes, lines));
                assert_eq!(text.matches(STATES[0]).count(), 1);
            }
        }
        assert_ne!(content(0, 2_048), content(1, 2_048));
        assert!(content(0, 2_048).lines().all(|line| line.len() == LINE_BYTES - 1));
    }

    #[test]
    fn each_connection_edits_its_memory_and_advances_only_on_success() {
        let workload = workload();
        let mut worker = Worker::new(1, 4);
        for _ in 0..20 {
            let call = workload.call_of(Side::Server, Command::StrReplace, &host(), &mut worker);
            let expected = call.expected;
            let memory = expected.memory.unwrap();
            assert!([1, 5].contains(&memory));
            let before = workload.states[memory].load(Ordering::Relaxed);
            workload.check(&expected, StatusCode::OK, br#"{"is_error":true}"#).unwrap_err();
            assert_eq!(workload.states[memory].load(Ordering::Relaxed), before);
            workload.check(&expected, StatusCode::OK, br#"{"is_error":false}"#).unwrap();
            assert_ne!(workload.states[memory].load(Ordering::Relaxed), before);
        }
    }

    #[test]
    fn only_results_without_error_count_as_success() {
        assert!(is_success(br#"{"type":"tool_result","content":"x","is_error":false}"#));
        assert!(is_success(br#"{ "is_error" : false, "content": "x" }"#));
        assert!(!is_success(br#"{"type":"tool_result","content":"x","is_error":true}"#));
        assert!(!is_success(br#"{"content":"\"is_error\":false","is_error":true}"#));
        assert!(!is_success(b"{}"));
    }

    #[test]
    fn view_of_incomplete_content_counts_as_failure() {
        let workload = workload();
        let expected =
            workload.call_of(Side::Server, Command::View, &host(), &mut Worker::new(0, 1)).expected;
        let good = br#"{"content":"abc","is_error":false}"#;
        workload.check(&expected, StatusCode::OK, good).unwrap();
        workload.check(&expected, StatusCode::OK, good).unwrap();
        workload.check(&expected, StatusCode::OK, br#"{"content":"ab","is_error":false}"#).unwrap_err();
        workload.check(&expected, StatusCode::NOT_FOUND, good).unwrap_err();
    }
}
