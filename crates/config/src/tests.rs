mod credentials;
mod documentation;
mod printing;
mod rules;
mod sources;
mod surroundings;
mod urls;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keepsake_blobs::BlobUrl;
use secrecy::ExposeSecret;

use crate::{ConfigError, IndexUrl, LogFormat, Meaning, Role, Settings, Sources};

/// A secret that must not show anywhere, by a part that any cut of it has.
const SECRET: &str = "hunter2";

/// Every key, with a value other than its default.
const COMPLETE: &str = include_str!("tests/complete.toml");

const MINIMAL: &str = r#"
index.url = "sqlite:///data/index.db"
blobs.url = "index:"
"#;

struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keepsake.toml"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("keepsake.toml")
    }

    fn sources(&self, variables: &[(&str, &str)]) -> Sources {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Sources { file: Some(self.path()), variables, ..Sources::default() }
    }

    fn settings(&self, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        self.sources(variables).merge().settings()
    }
}

fn settings(text: &str, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    File::new(text).settings(variables)
}

fn with(text: &str) -> String {
    format!("{MINIMAL}{text}")
}

fn keys() -> BTreeSet<String> {
    let merged = Sources::default().merge();
    merged.reader.known.into_iter().map(|key| key.name).collect()
}

fn variable_of(key: &str) -> String {
    format!("KEEPSAKE_{}", key.replace('.', "_").to_ascii_uppercase())
}

/// The problems, each without the folder of its file.
fn problems(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let file = File::new(text);
    let folder = format!("{}/", file.folder.path().display());
    let error = file.settings(variables).unwrap_err();
    let problems = error.0.iter();
    problems.map(|problem| problem.replace(&folder, "")).collect()
}

/// That a configuration has one problem, which says this and shows no secret.
#[track_caller]
fn assert_problem(text: &str, variables: &[(&str, &str)], told: &str) {
    let found = problems(text, variables);
    assert!(found.len() == 1 && found[0].contains(told), "{found:?} does not say {told}");
    assert!(!found[0].contains(SECRET), "{found:?}");
}
