//! The official Python SDK's tool runner, with Keepsake behind its memory tool.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

use crate::support::{Deployment, Pair};

/// Names the interpreter that has the `anthropic` package.
const PYTHON_VARIABLE: &str = "KEEPSAKE_TEST_PYTHON";

#[tokio::test(flavor = "multi_thread")]
async fn tool_runner_of_the_sdk_works_on_postgres_and_s3() {
    tool_runner_works(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_runner_of_the_sdk_works_on_sqlite_and_files() {
    tool_runner_works(Pair::SqliteFiles).await;
}

async fn tool_runner_works(pair: Pair) {
    let python = std::env::var(PYTHON_VARIABLE).unwrap_or_default();
    assert!(
        !python.is_empty(),
        "{PYTHON_VARIABLE} is not set: run ./tests/run, or set it to a Python that has `anthropic` 2.11"
    );
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk/memory_tool_runner.py");
    let run = Command::new(&python)
        .arg(script)
        .env("KEEPSAKE_BASE_URL", server.url())
        .env("KEEPSAKE_API_KEY", &tenant.key)
        .env("KEEPSAKE_WORKSPACE_ID", tenant.id.to_string())
        .env("no_proxy", "*")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_mins(2), run).await;
    let output = output
        .expect("the script does not end")
        .unwrap_or_else(|error| panic!("{python} cannot be run ({error}): run ./tests/run"));
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}{stderr}");

    // What the script left behind, seen without the SDK.
    let store_id = stdout
        .lines()
        .last()
        .unwrap()
        .strip_prefix("memory store: ")
        .unwrap();
    let view = json!({"command": "view", "path": "/memories/preferences.md"});
    let result = server.client(&tenant).call(store_id, &view).await.tool_result();
    assert!(
        result
            .content
            .ends_with("     1\tLikes tea.\n     2\tLives in Garmisch.\n     3\t"),
        "{result:?}"
    );
}
