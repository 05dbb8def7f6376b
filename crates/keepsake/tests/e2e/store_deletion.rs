//! A store with many memories is deleted: at once for every
//! reader, in batches for the databases, and to the end whatever dies meanwhile.

use bytes::Bytes;
use keepsake_core::{BlobKey, VersionId};
use keepsake_engine::jobs::{DrainDeletions, PurgeStores, RunRequest};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::prelude::*;
use crate::support::bulk;

/// Memories of the many whose blobs are really there.
const BLOBS: u128 = 20;
/// Makes each deletion of a version on Postgres count to 8,000, so that a purge is killed
/// long before its end.
const DELETE_SLOWLY: &str = "CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ \
    BEGIN PERFORM count(*) FROM generate_series(1, 8000); RETURN OLD; END $$; \
    CREATE TRIGGER delete_slowly BEFORE DELETE ON version FOR EACH ROW EXECUTE FUNCTION delete_slowly()";
const DELETE_QUICKLY: &str = "DROP FUNCTION delete_slowly CASCADE";

on_pairs! { big_store_is_gone_at_once_and_purged_after_a_kill }

async fn big_store_is_gone_at_once_and_purged_after_a_kill(pair: Pair) {
    // In an object store, each has an object to remove.
    let memories = if pair.has_s3() { 5_000 } else { 100_000 };
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant_with(json!({"memories_per_store": memories})).await;
    bulk::fill(&deployment, &tenant, memories, 10).await;
    let blobs = deployment.blobs().await;
    for number in 1..=BLOBS {
        let blob_id = VersionId::from_uuid(Uuid::from_u128(number));
        let key = BlobKey { tenant_id: tenant.id, store_id: tenant.store_id, blob_id };
        blobs.put(&key, Bytes::from_static(b"0123456789")).await.unwrap();
    }

    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let other = Store::make(&client, "stays").await;
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    let (session, mounts) = open_session(&client, &[tenant.store_id]).await;
    view_in(&client, &session, &mounts[0]).await;
    // The end writes the events of sessions.
    server.end().await;
    server.restart().await;
    let deleted = ok(&delete(&client, &store).await);
    assert_eq!(deleted, json!({"id": tenant.store_id.to_string(), "type": "memory_store_deleted"}));
    delete_with_a_blob_of_a_redacted_version(&client).await;
    for path in ["", "/memories", "/memory_versions"] {
        assert_eq!(client.get(&format!("{store}{path}")).await.status, 404, "{path}");
    }
    let late = json!({"path": "/late", "content": "late"});
    assert_eq!(client.post(&format!("{store}/memories"), &late).await.status, 404);
    let (listed, _) = page_of(&client.get("/v1/memory_stores").await);
    assert_eq!(strings(&listed, "id"), [other.id]);
    server.kill9().await;

    // A worker dies in the middle; nothing of it but what it committed is left. It works
    // in a slot in which the server did not.
    if pair.has_s3() {
        deployment.execute(DELETE_SLOWLY).await;
    }
    let dying = Runtime::new().unwrap();
    let worker = deployment.worker_ahead(Duration::from_mins(2)).await;
    dying.spawn(async move { worker.run(PurgeStores, RunRequest::SCHEDULED).await });
    let is_under_way = async || rows_left(&deployment).await < 2 * memories - memories / 10;
    soon("the purge gets going", is_under_way).await;
    dying.shutdown_background();
    assert!(rows_left(&deployment).await > 0, "it was killed too late to be in the middle");
    if pair.has_s3() {
        deployment.execute(DELETE_QUICKLY).await;
    }

    // Once its lease has run out, another one goes on where it ended.
    let worker = deployment.worker_ahead(Duration::from_mins(5)).await;
    let purged = worker.run(PurgeStores, RunRequest::SCHEDULED).await;
    assert_eq!(purged["stores"], 2, "{purged}");
    assert_eq!(rows_left(&deployment).await, 0);
    let others = deployment.number("SELECT (SELECT count(*) FROM store) + (SELECT count(*) FROM directory)");
    assert_eq!(others.await, 2, "the other store and its root");
    let of_sessions = "SELECT (SELECT count(*) FROM session_event) + (SELECT count(*) FROM session_resource)";
    assert_eq!(deployment.number(of_sessions).await, 0);
    worker.clock.advance(Duration::from_mins(2));
    let drained = worker.run(DrainDeletions, RunRequest::SCHEDULED).await;
    assert_eq!(drained["removed"], memories + 1, "{drained}");
    assert_eq!(blobs.list(None, None, 100).await.unwrap(), []);
}

/// Deletes a store in which only the version of a rename names the blob, whose id is that
/// of the redacted one.
async fn delete_with_a_blob_of_a_redacted_version(client: &Client) {
    let store = Store::make(client, "redacted").await;
    let memory = store.create("/a", "x").await;
    store.update(&memory, &json!({"path": "/b"})).await;
    store.delete(&memory).await;
    store.redact(&memory["memory_version_id"]).await;
    ok(&delete(client, &store.path).await);
}

/// Memories and versions of the only store that has any.
async fn rows_left(deployment: &Deployment) -> u64 {
    let rows = deployment.number("SELECT (SELECT count(*) FROM memory) + (SELECT count(*) FROM version)");
    u64::try_from(rows.await).unwrap()
}
