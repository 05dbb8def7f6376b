//! `keepsake-bench`: measures the speed of a server, and compares it with the
//! fastest possible server for the same calls (`--floor`).
//!
//! A closed loop: each connection sends its next call after the last response.
//! With a configuration, the benchmark creates tenants and stores, and starts the
//! server and the floor as child processes. It measures the two alternately, so
//! that changes of the machine's speed affect both.

mod connection;
mod console;
mod fairness;
mod floor;
mod load;
mod plan;
mod process;
mod product;
mod provision;
mod report;
mod scanner;
mod search;
mod settings;
mod words;
mod workload;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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
use load::{Endpoint, Load};
use plan::{Command, Layout, Scenario};
use process::{Process, free_address};
use product::Product;
use provision::BenchTenant;
use report::{Finding, Machine, Report, Setup};
use workload::{BenchStore, Side, Workload};

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
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Some(Child::Floor(args)) => floor::run_floor(args).await,
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
    /// Also measures the fastest possible server for the same calls, alternately
    #[arg(long)]
    floor: bool,
    /// The scenarios to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "view,create")]
    scenarios: Vec<Scenario>,
    /// How stores belong to tenants
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "spread,tenant,store"
    )]
    layouts: Vec<Layout>,
    /// Number of connections, each with one call at a time
    #[arg(long, default_value_t = 32, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    connections: usize,
    /// Number of client threads; unset, a quarter of the cores
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    client_threads: Option<usize>,
    /// Number of memories in all stores of a layout at the start
    #[arg(long, default_value_t = 6_400, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000_000))]
    memories: usize,
    /// Size of a memory in bytes
    #[arg(long, default_value_t = 2_048, value_parser = RangedU64ValueParser::<usize>::new().range(16..=102_400))]
    content_bytes: usize,
    /// Number of rounds of each measurement
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Seconds of load before each measurement
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    warm_up: Duration,
    /// Seconds of each measurement
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
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
    let seconds: f64 = text
        .parse()
        .map_err(|_| "must be a number of seconds".to_owned())?;
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
            return Ok::<_, Failure>(None);
        }
        if args.searching.search {
            print_report(&args, &search::measure(&args).await?)?;
            return Ok(None);
        }
        if args.console.console {
            print_report(&args, &console::measure(&args).await?)?;
            return Ok(None);
        }
        let (report, failure) = measure_all(&args).await?;
        print_report(&args, &report)?;
        Ok(failure)
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
        if self.memories < self.connections {
            return Err(Failure::new(
                "--memories must be at least --connections: two connections never edit the same memory",
            ));
        }
        Ok(())
    }

    /// The configuration of the measured server.
    fn settings(&self) -> Result<Settings, Failure> {
        Ok(self.sources.clone().into_sources().merge().settings()?)
    }

    fn load(&self) -> Load {
        let threads = self
            .client_threads
            .unwrap_or_else(|| (report::cores() / 4).max(1));
        Load {
            connections: self.connections,
            threads: threads.min(self.connections),
            warm_up: self.warm_up,
            measured: self.measure,
        }
    }

    fn workload(&self, stores: &[BenchStore], run: &str) -> Result<Arc<Workload>, Failure> {
        Workload::new(stores, run, self.memories, self.content_bytes).map(Arc::new)
    }

    fn setup(&self, load: Load, settings: Option<&Settings>) -> Setup {
        let (index, blobs) = settings.map(settings::describe).unzip();
        Setup {
            index,
            blobs,
            connections: load.connections,
            client_threads: load.threads,
            memories: self.memories,
            content_bytes: self.content_bytes,
            rounds: self.rounds,
            warm_up_seconds: self.warm_up.as_secs_f64(),
            measured_seconds: self.measure.as_secs_f64(),
            note: self.note.clone(),
        }
    }
}

/// A layout and the calls for its stores.
type PreparedTenant = (Layout, Arc<Workload>);

