//! The benchmark runs and its results have the expected contents.
//!
//! It measures the `keepsake` binary of its build folder, which the product's tests build.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test by panicking, as the test does")]

mod support;

use std::path::Path;

use serde_json::{Value, json};

use support::{Deployment, Pair, Run, run};

/// As little as shows that everything works, and long enough for each round to
/// have a request on a busy machine; the numbers mean nothing.
const SHORT: [&str; 5] =
    ["--connections=4", "--memories=64", "--rounds=2", "--warm-up=0.05", "--measure=0.5"];

async fn bench(arguments: &[&str], json: &Path) -> Run {
    let json = format!("--json={}", json.display());
    let all = [&[json.as_str()], SHORT.as_slice(), arguments].concat();
    run(support::bench(), &all).await
}

fn results(json: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: tests/nightly measurements"]
async fn server_and_floor_are_measured_on_postgres_and_s3() {
    let found = server_and_floor_are_measured(Pair::PostgresS3, ["postgres", "s3"]).await;
    assert_costs_of_s3(&found);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_and_floor_are_measured_on_sqlite() {
    server_and_floor_are_measured(Pair::Sqlite, ["sqlite", "content in the index"]).await;
}

/// The results, which have everything that was asked for.
async fn server_and_floor_are_measured(pair: Pair, [index, blobs]: [&str; 2]) -> Vec<Value> {
    let deployment = Deployment::new(pair).await;
    let (config, json) = (deployment.config_flag(), deployment.results_file());
    let names = ["view", "list", "str_replace", "create", "mix", "agent", "cold"];
    let scenarios = &format!("--scenarios={}", names.join(","));
    let table = bench(&[&config, "--floor", scenarios], &json).await.ok();
    assert!(table.contains("64 stores, 8 tenants"), "{table}");

    let report = results(&json);
    for (scanned, text) in report["scanner"].as_array().unwrap().iter().zip(["prose", "code", "secrets"]) {
        assert_eq!(scanned["text"], text);
        assert!(scanned["megabytes_per_second"].as_f64().unwrap() > 0.0, "{scanned}");
        assert!(table.contains("MB/s on one core"), "{table}");
    }
    assert_eq!((&report["setup"]["index"], &report["setup"]["blobs"]), (&json!(index), &json!(blobs)));
    let found = report["results"].as_array().unwrap();
    let fields = ["scenario", "layout", "stores", "bar"];
    let measured: Vec<_> = found.iter().map(|result| fields.map(|field| result[field].clone())).collect();
    let mut expected = Vec::new();
    let bars = [Some(0.9), None, Some(0.8), Some(0.8), None, Some(0.8), None];
    for (scenario, bar) in names.into_iter().zip(bars) {
        for (layout, stores) in [("spread", 64), ("tenant", 64), ("store", 1)] {
            let bar = bar.filter(|_| layout == "spread");
            expected.push([json!(scenario), json!(layout), json!(stores), json!(bar)]);
        }
    }
    assert_eq!(measured, expected);
    for result in found {
        assert_both_sides(result);
    }
    found.clone()
}

/// A creation is one PUT, a cold read is one GET, and each process's CPU time is known.
fn assert_costs_of_s3(found: &[Value]) {
    let of = |scenario: &str| {
        let mut layouts = found.iter().filter(|result| result["scenario"] == scenario);
        &layouts.next().unwrap()["server"]
    };
    let near_one = |calls: &Value| (0.5..1.5).contains(&calls.as_f64().unwrap());
    assert!(near_one(&of("create")["s3_puts_per_request"]), "{found:?}");
    assert!(near_one(&of("cold")["s3_gets_per_request"]), "{found:?}");
    assert_eq!(of("view")["s3_gets_per_request"], 0.0, "{found:?}");
    assert!(of("view")["index_calls_per_request"].as_f64().unwrap() > 0.0);
    for process in ["server", "database", "s3"] {
        let micros = &of("create")[format!("{process}_cpu_micros_per_request")];
        assert!(micros.as_f64().is_some(), "{process}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: tests/nightly measurements"]
async fn one_command_measures_everything_and_writes_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let root = keepsake_testkit::repository();
    let output = tokio::process::Command::new(root.join("tools/bench/run"))
        .args(["--all", "--quick", "--output"])
        .arg(folder.path())
        .arg("--programs")
        .arg(support::bench().parent().unwrap())
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let page = std::fs::read_to_string(folder.path().join("performance.md")).unwrap();
    assert!(page.contains("A quick run"), "{page}");
    assert!(!page.contains(&*folder.path().to_string_lossy()), "{page}");
    // Searches, gates, the console and the peers are not part of a quick run.
    let is_measured = |line: &&str| !line.contains("search") && !line.contains("ai-memory");
    let bars: Vec<_> = page.lines().filter(|line| line.contains("| ≥ ") || line.contains("| ≤ ")).collect();
    assert!(bars.len() > 20, "{page}");
    for bar in bars.into_iter().filter(is_measured) {
        assert!(bar.ends_with("| met |") || bar.ends_with("| **missed** |"), "{bar}");
    }
    let unmeasured = page.matches("Not measured in this run.").count();
    // The peers, their notes, searches, the console, gates and meaning.
    assert_eq!(unmeasured, 6, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fairness_is_measured_with_and_without_an_aggressor() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (config, json) = (deployment.config_flag(), deployment.results_file());
    let rates = ["--fairness", "--victim-rate=40", "--aggressor-limit=10"];
    let table = bench(&[&[config.as_str()], rates.as_slice()].concat(), &json).await.ok();
    assert!(table.contains("p99 ratio"), "{table}");
    let report = results(&json);
    assert_eq!(report["aggressor_rate"], 200);
    assert_eq!(report["ratios"].as_array().unwrap().len(), 2);
    for felt in ["alone", "beside"] {
        let answered = report[felt]["statuses"]["200"].as_u64();
        // Two rounds of a part of a second at 40 calls per second.
        assert_eq!(answered, report[felt]["calls"].as_u64(), "{report}");
        assert!(answered >= Some(20), "{report}");
    }
    assert!(report["aggressor"]["429"].as_u64().unwrap() > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: tests/nightly measurements"]
async fn searches_and_retrievals_are_measured_together() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (config, json) = (deployment.config_flag(), deployment.results_file());
    let table = bench(&[config.as_str(), "--search"], &json).await.ok();
    assert!(table.contains("warm p99"), "{table}");
    let report = results(&json);
    for (place, script) in ["latin", "han"].into_iter().enumerate() {
        let searched = &report["scripts"][place];
        assert_eq!(searched["script"], script, "{report}");
        assert_eq!(searched["first_ms"].as_array().unwrap().len(), 2);
        for felt in ["warm", "retrieve"] {
            assert_eq!(searched[felt]["calls"], 1_000, "{report}");
            assert!(searched[felt]["p50_ms"].as_f64().unwrap() > 0.0, "{report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_server_is_measured_with_the_floor() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let (config, json) = (deployment.config_flag(), deployment.results_file());
    deployment.keepsake(&["migrate"]).await.ok();
    let server = deployment.command().start().await;
    let url = format!("--url={}", server.url());
    let layout = ["--layouts=chosen", "--tenants=2", "--stores=3"];
    bench(&[&[config.as_str(), url.as_str(), "--floor"], layout.as_slice()].concat(), &json).await.ok();
    let report = results(&json);
    let found = report["results"].as_array().unwrap();
    let scenarios: Vec<_> = found.iter().map(|result| &result["scenario"]).collect();
    assert_eq!(scenarios, ["view", "create"], "{report}");
    for result in found {
        assert_eq!((&result["layout"], &result["stores"]), (&json!("chosen"), &json!(6)), "{result}");
        assert_both_sides(result);
    }
}

/// Both sides of a result did something in each round, and nothing failed.
fn assert_both_sides(result: &Value) {
    for side in ["server", "floor"] {
        assert!(result[side]["requests"].as_u64().unwrap() > 0, "{result}");
        assert_eq!(result[side]["failed"], 0, "{result}");
        assert!(result[side]["p99_9_ms"].as_f64() >= result[side]["p50_ms"].as_f64(), "{result}");
    }
    let ratios = result["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), 2);
    for ratio in ratios.iter().chain([&result["median_ratio"]]) {
        assert!(ratio.as_f64().unwrap() > 0.0, "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_server_is_measured_with_given_keys() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (key, store_id) = deployment.key_and_store().await;
    let server = deployment.command().start().await;
    let json = deployment.results_file();
    let credentials = json.with_file_name("credentials.json");
    let arguments = [
        &format!("--url={}", server.url()),
        &format!("--credentials={}", credentials.display()),
        "--scenarios=mix",
    ];

    let store_ids = [store_id];
    let good = json!([{"api_key": key, "store_ids": store_ids}]);
    std::fs::write(&credentials, good.to_string()).unwrap();
    bench(&arguments, &json).await.ok();
    let report = results(&json);
    let result = &report["results"][0];
    assert_eq!((&result["layout"], &result["floor"]), (&json!("given"), &Value::Null));
    assert!(result["server"]["requests"].as_u64().unwrap() > 0);

    let mistyped = json!([{"api_key": "ks_live_mistyped", "store_ids": store_ids}]);
    std::fs::write(&credentials, mistyped.to_string()).unwrap();
    let refused = bench(&arguments, &json).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("401"), "{}", refused.stderr);
}
