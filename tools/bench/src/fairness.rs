//! The latency of one tenant while another exceeds its rate limit many times.
//!
//! An open loop: calls are due at a fixed rate, independent of earlier calls, and
//! latency is measured from the due time. The victim is measured without and with
//! the aggressor, alternately.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keepsake_config::Failure;
use keepsake_core::limits::LimitOverrides;
use serde::Serialize;

use super::connection::Connection;
use super::costs::Backends;
use super::load::{self, Endpoint, LOAD_FAILED, Latencies, Load, Measured, latency_ms};
use super::plan::Scenario;
use super::provision::{self, BenchTenant, LIMITS};
use super::report::{Machine, median, rounded, verdict};
use super::workload::{Call, Side, Workload};
use super::{BenchArgs, run_name, say, settings};
use crate::product::Product;

/// The aggressor's request rate as a multiple of its limit.
const TIMES: u32 = 20;
/// Maximum factor by which the victim's p99 may grow.
const BAR: f64 = 2.0;
/// Connections of each tenant.
const CONNECTIONS: usize = 64;
/// Memories of the measured tenant, and of the other. The other's are made below its rate limit, so it has
/// only one for each connection.
const MEMORIES: [usize; 2] = [640, CONNECTIONS];

/// Options of `keepsake-bench --fairness`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FairnessArgs {
    /// Measures the latency of a tenant while another sends 20 times its rate limit
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor"])]
    pub(super) fairness: bool,
    /// Calls per second of the measured tenant
    #[arg(long, default_value_t = 50, requires = "fairness", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    victim_rate: u32,
    /// The rate limit of the other tenant, in requests per second
    #[arg(long, default_value_t = 50, requires = "fairness", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    aggressor_limit: u32,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Fairness {
    keepsake: &'static str,
    machine: Machine,
    victim_rate: u32,
    aggressor_limit: u32,
    aggressor_rate: u32,
    alone: Answered,
    beside: Answered,
    /// The victim's p99 with the aggressor divided by that without it, per round.
    ratios: Vec<f64>,
    median_ratio: Option<f64>,
    bar: f64,
    /// The number of the aggressor's responses by status.
    aggressor: BTreeMap<u16, u64>,
}

/// The victim's calls of all rounds.
#[derive(Debug, Serialize)]
struct Answered {
    #[serde(flatten)]
    latencies: Latencies,
    statuses: BTreeMap<u16, u64>,
}

impl Answered {
    fn of(seen: &Measured) -> Self {
        Self { latencies: Latencies::of(&seen.latency), statuses: seen.statuses.clone() }
    }
}

