//! Acknowledged writes survive every end of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::{tool_calls, try_send};
use crate::support::{Client, Deployment, Pair, Tenant, eventually};

const WRITERS: usize = 4;
/// Files acknowledged before the crash comes.
const BEFORE_THE_CRASH: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn kill_loses_nothing_acknowledged_on_postgres_and_s3() {
    kill_loses_nothing(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_loses_nothing_acknowledged_on_sqlite() {
    kill_loses_nothing(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_loses_nothing_acknowledged_on_postgres() {
    kill_loses_nothing(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_loses_nothing_acknowledged_on_sqlite_and_s3() {
    kill_loses_nothing(Pair::SqliteS3).await;
}

async fn kill_loses_nothing(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);

    let made = client.post("/v1/memory_stores", &json!({"name": "kept"})).await;
    let made_path = format!("/v1/memory_stores/{}", made.json()["id"].as_str().unwrap());
    let made = client.get(&made_path).await.json();
    for command in [
        json!({"command": "create", "path": "/memories/notes.txt", "file_text": "one\ntwo\n"}),
        json!({"command": "str_replace", "path": "/memories/notes.txt", "old_str": "one", "new_str": "1"}),
        json!({"command": "insert", "path": "/memories/notes.txt", "insert_line": 2, "insert_text": "three"}),
        json!({"command": "create", "path": "/memories/old/a.txt", "file_text": "a"}),
        json!({"command": "create", "path": "/memories/gone/b.txt", "file_text": "b"}),
        json!({"command": "rename", "old_path": "/memories/old", "new_path": "/memories/new"}),
        json!({"command": "delete", "path": "/memories/gone"}),
    ] {
        client.tool_ok(&tenant, &command).await;
    }

    let acknowledged = Arc::new(AtomicUsize::new(0));
    let write = |writer| {
        let acknowledged = Arc::clone(&acknowledged);
        write_until_the_crash(client.clone(), tenant.clone(), writer, acknowledged)
    };
    let writers: Vec<_> = (0..WRITERS).map(write).map(tokio::spawn).collect();
    let enough = || async { acknowledged.load(Ordering::SeqCst) >= BEFORE_THE_CRASH };
    eventually("the writers write", Duration::from_mins(1), enough).await;
    server.kill9().await;
    let mut written = Vec::new();
    for writer in writers {
        written.push(writer.await.unwrap());
    }

    server.restart().await;
    assert_eq!(client.lines(&tenant, "/memories/notes.txt").await, ["1", "two", "three", ""]);
    let view = json!({"command": "view", "path": "/memories"});
    let listing = client.tool_ok(&tenant, &view).await;
    for gone in ["/memories/old", "/memories/gone"] {
        assert!(!listing.contains(gone), "{listing}");
    }
    assert_eq!(client.lines(&tenant, "/memories/new/a.txt").await, ["a"]);
    assert_eq!(client.get(&made_path).await.json(), made);
    for (writer, acknowledged) in written.into_iter().enumerate() {
        // The one under way is there as a whole or not at all, and can be sent again.
        let result = client.tool(&tenant, &block_of(writer, acknowledged)).await;
        assert!(!result.is_error, "{}", result.content);
        for n in 0..=acknowledged {
            let lines = client.lines(&tenant, &path_of(writer, n)).await;
            assert_eq!(lines, text_of(writer, n).split('\n').collect::<Vec<_>>());
        }
    }
    server.end().await;
}

fn path_of(writer: usize, n: usize) -> String {
    format!("/memories/writers/{writer}/{n}.txt")
}

fn text_of(writer: usize, n: usize) -> String {
    format!("{writer} wrote {n}\n").repeat(20)
}

fn block_of(writer: usize, n: usize) -> Value {
    let input = json!({"command": "create", "path": path_of(writer, n), "file_text": text_of(writer, n)});
    json!({"type": "tool_use", "id": format!("toolu_{writer}_{n}"), "name": "memory", "input": input})
}

/// Answers how many files were acknowledged.
async fn write_until_the_crash(
    client: Client,
    tenant: Tenant,
    writer: usize,
    acknowledged: Arc<AtomicUsize>,
) -> usize {
    for n in 0.. {
        let request = client.request(Method::POST, &tool_calls(tenant.store_id)).json(&block_of(writer, n));
        let Ok(answer) = try_send(request).await else {
            return n;
        };
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.tool_result().is_error, "{}", answer.text);
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
    unreachable!("the server dies before the numbers end")
}
