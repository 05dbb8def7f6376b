//! Acknowledged writes survive every kill of the process, and what it leaves besides is
//! swept. An undo in several commits ends as planned.

use keepsake_engine::{Clock, SystemClock};
use tokio::task::JoinHandle;

use crate::api::undo::tree_of;
use crate::prelude::*;
use crate::support::history::orphans;

/// Kills amid writes, at whatever step they are.
const KILLS_UNDER_LOAD: usize = 3;
const WRITERS: usize = 8;

const VERSIONS: &str = "SELECT count(*) FROM version";
const RECORDED_PARTS: &str = "SELECT count(*) FROM memory_undo_part WHERE is_done";
const UNDOS: &str = "SELECT count(*) FROM memory_undo";
const OPEN_UNDOS: &str = "SELECT count(*) FROM memory_undo WHERE ended_at IS NULL";
/// Ends the connections of a killed server: Postgres does not notice by itself that a waiting client is dead.
const RELEASE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid(); ROLLBACK";
/// Memories of each kind of change.
const EACH: i64 = 375;
/// Memories in one commit of an undo.
const PART: i64 = 500;

on_pairs! { kills_lose_nothing_acknowledged_and_leave_only_sweepable_blobs: PostgresS3, Postgres, Sqlite }

async fn kills_lose_nothing_acknowledged_and_leave_only_sweepable_blobs(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let create = |name: &str, text: &str| json!({"command": "create", "path": format!("/memories/{name}"), "file_text": text});
    for call in [
        create("notes", "one\n"),
        json!({"command": "insert", "path": "/memories/notes", "insert_line": 1, "insert_text": "two"}),
        create("old/a", "a"),
        create("gone/b", "b"),
        json!({"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"}),
        json!({"command": "delete", "path": "/memories/gone"}),
    ] {
        client.tool_ok(&tenant, &call).await;
    }
    let database = deployment.database().await;
    let readers = format!("/v1/memory_stores/{}/readers", tenant.store_id);
    client.lines(&tenant, "/memories/notes").await;
    // The answer comes after a flush.
    let flushed = ok(&client.get(&readers).await);
    assert_eq!(flushed["data"][0]["count"], 1, "{flushed}");
    client.lines(&tenant, "/memories/notes").await;
    let read_by = SystemClock.now().as_micros();
    // The row is there: killed before or after the answer.
    let before = database.number(VERSIONS).await;
    let call = send(&client, &tenant, &create("after", "after"));
    soon("the commit lands", async || database.number(VERSIONS).await > before).await;
    server.kill9().await;
    let _ = call.await;
    server.restart().await;
    // The second read is lost unless another flush wrote it; the answer is not complete through a lost read.
    let left = ok(&client.get(&readers).await);
    assert_eq!(left["data"][0]["first_read_at"], flushed["data"][0]["first_read_at"], "{left}");
    let is_whole = left["data"][0]["count"] == 2;
    assert!(is_whole || micros(&left["complete_through"]) <= read_by, "{left} after {read_by}");
    if pair.has_s3() {
        // The blob is there, and the commit waits for a lock: killed between both.
        let blobs = deployment.blobs().await;
        let count = async || blobs.list(None, None, 100).await.unwrap().len();
        let before = count().await;
        let lock =
            format!("BEGIN; SELECT seq FROM store WHERE tenant_id = '{}' FOR UPDATE", tenant.id.uuid());
        database.execute(lock).await;
        let call = send(&server.client(&tenant), &tenant, &create("between", "x"));
        soon("the blob is put", async || count().await > before).await;
        server.kill9().await;
        database.execute(RELEASE.to_owned()).await;
        assert!(call.await.unwrap().is_err(), "it was never acknowledged");
        server.restart().await;
    }
    // The kills hit any step: a put, a commit, an answer, a removal.
    let mut written = Vec::new();
    for round in 0..KILLS_UNDER_LOAD {
        let write =
            |writer| tokio::spawn(write_until_the_kill(client.clone(), tenant.clone(), round, writer));
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        let before = database.number(VERSIONS).await;
        let shown = async || database.number(VERSIONS).await >= before + 40;
        soon("the writers write", shown).await;
        server.kill9().await;
        for (writer, acknowledged) in writers.into_iter().enumerate() {
            written.push((round, writer, acknowledged.await.unwrap()));
        }
        server.restart().await;
    }
    for (round, writer, acknowledged) in written {
        // The one under way is there as a whole or not at all, and can be sent again.
        client.tool_ok(&tenant, &block_of(round, writer, acknowledged)).await;
        for number in 0..=acknowledged {
            let lines = client.lines(&tenant, &path_of(round, writer, number)).await;
            assert_eq!(lines, text_of(writer, number).split('\n').collect::<Vec<_>>());
        }
    }
    for (name, text) in [("notes", "one\ntwo\n"), ("new/a", "a"), ("after", "after")] {
        let lines = client.lines(&tenant, &format!("/memories/{name}")).await;
        assert_eq!(lines, text.split('\n').collect::<Vec<_>>());
    }
    let listing = client.tool_ok(&tenant, &json!({"command": "view", "path": "/memories"})).await;
    for gone in ["/memories/old", "/memories/gone", "/memories/between"] {
        assert!(!listing.contains(gone), "{listing}");
    }
    server.end().await;

    let left = orphans(&deployment, &tenant, &database).await;
    // The kill between put and commit leaves one; content in the index comes with its row.
    assert_eq!(left.is_empty(), !pair.has_s3(), "{left:?}");
    database.close().await;
    server.beside("verify").await.ok();
    sweep(&deployment, left.len()).await;
    let database = deployment.database().await;
    assert_eq!(orphans(&deployment, &tenant, &database).await, []);
    database.close().await;
    server.beside("verify").await.ok();
}

