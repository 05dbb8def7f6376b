//! Measures scenarios with layouts of stores, on the server and on the floor.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use keepsake_config::{Failure, Settings};

use super::costs::Backends;
use super::load::{self, Endpoint, Measured};
use super::operator::Operator;
use super::plan::{Command, Layout, Scenario};
use super::process::{LIVEZ, Process, free_address};
use super::product::{Product, Served};
use super::provision::{self, BenchTenant};
use super::report::{Finding, Machine, Report};
use super::workload::{Side, Workload};
use super::{BenchArgs, run_name, say, scanner, settings};

/// The variable that makes a server cache no content.
const NO_CACHE: [(&str, &str); 1] = [("KEEPSAKE_CACHE_BLOB_BYTES", "0")];

/// A layout and the calls for its stores.
type LaidOut = (Layout, Arc<Workload>);

/// The measured server: started here, or already running.
struct Server {
    started: Option<Process>,
    endpoint: Endpoint,
}

impl Server {
    async fn start(
        product: &Product,
        backends: Backends,
        variables: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let Served { process, address, operator } = product.serve_with(variables).await?;
        let endpoint =
            Endpoint { side: Side::Server, address, pid: process.pid(), backends, operator: Some(operator) };
        Ok(Self { started: Some(process), endpoint })
    }

    async fn running(url: &str, backends: Backends) -> Result<Self, Failure> {
        let endpoint = Endpoint {
            side: Side::Server,
            address: resolve(url).await?,
            pid: None,
            backends,
            operator: None,
        };
        Ok(Self { started: None, endpoint })
    }
}

/// Measures every scenario with every layout.
///
/// Returns the report and the error of the first failed call.
///
/// # Errors
/// [`Failure`] of the setup.
pub(super) async fn measure(args: &BenchArgs) -> Result<(Report, Option<String>), Failure> {
    let machine = Machine::this();
    let load = args.load();
    let run = run_name();
    let prepared = if args.credentials.is_none() { Some(prepare(args, &run).await?) } else { None };
    let configured = prepared.as_ref().map(|prepared| &prepared.settings);
    let backends = configured.map(Backends::of).unwrap_or_default();
    let mut server = match &args.url {
        Some(url) => Server::running(url, backends).await?,
        None => Server::start(&Product::of(args)?, backends, &[]).await?,
    };
    let laid = lay_out(args, &run, prepared.as_ref(), server.endpoint).await?;
    for (layout, workload) in &laid {
        let count = workload.memory_count();
        say(&format!("making {count} memories in {}", layout.title()));
        load::seed(server.endpoint, workload, load).await?;
    }
    if let Some(settings) = configured {
        settings::vacuum(settings).await?;
    }
    let mut floor = if args.floor {
        Some(start_floor(args, server.endpoint, &laid, args.content_bytes).await?)
    } else {
        None
    };

    let mut failure = None;
    let mut results = Vec::new();
    let mut scenarios = args.scenarios.clone();
    // Reads before writes: the floor's tables have the rows that the server had
    // before the measurement.
    scenarios.sort_unstable();
    scenarios.dedup();
    for scenario in scenarios {
        if scenario == Scenario::Cold {
            server = without_cache(args, server).await?;
        }
        let floor_endpoint = floor.as_ref().map(|(_, endpoint)| *endpoint).filter(|_| scenario.has_floor());
        let rounds = measure_rounds(args, scenario, &laid, server.endpoint, floor_endpoint).await?;
        for ((layout, workload), rounds) in laid.iter().zip(&rounds) {
            for side in [&rounds.server, &rounds.floor] {
                failure = failure.or_else(|| side.iter().find_map(|round| round.failure.clone()));
            }
            let stores = workload.store_count();
            results.extend(Finding::of(scenario, *layout, stores, &rounds.server, &rounds.floor));
        }
        let floor = floor.iter_mut().map(|(process, _)| process);
        for process in server.started.iter_mut().chain(floor) {
            process.check()?;
        }
    }
    let scanner = tokio::task::spawn_blocking(scanner::measure)
        .await
        .map_err(Failure::of("the scanner cannot be measured"))?;
    let report = Report {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup: args.setup(load, configured),
        results,
        scanner,
    };
    Ok((report, failure))
}

/// Replaces the server by one that caches no content.
async fn without_cache(args: &BenchArgs, server: Server) -> Result<Server, Failure> {
    let Some(started) = server.started else {
        return Err(Failure::new("`cold` restarts the server, which --url does not allow"));
    };
    started.end().await?;
    Server::start(&Product::of(args)?, server.endpoint.backends, &NO_CACHE).await
}

