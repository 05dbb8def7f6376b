//! The tables of the page.

use std::fmt::Write as _;

use serde_json::Value;

use super::results::{DECIMALS, PAIRS, Results, figure, figure_with, list};

const PRICES: &str = include_str!("prices.json");
/// Calls of a million operations.
const MILLION: f64 = 1e6;

/// A table; `None` without rows.
struct Table {
    text: String,
    has_rows: bool,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        let text = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
        Self { text, has_rows: false }
    }

    fn row(&mut self, cells: &[String]) {
        self.has_rows = true;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    fn end(self) -> Option<String> {
        self.has_rows.then(|| self.text.trim_end().to_owned())
    }
}

fn number(value: &Value) -> String {
    let decimals = if value.is_u64() { 0 } else { DECIMALS };
    figure_with(value.as_f64(), decimals)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("–").to_owned()
}

fn code(value: &Value) -> String {
    format!("`{}`", text(value))
}

/// The machine, the date and the commit.
pub(super) fn run(results: &Results) -> String {
    let run = results.file("run").cloned().unwrap_or_default();
    let any = results.0.values().find(|file| file["machine"]["cores"].is_u64()).cloned().unwrap_or_default();
    let (machine, setup) =
        (&any["machine"], &results.file("postgres-s3").cloned().unwrap_or_default()["setup"]);
    let memory = machine["memory_bytes"].as_f64().map(|bytes| bytes / f64::from(1 << 30));
    let mut line = format!(
        "Measured on {} at commit `{}` (version {}), built with the profile `release`, on {} cores ({}), {} GiB of memory, Linux {}.",
        text(&run["date"]),
        text(&run["commit"]),
        text(&any["keepsake"]),
        number(&machine["cores"]),
        text(&machine["cpu"]),
        figure(memory),
        text(&machine["kernel"])
    );
    if setup["connections"].is_u64() {
        let _ = write!(
            line,
            " {} connections, memories of {} bytes, {} rounds of {} s after {} s of warm-up.",
            number(&setup["connections"]),
            number(&setup["content_bytes"]),
            number(&setup["rounds"]),
            setup["measured_seconds"],
            setup["warm_up_seconds"]
        );
    }
    if run["quick"] == true {
        line.push_str(" **A quick run: the figures mean nothing.**");
    }
    line
}

fn layout(found: &Value) -> &str {
    match found["layout"].as_str().unwrap_or_default() {
        "spread" => "64 stores, 8 tenants",
        "tenant" => "64 stores, 1 tenant",
        "store" => "1 store",
        "small" => "1 store of 100",
        "large" => "1 store of 100,000",
        "many" => "10,000 tenants",
        _ => "–",
    }
}

/// The runs with their titles, for the tables of scenarios.
fn runs(results: &Results) -> impl Iterator<Item = (String, &Value)> {
    PAIRS.into_iter().flat_map(|(pair, title)| {
        let slow = list(results.file(&format!("{pair}-slow")), "results");
        let slow = slow.map(move |found| (format!("{title}, flushes 2 ms slower"), found));
        results.findings(pair).map(move |found| (title.to_owned(), found)).chain(slow)
    })
}

/// Requests per second and latencies of every scenario.
pub(super) fn throughput(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "scenario",
        "stores",
        "requests/s",
        "floor",
        "ratio",
        "p50 ms",
        "p99 ms",
        "floor's p99 ms",
    ]);
    for (title, found) in runs(results) {
        let (server, floor) = (&found["server"], &found["floor"]);
        table.row(&[
            title,
            code(&found["scenario"]),
            layout(found).to_owned(),
            number(&server["requests_per_second"]),
            number(&floor["requests_per_second"]),
            number(&found["median_ratio"]),
            number(&server["p50_ms"]),
            number(&server["p99_ms"]),
            number(&floor["p99_ms"]),
        ]);
    }
    table.end()
}

/// CPU time of each process.
pub(super) fn cpu(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "scenario",
        "stores",
        "server",
        "database",
        "S3 server",
        "floor",
        "its database",
        "its S3 server",
    ]);
    for (title, found) in runs(results) {
        let mut cells = vec![title, code(&found["scenario"]), layout(found).to_owned()];
        for side in ["server", "floor"] {
            for process in ["server", "database", "s3"] {
                cells.push(number(&found[side][format!("{process}_cpu_micros_per_request")]));
            }
        }
        table.row(&cells);
    }
    table.end()
}

