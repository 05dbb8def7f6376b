//! Latency of searches: the first search of a store after a start of the server,
//! and later ones, alternately with retrievals of a memory for comparison.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use keepsake_config::Failure;
use keepsake_core::StoreId;
use serde::Serialize;
use serde_json::{Value, json};

use super::connection::Connection;
use super::load::{Latencies, histogram, milliseconds, record};
use super::provision::{self, LIMITS};
use super::report::{Machine, median, rounded, verdict};
use super::words::{Numbers, word};
use super::workload::BenchStore;
use super::{BenchArgs, run_name, say, settings};
use crate::product::Product;

/// The number of memories in the store.
pub(super) const MEMORIES: u64 = 2_000;
pub(super) const MEMORY_BYTES: usize = 4 << 10;
/// The number of different words; common ones occur far more often.
pub(super) const VOCABULARY: u64 = 30_000;
/// The number of different Han characters.
const CHARACTERS: u64 = 3_000;
/// The number of searches in a round after the first one.
const SEARCHES: usize = 500;
/// Maximum latency of a first search, and the p99 of later ones.
const FIRST_BAR_MS: f64 = 60.0;
const WARM_BAR_MS: f64 = 10.0;

/// Options of `keepsake-bench --search`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct SearchArgs {
    /// Measures searches in a store of 2,000 memories of 4 KB
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness"])]
    pub(super) search: bool,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct SearchFinding {
    keepsake: &'static str,
    machine: Machine,
    memories: u64,
    memory_bytes: usize,
    first_bar_ms: f64,
    warm_bar_ms: f64,
    scripts: Vec<Searched>,
}

/// The results with texts in one script.
#[derive(Debug, Serialize)]
struct Searched {
    script: Script,
    /// The latency of the first search in each round.
    first_ms: Vec<f64>,
    median_first_ms: Option<f64>,
    warm: Latencies,
    /// Retrievals of a memory with its content, alternately with the searches.
    retrieve: Latencies,
}

/// The script of the memories.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Script {
    Latin,
    /// Indexed by pairs of characters, so there are more terms than in Latin texts.
    Han,
}

impl Script {
    const ALL: [Self; 2] = [Self::Latin, Self::Han];

    const fn name(self) -> &'static str {
        match self {
            Self::Latin => "latin",
            Self::Han => "han",
        }
    }

    /// The content of a memory.
    pub(super) fn text(self, numbers: &mut Numbers) -> String {
        let mut text = String::new();
        while text.len() < MEMORY_BYTES {
            let is_end = numbers.next().is_multiple_of(12);
            match self {
                Self::Latin => {
                    text.push_str(&word(numbers.skewed(VOCABULARY)));
                    text.push_str(if is_end { ".\n" } else { " " });
                }
                Self::Han => {
                    text.extend(han_word(numbers.skewed(VOCABULARY)));
                    text.push_str(if is_end { "，" } else { "" });
                }
            }
        }
        text.truncate(text.floor_char_boundary(MEMORY_BYTES));
        text
    }

    /// A question of three to six words, some of them rare, as a part of a URL.
    pub(super) fn question(self, numbers: &mut Numbers) -> String {
        let count = 3 + numbers.next() % 4;
        match self {
            Self::Latin => {
                let words: Vec<String> = (0..count).map(|_| word(numbers.skewed(VOCABULARY))).collect();
                format!("what+did+{}%3F", words.join("+"))
            }
            Self::Han => (0..count)
                .flat_map(|_| han_word(numbers.skewed(VOCABULARY)))
                .flat_map(|letter| {
                    let mut bytes = [0; 4];
                    let text = letter.encode_utf8(&mut bytes);
                    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>()
                })
                .collect(),
        }
    }
}

/// An invented word of two characters for a number; very common words have one.
/// Common characters occur in most words.
fn han_word(number: u64) -> impl Iterator<Item = char> {
    let mut numbers = Numbers::new(number + 1);
    let length = if number < 100 { 1 } else { 2 };
    // Spread over the Unicode block, as in real texts.
    let character =
        move |_| char::from_u32(0x4e00 + u32::try_from(numbers.skewed(CHARACTERS) * 7_919 % 20_000).ok()?);
    (0..length).filter_map(character)
}

/// One connection to the server, with the store's key.
pub(super) struct Caller {
    pub(super) connection: Connection,
    pub(super) host: String,
    pub(super) api_key: String,
    store: String,
}

impl Caller {
    pub(super) async fn open(address: std::net::SocketAddr, store: &BenchStore) -> Result<Self, Failure> {
        let store_id: StoreId = store.store_id;
        Ok(Self {
            connection: Connection::open(address).await?,
            host: address.to_string(),
            api_key: store.api_key.clone(),
            store: format!("/v1/memory_stores/{store_id}"),
        })
    }

