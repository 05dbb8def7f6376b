//! The pages in a real browser, on one pair: a page does not show which one it is.

use std::time::Duration;

use crate::sdk::SdkServer;
use crate::support::Pair;
use crate::support::script::{self, BROWSER_NODE_MODULES, CHROMIUM};

#[tokio::test(flavor = "multi_thread")]
async fn reference_works_in_a_browser() {
    suite_passes("docs.test.mjs").await;
}

/// Runs a file of the suite, which must pass.
async fn suite_passes(file: &str) {
    let server = SdkServer::new(Pair::Sqlite).await;
    let suite = script::with_packages("tests/browser", BROWSER_NODE_MODULES);
    let mut node = server.command("node");
    node.args(["--test", file])
        .env(CHROMIUM, script::from_environment(CHROMIUM))
        .current_dir(suite.path());
    let output = script::run_within(&mut node, Duration::from_mins(15)).await;
    assert!(!output.contains("# tests 0\n"), "{output}");
}
