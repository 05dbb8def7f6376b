//! A server whose machine's clock is set while it runs.

use std::path::PathBuf;
use std::time::Duration;

use keepsake_core::Timestamp;
use serde_json::json;

use crate::support::deployment::ServerConfig;
use crate::support::script::{FAKETIME, from_environment};
use crate::support::{Deployment, Pair, Server, eventually, now_secs};

/// A tick comes within half a minute, on a busy machine later.
const SOON: Duration = Duration::from_secs(90);
const AHEAD_SECS: u64 = 400 * 86_400;
/// A replica writes its access times at these seconds of a minute.
const TICK_SECS: u64 = 30;

/// The file that says how far the server's clock is ahead.
struct Clock(PathBuf);

impl Clock {
    /// Sets the clock ahead, and a little more, so that a tick comes at once.
    fn set_ahead(&self, seconds: u64) {
        let before_tick = TICK_SECS - now_secs() % TICK_SECS;
        // The scheduler needs a moment to start again.
        let more = (before_tick + TICK_SECS - 4) % TICK_SECS;
        // At once, because the library reads it again for each look at the clock.
        let new = self.0.with_extension("new");
        std::fs::write(&new, format!("+{}\n", seconds + more)).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_goes_on_after_the_clock_was_ahead() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(<_>::default()).await;
    provision.close().await;
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock(folder.path().join("clock"));
    std::fs::write(&clock.0, "+0\n").unwrap();
    let command = deployment
        .command(&ServerConfig::default())
        .env("LD_PRELOAD", &from_environment(FAKETIME))
        .env("FAKETIME_TIMESTAMP_FILE", &clock.0.to_string_lossy())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let mut server = Server::start(command).await;
    let client = server.client(&tenant);
    let create = async |path: &str| {
        let route = format!("/v1/memory_stores/{}/memories", tenant.store_id);
        let made = client.post(&route, &json!({"path": path, "content": path})).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let created_at = made.json()["created_at"].as_str().unwrap().to_owned();
        u64::try_from(Timestamp::parse(&created_at).unwrap().as_micros()).unwrap() / 1_000_000
    };
    let database = deployment.database().await;
    let heartbeat = async || {
        database
            .number("SELECT max(heartbeat_at) / 1000000 FROM replica")
            .await
    };
    let heartbeat = async || u64::try_from(heartbeat().await).unwrap();

    clock.set_ahead(AHEAD_SECS);
    eventually("a heartbeat of the wrong time", SOON, async || {
        heartbeat().await >= now_secs() + AHEAD_SECS
    })
    .await;
    assert!(create("/ahead.md").await >= now_secs() + AHEAD_SECS);
    // Jobs of a clock that is wrong for a moment would remove what is not due.
    let of_the_wrong_time = format!(
        "SELECT count(*) FROM job_run WHERE started_at > {}",
        (now_secs() + AHEAD_SECS / 2) * 1_000_000
    );
    assert_eq!(database.number(&of_the_wrong_time).await, 0);
    clock.set_ahead(0);
    eventually("a heartbeat of the right time", SOON, async || {
        heartbeat().await <= now_secs() + 2 * TICK_SECS
    })
    .await;
    assert!(create("/right.md").await <= now_secs() + 2 * TICK_SECS);
    let output = server.output();
    assert!(output.contains("the machine's clock was set"), "{output}");
    let ready = client.get("/readyz").await.json();
    assert_eq!(ready["upkeep"], "ok");
    database.close().await;
    server.end().await;
}
