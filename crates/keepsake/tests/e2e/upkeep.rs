//! The sweep removes orphans of a crash, and `verify` finds problems.

use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::BlobStore;
use keepsake_core::BlobKey;
use keepsake_core::limits::LimitOverrides;
use keepsake_engine::jobs::{DrainDeletions, Job, Prune, RunOutcome, RunRequest, SweepBlobs};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio_util::sync::CancellationToken;

use crate::support::client::{tool_calls, try_send};
use crate::support::command::{Run, keepsake};
use crate::support::history::{Database, orphans};
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually, secrets};

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
        let writers: Vec<_> =
            (0..8).map(|writer| tokio::spawn(write(client.clone(), tenant.clone(), round, writer))).collect();
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
    let request = client.request(Method::POST, &tool_calls(tenant.store_id)).json(input);
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
    let options = EngineOptions { clock: clock.clone(), ..EngineOptions::default() };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let swept = run_once(&engine, SweepBlobs::default()).await;
    assert_eq!((&swept["condemned"], &swept["missing"]), (&json!(expected), &json!(0)), "{swept}");
    let drained = run_once(&engine, DrainDeletions).await;
    assert_eq!(drained["removed"], expected, "{drained}");
    index.close().await;
}

async fn run_once(engine: &Engine, job: impl Job + 'static) -> Value {
    let stopping = CancellationToken::new();
    match engine.jobs.run(Arc::new(job), RunRequest::manual(false), &stopping).await.unwrap() {
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
async fn ended_sessions_are_pruned_and_make_room_on_postgres() {
    ended_sessions_are_pruned_and_make_room(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_sessions_are_pruned_and_make_room_on_sqlite() {
    ended_sessions_are_pruned_and_make_room(Pair::Sqlite).await;
}

async fn ended_sessions_are_pruned_and_make_room(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let limits = LimitOverrides { sessions_per_tenant: Some(2), ..LimitOverrides::default() };
    let tenant = deployment.tenant_with(limits).await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let store = json!({"type": "memory_store", "memory_store_id": tenant.store_id.to_string()});
    let new = json!({"agent": "a", "environment_id": "e", "resources": [store]});
    let make = async || {
        let made = client.post("/v1/sessions", &new).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let made = made.json();
        secrets::remember(made["token"].as_str().unwrap(), "a session's token");
        let path = format!("/v1/sessions/{}", made["id"].as_str().unwrap());
        let view = json!({"command": "view", "path": "/memories"});
        let called = client.post(&format!("{path}/tool_calls"), &view).await;
        assert_eq!(called.status, 200, "{}", called.text);
        path
    };
    let deleted = make().await;
    let delete = client.request(Method::DELETE, &deleted);
    assert_eq!(try_send(delete).await.unwrap().status, 200);
    let (archived, live) = (make().await, make().await);
    let archive = client.post(&format!("{archived}/archive"), &json!({})).await;
    assert_eq!(archive.status, 200, "{}", archive.text);
    assert_eq!(client.post("/v1/sessions", &new).await.status, 429);
    server.end().await;

    prune(&deployment, 29, false).await;
    assert_eq!(session_rows(&deployment).await, [2, 2, 2], "but the deleted one");
    for is_dry in [true, false] {
        let counts = prune(&deployment, 31, is_dry).await;
        assert_eq!((&counts["sessions"], &counts["session_resources"]), (&json!(1), &json!(1)), "{counts}");
    }
    assert_eq!(session_rows(&deployment).await, [1, 1, 0]);

    server.restart().await;
    assert_eq!(client.get(&archived).await.status, 404);
    assert_eq!(client.get(&live).await.status, 200);
    make().await;
    assert_eq!(client.post("/v1/sessions", &new).await.status, 429);
    server.end().await;
}

/// Sessions, their attachments and their events.
async fn session_rows(deployment: &Deployment) -> [i64; 3] {
    let database = deployment.database().await;
    let mut rows = [0; 3];
    for (rows, table) in rows.iter_mut().zip(["session", "session_resource", "session_event"]) {
        *rows = database.number(&format!("SELECT count(*) FROM {table}")).await;
    }
    database.close().await;
    rows
}

/// Runs the job as in so many days; answers what it counted.
async fn prune(deployment: &Deployment, days: u64, is_dry: bool) -> Value {
    let later = SystemClock.now().plus(Duration::from_hours(24 * days));
    let options = EngineOptions { clock: Arc::new(ManualClock::new(later)), ..EngineOptions::default() };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let stopping = CancellationToken::new();
    let ran = engine.jobs.run(Arc::new(Prune::default()), RunRequest::manual(is_dry), &stopping).await;
    index.close().await;
    match ran.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
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
    for name in ["secret-path-a", "secret-path-b", "d/c"] {
        client.tool_ok(&tenant, &create(&format!("/memories/{name}.txt"), "content of it")).await;
    }
    // A deleted store counts no longer, also while it waits for its purge; then its blobs
    // may be missing.
    let made = client.post("/v1/memory_stores", &json!({"name": "gone"})).await;
    let gone = format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap());
    let memory = json!({"path": "/a", "content": "of a deleted store"});
    let made = client.post(&format!("{gone}/memories"), &memory).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let deleted = try_send(client.request(Method::DELETE, &gone)).await.unwrap();
    assert_eq!(deleted.status, 200, "{}", deleted.text);
    server.end().await;
    let blobs = deployment.blobs().await;
    let (kept, of_gone): (Vec<_>, Vec<_>) =
        blobs_of(&*blobs, &tenant).await.into_iter().partition(|key| key.store_id == tenant.store_id);
    for key in of_gone {
        blobs.delete(&key).await.unwrap();
    }
    let well = verify_with(&server, &[]).await.ok();
    assert!(well.ends_with("3 blobs of 39 B, 3 versions, 1 memory store, 1 tenant: all is well\n"), "{well}");

    let [missing, damaged, _] = kept.try_into().unwrap();
    for key in [missing, damaged] {
        blobs.delete(&key).await.unwrap();
    }
    let another = match pair {
        Pair::Postgres => "Content of it",
        Pair::PostgresS3 | Pair::SqliteS3 => "shorter",
        Pair::Sqlite => "longer than its row says",
    };
    let found_bytes = another.len();
    blobs.put(&damaged, another.into()).await.unwrap();
    let database = deployment.database().await;
    database.execute(DRIFT.to_owned()).await;

    let run = verify_with(&server, &[]).await;
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("4 problems were found"), "{}", run.stderr);
    let ids = format!("{}  {}", tenant.id, tenant.store_id);
    let words = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "PROBLEM TENANT MEMORY STORE MEMORY VERSION DETAILS".to_owned(),
        format!("missing_blob {ids} {}", missing.blob_id),
        format!("damaged_blob {ids} {} expected_bytes=13, found_bytes={found_bytes}", damaged.blob_id),
        format!("store_count {ids} - "),
        "memory_count=7 (counted 3)".to_owned(),
        format!("tenant_count {} - - ", tenant.id),
        "store_count=5 (counted 1)".to_owned(),
    ] {
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&told), "{told}\n{}", run.stdout);
    }
    for secret in ["secret-path", "content of it"] {
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{}", run.stdout);
    }
    let run = verify_with(&server, &["-o", "json", "--paths", "--concurrency", "2"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &report["problem_count"]), (Some(1), &json!(4)));
    let problems = report["problems"].as_array().unwrap();
    let of_kind = |kind: &str| problems.iter().find(|problem| problem["problem"] == kind).unwrap();
    let path = of_kind("missing_blob")["path"].as_str().unwrap();
    assert!(path.starts_with("/secret-path") || path == "/d/c.txt", "{path}");
    assert_drift_is_told(&tenant, of_kind("store_count"), of_kind("tenant_count"));

    assert_job_mends_what_was_counted(&server).await;
    database.close().await;
}

