//! The sweep removes orphans of a crash, and `verify` finds problems.

use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::BlobStore;
use keepsake_core::BlobKey;
use keepsake_engine::jobs::{DrainDeletions, Job, RunOutcome, RunRequest, SweepBlobs};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;
use tokio_util::sync::CancellationToken;

use crate::support::client::{tool_calls, try_send};
use crate::support::command::{Run, keepsake};
use crate::support::history::{Database, orphans};
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually};

/// How long to wait for a step of a write.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
/// Kills amid writes, at whatever step they are.
const KILLS_UNDER_LOAD: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_each_step_of_a_write_leave_only_sweepable_blobs_on_postgres_and_s3() {
    kills_at_each_step_leave_only_sweepable_blobs(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_amid_writes_leave_nothing_to_sweep_on_sqlite() {
    kills_at_each_step_leave_only_sweepable_blobs(Pair::Sqlite).await;
}

async fn kills_at_each_step_leave_only_sweepable_blobs(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let create = |name: &str| create(&format!("/memories/{name}.txt"), name);
    client.tool_ok(&tenant, &create("before")).await;

    let blobs = deployment.blobs().await;
    let database = deployment.database().await;
    if pair.has_s3() {
        // The blob is there, and the commit waits for a lock: killed between both.
        database.execute(LOCK.to_owned()).await;
        let call = send(&client, &tenant, &create("between"));
        let shown = async || blobs_of(&*blobs, &tenant).await.len() == 2;
        eventually("the blob is put", SHOWN_WITHIN, shown).await;
        server.kill9().await;
        database.execute(RELEASE.to_owned()).await;
        assert!(call.await.unwrap().is_none(), "it was never acknowledged");
        server.restart().await;
    }

    // The row is there: killed before or after the answer.
    let call = send(&client, &tenant, &create("after"));
    let versions = async || database.number("SELECT count(*) FROM version").await == 2;
    eventually("the commit lands", SHOWN_WITHIN, versions).await;
    server.kill9().await;
    let _ = call.await;
    server.restart().await;

    // The kills hit any step: a put, a commit, an answer, a removal.
    for round in 0..KILLS_UNDER_LOAD {
        let writers: Vec<_> = (0..8)
            .map(|writer| tokio::spawn(write(client.clone(), tenant.clone(), round, writer)))
            .collect();
        let before = blobs_of(&*blobs, &tenant).await.len();
        let shown = async || blobs_of(&*blobs, &tenant).await.len() >= before + 10;
        eventually("the writers write", SHOWN_WITHIN, shown).await;
        server.kill9().await;
        for writer in writers {
            writer.await.unwrap();
        }
        server.restart().await;
    }
    server.end().await;

    let left = orphans_of(&deployment, &tenant, &database).await;
    // Content in the index comes with its row.
    assert_eq!(left.is_empty(), !pair.has_s3(), "{left:?}");
    database.close().await;
    verify_with(&server, &[]).await.ok();
    sweep(&deployment, left.len()).await;
    let database = deployment.database().await;
    assert_eq!(orphans_of(&deployment, &tenant, &database).await, []);
    database.close().await;
    let report = verify_with(&server, &["-o", "json"]).await.json();
    assert_eq!(report["problem_count"], 0, "{report}");

    server.restart().await;
    assert_eq!(client.lines(&tenant, "/memories/before.txt").await, ["before"]);
    assert_eq!(client.lines(&tenant, "/memories/after.txt").await, ["after"]);
    client.tool_ok(&tenant, &create("between")).await;
    server.end().await;
}

fn create(path: &str, text: &str) -> Value {
    json!({"command": "create", "path": path, "file_text": text})
}

/// Keeps commits of the only store waiting.
const LOCK: &str = "BEGIN; SELECT seq FROM store FOR UPDATE";
/// Ends the lock. Postgres does not notice by itself that a waiting client is dead.
const RELEASE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid(); ROLLBACK";

/// Sends a call to a server that may die; answers what it was answered.
fn send(client: &Client, tenant: &Tenant, input: &Value) -> tokio::task::JoinHandle<Option<String>> {
    let request = client
        .request(Method::POST, &tool_calls(tenant.store_id))
        .json(input);
    tokio::spawn(async move { try_send(request).await.ok().map(|answer| answer.text) })
}

/// Creates new files and replaces a shared one until the server is gone.
async fn write(client: Client, tenant: Tenant, round: usize, writer: usize) {
    for number in 0.. {
        let input = if number % 2 == 0 {
            create(&format!("/memories/{round}/{writer}/{number}.txt"), "new")
        } else {
            create("/memories/shared.txt", &format!("{writer} {number}"))
        };
        if send(&client, &tenant, &input).await.unwrap().is_none() {
            return;
        }
    }
}

async fn blobs_of(blobs: &dyn BlobStore, tenant: &Tenant) -> Vec<BlobKey> {
    let listed = blobs.list(Some(tenant.id), None, 100_000).await.unwrap();
    listed.into_iter().map(|blob| blob.key).collect()
}

async fn orphans_of(deployment: &Deployment, tenant: &Tenant, database: &Database) -> Vec<BlobKey> {
    let versions = database.versions(tenant.store_id).await;
    orphans(deployment, tenant.id, &versions).await
}

/// Runs the jobs two days on, when every blob is older than a request.
async fn sweep(deployment: &Deployment, expected: usize) {
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_hours(48))));
    let options = EngineOptions {
        clock: clock.clone(),
        ..EngineOptions::default()
    };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let swept = run_once(&engine, SweepBlobs::default()).await;
    assert_eq!(
        (&swept["condemned"], &swept["missing"]),
        (&json!(expected), &json!(0)),
        "{swept}"
    );
    let drained = run_once(&engine, DrainDeletions).await;
    assert_eq!(drained["removed"], expected, "{drained}");
    index.close().await;
}

