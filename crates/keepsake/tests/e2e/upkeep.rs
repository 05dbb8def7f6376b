//! Ended sessions are pruned, `verify` finds damage and wrong counts, and a clock that was ahead
//! stops no upkeep.

use keepsake_testkit::ProcessClock;

use crate::prelude::*;

on_pairs! { ended_sessions_are_pruned_and_make_room: Postgres, Sqlite }

async fn ended_sessions_are_pruned_and_make_room(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant_with(json!({"sessions_per_tenant": 2})).await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let make = async || {
        let (session, _) = open_session(&client, &[tenant.store_id]).await;
        view_in(&client, &session, "/memories").await;
        session
    };
    let is_full = async || {
        let new = json!({"agent": "a", "environment_id": "e"});
        client.post("/v1/sessions", &new).await.status == 429
    };
    let deleted = make().await;
    ok(&delete(&client, &deleted).await);
    let (archived, live) = (make().await, make().await);
    ok(&client.post(&format!("{archived}/archive"), &json!({})).await);
    assert!(is_full().await);
    server.end().await;

    let prune = async |days: u64, is_dry| {
        let worker = deployment.worker_ahead(Duration::from_hours(24 * days)).await;
        let counts = worker.run(Prune::default(), RunRequest::manual(is_dry)).await;
        worker.close().await;
        counts
    };
    prune(29, false).await;
    assert_eq!(session_rows(&deployment).await, [2, 2, 2], "but the deleted one");
    for is_dry in [true, false] {
        let counts = prune(31, is_dry).await;
        assert_eq!((&counts["sessions"], &counts["session_resources"]), (&json!(1), &json!(1)), "{counts}");
    }
    assert_eq!(session_rows(&deployment).await, [1, 1, 0]);

    server.restart().await;
    assert_eq!(client.get(&archived).await.status, 404);
    ok(&client.get(&live).await);
    make().await;
    assert!(is_full().await);
    server.end().await;
}

async fn session_rows(deployment: &Deployment) -> [i64; 3] {
    let count = async |table: &str| deployment.number(&format!("SELECT count(*) FROM {table}")).await;
    [count("session").await, count("session_resource").await, count("session_event").await]
}

async fn problems(server: &Server) -> Vec<Value> {
    let run = server.beside("verify -o json --paths --concurrency 2").await;
    assert_eq!(run.code, Some(1), "{}{}", run.stdout, run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap().clone();
    assert_eq!(report["problem_count"], problems.len());
    problems
}

fn of_kind<'a>(problems: &'a [Value], kind: &str) -> &'a Value {
    let problem = problems.iter().find(|problem| problem["problem"] == kind);
    problem.unwrap_or_else(|| panic!("{kind} is not in {problems:?}"))
}

on_pairs! { verification_finds_what_is_wrong }

async fn verification_finds_what_is_wrong(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    for name in ["secret-path-a", "secret-path-b", "d/c"] {
        client.create_file(&tenant, &format!("/memories/{name}.txt"), "content of it").await;
    }
    // A deleted store counts no longer, also while it waits for its purge; then its blobs
    // may be missing.
    let gone = Store::make(&client, "gone").await;
    gone.create("/a", "of a deleted store").await;
    ok(&delete(&client, &gone.path).await);
    server.end().await;
    let blobs = deployment.blobs().await;
    let listed = blobs.list(Some(tenant.id), None, 100).await.unwrap().into_iter().map(|blob| blob.key);
    let (kept, of_gone): (Vec<_>, Vec<_>) = listed.partition(|key| key.store_id == tenant.store_id);
    for key in of_gone {
        blobs.delete(&key).await.unwrap();
    }
    let well = server.beside("verify").await.ok();
    assert!(well.ends_with("3 blobs of 39 B, 3 versions, 1 memory store, 1 tenant: all is well\n"), "{well}");

    let [missing, damaged, _] = kept.try_into().unwrap();
    for key in [missing, damaged] {
        blobs.delete(&key).await.unwrap();
    }
    let another = if pair.has_s3() { "Content of it" } else { "longer than its row says" };
    blobs.put(&damaged, another.into()).await.unwrap();
    deployment.execute(DRIFT).await;

    let run = server.beside("verify").await;
    run.ends(1, "4 problems were found");
    assert!(run.stdout.contains("missing_blob") && run.stdout.contains("memory_count=7"));
    for secret in ["secret-path", "content of it"] {
        assert!(!run.stdout.contains(secret) && !run.stderr.contains(secret), "{}", run.stdout);
    }
    let found = problems(&server).await;
    let (lost, changed) = (of_kind(&found, "missing_blob"), of_kind(&found, "damaged_blob"));
    let path = lost["path"].as_str().unwrap();
    assert!(path.starts_with("/secret-path") || path == "/d/c.txt", "{path}");
    assert_eq!(lost["memory_version"], missing.blob_id.to_string());
    assert_eq!(changed["memory_version"], damaged.blob_id.to_string());
    assert_eq!((&changed["expected_bytes"], &changed["found_bytes"]), (&json!(13), &json!(another.len())));
    assert_drift_is_told(&tenant, &found);
    // The job reports the missing one too, but not those of the deleted store.
    let swept = server.beside("job run sweep-blobs -o json").await.json();
    let told = ["missing", "missing_blobs"].map(|name| &swept["counts"][name]);
    assert_eq!(told, [&json!(1), &json!([missing.to_string()])], "{swept}");
    // The job corrects the counters; missing blobs stay missing.
    for (more, mended) in [("--dry-run", 0), ("", 2)] {
        let ran = server.beside(&format!("job run reconcile-usage -o json {more}")).await.json();
        let counts = ["drifted_stores", "lost_heads", "mended"].map(|name| &ran["counts"][name]);
        assert_eq!(counts, [&json!(1), &json!(1), &json!(mended)], "{ran}");
    }
    let left = problems(&server).await;
    assert_eq!(left.len(), 3, "{left:?}");
    let mut fields: Vec<_> = of_kind(&left, "store_count").as_object().unwrap().keys().collect();
    fields.sort_unstable();
    assert_eq!(fields, ["lost_heads", "memory_store", "problem", "tenant"]);
}

