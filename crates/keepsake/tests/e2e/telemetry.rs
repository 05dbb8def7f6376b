//! Traces and metrics for a collector, metrics for Prometheus, and a log line for
//! each request.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use keepsake_testkit::keepsake_server::free_port;
use keepsake_testkit::{CollectedSpan, Collector};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use uuid::Uuid;

use crate::support::client::{send, tool_calls};
use crate::support::deployment::{FREE_RATES, ServerConfig};
use crate::support::{Client, Deployment, Pair, eventually, script, secrets};

/// A word of content and paths that no export may have.
const CONTENT: &str = "Zugspitze";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
/// Jobs run each minute; a busy machine may be slow to say so.
const A_JOB_HAS_RUN_WITHIN: Duration = Duration::from_secs(100);

/// Every metric by the name that Prometheus has for it, and its labels.
const METRICS: [(&str, &[&str]); 28] = [
    ("keepsake_http_requests_total", &["method", "route", "status"]),
    ("keepsake_http_request_duration_seconds_count", &["method", "route"]),
    ("keepsake_http_requests_in_flight", &[]),
    ("keepsake_index_call_duration_seconds_count", &["call", "outcome"]),
    ("keepsake_index_pool_connections", &["pool", "state"]),
    ("keepsake_index_pool_waiting", &["pool"]),
    ("keepsake_index_pool_limit", &["pool"]),
    ("keepsake_index_log_size_bytes", &[]),
    ("keepsake_blob_call_duration_seconds_count", &["call", "outcome"]),
    ("keepsake_blob_breaker_open", &[]),
    ("keepsake_blob_breaker_refusals_total", &[]),
    ("keepsake_blob_bytes_total", &["direction"]),
    ("keepsake_cache_lookups_total", &["cache", "result"]),
    ("keepsake_cache_size_bytes", &["cache"]),
    ("keepsake_retries_total", &["what"]),
    ("keepsake_conflicts_total", &["kind"]),
    ("keepsake_quota_refusals_total", &["limit"]),
    ("keepsake_rate_refusals_total", &["kind"]),
    ("keepsake_job_runs_total", &["job", "outcome"]),
    ("keepsake_job_run_duration_seconds_count", &["job"]),
    ("keepsake_job_items_total", &["item", "job"]),
    ("keepsake_job_last_success_timestamp_seconds", &["job"]),
    ("keepsake_access_flush_lag_seconds", &[]),
    ("keepsake_stored_stores", &[]),
    ("keepsake_stored_memories", &[]),
    ("keepsake_stored_versions", &[]),
    ("keepsake_stored_size_bytes", &["of"]),
    ("keepsake_process_start_time_seconds", &[]),
];

