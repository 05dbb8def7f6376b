//! All instruments, created once for each process.
//!
//! Names are those of OpenTelemetry; Prometheus reads them with underscores,
//! the unit and `_total`: `keepsake.http.request.duration` in seconds is
//! `keepsake_http_request_duration_seconds`. Every label has few values: routes
//! are templates, and no label names a tenant.

mod instruments;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use keepsake_core::{MeaningReason, Quota};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Counter, Meter};
use serde::{Deserialize, Serialize};

use instruments::Instruments;

/// The status label of a request whose client disconnected before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The label of a search that used meaning; of others it is the reason.
const MEANING_USED: &str = "used";

/// Records all metrics; cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Instruments>);

/// Instruments that discard everything.
impl Default for Metrics {
    fn default() -> Self {
        Self::new(&opentelemetry::global::meter("keepsake"))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

keepsake_core::named_enum! {
    /// The outcome of a call of the index or the blob store.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Outcome {
        /// An answer, which may be that the object does not exist.
        Ok = "ok",
        /// The store could not be reached or did not answer in time.
        Unavailable = "unavailable",
        /// The store's disk is full, read-only or failing.
        DiskFull = "disk_full",
        /// The store refuses the credentials.
        Denied = "denied",
        /// The configuration is wrong, for example the bucket does not exist.
        Misconfigured = "misconfigured",
        Error = "error",
    }
}

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Cache {
        /// Content of blobs.
        Content = "content",
        /// Principals by API key.
        ApiKey = "api_key",
        /// Principals by token.
        Token = "token",
        /// Search indexes of stores.
        Search = "search",
    }
}

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Retried {
        /// A commit after a lost race: the head had changed.
        Commit = "commit",
        /// A write whose blob was condemned before its commit.
        Blob = "blob",
        /// A read whose content did not have the recorded hash.
        DamagedRead = "damaged_read",
    }
}

keepsake_core::named_enum! {
    /// Why a change was answered with a conflict.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Conflict {
        Precondition = "precondition",
        /// Another memory occupies the path.
        Path = "path",
        /// It lost too many races for the same memory.
        Contended = "contended",
        /// The state of the object does not allow it.
        State = "state",
    }
}

keepsake_core::named_enum! {
    /// Why a request was not admitted.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Refused {
        /// The tenant exceeds its rate limit.
        Rate = "rate",
        /// Too many requests are running.
        InFlight = "in_flight",
    }
}

keepsake_core::named_enum! {
    /// What was embedded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Embedded {
        Query = "query",
        Memories = "memories",
    }
}

keepsake_core::named_enum! {
    /// Why memories were not embedded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum EmbeddingFailure {
        /// The content of a memory is missing or damaged; the memory is left out.
        Content = "content",
        /// The model refuses passages of a memory; these are left out.
        Text = "text",
        /// The endpoint did not answer in time.
        Timeout = "timeout",
        /// The model or the endpoint failed.
        Model = "model",
        /// The index or the object store failed.
        Storage = "storage",
    }
}

#[derive(Debug)]
pub struct JobRun<'a> {
    pub job: &'static str,
    pub has_succeeded: bool,
    pub took: Duration,
    /// When it ended, in seconds since 1970.
    pub ended_at_seconds: f64,
    /// Counters of its work.
    pub items: &'a [(&'a str, u64)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolState {
    pub pool: &'static str,
    pub in_use: u64,
    /// Open connections that no call uses.
    pub idle: u64,
    /// Calls that wait for a connection.
    pub waiting: u64,
    pub max: u64,
}

/// What all tenants together store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTotals {
    /// Stores that are not deleted.
    pub stores: u64,
    pub memories: u64,
    /// Retained versions, including those of live memories.
    pub versions: u64,
    /// Bytes of live memories.
    pub memory_bytes: u64,
    /// Bytes of all retained content.
    pub version_bytes: u64,
}

/// A measured request. Dropping it without [`Self::ended`] records that its
/// client disconnected.
#[derive(Debug)]
pub struct RequestUnderWay {
    metrics: Metrics,
    route: Arc<str>,
    method: &'static str,
    began_at: Instant,
    has_ended: bool,
}

