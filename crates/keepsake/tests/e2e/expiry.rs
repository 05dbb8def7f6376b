//! A process that is killed during the expiry of unused memories: nothing is expired
//! twice or wrongly, and the next run completes the work.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use keepsake_engine::jobs::{ExpireUnused, RunRequest};
use tokio::sync::Mutex;

use crate::support::command::start_keepsake;
use crate::support::server::started;
use crate::support::{Pair, eventually};

/// More than some batches of the job.
const UNUSED: i64 = 600;

/// Makes all memories as old as can be, in a store that keeps them for a day.
const GROW_OLD: &str = "UPDATE memory SET created_at = 1, updated_at = 1; \
    UPDATE store SET expires_unused_after = 86400, period_set_at = 1, idle_since = 0; \
    UPDATE memory SET pinned = TRUE WHERE path LIKE '/pinned/%'";
/// Makes each deletion count to 20,000, so that the job is killed long before its
/// last batch.
const DELETE_SLOWLY: &str = "CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ \
    BEGIN PERFORM count(*) FROM generate_series(1, 20000); RETURN NEW; END $$; \
    CREATE TRIGGER delete_slowly AFTER INSERT ON version FOR EACH ROW \
    WHEN (NEW.op = 'deleted') EXECUTE FUNCTION delete_slowly()";
const DELETED: &str = "SELECT count(*) FROM version WHERE op = 'deleted'";

#[tokio::test(flavor = "multi_thread")]
async fn killed_expiry_is_resumed() {
    let (deployment, tenant, mut server, client) = started(Pair::PostgresS3).await;
    let unused = (0..UNUSED).map(|number| format!("/memories/unused/{number}.txt"));
    let pinned = (0..3).map(|number| format!("/memories/pinned/{number}.txt"));
    stream::iter(unused.chain(pinned))
        .for_each_concurrent(16, async |path| {
            client.create_file(&tenant, &path, "what nobody reads").await;
        })
        .await;
    server.end().await;
    let database = deployment.database().await;
    database.execute(GROW_OLD.to_owned()).await;
    database.execute(DELETE_SLOWLY.to_owned()).await;

    let config = server.config_file();
    let job = ["job", "run", "expire-unused", "--config", config.to_str().unwrap()];
    let run = Mutex::new(start_keepsake(&job, &[]));
    let begun = async || {
        // A run ends early while the server that has ended counts as alive.
        let mut run = run.lock().await;
        if run.try_wait().unwrap().is_some() {
            *run = start_keepsake(&job, &[]);
        }
        database.number(DELETED).await > 0
    };
    eventually("the first memories expire", Duration::from_mins(5), begun).await;
    run.into_inner().kill().await.unwrap();
    let expired = database.number(DELETED).await;
    assert!((1..UNUSED).contains(&expired), "killed too late: {expired}");
    database.execute("DROP FUNCTION delete_slowly CASCADE".to_owned()).await;
    database.close().await;
    server.beside("verify").await.ok();

    // In a later hour: the server may have run the job of this one. The dead process's lease has
    // expired by then, and no run waits for its reads.
    let rest = deployment.run_ahead(Duration::from_mins(75), ExpireUnused, RunRequest::SCHEDULED).await;
    assert_eq!(rest["expired"], UNUSED - expired, "{rest}");
    assert_eq!(deployment.number(DELETED).await, UNUSED, "each expired once");
    let live = "SELECT count(*) FROM memory WHERE deleted_at IS NULL";
    assert_eq!(deployment.number(live).await, 3);
    server.beside("verify").await.ok();
}
