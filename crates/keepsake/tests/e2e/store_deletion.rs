//! A store with many memories is deleted: at once for every
//! reader, in batches for the databases, and to the end whatever dies meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{DrainDeletions, Job, PurgeStores, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::client::send;
use crate::support::{Answer, Client, Deployment, Pair, Tenant, bulk, eventually, secrets};

const DIRECTORIES: u64 = 10;
/// Memories of the many whose blobs are really there.
const BLOBS: u128 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn big_store_is_gone_at_once_and_purged_after_a_kill_on_postgres_and_s3() {
    // Each has an object to remove.
    big_store_is_gone_at_once_and_purged_after_a_kill(Pair::PostgresS3, 5_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn big_store_is_gone_at_once_and_purged_after_a_kill_on_sqlite() {
    big_store_is_gone_at_once_and_purged_after_a_kill(Pair::Sqlite, 100_000).await;
}

async fn big_store_is_gone_at_once_and_purged_after_a_kill(pair: Pair, memories: u64) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment
        .tenant_with(LimitOverrides { memories_per_store: Some(memories), ..LimitOverrides::default() })
        .await;
    bulk::fill(&deployment, &tenant, memories, DIRECTORIES).await;
    let blobs = deployment.blobs().await;
    for number in 1..=BLOBS {
        let key = BlobKey {
            tenant_id: tenant.id,
            store_id: tenant.store_id,
            blob_id: VersionId::from_uuid(Uuid::from_u128(number)),
        };
        blobs.put(&key, Bytes::from_static(b"0123456789")).await.unwrap();
    }

    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let other = client.post("/v1/memory_stores", &json!({"name": "stays"})).await.json();
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    use_in_a_session(&client, &tenant).await;
    // The end writes the events of sessions.
    server.end().await;
    server.restart().await;
    let deleted = send(client.request(Method::DELETE, &store)).await;
    assert_eq!(deleted.json(), json!({"id": tenant.store_id.to_string(), "type": "memory_store_deleted"}));
    delete_with_a_blob_of_a_redacted_version(&client).await;
    assert_is_gone(&client, &store, other["id"].as_str().unwrap()).await;
    server.kill9().await;

    // A worker dies in the middle; nothing of it but what it committed is left.
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let dying = Runtime::new().unwrap();
    // Its connections are made, and die, with the runtime that it runs on.
    let engine = engine_on(&deployment, Arc::clone(&clock)).await;
    dying.spawn(async move { run_once(&engine, PurgeStores).await });
    let is_under_way = async || rows_left(&deployment).await < 2 * memories - memories / 10;
    eventually("the purge gets going", Duration::from_mins(1), is_under_way).await;
    dying.shutdown_background();
    assert!(rows_left(&deployment).await > 0, "it was killed too late to be in the middle");

    // Once its lease has run out, another one goes on where it ended.
    clock.advance(Duration::from_mins(2));
    let engine = engine_on(&deployment, Arc::clone(&clock)).await;
    let purged = run_once(&engine, PurgeStores).await;
    assert_eq!(purged["stores"], 2, "{purged}");
    assert_eq!(rows_left(&deployment).await, 0);
    let database = deployment.database().await;
    let others = database.number("SELECT (SELECT count(*) FROM store) + (SELECT count(*) FROM directory)");
    assert_eq!(others.await, 2, "the other store and its root");
    let of_sessions = "SELECT (SELECT count(*) FROM session_event) + (SELECT count(*) FROM session_resource)";
    assert_eq!(database.number(of_sessions).await, 0);
    database.close().await;
    clock.advance(Duration::from_mins(2));
    let drained = run_once(&engine, DrainDeletions).await;
    assert_eq!(drained["removed"], memories + 1, "{drained}");
    assert_eq!(blobs.list(None, None, 100).await.unwrap(), []);
}

async fn use_in_a_session(client: &Client, tenant: &Tenant) {
    let resource = json!({"type": "memory_store", "memory_store_id": tenant.store_id.to_string()});
    let new = json!({"agent": "a", "environment_id": "e", "resources": [resource]});
    let made = client.post("/v1/sessions", &new).await.json();
    secrets::remember(made["token"].as_str().unwrap(), "a session's token");
    let calls = format!("/v1/sessions/{}/tool_calls", made["id"].as_str().unwrap());
    let view = json!({"command": "view", "path": made["resources"][0]["mount_path"]});
    let called = client.post(&calls, &view).await;
    assert_eq!(called.status, 200, "{}", called.text);
}

/// Deletes a store in which only the version of a rename names the blob, whose id is that
/// of the redacted one.
async fn delete_with_a_blob_of_a_redacted_version(client: &Client) {
    let ok = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    };
    let made = ok(client.post("/v1/memory_stores", &json!({"name": "redacted"})).await);
    let store = format!("/v1/memory_stores/{}", made["id"].as_str().unwrap());
    let new = json!({"path": "/a", "content": "x"});
    let memory = ok(client.post(&format!("{store}/memories"), &new).await);
    let at = format!("{store}/memories/{}", memory["id"].as_str().unwrap());
    ok(client.post(&at, &json!({"path": "/b"})).await);
    ok(send(client.request(Method::DELETE, &at)).await);
    let version = memory["memory_version_id"].as_str().unwrap();
    let redact = format!("{store}/memory_versions/{version}/redact");
    ok(client.post(&redact, &json!({})).await);
    ok(send(client.request(Method::DELETE, &store)).await);
}

async fn assert_is_gone(client: &Client, store: &str, other: &str) {
    for (method, path) in [
        (Method::GET, String::new()),
        (Method::DELETE, String::new()),
        (Method::GET, "/memories".to_owned()),
        (Method::GET, "/memory_versions".to_owned()),
    ] {
        let answer = send(client.request(method, &format!("{store}{path}"))).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
    let new = json!({"path": "/late", "content": "late"});
    let answer = client.post(&format!("{store}/memories"), &new).await;
    assert_eq!(answer.status, 404, "{}", answer.text);
    let listed = client.get("/v1/memory_stores").await.json();
    let ids: Vec<_> = listed["data"].as_array().unwrap().iter().map(|store| &store["id"]).collect();
    assert_eq!(ids, [other]);
}

async fn engine_on(deployment: &Deployment, clock: Arc<ManualClock>) -> Engine {
    let options = EngineOptions { clock, ..EngineOptions::default() };
    Engine::new(deployment.index().await, deployment.object_store().await, options)
}

async fn run_once(engine: &Engine, job: impl Job + 'static) -> Value {
    match engine.jobs.run(Arc::new(job), RunRequest::SCHEDULED, &CancellationToken::new()).await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

/// Memories and versions of the only store that has any.
async fn rows_left(deployment: &Deployment) -> u64 {
    let database = deployment.database().await;
    let rows = database.number("SELECT (SELECT count(*) FROM memory) + (SELECT count(*) FROM version)");
    let rows = u64::try_from(rows.await).unwrap();
    database.close().await;
    rows
}