fn send(client: &Client, tenant: &Tenant, input: &Value) -> JoinHandle<reqwest::Result<Answer>> {
    let request = client.request(Method::POST, &tool_calls(tenant.store_id)).json(input);
    tokio::spawn(try_send(request))
}

fn path_of(round: usize, writer: usize, number: usize) -> String {
    format!("/memories/{round}/{writer}/{number}.txt")
}

fn text_of(writer: usize, number: usize) -> String {
    format!("{writer} wrote {number}\n").repeat(20)
}

fn block_of(round: usize, writer: usize, number: usize) -> Value {
    let path = path_of(round, writer, number);
    let input = json!({"command": "create", "path": path, "file_text": text_of(writer, number)});
    json!({"type": "tool_use", "id": format!("toolu_{round}_{writer}_{number}"), "name": "memory", "input": input})
}

/// Creates new files, and replaces a shared one; answers how many were acknowledged.
async fn write_until_the_kill(client: Client, tenant: Tenant, round: usize, writer: usize) -> usize {
    for number in 0.. {
        let Ok(answer) = send(&client, &tenant, &block_of(round, writer, number)).await.unwrap() else {
            return number;
        };
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.tool_result().is_error, "{}", answer.text);
        let text = format!("{writer} {number}");
        let shared = json!({"command": "create", "path": "/memories/shared", "file_text": text});
        if send(&client, &tenant, &shared).await.unwrap().is_err() {
            return number + 1;
        }
    }
    unreachable!("the server dies before the numbers end")
}

/// Runs the jobs two days on, when every blob is older than a request.
async fn sweep(deployment: &Deployment, expected: usize) {
    let worker = deployment.worker_ahead(Duration::from_hours(48)).await;
    let swept = worker.run(SweepBlobs::default(), RunRequest::manual(false)).await;
    assert_eq!((&swept["condemned"], &swept["missing"]), (&json!(expected), &json!(0)), "{swept}");
    let drained = worker.run(DrainDeletions, RunRequest::manual(false)).await;
    assert_eq!(drained["removed"], expected, "{drained}");
    worker.close().await;
}

on_pairs! { undo_that_is_killed_at_any_moment_ends_as_an_undisturbed_one }

