//! A configured index and blob store, and runs of the two binaries.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use keepsake_testkit::keepsake_server::built_program;
use keepsake_testkit::{ServerCommand, TestDatabase, fresh_database, s3, s3_options};
use secrecy::ExposeSecret;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The benchmark under test.
pub(crate) fn bench() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_keepsake-bench"))
}

/// How a run ended.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// What it printed, for a run that must succeed.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

/// Runs a binary without any of Keepsake's variables.
pub(crate) async fn run(binary: &Path, arguments: &[&str]) -> Run {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEEPSAKE_") {
            command.env_remove(name);
        }
    }
    let output = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let run = Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    if binary == bench() {
        let printed = format!("{}{}", run.stdout, run.stderr);
        let secrets = s3_options("").settings.credentials.unwrap().secret_access_key;
        for secret in ["ks_live_", secrets.expose_secret()] {
            assert!(!printed.contains(secret), "the benchmark printed a secret");
        }
    }
    run
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Index {
    Postgres,
    Sqlite,
}

impl Index {
    /// Its name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Blobs {
    S3,
    Index,
}

impl Blobs {
    /// Its name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Index => "content in the index",
        }
    }
}

/// A configuration of an empty index and an empty blob store.
pub(crate) struct Deployment {
    command: ServerCommand,
    _database: Option<TestDatabase>,
    _folder: TempDir,
}

impl Deployment {
    pub(crate) async fn new(index: Index, blobs: Blobs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = match index {
            Index::Postgres => Some(fresh_database().await),
            Index::Sqlite => None,
        };
        let index_url = match &database {
            Some(database) => database.url(),
            None => format!("sqlite://{}/index.db", folder.path().display()),
        };
        let blobs = match blobs {
            Blobs::S3 => s3_section(),
            Blobs::Index => "url = \"index:\"".to_owned(),
        };
        let config = format!(
            "server = {{ listen = \"127.0.0.1:{{port}}\", drain_seconds = 0 }}\n\
             limits = {{ requests_per_second = 1_000_000_000, request_burst = 1_000_000_000 }}\n\
             index.url = \"{index_url}\"\n[blobs]\n{blobs}\n"
        );
        Self { command: ServerCommand::new(&built_program(), &config), _database: database, _folder: folder }
    }

    /// The command of a server.
    pub(crate) fn command(&self) -> &ServerCommand {
        &self.command
    }

    pub(crate) fn config_flag(&self) -> String {
        format!("--config={}", self.command.config_file().display())
    }

    /// A file for the benchmark's results.
    pub(crate) fn results_file(&self) -> PathBuf {
        self.command.config_file().with_file_name("results.json")
    }

    /// Runs a command of the product.
    pub(crate) async fn keepsake(&self, arguments: &[&str]) -> Run {
        run(&built_program(), &[arguments, &[&self.config_flag()]].concat()).await
    }

    /// A tenant's key and store, made while no server runs.
    pub(crate) async fn key_and_store(&self) -> (String, String) {
        let made = async |arguments: &[&str], field: &str| {
            let printed = self.keepsake(arguments).await.ok();
            let made: Value = serde_json::from_str(&printed).unwrap();
            made[field].as_str().unwrap().to_owned()
        };
        let tenant = made(&["tenant", "create", "--name=n", "-o", "json"], "id").await;
        let tenant = format!("--tenant={tenant}");
        let key = made(&["key", "create", &tenant, "--name=n", "-o", "json"], "api_key").await;
        let store_id = made(&["store", "create", &tenant, "n", "-o", "json"], "id").await;
        (key, store_id)
    }
}

/// The keys of `[blobs]` for an unused prefix in the test's bucket.
fn s3_section() -> String {
    let options = s3_options(&s3::unique_prefix());
    let credentials = options.settings.credentials.unwrap();
    let ca_file =
        options.settings.ca_file.map(|file| format!("ca_file = {:?}\n", file.display().to_string()));
    format!(
        "url = \"s3://{}/{}\"\nendpoint = \"{}\"\nregion = \"{}\"\npath_style = true\n\
         access_key_id = \"{}\"\nsecret_access_key = \"{}\"\n{}",
        options.bucket,
        options.prefix,
        options.settings.endpoint.unwrap_or_default(),
        options.settings.region.unwrap_or_default(),
        credentials.access_key_id,
        credentials.secret_access_key.expose_secret(),
        ca_file.unwrap_or_default(),
    )
}