/// Calls of the index and the object store.
pub(super) fn requests(results: &Results) -> Option<String> {
    let mut table = Table::new(&["", "scenario", "stores", "calls of the index", "S3 PUTs", "S3 GETs"]);
    for (title, found) in runs(results) {
        let server = &found["server"];
        table.row(&[
            title,
            code(&found["scenario"]),
            layout(found).to_owned(),
            number(&server["index_calls_per_request"]),
            number(&server["s3_puts_per_request"]),
            number(&server["s3_gets_per_request"]),
        ]);
    }
    table.end()
}

fn price_list() -> Value {
    serde_json::from_str(PRICES).unwrap_or_default()
}

/// The price list in one sentence.
pub(super) fn prices() -> String {
    let prices = price_list();
    format!(
        "{} in {}, list prices of {}: a thousand PUTs ${}, a thousand GETs ${}, a GB for a month ${}",
        text(&prices["class"]),
        text(&prices["region"]),
        text(&prices["as_of"]),
        prices["dollars_per_1000_puts"],
        prices["dollars_per_1000_gets"],
        prices["dollars_per_gb_month"]
    )
}

/// What a million operations cost in requests of the object store.
pub(super) fn dollars(results: &Results) -> Option<String> {
    let prices = price_list();
    let price = |name: &str| prices[name].as_f64().unwrap_or_default() / 1e3;
    let mut table = Table::new(&["operations", "PUTs of a million", "GETs of a million", "dollars"]);
    for (scenario, file) in [
        ("agent", "postgres-s3"),
        ("view", "postgres-s3"),
        ("create", "postgres-s3"),
        ("cold", "postgres-s3-more"),
    ] {
        let server = results.finding(file, scenario, "spread").map(|found| &found["server"]);
        let calls = |name: &str| server.and_then(|server| server[name].as_f64());
        let (Some(puts), Some(gets)) = (calls("s3_puts_per_request"), calls("s3_gets_per_request")) else {
            continue;
        };
        let dollars =
            MILLION * (puts * price("dollars_per_1000_puts") + gets * price("dollars_per_1000_gets"));
        table.row(&[
            format!("`{scenario}`"),
            figure(Some(puts * MILLION)),
            figure(Some(gets * MILLION)),
            format!("{dollars:.2}"),
        ]);
    }
    table.end()
}

/// Throughput and CPU with different numbers of stores, tenants, memories and
/// connections.
pub(super) fn growth(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "changed",
        "number",
        "scenario",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "server µs",
        "database µs",
        "S3 server µs",
    ]);
    for (pair, title) in PAIRS {
        for point in list(results.file(&format!("growth-{pair}")), "points") {
            let server = &point["server"];
            table.row(&[
                title.to_owned(),
                text(&point["axis"]),
                number(&point["value"]),
                code(&point["scenario"]),
                number(&server["requests_per_second"]),
                number(&server["p50_ms"]),
                number(&server["p99_ms"]),
                number(&server["server_cpu_micros_per_request"]),
                number(&server["database_cpu_micros_per_request"]),
                number(&server["s3_cpu_micros_per_request"]),
            ]);
        }
    }
    table.end()
}

/// Small and large stores, few and many tenants.
pub(super) fn sizes(results: &Results) -> Option<String> {
    let mut table =
        Table::new(&["", "scenario", "stores", "requests/s", "p50 ms", "p99 ms", "server µs", "database µs"]);
    for (pair, title) in PAIRS {
        for file in ["size", "tenants"] {
            for found in list(results.file(&format!("{pair}-{file}")), "results") {
                let server = &found["server"];
                table.row(&[
                    title.to_owned(),
                    code(&found["scenario"]),
                    layout(found).to_owned(),
                    number(&server["requests_per_second"]),
                    number(&server["p50_ms"]),
                    number(&server["p99_ms"]),
                    number(&server["server_cpu_micros_per_request"]),
                    number(&server["database_cpu_micros_per_request"]),
                ]);
            }
        }
    }
    table.end()
}

/// Memory of the server.
pub(super) fn footprint(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "at rest, MB",
        "for an idle connection, KB",
        "for a cached byte, of the process",
        "as the server counts it",
    ]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("footprint-{pair}")) else {
            continue;
        };
        let scaled = |name: &str, unit: f64| figure(seen[name].as_f64().map(|bytes| bytes / unit));
        table.row(&[
            title.to_owned(),
            scaled("idle_server_bytes", 1e6),
            scaled("bytes_per_idle_connection", 1e3),
            number(&seen["process_bytes_per_cached_byte"]),
            number(&seen["counted_bytes_per_cached_byte"]),
        ]);
    }
    table.end()
}

