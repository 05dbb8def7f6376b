//! The record of who was shown which version: its cost, and its size.
//!
//! Calls in a store with the record alternate with those in an equal store without it. A server
//! writes reads and access times at seconds 0 and 30 of each minute: turns of 60 s after a warm-up
//! of 31 s have two of these writes, and none of another turn's calls. Then a store gets many
//! recorded reads, written into the database at once, since a server would need hours. The readers
//! of its versions are listed, and half of the reads are removed.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hyper::Method;
use keepsake_config::{Failure, Settings};
use keepsake_core::TenantId;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{Clock, SystemClock};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{Connection, Postgres, Sqlite};
use uuid::Uuid;

use super::costs::Backends;
use super::disk::Disk;
use super::growth::measure_once;
use super::load::{self, Endpoint, Latencies, histogram, record};
use super::operator::Operator;
use super::plan::{Layout, Scenario};
use super::process::Process;
use super::product::{Product, Served};
use super::provision::{self, BenchTenant, LIMITS};
use super::report::{Compared, Machine, Setup, rounded, verdict};
use super::search::Caller;
use super::settings::{self, IndexPlace, Writer};
use super::words::Numbers;
use super::workload::{BenchStore, Side};
use super::{BenchArgs, run_name, say};

const SCENARIOS: [Scenario; 2] = [Scenario::View, Scenario::Search];
/// The least rate with the record, as a share of that without it.
const COST_BAR: f64 = 0.95;
/// The versions that share the recorded reads.
const VERSIONS: u64 = 1_000;
/// Recorded reads of each version that one statement writes.
const READS_AT_ONCE: u64 = 100;
/// Lists of readers in a round.
const LISTS: usize = 1_000;
/// Maximum p99 of such a list.
const LIST_BAR_MS: f64 = 20.0;
/// Half of the recorded reads are as old, and are removed when the retention becomes shorter.
const OLD: Duration = Duration::from_hours(20 * 24);
const RETENTION: Duration = Duration::from_hours(10 * 24);
/// How long memories are created before the removal, unless a measurement is shorter.
const BEFORE: Duration = Duration::from_mins(1);
/// How much longer than before a creation may take during the removal.
const CREATE_BAR_MS: f64 = 100.0;
/// New memories between two looks at the time or at the removal.
const CREATES_AT_ONCE: usize = 10;

/// Writes the reads with the numbers from `$3` to `$4` of each version. Read 0 is at `$5`, each further one a
/// second earlier, and those with an even number are older by `$6`. Each read has another session. As on a
/// server, the ids of sessions are in the order of time.
const FILL_POSTGRES: &str = "INSERT INTO memory_read (tenant_id, store_id, memory_id, version_id, session_id, actor_type, \
        actor_id, surface, first_read_at, last_read_at, read_count) \
    SELECT m.tenant_id, m.store_id, m.memory_id, m.version_id, \
        (lpad(to_hex(t.at / 1000), 12, '0') || substr(replace(gen_random_uuid()::text, '-', ''), 13))::uuid, \
        'user_actor', 'bench', 'tool', t.at, t.at, 1 FROM memory m \
    CROSS JOIN (SELECT $5::bigint - n * 1000000 - CASE WHEN n % 2 = 0 THEN $6::bigint ELSE 0 END AS at \
        FROM generate_series($3::bigint, $4::bigint) AS numbers(n)) t \
    WHERE m.tenant_id = $1 AND m.store_id = $2";

const FILL_SQLITE: &str = "WITH RECURSIVE numbers(n) AS (SELECT $3 UNION ALL SELECT n + 1 FROM numbers WHERE n < $4) \
    INSERT INTO memory_read (tenant_id, store_id, memory_id, version_id, session_id, actor_type, actor_id, surface, \
        first_read_at, last_read_at, read_count) \
    SELECT m.tenant_id, m.store_id, m.memory_id, m.version_id, \
        unhex(printf('%012x', t.at / 1000) || hex(randomblob(10))), \
        'user_actor', 'bench', 'tool', t.at, t.at, 1 FROM memory m \
    CROSS JOIN (SELECT $5 - n * 1000000 - CASE WHEN n % 2 = 0 THEN $6 ELSE 0 END AS at FROM numbers) t \
    WHERE m.tenant_id = $1 AND m.store_id = $2";

