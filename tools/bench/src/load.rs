//! The load: a closed loop, in which each connection sends its next call after the
//! last response, or an open one, in which calls are due at a fixed rate and
//! latency is measured from the due time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use hyper::header::HeaderValue;
use keepsake_config::Failure;
use serde::Serialize;
use tokio::task::LocalSet;

use super::connection::Connection;
use super::costs::{Backends, Costs};
use super::operator::Operator;
use super::plan::{Command, Scenario};
use super::workload::{Call, Side, Worker, Workload};

/// The longest recorded latency; longer ones count as this one.
const MAX_LATENCY: Duration = Duration::from_mins(2);

/// The message if a thread or task of the load generator panicked.
pub(super) const LOAD_FAILED: &str = "the load generator failed";

/// The amount of load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) connections: usize,
    /// Threads that drive them.
    pub(super) threads: usize,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
    /// Calls per second of all connections; `None`: as fast as the answers come.
    pub(super) rate: Option<u32>,
}

/// The target of the load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) side: Side,
    pub(super) address: SocketAddr,
    /// The id of its process, if it is a child.
    pub(super) pid: Option<u32>,
    pub(super) backends: Backends,
    /// Where the server counts its calls.
    pub(super) operator: Option<Operator>,
}

impl Endpoint {
    pub(super) fn host(&self) -> HeaderValue {
        HeaderValue::from_str(&self.address.to_string()).unwrap_or(HeaderValue::from_static("localhost"))
    }
}

/// An empty histogram of latencies in nanoseconds.
pub(super) fn histogram() -> Result<Histogram<u64>, Failure> {
    let max = u64::try_from(MAX_LATENCY.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1_000, max, 3).map_err(Failure::of("the histogram cannot be made"))
}

/// Adds a latency; one above the maximum counts as the maximum.
pub(super) fn record(latency: &mut Histogram<u64>, took: Duration) {
    latency.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

/// The latency at a quantile, in milliseconds.
pub(super) fn latency_ms(latency: &Histogram<u64>, quantile: f64) -> f64 {
    milliseconds(Duration::from_nanos(latency.value_at_quantile(quantile)))
}

pub(super) fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

/// The latencies of one kind of calls.
#[derive(Debug, Serialize)]
pub(super) struct Latencies {
    pub(super) calls: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
}

impl Latencies {
    pub(super) fn of(latency: &Histogram<u64>) -> Self {
        Self {
            calls: latency.len(),
            p50_ms: latency_ms(latency, 0.5),
            p99_ms: latency_ms(latency, 0.99),
            max_ms: latency_ms(latency, 1.0),
        }
    }

    /// Writes a line with these latencies.
    pub(super) fn line(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        writeln!(
            f,
            "{name:<28} {:>7} calls  p50 {:>7.2} ms  p99 {:>7.2} ms  max {:>8.2} ms",
            self.calls, self.p50_ms, self.p99_ms, self.max_ms
        )
    }
}

/// Runs a load that is bound to one thread on a new one.
pub(super) async fn on_a_thread<T: Send + 'static, F: Future<Output = Result<T, Failure>>>(
    load: impl FnOnce() -> F + Send + 'static,
) -> Result<T, Failure> {
    let driven = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::of(LOAD_FAILED))?;
        LocalSet::new().block_on(&runtime, load())
    });
    driven.await.map_err(Failure::of(LOAD_FAILED))?
}

/// The results of a measurement.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) elapsed: Duration,
    /// Latencies of the calls in nanoseconds; in a closed loop, successful calls only.
    pub(super) latency: Histogram<u64>,
    /// The number of calls by the status of the answer; 0: there was none.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// The number of failed calls, including the warm-up.
    pub(super) failed: u64,
    /// The error of the first failed call.
    pub(super) failure: Option<String>,
    pub(super) costs: Costs,
}