async fn undo_that_is_killed_at_any_moment_ends_as_an_undisturbed_one(pair: Pair) {
    let operator = Operator::new();
    let (deployment, tenant, mut server, client) = started_with(pair, &operator.config).await;
    let (store, database) = (Store::of(&client, &tenant), deployment.database().await);
    let create = |n: i64| json!({"type": "create", "path": format!("/d/{n}"), "content": n.to_string()});
    let made = in_batches(&store, (0..3 * EACH).map(create)).await;
    let (before, begin) = (tree_of(&store).await, database.number(VERSIONS).await);
    let change = |(n, made): (i64, &Value)| match (n / EACH, &made["memory_id"]) {
        (0, id) => json!({"type": "delete", "memory_id": id}),
        (1, id) => json!({"type": "update", "memory_id": id, "path": format!("/elsewhere/{n}")}),
        (_, id) => json!({"type": "update", "memory_id": id, "content": "after"}),
    };
    // Others are made where memories were deleted.
    in_batches(&store, (0..).zip(&made).map(change).chain((0..EACH).map(create))).await;
    let changed = database.number(VERSIONS).await;
    if pair.has_postgres() {
        // No commit is made before the first kill. The record of the undo writes no version, so it does not wait.
        database.execute("BEGIN; LOCK TABLE version IN SHARE MODE".to_owned()).await;
    }
    let (undo, body) = (format!("{}/undo", store.path), json!({"after_seq": begin}));
    let request = client.request(Method::POST, &undo).header("idempotency-key", "undo").json(&body);
    let call = tokio::spawn(try_send(request));
    // Killed before or after the answer.
    soon("the undo is recorded", async || database.number(UNDOS).await > 0).await;
    server.kill9().await;
    let _ = call.await;
    let mut kills = 1;
    while database.number(OPEN_UNDOS).await > 0 {
        if pair.has_postgres() {
            database.execute(RELEASE.to_owned()).await;
        }
        database.execute("UPDATE memory_undo SET lease_until = 0".to_owned()).await;
        database.execute("UPDATE job SET owner = NULL WHERE name = 'undo'".to_owned()).await;
        let (versions, recorded) = (database.number(VERSIONS).await, database.number(RECORDED_PARTS).await);
        // The first part has the memories that are skipped: it is recorded from the beginning.
        let is_recorded = versions - changed == PART * (recorded - 1);
        let (step, count) = if is_recorded { (VERSIONS, versions) } else { (RECORDED_PARTS, recorded) };
        if is_recorded && pair.has_postgres() {
            // The record of the next part waits, so the kill comes between its commit and its record.
            let parts = format!("SELECT part FROM memory_undo_part WHERE tenant_id = '{}'", tenant.id.uuid());
            database.execute(format!("BEGIN; {parts} FOR UPDATE")).await;
        }
        server.restart().await;
        // It is refused if the schedule was faster.
        let run = operator.send(Method::POST, "/admin/v1/jobs/undo/run", None).await;
        assert!(matches!(run.status, 202 | 409), "{}", run.text);
        let goes_on = async || database.number(step).await > count || database.number(OPEN_UNDOS).await == 0;
        soon("the job continues the undo", goes_on).await;
        server.kill9().await;
        kills += 1;
    }
    // On SQLite, all parts may be made before the first kill is seen.
    assert!(kills > 1 || !pair.has_postgres(), "the undo ended before the first kill");
    server.restart().await;
    let done = ok(&client.post_patiently(&undo, &body, "undo").await);
    let counts = json!({"restored": EACH, "deleted": EACH, "recreated": EACH, "renamed": EACH, "skipped": 0});
    shows(&done, &json!({"status": "done", "left": 0, "counts": counts}));
    assert_eq!(tree_of(&store).await, before);
    // So each memory was changed once, by one undo.
    assert_eq!(database.number(VERSIONS).await, changed + 4 * EACH);
    assert_eq!(database.number(UNDOS).await, 1);
    server.end().await;
    database.close().await;
    server.beside("verify").await.ok();
}

async fn in_batches(store: &Store, operations: impl Iterator<Item = Value>) -> Vec<Value> {
    let (path, mut results) = (format!("{}/batch?memories=false", store.memories()), Vec::new());
    for part in operations.collect::<Vec<_>>().chunks(500) {
        let key = Uuid::new_v4().to_string();
        let made = ok(&store.client.post_patiently(&path, &json!({"operations": part}), &key).await);
        results.extend(made["data"].as_array().unwrap().clone());
    }
    results
}
