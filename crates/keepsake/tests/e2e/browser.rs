//! The pages in a real browser.

use crate::prelude::*;
use crate::sdk::SdkServer;

/// Whether the suites use the keyboard only.
const KEYBOARD: &str = "KEEPSAKE_TEST_KEYBOARD";

#[tokio::test(flavor = "multi_thread")]
async fn reference_works_in_a_browser() {
    suite_passes(Pair::Sqlite, "docs.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_use_the_console() {
    suite_passes(Pair::Sqlite, "console.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_use_the_console_by_keyboard() {
    let server = SdkServer::new(Pair::PostgresS3).await;
    let mut node = server.command("node");
    node.env(KEYBOARD, "1");
    script::browser_suite(node, "console.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_of_the_console_fits_and_is_accessible() {
    suite_passes(Pair::Sqlite, "console-screens.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_do_nothing_in_the_console() {
    suite_passes(Pair::PostgresS3, "console-hostile.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_uses_the_console() {
    operators_suite_passes(Pair::Sqlite, "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_uses_the_console_by_keyboard() {
    operators_suite_passes(Pair::PostgresS3, "1").await;
}

async fn operators_suite_passes(pair: Pair, has_keyboard_only: &str) {
    let deployment = Deployment::new(pair).await;
    let operator = Operator::new();
    let _server = deployment.start_with(&operator.config).await;
    let mut node = Command::new("node");
    node.env("KEEPSAKE_BASE_URL", &operator.url).env("KEEPSAKE_OPERATOR_TOKEN", &operator.token);
    node.env(KEYBOARD, has_keyboard_only);
    script::browser_suite(node, "operator.test.mjs").await;
}

async fn suite_passes(pair: Pair, file: &str) {
    let server = SdkServer::new(pair).await;
    script::browser_suite(server.command("node"), file).await;
}
