//! A release, made from the debug build, as `tools/release/make` makes it from the optimised one.

use std::process::Output;

use crate::prelude::*;
use crate::support::script::{HELM, MINISIGN};

/// Makes the release of a commit that has the files of this work tree.
async fn make(tree: &Path, folder: &Path, program: &Path, key: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut release = tool(tree, "make");
    release.args([version, "--out"]).arg(folder).arg("--program").arg(program).arg("--key").arg(key);
    script::run(&mut release).await;
    std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap()
}

fn smoke(tree: &Path, folder: &Path, public_key: &Path) -> Command {
    let mut smoke = tool(tree, "smoke");
    smoke.arg(folder).arg("--public-key").arg(public_key);
    smoke
}

fn tool(tree: &Path, name: &str) -> Command {
    let mut tool = Command::new(tree.join("tools/release").join(name));
    tool.env("MINISIGN", script::from_environment(MINISIGN)).env("HELM", script::from_environment(HELM));
    tool
}

#[track_caller]
fn assert_refused(refused: &Output, why: &str) {
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(why), "{said}");
}

/// The bill names the model, and each crate of the program with its checksum, but none of the tests or of a feature that is off.
#[track_caller]
fn assert_bill_names_what_is_built(folder: &Path) {
    let file = folder.join(format!("keepsake-{}.cdx.json", env!("CARGO_PKG_VERSION")));
    let bill: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let components = bill["components"].as_array().unwrap();
    let is_named = |name: &str| components.iter().any(|each| each["name"] == name);
    assert!(is_named("aws-sdk-s3") && is_named("libsqlite3-sys") && is_named("keepsake-engine"), "{bill}");
    assert!(!is_named("proptest") && !is_named("sqlx-mysql") && !is_named("ring"), "{bill}");
    let lock = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let (models, crates): (Vec<_>, Vec<_>) =
        components.iter().partition(|each| each["type"] == "machine-learning-model");
    let [model] = models[..] else { panic!("{models:?}") };
    assert_eq!(model["hashes"][0]["content"], keepsake_embeddings::WHEEL_SHA256);
    assert_eq!(model["licenses"][0]["expression"], "Apache-2.0");
    assert_eq!(model["externalReferences"][0]["url"], keepsake_embeddings::MODEL.url);
    for component in crates {
        let name = component["name"].as_str().unwrap();
        let known = match component["hashes"][0]["content"].as_str() {
            Some(hash) => lock.contains(&format!("checksum = \"{hash}\"")),
            None => name.starts_with("keepsake-"),
        };
        assert!(known, "{component}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_the_same_each_time_and_works() {
    let base = TempDir::new().unwrap();
    let [tree, first, second] = ["tree", "first", "second"].map(|name| base.path().join(name));
    // Also changes that are not committed yet are in the release.
    let copy = format!(
        "git clone --quiet --local . '{0}' && git diff --binary HEAD | git -C '{0}' apply --allow-empty && \
         cd '{0}' && git add --all && \
         git -c user.name=test -c user.email=test@localhost commit --quiet --allow-empty --message=test",
        tree.display()
    );
    script::run(Command::new("bash").args(["-c", &copy]).current_dir(repository())).await;

    let (key, public_key) = (base.path().join("key"), base.path().join("key.pub"));
    let mut generate = Command::new(script::from_environment(MINISIGN));
    generate.args(["-G", "-W", "-s"]).arg(&key).arg("-p").arg(&public_key);
    script::run(&mut generate).await;
    // The debug information would take most of the time of the archives.
    let program = base.path().join("program");
    script::run(Command::new("strip").arg("-o").arg(&program).arg(binary())).await;
    let sums = make(&tree, &first, &program, &key).await;
    assert_eq!(make(&tree, &second, &program, &key).await, sums);
    let signature = |folder: &Path| std::fs::read(folder.join("SHA256SUMS.minisig")).unwrap();
    assert_eq!(signature(&first), signature(&second));
    assert_bill_names_what_is_built(&first);
    let said = script::run(&mut smoke(&tree, &first, &public_key)).await;
    assert!(said.contains("tools/release/smoke: passed\n"), "{said}");
    // A changed file is noticed, with its changed checksum too.
    let recipe = first.join("image/Dockerfile");
    let text = std::fs::read_to_string(&recipe).unwrap();
    std::fs::write(&recipe, format!("{text}\n")).unwrap();
    let refused = smoke(&tree, &first, &public_key).output().await.unwrap();
    assert_refused(&refused, "a file is not as SHA256SUMS says");
    let sum = "find . -type f ! -name 'SHA256SUMS*' -printf '%P\\n' | xargs sha256sum >SHA256SUMS";
    script::run(Command::new("sh").args(["-c", sum]).current_dir(&first)).await;
    let refused = smoke(&tree, &first, &public_key).output().await.unwrap();
    assert_refused(&refused, "SHA256SUMS is not signed with this key");
}