impl Metrics {
    /// Creates every instrument. Counters start with zeros for all labels, so that
    /// a missing series does not mean zero.
    pub fn new(meter: &Meter) -> Self {
        let metrics = Self(Arc::new(Instruments::new(meter)));
        let instruments = &metrics.0;
        for cache in Cache::ALL {
            for result in ["hit", "miss"] {
                instruments.cache_lookups.add(0, &labels([("cache", cache.name()), ("result", result)]));
            }
        }
        start_at_zero(&instruments.retries, "what", Retried::ALL.map(Retried::name));
        start_at_zero(&instruments.conflicts, "kind", Conflict::ALL.map(Conflict::name));
        start_at_zero(&instruments.quota_refusals, "limit", Quota::ALL.map(Quota::name));
        start_at_zero(&instruments.rate_refusals, "kind", Refused::ALL.map(Refused::name));
        start_at_zero(&instruments.blob_bytes, "direction", ["read", "written"]);
        instruments.blob_breaker_open.record(0, &[]);
        instruments.blob_breaker_refusals.add(0, &[]);
        instruments.dropped_reads.add(0, &[]);
        instruments.searches.add(0, &labels([("meaning", MEANING_USED)]));
        start_at_zero(&instruments.searches, "meaning", MeaningReason::ALL.map(MeaningReason::name));
        for of in Embedded::ALL {
            instruments.embedding_time.add(0.0, &labels([("of", of.name())]));
        }
        start_at_zero(&instruments.embedding_bytes, "of", Embedded::ALL.map(Embedded::name));
        instruments.embedding_chunks.add(0, &[]);
        let failures = EmbeddingFailure::ALL.map(EmbeddingFailure::name);
        start_at_zero(&instruments.embedding_failures, "reason", failures);
        instruments.embedding_breaker_open.record(0, &[]);
        instruments.requests_in_flight.add(0, &[]);
        metrics
    }

    /// Records the start time of the process in seconds since 1970.
    pub fn process_started(&self, at_seconds: f64) {
        self.0.process_start_time.record(at_seconds, &[]);
    }

    /// Registers a callback for the lag of access times; `None`: no value any
    /// longer.
    pub fn watch_access_flush_lag(&self, lag: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
        let gauge = self.0.meter.f64_observable_gauge("keepsake.access_flush_lag").with_unit("s");
        gauge
            .with_description("Time since the moment up to which all access times are written")
            .with_callback(move |gauge| {
                if let Some(lag) = lag() {
                    gauge.observe(lag.as_secs_f64(), &[]);
                }
            })
            .build();
    }

    /// Registers a callback for the size of a cache in bytes; `None`: the cache was
    /// dropped.
    pub fn watch_cache_size(&self, cache: Cache, bytes: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let labels = labels([("cache", cache.name())]);
        self.watch_number("keepsake.cache.size", ("By", "What a cache holds"), labels, bytes);
    }

    /// Registers a callback for the size of the log beside SQLite's file in bytes; `None`:
    /// the index was dropped.
    pub fn watch_log_size(&self, bytes: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let described = ("By", "Size of the log beside SQLite's file");
        self.watch_number("keepsake.index.log.size", described, [], bytes);
    }

    fn watch_number<const N: usize>(
        &self,
        name: &'static str,
        (unit, description): (&'static str, &'static str),
        labels: [KeyValue; N],
        number: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) {
        let gauge = self.0.meter.u64_observable_gauge(name).with_unit(unit);
        gauge
            .with_description(description)
            .with_callback(move |gauge| {
                if let Some(number) = number() {
                    gauge.observe(number, &labels);
                }
            })
            .build();
    }