/// Every counter is wrong, a directory has no row and another too many, the store holds
/// more than it was granted, and the head of a memory is no version.
const DRIFT: &str = "UPDATE store SET memory_count = 7, live_bytes = 38, version_count = 0, version_bytes = 44, \
        granted_bytes = 0; \
    UPDATE tenant SET store_count = 5, granted_bytes = 1; \
    UPDATE directory SET files = 9; \
    DELETE FROM directory WHERE path = '/d/'; \
    INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
        SELECT tenant_id, store_id, '/nowhere/', '/', 'nowhere', 1, 1, 1 FROM store WHERE deleted_at IS NULL; \
    UPDATE memory SET head_seq = 99 WHERE path = '/d/c.txt'";

/// What [`DRIFT`] did to a store with 3 memories of 39 bytes.
#[track_caller]
fn assert_drift_is_told(tenant: &Tenant, of_store: &Value, of_tenant: &Value) {
    let drifted = |recorded: u64, counted: u64| json!({"recorded": recorded, "counted": counted});
    assert_eq!(
        *of_store,
        json!({
            "problem": "store_count", "tenant": tenant.id, "memory_store": tenant.store_id,
            "memory_count": drifted(7, 3), "live_bytes": drifted(38, 39), "version_count": drifted(0, 3),
            "version_bytes": drifted(44, 39), "wrong_directories": 3, "lost_heads": 1, "overdrawn_bytes": 39,
            "directories": ["/", "/d/", "/nowhere/"],
        })
    );
    assert_eq!(
        *of_tenant,
        json!({
            "problem": "tenant_count", "tenant": tenant.id,
            "store_count": drifted(5, 1), "granted_bytes": drifted(1, 0),
        })
    );
}

