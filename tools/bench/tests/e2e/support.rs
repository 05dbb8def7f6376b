//! A configured index and blob store, and runs of the two binaries.

use std::path::{Path, PathBuf};

use keepsake_testkit::keepsake_server::built_program;
use keepsake_testkit::{
    ServerCommand, TestDatabase, bare_command, fresh_database, s3, s3_options, s3_section,
};
use secrecy::ExposeSecret;
use serde_json::Value;
use tempfile::TempDir;

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
    let output = bare_command(binary).args(arguments).output().await.unwrap();
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

/// Which index, and where its content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    PostgresS3,
    /// With content in the index.
    Postgres,
    /// With content in the index.
    Sqlite,
}

/// A configuration of an empty index and an empty blob store.
pub(crate) struct Deployment {
    command: ServerCommand,
    _database: Option<TestDatabase>,
    _folder: TempDir,
}

impl Deployment {
    pub(crate) async fn new(pair: Pair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = if pair == Pair::Sqlite { None } else { Some(fresh_database().await) };
        let index_url = match &database {
            Some(database) => database.url(),
            None => format!("sqlite://{}/index.db", folder.path().display()),
        };
        let blobs = match pair {
            Pair::PostgresS3 => s3_section(s3_options(&s3::unique_prefix())),
            Pair::Postgres | Pair::Sqlite => "url = \"index:\"".to_owned(),
        };
        let config = format!(
            "server = {{ listen = \"127.0.0.1:{{port}}\", drain_seconds = 0 }}\n\
             limits = {{ requests_per_second = 1_000_000_000, request_burst = 1_000_000_000 }}\n\
             index.url = \"{index_url}\"\n[blobs]\n{blobs}\n"
        );
        Self { command: ServerCommand::new(&built_program(), &config), _database: database, _folder: folder }
    }

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
