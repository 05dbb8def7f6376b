//! Search by meaning: what the vectors cost, searches beside those by words only, writes
//! while vectors are computed, and searches with an endpoint that does not answer.

mod writes;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hyper::Method;
use keepsake_config::Failure;
use serde::Serialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::costs::embedded_passages;
use super::load::{Latencies, histogram, milliseconds, record};
use super::process::{anonymous_bytes, cpu_time};
use super::product::{Product, Served};
use super::provision::{self, BenchTenant, LIMITS};
use super::report::{Machine, Setup, rounded, verdict};
use super::search::{Caller, MEMORY_BYTES, Script, seed};
use super::words::Numbers;
use super::workload::BenchStore;
use super::{BenchArgs, run_name, say, settings};

use writes::{EMBEDDED, MEANING, OFF, Writes};

/// The passages of a generated memory, on average.
const PASSAGES_OF_MEMORY: u64 = 8;
/// Searches of each store that are measured, and those before, which fill the caches.
const SEARCHES: usize = 500;
const WARM_UP: usize = 20;
/// The most CPU time for a KiB of content.
const CPU_BAR_MS: f64 = 11.0;
/// The most by which a search may take longer than one by words only.
const SEARCH_BAR_MS: f64 = 5.0;
/// Searches, and memories of a store, with an endpoint that does not answer.
const UNANSWERED: usize = 50;
const FEW_MEMORIES: u64 = 200;
/// The most by which a search with an endpoint that does not answer may take longer than one by words only.
const UNANSWERED_BAR_MS: f64 = 300.0;
/// The time between two looks at the memories without vectors.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// A server uses the model after at most this time.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Options of `keepsake-bench --meaning`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct MeaningArgs {
    /// Measures search by meaning: the computation of vectors, searches beside those by
    /// words only, and writes while vectors are computed.
    ///
    /// The embedded model must be in the configured `search.model_path`
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console", "growth"])]
    pub(super) meaning: bool,
    /// About the number of passages of the searched store
    #[arg(long, default_value_t = 50_000, requires = "meaning",
        value_parser = clap::value_parser!(u64).range(PASSAGES_OF_MEMORY..=1_000_000))]
    pub(super) passages: u64,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct MeaningFinding {
    keepsake: &'static str,
    machine: Machine,
    setup: Setup,
    vectors: Vectors,
    searches: Searches,
    writes: Writes,
    unanswered: Searches,
}

/// The computation of the vectors of a store, by a server that does nothing else.
#[derive(Debug, Serialize)]
struct Vectors {
    memories: u64,
    kibibytes: u32,
    passages: u64,
    seconds: f64,
    /// CPU time of the server for a KiB of content.
    cpu_ms_per_kibibyte: Option<f64>,
    /// Memory of the server without pages of files; after it, with the store's vectors and
    /// postings in its cache.
    bytes_before: Option<u64>,
    bytes_after: Option<u64>,
}

/// The same searches of two equal stores, alternately.
#[derive(Debug, Serialize)]
struct Searches {
    by_meaning: Latencies,
    by_words: Latencies,
    /// The largest difference between two searches with the same query.
    largest_difference_ms: f64,
    bar_ms: f64,
}

/// Two equal stores.
struct Stores {
    by_meaning: BenchStore,
    by_words: BenchStore,
}

