//! The clients, built and installed as their users do.

use serde_json::Map;

use crate::conformance;
use crate::prelude::*;
use crate::sdk::SdkServer;
use crate::support::script::{PYTHON_CLIENT_PYTHON, TYPESCRIPT_CLIENT_NODE_MODULES};

/// Tests of a suite that run the conformance file, each with its own tenants.
const CONFORMANCE_TESTS: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn python_suite_passes_and_its_wheel_is_reproducible_and_typed() {
    let python = script::from_environment(PYTHON_CLIENT_PYTHON);
    suite_passes(&python, "clients/python/tests/run.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_suite_passes_and_its_package_is_reproducible_and_typed() {
    suite_passes("node", "clients/typescript/tests/run.js").await;
}

/// On one pair: the clients do not see which one the server has.
async fn suite_passes(program: &str, tests: &str) {
    let (names, limits): (Vec<String>, Vec<Value>) =
        conformance::limits().flat_map(|sequence| std::iter::repeat_n(sequence, CONFORMANCE_TESTS)).unzip();
    let (server, tenants) = SdkServer::with_tenants(Pair::Sqlite, limits).await;
    let mut of_sequences = Map::new();
    for (name, tenant) in names.into_iter().zip(tenants) {
        let access = json!({"api_key": tenant.key, "memory_store_id": tenant.store_id.to_string()});
        let of_sequence = of_sequences.entry(name).or_insert_with(|| json!([]));
        of_sequence.as_array_mut().unwrap().push(access);
    }
    let mut command = server.command(program);
    command.env("KEEPSAKE_CONFORMANCE_TENANTS", Value::Object(of_sequences).to_string());
    let output = run(&mut command, tests, "suite").await;
    for none in ["# tests 0\n", "Ran 0 tests"] {
        assert!(!output.contains(none), "{output}");
    }
    run(&mut Command::new(program), tests, "check").await;
}

async fn run(command: &mut Command, tests: &str, part: &str) -> String {
    let packages = script::from_environment(TYPESCRIPT_CLIENT_NODE_MODULES);
    command.arg(repository().join(tests)).arg(part).env(TYPESCRIPT_CLIENT_NODE_MODULES, packages);
    script::run(command).await
}