/// Options of `keepsake-bench --readers`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ReadersArgs {
    /// Measures the record of who was shown which version: its cost for `view` and
    /// `search`, lists of readers, and the removal of old reads.
    ///
    /// A server writes the reads each 30 s: unless --warm-up, --measure and --rounds are
    /// set, they are 31 s, 60 s and 2, so that each turn has two whole periods
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console", "growth"])]
    pub(super) readers: bool,
    /// Number of recorded reads
    #[arg(long, default_value_t = 1_000_000, requires = "readers",
        value_parser = clap::value_parser!(u64).range(VERSIONS..=10_000_000))]
    recorded_reads: u64,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct ReadersFinding {
    keepsake: &'static str,
    machine: Machine,
    setup: Setup,
    cost_bar: f64,
    costs: Vec<Compared>,
    recorded_reads: u64,
    versions: u64,
    list_bar_ms: f64,
    /// Lists of the first 20 readers of a version.
    readers: Latencies,
    prune: PrunedReads,
}

/// The removal of old reads, beside a client that creates memories.
#[derive(Debug, Serialize)]
struct PrunedReads {
    removed: u64,
    seconds: f64,
    /// Creations before the removal, and meanwhile.
    before: Latencies,
    meanwhile: Latencies,
    /// Flushes of 4 KiB to the disk by another thread, meanwhile.
    flushes: Latencies,
    /// The maximum of the difference between the longest creations.
    create_bar_ms: f64,
}

/// Measures on a new server.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<ReadersFinding, Failure> {
    let machine = Machine::this();
    let configured = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let run = run_name();
    let limits = LimitOverrides { recorded_reads_per_tenant: Some(1 << 40), ..LIMITS };
    let tenant = provision::tenant(&product, &format!("bench {run} readers"), &limits).await?;
    let (mut server, address) = product.serve().await?;
    let costs = measure_costs(args, &tenant, &run, (&mut server, address)).await?;
    let store = tenant.store(address).await?;
    let versions = make_versions(&mut Caller::open(address, &store).await?).await?;
    // A running server locks the file of SQLite.
    server.end().await?;
    let tenant_id = store.tenant_id.ok_or_else(|| Failure::new("a store has no tenant"))?;
    say(&format!("recording {} reads", args.readers.recorded_reads));
    let recorded_reads = fill(&configured, (tenant_id, &store), args.readers.recorded_reads)
        .await
        .map_err(Failure::of("the reads cannot be recorded"))?;
    settings::vacuum(&configured).await?;
    let Served { mut process, address, operator } = product.serve_with(&[]).await?;
    let mut caller = Caller::open(address, &store).await?;
    let mut numbers = Numbers::new(1);
    let mut lists = histogram()?;
    for _ in 0..args.rounds * LISTS {
        let place = usize::try_from((numbers.next() >> 16) % VERSIONS).unwrap_or_default();
        let path = format!("/readers?memory_version_id={}", versions[place]);
        let (took, found) = caller.call(Method::GET, &path, None).await?;
        if found["data"].as_array().is_none_or(Vec::is_empty) {
            return Err(Failure::new("a version has no readers"));
        }
        record(&mut lists, took);
    }
    let before = args.measure.min(BEFORE);
    let disk = Disk::of(&configured)?;
    let prune = measure_prune(&mut caller, operator, tenant_id, before, disk).await?;
    process.check()?;
    process.end().await?;
    Ok(ReadersFinding {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup: args.setup(args.load(), Some(&configured)),
        cost_bar: COST_BAR,
        costs,
        recorded_reads,
        versions: VERSIONS,
        list_bar_ms: LIST_BAR_MS,
        readers: Latencies::of(&lists),
        prune,
    })
}

