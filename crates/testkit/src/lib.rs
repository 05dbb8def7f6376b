//! Real Postgres databases, a real S3 server and running Keepsake servers.
//!
//! For tests only: functions panic on failure, and the message says how to provide
//! a missing server or tool. `tests/run` starts the servers and sets the
//! `KEEPSAKE_TEST_*` variables for this crate.

#![expect(clippy::missing_panics_doc, reason = "every function of a test kit panics on failure")]

#[cfg(test)]
extern crate self as libfuzzer_sys;

pub mod collector;
pub mod embeddings_server;
pub mod fault_proxy;
pub mod history;
pub mod holding_proxy;
pub mod hooked;
pub mod hostile_server;
pub mod issuer;
pub mod keepsake_server;
pub mod model;
pub mod official_proxy;
pub mod owned_postgres;
pub mod pooler;
pub mod postgres;
pub mod process_clock;
pub mod provider;
pub mod run;
pub mod s3;
pub mod seed;
#[cfg(test)]
mod seeds;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use collector::{CollectedSpan, Collector};
pub use embeddings_server::{
    EMBEDDINGS_DIMENSIONS, EMBEDDINGS_KEY, EMBEDDINGS_MODEL, EmbeddingsFault, EmbeddingsServer,
};
pub use fault_proxy::FaultProxy;
pub use holding_proxy::HoldingProxy;
pub use hooked::{HookedBlobs, blob_key};
pub use hostile_server::{EndlessPages, HostileServer, Hostility};
pub use issuer::{IssuerKey, JwksAnswer, JwksServer};
pub use keepsake_server::{RunningServer, ServerCommand, bare_command, free_port};
pub use model::{model_folder, model_wheel};
pub use official_proxy::OfficialProxy;
pub use owned_postgres::{OwnedPostgres, StopMode};
pub use pooler::{Login, Pooler};
pub use postgres::{TestDatabase, fresh_database, fresh_database_from, is_distributed};
pub use process_clock::ProcessClock;
pub use provider::{Behaviour, Provider};
pub use s3::{VersionedPlace, fresh_s3, s3_options, s3_section, versioned_s3};
pub use seed::{Seed, cases_times};

/// The variable's value; a missing one is a failure that says how to get it.
pub fn required_variable(name: &str, example: &str) -> String {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => value,
        _ => panic!("{name} is not set: run ./tests/run, or set it to {example}"),
    }
}

/// The repository, where the test runs: a build may be that of another copy, which had
/// the same build folder.
pub fn repository() -> PathBuf {
    PathBuf::from(required_variable("CARGO_MANIFEST_DIR", "the folder of a crate")).join("../..")
}

/// A name that no other test uses, of lowercase letters, digits and `_`.
fn unique_name() -> String {
    format!("keepsake_test_{}", uuid::Uuid::new_v4().simple())
}

/// What a mutex holds, also after a panic.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free loopback port, and the URL of a server on it.
pub async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("no free port");
    let address = listener.local_addr().expect("a listener has an address");
    (listener, format!("http://{address}"))
}

/// Serves over HTTP until the value is dropped.
pub fn serve(listener: TcpListener, router: Router) -> JoinSet<()> {
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, router).await.expect("the server broke") });
    serving
}
