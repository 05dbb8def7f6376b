//! The operator's console in a real browser.

use tokio::process::Command;

use super::operator::Operated;
use crate::support::{Deployment, Pair, script};

#[tokio::test(flavor = "multi_thread")]
async fn operator_uses_the_console_on_sqlite() {
    suite_passes(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_uses_the_console_on_postgres_and_s3() {
    suite_passes(Pair::PostgresS3).await;
}

async fn suite_passes(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let operated = Operated::on(&deployment).await;
    let mut node = Command::new("node");
    node.env("KEEPSAKE_BASE_URL", &operated.url)
        .env("KEEPSAKE_OPERATOR_TOKEN", &operated.token);
    script::browser_suite(node, "operator.test.mjs").await;
}