/// Measures two equal stores alternately; only the first one records its reads.
async fn measure_costs(
    args: &BenchArgs,
    tenant: &BenchTenant,
    run: &str,
    (server, address): (&mut Process, SocketAddr),
) -> Result<Vec<Compared>, Failure> {
    let stores = [tenant.store(address).await?, tenant.store(address).await?];
    let mut owner = Caller::open(address, &stores[1]).await?;
    owner.call(Method::POST, "", Some(json!({"records_reads": false}))).await?;
    let backends = Backends::default();
    let endpoint = Endpoint { side: Side::Server, address, pid: server.pid(), backends, operator: None };
    let mut workloads = Vec::new();
    for store in stores {
        let workload = args.workload(&[store], run, Layout::Small.shape(args.sizes))?;
        load::seed(endpoint, &workload, args.load()).await?;
        workloads.push(workload);
    }
    let mut costs = Vec::new();
    for scenario in SCENARIOS {
        let mut seen = [Vec::new(), Vec::new()];
        for round in 0..args.rounds {
            let turns = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for turn in turns {
                seen[turn].push(measure_once(endpoint, &workloads[turn], scenario, args.load()).await?);
            }
            server.check()?;
            say(&format!("readers, {}, round {} of {}", scenario.name(), round + 1, args.rounds));
        }
        costs.extend(Compared::of(scenario, &seen));
    }
    Ok(costs)
}

/// Creates a memory for each version; returns the ids of the versions.
async fn make_versions(caller: &mut Caller) -> Result<Vec<String>, Failure> {
    let mut versions = Vec::new();
    for number in 0..VERSIONS {
        let body = json!({"path": format!("/read/{number}.md"), "content": "Keep it short.\n"});
        let (_, memory) = caller.call(Method::POST, "/memories", Some(body)).await?;
        let version = memory["memory_version_id"].as_str();
        versions.push(version.ok_or_else(|| Failure::new("a memory has no version"))?.to_owned());
    }
    Ok(versions)
}

/// Writes recorded reads of all memories of a store; returns how many.
async fn fill(
    configured: &Settings,
    (tenant_id, store): (TenantId, &BenchStore),
    reads: u64,
) -> sqlx::Result<u64> {
    let (tenant_id, store_id) = (tenant_id.uuid(), store.store_id.uuid());
    let each = reads.div_ceil(VERSIONS);
    let parts = (0..each).step_by(usize::try_from(READS_AT_ONCE).unwrap_or(usize::MAX)).map(|from| Part {
        tenant_id,
        store_id,
        from: signed(from),
        to: signed((from + READS_AT_ONCE).min(each) - 1),
        last_at: SystemClock.now().as_micros(),
    });
    match IndexPlace::of(configured).writer().await? {
        Writer::Postgres(mut owner) => {
            for part in parts {
                part.bound(sqlx::query::<Postgres>(FILL_POSTGRES)).execute(&mut owner).await?;
            }
            owner.close().await?;
        }
        Writer::Sqlite(mut file) => {
            for part in parts {
                part.bound(sqlx::query::<Sqlite>(FILL_SQLITE)).execute(&mut file).await?;
            }
            file.close().await?;
        }
    }
    Ok(each * VERSIONS)
}

/// The reads of one statement, by their numbers.
struct Part {
    tenant_id: Uuid,
    store_id: Uuid,
    from: i64,
    to: i64,
    /// When the last ones were, in microseconds.
    last_at: i64,
}

