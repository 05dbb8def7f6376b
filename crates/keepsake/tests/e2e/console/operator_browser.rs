//! The operator's console in a real browser.

use tokio::process::Command;

use crate::operator::Operator;
use crate::support::{Deployment, Pair, script};

#[tokio::test(flavor = "multi_thread")]
async fn operator_uses_the_console() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let operator = Operator::new();
    let _server = deployment.start_with(&operator.config).await;
    let mut node = Command::new("node");
    node.env("KEEPSAKE_BASE_URL", &operator.url).env("KEEPSAKE_OPERATOR_TOKEN", &operator.token);
    script::browser_suite(node, "operator.test.mjs").await;
}