/// Measures every scenario with every layout.
///
/// Returns the report and the error of the first failed call.
async fn measure_all(args: &BenchArgs) -> Result<(Report, Option<String>), Failure> {
    let machine = Machine::this();
    let load = args.load();
    let run = run_name();
    let prepared = if args.credentials.is_none() {
        Some(prepare(args, &run).await?)
    } else {
        None
    };
    let (mut server, address) = if let Some(url) = &args.url {
        (None, resolve(url).await?)
    } else {
        let (server, address) = Product::of(args)?.serve().await?;
        (Some(server), address)
    };
    let laid = lay_out(args, &run, prepared.as_ref(), address).await?;
    let settings = prepared.map(|prepared| prepared.settings);
    let endpoint = Endpoint {
        side: Side::Server,
        address,
        pid: server.as_ref().and_then(Process::pid),
    };
    for (layout, workload) in &laid {
        say(&format!(
            "making {} memories in {}",
            args.memories,
            layout.title()
        ));
        load::seed(endpoint, workload, load).await?;
    }
    if let Some(settings) = &settings {
        settings::vacuum(settings).await?;
    }
    let mut floor = if args.floor {
        Some(start_floor(args, endpoint, &laid).await?)
    } else {
        None
    };
    let floor_endpoint = floor.as_ref().map(|(process, address)| Endpoint {
        side: Side::Floor,
        address: *address,
        pid: process.pid(),
    });

    let mut failure = None;
    let mut results = Vec::new();
    let mut scenarios = args.scenarios.clone();
    // Reads before writes: the floor's tables have the rows that the server had
    // before the measurement.
    scenarios.sort_unstable();
    scenarios.dedup();
    for scenario in scenarios {
        for (layout, workload) in &laid {
            let rounds =
                measure_rounds(args, scenario, (*layout, workload), endpoint, floor_endpoint).await?;
            for side in [&rounds.server, &rounds.floor] {
                failure = failure.or_else(|| side.iter().find_map(|round| round.failure.clone()));
            }
            results.extend(Finding::of(
                scenario,
                *layout,
                workload.store_count(),
                &rounds.server,
                &rounds.floor,
            ));
            for process in server
                .iter_mut()
                .chain(floor.iter_mut().map(|(process, _)| process))
            {
                process.check()?;
            }
        }
    }
    let scanner = tokio::task::spawn_blocking(scanner::measure)
        .await
        .map_err(Failure::of("the scanner cannot be measured"))?;
    let setup = args.setup(load, settings.as_ref());
    let report = Report {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup,
        results,
        scanner,
    };
    Ok((report, failure))
}

struct Rounds {
    server: Vec<load::Measured>,
    floor: Vec<load::Measured>,
}

/// Measures one scenario with one layout, floor and server alternately.
async fn measure_rounds(
    args: &BenchArgs,
    scenario: Scenario,
    (layout, workload): (Layout, &Arc<Workload>),
    server: Endpoint,
    floor: Option<Endpoint>,
) -> Result<Rounds, Failure> {
    let mut rounds = Rounds {
        server: Vec::new(),
        floor: Vec::new(),
    };
    for round in 0..args.rounds {
        let mut endpoints: Vec<_> = floor.into_iter().chain([server]).collect();
        // Alternates, because the second one is slowed down by unflushed data of
        // the first.
        if round % 2 == 1 {
            endpoints.reverse();
        }
        for endpoint in endpoints {
            let seen = load::measure(endpoint, workload, scenario, args.load()).await?;
            say(&format!(
                "{} over {}, round {} of {}: {:?} {:.0}/s",
                scenario.name(),
                layout.title(),
                round + 1,
                args.rounds,
                endpoint.side,
                seen.throughput(),
            ));
            match endpoint.side {
                Side::Server => rounds.server.push(seen),
                Side::Floor => rounds.floor.push(seen),
            }
        }
    }
    Ok(rounds)
}