#[derive(Default)]
struct Rounds {
    server: Vec<Measured>,
    floor: Vec<Measured>,
}

/// Measures one scenario: layouts, and floor and server, alternately.
async fn measure_rounds(
    args: &BenchArgs,
    scenario: Scenario,
    laid: &[LaidOut],
    server: Endpoint,
    floor: Option<Endpoint>,
) -> Result<Vec<Rounds>, Failure> {
    let mut rounds: Vec<_> = laid.iter().map(|_| Rounds::default()).collect();
    for round in 0..args.rounds {
        for ((layout, workload), rounds) in laid.iter().zip(&mut rounds) {
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
                if endpoint.side == Side::Floor {
                    rounds.floor.push(seen);
                } else {
                    rounds.server.push(seen);
                }
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
///
/// Those of the layout `many` are created at the running server, which is faster.
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
        let count = if layout == Layout::Many { 0 } else { layout.shape(args.sizes).tenants };
        let name = format!("{run} {}", layout.title());
        tenants.push((layout, provision::tenants(&product, count, &name).await?));
    }
    Ok(Prepared { settings, tenants })
}

/// Creates the stores of every layout at the server, or takes those of `--credentials`.
async fn lay_out(
    args: &BenchArgs,
    run: &str,
    prepared: Option<&Prepared>,
    server: Endpoint,
) -> Result<Vec<LaidOut>, Failure> {
    if let Some(file) = &args.credentials {
        return Ok(vec![prepare_given_layouts(args, run, file)?]);
    }
    let mut laid = Vec::new();
    for (layout, tenants) in prepared.into_iter().flat_map(|prepared| &prepared.tenants) {
        let shape = layout.shape(args.sizes);
        let many = match (layout, server.operator) {
            (Layout::Many, Some(operator)) => make_many(operator, shape.tenants, run).await?,
            (Layout::Many, None) => {
                return Err(Failure::new("the layout `many` needs a server that the benchmark starts"));
            }
            _ => Vec::new(),
        };
        let tenants = if many.is_empty() { tenants } else { &many };
        let stores = provision::stores(tenants, shape.stores_each, server.address).await?;
        laid.push((*layout, args.workload(&stores, run, shape)?));
    }
    Ok(laid)
}

async fn make_many(operator: Operator, count: usize, run: &str) -> Result<Vec<BenchTenant>, Failure> {
    say(&format!("making {count} tenants"));
    provision::many_tenants(operator, count, run).await
}

/// Takes the stores that a file lists.
fn prepare_given_layouts(args: &BenchArgs, run: &str, file: &Path) -> Result<LaidOut, Failure> {
    let json = std::fs::read(file).map_err(Failure::of(format_args!("{} cannot be read", file.display())))?;
    let stores = provision::given(&json)?;
    let shape = Layout::Given.shape(args.sizes);
    Ok((Layout::Given, args.workload(&stores, run, shape)?))
}

/// Starts the floor with responses of the same size as the server's.
///
/// # Errors
/// [`Failure`] of a call or of the start.
pub(super) async fn start_floor(
    args: &BenchArgs,
    server: Endpoint,
    laid: &[LaidOut],
    content_bytes: usize,
) -> Result<(Process, Endpoint), Failure> {
    let (_, workload) = laid.first().ok_or_else(|| Failure::new("no layout is given"))?;
    let mut answer_bytes = Vec::new();
    for command in Command::OF_FLOOR {
        let bytes = load::answer_bytes(server, workload, command).await?;
        answer_bytes.push(bytes.to_string());
    }
    let address = free_address()?;
    let this = std::env::current_exe().map_err(Failure::of("this program cannot be found"))?;
    let process = Process::start(&this, "floor", (address, LIVEZ), |command| {
        command
            .arg("floor")
            .args(settings::to_flags(&args.sources))
            .arg(format!("--content-bytes={content_bytes}"))
            .arg(format!("--answer-bytes={}", answer_bytes.join(",")))
            .arg("--listen")
            .arg(address.to_string());
    })
    .await?;
    let endpoint = Endpoint { side: Side::Floor, address, pid: process.pid(), operator: None, ..server };
    Ok((process, endpoint))
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
    addresses.next().ok_or_else(|| Failure::new(format!("{host} has no address")))
}
