//! The calls of the benchmark, for the server and for the floor.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use keepsake_config::Failure;
use keepsake_core::{StoreId, TenantId};

use super::plan::{Command, Scenario};
use super::words::Numbers;

/// The number of different contents; memories share them.
const CONTENTS: usize = 64;
/// Length of a line of content, including the newline.
const LINE_BYTES: usize = 64;
/// Two texts of the same length; an edit replaces one by the other.
const STATES: [&str; 2] = ["state alpha", "state omega"];
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
    /// The memory whose state an edit changes.
    edits: Option<usize>,
    side: Side,
}

/// The index of a connection, and its random numbers.
pub(super) struct Worker {
    index: usize,
    of: usize,
    numbers: Numbers,
}

impl Worker {
    pub(super) fn new(index: usize, of: usize) -> Self {
        // An odd seed, the same in every run, so that runs are comparable.
        Self {
            index,
            of,
            numbers: Numbers::new(2 * index as u64 + 1),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        // The high bits of xorshift are more random.
        usize::try_from((self.numbers.next() >> 16) % bound).unwrap_or_default()
    }
}

struct Prepared {
    tool_calls: Uri,
    api_key: HeaderValue,
    /// `{tenant}/{store}` as the floor's routes take them.
    floor_key: String,
}

/// The calls over one layout of stores.
pub(super) struct Workload {
    stores: Vec<Prepared>,
    /// The first segment of all paths of this run.
    folder: String,
    /// Contents as JSON strings without their quotes.
    contents: Vec<String>,
    /// The index in [`STATES`] of each memory.
    states: Vec<AtomicBool>,
    seeded: AtomicUsize,
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
        let prepare = |store: &BenchStore| {
            let tool_calls = format!("/v1/memory_stores/{}/tool_calls", store.store_id);
            let tenant = store.tenant_id.map(TenantId::uuid).unwrap_or_default();
            Ok(Prepared {
                tool_calls: Uri::try_from(tool_calls).map_err(Failure::of("a store's id"))?,
                api_key: HeaderValue::from_str(&store.api_key).map_err(Failure::of("an API key"))?,
                floor_key: format!("{tenant}/{}", store.store_id.uuid()),
            })
        };
        Ok(Self {
            stores: stores.iter().map(prepare).collect::<Result<_, Failure>>()?,
            folder: format!("bench-{run}"),
            contents: (0..CONTENTS)
                .map(|seed| escaped(&content(seed, content_bytes)))
                .collect(),
            states: (0..memories).map(|_| AtomicBool::new(false)).collect(),
            seeded: AtomicUsize::new(0),
            created: AtomicU64::new(0),
            view_answer_bytes: AtomicUsize::new(0),
        })
    }

    /// How many stores there are.
    pub(super) fn store_count(&self) -> usize {
        self.stores.len()
    }

    /// The call that creates the next memory that is read and edited.
    pub(super) fn seed(&self, host: &HeaderValue) -> Option<Call> {
        let memory = self.seeded.fetch_add(1, Ordering::Relaxed);
        if memory >= self.states.len() {
            return None;
        }
        let body = self.create_body(&self.memory_path(memory), memory);
        Some(self.call(
            Side::Server,
            Command::Create,
            host,
            memory % self.stores.len(),
            "",
            body,
        ))
    }

    /// The next call of a scenario.
    pub(super) fn next(
        &self,
        side: Side,
        scenario: Scenario,
        host: &HeaderValue,
        worker: &mut Worker,
    ) -> Call {
        let command = scenario.command(worker.numbers.next() >> 16);
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
            Command::View => {
                let memory = worker.below(self.states.len());
                let path = self.memory_path(memory);
                let body = format!(r#"{{"command":"view","path":"/memories{path}"}}"#);
                self.call(side, command, host, memory % self.stores.len(), &path, body)
            }
            Command::ViewDirectory => {
                let memory = worker.below(self.states.len());
                let path = self.memory_path(memory);
                let body = r#"{"command":"view","path":"/memories"}"#.to_owned();
                self.call(side, command, host, memory % self.stores.len(), &path, body)
            }
            Command::StrReplace => {
                // Connections never edit the same memory.
                let memory = worker.index + worker.of * worker.below(self.states.len() / worker.of);
                let path = self.memory_path(memory);
                let is_turned = self.states[memory].load(Ordering::Relaxed);
                let (old, new) = (STATES[usize::from(is_turned)], STATES[usize::from(!is_turned)]);
                let body = format!(
                    r#"{{"command":"str_replace","path":"/memories{path}","old_str":"{old}","new_str":"{new}"}}"#
                );
                let mut call = self.call(side, command, host, memory % self.stores.len(), &path, body);
                call.expected.edits = (side == Side::Server).then_some(memory);
                call
            }
            Command::Create => {
                let number = self.created.fetch_add(1, Ordering::Relaxed);
                let path = format!("/{}/c{number:010}.md", self.folder);
                let content = usize::try_from(number).unwrap_or_default();
                let body = self.create_body(&path, content);
                self.call(side, command, host, content % self.stores.len(), &path, body)
            }
        }
    }

