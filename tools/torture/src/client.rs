//! Calls with retries, whose outcomes are logged for the checker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use keepsake_testkit::history::{Call, Change, History, Interval, ObservedMemory, Outcome, Read, Target};
use keepsake_testkit::locked;
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::random::Random;

/// No answer may take longer than this: the server's deadline and some slack.
const PATIENCE: Duration = Duration::from_secs(70);
/// Through a proxy that may swallow the answer.
const PATIENCE_BEHIND_PROXY: Duration = Duration::from_secs(5);
/// How long a call is sent again whose outcome is not known.
const RETRIED_FOR: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    /// Whether a fault proxy is in between.
    pub(crate) is_faulty: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) key: String,
    pub(crate) started_at: Instant,
    pub(crate) counts: Mutex<Counts>,
    numbers: AtomicU64,
}

/// Counts of calls by outcome.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) operations: u64,
    /// Contents that reads returned, and reads that were not answered.
    pub(crate) reads: u64,
    pub(crate) unread: u64,
    pub(crate) attempts: u64,
    pub(crate) cancelled: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// How long the slowest answer took, and what it was.
    pub(crate) slowest: (Duration, String),
    /// Exports that had all memories, and those that ended with an error.
    pub(crate) exports: u64,
    pub(crate) failed_exports: u64,
    /// Answers that no client may get, and everything found later.
    pub(crate) violations: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct StoreLog {
    pub(crate) store_id: String,
    pub(crate) history: Mutex<History>,
}

/// One client: its connections, and its choices.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) random: Random,
    http: reqwest::Client,
    endpoint: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) idempotency_key: Option<String>,
    /// A session's token instead of the key.
    pub(crate) token: Option<String>,
    /// Whether the same request may be sent again when its outcome is unknown.
    pub(crate) is_repeatable: bool,
}

/// How a logical call ended, with the last answer.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) at: Interval,
    pub(crate) outcome: Ending,
    pub(crate) body: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    /// With this status, and nothing can have landed.
    Refused(u16),
    Unknown,
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
            idempotency_key: None,
            token: None,
            is_repeatable: true,
        }
    }

    pub(crate) fn post(path: String, body: Value) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(path) }
    }

    /// A POST that takes effect once, however often it is sent.
    pub(crate) fn once(path: String, body: Value, key: String) -> Self {
        Self { idempotency_key: Some(key), ..Self::post(path, body) }
    }
}

