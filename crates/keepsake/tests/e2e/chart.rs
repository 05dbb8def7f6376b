//! The Helm chart renders valid manifests, which run the product: the processes are started as
//! the rendered pods say, on a real database and a real object store, without a cluster.

mod examples;
mod rendering;

use crate::prelude::*;
use crate::support::script::CHART_PYTHON;
use rendering::Chart;
pub(crate) use rendering::suite;

/// The chart, its alerts and its dashboard, the image and the compose file.
#[tokio::test(flavor = "multi_thread")]
async fn suites_of_the_chart_pass() {
    join_all(["test_values", "test_observability", "test_deploy"].map(suite_passes)).await;
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
            let lines = "bytes_per_tenant = 109951162777600 |listen = \"[::]:9080\" |sample_ratio = 0.25 |\
                jwks_url = \"https://login.example.com/.well-known/jwks.json\" |dimensions = 384 |\
                public_url = \"https://memory.example.com\" |meaning = \"endpoint\" |\
                model_path = \"/opt/model\" # KEEPSAKE_SEARCH_MODEL_PATH|query_prefix = \"query: \" |\
                filter = \"keepsake=debug,info\" ";
            says(&shown.stdout, &lines.split('|').collect::<Vec<_>>());
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
    let chart = Chart::render_set(&examples::folder().join("single-node.yaml")).await;
    let limit = chart.memory_limit_mib() * MIB;
    assert!(limit >= bound * 7 / 6 && limit < bound * 7 / 6 + 64 * MIB, "{limit} for {bound}");
}

#[test]
fn every_key_of_the_configuration_can_be_set_in_the_chart() {
    // Sections and keys for which the chart has separate values, and a table of a list's entry.
    let own_sections = "blobs search search.embeddings secrets operator auth.issuers.console";
    let own = "role server.listen index.url index.migrate_url index.jobs_url telemetry.otlp_headers";
    let read = |path: &str| std::fs::read_to_string(suite().join("../..").join(path)).unwrap();
    let schema: Value = serde_json::from_str(&read("helm/keepsake/values.schema.json")).unwrap();
    let sections = &schema["properties"]["config"]["properties"];
    let document = read("docs/configuration.md");
    let (_, keys) = document.split_once("```toml\n").unwrap();
    let (keys, _) = keys.split_once("```").unwrap();
    let (mut section, mut seen) = ("", 0);
    // Keys without a default are commented out.
    for line in keys.lines().map(|line| line.trim_start_matches("# ")) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.split(']').next().unwrap();
        } else if let Some((name, _)) = line.split_once(" = ")
            && !section.starts_with('[')
            && !own_sections.split(' ').any(|own| own == section)
        {
            let key = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
            let is_there = !sections[section]["properties"][name].is_null();
            let is_own = own.split(' ').any(|own| own == key);
            assert!(is_there || is_own, "{key} is not below config in values.schema.json");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compose_file_is_a_configuration_that_the_binary_takes() {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.arg("-B").arg(suite().join("compose.py"));
    let printed = script::run(&mut command).await;
    let variables: BTreeMap<String, String> = serde_json::from_str(&printed).unwrap();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let shown = keepsake_with(&["config", "check"], &variables).await.ok();
    assert!(shown.contains("endpoint = \"http://minio:9000\""), "{shown}");
}

async fn suite_passes(module: &str) {
    let mut command = Command::new(script::from_environment(CHART_PYTHON));
    command.args(["-B", "-m", "unittest", "--verbose", module]).current_dir(suite());
    let output = script::run(&mut command).await;
    assert!(!output.contains("Ran 0 tests"), "{output}");
}
