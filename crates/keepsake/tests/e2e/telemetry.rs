//! Traces and metrics for a collector, metrics for Prometheus and the dashboard, and a log line
//! for each request.

use std::process::Stdio;

use keepsake_testkit::keepsake_server::free_port;
use keepsake_testkit::{CollectedSpan, Collector};
use tokio::process::Child;

use crate::chart::suite;
use crate::console::browser::encoded;
use crate::prelude::*;
use crate::support::script::{CHART_PYTHON, PROMTOOL};

/// A word of content and paths that no export may have.
const CONTENT: &str = "Zugspitze";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Every metric that the documentation names, as Prometheus counts it, and its labels.
fn documented_metrics() -> Vec<(String, BTreeSet<String>)> {
    let page = std::fs::read_to_string(repository().join("docs/observability.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `keepsake_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').collect();
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let suffix = if cells[2].contains("histogram") { "_count" } else { "" };
        (quoted(cells[1])[0].clone() + suffix, quoted(cells[3]).into_iter().collect())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_trace_below_its_clients_span_and_a_line_in_the_log() {
    let password = format!("collector-{}", Uuid::new_v4().simple());
    secrets::remember(&password, "the collector's password");
    let collector = Collector::start(&format!("Bearer {password}")).await;
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
    let (_deployment, tenant, mut server, client) = started_with(Pair::PostgresS3, &config).await;
    let path = format!("/memories/{CONTENT}.txt");
    let input = json!({"command": "create", "path": path, "file_text": CONTENT});
    let request = client.request(Method::POST, &tool_calls(tenant.store_id)).json(&input);
    let traced = send(request.header("traceparent", format!("00-{TRACE}-{PARENT}-01"))).await;
    assert_eq!(traced.status, 200, "{}", traced.text);
    let memories = "/v1/memory_stores/{memory_store_id}/memories";
    let listed = client.get(&memories.replace("{memory_store_id}", &tenant.store_id.to_string())).await;
    let malformed = client.request(Method::GET, &format!("/v1/{CONTENT}"));
    let nowhere = send(malformed.header("traceparent", "00-x-y-01")).await;
    let lost = client.get(&format!("/v1/memory_stores/{CONTENT}")).await;
    assert_eq!(send(client.bare(Method::GET, "/readyz")).await.status, 200);
    // The remaining data is exported at shutdown.
    server.end().await;

    let spans = collector.spans();
    let route = "POST /v1/memory_stores/{memory_store_id}/tool_calls";
    let span =
        |name: &str| spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span {name}"));
    let request = span(route);
    assert_eq!((request.trace_id.as_str(), request.parent_span_id.as_str()), (TRACE, PARENT));
    assert_eq!(request.kind, 2);
    assert_eq!(request.attributes["http.response.status_code"], "200");
    assert_eq!(request.attributes["tenant.id"], tenant.id.to_string());
    assert_eq!(request.attributes["gen_ai.memory.store.id"], tenant.store_id.to_string());
    assert_eq!(request.resource["service.name"], "memory");
    assert_eq!(request.resource["deployment.environment.name"], "test");
    for name in ["engine.call_tool", "index.commit", "blob.put"] {
        let span = spans.iter().find(|span| span.name == name && span.trace_id == TRACE);
        let span = span.unwrap_or_else(|| panic!("no span {name}"));
        assert!(is_below(span, request, &spans), "{name} is not below its request");
        if name == "engine.call_tool" {
            assert_eq!(span.attributes["gen_ai.memory.store.id"], tenant.store_id.to_string());
        }
    }
    assert_eq!(span("engine.memories").attributes["gen_ai.memory.store.id"], tenant.store_id.to_string());
    let elsewhere = span("GET none");
    assert!(elsewhere.parent_span_id.is_empty() && elsewhere.trace_id != TRACE);

    for metric in ["keepsake.http.requests", "keepsake.index.call.duration", "keepsake.access_flush_lag"] {
        assert!(collector.metrics().contains(metric), "{metric}: {:?}", collector.metrics());
    }
    for text in [CONTENT, tenant.key.as_str(), password.as_str()] {
        assert!(!collector.has_seen(text), "an export had content or a secret");
    }
    // Every request but the probe, which is on a finer level.
    let log = server.output();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_end = |line: &Value| line["message"] == "http.request ended" && line["level"] == "INFO";
    let ends: Vec<_> = lines.filter(is_end).collect();
    let told = ends.iter().map(|line| {
        json!([line["http.method"], line["http.route"], line["http.status"], line["span"]["request.id"]])
    });
    let expected = [
        json!(["POST", &route[5..], 200, traced.header("request-id")]),
        json!(["GET", memories, 200, listed.header("request-id")]),
        json!(["GET", "none", 404, nowhere.header("request-id")]),
        json!(["GET", "/v1/memory_stores/{memory_store_id}", 404, lost.header("request-id")]),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected, "{log}");
    for line in &ends {
        assert!(line["latency_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
    let span = &ends[0]["span"];
    assert_eq!((&span["trace_id"], &span["tenant.id"]), (&json!(TRACE), &json!(tenant.id)));
    assert!(!log.contains(CONTENT));
}

fn is_below(span: &CollectedSpan, other: &CollectedSpan, spans: &[CollectedSpan]) -> bool {
    let mut of_trace = spans.iter().filter(|parent| parent.trace_id == span.trace_id);
    let parent = of_trace.find(|parent| parent.span_id == span.parent_span_id);
    span.span_id == other.span_id || parent.is_some_and(|parent| is_below(parent, other, spans))
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_every_metric() {
    let operator = Operator::new();
    let (_deployment, tenant, _server, client) = started_with(Pair::PostgresS3, &operator.config).await;
    client.create_file(&tenant, "/memories/a", "four").await;
    client.tool_ok(&tenant, &json!({"command": "view", "path": "/memories/a"})).await;
    let store = Store::of(&client, &tenant);
    assert_eq!(store.try_create("/a", "x").await.status, 409);
    let made_up = Method::from_bytes(b"BREW").unwrap();
    assert_eq!(send(client.request(made_up, &store.memories())).await.status, 405);

    let read = async || {
        let answer = operator.send(Method::GET, "/metrics", None).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
        answer.text
    };
    soon("a job has run", async || read().await.contains("keepsake_job_items_total{")).await;
    soon("the memory is in the totals", async || {
        // The run of the schedule may have been before the memory.
        let job = "/admin/v1/jobs/count-totals/run";
        let counting = operator.send(Method::POST, job, Some(&json!({}))).await;
        assert!([200, 202, 409].contains(&counting.status), "{}", counting.text);
        samples(&read().await, "keepsake_stored_memories").any(|(_, memories)| memories > 0.9)
    })
    .await;
    let text = read().await;
    let metrics = documented_metrics();
    assert!(metrics.len() > 20, "{metrics:?}");
    // Only SQLite has a log with a size.
    for (name, labels) in metrics.iter().filter(|(name, _)| name != "keepsake_index_log_size_bytes") {
        let samples: Vec<_> = samples(&text, name).collect();
        assert!(!samples.is_empty(), "{name} is not there:\n{text}");
        for (given, _) in samples {
            let given: BTreeSet<_> = given.into_iter().map(|(label, _)| label.to_owned()).collect();
            assert_eq!(given, *labels, "{name}");
        }
    }
    let value = |name: &str, wanted: &[(&str, &str)]| {
        let mut found = samples(&text, name);
        let found = found.find(|(labels, _)| wanted.iter().all(|pair| labels.contains(pair)));
        found.unwrap_or_else(|| panic!("no {name} {wanted:?}:\n{text}")).1
    };
    let tool_calls = ("route", "/v1/memory_stores/{memory_store_id}/tool_calls");
    for (name, labels, expected) in [
        ("keepsake_http_requests_total", &[tool_calls, ("status", "200")][..], 2.0),
        ("keepsake_http_requests_total", &[("method", "other"), ("status", "405")], 1.0),
        ("keepsake_http_requests_in_flight", &[], 1.0),
        ("keepsake_conflicts_total", &[("kind", "path")], 1.0),
        ("keepsake_cache_lookups_total", &[("cache", "content"), ("result", "hit")], 1.0),
        // The refused memory's content was stored, too.
        ("keepsake_blob_bytes_total", &[("direction", "written")], 5.0),
        ("keepsake_stored_stores", &[], 1.0),
        ("keepsake_stored_memories", &[], 1.0),
        ("keepsake_stored_versions", &[], 1.0),
        ("keepsake_stored_size_bytes", &[("of", "memories")], 4.0),
        ("keepsake_stored_size_bytes", &[("of", "versions")], 4.0),
    ] {
        let found = value(name, labels);
        assert!((found - expected).abs() < 0.1, "{name} {labels:?}: {found}, not {expected}");
    }
    assert!(!text.contains(&tenant.id.to_string()), "a metric names a tenant:\n{text}");
}

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

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_is_answered_by_a_running_server() {
    // One metric exists on SQLite only, and some only with an object store.
    let deployment = Deployment::new(Pair::SqliteS3).await;
    // Each attempt at a query writes a memory.
    let tenant = deployment.tenant_with(json!({"memories_per_store": 1 << 20})).await;
    let operator = Operator::new();
    // A collector that cannot be reached blocks neither requests nor the end.
    let telemetry = "otlp_endpoint = \"http://127.0.0.1:1\"\nmetrics_interval_seconds = 1\n";
    let more = format!("{FREE_RATES}[telemetry]\nmetrics_without_token = true\n{telemetry}");
    let mut server = deployment.start_with(&ServerConfig { more, ..operator.config }).await;
    let client = server.client(&tenant);
    let prometheus = Prometheus::start(&operator.url);
    let with_any_token = Client::new(&operator.url, "").bare(Method::GET, "/metrics").bearer_auth("any");
    assert_eq!(send(with_any_token).await.status, 200);

    let queries = queries().await;
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        soon(&query, async || {
            // A write, a read, and a request that finds nothing.
            let path = format!("/memories/{}", Uuid::new_v4().simple());
            client.create_file(&tenant, &path, "Remember me.\n").await;
            client.tool_ok(&tenant, &json!({"command": "view", "path": path})).await;
            client.get(&tool_calls(tenant.store_id)).await;
            prometheus.answers(&query).await > 0
        })
        .await;
    }
    // One for the traces and one for the metrics, however often the collector is tried.
    let warnings = || server.output().matches("telemetry.export failed: the collector").count();
    soon("warnings of failed exports", async || warnings() == 2).await;
    server.end().await;
}

async fn queries() -> Vec<String> {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.arg("-B").arg(suite().join("queries.py"));
    let mut listed: Vec<Value> = serde_json::from_str(&script::run(&mut command).await).unwrap();
    listed.retain(|query| query["in"] == "dashboard");
    strings(&listed, "query")
}

/// A Prometheus that looks at one server each second, as the chart has it.
struct Prometheus {
    url: String,
    _process: Child,
    _folder: TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let configuration = folder.path().join("prometheus.yaml");
        let target = target.trim_start_matches("http://");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n\
             - {{job_name: keepsake, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}\n"
        );
        std::fs::write(&configuration, text).unwrap();
        let port = free_port();
        // The program `prometheus` is beside `promtool`.
        let program = Path::new(&script::from_environment(PROMTOOL)).with_file_name("prometheus");
        let mut process = Command::new(program);
        process.arg(format!("--config.file={}", configuration.display()));
        process.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        process.arg(format!("--web.listen-address=127.0.0.1:{port}")).kill_on_drop(true);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = process.spawn().unwrap_or_else(|error| panic!("Prometheus: {error}: run ./tests/run"));
        Self { url: format!("http://127.0.0.1:{port}"), _process: process, _folder: folder }
    }

    /// How many series answer a query; 0 while it is not up.
    async fn answers(&self, query: &str) -> usize {
        let path = format!("/api/v1/query?query={}", encoded(query));
        let request = Client::new(&self.url, "").bare(Method::GET, &path);
        // It listens before it answers.
        let Some(answer) = try_send(request).await.ok().filter(|answer| answer.status != 503) else {
            return 0;
        };
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().len()
    }
}
