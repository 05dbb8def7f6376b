//! A server whose machine's clock is set while it runs.

use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_testkit::ProcessClock;
use serde_json::json;

use crate::support::deployment::ServerConfig;
use crate::support::{Deployment, Pair, Server, eventually, now_secs};

/// A tick comes within half a minute, on a busy machine later.
const SOON: Duration = Duration::from_secs(90);
const AHEAD_SECS: u64 = 400 * 86_400;
/// A replica writes its access times at these seconds of a minute.
const TICK_SECS: u64 = 30;

/// The seconds that set a clock so far ahead, and a little more, so that a tick comes at once.
fn ahead_before_tick(seconds: u64) -> i64 {
    let before_tick = TICK_SECS - now_secs() % TICK_SECS;
    // The scheduler needs a moment to start again.
    let more = (before_tick + TICK_SECS - 4) % TICK_SECS;
    i64::try_from(seconds + more).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_goes_on_after_the_clock_was_ahead() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(<_>::default()).await;
    provision.close().await;
    let folder = tempfile::tempdir().unwrap();
    let clock = ProcessClock::new(folder.path().join("clock"));
    let command = clock.of(deployment.command(&ServerConfig::default()));
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
    let heartbeat = async || database.number("SELECT max(heartbeat_at) / 1000000 FROM replica").await;
    let heartbeat = async || u64::try_from(heartbeat().await).unwrap();

    clock.set(ahead_before_tick(AHEAD_SECS));
    eventually("a heartbeat of the wrong time", SOON, async || heartbeat().await >= now_secs() + AHEAD_SECS)
        .await;
    assert!(create("/ahead.md").await >= now_secs() + AHEAD_SECS);
    // Jobs of a clock that is wrong for a moment would remove what is not due.
    let of_the_wrong_time = format!(
        "SELECT count(*) FROM job_run WHERE started_at > {}",
        (now_secs() + AHEAD_SECS / 2) * 1_000_000
    );
    assert_eq!(database.number(&of_the_wrong_time).await, 0);
    clock.set(ahead_before_tick(0));
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
