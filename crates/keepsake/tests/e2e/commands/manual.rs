use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::support::command::keepsake;
use crate::support::repository;

/// Set to write the manual pages instead of comparing them.
const UPDATE: &str = "UPDATE_MANUAL";

fn checked_in() -> PathBuf {
    repository().join("docs/man")
}

/// Names and texts of the pages in a folder.
fn pages(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut pages: Vec<_> =
        files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect();
    pages.sort();
    pages
}

#[tokio::test]
async fn manual_pages_are_those_of_the_code() {
    let folder = TempDir::new().unwrap();
    let made = folder.path().to_string_lossy().into_owned();
    keepsake(&["man", "--dir", &made]).await.ok();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::remove_dir_all(checked_in()).ok();
        std::fs::create_dir_all(checked_in()).unwrap();
        for (name, text) in pages(folder.path()) {
            std::fs::write(checked_in().join(name), text).unwrap();
        }
    }
    let (made, known) = (pages(folder.path()), pages(&checked_in()));
    let names = |pages: &[(String, String)]| pages.iter().map(|page| page.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&made), names(&known), "{UPDATE}=1 writes the pages again");
    for (made, known) in made.iter().zip(&known) {
        assert!(made == known, "{} differs; {UPDATE}=1 writes the pages again", made.0);
    }
}

#[tokio::test]
async fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = keepsake(&["completions", shell]).await.ok();
        assert!(script.contains("memory") && script.contains("redact"), "{shell}");
    }
    assert_eq!(keepsake(&["completions", "csh"]).await.code, Some(2));
}

#[tokio::test]
async fn version_names_the_commit() {
    let version = keepsake(&["--version"]).await.ok();
    let commit = version.trim().strip_prefix(concat!("keepsake ", env!("CARGO_PKG_VERSION"), " ("));
    let commit = commit.and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{version}"));
    assert!(commit == "unknown" || commit.len() >= 7, "{version}");
}