impl Measured {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            elapsed: Duration::ZERO,
            latency: histogram()?,
            statuses: BTreeMap::new(),
            failed: 0,
            failure: None,
            costs: Costs::default(),
        })
    }

    fn fail(&mut self, failure: String) {
        self.failed += 1;
        self.failure.get_or_insert(failure);
    }

    /// Adds the results of another thread of the same measurement.
    pub(super) fn join(&mut self, other: &Self) {
        self.latency += &other.latency;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.failed += other.failed;
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }

    /// Adds the results of another round.
    pub(super) fn follow(&mut self, other: &Self) {
        self.join(other);
        self.elapsed += other.elapsed;
        self.costs = self.costs.plus(other.costs);
    }

    fn all_succeeded(self, or: &str) -> Result<(), Failure> {
        match self.failure {
            Some(failure) => Err(Failure::new(format!("{or}: {failure}"))),
            None => Ok(()),
        }
    }

    /// Answered calls per second.
    pub(super) fn throughput(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "no run makes 2^52 calls")]
        let calls = self.latency.len() as f64;
        calls / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The work of the connections.
#[derive(Debug, Clone)]
enum Work {
    /// Create the memories that are read and edited, then end.
    Seed,
    /// Read each of these memories once, then end.
    ReadAll,
    /// Repeat a scenario; record between the two instants.
    Repeat { scenario: Scenario, from: Instant, to: Instant, pace: Option<Arc<Pace>> },
}

/// When the calls of an open loop are due.
#[derive(Debug)]
struct Pace {
    begun: Instant,
    interval: Duration,
    next: AtomicU32,
}