/// Imports of folders.
pub(super) fn import(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "files/s",
        "floor of `create`",
        "ratio",
        "server µs",
        "database µs",
        "S3 server µs",
        "command µs",
    ]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("import-{pair}")) else {
            continue;
        };
        let mut cells = vec![
            title.to_owned(),
            number(&seen["files_per_second"]),
            number(&seen["floor_creates_per_second"]),
            number(&seen["median_ratio"]),
        ];
        for process in ["server", "database", "s3", "command"] {
            cells.push(number(&seen[format!("{process}_cpu_micros_per_file")]));
        }
        table.row(&cells);
    }
    table.end()
}

/// Keepsake beside its peers.
pub(super) fn peers(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "peer",
        "operation",
        "clients",
        "its operations/s",
        "Keepsake's",
        "ratio",
        "its p50 ms",
        "Keepsake's",
    ]);
    let http = results.file("peers-http");
    for found in list(http, "results") {
        let (ours, theirs) = (&found["server"], &found["ai_memory"]);
        table.row(&[
            "ai-memory".to_owned(),
            text(&found["operation"]),
            number(&found["clients"]),
            number(&theirs["requests_per_second"]),
            number(&ours["requests_per_second"]),
            number(&found["median_ratio"]),
            number(&theirs["p50_ms"]),
            number(&ours["p50_ms"]),
        ]);
    }
    for found in list(results.file("peers-local"), "results") {
        let ours = list(http, "results")
            .find(|ours| ours["operation"] == found["operation"] && ours["clients"] == found["clients"])
            .map(|ours| &ours["server"]);
        let rate = ours.and_then(|ours| ours["requests_per_second"].as_f64());
        let ratio = rate.zip(found["requests_per_second"].as_f64()).map(|(ours, theirs)| ours / theirs);
        table.row(&[
            text(&found["peer"]),
            text(&found["operation"]),
            number(&found["clients"]),
            number(&found["requests_per_second"]),
            figure(rate),
            figure(ratio),
            number(&found["p50_ms"]),
            figure(ours.and_then(|ours| ours["p50_ms"].as_f64())),
        ]);
    }
    table.end()
}

/// How each peer is called, and when it flushes.
pub(super) fn peer_notes(results: &Results) -> Option<String> {
    let mut table = Table::new(&["peer", "version", "called", "a write that is answered"]);
    if results.file("peers-http").is_some() {
        table.row(&[
            "ai-memory".to_owned(),
            "0.6.4".to_owned(),
            "over HTTP, as Keepsake".to_owned(),
            "is in SQLite's log and not flushed (`synchronous=NORMAL`)".to_owned(),
        ]);
    }
    for peer in list(results.file("peers-local"), "peers") {
        table.row(&[
            text(&peer["name"]),
            text(&peer["version"]),
            text(&peer["called"]),
            text(&peer["flush"]),
        ]);
    }
    table.end()
}

/// First and later searches.
pub(super) fn search(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "script",
        "first, median ms",
        "later, p50 ms",
        "p99 ms",
        "retrieval of a memory, p50 ms",
    ]);
    for (pair, title) in PAIRS {
        for found in list(results.file(&format!("search-{pair}")), "scripts") {
            table.row(&[
                title.to_owned(),
                text(&found["script"]),
                number(&found["median_first_ms"]),
                number(&found["warm"]["p50_ms"]),
                number(&found["warm"]["p99_ms"]),
                number(&found["retrieve"]["p50_ms"]),
            ]);
        }
    }
    table.end()
}

/// The pages of the console.
pub(super) fn console(results: &Results) -> Option<String> {
    let mut table =
        Table::new(&["", "fastest page, p50 ms", "slowest page", "its p50 ms", "largest page", "its KB"]);
    for (pair, title) in PAIRS {
        let pages: Vec<_> = list(results.file(&format!("console-{pair}")), "pages").collect();
        let p50 = |page: &&&Value| page["warm"]["p50_ms"].as_f64().unwrap_or_default();
        let by_time = |a: &&&Value, b: &&&Value| p50(a).total_cmp(&p50(b));
        let (Some(fastest), Some(slowest), Some(largest)) = (
            pages.iter().min_by(by_time),
            pages.iter().max_by(by_time),
            pages.iter().max_by_key(|page| page["bytes"].as_u64()),
        ) else {
            continue;
        };
        table.row(&[
            title.to_owned(),
            number(&fastest["warm"]["p50_ms"]),
            text(&slowest["page"]),
            number(&slowest["warm"]["p50_ms"]),
            text(&largest["page"]),
            figure(largest["bytes"].as_f64().map(|bytes| bytes / 1e3)),
        ]);
    }
    table.end()
}

