//! A server whose machine's clock is set while it runs.

use keepsake_core::Timestamp;
use keepsake_testkit::ProcessClock;

use crate::prelude::*;

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
    let tenant = deployment.tenant().await;
    let folder = tempfile::tempdir().unwrap();
    let clock = ProcessClock::new(folder.path().join("clock"));
    let mut server = Server::start(clock.of(deployment.command(&ServerConfig::default()))).await;
    let client = server.client(&tenant);
    let creation_secs = async |path: &str| {
        let made = Store::of(&client, &tenant).create(path, path).await;
        let created_at = Timestamp::parse(made["created_at"].as_str().unwrap()).unwrap();
        u64::try_from(created_at.as_micros()).unwrap() / 1_000_000
    };
    let database = deployment.database().await;
    let heartbeat_secs = async || {
        let secs = database.number("SELECT max(heartbeat_at) / 1000000 FROM replica").await;
        u64::try_from(secs).unwrap()
    };

    clock.set(ahead_before_tick(AHEAD_SECS));
    let is_ahead = async || heartbeat_secs().await >= now_secs() + AHEAD_SECS;
    soon("a heartbeat of the wrong time", is_ahead).await;
    assert!(creation_secs("/ahead.md").await >= now_secs() + AHEAD_SECS);
    // Jobs of a clock that is wrong for a moment would remove what is not due.
    let wrong = (now_secs() + AHEAD_SECS / 2) * 1_000_000;
    let of_the_wrong_time = format!("SELECT count(*) FROM job_run WHERE started_at > {wrong}");
    assert_eq!(database.number(&of_the_wrong_time).await, 0);
    clock.set(ahead_before_tick(0));
    let is_right = async || heartbeat_secs().await <= now_secs() + 2 * TICK_SECS;
    soon("a heartbeat of the right time", is_right).await;
    assert!(creation_secs("/right.md").await <= now_secs() + 2 * TICK_SECS);
    let output = server.output();
    assert!(output.contains("the machine's clock was set"), "{output}");
    assert_eq!(client.get("/readyz").await.json()["upkeep"], "ok");
    database.close().await;
    server.end().await;
}
