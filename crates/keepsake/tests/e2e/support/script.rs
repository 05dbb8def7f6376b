//! Programs of other languages that test the server.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Names the interpreter that has the `anthropic` package.
pub(crate) const PYTHON: &str = "KEEPSAKE_TEST_PYTHON";
/// Names the folder of the TypeScript suite's packages.
pub(crate) const NODE_MODULES: &str = "KEEPSAKE_TEST_NODE_MODULES";
/// Names the interpreter that has the `mcp` package.
pub(crate) const MCP_PYTHON: &str = "KEEPSAKE_TEST_MCP_PYTHON";
/// Names the folder of the MCP suite's packages.
pub(crate) const MCP_NODE_MODULES: &str = "KEEPSAKE_TEST_MCP_NODE_MODULES";
/// Names the executable of Schemathesis.
pub(crate) const SCHEMATHESIS: &str = "KEEPSAKE_TEST_SCHEMATHESIS";
/// Names the interpreter that checks the chart.
pub(crate) const CHART_PYTHON: &str = "KEEPSAKE_TEST_CHART_PYTHON";
/// Names Prometheus's `promtool`.
pub(crate) const PROMTOOL: &str = "KEEPSAKE_TEST_PROMTOOL";
/// Names the `pg_dump` of the server's version.
pub(crate) const PG_DUMP: &str = "KEEPSAKE_TEST_PG_DUMP";

/// What a variable of `tests/run` names.
pub(crate) fn from_environment(variable: &str) -> String {
    let value = std::env::var(variable).unwrap_or_default();
    assert!(!value.is_empty(), "{variable} is not set: run ./tests/run");
    value
}

/// Runs a command that must succeed; answers all that it printed.
pub(crate) async fn run(command: &mut Command) -> String {
    let shown = command.as_std().get_program().display().to_string();
    let run = command
        // The server is on this machine, and Node's colours are for people.
        .env("no_proxy", "*")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_mins(4), run).await;
    let output = output
        .unwrap_or_else(|_| panic!("{shown} does not end"))
        .unwrap_or_else(|error| panic!("{shown} cannot be run ({error}): run ./tests/run"));
    let printed = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(output.status.success(), "{shown}: {}\n{printed}", output.status);
    printed
}
