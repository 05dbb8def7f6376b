//! Clients, faults and a history checker on real servers.
//!
//! Each pair of backends is run for [`Settings::duration`]: about a minute, or as long
//! as `./tools/torture/run --minutes N` says.
//! A run prints its seed and its figures, and fails on any violation, and where
//! the service took more than [`report::RECOVERY_LIMIT`] to come back.
//! [`jobs`] removes what is old beside clients.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test by panicking, as the test does")]

mod audit;
mod client;
mod exports;
mod faults;
mod fleet;
mod jobs;
mod moves;
mod probe;
mod random;
mod report;
mod restores;
mod run;
mod workload;

use std::time::Duration;

use tokio::sync::Mutex;

use self::fleet::Pair;

/// One run with faults at a time: they measure how long recovery takes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const BOUNDED_RUN: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy)]
struct Settings {
    duration: Duration,
    seed: u64,
}

impl Settings {
    /// Reads `KEEPSAKE_TORTURE_SECONDS` and `KEEPSAKE_TORTURE_SEED`.
    fn from_environment() -> Self {
        let number = |name: &str| -> Option<u64> {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            Some(value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
        };
        Self {
            duration: number("KEEPSAKE_TORTURE_SECONDS").map_or(BOUNDED_RUN, Duration::from_secs),
            seed: number("KEEPSAKE_TORTURE_SEED").unwrap_or_else(random::fresh_seed),
        }
    }

    /// For what runs beside the faults: a part of a bounded run.
    fn beside_faults() -> Self {
        let Self { duration, seed } = Self::from_environment();
        Self { duration: if duration == BOUNDED_RUN { duration / 3 } else { duration }, seed }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_under_faults_on_sqlite() {
    let _turn = ONE_AT_A_TIME.lock().await;
    run::run(Pair::Sqlite, Settings::from_environment()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_under_faults_on_postgres_and_s3() {
    let _turn = ONE_AT_A_TIME.lock().await;
    run::run(Pair::PostgresS3, Settings::from_environment()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restores_lose_no_last_copy_on_sqlite() {
    restores::run(Pair::Sqlite, Settings::beside_faults()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restores_lose_no_last_copy_on_postgres_and_s3() {
    restores::run(Pair::PostgresS3, Settings::beside_faults()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_beside_starting_servers_lose_nothing() {
    moves::run(Settings::beside_faults()).await;
}