async fn run_once(engine: &Engine, job: impl Job + 'static) -> Value {
    let stopping = CancellationToken::new();
    match engine
        .jobs
        .run(Arc::new(job), RunRequest::manual(false), &stopping)
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

async fn verify_with(server: &Server, more: &[&str]) -> Run {
    let config = server.config_file();
    let mut arguments = vec!["verify", "--config", config.to_str().unwrap()];
    arguments.extend(more);
    keepsake(&arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_what_is_wrong_on_postgres_and_s3() {
    verification_finds_what_is_wrong(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_what_is_wrong_on_postgres() {
    verification_finds_what_is_wrong(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_what_is_wrong_on_sqlite() {
    verification_finds_what_is_wrong(Pair::Sqlite).await;
}

async fn verification_finds_what_is_wrong(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    for name in ["secret-path-a", "secret-path-b", "c"] {
        client
            .tool_ok(
                &tenant,
                &create(&format!("/memories/{name}.txt"), "content of it"),
            )
            .await;
    }
    server.end().await;
    let well = verify_with(&server, &[]).await.ok();
    assert!(
        well.ends_with("3 blobs of 39 B, 3 versions, 1 memory store, 1 tenant: all is well\n"),
        "{well}"
    );

    let blobs = deployment.blobs().await;
    let [missing, damaged, _] = blobs_of(&*blobs, &tenant).await.try_into().unwrap();
    for key in [missing, damaged] {
        blobs.delete(&key).await.unwrap();
    }
    blobs
        .put(&damaged, bytes::Bytes::from_static(b"another"))
        .await
        .unwrap();
    let database = deployment.database().await;
    database
        .execute("UPDATE store SET memory_count = 7; UPDATE directory SET files = 9; UPDATE tenant SET store_count = 5".to_owned())
        .await;

    let run = verify_with(&server, &[]).await;
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("4 problems were found"), "{}", run.stderr);
    let ids = format!("{}  {}", tenant.id, tenant.store_id);
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "PROBLEM TENANT MEMORY STORE MEMORY VERSION DETAILS".to_owned(),
        format!("missing_blob {ids} {}", missing.blob_id),
        format!(
            "damaged_blob {ids} {} expected_bytes=13, found_bytes=7",
            damaged.blob_id
        ),
        format!("store_count {ids} - memory_count=7 (counted 3), wrong_directories=1"),
        format!("tenant_count {} - - store_count=5 (counted 1)", tenant.id),
    ] {
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&told), "{told}\n{}", run.stdout);
    }
    for secret in ["secret-path", "content of it"] {
        assert!(
            !run.stdout.contains(secret) && !run.stderr.contains(secret),
            "{}",
            run.stdout
        );
    }
    let run = verify_with(&server, &["-o", "json", "--paths", "--concurrency", "2"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &report["problem_count"]), (Some(1), &json!(4)));
    let problems = report["problems"].as_array().unwrap();
    let of_kind = |kind: &str| {
        problems
            .iter()
            .find(|problem| problem["problem"] == kind)
            .unwrap()
    };
    let path = of_kind("missing_blob")["path"].as_str().unwrap();
    assert!(path.starts_with("/secret-path") || path == "/c.txt", "{path}");
    assert_eq!(of_kind("store_count")["directories"], json!(["/"]));

    assert_job_mends_what_was_counted(&server).await;
    database.close().await;
}

/// The job corrects the counters; missing blobs stay missing.
async fn assert_job_mends_what_was_counted(server: &Server) {
    let config = server.config_file();
    let config = config.to_str().unwrap();
    let told = keepsake(&[
        "job",
        "run",
        "reconcile-usage",
        "--dry-run",
        "-o",
        "json",
        "--config",
        config,
    ])
    .await
    .json();
    assert_eq!(
        (&told["counts"]["drifted_stores"], &told["counts"]["mended"]),
        (&json!(1), &json!(0)),
        "{told}"
    );
    let ran = keepsake(&["job", "run", "reconcile-usage", "-o", "json", "--config", config])
        .await
        .json();
    assert_eq!(
        (&ran["status"], &ran["counts"]["mended"]),
        (&json!("done"), &json!(2)),
        "{ran}"
    );
    let run = verify_with(server, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["problem_count"], 2, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_repeats_what_sqlite_says_about_damage() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let create = create("/memories/a.txt", "content of it");
    client.tool_ok(&tenant, &create).await;
    server.end().await;
    let file = deployment.sqlite_file();
    let mut connection = SqliteConnection::connect(&deployment.index_url()).await.unwrap();
    let page = "SELECT (rootpage - 1) * 4096 FROM sqlite_schema WHERE name = 'version_actor'";
    let page: i64 = sqlx::query_scalar(page).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    // The last bytes of the page are a key.
    let page = usize::try_from(page).unwrap();
    for byte in &mut bytes[page + 4080..page + 4096] {
        *byte ^= 0xff;
    }
    std::fs::write(&file, bytes).unwrap();

    let run = verify_with(&server, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap();
    assert_eq!((run.code, problems.is_empty()), (Some(1), false), "{report}");
    let says = |problem: &Value| {
        let message = problem["message"].as_str().unwrap_or_default();
        problem["problem"] == "damaged_index" && message.contains("missing from index version_actor")
    };
    assert!(problems.iter().any(says), "{report}");
    let run = verify_with(&server, &[]).await;
    assert!(run.stdout.contains("damaged_index"), "{}", run.stdout);
    assert!(
        run.stderr.contains("problem was found") || run.stderr.contains("problems were found"),
        "{}",
        run.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_creates_no_index() {
    let folder = tempfile::tempdir().unwrap();
    let run = keepsake(&["verify", "--data-dir", folder.path().to_str().unwrap()]).await;
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("there is no index to verify"),
        "{}",
        run.stderr
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