    /// Sends a call that must succeed; returns its latency and response.
    pub(super) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(Duration, Value), Failure> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.store))
            .header("host", &self.host)
            .header("x-api-key", &self.api_key)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(Failure::of("a request cannot be made"))?;
        let began_at = Instant::now();
        let answered = self.connection.call(request).await;
        let took = began_at.elapsed();
        let (status, body) = answered.map_err(Failure::of("a call failed"))?;
        if !status.is_success() {
            return Err(Failure::new(format!("a call was answered with {status}")));
        }
        let answer = serde_json::from_slice(&body).map_err(Failure::of("an answer is no JSON"))?;
        Ok((took, answer))
    }

    async fn search(&mut self, script: Script, numbers: &mut Numbers) -> Result<Duration, Failure> {
        let path = format!("/search?query={}", script.question(numbers));
        let (took, answer) = self.call(Method::GET, &path, None).await?;
        if answer["data"].as_array().is_none_or(Vec::is_empty) {
            return Err(Failure::new("a search found nothing"));
        }
        Ok(took)
    }
}

/// Measures on a new server, which is restarted for each round.
///
/// # Errors
/// [`Failure`] of the setup or of a call.
pub(super) async fn measure(args: &BenchArgs) -> Result<SearchFinding, Failure> {
    let machine = Machine::this();
    let mut scripts = Vec::new();
    for script in Script::ALL {
        scripts.push(measure_script(args, script).await?);
    }
    Ok(SearchFinding {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        memories: MEMORIES,
        memory_bytes: MEMORY_BYTES,
        first_bar_ms: FIRST_BAR_MS,
        warm_bar_ms: WARM_BAR_MS,
        scripts,
    })
}

async fn measure_script(args: &BenchArgs, script: Script) -> Result<Searched, Failure> {
    let configured = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let name = format!("bench {} search", run_name());
    let tenant = provision::tenant(&product, &name, &LIMITS).await?;
    let mut numbers = Numbers::new(1);
    let (server, address) = product.serve().await?;
    let store = tenant.store(address).await?;
    settings::vacuum(&configured).await?;
    let mut caller = Caller::open(address, &store).await?;
    say(&format!("making {MEMORIES} memories, {}", script.name()));
    let memory = seed(&mut caller, script, &mut numbers, MEMORIES).await?;
    server.end().await?;
    let mut first_ms = Vec::new();
    let (mut warm, mut retrieve) = (histogram()?, histogram()?);
    for round in 0..args.rounds {
        let (mut server, address) = product.serve().await?;
        let mut caller = Caller::open(address, &store).await?;
        // Opens the connections to database and bucket before the first search.
        caller.call(Method::GET, &memory, None).await?;
        let first = caller.search(script, &mut numbers).await?;
        first_ms.push(rounded(milliseconds(first)));
        for _ in 0..SEARCHES {
            record(&mut warm, caller.search(script, &mut numbers).await?);
            let (took, _) = caller.call(Method::GET, &memory, None).await?;
            record(&mut retrieve, took);
        }
        server.check()?;
        server.end().await?;
        say(&format!(
            "search, {}, round {} of {}: first {:.2} ms, p99 so far {:.2} ms",
            script.name(),
            round + 1,
            args.rounds,
            milliseconds(first),
            Latencies::of(&warm).p99_ms
        ));
    }
    Ok(Searched {
        script,
        median_first_ms: median(&first_ms),
        first_ms,
        warm: Latencies::of(&warm),
        retrieve: Latencies::of(&retrieve),
    })
}

/// Creates memories; returns the API path of the last one.
pub(super) async fn seed(
    caller: &mut Caller,
    script: Script,
    numbers: &mut Numbers,
    memories: u64,
) -> Result<String, Failure> {
    let mut last = Value::Null;
    for number in 0..memories {
        let path = format!("/notes/{}/{}-{number}.md", word(number % 40), word(number));
        let body = json!({"path": path, "content": script.text(numbers)});
        (_, last) = caller.call(Method::POST, "/memories", Some(body)).await?;
    }
    let id = last["id"].as_str().ok_or_else(|| Failure::new("a memory has no id"))?;
    Ok(format!("/memories/{id}"))
}

impl fmt::Display for SearchFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "searches of {} memories of {} bytes\n", self.memories, self.memory_bytes)?;
        for searched in &self.scripts {
            let first = searched.median_first_ms.unwrap_or(f64::NAN);
            let rounds: Vec<_> = searched.first_ms.iter().map(|one| format!("{one:.1}")).collect();
            let script = searched.script.name();
            writeln!(
                f,
                "{script}: first    median {first:.2} ms (bar {:.0} ms: {})  rounds {}",
                self.first_bar_ms,
                verdict(first <= self.first_bar_ms),
                rounds.join(" ")
            )?;
            for (name, felt) in [("warm", &searched.warm), ("retrieve", &searched.retrieve)] {
                writeln!(
                    f,
                    "{script}: {name:<9} {:>7} calls  p50 {:>7.2} ms  p99 {:>7.2} ms  max {:>7.2} ms",
                    felt.calls, felt.p50_ms, felt.p99_ms, felt.max_ms
                )?;
            }
            writeln!(
                f,
                "{script}: warm p99 (bar {:.0} ms: {})\n",
                self.warm_bar_ms,
                verdict(searched.warm.p99_ms <= self.warm_bar_ms)
            )?;
        }
        let load = rounded(self.machine.load_before.unwrap_or_default());
        writeln!(f, "load of the machine before the run {load}")
    }
}