/// The tenants, which are created before the server locks a SQLite index.
struct Prepared {
    settings: Settings,
    tenants: Vec<(Layout, Vec<BenchTenant>)>,
}

/// Migrates the configured database and creates the tenants of every layout.
async fn prepare(args: &BenchArgs, run: &str) -> Result<Prepared, Failure> {
    let settings = args.settings()?;
    let product = Product::of(args)?;
    if args.url.is_none() {
        product.run(&["migrate"]).await?;
    }
    let mut layouts = args.layouts.clone();
    layouts.sort_unstable();
    layouts.dedup();
    let mut tenants = Vec::new();
    for layout in layouts {
        tenants.push((layout, provision::tenants(&product, layout, run).await?));
    }
    Ok(Prepared { settings, tenants })
}

/// Creates the stores of every layout at the server, or takes those of `--credentials`.
async fn lay_out(
    args: &BenchArgs,
    run: &str,
    prepared: Option<&Prepared>,
    server: SocketAddr,
) -> Result<Vec<PreparedTenant>, Failure> {
    if let Some(file) = &args.credentials {
        return Ok(vec![prepare_given_layouts(args, run, file)?]);
    }
    let mut laid = Vec::new();
    for (layout, tenants) in prepared.into_iter().flat_map(|prepared| &prepared.tenants) {
        let stores = provision::stores(tenants, *layout, server).await?;
        laid.push((*layout, args.workload(&stores, run)?));
    }
    Ok(laid)
}

/// Takes the stores that a file lists.
fn prepare_given_layouts(args: &BenchArgs, run: &str, file: &Path) -> Result<PreparedTenant, Failure> {
    let json = std::fs::read(file).map_err(Failure::of(format_args!("{} cannot be read", file.display())))?;
    let stores = provision::given(&json)?;
    Ok((Layout::Given, args.workload(&stores, run)?))
}

/// A unique name for the tenants and paths of this run.
fn run_name() -> String {
    RandomIds.uuid(SystemClock.now()).simple().to_string()
}

/// Starts the floor with responses of the same size as the server's.
async fn start_floor(
    args: &BenchArgs,
    server: Endpoint,
    laid: &[PreparedTenant],
) -> Result<(Process, SocketAddr), Failure> {
    let (_, workload) = laid.first().ok_or_else(|| Failure::new("no layout is given"))?;
    let mut options = vec![format!("--content-bytes={}", args.content_bytes)];
    for (option, command) in [
        ("--view-answer-bytes", Command::View),
        ("--create-answer-bytes", Command::Create),
        ("--edit-answer-bytes", Command::StrReplace),
    ] {
        let bytes = load::answer_bytes(server, workload, command).await?;
        options.push(format!("{option}={bytes}"));
    }
    let address = free_address()?;
    let this = std::env::current_exe().map_err(Failure::of("this program cannot be found"))?;
    let process = Process::start(&this, "floor", address, |command| {
        command
            .arg("floor")
            .args(settings::to_flags(&args.sources))
            .args(options)
            .arg("--listen")
            .arg(address.to_string());
    })
    .await?;
    Ok((process, address))
}

/// Resolves a server's URL, which must have the form `http://host:port`.
async fn resolve(url: &str) -> Result<SocketAddr, Failure> {
    let refused = || Failure::new("--url must be like http://127.0.0.1:8080");
    let uri: hyper::Uri = url.parse().map_err(|_| refused())?;
    let (Some("http"), Some(host), "/" | "") = (uri.scheme_str(), uri.host(), uri.path()) else {
        return Err(refused());
    };
    let mut addresses = tokio::net::lookup_host((host, uri.port_u16().unwrap_or(80)))
        .await
        .map_err(Failure::of(format_args!("{host} cannot be found")))?;
    addresses
        .next()
        .ok_or_else(|| Failure::new(format!("{host} has no address")))
}

/// Prints progress to stderr.
fn say(what: &str) {
    eprintln!("bench: {what}");
}
