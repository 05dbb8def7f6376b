//! Programs of other languages that test the server.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::*;

// Variables of `tests/run`, each with a program or the folder of a suite's packages.
pub(crate) const PYTHON: &str = "KEEPSAKE_TEST_PYTHON";
pub(crate) const NODE_MODULES: &str = "KEEPSAKE_TEST_NODE_MODULES";
pub(crate) const TYPESCRIPT_CLIENT_NODE_MODULES: &str = "KEEPSAKE_TEST_TYPESCRIPT_CLIENT_NODE_MODULES";
pub(crate) const MCP_PYTHON: &str = "KEEPSAKE_TEST_MCP_PYTHON";
pub(crate) const PYTHON_CLIENT_PYTHON: &str = "KEEPSAKE_TEST_PYTHON_CLIENT_PYTHON";
pub(crate) const MCP_NODE_MODULES: &str = "KEEPSAKE_TEST_MCP_NODE_MODULES";
const BROWSER_NODE_MODULES: &str = "KEEPSAKE_TEST_BROWSER_NODE_MODULES";
const CHROMIUM: &str = "KEEPSAKE_TEST_CHROMIUM";
pub(crate) const SCHEMATHESIS: &str = "KEEPSAKE_TEST_SCHEMATHESIS";
pub(crate) const CHART_PYTHON: &str = "KEEPSAKE_TEST_CHART_PYTHON";
pub(crate) const HELM: &str = "KEEPSAKE_TEST_HELM";
pub(crate) const MINISIGN: &str = "KEEPSAKE_TEST_MINISIGN";
pub(crate) const PROMTOOL: &str = "KEEPSAKE_TEST_PROMTOOL";
pub(crate) const PIP_PYTHON: &str = "KEEPSAKE_TEST_PIP_PYTHON";
pub(crate) const PG_DUMP: &str = "KEEPSAKE_TEST_PG_DUMP";

/// Within this, any program ends that will end: the longest suite takes two minutes,
/// and may take several times that on a slow machine.
const LIMIT: Duration = Duration::from_mins(15);

/// A program that plays a model: it views `/memories`, and then answers with a text.
#[derive(Debug)]
pub(crate) struct FakeModel {
    url: String,
    _program: Child,
}

impl FakeModel {
    pub(crate) async fn start(answer: &str) -> Self {
        let mut program = Command::new(from_environment(PYTHON));
        program.args(["-B", "fakes.py", answer]).current_dir(super::repository().join("tests/sdk"));
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut program = program.spawn().unwrap();
        let mut url = String::new();
        let mut lines = BufReader::new(program.stdout.take().unwrap());
        lines.read_line(&mut url).await.unwrap();
        Self { url: url.trim_end().to_owned(), _program: program }
    }

    pub(crate) fn variables(&self) -> [(&str, &str); 3] {
        [("ANTHROPIC_BASE_URL", self.url.as_str()), ("ANTHROPIC_API_KEY", "fake"), ("MODEL", "fake")]
    }
}

/// A copy of a suite's folder with the packages beside it, where Node looks for
/// them; the repository's folder stays without. A variable names the packages.
pub(crate) fn with_packages(folder: &str, variable: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(super::repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    std::os::unix::fs::symlink(from_environment(variable), copy.path().join("node_modules")).unwrap();
    copy
}

/// Runs a file of the browser suite, which must pass. `node` has the server in its
/// environment.
pub(crate) async fn browser_suite(mut node: Command, file: &str) {
    let suite = with_packages("tests/browser", BROWSER_NODE_MODULES);
    node.args(["--test", file]).env(CHROMIUM, from_environment(CHROMIUM)).current_dir(suite.path());
    let output = run(&mut node).await;
    assert!(!output.contains("# tests 0\n"), "{output}");
}

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
    let output = tokio::time::timeout(LIMIT, run).await;
    let output = output
        .unwrap_or_else(|_| panic!("{shown} did not end in {LIMIT:?}"))
        .unwrap_or_else(|error| panic!("{shown} cannot be run ({error}): run ./tests/run"));
    let printed = [output.stderr, output.stdout].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{shown}: {}\n{printed}", output.status);
    printed
}
