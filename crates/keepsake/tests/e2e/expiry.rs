//! A process that is killed during the expiry of unused memories: nothing is expired
//! twice or wrongly, and the next run completes the work.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use keepsake_engine::jobs::{ExpireUnused, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use serde_json::json;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::support::command::keepsake;
use crate::support::{Deployment, Pair, binary, eventually};

/// More than some batches of the job.
const UNUSED: i64 = 600;
const SHOWN_WITHIN: Duration = Duration::from_mins(5);

/// Makes all memories as old as can be, in a store that keeps them for a day.
const GROW_OLD: &str = "UPDATE memory SET created_at = 1, updated_at = 1; \
    UPDATE store SET expires_unused_after = 86400, period_set_at = 1, idle_since = 0; \
    UPDATE memory SET pinned = TRUE WHERE path LIKE '/pinned/%'";
/// Makes each deletion count to 20,000, so that the job is killed long before its
/// last batch.
const DELETE_SLOWLY_ON_POSTGRES: &str = "CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ \
    BEGIN PERFORM count(*) FROM generate_series(1, 20000); RETURN NEW; END $$; \
    CREATE TRIGGER delete_slowly AFTER INSERT ON version FOR EACH ROW \
    WHEN (NEW.op = 'deleted') EXECUTE FUNCTION delete_slowly()";
const DELETE_SLOWLY_ON_SQLITE: &str = "CREATE TRIGGER delete_slowly AFTER INSERT ON version \
    WHEN NEW.op = 'deleted' BEGIN SELECT count(*) FROM (WITH RECURSIVE counted (number) AS \
    (SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < 20000) SELECT * FROM counted); END";
const DELETE_FAST_ON_POSTGRES: &str = "DROP FUNCTION delete_slowly CASCADE";
const DELETE_FAST_ON_SQLITE: &str = "DROP TRIGGER delete_slowly";
const DELETED: &str = "SELECT count(*) FROM version WHERE op = 'deleted'";

#[tokio::test(flavor = "multi_thread")]
async fn killed_expiry_is_resumed_on_postgres_and_s3() {
    killed_expiry_is_resumed(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_expiry_is_resumed_on_sqlite() {
    killed_expiry_is_resumed(Pair::Sqlite).await;
}

async fn assert_all_is_well(config: &Path) {
    let verify = ["verify", "--config", config.to_str().unwrap()];
    let well = keepsake(&verify).await.ok();
    assert!(well.ends_with("all is well\n"), "{well}");
}

async fn killed_expiry_is_resumed(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let paths = (0..UNUSED).map(|number| format!("/memories/unused/{number}.txt"));
    let pinned = (0..3).map(|number| format!("/memories/pinned/{number}.txt"));
    stream::iter(paths.chain(pinned))
        .for_each_concurrent(16, |path| {
            let (client, tenant) = (client.clone(), tenant.clone());
            async move {
                let input = json!({"command": "create", "path": path, "file_text": "what nobody reads"});
                client.tool_ok(&tenant, &input).await;
            }
        })
        .await;
    server.end().await;
    let database = deployment.database().await;
    database.execute(GROW_OLD.to_owned()).await;
    let (slowly, fast) = if pair.has_postgres() {
        (DELETE_SLOWLY_ON_POSTGRES, DELETE_FAST_ON_POSTGRES)
    } else {
        (DELETE_SLOWLY_ON_SQLITE, DELETE_FAST_ON_SQLITE)
    };
    database.execute(slowly.to_owned()).await;

    let config = server.config_file();
    let start = || {
        Command::new(binary())
            .args(["job", "run", "expire-unused", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    };
    let run = Mutex::new(start());
    let begun = async || {
        // A run ends early while the server that has ended counts as alive.
        let mut run = run.lock().await;
        if run.try_wait().unwrap().is_some() {
            *run = start();
        }
        database.number(DELETED).await > 0
    };
    eventually("the first memories expire", SHOWN_WITHIN, begun).await;
    run.into_inner().kill().await.unwrap();
    let expired = database.number(DELETED).await;
    assert!((1..UNUSED).contains(&expired), "killed too late: {expired}");
    database.execute(fast.to_owned()).await;
    database.close().await;
    assert_all_is_well(&config).await;

    // After the dead process's lease has expired, when no run waits for its reads.
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_mins(15))));
    let options = EngineOptions { clock, ..EngineOptions::default() };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let stopping = CancellationToken::new();
    let rest = engine.jobs.run(Arc::new(ExpireUnused), RunRequest::SCHEDULED, &stopping).await;
    assert!(
        matches!(&rest, Ok(RunOutcome::Ran(counts)) if counts["expired"] == UNUSED - expired),
        "{expired}: {rest:?}"
    );
    index.close().await;
    let database = deployment.database().await;
    assert_eq!(database.number(DELETED).await, UNUSED, "each expired once");
    let live = "SELECT count(*) FROM memory WHERE deleted_at IS NULL";
    assert_eq!(database.number(live).await, 3);
    database.close().await;
    assert_all_is_well(&config).await;
}
