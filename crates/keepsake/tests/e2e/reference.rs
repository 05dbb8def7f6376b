//! The reference at `/docs`: its examples do what they say.

use crate::prelude::*;
use crate::sdk::SdkServer;
use crate::support::script::{NODE_MODULES, PYTHON};

#[tokio::test(flavor = "multi_thread")]
async fn every_example_runs() {
    let server = SdkServer::new(Pair::Sqlite).await;
    let suite = script::with_packages("tests/reference", NODE_MODULES);
    let folder = suite.path();

    let program = repository().join("tests/reference/examples.py");
    let mut python = server.command(script::from_environment(PYTHON));
    let printed = script::run(python.arg("-B").arg(program).arg(folder)).await;
    assert!(printed.contains(" operations\n"), "{printed}");

    let mut compiler = Command::new("node");
    compiler.arg("node_modules/typescript/bin/tsc");
    script::run(compiler.current_dir(folder)).await;

    let mut node = server.command("node");
    let printed = script::run(node.arg("run.mjs").current_dir(folder)).await;
    assert!(printed.contains(" examples ran\n"), "{printed}");
}
