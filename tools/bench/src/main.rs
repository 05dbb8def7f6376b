//! `keepsake-bench`: measures the speed of a server, and compares it with the
//! fastest possible server for the same calls (`--floor`).
//!
//! A closed loop: each connection sends its next call after the last response.
//! With a configuration, the benchmark creates tenants and stores, and starts the
//! server and the floor as child processes. It measures the two alternately, so
//! that changes of the machine's speed affect both.

mod connection;
mod console;
mod costs;
mod disk;
mod fairness;
mod floor;
mod footprint;
mod gates;
mod growth;
mod import;
mod load;
mod meaning;
mod operator;
mod page;
mod peers;
mod plan;
mod process;
mod product;
mod provision;
mod readers;
mod report;
mod requests;
mod scanner;
mod scenarios;
mod search;
mod settings;
mod words;
mod workload;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Parser, Subcommand};
use keepsake_config::{Failure, Settings, SourceArgs};
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use floor::FloorArgs;
use load::Load;
use page::PageArgs;
use plan::{Layout, Scenario, Shape, Sizes};
use report::Setup;
use workload::{BenchStore, Workload};

/// The allocator of the measured server, so that the floor has no other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the speed of a server.
///
/// Creates tenants, stores and memories in the configured index and blob store,
/// and leaves them there: use an index and a blob store for nothing else.
#[derive(Debug, Parser)]
#[command(name = "keepsake-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Child>,
    #[command(flatten)]
    args: BenchArgs,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// The floor server, which `--floor` starts
    #[command(hide = true)]
    Floor(FloorArgs),
    /// Prints docs/performance.md from the results in a folder
    Report(PageArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Some(Child::Floor(args)) => floor::run_floor(args).await,
        Some(Child::Report(args)) => page::print(&args),
        // On the heap: it is too large for the stack.
        None => Box::pin(run(cli.args)).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("keepsake-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Options of `keepsake-bench`.
#[derive(Debug, clap::Args)]
struct BenchArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// The binary to measure; unset, the one beside this program
    #[arg(long, value_name = "FILE")]
    keepsake: Option<PathBuf>,
    /// Measures this running server instead of a new one.
    ///
    /// With a configuration, which must name the server's Postgres database,
    /// tenants and stores are created there; otherwise --credentials is needed
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// A file with keys and stores of a running server, which get new memories:
    /// `[{"api_key": "ks_live_…", "store_ids": ["memstore_…"]}]`
    #[arg(long, value_name = "FILE", requires = "url", conflicts_with_all = ["config", "data_dir", "floor"])]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    fairness: fairness::FairnessArgs,
    #[command(flatten)]
    searching: search::SearchArgs,
    #[command(flatten)]
    console: console::ConsoleArgs,
    #[command(flatten)]
    import: import::ImportArgs,
    #[command(flatten)]
    footprint: footprint::FootprintArgs,
    #[command(flatten)]
    growth: growth::GrowthArgs,
    #[command(flatten)]
    peers: peers::PeersArgs,
    #[command(flatten)]
    readers: readers::ReadersArgs,
    #[command(flatten)]
    gates: gates::GatesArgs,
    #[command(flatten)]
    meaning: meaning::MeaningArgs,
    /// Also measures the fastest possible server for the same calls, alternately
    #[arg(long)]
    floor: bool,
    /// The scenarios to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "view,create")]
    scenarios: Vec<Scenario>,
    /// How stores belong to tenants
    #[arg(long, value_enum, value_delimiter = ',', default_value = "spread,tenant,store")]
    layouts: Vec<Layout>,
    /// Number of connections, each with one call at a time
    #[arg(long, default_value_t = 32, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    connections: usize,
    /// Number of client threads; unset, a quarter of the cores
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    client_threads: Option<usize>,
    #[command(flatten)]
    sizes: Sizes,
    /// Calls per second of all connections, due at fixed times; unset, each
    /// connection sends its next call after the last response
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Size of a memory in bytes
    #[arg(long, default_value_t = 2_048, value_parser = RangedU64ValueParser::<usize>::new().range(16..=102_400))]
    content_bytes: usize,
    /// Number of rounds of each measurement; with --readers, 2 if unset
    #[arg(long, default_value_t = 5, default_value_if("readers", "true", "2"), value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Seconds of load before each measurement; with --readers, 31 if unset
    #[arg(long, default_value = "2", default_value_if("readers", "true", "31"), value_name = "SECONDS", value_parser = seconds)]
    warm_up: Duration,
    /// Seconds of each measurement; with --readers, 60 if unset
    #[arg(long, default_value = "5", default_value_if("readers", "true", "60"), value_name = "SECONDS", value_parser = seconds)]
    measure: Duration,
    /// A file for the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A note in the results
    #[arg(long)]
    note: Option<String>,
    /// Counts failed calls instead of ending with an error
    #[arg(long)]
    allow_errors: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && duration <= Duration::from_hours(24) => Ok(duration),
        _ => Err("must be more than 0 and at most a day".to_owned()),
    }
}

