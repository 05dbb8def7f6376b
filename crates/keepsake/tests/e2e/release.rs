//! A release, made from the debug build, as `deploy/release` makes it from the optimised one.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

use crate::support::script::{self, HELM};
use crate::support::{binary, repository};

/// Makes the release of a commit that has the files of this work tree.
async fn make(tree: &Path, folder: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut release = Command::new(tree.join("deploy/release"));
    release
        .args([version, "--out"])
        .arg(folder)
        .arg("--program")
        .arg(binary())
        .env("HELM", script::from_environment(HELM));
    script::run(&mut release).await;
    std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn release_is_the_same_each_time_and_works() {
    let base = TempDir::new().unwrap();
    let (tree, first, second) = (
        base.path().join("tree"),
        base.path().join("first"),
        base.path().join("second"),
    );
    // Also changes that are not committed yet are in the release.
    let copy = format!(
        "git clone --quiet --local . '{0}' && git diff --binary HEAD | git -C '{0}' apply --allow-empty && \
         cd '{0}' && git add --all && \
         git -c user.name=test -c user.email=test@localhost commit --quiet --allow-empty --message=test",
        tree.display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &copy]).current_dir(repository());
    script::run(&mut command).await;

    let sums = make(&tree, &first).await;
    assert_eq!(make(&tree, &second).await, sums);
    let files: Vec<_> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let has = |end: &str| files.iter().any(|(_, name)| name.ends_with(end));
    for end in [
        "-linux.tar.gz",
        ".whl",
        ".cdx.json",
        "image/Dockerfile",
        "bin/keepsake",
    ] {
        assert!(has(end), "{end}: {sums}");
    }

    let mut smoke = Command::new(tree.join("deploy/smoke"));
    smoke.arg(&first).env("HELM", script::from_environment(HELM));
    let said = script::run(&mut smoke).await;
    assert!(said.contains("deploy/smoke: passed\n"), "{said}");

    // A changed file is noticed.
    let recipe = first.join("image/Dockerfile");
    let text = std::fs::read_to_string(&recipe).unwrap();
    std::fs::write(&recipe, format!("{text}\n")).unwrap();
    let mut smoke = Command::new(tree.join("deploy/smoke"));
    let refused = smoke.arg(&first).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("a file is not as SHA256SUMS says"), "{said}");
}

#[tokio::test]
async fn release_of_another_version_is_refused() {
    let base = TempDir::new().unwrap();
    let mut release = Command::new(repository().join("deploy/release"));
    let refused = release
        .args(["9.9.9", "--out"])
        .arg(base.path().join("dist"))
        .output()
        .await
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("VERSION must be 0.1.0, the version of Cargo.toml"),
        "{said}"
    );
    assert!(!base.path().join("dist").exists());
}