    /// Registers a callback for the states of database pools; an empty answer: they
    /// were dropped.
    pub fn watch_pools(&self, pools: impl Fn() -> Vec<PoolState> + Send + Sync + 'static) {
        let pools = Arc::new(pools);
        let gauge = |name, description, observe: fn(&dyn AsyncInstrument<u64>, &PoolState)| {
            let pools = Arc::clone(&pools);
            let gauge = self.0.meter.u64_observable_gauge(name).with_description(description);
            gauge.with_callback(move |gauge| pools().iter().for_each(|state| observe(gauge, state))).build();
        };
        gauge("keepsake.index.pool.limit", "Most connections of a database pool", |gauge, state| {
            gauge.observe(state.max, &labels([("pool", state.pool)]));
        });
        let waiting = "Calls that wait for a connection of a database pool";
        gauge("keepsake.index.pool.waiting", waiting, |gauge, state| {
            gauge.observe(state.waiting, &labels([("pool", state.pool)]));
        });
        gauge("keepsake.index.pool.connections", "Connections of a database pool", |gauge, state| {
            for (name, connections) in [("in_use", state.in_use), ("idle", state.idle)] {
                gauge.observe(connections, &labels([("pool", state.pool), ("state", name)]));
            }
        });
    }

    pub fn counted(&self, stored: &StoredTotals) {
        let instruments = &self.0;
        instruments.stored_stores.record(stored.stores, &[]);
        instruments.stored_memories.record(stored.memories, &[]);
        instruments.stored_versions.record(stored.versions, &[]);
        for (of, bytes) in [("memories", stored.memory_bytes), ("versions", stored.version_bytes)] {
            instruments.stored_size.record(bytes, &labels([("of", of)]));
        }
    }

    /// Starts measuring a request; `route` is its template.
    pub fn request_began(&self, method: &Method, route: &str) -> RequestUnderWay {
        self.0.requests_in_flight.add(1, &[]);
        RequestUnderWay {
            metrics: self.clone(),
            route: route.into(),
            method: known_method(method),
            began_at: Instant::now(),
            has_ended: false,
        }
    }

    pub fn index_called(&self, call: &'static str, outcome: Outcome, took: Duration) {
        let labels = labels([("call", call), ("outcome", outcome.name())]);
        self.0.index_calls.record(took.as_secs_f64(), &labels);
    }

    pub fn blob_called(&self, call: &'static str, outcome: Outcome, took: Duration) {
        let labels = labels([("call", call), ("outcome", outcome.name())]);
        self.0.blob_calls.record(took.as_secs_f64(), &labels);
    }

    pub fn blob_breaker_opened(&self, is_open: bool) {
        self.0.blob_breaker_open.record(u64::from(is_open), &[]);
    }

    pub fn blob_call_refused(&self) {
        self.0.blob_breaker_refusals.add(1, &[]);
    }

    pub fn blob_bytes_read(&self, bytes: usize) {
        self.0.blob_bytes.add(bytes as u64, &labels([("direction", "read")]));
    }

    pub fn blob_bytes_written(&self, bytes: usize) {
        self.0.blob_bytes.add(bytes as u64, &labels([("direction", "written")]));
    }

    pub fn cache_looked_up(&self, cache: Cache, is_hit: bool) {
        let result = if is_hit { "hit" } else { "miss" };
        self.0.cache_lookups.add(1, &labels([("cache", cache.name()), ("result", result)]));
    }

    pub fn retried(&self, what: Retried) {
        self.0.retries.add(1, &labels([("what", what.name())]));
    }

    pub fn conflicted(&self, kind: Conflict) {
        self.0.conflicts.add(1, &labels([("kind", kind.name())]));
    }

    pub fn quota_refused(&self, limit: Quota) {
        self.0.quota_refusals.add(1, &labels([("limit", limit.name())]));
    }

    pub fn rate_refused(&self, kind: Refused) {
        self.0.rate_refusals.add(1, &labels([("kind", kind.name())]));
    }

    /// Counts reads of memories whose readers were not recorded.
    pub fn reads_dropped(&self, reads: u64) {
        self.0.dropped_reads.add(reads, &[]);
    }

    /// Counts a search; without a reason, it used meaning.
    pub fn searched(&self, reason: Option<MeaningReason>) {
        let meaning = reason.map_or(MEANING_USED, MeaningReason::name);
        self.0.searches.add(1, &labels([("meaning", meaning)]));
    }

    /// Counts the time of a model or an endpoint, and the bytes of the texts that it embedded: 0 if it failed.
    pub fn embedded(&self, of: Embedded, bytes: usize, took: Duration) {
        let of = labels([("of", of.name())]);
        self.0.embedding_time.add(took.as_secs_f64(), &of);
        self.0.embedding_bytes.add(bytes as u64, &of);
    }

