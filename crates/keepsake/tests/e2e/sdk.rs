//! The official SDKs, used as their users use them, and the examples of the reference.

use crate::prelude::*;
use crate::support::script::{NODE_MODULES, PYTHON};

#[tokio::test(flavor = "multi_thread")]
async fn tool_runner_of_the_sdk_works() {
    let server = SdkServer::new(Pair::Sqlite).await;
    let mut command = server.command(script::from_environment(PYTHON));
    let output = script::run(command.arg(sdk_folder().join("memory_tool_runner.py"))).await;
    // What the script left behind, seen without the SDK.
    let store_id = output.lines().last().unwrap().strip_prefix("memory store: ").unwrap();
    let view = json!({"command": "view", "path": "/memories/preferences.md"});
    let client = server.server.client(&server.tenant);
    let content = client.call(store_id, &view).await.tool_result().content;
    assert!(content.ends_with("     1\tLikes tea.\n     2\tLives in Garmisch.\n     3\t"), "{content}");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sdk_works_and_syncs_a_session() {
    let server = SdkServer::new(Pair::Sqlite).await;
    let mut command = server.command(script::from_environment(PYTHON));
    command.args(["-B", "-m", "unittest", "--verbose", "memory_stores", "memories", "memory_lists"]);
    command.args(["memory_versions", "sessions", "retries", "session_memory_stores"]);
    let output = script::run(command.current_dir(sdk_folder())).await;
    assert!(!output.contains("Ran 0 tests"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_sdk_works_and_is_used_as_its_types_say() {
    let server = SdkServer::new(Pair::Sqlite).await;
    let suite = script::with_packages("tests/sdk/typescript", NODE_MODULES);
    let output = script::run(server.command("node").arg("--test").current_dir(suite.path())).await;
    assert!(!output.contains("# tests 0\n"), "{output}");
    let mut compiler = Command::new("node");
    compiler.args(["node_modules/typescript/bin/tsc", "--noEmit"]).current_dir(suite.path());
    script::run(&mut compiler).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_the_reference_runs() {
    let server = SdkServer::new(Pair::Sqlite).await;
    let suite = script::with_packages("tests/reference", NODE_MODULES);
    let program = repository().join("tests/reference/examples.py");
    let mut python = server.command(script::from_environment(PYTHON));
    let printed = script::run(python.arg("-B").arg(program).arg(suite.path())).await;
    assert!(printed.contains(" operations\n"), "{printed}");
    let mut compiler = Command::new("node");
    script::run(compiler.arg("node_modules/typescript/bin/tsc").current_dir(suite.path())).await;
    let printed = script::run(server.command("node").arg("run.mjs").current_dir(suite.path())).await;
    assert!(printed.contains(" examples ran\n"), "{printed}");
}

#[tokio::test]
async fn documentation_names_one_current_model() {
    let mut command = Command::new(script::from_environment(PYTHON));
    let script = sdk_folder().join("documented_model.py");
    script::run(command.arg(script).arg(repository())).await;
}

/// A server, and the keys with which a suite meets it.
pub(crate) struct SdkServer {
    server: Server,
    tenant: Tenant,
    other_keys: [(&'static str, String); 4],
    _deployment: Deployment,
}

impl SdkServer {
    pub(crate) async fn new(pair: Pair) -> Self {
        Self::with_tenants(pair, Vec::new()).await.0
    }

    pub(crate) async fn with_tenants(pair: Pair, limits: Vec<Value>) -> (Self, Vec<Tenant>) {
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let tenant = provision.tenant().await;
        let small = json!({"memories_per_store": 3, "bytes_per_store": 100});
        let writing = [Scope::MemoryRead, Scope::MemoryWrite];
        let other_keys = [
            ("OTHER", provision.tenant().await.key),
            ("LIMITED", provision.tenant_with(small).await.key),
            ("READER", provision.key(tenant.id, &writing[..1], None).await),
            ("WRITER", provision.key(tenant.id, &writing, None).await),
        ];
        let mut tenants = Vec::new();
        for limits in limits {
            tenants.push(provision.tenant_with(limits).await);
        }
        provision.close().await;
        let server = Self { server: deployment.start().await, tenant, other_keys, _deployment: deployment };
        (server, tenants)
    }

    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("KEEPSAKE_BASE_URL", self.server.url()).env("KEEPSAKE_API_KEY", &self.tenant.key);
        command.env("KEEPSAKE_WORKSPACE_ID", self.tenant.id.to_string());
        for (name, key) in &self.other_keys {
            command.env(format!("KEEPSAKE_{name}_API_KEY"), key);
        }
        command
    }
}

fn sdk_folder() -> PathBuf {
    repository().join("tests/sdk")
}