/// The job corrects the counters; missing blobs stay missing.
async fn assert_job_mends_what_was_counted(server: &Server) {
    let config = server.config_file();
    let config = config.to_str().unwrap();
    let told = keepsake(&["job", "run", "reconcile-usage", "--dry-run", "-o", "json", "--config", config])
        .await
        .json();
    assert_eq!(
        ["drifted_stores", "lost_heads", "mended"].map(|name| told["counts"][name].as_u64().unwrap()),
        [1, 1, 0],
        "{told}"
    );
    let ran = keepsake(&["job", "run", "reconcile-usage", "-o", "json", "--config", config]).await.json();
    assert_eq!((&ran["status"], &ran["counts"]["mended"]), (&json!("done"), &json!(2)), "{ran}");
    let run = verify_with(server, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["problem_count"], 3, "{report}");
    let problems = report["problems"].as_array().unwrap();
    let counted = problems.iter().find(|problem| problem["problem"] == "store_count");
    let mut fields: Vec<_> = counted.unwrap().as_object().unwrap().keys().collect();
    fields.sort_unstable();
    assert_eq!(fields, ["lost_heads", "memory_store", "problem", "tenant"]);
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
    for (name, is_damage) in [("CAST(x'61ff62' AS TEXT)", true), ("'tests'", false)] {
        let update = AssertSqlSafe(format!("UPDATE tenant SET name = {name}"));
        sqlx::query(update).execute(&mut connection).await.unwrap();
        let run = verify_with(&server, &["-o", "json"]).await;
        let told = "table tenant: a text of column name is not UTF-8";
        assert_eq!(run.stdout.contains(told), is_damage, "{}", run.stdout);
    }
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

/// Each damage leaves a valid row.
#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_damaged_search_terms() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let memories = format!("/v1/memory_stores/{}/memories", tenant.store_id);
    let mut made = Vec::new();
    for (path, content) in [
        ("/terms", "apples and pears"),
        ("/analyser", "quinces"),
        ("/length", "plums"),
        ("/memory_id", "cherries"),
        ("/sound", "grapes"),
    ] {
        let new = json!({"path": path, "content": content});
        made.push(client.post(&memories, &new).await.json()["id"].clone());
    }
    server.end().await;
    verify_with(&server, &[]).await.ok();
    let at = |path: &str| format!("memory_id = (SELECT memory_id FROM memory WHERE path = '{path}')");
    let others = format!("terms = (SELECT terms FROM search_doc WHERE {})", at("/sound"));
    let damages = [
        ("/terms", others.as_str()),
        ("/analyser", "analyser = ~analyser"),
        ("/length", "length = ~length"),
        ("/memory_id", "memory_id = x'00000000000000000000000000000007'"),
    ];
    let damages = damages.map(|(path, damage)| format!("UPDATE search_doc SET {damage} WHERE {}", at(path)));
    let database = deployment.database().await;
    database.execute(damages.join("; ")).await;
    database.close().await;

    let run = verify_with(&server, &["-o", "json"]).await;
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap();
    assert_eq!((run.code, problems.len()), (Some(1), 4), "{report}");
    for problem in problems {
        assert_eq!(problem["problem"], "damaged_search_terms", "{report}");
        assert_eq!(problem["memory_store"], tenant.store_id.to_string());
    }
    let named = |memory: &Value| problems.iter().any(|problem| problem["memory"] == *memory);
    assert!(made[..3].iter().all(named), "{report}");
    assert!(!made[3..].iter().any(named), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verification_creates_no_index() {
    let folder = tempfile::tempdir().unwrap();
    let run = keepsake(&["verify", "--data-dir", folder.path().to_str().unwrap()]).await;
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("there is no index to verify"), "{}", run.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