/// Every counter is wrong, a directory has no row and another too many, the store holds
/// more than it was granted, and the head of a memory is no version.
const DRIFT: &str = "UPDATE store SET memory_count = 7, live_bytes = 38, version_count = 0, version_bytes = 44, \
        granted_bytes = 0; \
    UPDATE tenant SET store_count = 5, granted_bytes = 1; \
    UPDATE directory SET files = 9, changed_at = 0; \
    DELETE FROM directory WHERE path = '/d/'; \
    INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
        SELECT tenant_id, store_id, '/nowhere/', '/', 'nowhere', 1, 1, 1 FROM store WHERE deleted_at IS NULL; \
    UPDATE memory SET head_seq = 99 WHERE path = '/d/c.txt'";

/// What [`DRIFT`] did to a store with 3 memories of 39 bytes.
#[track_caller]
fn assert_drift_is_told(tenant: &Tenant, problems: &[Value]) {
    let drifted = |recorded: u64, counted: u64| json!({"recorded": recorded, "counted": counted});
    let of_store = json!({
        "problem": "store_count", "tenant": tenant.id, "memory_store": tenant.store_id,
        "memory_count": drifted(7, 3), "live_bytes": drifted(38, 39), "version_count": drifted(0, 3),
        "version_bytes": drifted(44, 39), "wrong_directories": 3, "lost_heads": 1, "overdrawn_bytes": 39,
        "directories": ["/", "/d/", "/nowhere/"],
    });
    assert_eq!(*of_kind(problems, "store_count"), of_store);
    let of_tenant = json!({
        "problem": "tenant_count", "tenant": tenant.id,
        "store_count": drifted(5, 1), "granted_bytes": drifted(1, 0),
    });
    assert_eq!(*of_kind(problems, "tenant_count"), of_tenant);
}

/// Each damage of search terms leaves a valid row.
#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_damaged_search_terms_and_names_a_damaged_index() {
    let (deployment, tenant, mut server, client) = started(Pair::Sqlite).await;
    let store = Store::of(&client, &tenant);
    let at = |path: &str| format!("memory_id = (SELECT memory_id FROM memory WHERE path = '{path}')");
    let others = format!("terms = (SELECT terms FROM search_doc WHERE {})", at("/sound"));
    let mut made = Vec::new();
    let mut statements = Vec::new();
    for (path, content, damage) in [
        ("/terms", "apples and pears", others.as_str()),
        ("/analyser", "quinces", "analyser = ~analyser"),
        ("/length", "plums", "length = ~length"),
        ("/memory_id", "cherries", "memory_id = x'00000000000000000000000000000007'"),
        ("/sound", "grapes", "length = length"),
    ] {
        made.push(store.create(path, content).await["id"].clone());
        statements.push(format!("UPDATE search_doc SET {damage} WHERE {}", at(path)));
    }
    server.end().await;
    server.beside("verify").await.ok();
    deployment.execute(statements.join("; ")).await;

    let found = problems(&server).await;
    assert_eq!(found.len(), 4, "{found:?}");
    for problem in &found {
        assert_eq!(problem["problem"], "damaged_search_terms", "{problem}");
        assert_eq!(problem["memory_store"], tenant.store_id.to_string());
    }
    let named = |memory: &Value| found.iter().any(|problem| problem["memory"] == *memory);
    assert!(made[..3].iter().all(named), "{found:?}");
    assert!(!made[3..].iter().any(named), "{found:?}");

    let end = "SELECT rootpage * 4096 FROM sqlite_schema WHERE name = 'version_actor'";
    let end = usize::try_from(deployment.number(end).await).unwrap();
    let file = deployment.sqlite_file();
    let mut bytes = std::fs::read(&file).unwrap();
    // The last bytes of the page are a key.
    for byte in &mut bytes[end - 16..end] {
        *byte ^= 0xff;
    }
    std::fs::write(&file, bytes).unwrap();
    let found = problems(&server).await;
    let is_named = found.iter().any(|problem| {
        let says = problem["message"].as_str().unwrap_or_default();
        problem["problem"] == "damaged_index" && says.contains("missing from index version_actor")
    });
    assert!(is_named, "{found:?}");
    // It makes no index where there is none.
    let folder = tempfile::tempdir().unwrap();
    let run = keepsake(&["verify", "--data-dir", folder.path().to_str().unwrap()]).await;
    run.ends(3, "there is no database: ");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

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
    // A job that ran while the clock is wrong would remove data before its time.
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
