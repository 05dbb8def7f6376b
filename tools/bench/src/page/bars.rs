//! The targets, and whether the results meet them.

use std::fmt::Write as _;

use serde_json::Value;

use super::results::{PAIRS, Results, figure, list, ratio_of_rounds};
use crate::report::median;

/// The largest ratio of two medians that does not show a slower version: 5 % is noise.
const NOT_SLOWER: f64 = 1.05;
/// Queries for a cold read: one, and sometimes the lookup of a key.
const COLD_QUERIES: f64 = 1.05;

/// A target with its figures.
struct Bar {
    what: String,
    required: String,
    /// The figures, as text; `None`: not measured.
    seen: Option<Seen>,
}

struct Seen {
    ours: String,
    other: String,
    ratio: String,
    is_met: bool,
}

impl Bar {
    /// A ratio that must be at least a number.
    fn at_least(what: &str, bar: f64, figures: Option<[f64; 3]>) -> Self {
        let required = format!("≥ {}", figure(Some(bar)));
        Self::of_ratio(what, required, figures, |ratio| ratio >= bar)
    }

    /// A ratio that may be at most a number.
    fn at_most(what: &str, bar: f64, figures: Option<[f64; 3]>) -> Self {
        let required = format!("≤ {}", figure(Some(bar)));
        Self::of_ratio(what, required, figures, |ratio| ratio <= bar)
    }

    fn of_ratio(
        what: &str,
        required: String,
        figures: Option<[f64; 3]>,
        is_met: impl Fn(f64) -> bool,
    ) -> Self {
        let seen = figures.map(|[ours, other, ratio]| Seen {
            ours: figure(Some(ours)),
            other: figure(Some(other)),
            ratio: figure(Some(ratio)),
            is_met: is_met(ratio),
        });
        Self { what: what.to_owned(), required, seen }
    }
}

/// The table of all targets.
pub(super) fn table(results: &Results) -> String {
    let mut text =
        "| target | required | Keepsake | compared with | ratio | |\n|---|---|---|---|---|---|\n".to_owned();
    let bars = [floor_bars(results), hot_store_bars(results), scale_bars(results)];
    let bars = bars.into_iter().flatten().chain([cold_bar(results)]);
    for bar in bars.chain(search_bars(results)).chain(peer_bars(results)) {
        let Bar { what, required, seen } = bar;
        // Writing to a string cannot fail.
        let _ = match seen {
            Some(Seen { ours, other, ratio, is_met }) => {
                let verdict = if is_met { "met" } else { "**missed**" };
                writeln!(text, "| {what} | {required} | {ours} | {other} | {ratio} | {verdict} |")
            }
            None => writeln!(text, "| {what} | {required} | – | – | – | not measured |"),
        };
    }
    text.trim_end().to_owned()
}

/// The figures of both sides of a finding, and their ratio.
fn against_floor(found: Option<&Value>) -> Option<[f64; 3]> {
    let found = found?;
    let rate = |side: &str| found[side]["requests_per_second"].as_f64();
    Some([rate("server")?, rate("floor")?, found["median_ratio"].as_f64()?])
}

/// A figure of the server in two findings, and its ratio by rounds.
fn between(of: Option<&Value>, to: Option<&Value>, name: &str) -> Option<[f64; 3]> {
    let (of, to) = (&of?["server"], &to?["server"]);
    Some([of[name].as_f64()?, to[name].as_f64()?, ratio_of_rounds(of, to, name)?])
}

fn floor_bars(results: &Results) -> Vec<Bar> {
    let found = |scenario| results.finding("postgres-s3", scenario, "spread");
    let mut bars = Vec::new();
    for (scenario, bar) in [("view", 0.9), ("str_replace", 0.8), ("create", 0.8), ("agent", 0.8)] {
        let what = format!("Postgres + S3: requests/s of `{scenario}`, and the floor's");
        bars.push(Bar::at_least(&what, bar, against_floor(found(scenario))));
    }
    let p99 = found("agent").and_then(|found| {
        let p99 = |side: &str| found[side]["p99_ms"].as_f64();
        Some([p99("server")?, p99("floor")?, found["median_p99_ratio"].as_f64()?])
    });
    bars.push(Bar::at_most("Postgres + S3: p99 in ms of `agent`, and the floor's", 2.0, p99));
    bars
}

fn hot_store_bars(results: &Results) -> Vec<Bar> {
    let found = |layout| results.finding("postgres-s3", "create", layout);
    let slow = results.finding("postgres-s3-slow", "create", "store");
    vec![
        Bar::at_least(
            "Postgres + S3: requests/s of `create` in one store, and in 64",
            0.8,
            between(found("store"), found("spread"), "requests_per_second"),
        ),
        Bar::at_least(
            "the same with 2 ms added to each flush: one store, and the floor",
            2.0,
            against_floor(slow),
        ),
    ]
}

