//! The pages in a real browser. What people do is tried on both pairs; how a page
//! looks does not depend on the pair.

use std::time::Duration;

use crate::sdk::SdkServer;
use crate::support::Pair;
use crate::support::script::{self, BROWSER_NODE_MODULES, CHROMIUM};

#[tokio::test(flavor = "multi_thread")]
async fn reference_works_in_a_browser() {
    suite_passes(Pair::Sqlite, "docs.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_use_the_console_on_sqlite() {
    suite_passes(Pair::Sqlite, "console.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_use_the_console_on_postgres_and_s3() {
    suite_passes(Pair::PostgresS3, "console.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_of_the_console_fits_and_is_accessible() {
    suite_passes(Pair::Sqlite, "console-screens.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_do_nothing_in_the_console() {
    suite_passes(Pair::PostgresS3, "console-hostile.test.mjs").await;
}

/// Runs a file of the suite, which must pass.
async fn suite_passes(pair: Pair, file: &str) {
    let server = SdkServer::new(pair).await;
    let suite = script::with_packages("tests/browser", BROWSER_NODE_MODULES);
    let mut node = server.command("node");
    node.args(["--test", file])
        .env(CHROMIUM, script::from_environment(CHROMIUM))
        .current_dir(suite.path());
    let output = script::run_within(&mut node, Duration::from_mins(15)).await;
    assert!(!output.contains("# tests 0\n"), "{output}");
}