impl Pace {
    fn next_due_at(&self) -> Instant {
        self.begun + self.interval * self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Creates the memories that are read and edited.
///
/// # Errors
/// [`Failure`] of the first failed call.
pub(super) async fn seed(endpoint: Endpoint, workload: &Arc<Workload>, load: Load) -> Result<(), Failure> {
    let seen = drive(endpoint, workload, Work::Seed, load).await?;
    seen.all_succeeded("a memory to start with could not be made")
}

/// Reads each of these memories once.
///
/// # Errors
/// [`Failure`] of the first failed call.
pub(super) async fn read_all(
    endpoint: Endpoint,
    workload: &Arc<Workload>,
    load: Load,
) -> Result<(), Failure> {
    let seen = drive(endpoint, workload, Work::ReadAll, load).await?;
    seen.all_succeeded("a memory could not be read")
}

/// Repeats a scenario, and measures after the warm-up.
///
/// # Errors
/// [`Failure`] if a connection cannot be opened.
pub(super) async fn measure(
    endpoint: Endpoint,
    workload: &Arc<Workload>,
    scenario: Scenario,
    load: Load,
) -> Result<Measured, Failure> {
    let begun = Instant::now();
    let from = begun + load.warm_up;
    let to = from + load.measured;
    let costs = async {
        let now = || Costs::now(endpoint.pid, endpoint.backends, endpoint.operator);
        tokio::time::sleep_until(from.into()).await;
        let before = now().await;
        tokio::time::sleep_until(to.into()).await;
        now().await.since(before)
    };
    let pace = load.rate.map(|rate| {
        let interval = Duration::from_secs(1) / rate.max(1);
        Arc::new(Pace { begun, interval, next: AtomicU32::new(0) })
    });
    let driven = drive(endpoint, workload, Work::Repeat { scenario, from, to, pace }, load);
    let (seen, costs) = tokio::join!(driven, costs);
    Ok(Measured { elapsed: load.measured, costs, ..seen? })
}

/// The size of the server's response to a command.
///
/// # Errors
/// [`Failure`] if the command fails.
pub(super) async fn answer_bytes(
    endpoint: Endpoint,
    workload: &Workload,
    command: Command,
) -> Result<usize, Failure> {
    let mut connection = Connection::open(endpoint.address).await?;
    let Call { request, expected } =
        workload.call_of(endpoint.side, command, &endpoint.host(), &mut Worker::new(0, 1));
    let (status, body) = connection.call(request).await.map_err(Failure::of("a call failed"))?;
    workload.check(&expected, status, &body).map_err(Failure::of("a call failed"))?;
    Ok(body.len())
}

/// Spreads the connections over threads and waits for all of them.
async fn drive(
    endpoint: Endpoint,
    workload: &Arc<Workload>,
    work: Work,
    load: Load,
) -> Result<Measured, Failure> {
    let threads = (0..load.threads).map(|thread| {
        let (workload, work) = (Arc::clone(workload), work.clone());
        on_a_thread(move || drive_thread(endpoint, workload, work, load, thread))
    });
    let mut all = Measured::new()?;
    for seen in try_join_all(threads).await? {
        all.join(&seen);
    }
    Ok(all)
}

/// Drives every `threads`th connection.
async fn drive_thread(
    endpoint: Endpoint,
    workload: Arc<Workload>,
    work: Work,
    load: Load,
    thread: usize,
) -> Result<Measured, Failure> {
    let seen = Rc::new(RefCell::new(Measured::new()?));
    let mut tasks = tokio::task::JoinSet::new();
    for index in (thread..load.connections).step_by(load.threads) {
        let (workload, work, seen) = (Arc::clone(&workload), work.clone(), Rc::clone(&seen));
        let worker = Worker::new(index, load.connections);
        tasks.spawn_local(async move { drive_connection(endpoint, &workload, work, worker, &seen).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(Failure::of(LOAD_FAILED))??;
    }
    Rc::into_inner(seen).map(RefCell::into_inner).ok_or_else(|| Failure::new(LOAD_FAILED))
}

/// Sends one call after the other until the work is done.
async fn drive_connection(
    endpoint: Endpoint,
    workload: &Workload,
    work: Work,
    mut worker: Worker,
    seen: &RefCell<Measured>,
) -> Result<(), Failure> {
    let host = endpoint.host();
    let mut connection = Connection::open(endpoint.address).await?;
    loop {
        let mut due_at = None;
        let next = match &work {
            Work::Seed => workload.seed(endpoint.side, &host),
            Work::ReadAll => workload.read_next(endpoint.side, &host),
            Work::Repeat { scenario, to, pace, .. } => {
                due_at = pace.as_ref().map(|pace| pace.next_due_at());
                if due_at.is_some_and(|due_at| due_at >= *to) {
                    return Ok(());
                }
                Some(workload.next(endpoint.side, *scenario, &host, &mut worker))
            }
        };
        let Some(Call { request, expected }) = next else {
            return Ok(());
        };
        if let Some(due_at) = due_at {
            tokio::time::sleep_until(due_at.into()).await;
        }
        let begun = due_at.unwrap_or_else(Instant::now);
        let answered: hyper::Result<(hyper::StatusCode, Bytes)> = connection.call(request).await;
        let ended = Instant::now();
        let (status, outcome) = match answered {
            Ok((status, body)) => (status.as_u16(), workload.check(&expected, status, &body)),
            Err(error) => {
                connection = Connection::open(endpoint.address).await?;
                (0, Err(format!("the connection failed: {error}")))
            }
        };
        let mut seen = seen.borrow_mut();
        let Work::Repeat { from, to, .. } = &work else {
            outcome.unwrap_or_else(|failure| seen.fail(failure));
            continue;
        };
        let is_measured = due_at.map_or(ended >= *from && ended < *to, |due_at| due_at >= *from);
        if is_measured {
            *seen.statuses.entry(status).or_default() += 1;
            if outcome.is_ok() || due_at.is_some() {
                record(&mut seen.latency, ended - begun);
            }
        }
        outcome.unwrap_or_else(|failure| seen.fail(failure));
        if ended >= *to && due_at.is_none() {
            return Ok(());
        }
    }
}