    /// Counts chunks whose embeddings were stored.
    pub fn chunks_embedded(&self, chunks: u64) {
        self.0.embedding_chunks.add(chunks, &[]);
    }

    pub fn embedding_failed(&self, reason: EmbeddingFailure) {
        self.0.embedding_failures.add(1, &labels([("reason", reason.name())]));
    }

    pub fn embedding_breaker_opened(&self, is_open: bool) {
        self.0.embedding_breaker_open.record(u64::from(is_open), &[]);
    }

    /// Registers a callback for the number of stores that wait to be embedded; `None`: the
    /// queue was dropped.
    pub fn watch_embedding_queue(&self, stores: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let described = ("", "Stores with changes that this process will embed");
        self.watch_number("keepsake.embedding.waiting_stores", described, [], stores);
    }

    /// Creates the series of a job that this process may run.
    pub fn job_scheduled(&self, job: &'static str) {
        for outcome in ["succeeded", "failed"] {
            self.0.job_runs.add(0, &labels([("job", job), ("outcome", outcome)]));
        }
    }

    pub fn job_ended(&self, run: &JobRun<'_>) {
        let instruments = &self.0;
        let outcome = if run.has_succeeded { "succeeded" } else { "failed" };
        instruments.job_runs.add(1, &labels([("job", run.job), ("outcome", outcome)]));
        let job = labels([("job", run.job)]);
        instruments.job_durations.record(run.took.as_secs_f64(), &job);
        if run.has_succeeded {
            instruments.job_last_success.record(run.ended_at_seconds, &job);
        }
        for (item, count) in run.items {
            let item = KeyValue::new("item", (*item).to_owned());
            instruments.job_items.add(*count, &[KeyValue::new("job", run.job), item]);
        }
    }
}

impl RequestUnderWay {
    /// Records the status of the response; returns the duration of the request.
    pub fn ended(mut self, status: StatusCode) -> Duration {
        self.record(status.as_u16())
    }

    fn record(&mut self, status: u16) -> Duration {
        self.has_ended = true;
        let took = self.began_at.elapsed();
        let instruments = &self.metrics.0;
        let route = KeyValue::new("route", Arc::clone(&self.route));
        let method = KeyValue::new("method", self.method);
        let status = KeyValue::new("status", i64::from(status));
        instruments.requests.add(1, &[route.clone(), method.clone(), status]);
        instruments.request_durations.record(took.as_secs_f64(), &[route, method]);
        instruments.requests_in_flight.add(-1, &[]);
        took
    }
}

impl Drop for RequestUnderWay {
    fn drop(&mut self) {
        if !self.has_ended {
            self.record(CLIENT_CLOSED_REQUEST);
        }
    }
}

fn labels<const N: usize>(pairs: [(&'static str, &'static str); N]) -> [KeyValue; N] {
    pairs.map(|(name, value)| KeyValue::new(name, value))
}

/// Creates the series of a counter for all values of a label.
fn start_at_zero<const N: usize>(counter: &Counter<u64>, label: &'static str, values: [&'static str; N]) {
    for value in values {
        counter.add(0, &labels([(label, value)]));
    }
}

