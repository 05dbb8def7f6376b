//! The Helm chart renders valid manifests, which run the product.
//!
//! There is no cluster here: the processes are started as the rendered pods say,
//! on a real database and a real object store.

mod examples;
mod rendering;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keepsake_testkit::keepsake_server::free_port;
use keepsake_testkit::{TestDatabase, fresh_database, s3, s3_options};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use tokio::process::Command;
use uuid::Uuid;

use crate::support::command::{keepsake, keepsake_with};
use crate::support::script::{self, CHART_PYTHON};
use crate::support::{Answer, Client, eventually, secrets};
use rendering::Chart;
pub(crate) use rendering::suite;

/// The base64 of 32 bytes.
const MASTER_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
/// Some job is due every twenty seconds; a busy machine may be slow to say so.
const JOB_WITHIN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn chart_is_valid_for_every_set_of_values_and_refuses_wrong_ones() {
    suite_passes("test_values").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_dashboard_are_well_formed_and_documented() {
    suite_passes("test_observability").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn image_and_compose_file_are_well_formed() {
    suite_passes("test_deploy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn split_roles_of_the_chart_run_the_product_on_postgres_and_s3() {
    let stores = ChartStores::new().await;
    // All processes of this machine share its ports, while each pod has its own.
    let gateways = Chart::render(&stores.split_roles()).await;
    let workers = Chart::render(&stores.split_roles()).await;

    for migration in gateways.run_hooks("pre-install").await {
        migration.ok();
    }
    assert!(stores.has_tables().await, "the hook has made no tables");
    let gateway = gateways.start("gateway").await;
    let worker = workers.start("worker").await;
    for test in gateways.run_hooks("test").await {
        assert!(test.ok().contains("\"data\""));
    }
    main_job(&gateways, &stores.token).await;
    stores.some_job_ran().await;
    assert!(!gateway.output().contains("runs the scheduled jobs"), "{}", gateway.output());
    assert!(worker.output().contains("runs the scheduled jobs"), "{}", worker.output());

    // An upgrade migrates again while the old processes run.
    for migration in gateways.run_hooks("pre-upgrade").await {
        migration.ok();
    }
    main_job(&gateways, &stores.token).await;
    gateway.end().await;
    worker.end().await;
    assert_ne!(gateways.run_hooks("test").await[0].code, Some(0), "nobody answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pod_of_the_chart_runs_the_product_on_its_volume() {
    let token = operator_token();
    let chart = Chart::render(&json!({
        "index": {"kind": "sqlite"},
        "operator": {"token": token, "port": free_port()},
        "gateway": {"port": free_port(), "replicas": 1, "autoscaling": {"enabled": false}},
    }))
    .await;
    assert!(chart.run_hooks("pre-install").await.is_empty());

    let pod = chart.start("gateway").await;
    let client = main_job(&chart, &token).await;
    pod.end().await;

    // The volume outlives the pod.
    let pod = chart.start("gateway").await;
    let stores = ok(&client.get("/v1/memory_stores").await);
    assert_eq!(stores["data"].as_array().unwrap().len(), 1);
    pod.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_of_values_is_a_configuration_that_the_binary_takes() {
    let folders = [suite().join("values"), examples::folder()];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    for file in files.map(|file| file.unwrap().path()) {
        // Added to the values of an installation, which are in this list.
        if file.ends_with("sync-sidecar.yaml") {
            continue;
        }
        let chart = Chart::render_set(&file).await;
        let shown = chart.check_config().await;
        assert_eq!(shown.code, Some(0), "{}: {}{}", file.display(), shown.stderr, shown.stdout);
        if file.ends_with("every-value.yaml") {
            for line in [
                "bytes_per_tenant = 109951162777600 ",
                "listen = \"[::]:9080\" ",
                "request_deadline_seconds = 45 ",
                "token_key_days = 7 ",
                "jwks_url = \"https://login.example.com/.well-known/jwks.json\" ",
                "public_url = \"https://memory.example.com\" ",
                "client_id = \"keepsake\" ",
                "sample_ratio = 0.25 ",
                "metrics_without_token = true ",
                "filter = \"keepsake=debug,info\" ",
            ] {
                assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_limit_of_the_chart_is_the_bound_of_the_binarys_defaults() {
    const MIB: i64 = 1024 * 1024;
    let shown = keepsake(&["config", "check"]).await.stdout;
    let config = toml::from_str::<toml::Table>(&shown).unwrap();
    let key = |section: &str, name: &str| config[section][name].as_integer().unwrap();
    let bound = key("cache", "blob_bytes")
        + key("cache", "search_bytes")
        + key("server", "max_request_memory_bytes")
        + 36 * 1024 * key("server", "max_connections")
        + 96 * MIB;
    assert_eq!(bound, 872 * MIB, "docs/operations.md says so");
    let chart = Chart::render(&json!({"index": {"kind": "sqlite"}, "operator": {"enabled": false},
        "gateway": {"replicas": 1, "autoscaling": {"enabled": false}}}))
    .await;
    let limit = chart.memory_limit_mib() * MIB;
    assert!(limit >= bound * 7 / 6 && limit < bound * 7 / 6 + 64 * MIB, "{limit} for {bound}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_the_configuration_can_be_set_in_the_chart() {
    // What the chart knows by itself.
    let own = [
        "role",
        "server.listen",
        "operator.listen",
        "blobs.url",
        "blobs.path_style",
        "blobs.deletion_delay_seconds",
    ];
    let shown = keepsake(&["config", "check"]).await.stdout;
    let keys = toml::from_str::<toml::Table>(&shown).unwrap();
    let file = suite().join("../../helm/keepsake/values.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let sections = &schema["properties"]["config"]["properties"];
    let mut missing = BTreeSet::new();
    for (section, keys) in &keys {
        let Some(keys) = keys.as_table() else { continue };
        for name in keys.keys() {
            let key = format!("{section}.{name}");
            if sections[section]["properties"][name].is_null() && !own.contains(&key.as_str()) {
                missing.insert(key);
            }
        }
    }
    assert_eq!(missing, BTreeSet::new(), "not in values.schema.json below config");
}

#[tokio::test(flavor = "multi_thread")]
async fn compose_file_is_a_configuration_that_the_binary_takes() {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.arg("-B").arg(suite().join("compose.py"));
    let variables: BTreeMap<String, String> = serde_json::from_str(&script::run(&mut command).await).unwrap();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let shown = keepsake_with(&["config", "check"], &variables).await.ok();
    assert!(shown.contains("endpoint = \"http://minio:9000\""), "{shown}");
}

/// Runs a module of the chart's suite, which must pass.
async fn suite_passes(module: &str) {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.args(["-B", "-m", "unittest", "--verbose", module]).current_dir(suite());
    let output = script::run(&mut command).await;
    assert!(!output.contains("Ran 0 tests"), "{output}");
}

/// Creates a tenant and a store, writes, edits and reads a memory; returns the
/// tenant's client.
async fn main_job(chart: &Chart, token: &str) -> Client {
    let operator = format!("--server={}", chart.operator_url());
    let variables = [("KEEPSAKE_OPERATOR_TOKEN", token)];
    let create = ["tenant", "create", &operator, "--name=acme", "-o", "json"];
    let tenant = keepsake_with(&create, &variables).await.json();
    let tenant = format!("--tenant={}", tenant["id"].as_str().unwrap());
    let create = [
        "key",
        "create",
        &operator,
        &tenant,
        "--name=fleet",
        "--scope=memory:read",
        "--scope=memory:write",
        "--scope=stores:admin",
        "-o",
        "json",
    ];
    let key = keepsake_with(&create, &variables).await.json();
    let secret = key["api_key"].as_str().unwrap_or_else(|| panic!("{key}"));
    secrets::remember(secret, "an API key");

    let client = Client::new(&chart.public_url(), secret);
    let store = ok(&client.post("/v1/memory_stores", &json!({"name": "notes"})).await);
    let store = store["id"].as_str().unwrap();
    use_memory(&client, store).await;
    client
}

/// Writes, edits and reads a memory.
async fn use_memory(client: &Client, store: &str) {
    let call = async |input: &Value| {
        let result = client.call(store, input).await.tool_result();
        assert!(!result.is_error, "{}", result.content);
        result.content
    };
    let path = "/memories/hello.md";
    call(&json!({"command": "create", "path": path, "file_text": "Remember me.\n"})).await;
    call(&json!({"command": "str_replace", "path": path, "old_str": " me.", "new_str": " us."})).await;
    let shown = call(&json!({"command": "view", "path": path})).await;
    assert!(shown.contains("Remember us."), "{shown}");
    let listed = ok(&client.get(&format!("/v1/memory_stores/{store}/memories?view=full")).await);
    assert_eq!(listed["data"][0]["content"], "Remember us.\n", "{listed}");
}

/// An empty database, a place in the bucket, and the operator's token.
struct ChartStores {
    database: TestDatabase,
    prefix: String,
    token: String,
}

impl ChartStores {
    async fn new() -> Self {
        Self { database: fresh_database().await, prefix: s3::unique_prefix(), token: operator_token() }
    }

    /// Values for these stores, on unused ports.
    fn split_roles(&self) -> Value {
        let s3 = s3_options(&self.prefix);
        let credentials = s3.settings.credentials.unwrap();
        let ca_file = s3
            .settings
            .ca_file
            .map(|file| json!({"name": "KEEPSAKE_BLOBS_CA_FILE", "value": file.display().to_string()}));
        json!({
            "index": {"url": self.database.url()},
            "blobs": {
                "url": format!("s3://{}/{}", s3.bucket, s3.prefix),
                "endpoint": s3.settings.endpoint,
                "region": s3.settings.region,
                "pathStyle": true,
                "accessKeyId": credentials.access_key_id,
                "secretAccessKey": credentials.secret_access_key.expose_secret(),
            },
            "secrets": {"masterKey": MASTER_KEY},
            "operator": {"token": self.token, "port": free_port()},
            "gateway": {"port": free_port()},
            "worker": {"enabled": true},
            "extraEnv": ca_file.into_iter().collect::<Vec<_>>(),
        })
    }

    async fn ask(&self, query: &'static str) -> i64 {
        let pool = PgPoolOptions::new().max_connections(1);
        let pool = pool.connect(&self.database.url()).await.unwrap();
        let answer = sqlx::query_scalar(query).fetch_one(&pool).await.unwrap();
        pool.close().await;
        answer
    }

    async fn has_tables(&self) -> bool {
        let tables = "SELECT count(*) FROM pg_tables WHERE tablename IN ('tenant', 'memory', 'version')";
        self.ask(tables).await == 3
    }

    async fn some_job_ran(&self) {
        let runs = "SELECT count(*) FROM job_run WHERE ended_at IS NOT NULL AND error IS NULL";
        eventually("a job has run", JOB_WITHIN, async || self.ask(runs).await > 0).await;
    }
}

fn operator_token() -> String {
    let token = format!("operator-{}-chart", Uuid::new_v4().simple());
    secrets::remember(&token, "the operator's token");
    token
}

fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}