/// Measures alternately with and without the aggressor, on a new server.
///
/// # Errors
/// [`Failure`] of the setup.
pub(super) async fn measure(args: &BenchArgs) -> Result<Fairness, Failure> {
    let machine = Machine::this();
    let options = args.fairness;
    let configured = args.settings()?;
    let product = Product::of(args)?;
    let run = run_name();
    let tenants = make_tenants(&product, &run, options.aggressor_limit).await?;
    let (mut server, address) = product.serve().await?;
    let mut workloads = Vec::new();
    for (tenant, memories) in tenants.into_iter().zip(MEMORIES) {
        let store = tenant.store(address).await?;
        let workload = Workload::new(&[store], &run, memories, args.content_bytes)?;
        workloads.push(Arc::new(workload));
    }
    let [victim, aggressor] = <[_; 2]>::try_from(workloads).map_err(|_| Failure::new(LOAD_FAILED))?;
    settings::vacuum(&configured).await?;
    let endpoint =
        Endpoint { side: Side::Server, address, pid: None, backends: Backends::default(), operator: None };
    let tenant_load = Load { connections: CONNECTIONS, threads: 1, ..args.load() };
    let seeding = Load { connections: 1, ..tenant_load };
    load::seed(endpoint, &victim, seeding).await?;
    // The aggressor's memories are created below its rate limit.
    seed_slowly(endpoint, &aggressor, options.aggressor_limit).await?;

    let (mut alone, mut beside, mut others) = (Measured::new()?, Measured::new()?, Measured::new()?);
    let mut ratios = Vec::new();
    for round in 0..args.rounds {
        let mut p99_ms = [0.0; 2];
        let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            let load = |rate| Load { rate: Some(rate), ..tenant_load };
            let latencies = load::measure(endpoint, &victim, Scenario::Mix, load(options.victim_rate));
            if turn == 0 {
                let latencies = latencies.await?;
                p99_ms[turn] = latency_ms(&latencies.latency, 0.99);
                alone.follow(&latencies);
            } else {
                let wild = load(options.aggressor_limit * TIMES);
                let wild = load::measure(endpoint, &aggressor, Scenario::Mix, wild);
                let (latencies, answered) = tokio::join!(latencies, wild);
                let latencies = latencies?;
                p99_ms[turn] = latency_ms(&latencies.latency, 0.99);
                beside.follow(&latencies);
                others.follow(&answered?);
            }
            server.check()?;
        }
        let [without, with] = p99_ms;
        say(&format!(
            "fairness, round {} of {}: p99 without aggressor {without:.2} ms, with {with:.2} ms",
            round + 1,
            args.rounds
        ));
        ratios.push(with / without.max(f64::MIN_POSITIVE));
    }
    Ok(Fairness {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        victim_rate: options.victim_rate,
        aggressor_limit: options.aggressor_limit,
        aggressor_rate: options.aggressor_limit * TIMES,
        alone: Answered::of(&alone),
        beside: Answered::of(&beside),
        median_ratio: median(&ratios),
        ratios,
        bar: BAR,
        aggressor: others.statuses,
    })
}

/// Creates the victim and the aggressor.
async fn make_tenants(
    product: &Product,
    run: &str,
    aggressor_limit: u32,
) -> Result<[BenchTenant; 2], Failure> {
    product.run(&["migrate"]).await?;
    let limit = u64::from(aggressor_limit);
    let limited =
        LimitOverrides { requests_per_second: Some(limit), request_burst: Some(2 * limit), ..LIMITS };
    Ok([
        provision::tenant(product, &format!("bench {run} victim"), &LIMITS).await?,
        provision::tenant(product, &format!("bench {run} aggressor"), &limited).await?,
    ])
}

/// Creates the memories of a tenant below its rate limit.
async fn seed_slowly(endpoint: Endpoint, workload: &Workload, limit: u32) -> Result<(), Failure> {
    let host = endpoint.host();
    let mut connection = Connection::open(endpoint.address).await?;
    while let Some(Call { request, expected }) = workload.seed(endpoint.side, &host) {
        tokio::time::sleep(Duration::from_secs(1) / limit).await;
        let answered = connection.call(request).await;
        let (status, body) = answered.map_err(Failure::of("a call failed"))?;
        let checked = workload.check(&expected, status, &body);
        checked.map_err(Failure::of("a memory to start with could not be made"))?;
    }
    Ok(())
}

impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "a tenant at {} calls a second, beside one at {} with a limit of {}\n",
            self.victim_rate, self.aggressor_rate, self.aggressor_limit
        )?;
        for (name, Answered { latencies, statuses }) in [("alone", &self.alone), ("beside", &self.beside)] {
            writeln!(
                f,
                "{name:<8} {:>8} calls  p50 {:>8.2} ms  p99 {:>8.2} ms  max {:>8.2} ms  {statuses:?}",
                latencies.calls, latencies.p50_ms, latencies.p99_ms, latencies.max_ms
            )?;
        }
        let ratios: Vec<_> = self.ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let ratio = self.median_ratio.unwrap_or(f64::NAN);
        let verdict = verdict(ratio <= self.bar);
        writeln!(f, "p99 ratio {ratio:.2} (bar {:.1}: {verdict})  rounds {}", self.bar, ratios.join(" "))?;
        let sum: u64 = self.aggressor.values().sum();
        writeln!(f, "the other one's {sum} calls by status: {:?}", self.aggressor)?;
        let load = rounded(self.machine.load_before.unwrap_or_default());
        writeln!(f, "load of the machine before the run {load}")
    }
}