fn scale_bars(results: &Results) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (pair, title) in PAIRS {
        let tenants = |layout| results.finding(&format!("{pair}-tenants"), "view", layout);
        bars.push(Bar::at_most(
            &format!("{title}: p99 in ms of `view`, 10,000 tenants, and 64 stores"),
            1.5,
            between(tenants("many"), tenants("spread"), "p99_ms"),
        ));
        for scenario in ["view", "create"] {
            let size = |layout| results.finding(&format!("{pair}-size"), scenario, layout);
            bars.push(Bar::at_most(
                &format!("{title}: p50 in ms of `{scenario}` in a store of 100,000, and of 100"),
                1.2,
                between(size("large"), size("small"), "p50_ms"),
            ));
        }
    }
    bars
}

/// A cold read costs one query and one GET.
fn cold_bar(results: &Results) -> Bar {
    let server = results.finding("postgres-s3-more", "cold", "spread").map(|found| &found["server"]);
    let seen = server.and_then(|server| {
        // The server counts the look-up, and the batch in which it goes, which is the query.
        let queries = server["index_calls_per_request"].as_f64()? - 1.0;
        let gets = server["s3_gets_per_request"].as_f64()?;
        Some(Seen {
            ours: format!("{queries:.2} queries, {gets:.2} GETs"),
            other: "1 query, 1 GET".to_owned(),
            ratio: "–".to_owned(),
            is_met: queries <= COLD_QUERIES && (gets - 1.0).abs() < 0.01,
        })
    });
    Bar {
        what: "Postgres + S3: queries and GETs for a `cold` read, which shares a query with others that wait"
            .to_owned(),
        required: "≤ 1 and 1".to_owned(),
        seen,
    }
}

fn search_bars(results: &Results) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (pair, title) in PAIRS {
        for script in ["latin", "han"] {
            for (name, of) in [("first", first_of as fn(&Value) -> _), ("later", later_of)] {
                let what =
                    format!("{title}: {name} searches ({script}), p50 in ms, and of the earlier version");
                let figures = beside_earlier(results, pair, script, of);
                bars.push(Bar::at_most(&what, NOT_SLOWER, figures));
            }
        }
    }
    bars
}

fn first_of(found: &Value) -> Option<f64> {
    found["median_first_ms"].as_f64()
}

fn later_of(found: &Value) -> Option<f64> {
    found["warm"]["p50_ms"].as_f64()
}

/// The medians of a figure in the alternate runs of this version and an earlier one, and
/// the median ratio.
fn beside_earlier(
    results: &Results,
    pair: &str,
    script: &str,
    figure_of: fn(&Value) -> Option<f64>,
) -> Option<[f64; 3]> {
    let seen = |side: &str, run: usize| {
        let file = results.file(&format!("search-{pair}-{side}-{run}"));
        list(file, "scripts").find(|found| found["script"] == script).and_then(figure_of)
    };
    let pairs: Vec<_> = (0..).map_while(|run| Some((seen("now", run)?, seen("before", run)?))).collect();
    let of_all = |figure: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(figure).collect::<Vec<_>>());
    Some([of_all(|pair| pair.0)?, of_all(|pair| pair.1)?, of_all(|pair| pair.0 / pair.1)?])
}

fn peer_bars(results: &Results) -> Vec<Bar> {
    let http = results.file("peers-http");
    let mut bars = Vec::new();
    for operation in ["write", "read", "edit", "list", "search"] {
        for clients in [1, 16] {
            let found = list(http, "results")
                .find(|found| found["operation"] == operation && found["clients"] == clients);
            let figures = found.and_then(|found| {
                let rate = |side: &str| found[side]["requests_per_second"].as_f64();
                Some([rate("server")?, rate("ai_memory")?, found["median_ratio"].as_f64()?])
            });
            let what = format!("SQLite: {operation}/s with {}, and ai-memory", clients_text(clients));
            bars.push(Bar::at_least(&what, 1.0, figures));
        }
    }
    for found in list(results.file("peers-local"), "results") {
        let (Some(peer), Some(operation), Some(clients)) =
            (found["peer"].as_str(), found["operation"].as_str(), found["clients"].as_u64())
        else {
            continue;
        };
        let ours = list(http, "results")
            .find(|ours| ours["operation"] == operation && ours["clients"] == clients)
            .and_then(|ours| ours["server"]["requests_per_second"].as_f64());
        let figures = ours
            .zip(found["requests_per_second"].as_f64())
            .map(|(ours, theirs)| [ours, theirs, ours / theirs]);
        let what = format!("SQLite: {operation}/s with {}, and {peer}", clients_text(clients));
        bars.push(Bar::at_least(&what, 1.0, figures));
    }
    bars
}

fn clients_text(clients: u64) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}