/// A method's label; unknown methods share one, because clients can invent them.
fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Telemetry, TelemetryOptions};

    fn telemetry() -> Telemetry {
        let options = TelemetryOptions {
            service_name: "keepsake".to_owned(),
            resource_attributes: vec![("team".to_owned(), "a".to_owned())],
            otlp: None,
        };
        Telemetry::start(&options, "0", "here".to_owned()).unwrap()
    }

    #[track_caller]
    fn assert_exposed(telemetry: &Telemetry, line: &str) {
        let text = telemetry.exposition().text().unwrap();
        assert!(text.lines().any(|exposed| exposed == line), "no {line} in\n{text}");
    }

    #[test]
    fn dropped_request_counts_as_closed_by_the_client() {
        let telemetry = telemetry();
        let metrics = telemetry.metrics();
        let answered = metrics.request_began(&Method::GET, "/a/{id}");
        let left = metrics.request_began(&Method::GET, "/a/{id}");
        assert_exposed(&telemetry, "keepsake_http_requests_in_flight 2");
        answered.ended(StatusCode::OK);
        drop(left);
        assert_exposed(&telemetry, "keepsake_http_requests_in_flight 0");
        for status in [200, 499] {
            let labels = format!("method=\"GET\",route=\"/a/{{id}}\",status=\"{status}\"");
            assert_exposed(&telemetry, &format!("keepsake_http_requests_total{{{labels}}} 1"));
        }
    }

    #[test]
    fn searches_embeddings_and_runs_are_counted_and_a_failed_run_is_no_success() {
        let telemetry = telemetry();
        let metrics = telemetry.metrics();
        let mut run = JobRun {
            job: "sweep",
            has_succeeded: true,
            took: Duration::from_secs(2),
            ended_at_seconds: 1_000.5,
            items: &[("blobs", 3)],
        };
        metrics.job_ended(&run);
        (run.has_succeeded, run.ended_at_seconds, run.items) = (false, 2_000.0, &[]);
        metrics.job_ended(&run);
        metrics.searched(None);
        metrics.searched(Some(MeaningReason::Timeout));
        metrics.embedded(Embedded::Memories, 2_048, Duration::from_millis(1_500));
        metrics.chunks_embedded(7);
        metrics.embedding_failed(EmbeddingFailure::Content);
        metrics.embedding_breaker_opened(true);
        for line in [
            "keepsake_job_last_success_timestamp_seconds{job=\"sweep\"} 1000.5",
            "keepsake_job_runs_total{job=\"sweep\",outcome=\"failed\"} 1",
            "keepsake_job_run_duration_seconds_sum{job=\"sweep\"} 4",
            "keepsake_job_items_total{item=\"blobs\",job=\"sweep\"} 3",
            "keepsake_searches_total{meaning=\"used\"} 1",
            "keepsake_searches_total{meaning=\"timeout\"} 1",
            "keepsake_embedding_time_seconds_total{of=\"query\"} 0",
            "keepsake_embedding_time_seconds_total{of=\"memories\"} 1.5",
            "keepsake_embedding_bytes_total{of=\"query\"} 0",
            "keepsake_embedding_bytes_total{of=\"memories\"} 2048",
            "keepsake_embedding_chunks_total 7",
            "keepsake_embedding_failures_total{reason=\"content\"} 1",
            "keepsake_embedding_breaker_open 1",
        ] {
            assert_exposed(&telemetry, line);
        }
    }

    #[test]
    fn watched_values_are_read_at_each_export_until_dropped() {
        let telemetry = telemetry();
        let metrics = telemetry.metrics();
        let is_there = Arc::new(AtomicBool::new(true));
        let watched = || {
            let is_there = Arc::clone(&is_there);
            move || is_there.load(Ordering::Relaxed)
        };
        let (lag, content, pools, queue) = (watched(), watched(), watched(), watched());
        metrics.watch_embedding_queue(move || queue().then_some(3));
        metrics.watch_access_flush_lag(move || lag().then_some(Duration::from_millis(1_500)));
        metrics.watch_cache_size(Cache::Content, move || content().then_some(4_096));
        metrics.watch_cache_size(Cache::Search, || Some(65_536));
        metrics.watch_pools(move || {
            let state = PoolState { pool: "jobs", in_use: 3, idle: 1, waiting: 2, max: 4 };
            pools().then_some(state).into_iter().collect()
        });
        let lines = [
            "keepsake_access_flush_lag_seconds 1.5",
            "keepsake_cache_size_bytes{cache=\"content\"} 4096",
            "keepsake_index_pool_connections{pool=\"jobs\",state=\"in_use\"} 3",
            "keepsake_index_pool_connections{pool=\"jobs\",state=\"idle\"} 1",
            "keepsake_index_pool_waiting{pool=\"jobs\"} 2",
            "keepsake_index_pool_limit{pool=\"jobs\"} 4",
            "keepsake_embedding_waiting_stores 3",
        ];
        for line in lines {
            assert_exposed(&telemetry, line);
        }
        is_there.store(false, Ordering::Relaxed);
        assert_exposed(&telemetry, "keepsake_cache_size_bytes{cache=\"search\"} 65536");
        let text = telemetry.exposition().text().unwrap();
        assert!(lines.iter().all(|line| !text.contains(line)), "{text}");
    }
}