fn operator() -> (u16, String) {
    let token = format!("operator-{}", Uuid::new_v4().simple());
    secrets::remember(&token, "the operator's token");
    (free_port(), token)
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_trace_below_its_clients_span_on_postgres_and_s3() {
    request_is_a_trace_below_its_clients_span(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_trace_below_its_clients_span_on_sqlite() {
    request_is_a_trace_below_its_clients_span(Pair::Sqlite).await;
}

async fn request_is_a_trace_below_its_clients_span(pair: Pair) {
    let password = format!("collector-{}", Uuid::new_v4().simple());
    secrets::remember(&password, "the collector's password");
    let collector = Collector::start(&format!("Bearer {password}")).await;
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig {
        log_filter: "trace",
        log_format: "json",
        more: format!(
            "{FREE_RATES}[telemetry]\notlp_endpoint = \"{}/\"\notlp_headers = \"authorization=Bearer {password}\"\n\
             service_name = \"memory\"\nresource_attributes = \"deployment.environment.name=test\"\n",
            collector.url()
        ),
        ..ServerConfig::default()
    };
    let mut server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let path = format!("/memories/{CONTENT}.txt");
    let input = json!({"command": "create", "path": path, "file_text": CONTENT});
    let request = client.request(Method::POST, &tool_calls(tenant.store_id)).json(&input);
    let traced = send(request.header("traceparent", format!("00-{TRACE}-{PARENT}-01"))).await;
    assert_eq!(traced.status, 200, "{}", traced.text);
    let malformed = client.request(Method::GET, &format!("/v1/{CONTENT}"));
    assert_eq!(send(malformed.header("traceparent", "00-x-y-01")).await.status, 404);
    // The remaining data is exported at shutdown.
    server.end().await;

    let spans = collector.spans();
    let route = "POST /v1/memory_stores/{memory_store_id}/tool_calls";
    let request = spans.iter().find(|span| span.name == route).expect("no span of the request");
    assert_eq!((request.trace_id.as_str(), request.parent_span_id.as_str()), (TRACE, PARENT));
    assert_eq!(request.kind, 2);
    assert_eq!(request.attributes["http.response.status_code"], "200");
    assert_eq!(request.attributes["tenant.id"], tenant.id.to_string());
    assert_eq!(request.resource["service.name"], "memory");
    assert_eq!(request.resource["deployment.environment.name"], "test");
    let put = pair.has_s3().then_some("blob.put");
    for name in ["engine.call_tool", "index.commit"].into_iter().chain(put) {
        let span = spans.iter().find(|span| span.name == name && span.trace_id == TRACE);
        let span = span.unwrap_or_else(|| panic!("no span {name}"));
        assert!(is_below(span, request, &spans), "{name} is not below its request");
    }
    let elsewhere = spans.iter().find(|span| span.name == "GET none");
    let elsewhere = elsewhere.expect("no span of a request without a route");
    assert!(elsewhere.parent_span_id.is_empty() && elsewhere.trace_id != TRACE);

    for metric in ["keepsake.http.requests", "keepsake.index.call.duration", "keepsake.access_flush_lag"] {
        assert!(collector.metrics().contains(metric), "{metric}: {:?}", collector.metrics());
    }
    for text in [CONTENT, tenant.key.as_str(), password.as_str()] {
        assert!(!collector.has_seen(text), "an export had content or a secret");
    }
    let ends = lines_of_ends(&server.output());
    let line = ends.iter().find(|line| line["http.route"] == route[5..]).unwrap();
    assert_eq!(line["span"]["trace_id"], TRACE, "{line}");
    assert!(!server.output().contains(CONTENT));
}

/// Whether a span is below another, by the parents of its trace.
fn is_below(span: &CollectedSpan, other: &CollectedSpan, spans: &[CollectedSpan]) -> bool {
    let mut span = span;
    while span.span_id != other.span_id {
        let parent = spans.iter().find(|parent| parent.span_id == span.parent_span_id);
        match parent {
            Some(parent) if parent.trace_id == span.trace_id => span = parent,
            _ => return false,
        }
    }
    true
}

/// The log lines of finished requests.
fn lines_of_ends(log: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == "http.request ended").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_except_probes_is_logged_with_its_route() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { log_format: "json", ..ServerConfig::default() };
    let mut server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let made = client.post("/v1/memory_stores", &json!({"name": CONTENT})).await;
    let lost = client.get(&format!("/v1/memory_stores/{CONTENT}")).await;
    let nowhere = send(client.bare(Method::GET, &format!("/{CONTENT}"))).await;
    // The log has the trace ids of clients and of traces that start here.
    let request = client.request(Method::GET, "/v1/memory_stores");
    let traced = send(request.header("traceparent", format!("00-{TRACE}-{PARENT}-00"))).await;
    assert_eq!(send(client.bare(Method::GET, "/readyz")).await.status, 200);
    server.end().await;

    let log = server.output();
    let ends = lines_of_ends(&log);
    let told: Vec<_> = ends
        .iter()
        .map(|line| {
            (&line["http.method"], &line["http.route"], &line["http.status"], &line["span"]["request.id"])
        })
        .collect();
    let told_as = |method: &str, route: &str, status: u16, id: &str| {
        (json!(method), json!(route), json!(status), json!(id))
    };
    let expected = [
        told_as("POST", "/v1/memory_stores", 200, made.header("request-id")),
        told_as("GET", "/v1/memory_stores/{memory_store_id}", 404, lost.header("request-id")),
        told_as("GET", "none", 404, nowhere.header("request-id")),
        told_as("GET", "/v1/memory_stores", 200, traced.header("request-id")),
    ];
    let expected: Vec<_> = expected.iter().map(|(a, b, c, d)| (a, b, c, d)).collect();
    assert_eq!(told, expected, "{log}");
    for line in &ends {
        assert!(line["latency_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
    assert_eq!(ends[0]["span"]["tenant.id"], tenant.id.to_string());
    assert_eq!(ends[0]["span"].get("trace_id"), None, "{}", ends[0]);
    assert_eq!(ends[3]["span"]["trace_id"], TRACE);
    assert!(!log.contains(CONTENT), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_every_metric_on_postgres_and_s3() {
    prometheus_reads_every_metric(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_every_metric_on_sqlite() {
    prometheus_reads_every_metric(Pair::Sqlite).await;
}

async fn prometheus_reads_every_metric(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let (port, token) = operator();
    let config = ServerConfig { operator: Some((port, token.clone())), ..ServerConfig::default() };
    let server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let create = json!({"command": "create", "path": "/memories/a", "file_text": "four"});
    client.tool_ok(&tenant, &create).await;
    client.tool_ok(&tenant, &json!({"command": "view", "path": "/memories/a"})).await;
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    let in_the_way = json!({"path": "/a", "content": "x"});
    assert_eq!(client.post(&memories, &in_the_way).await.status, 409);
    let made_up = Method::from_bytes(b"BREW").unwrap();
    assert_eq!(send(client.request(made_up, &memories)).await.status, 405);

    let metrics = Client::new(&format!("http://127.0.0.1:{port}"), "");
    let read = async || {
        let answer = send(metrics.bare(Method::GET, "/metrics").bearer_auth(&token)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
        answer.text
    };
    eventually("a job has run", A_JOB_HAS_RUN_WITHIN, async || {
        read().await.contains("keepsake_job_items_total{")
    })
    .await;
    eventually("the memory is in the totals", A_JOB_HAS_RUN_WITHIN, async || {
        // The run of the schedule may have been before the memory.
        let counting = metrics.bare(Method::POST, "/admin/v1/jobs/count-totals/run");
        let counting = send(counting.bearer_auth(&token).json(&json!({}))).await;
        assert!([200, 202, 409].contains(&counting.status), "{}", counting.text);
        samples(&read().await, "keepsake_stored_memories").any(|(_, memories)| memories > 0.9)
    })
    .await;
    let text = read().await;
    check_with_promtool(&text).await;
    assert_totals(&text);
    // Commits write the content where there is no object store, and the view above
    // finds it in the cache.
    let is_of_other_pair = |name: &str| {
        let is_of_blobs = name.contains("_blob_call_") || name.contains("_blob_bytes_");
        is_of_blobs && !pair.has_s3() || name.contains("_index_log_") && pair.has_s3()
    };
    for (name, labels) in METRICS {
        if is_of_other_pair(name) {
            continue;
        }
        let samples: Vec<_> = samples(&text, name).collect();
        assert!(!samples.is_empty(), "{name} is not there:\n{text}");
        for (given, _) in samples {
            let names: BTreeSet<_> = given.iter().map(|(label, _)| *label).collect();
            assert_eq!(names, labels.iter().copied().collect(), "{name}");
        }
    }
    let value = |name: &str, wanted: &[(&str, &str)]| {
        let mut found =
            samples(&text, name).filter(|(labels, _)| wanted.iter().all(|pair| labels.contains(pair)));
        found.next().unwrap_or_else(|| panic!("no {name} {wanted:?}:\n{text}")).1
    };
    let tool_calls = ("route", "/v1/memory_stores/{memory_store_id}/tool_calls");
    assert_near(value("keepsake_http_requests_total", &[tool_calls, ("status", "200")]), 2.0);
    assert_near(value("keepsake_http_requests_total", &[("method", "other"), ("status", "405")]), 1.0);
    assert_near(value("keepsake_conflicts_total", &[("kind", "path")]), 1.0);
    assert_near(value("keepsake_cache_lookups_total", &[("cache", "content"), ("result", "hit")]), 1.0);
    if pair.has_s3() {
        // The refused memory's content was stored, too.
        let written = ("direction", "written");
        assert_near(value("keepsake_blob_bytes_total", &[written]), 5.0);
    } else {
        assert!(value("keepsake_index_log_size_bytes", &[]) > 4_096.0, "{text}");
    }
    assert_near(value("keepsake_http_requests_in_flight", &[]), 1.0);
    assert!(!text.contains(&tenant.id.to_string()), "a metric names a tenant:\n{text}");
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.1, "{found}, not {expected}");
}

/// A store with a memory of one version and four bytes.
fn assert_totals(text: &str) {
    for (name, count, expected) in [
        ("keepsake_stored_stores", 1, 1.0),
        ("keepsake_stored_memories", 1, 1.0),
        ("keepsake_stored_versions", 1, 1.0),
        ("keepsake_stored_size_bytes", 2, 4.0),
    ] {
        let values: Vec<_> = samples(text, name).map(|(_, value)| value).collect();
        assert_eq!(values.len(), count, "{name}:\n{text}");
        for value in values {
            assert_near(value, expected);
        }
    }
}

/// The samples of one name: labels and value.
fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (Vec<(&'a str, &'a str)>, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let labels = labels.split("\",").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_end_matches('"').split_once("=\"").unwrap());
        Some((labels.collect(), value.parse().unwrap()))
    })
}

/// Holds a text against Prometheus's own parser and its rules for names.
async fn check_with_promtool(text: &str) {
    let program = script::from_environment(script::PROMTOOL);
    let mut promtool = Command::new(&program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be run ({error}): run ./tests/run"));
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    let output = promtool.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}\n{text}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_need_the_operator_token_unless_configured_otherwise() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    for (more, status) in [
        (FREE_RATES.to_owned(), 401),
        (format!("{FREE_RATES}[telemetry]\nmetrics_without_token = true\n"), 200),
    ] {
        let (port, token) = operator();
        let config = ServerConfig { operator: Some((port, token.clone())), more, ..ServerConfig::default() };
        let mut server = deployment.start_with(&config).await;
        let operator = Client::new(&format!("http://127.0.0.1:{port}"), "");
        assert_eq!(send(operator.bare(Method::GET, "/metrics")).await.status, status);
        let wrong = operator.bare(Method::GET, "/metrics").bearer_auth(&tenant.key);
        assert_eq!(send(wrong).await.status, status);
        let right = operator.bare(Method::GET, "/metrics").bearer_auth(&token);
        assert_eq!(send(right).await.status, 200);
        // The public side has none.
        let public = server.client(&tenant).bare(Method::GET, "/metrics").bearer_auth(&token);
        assert_eq!(send(public).await.status, 404);
        server.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_collector_blocks_no_request_and_no_shutdown() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig {
        more: format!(
            "{FREE_RATES}[telemetry]\notlp_endpoint = \"http://127.0.0.1:1\"\nmetrics_interval_seconds = 1\n"
        ),
        ..ServerConfig::default()
    };
    let mut server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let create = json!({"command": "create", "path": "/memories/a", "file_text": "x"});
    client.tool_ok(&tenant, &create).await;
    server.end().await;
}