    fn call(
        &self,
        side: Side,
        command: Command,
        host: &HeaderValue,
        store: usize,
        path: &str,
        body: String,
    ) -> Call {
        let store = &self.stores[store];
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = match side {
            Side::Server => store.tool_calls.clone(),
            Side::Floor => floor_uri(command, &store.floor_key, path),
        };
        let headers = request.headers_mut();
        headers.insert(HOST, host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-api-key", store.api_key.clone());
        Call {
            request,
            expected: Expected {
                command,
                edits: None,
                side,
            },
        }
    }

    fn memory_path(&self, memory: usize) -> String {
        format!("/{}/m{memory:010}.md", self.folder)
    }

    fn create_body(&self, path: &str, content: usize) -> String {
        let text = &self.contents[content % self.contents.len()];
        format!(r#"{{"command":"create","path":"/memories{path}","file_text":"{text}"}}"#)
    }

    /// Checks a response, and records the new state of an edited memory.
    ///
    /// # Errors
    /// The unexpected response.
    pub(super) fn check(&self, expected: &Expected, status: StatusCode, body: &[u8]) -> Result<(), String> {
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", String::from_utf8_lossy(body)));
        }
        if expected.side == Side::Floor {
            return Ok(());
        }
        if !is_success(body) {
            return Err(String::from_utf8_lossy(body).into_owned());
        }
        if let Some(memory) = expected.edits {
            self.states[memory].fetch_xor(true, Ordering::Relaxed);
        }
        if expected.command == Command::View {
            let (seen, now) = (&self.view_answer_bytes, body.len());
            let first = seen.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            if first.is_err_and(|before| before != now) {
                return Err("the size of a view's response differs from others".to_owned());
            }
        }
        Ok(())
    }
}

fn floor_uri(command: Command, key: &str, path: &str) -> Uri {
    let route = match command {
        Command::View | Command::ViewDirectory => "view",
        Command::StrReplace => "edit",
        Command::Create => "create",
    };
    // Ids and simple names are always a valid path.
    format!("/{route}/{key}{path}").parse().unwrap_or_default()
}

/// Whether a tool result is a success.
fn is_success(body: &[u8]) -> bool {
    // Quotes inside strings are escaped, so this can only be the field.
    body.windows(SUCCESS.len())
        .rev()
        .take(SUCCESS_WITHIN_BYTES)
        .any(|window| window == SUCCESS)
        || serde_json::from_slice::<serde_json::Value>(body)
            .is_ok_and(|result| result.get("is_error") == Some(&serde_json::Value::Bool(false)))
}

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
    fn every_memory_is_seeded_once() {
        let workload = workload();
        assert_eq!(std::iter::from_fn(|| workload.seed(&host())).count(), 8);
        assert!(workload.seed(&host()).is_none());
    }

    #[test]
    fn each_connection_edits_its_memory_and_advances_only_on_success() {
        let workload = workload();
        let mut worker = Worker::new(1, 4);
        for _ in 0..20 {
            let call = workload.call_of(Side::Server, Command::StrReplace, &host(), &mut worker);
            let expected = call.expected;
            let memory = expected.edits.unwrap();
            assert!([1, 5].contains(&memory));
            let before = workload.states[memory].load(Ordering::Relaxed);
            workload
                .check(&expected, StatusCode::OK, br#"{"is_error":true}"#)
                .unwrap_err();
            assert_eq!(workload.states[memory].load(Ordering::Relaxed), before);
            workload
                .check(&expected, StatusCode::OK, br#"{"is_error":false}"#)
                .unwrap();
            assert_ne!(workload.states[memory].load(Ordering::Relaxed), before);
        }
    }

    #[test]
    fn only_results_without_error_count_as_success() {
        assert!(is_success(
            br#"{"type":"tool_result","content":"x","is_error":false}"#
        ));
        assert!(is_success(br#"{ "is_error" : false, "content": "x" }"#));
        assert!(!is_success(
            br#"{"type":"tool_result","content":"x","is_error":true}"#
        ));
        assert!(!is_success(
            br#"{"content":"\"is_error\":false","is_error":true}"#
        ));
        assert!(!is_success(b"{}"));
    }

    #[test]
    fn view_of_incomplete_content_counts_as_failure() {
        let workload = workload();
        let expected = workload
            .call_of(Side::Server, Command::View, &host(), &mut Worker::new(0, 1))
            .expected;
        let good = br#"{"content":"abc","is_error":false}"#;
        workload.check(&expected, StatusCode::OK, good).unwrap();
        workload.check(&expected, StatusCode::OK, good).unwrap();
        workload
            .check(&expected, StatusCode::OK, br#"{"content":"ab","is_error":false}"#)
            .unwrap_err();
        workload
            .check(&expected, StatusCode::NOT_FOUND, good)
            .unwrap_err();
    }

    #[test]
    fn floor_requests_have_ids_and_path() {
        let workload = workload();
        let request = workload
            .call_of(Side::Floor, Command::Create, &host(), &mut Worker::new(0, 1))
            .request;
        assert_eq!(
            request.uri().path(),
            "/create/00000000-0000-0000-0000-000000000001/00000000-0000-0000-0000-000000000002/bench-run/c0000000000.md"
        );
    }
}