/// Runs the benchmark, prints the results and writes them to `--json`.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
async fn run(args: BenchArgs) -> Result<(), Failure> {
    args.check()?;
    let [mut interrupt, mut terminate] = [
        signal(SignalKind::interrupt()).map_err(Failure::of("signals cannot be caught"))?,
        signal(SignalKind::terminate()).map_err(Failure::of("signals cannot be caught"))?,
    ];
    let measured = async {
        if args.fairness.fairness {
            print_report(&args, &fairness::measure(&args).await?)?;
        } else if args.searching.search {
            print_report(&args, &search::measure(&args).await?)?;
        } else if args.console.console {
            print_report(&args, &console::measure(&args).await?)?;
        } else if args.import.import {
            print_report(&args, &import::measure(&args).await?)?;
        } else if args.footprint.footprint {
            print_report(&args, &footprint::measure(&args).await?)?;
        } else if args.growth.growth {
            print_report(&args, &growth::measure(&args).await?)?;
        } else if args.peers.peers {
            print_report(&args, &peers::measure(&args).await?)?;
        } else if args.readers.readers {
            print_report(&args, &readers::measure(&args).await?)?;
        } else if args.gates.gates {
            print_report(&args, &gates::measure(&args).await?)?;
        } else if args.meaning.meaning {
            print_report(&args, &meaning::measure(&args).await?)?;
        } else {
            let (report, failure) = scenarios::measure(&args).await?;
            print_report(&args, &report)?;
            return Ok(failure);
        }
        Ok::<_, Failure>(None)
    };
    let failure = tokio::select! {
        measured = measured => measured?,
        // Drops the children, which ends them.
        _ = interrupt.recv() => return Err(Failure::new("interrupted")),
        _ = terminate.recv() => return Err(Failure::new("interrupted")),
    };
    match failure {
        Some(failure) if !args.allow_errors => {
            Err(Failure::new(format!("calls failed, the first with: {failure}")))
        }
        _ => Ok(()),
    }
}

/// Prints a report and writes it to `--json`.
fn print_report(args: &BenchArgs, report: &(impl Serialize + Display)) -> Result<(), Failure> {
    println!("{report}");
    let Some(file) = &args.json else {
        return Ok(());
    };
    let json = serde_json::to_vec_pretty(report).map_err(std::io::Error::from);
    let written = json.and_then(|json| std::fs::write(file, json));
    written.map_err(Failure::of(format_args!("{} cannot be written", file.display())))
}

impl BenchArgs {
    fn check(&self) -> Result<(), Failure> {
        for layout in &self.layouts {
            if layout.shape(self.sizes).memories < self.connections {
                return Err(Failure::new(format!(
                    "--memories, --large-memories and --many-tenants must be at least --connections ({}): \
                     two connections never edit the same memory",
                    self.connections
                )));
            }
        }
        Ok(())
    }

    /// The configuration of the measured server.
    fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.sources.clone().into_sources().merge().settings()?)
    }

    fn load(&self) -> Load {
        let threads = self.client_threads.unwrap_or_else(|| (report::cores() / 4).max(1));
        Load {
            connections: self.connections,
            threads: threads.min(self.connections),
            warm_up: self.warm_up,
            measured: self.measure,
            rate: self.rate,
        }
    }

    fn workload(&self, stores: &[BenchStore], run: &str, shape: Shape) -> Result<Arc<Workload>, Failure> {
        let workload = Workload::new(stores, run, shape.memories, self.content_bytes)?;
        Ok(Arc::new(workload.skewed(shape.is_skewed)))
    }

    fn setup(&self, load: Load, settings: Option<&Settings>) -> Setup {
        let (index, blobs) = settings.map(settings::describe).unzip();
        Setup {
            index,
            blobs,
            connections: load.connections,
            client_threads: load.threads,
            memories: self.sizes.memories,
            content_bytes: self.content_bytes,
            rate: self.rate,
            rounds: self.rounds,
            warm_up_seconds: self.warm_up.as_secs_f64(),
            measured_seconds: self.measure.as_secs_f64(),
            note: self.note.clone(),
        }
    }
}

/// A unique name for the tenants and paths of this run.
fn run_name() -> String {
    RandomIds.uuid(SystemClock.now()).simple().to_string()
}

/// Prints progress to stderr.
fn say(what: &str) {
    eprintln!("bench: {what}");
}
