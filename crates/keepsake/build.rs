//! Names the commit for `keepsake --version`.

use std::path::Path;
use std::process::Command;

/// Set where there is no repository, as in an image's build.
const VARIABLE: &str = "KEEPSAKE_COMMIT";

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    // Changes with each commit and each checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.as_deref().unwrap_or("unknown");
    // `cargo run` and `cargo test` pass it on, and a server refuses unknown variables that
    // begin with KEEPSAKE_.
    println!("cargo:rustc-env=COMMAND_VERSION={} ({commit})", env!("CARGO_PKG_VERSION"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
