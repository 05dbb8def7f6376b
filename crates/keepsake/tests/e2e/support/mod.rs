//! What every test needs: a deployment, servers on it, clients of them.

pub(crate) mod archives;
pub(crate) mod bulk;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod deployment;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod meaning;
pub(crate) mod provision;
pub(crate) mod script;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod sessions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keepsake_testkit::ServerCommand;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use client::ok;
pub(crate) use client::{Answer, Client};
use command::{Run, keepsake, words};
pub(crate) use deployment::{Deployment, Pair};
use deployment::{FREE_RATES, ServerConfig};
pub(crate) use keepsake_testkit::repository;
pub(crate) use provision::Tenant;
pub(crate) use server::Server;

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_keepsake"))
}

/// A server on SQLite, with a client of a tenant; all of it ends with the first values.
pub(crate) async fn on_sqlite() -> (Deployment, Server, Tenant, Client) {
    let (deployment, tenant, server, client) = server::started(Pair::Sqlite).await;
    (deployment, server, tenant, client)
}

/// That a text has each of these parts.
#[track_caller]
pub(crate) fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// Polls until `condition` holds; fails with `what` when it does not in time.
pub(crate) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> F,
) {
    let is_met = tokio::time::timeout(within, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(is_met.await.is_ok(), "not within {within:?}: {what}");
}

/// The same for what has no bound of its own, and may take long on a busy machine.
pub(crate) async fn soon<F: Future<Output = bool>>(what: &str, condition: impl FnMut() -> F) {
    eventually(what, Duration::from_mins(3), condition).await;
}

/// The time in seconds since the epoch, as a server in another process reads it.
#[expect(clippy::disallowed_methods, reason = "a server in another process uses the machine's clock")]
pub(crate) fn now_secs() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