/// Measures on several servers, one after the other.
///
/// # Errors
/// [`Failure`] of the setup or of a call, or if the model is not installed.
pub(super) async fn measure(args: &BenchArgs) -> Result<MeaningFinding, Failure> {
    let machine = Machine::this();
    let configured = args.settings()?;
    let product = Product::of(args)?;
    if product.json(&["model", "status"]).await?["status"] != "installed" {
        let missing = "no model is installed: `keepsake model install` installs it in search.model_path";
        return Err(Failure::new(missing));
    }
    product.run(&["migrate"]).await?;
    let run = run_name();
    let tenant = provision::tenant(&product, &format!("bench {run} meaning"), &LIMITS).await?;

    let Served { process, address, .. } = product.serve_with(&OFF).await?;
    let memories = args.meaning.passages.div_ceil(PASSAGES_OF_MEMORY);
    let stores = Stores::create(&tenant, address, memories).await?;
    process.end().await?;
    settings::vacuum(&configured).await?;

    let mut served = product.serve_with(&EMBEDDED).await?;
    let vectors = embed(&served, &stores, memories).await?;
    say(&format!("searching {SEARCHES} times in each store"));
    let searches = search_both(&served, &stores, [WARM_UP, SEARCHES], SEARCH_BAR_MS).await?;
    served.process.check()?;
    served.process.end().await?;

    let unanswered = search_unanswered(&product, &tenant).await?;
    let writes = writes::measure(args, &product, &run).await?;
    Ok(MeaningFinding {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        setup: args.setup(args.load(), Some(&configured)),
        vectors,
        searches,
        writes,
        unanswered,
    })
}

impl Stores {
    /// Creates both with the same memories, at a server that computes no vectors.
    async fn create(tenant: &BenchTenant, address: SocketAddr, memories: u64) -> Result<Self, Failure> {
        say(&format!("making {memories} memories in each of two stores"));
        let stores =
            Self { by_meaning: tenant.store(address).await?, by_words: tenant.store(address).await? };
        for (store, mode) in [(&stores.by_meaning, "hybrid"), (&stores.by_words, "lexical")] {
            let mut caller = Caller::open(address, store).await?;
            caller.call(Method::POST, "", Some(json!({"search_mode": mode}))).await?;
            seed(&mut caller, Script::Latin, &mut Numbers::new(1), memories).await?;
        }
        Ok(stores)
    }
}

/// Has the server compute the vectors of a store.
async fn embed(served: &Served, stores: &Stores, memories: u64) -> Result<Vectors, Failure> {
    let pid = served.process.pid();
    let mut caller = Caller::open(served.address, &stores.by_meaning).await?;
    let (cpu_before, bytes_before) = (pid.and_then(cpu_time), pid.and_then(anonymous_bytes));
    say("computing the vectors");
    let began_at = Instant::now();
    // The server looks at a store that changes at once, at others each minute.
    let body = json!({"path": "/begin.md", "content": "Keep it short.\n"});
    caller.call(Method::POST, "/memories", Some(body)).await?;
    loop {
        let (_, usage) = caller.call(Method::GET, "/usage?limit=1", None).await?;
        let embedded = &usage["embedded_memory_count"];
        let is_missing = *embedded == 0 && began_at.elapsed() > START_TIMEOUT;
        if is_missing || *embedded == usage["memory_count"] {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let seconds = began_at.elapsed().as_secs_f64();
    let cpu = pid.and_then(cpu_time).zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    // It also loads the vectors into the cache.
    let (_, answer) = caller.call(Method::GET, "/search?query=short&limit=1", None).await?;
    let meaning = &answer["meaning"];
    if meaning["used"] != true || meaning["pending"] != 0 {
        return Err(Failure::new(format!("searches do not use the meaning of all memories: {meaning}")));
    }
    let bytes = memories * MEMORY_BYTES as u64;
    let kibibytes = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    let per_kibibyte = |cpu: Duration| rounded(milliseconds(cpu) / f64::from(kibibytes));
    Ok(Vectors {
        memories,
        kibibytes,
        passages: embedded_passages(served.operator).await?,
        seconds: rounded(seconds),
        cpu_ms_per_kibibyte: cpu.map(per_kibibyte),
        bytes_before,
        bytes_after: pid.and_then(anonymous_bytes),
    })
}

/// Searches both stores alternately; the first searches are not measured.
async fn search_both(
    served: &Served,
    stores: &Stores,
    [warm_up, measured]: [usize; 2],
    bar_ms: f64,
) -> Result<Searches, Failure> {
    let mut callers = [
        Caller::open(served.address, &stores.by_meaning).await?,
        Caller::open(served.address, &stores.by_words).await?,
    ];
    let mut seen = [histogram()?, histogram()?];
    let (mut numbers, mut largest_difference_ms) = (Numbers::new(3), f64::MIN);
    for number in 0..warm_up + measured {
        let path = format!("/search?query={}", Script::Latin.question(&mut numbers));
        let mut took = [Duration::ZERO; 2];
        let turns = if number % 2 == 0 { [0, 1] } else { [1, 0] };
        for turn in turns {
            took[turn] = callers[turn].call(Method::GET, &path, None).await?.0;
        }
        if number >= warm_up {
            seen.iter_mut().zip(took).for_each(|(seen, took)| record(seen, took));
            let [by_meaning, by_words] = took.map(milliseconds);
            largest_difference_ms = largest_difference_ms.max(by_meaning - by_words);
        }
    }
    let [by_meaning, by_words] = &seen;
    Ok(Searches {
        by_meaning: Latencies::of(by_meaning),
        by_words: Latencies::of(by_words),
        largest_difference_ms,
        bar_ms,
    })
}

/// Searches at a server whose endpoint accepts connections and never answers.
async fn search_unanswered(product: &Product, tenant: &BenchTenant) -> Result<Searches, Failure> {
    let failed = || Failure::of("the endpoint that does not answer cannot listen");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed())?;
    let url = format!("http://{}/v1", listener.local_addr().map_err(failed())?);
    let endpoint = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    let variables = [
        (MEANING, "endpoint"),
        ("KEEPSAKE_SEARCH_EMBEDDINGS_URL", url.as_str()),
        ("KEEPSAKE_SEARCH_EMBEDDINGS_MODEL", "silent"),
        ("KEEPSAKE_SEARCH_EMBEDDINGS_DIMENSIONS", "256"),
    ];
    let mut served = product.serve_with(&variables).await?;
    let stores = Stores::create(tenant, served.address, FEW_MEMORIES).await?;
    say("searching with an endpoint that does not answer");
    let searches = search_both(&served, &stores, [0, UNANSWERED], UNANSWERED_BAR_MS).await?;
    served.process.check()?;
    served.process.end().await?;
    endpoint.abort();
    Ok(searches)
}

impl Searches {
    fn lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.by_meaning.line(f, "search by meaning and words")?;
        self.by_words.line(f, "search by words only")
    }
}

