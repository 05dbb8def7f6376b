//! The same operations on Keepsake and on `ai-memory`, which serves HTTP too.
//!
//! The other peers run in the process of their caller and are measured by
//! `tools/bench/peers`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use keepsake_config::Failure;
use serde::Serialize;

use super::costs::Backends;
use super::load::{self, Endpoint, Load, Measured};
use super::plan::{Scenario, Shape};
use super::process::{Process, free_address};
use super::product::{Product, Served};
use super::report::{Machine, Setup, Summary, median};
use super::workload::{BenchStore, Side, Workload};
use super::{BenchArgs, provision, run_name, say};

/// The operations that both have, with their names here.
const OPERATIONS: [(&str, Scenario); 5] = [
    ("read", Scenario::View),
    ("list", Scenario::List),
    ("search", Scenario::Search),
    ("edit", Scenario::StrReplace),
    ("write", Scenario::Create),
];
const PROBE: &str = "/api/v1/health";

/// Options of `keepsake-bench --peers`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PeersArgs {
    /// Measures the same operations on Keepsake and on ai-memory, alternately
    #[arg(long, requires = "ai_memory", conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console"])]
    pub(super) peers: bool,
    /// The binary of ai-memory 0.6.4
    #[arg(long, value_name = "FILE")]
    ai_memory: Option<PathBuf>,
    /// Numbers of clients
    #[arg(long, value_delimiter = ',', default_value = "1,16,32", requires = "peers")]
    clients: Vec<usize>,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Peers {
    keepsake: &'static str,
    machine: Machine,
    setup: Setup,
    results: Vec<Compared>,
}

/// The results of one operation with one number of clients.
#[derive(Debug, Serialize)]
struct Compared {
    operation: &'static str,
    clients: usize,
    server: Summary,
    ai_memory: Summary,
    /// Keepsake's throughput divided by that of ai-memory, the median of the rounds.
    median_ratio: Option<f64>,
}

/// A folder for the peer's data and its home; removed when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures both servers with each number of clients.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<Peers, Failure> {
    let machine = Machine::this();
    let settings = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let run = run_name();
    let tenants = provision::tenants(&product, 1, &run).await?;
    let Served { mut process, address, .. } = product.serve_with(&[]).await?;
    let server = endpoint(Side::Server, &process, address, Backends::of(&settings));
    let scratch = Scratch(std::env::temp_dir().join(format!("keepsake-bench-peers-{run}")));
    let (mut peer, peer_address) = start_peer(args, &scratch).await?;
    let peer_endpoint = endpoint(Side::AiMemory, &peer, peer_address, Backends::default());
    let shape = Shape { tenants: 1, stores_each: 1, memories: args.sizes.memories, is_skewed: false };
    let stores: Vec<BenchStore> = provision::stores(&tenants, 1, address).await?;
    // Separate, because a workload remembers the states and ids of memories.
    let sides = [
        (server, args.workload(&stores, &run, shape)?),
        (peer_endpoint, args.workload(&stores, &run, shape)?),
    ];
    for (endpoint, workload) in &sides {
        say(&format!("making {} memories: {:?}", shape.memories, endpoint.side));
        load::seed(*endpoint, workload, args.load()).await?;
    }
    let mut results = Vec::new();
    for clients in &args.peers.clients {
        let load = Load { connections: *clients, threads: args.load().threads.min(*clients), ..args.load() };
        for (operation, scenario) in OPERATIONS {
            let [ours, theirs] = measure_rounds(args, &sides, scenario, load).await?;
            let ratios: Vec<_> = ours
                .iter()
                .zip(&theirs)
                .map(|(ours, theirs)| ours.throughput() / theirs.throughput())
                .collect();
            if let (Some(server), Some(ai_memory)) = (Summary::of(&ours), Summary::of(&theirs)) {
                results.push(Compared {
                    operation,
                    clients: *clients,
                    server,
                    ai_memory,
                    median_ratio: median(&ratios),
                });
            }
            process.check()?;
            peer.check()?;
        }
    }
    peer.end().await?;
    process.end().await?;
    Ok(Peers {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup: args.setup(args.load(), Some(&settings)),
        results,
    })
}

fn endpoint(side: Side, process: &Process, address: std::net::SocketAddr, backends: Backends) -> Endpoint {
    Endpoint { side, address, pid: process.pid(), backends, operator: None }
}

/// Measures both sides alternately; a failed call is an error.
async fn measure_rounds(
    args: &BenchArgs,
    sides: &[(Endpoint, Arc<Workload>); 2],
    scenario: Scenario,
    load: Load,
) -> Result<[Vec<Measured>; 2], Failure> {
    let mut seen = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        for turn in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (endpoint, workload) = &sides[turn];
            let measured = load::measure(*endpoint, workload, scenario, load).await?;
            if let Some(failure) = measured.failure {
                return Err(Failure::new(format!("a call of {:?} failed: {failure}", endpoint.side)));
            }
            say(&format!(
                "{} with {} clients, round {} of {}: {:?} {:.0}/s",
                scenario.name(),
                load.connections,
                round + 1,
                args.rounds,
                endpoint.side,
                measured.throughput()
            ));
            seen[turn].push(measured);
        }
    }
    Ok(seen)
}

/// Starts ai-memory with full-text search and no language model.
async fn start_peer(args: &BenchArgs, scratch: &Scratch) -> Result<(Process, std::net::SocketAddr), Failure> {
    let binary = args.peers.ai_memory.as_ref().ok_or_else(|| Failure::new("--peers needs --ai-memory"))?;
    let folder = &scratch.0;
    let configuration = folder.join(".config/ai-memory");
    let written = std::fs::create_dir_all(&configuration)
        .and_then(|()| std::fs::write(configuration.join("config.toml"), "tier = \"keyword\"\n"));
    written.map_err(Failure::of("the configuration of ai-memory cannot be written"))?;
    let address = free_address()?;
    let process = Process::start(binary, "ai-memory", (address, PROBE), |command| {
        command
            .arg("--db")
            .arg(folder.join("ai-memory.db"))
            .args(["serve", "--host", &address.ip().to_string(), "--port", &address.port().to_string()])
            .env("HOME", folder)
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(folder);
    })
    .await?;
    Ok((process, address))
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.results {
            writeln!(
                f,
                "{:<8} {:>3} clients  keepsake {:>8.0}/s p50 {:>7.2} ms  ai-memory {:>8.0}/s p50 {:>7.2} ms  ratio {:.2}",
                one.operation,
                one.clients,
                one.server.requests_per_second,
                one.server.p50_ms,
                one.ai_memory.requests_per_second,
                one.ai_memory.p50_ms,
                one.median_ratio.unwrap_or(f64::NAN)
            )?;
        }
        Ok(())
    }
}