impl Part {
    fn bound<'q, D>(
        &self,
        query: sqlx::query::Query<'q, D, <D as sqlx::Database>::Arguments>,
    ) -> sqlx::query::Query<'q, D, <D as sqlx::Database>::Arguments>
    where
        D: sqlx::Database,
        Uuid: sqlx::Encode<'q, D> + sqlx::Type<D>,
        i64: sqlx::Encode<'q, D> + sqlx::Type<D>,
    {
        let old = i64::try_from(OLD.as_micros()).unwrap_or(i64::MAX);
        let query = query.bind(self.tenant_id).bind(self.store_id);
        query.bind(self.from).bind(self.to).bind(self.last_at).bind(old)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Shortens the retention, and removes the old reads while memories are created.
async fn measure_prune(
    caller: &mut Caller,
    operator: Operator,
    tenant_id: TenantId,
    creates_for: Duration,
    disk: Disk,
) -> Result<PrunedReads, Failure> {
    let (mut before, mut meanwhile, mut created) = (histogram()?, histogram()?, 0);
    let began_at = Instant::now();
    while began_at.elapsed() < creates_for {
        create(caller, &mut created, &mut before).await?;
    }
    let mut connection = operator.connect().await?;
    let limits = json!({"limits": {"read_retention_secs": RETENTION.as_secs()}});
    operator.call(&mut connection, Method::PATCH, &format!("tenants/{tenant_id}"), Some(&limits)).await?;
    say("removing old reads");
    let flushes = disk.start();
    let began_at = Instant::now();
    let begun = operator.create(&mut connection, "jobs/prune-reads/run", &json!({})).await?;
    let run = loop {
        create(caller, &mut created, &mut meanwhile).await?;
        let runs = operator.call(&mut connection, Method::GET, "jobs/prune-reads/runs", None).await?;
        let mut runs = runs["data"].as_array().into_iter().flatten();
        let run = runs.find(|run| run["id"] == begun["id"]);
        let run = run.ok_or_else(|| Failure::new("the removal has no record"))?;
        if run["status"] != "running" {
            break run.clone();
        }
    };
    let took = began_at.elapsed();
    let flushes = flushes.end().await?;
    let removed = run["counts"]["removed"].as_u64().filter(|removed| *removed > 0);
    let removed = removed.ok_or_else(|| Failure::new(format!("no read was removed: {run}")))?;
    Ok(PrunedReads {
        removed,
        seconds: rounded(took.as_secs_f64()),
        before: Latencies::of(&before),
        meanwhile: Latencies::of(&meanwhile),
        flushes,
        create_bar_ms: CREATE_BAR_MS,
    })
}

/// Creates some more memories.
async fn create(
    caller: &mut Caller,
    created: &mut usize,
    latency: &mut Histogram<u64>,
) -> Result<(), Failure> {
    for _ in 0..CREATES_AT_ONCE {
        let body: Value = json!({"path": format!("/new/{created}.md"), "content": "Written meanwhile.\n"});
        *created += 1;
        record(latency, caller.call(Method::POST, "/memories", Some(body)).await?.0);
    }
    Ok(())
}

impl fmt::Display for ReadersFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.costs.iter().try_for_each(|cost| cost.line(f, "the record", self.cost_bar))?;
        writeln!(f, "\n{} recorded reads of {} versions", self.recorded_reads, self.versions)?;
        self.readers.line(f, "readers of a version")?;
        let is_met = self.readers.p99_ms <= self.list_bar_ms;
        writeln!(f, "p99 (bar {:.0} ms: {})", self.list_bar_ms, verdict(is_met))?;
        let PrunedReads { removed, seconds, before, meanwhile, flushes, create_bar_ms } = &self.prune;
        writeln!(f, "{removed} old reads were removed in {seconds:.1} s")?;
        before.line(f, "create before the removal")?;
        meanwhile.line(f, "create meanwhile")?;
        flushes.line(f, "flush of the disk meanwhile")?;
        let longer = meanwhile.max_ms - before.max_ms;
        let is_met = longer <= *create_bar_ms;
        writeln!(f, "longest meanwhile {longer:+.2} ms (bar {create_bar_ms:.0} ms: {})", verdict(is_met))?;
        let load = rounded(self.machine.load_before.unwrap_or_default());
        writeln!(f, "load of the machine before the run {load}")
    }
}
