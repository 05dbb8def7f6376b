//! The dashboard before a real Prometheus that scrapes a real server.

use std::process::Stdio;

use keepsake_testkit::keepsake_server::free_port;
use tokio::process::Child;
use uuid::Uuid;

use crate::chart::suite;
use crate::console::browser::encoded;
use crate::prelude::*;
use crate::support::client::try_send;
use crate::support::script::{CHART_PYTHON, PROMTOOL};

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_is_answered_by_a_running_server() {
    // One metric exists on SQLite only, and some only with an object store.
    let deployment = Deployment::new(Pair::SqliteS3).await;
    // Each attempt at a query writes a memory.
    let tenant = deployment.tenant_with(json!({"memories_per_store": 1 << 20})).await;
    let operator = Operator::new();
    let more = format!("{FREE_RATES}[telemetry]\nmetrics_without_token = true\n");
    let server = deployment.start_with(&ServerConfig { more, ..operator.config }).await;
    let client = server.client(&tenant);
    let prometheus = Prometheus::start(&operator.url);

    let queries = queries().await;
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        soon(&query, async || {
            use_it(&client, &tenant).await;
            prometheus.answers(&query).await > 0
        })
        .await;
    }
}

async fn queries() -> Vec<String> {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.arg("-B").arg(suite().join("queries.py"));
    let mut listed: Vec<Value> = serde_json::from_str(&script::run(&mut command).await).unwrap();
    listed.retain(|query| query["in"] == "dashboard");
    strings(&listed, "query")
}

/// A write, a read, and a request that finds nothing.
async fn use_it(client: &Client, tenant: &Tenant) {
    let path = format!("/memories/{}", Uuid::new_v4().simple());
    client.create_file(tenant, &path, "Remember me.\n").await;
    client.tool_ok(tenant, &json!({"command": "view", "path": path})).await;
    send(client.request(Method::GET, &tool_calls(tenant.store_id))).await;
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
        let scraped = format!(
            "{{job_name: keepsake, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}"
        );
        let text = format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n- {scraped}\n");
        std::fs::write(&configuration, text).unwrap();
        let port = free_port();
        // The program `prometheus` is beside `promtool`.
        let program = Path::new(&script::from_environment(PROMTOOL)).with_file_name("prometheus");
        let mut process = Command::new(program);
        process.arg(format!("--config.file={}", configuration.display()));
        process.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        process.arg(format!("--web.listen-address=127.0.0.1:{port}")).kill_on_drop(true);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = process.spawn();
        let process = process.unwrap_or_else(|error| panic!("Prometheus: {error}: run ./tests/run"));
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
