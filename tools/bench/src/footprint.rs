//! The memory of a server: at rest, for each idle connection, for each cached byte.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keepsake_config::Failure;
use serde::Serialize;

use super::connection::Connection;
use super::costs::{Backends, samples};
use super::load::{self, Endpoint};
use super::plan::{Command, Layout};
use super::process::{Process, anonymous_bytes};
use super::product::{Product, Served};
use super::report::{Machine, median};
use super::workload::{Call, Side, Worker, Workload};
use super::{BenchArgs, provision, run_name, say};

/// How long the server settles before its memory is read.
const SETTLE: Duration = Duration::from_millis(500);

/// Options of `keepsake-bench --footprint`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FootprintArgs {
    /// Measures the memory of a server, of its idle connections and its cache
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console"])]
    pub(super) footprint: bool,
    /// Number of idle connections
    #[arg(long, default_value_t = 1_000, requires = "footprint", value_parser = clap::value_parser!(u32).range(1..=2_000))]
    idle_connections: u32,
}

/// The results; the medians of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct Footprint {
    keepsake: &'static str,
    machine: Machine,
    rounds: usize,
    /// After the start and one request.
    idle_server_bytes: Option<f64>,
    idle_connections: u32,
    bytes_per_idle_connection: Option<f64>,
    memories: usize,
    content_bytes: usize,
    /// Growth of the process for each byte of content that it cached.
    process_bytes_per_cached_byte: Option<f64>,
    /// Growth of the cache as the server counts it, for each byte of content.
    counted_bytes_per_cached_byte: Option<f64>,
}

/// Measures in each round a newly started server.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<Footprint, Failure> {
    let machine = Machine::this();
    let settings = args.settings()?;
    let backends = Backends::of(&settings);
    let options = args.footprint;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let run = run_name();
    let shape = Layout::Spread.shape(args.sizes);
    let tenants = provision::tenants(&product, shape.tenants, &run).await?;
    let (process, endpoint) = start(&product, backends).await?;
    let stores = provision::stores(&tenants, shape.stores_each, endpoint.address).await?;
    say(&format!("making {} memories", shape.memories));
    load::seed(endpoint, &args.workload(&stores, &run, shape)?, args.load()).await?;
    process.end().await?;

    let (mut idle, mut per_connection) = (Vec::new(), Vec::new());
    let (mut per_byte, mut counted) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        let (mut process, endpoint) = start(&product, backends).await?;
        let workload = args.workload(&stores, &run, shape)?;
        view_once(endpoint, &workload, &mut Connection::open(endpoint.address).await?).await?;
        let at_rest = memory_of(endpoint).await?;
        let mut connections = Vec::new();
        for _ in 0..options.idle_connections {
            let mut connection = Connection::open(endpoint.address).await?;
            view_once(endpoint, &workload, &mut connection).await?;
            connections.push(connection);
        }
        let connected = memory_of(endpoint).await?;
        drop(connections);
        let (before, cached_before) = (memory_of(endpoint).await?, cached_bytes(endpoint).await?);
        load::read_all(endpoint, &workload, args.load()).await?;
        let (after, cached_after) = (memory_of(endpoint).await?, cached_bytes(endpoint).await?);
        let content = number(shape.memories * args.content_bytes);
        idle.push(at_rest);
        per_connection.push((connected - at_rest) / f64::from(options.idle_connections));
        per_byte.push((after - before) / content);
        counted.push((cached_after - cached_before) / content);
        process.check()?;
        process.end().await?;
        say(&format!("memory, round {} of {}", round + 1, args.rounds));
    }
    let median_of = |values: &[f64]| median(values).map(|value| (value * 100.0).round() / 100.0);
    Ok(Footprint {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        rounds: args.rounds,
        idle_server_bytes: median_of(&idle),
        idle_connections: options.idle_connections,
        bytes_per_idle_connection: median_of(&per_connection),
        memories: shape.memories,
        content_bytes: args.content_bytes,
        process_bytes_per_cached_byte: median_of(&per_byte),
        counted_bytes_per_cached_byte: median_of(&counted),
    })
}

async fn start(product: &Product, backends: Backends) -> Result<(Process, Endpoint), Failure> {
    let Served { process, address, operator } = product.serve_with(&[]).await?;
    let endpoint =
        Endpoint { side: Side::Server, address, pid: process.pid(), backends, operator: Some(operator) };
    Ok((process, endpoint))
}

/// Reads the same memory on each connection.
async fn view_once(
    endpoint: Endpoint,
    workload: &Arc<Workload>,
    connection: &mut Connection,
) -> Result<(), Failure> {
    let mut worker = Worker::new(0, 1);
    let Call { request, expected } =
        workload.call_of(endpoint.side, Command::View, &endpoint.host(), &mut worker);
    let answered = connection.call(request).await;
    let (status, body) = answered.map_err(Failure::of("a call failed"))?;
    workload.check(&expected, status, &body).map_err(Failure::of("a call failed"))
}

/// The memory of the server's process.
async fn memory_of(endpoint: Endpoint) -> Result<f64, Failure> {
    tokio::time::sleep(SETTLE).await;
    let bytes = endpoint.pid.and_then(anonymous_bytes);
    let bytes = bytes.ok_or_else(|| Failure::new("the memory of the server cannot be read from /proc"))?;
    Ok(number(usize::try_from(bytes).unwrap_or(usize::MAX)))
}

/// The size of the cache of content as the server counts it.
async fn cached_bytes(endpoint: Endpoint) -> Result<f64, Failure> {
    let operator = endpoint.operator.ok_or_else(|| Failure::new("the server has no operator"))?;
    let metrics = operator.metrics().await?;
    let size = samples(&metrics).find_map(|(name, labels, value)| {
        (name == "keepsake_cache_size_bytes" && labels.contains("cache=\"content\"")).then_some(value)
    });
    let size = size.ok_or_else(|| Failure::new("the metrics have no size of the cache"))?;
    Ok(number(usize::try_from(size).unwrap_or(usize::MAX)))
}

#[expect(clippy::cast_precision_loss, reason = "no process has 2^52 bytes")]
fn number(value: usize) -> f64 {
    value as f64
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |value: Option<f64>| value.unwrap_or(f64::NAN);
        writeln!(f, "server at rest            {:>10.1} MB", of(self.idle_server_bytes) / 1e6)?;
        writeln!(
            f,
            "idle connection           {:>10.1} KB, with {} connections",
            of(self.bytes_per_idle_connection) / 1e3,
            self.idle_connections
        )?;
        writeln!(
            f,
            "cached byte of content    {:>10.2} bytes of the process, {:.2} counted",
            of(self.process_bytes_per_cached_byte),
            of(self.counted_bytes_per_cached_byte)
        )
    }
}