impl fmt::Display for MeaningFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Vectors { memories, kibibytes, passages, seconds, cpu_ms_per_kibibyte, .. } = self.vectors;
        writeln!(f, "{passages} passages of {memories} memories, {kibibytes} KB, in {seconds:.1} s")?;
        let cpu_ms = cpu_ms_per_kibibyte.unwrap_or(f64::NAN);
        let mebibytes = |bytes: Option<u64>| bytes.unwrap_or_default() >> 20;
        writeln!(
            f,
            "CPU time {cpu_ms:.1} ms for each KB (bar {CPU_BAR_MS:.0} ms: {}); memory of the server {} MB before, \
             {} MB after\n",
            verdict(cpu_ms <= CPU_BAR_MS),
            mebibytes(self.vectors.bytes_before),
            mebibytes(self.vectors.bytes_after)
        )?;
        self.searches.lines(f)?;
        let Searches { by_meaning, by_words, bar_ms, .. } = &self.searches;
        for (name, longer) in
            [("p50", by_meaning.p50_ms - by_words.p50_ms), ("p99", by_meaning.p99_ms - by_words.p99_ms)]
        {
            let is_met = longer <= *bar_ms;
            writeln!(f, "{name} by meaning {longer:+.2} ms (bar {bar_ms:.0} ms: {})", verdict(is_met))?;
        }
        writeln!(f, "\n{}", self.writes)?;
        writeln!(f, "with an endpoint that does not answer")?;
        self.unanswered.lines(f)?;
        let Searches { largest_difference_ms: longer, bar_ms, .. } = &self.unanswered;
        let is_met = longer <= bar_ms;
        writeln!(f, "largest difference {longer:+.2} ms (bar {bar_ms:.0} ms: {})", verdict(is_met))?;
        let load = rounded(self.machine.load_before.unwrap_or_default());
        writeln!(f, "load of the machine before the run {load}")
    }
}