/// A tenant beside one that exceeds its limit.
pub(super) fn fairness(results: &Results) -> Option<String> {
    let mut table = Table::new(&["", "p99 without it, ms", "p99 with it, ms", "ratio"]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("fairness-{pair}")) else {
            continue;
        };
        table.row(&[
            title.to_owned(),
            number(&seen["alone"]["p99_ms"]),
            number(&seen["beside"]["p99_ms"]),
            number(&seen["median_ratio"]),
        ]);
    }
    table.end()
}

/// The record of readers.
pub(super) fn readers(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "`view` with it / without",
        "`search`",
        "recorded reads",
        "readers of a version, p50 ms",
        "p99 ms",
        "removed",
        "in seconds",
        "longest `create` meanwhile, ms",
        "before, ms",
    ]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("readers-{pair}")) else {
            continue;
        };
        let prune = &seen["prune"];
        table.row(&[
            title.to_owned(),
            number(&seen["costs"][0]["median_ratio"]),
            number(&seen["costs"][1]["median_ratio"]),
            number(&seen["recorded_reads"]),
            number(&seen["readers"]["p50_ms"]),
            number(&seen["readers"]["p99_ms"]),
            number(&prune["removed"]),
            number(&prune["seconds"]),
            number(&prune["meanwhile"]["max_ms"]),
            number(&prune["before"]["max_ms"]),
        ]);
    }
    table.end()
}

/// The tests of a store.
pub(super) fn gates(results: &Results) -> Option<String> {
    let mut table = Table::new(&["", "tests, p50 ms", "longest, ms", "gated batch, p50 ms", "without tests"]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("gates-{pair}")) else {
            continue;
        };
        let (evaluation, gated) = (&seen["evaluation"], &seen["gated"]);
        let numbers =
            [&evaluation["p50_ms"], &evaluation["max_ms"], &gated["p50_ms"], &seen["ungated"]["p50_ms"]];
        table.row(&[vec![title.to_owned()], Vec::from(numbers.map(number))].concat());
    }
    table.end()
}

/// Search by meaning.
pub(super) fn meaning(results: &Results) -> Option<String> {
    let mut table = Table::new(&[
        "",
        "passages",
        "vectors, CPU ms for a KB",
        "search, p50 ms",
        "p99 ms",
        "by words only, p50 ms",
        "p99 ms",
        "`create` with it / without",
        "`str_replace`",
        "no answer of the endpoint, longest difference in ms",
    ]);
    for (pair, title) in PAIRS {
        let Some(seen) = results.file(&format!("meaning-{pair}")) else {
            continue;
        };
        let (searches, costs) = (&seen["searches"], &seen["writes"]["costs"]);
        let numbers = [
            &seen["vectors"]["passages"],
            &seen["vectors"]["cpu_ms_per_kibibyte"],
            &searches["by_meaning"]["p50_ms"],
            &searches["by_meaning"]["p99_ms"],
            &searches["by_words"]["p50_ms"],
            &searches["by_words"]["p99_ms"],
            &costs[0]["median_ratio"],
            &costs[1]["median_ratio"],
            &seen["unanswered"]["largest_difference_ms"],
        ];
        table.row(&[vec![title.to_owned()], Vec::from(numbers.map(number))].concat());
    }
    table.end()
}

/// The cost of row-level security.
pub(super) fn row_level_security(results: &Results) -> Option<String> {
    let mut table = Table::new(&["scenario", "requests/s with it", "without it", "ratio"]);
    for (scenario, seen) in results.file("rls")?.as_object()? {
        table.row(&[
            format!("`{scenario}`"),
            number(&seen["on"]),
            number(&seen["off"]),
            number(&seen["median_ratio"]),
        ]);
    }
    table.end()
}

/// The scanner for sensitive data.
pub(super) fn scanner(results: &Results) -> Option<String> {
    let mut table = Table::new(&["text", "MB/s on one core", "finding its lines"]);
    for found in list(results.file("postgres-s3"), "scanner") {
        table.row(&[
            text(&found["text"]),
            number(&found["megabytes_per_second"]),
            number(&found["floor_megabytes_per_second"]),
        ]);
    }
    table.end()
}
