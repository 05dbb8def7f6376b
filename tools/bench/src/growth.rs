//! How the cost of a call grows with the number of stores, tenants, memories and
//! connections: one of them is changed, the others stay.

use std::fmt;
use std::sync::Arc;

use keepsake_config::Failure;
use serde::Serialize;

use super::costs::Backends;
use super::load::{self, Endpoint, Load, Measured};
use super::plan::{Scenario, Shape};
use super::product::{Product, Served};
use super::report::{Machine, Setup, Summary};
use super::workload::{Side, Workload};
use super::{BenchArgs, provision, run_name, say};

const SCENARIOS: [Scenario; 2] = [Scenario::View, Scenario::Create];

/// Options of `keepsake-bench --growth`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct GrowthArgs {
    /// Measures `view` and `create` with different numbers of stores, tenants,
    /// memories and connections
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console"])]
    pub(super) growth: bool,
    /// Numbers of stores of one tenant
    #[arg(long, value_delimiter = ',', default_value = "1,64,1024", requires = "growth")]
    grow_stores: Vec<usize>,
    /// Numbers of tenants with a store each
    #[arg(long, value_delimiter = ',', default_value = "1,64,1024", requires = "growth")]
    grow_tenants: Vec<usize>,
    /// Numbers of memories in 64 stores
    #[arg(long, value_delimiter = ',', default_value = "6400,25600,102400", requires = "growth")]
    grow_memories: Vec<usize>,
    /// Numbers of connections
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128", requires = "growth")]
    grow_connections: Vec<usize>,
}

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Axis {
    Stores,
    Tenants,
    Memories,
    Connections,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Growth {
    keepsake: &'static str,
    machine: Machine,
    setup: Setup,
    points: Vec<Point>,
}

/// The results with one number of one thing.
#[derive(Debug, Serialize)]
struct Point {
    axis: Axis,
    value: usize,
    scenario: Scenario,
    server: Summary,
}

/// A number to measure with.
struct Case {
    axis: Axis,
    value: usize,
    shape: Shape,
    connections: usize,
}

impl GrowthArgs {
    fn cases(&self, args: &BenchArgs) -> Vec<Case> {
        let base = Shape { tenants: 1, stores_each: 64, memories: args.sizes.memories, is_skewed: false };
        let axes = [
            (Axis::Stores, &self.grow_stores),
            (Axis::Tenants, &self.grow_tenants),
            (Axis::Memories, &self.grow_memories),
            (Axis::Connections, &self.grow_connections),
        ];
        let values =
            axes.into_iter().flat_map(|(axis, values)| values.iter().map(move |value| (axis, *value)));
        let case = |(axis, value)| Case {
            axis,
            value,
            shape: match axis {
                Axis::Stores => Shape { stores_each: value, ..base },
                Axis::Tenants => Shape { tenants: value, stores_each: 1, ..base },
                Axis::Memories => Shape { memories: value, ..base },
                Axis::Connections => base,
            },
            connections: if axis == Axis::Connections { value } else { args.connections },
        };
        values.map(case).collect()
    }
}

/// Measures every case in each round, on one server.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<Growth, Failure> {
    let machine = Machine::this();
    let settings = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let Served { mut process, address, operator } = product.serve_with(&[]).await?;
    let endpoint = Endpoint {
        side: Side::Server,
        address,
        pid: process.pid(),
        backends: Backends::of(&settings),
        operator: Some(operator),
    };
    let run = run_name();
    let mut cases = Vec::new();
    for (number, case) in args.growth.cases(args).into_iter().enumerate() {
        let load = Load { connections: case.connections, ..args.load() };
        let load = Load { threads: load.threads.min(case.connections), ..load };
        let name = format!("{run} {number}");
        let tenants = provision::many_tenants(operator, case.shape.tenants, &name).await?;
        let stores = provision::stores(&tenants, case.shape.stores_each, address).await?;
        let workload = args.workload(&stores, &run, case.shape)?;
        say(&format!("making {} memories: {:?} {}", case.shape.memories, case.axis, case.value));
        load::seed(endpoint, &workload, args.load()).await?;
        cases.push((case, load, workload));
    }
    super::settings::vacuum(&settings).await?;
    let mut points = Vec::new();
    for scenario in SCENARIOS {
        let mut seen: Vec<Vec<Measured>> = cases.iter().map(|_| Vec::new()).collect();
        for round in 0..args.rounds {
            for ((case, load, workload), seen) in cases.iter().zip(&mut seen) {
                let measured = measure_once(endpoint, workload, scenario, *load).await?;
                say(&format!(
                    "{} with {:?} {}, round {} of {}: {:.0}/s",
                    scenario.name(),
                    case.axis,
                    case.value,
                    round + 1,
                    args.rounds,
                    measured.throughput()
                ));
                seen.push(measured);
            }
            process.check()?;
        }
        points.extend(cases.iter().zip(&seen).filter_map(|((case, ..), seen)| {
            Some(Point { axis: case.axis, value: case.value, scenario, server: Summary::of(seen)? })
        }));
    }
    points.sort_by_key(|point| (point.axis as usize, point.value));
    process.end().await?;
    Ok(Growth {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup: args.setup(args.load(), Some(&settings)),
        points,
    })
}

/// Measures a case; a failed call is an error.
pub(super) async fn measure_once(
    endpoint: Endpoint,
    workload: &Arc<Workload>,
    scenario: Scenario,
    load: Load,
) -> Result<Measured, Failure> {
    let measured = load::measure(endpoint, workload, scenario, load).await?;
    match measured.failure {
        Some(failure) => Err(Failure::new(format!("a call failed: {failure}"))),
        None => Ok(measured),
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Point { axis, value, scenario, server } in &self.points {
            let (axis, scenario) = (format!("{axis:?}").to_lowercase(), scenario.name());
            writeln!(
                f,
                "{axis:<12} {value:>8} {scenario:<8} {:>9.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms",
                server.requests_per_second, server.p50_ms, server.p99_ms
            )?;
        }
        Ok(())
    }
}
