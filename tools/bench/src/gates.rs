//! The tests of a store: the time to make them, and of a batch that they gate.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;
use hyper::Method;
use keepsake_config::Failure;
use serde::Serialize;
use serde_json::{Value, json};

use super::load::{Latencies, histogram, record};
use super::product::Product;
use super::provision::{self, LIMITS};
use super::report::{Machine, rounded, verdict};
use super::search::{Caller, MEMORIES, MEMORY_BYTES, Script, VOCABULARY, seed};
use super::words::{Numbers, word};
use super::{BenchArgs, run_name, say, settings};

const FILE: &str = "/.keepsake/tests.yaml";
/// The memories that the tests find and read, each by one test.
const RULES: u64 = 20;
/// Tests of either other kind.
const OTHERS: u64 = 5;
const TESTS: u64 = 2 * RULES + 2 * OTHERS;
/// The memories that a batch writes.
const OPERATIONS: u64 = 10;
/// Requests of each kind.
const REQUESTS: usize = 20;
/// Maximum latency of a request that makes the tests.
const BAR_MS: f64 = 1_000.0;

/// Options of `keepsake-bench --gates`.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct GatesArgs {
    /// Measures 50 tests of a store of 2,000 memories of 4 KB, and batches with and
    /// without these tests as a gate
    #[arg(long, conflicts_with_all = ["url", "credentials", "floor", "fairness", "search", "console", "growth"])]
    pub(super) gates: bool,
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct GatesFinding {
    keepsake: &'static str,
    machine: Machine,
    memories: u64,
    memory_bytes: usize,
    tests: u64,
    bar_ms: f64,
    /// Requests that make the tests, each after a change of the store.
    evaluation: Latencies,
    operations: u64,
    /// Batches that are committed if the tests hold afterwards.
    gated: Latencies,
    /// Equal batches before the store had tests.
    ungated: Latencies,
}

/// Measures on a new server.
///
/// # Errors
/// [`Failure`] of the setup or of a call, or if a test does not hold.
pub(super) async fn measure(args: &BenchArgs) -> Result<GatesFinding, Failure> {
    let machine = Machine::this();
    let configured = args.settings()?;
    let product = Product::of(args)?;
    product.run(&["migrate"]).await?;
    let tenant = provision::tenant(&product, &format!("bench {} gates", run_name()), &LIMITS).await?;
    let (mut server, address) = product.serve().await?;
    let store = tenant.store(address).await?;
    let mut caller = Caller::open(address, &store).await?;
    let mut numbers = Numbers::new(1);
    say(&format!("making {MEMORIES} memories"));
    seed(&mut caller, Script::Latin, &mut numbers, MEMORIES - RULES - OPERATIONS).await?;
    for number in 0..RULES {
        let content = format!("{}\n{}", rule(number), Script::Latin.text(&mut numbers));
        let body = json!({"path": rule_path(number), "content": content});
        caller.call(Method::POST, "/memories", Some(body)).await?;
    }
    settings::vacuum(&configured).await?;

    let (mut evaluation, mut gated, mut ungated) = (histogram()?, histogram()?, histogram()?);
    for _ in 0..REQUESTS {
        write_batch(&mut caller, &mut numbers, &mut ungated).await?;
    }
    let body = json!({"path": FILE, "content": test_file(&mut numbers)});
    caller.call(Method::POST, "/memories", Some(body)).await?;
    say(&format!("making {TESTS} tests {REQUESTS} times, and as many batches"));
    for _ in 0..REQUESTS {
        write_batch(&mut caller, &mut numbers, &mut gated).await?;
        make_tests(&mut caller, &mut evaluation).await?;
    }
    server.check()?;
    server.end().await?;
    Ok(GatesFinding {
        keepsake: env!("CARGO_PKG_VERSION"),
        machine,
        memories: MEMORIES,
        memory_bytes: MEMORY_BYTES,
        tests: TESTS,
        bar_ms: BAR_MS,
        evaluation: Latencies::of(&evaluation),
        operations: OPERATIONS,
        gated: Latencies::of(&gated),
        ungated: Latencies::of(&ungated),
    })
}

fn rule_path(number: u64) -> String {
    format!("/policy/rule-{number}.md")
}

/// A word that no generated text has.
fn customer(number: u64) -> String {
    word(VOCABULARY + 10_000 + number)
}

fn rule(number: u64) -> String {
    format!("The refund limit of {} is {} EUR.", customer(number), 200 + number)
}

/// Tests that hold and gate batches. Each search also has a word of the other memories.
fn test_file(numbers: &mut Numbers) -> String {
    let mut text = String::from("gate: true\ntests:\n");
    // Writing to a string cannot fail.
    for number in 0..RULES {
        let (customer, other) = (customer(number), word(numbers.skewed(VOCABULARY)));
        let path = rule_path(number);
        let _ = writeln!(text, "- search: refund limit {customer} {other}\n  finds: {path}");
        let _ = writeln!(text, "- path: {path}\n  contains: {}", rule(number));
    }
    for number in 0..OTHERS {
        let most = 10 * MEMORIES + number;
        let _ = writeln!(text, "- unchanged: /pinned/{number}/\n- max_files: {most}");
    }
    text
}

/// Has the server make the tests, which must hold.
async fn make_tests(caller: &mut Caller, latency: &mut Histogram<u64>) -> Result<(), Failure> {
    let (took, report) = caller.call(Method::POST, "/test", Some(json!({}))).await?;
    record(latency, took);
    if report["passed"] == true {
        return Ok(());
    }
    let mut results = report["data"].as_array().into_iter().flatten();
    let broken = results.find(|result| result["passed"] == false).cloned().unwrap_or_default();
    Err(Failure::new(format!("a test does not hold: {broken}")))
}

/// Writes the same memories with new contents.
async fn write_batch(
    caller: &mut Caller,
    numbers: &mut Numbers,
    latency: &mut Histogram<u64>,
) -> Result<(), Failure> {
    let operations: Vec<Value> = (0..OPERATIONS)
        .map(|number| {
            let path = format!("/batch/{number}.md");
            json!({"type": "upsert", "path": path, "content": Script::Latin.text(numbers)})
        })
        .collect();
    let body = json!({"operations": operations});
    record(latency, caller.call(Method::POST, "/memories/batch", Some(body)).await?.0);
    Ok(())
}

impl fmt::Display for GatesFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memories, memory_bytes, tests, bar_ms, evaluation, operations, .. } = self;
        writeln!(f, "{tests} tests of {memories} memories of {memory_bytes} bytes\n")?;
        evaluation.line(f, "tests")?;
        let is_met = evaluation.max_ms <= *bar_ms;
        writeln!(
            f,
            "tests: median {:.2} ms, maximum {:.2} ms (bar {bar_ms:.0} ms: {})\n",
            evaluation.p50_ms,
            evaluation.max_ms,
            verdict(is_met)
        )?;
        writeln!(f, "batches of {operations} memories")?;
        self.gated.line(f, "with the tests as a gate")?;
        self.ungated.line(f, "without tests")?;
        let load = rounded(self.machine.load_before.unwrap_or_default());
        writeln!(f, "load of the machine before the run {load}")
    }
}

#[cfg(test)]
mod tests {
    use keepsake_core::TestFile;

    use super::*;

    #[test]
    fn test_file_is_a_gate_with_all_tests() {
        let file = TestFile::parse(&test_file(&mut Numbers::new(1))).unwrap();
        assert!(file.is_gate);
        assert_eq!(file.tests.len() as u64, TESTS);
    }
}