impl Shared {
    pub(crate) fn new(endpoints: Vec<Endpoint>, key: &str) -> Arc<Self> {
        Arc::new(Self {
            endpoints,
            key: key.to_owned(),
            started_at: Instant::now(),
            counts: Mutex::default(),
            numbers: AtomicU64::new(1),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes something that must not happen.
    pub(crate) fn report(&self, violation: String) {
        self.counts().violations.push(violation);
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        locked(&self.counts)
    }
}

impl StoreLog {
    pub(crate) fn new(store_id: &str) -> Arc<Self> {
        Arc::new(Self { store_id: store_id.to_owned(), history: Mutex::default() })
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        locked(&self.history)
    }
}

impl Client {
    pub(crate) fn new(shared: &Arc<Shared>, mut random: Random) -> Self {
        let endpoints = u64::try_from(shared.endpoints.len()).unwrap();
        let endpoint = usize::try_from(random.below(endpoints)).unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { shared: Arc::clone(shared), random, http, endpoint }
    }

    /// Makes a change, as one call or as a batch of one, and logs it with its outcome.
    pub(crate) async fn change(
        &mut self,
        log: &StoreLog,
        number: u64,
        change: Change,
        request: &Request,
    ) -> Ended {
        let mut ended = self.call(request).await;
        if ended.body["type"] == "memory_batch" {
            ended.body = ended.body["data"][0]["memory"].take();
        }
        let outcome = match ended.outcome {
            Ending::Done => Outcome::Done {
                version_id: match change {
                    Change::Redact { .. } => None,
                    _ => ended.body["memory_version_id"].as_str().map(str::to_owned),
                },
            },
            Ending::Refused(_) => Outcome::Refused,
            Ending::Unknown => Outcome::Unknown,
        };
        {
            let mut counts = self.shared.counts();
            match ended.outcome {
                Ending::Done => counts.done += 1,
                Ending::Refused(_) => counts.refused += 1,
                Ending::Unknown => counts.unknown += 1,
            }
        }
        log.history().calls.push(Call { number, at: ended.at, change, outcome });
        ended
    }

    pub(crate) async fn read(&mut self, log: &StoreLog, memory_id: &str) -> Option<Value> {
        let path = format!("/v1/memory_stores/{}/memories/{memory_id}", log.store_id);
        let ended = self.call(&Request::get(path)).await;
        let saw = match ended.outcome {
            Ending::Done => ObservedMemory::Content(ended.body["content"].as_str()?.to_owned()),
            Ending::Refused(404) => ObservedMemory::Absent,
            Ending::Refused(_) | Ending::Unknown => return self.unread(),
        };
        self.saw(log, ended.at, Target::Memory(memory_id.to_owned()), saw);
        (ended.outcome == Ending::Done).then_some(ended.body)
    }

    pub(crate) fn saw(&self, log: &StoreLog, at: Interval, target: Target, saw: ObservedMemory) {
        self.shared.counts().reads += 1;
        log.history().reads.push(Read { at, target, saw });
    }

    pub(crate) fn unread<T>(&self) -> Option<T> {
        self.shared.counts().unread += 1;
        None
    }

    /// Sends a request until its outcome is known, or for [`RETRIED_FOR`].
    pub(crate) async fn call(&mut self, request: &Request) -> Ended {
        let began = self.shared.now();
        let mut may_have_landed = false;
        let mut attempts = 0;
        let (outcome, body) = loop {
            attempts += 1;
            match self.attempt(request, attempts == 1).await {
                Some((200, body)) => {
                    let ending = match (body["is_error"] == true, may_have_landed) {
                        (false, _) => Ending::Done,
                        (true, true) => Ending::Unknown,
                        (true, false) => Ending::Refused(200),
                    };
                    break (ending, body);
                }
                // Nothing was done, and it can be sent again.
                Some((429 | 529, _)) => {}
                Some((status @ 400..=499, body)) if status != 408 => {
                    let is_unknown = may_have_landed && request.method != Method::GET;
                    break (if is_unknown { Ending::Unknown } else { Ending::Refused(status) }, body);
                }
                _ => {
                    may_have_landed = true;
                    self.endpoint = (self.endpoint + 1) % self.shared.endpoints.len();
                }
            }
            let is_repeatable = request.is_repeatable || !may_have_landed;
            if !is_repeatable || self.shared.now().saturating_sub(began) > RETRIED_FOR {
                break (Ending::Unknown, Value::Null);
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.shared.counts().operations += 1;
        let at = Interval { began, ended: self.shared.now() };
        Ended { at, outcome, body }
    }

    /// Sends a request once; now and then the client goes away before the answer.
    ///
    /// `None`: no answer, or a broken one.
    async fn attempt(&mut self, request: &Request, may_cancel: bool) -> Option<(u16, Value)> {
        let Endpoint { url, is_faulty } = self.shared.endpoints[self.endpoint].clone();
        let patience = if is_faulty { PATIENCE_BEHIND_PROXY } else { PATIENCE };
        let cancel_after = (may_cancel && self.random.percent(4))
            .then(|| Duration::from_micros(200 + self.random.below(30_000)));
        let mut sent = self.http.request(request.method.clone(), format!("{url}{}", request.path));
        sent = match &request.token {
            Some(token) => sent.bearer_auth(token),
            None => sent.header("x-api-key", &self.shared.key),
        };
        if let Some(key) = &request.idempotency_key {
            sent = sent.header("idempotency-key", key);
        }
        if let Some(body) = &request.body {
            sent = sent.json(body);
        }
        let began_at = Instant::now();
        let answer = async {
            let response = sent.send().await.ok()?;
            let status = response.status().as_u16();
            let text = response.text().await.ok()?;
            Some((status, text))
        };
        let answered = tokio::time::timeout(cancel_after.unwrap_or(patience), answer).await;
        self.count_attempt(request, began_at.elapsed(), cancel_after.is_some(), is_faulty, &answered);
        let (status, text) = answered.ok()??;
        Some((status, serde_json::from_str(&text).ok()?))
    }

    fn count_attempt(
        &self,
        request: &Request,
        took: Duration,
        is_cancelling: bool,
        is_faulty: bool,
        answered: &Result<Option<(u16, String)>, tokio::time::error::Elapsed>,
    ) {
        let at = self.shared.now();
        let mut counts = self.shared.counts();
        counts.attempts += 1;
        let what = || format!("{} {} at {at:?}", request.method, request.path);
        match answered {
            Ok(Some((status, text))) => {
                *counts.statuses.entry(*status).or_default() += 1;
                if took > counts.slowest.0 {
                    // An answer that is an error says why on its one line.
                    let why = if *status < 400 { "" } else { text };
                    counts.slowest = (took, format!("{}: {status} {why}", what()));
                }
                if *status == 500 {
                    counts.violations.push(format!("{} was answered 500: {text}", what()));
                }
            }
            Ok(None) => {}
            Err(_) if is_cancelling => counts.cancelled += 1,
            Err(_) if is_faulty => {}
            Err(_) => counts.violations.push(format!("{} was not answered within {took:?}", what())),
        }
    }
}
