//! Many memories: a store of them is deleted at once for every reader, in batches for the
//! databases, and to the end whatever dies meanwhile; a directory of them is one call's work.

use tokio::runtime::Runtime;

use crate::prelude::*;
use crate::support::bulk;
use crate::support::history::Database;

/// Memories of the many whose blobs are really there.
const BLOBS: u128 = 20;
/// Makes each deletion of a version on Postgres count to 8,000, so that a purge is killed
/// long before its end.
const DELETE_SLOWLY: &str = "CREATE FUNCTION delete_slowly() RETURNS trigger LANGUAGE plpgsql AS $$ \
    BEGIN PERFORM count(*) FROM generate_series(1, 8000); RETURN OLD; END $$; \
    CREATE TRIGGER delete_slowly BEFORE DELETE ON version FOR EACH ROW EXECUTE FUNCTION delete_slowly()";

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
    // Of another store, only the version of a rename names the blob, whose id is that of the redacted one.
    let redacted = Store::make(&client, "redacted").await;
    let memory = redacted.create("/a", "x").await;
    redacted.update(&memory, &json!({"path": "/b"})).await;
    redacted.delete(&memory).await;
    redacted.redact(&memory["memory_version_id"]).await;
    ok(&delete(&client, &redacted.path).await);
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
        deployment.execute("DROP FUNCTION delete_slowly CASCADE").await;
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

/// Memories and versions of the only store that has any.
async fn rows_left(deployment: &Deployment) -> u64 {
    let rows = deployment.number("SELECT (SELECT count(*) FROM memory) + (SELECT count(*) FROM version)");
    u64::try_from(rows.await).unwrap()
}

const FILES: u64 = 10_000;
/// Files among them that have content.
const REAL_FILES: u64 = 20;

on_pairs! { ten_thousand_files_are_renamed_and_deleted_in_one_call_each }

async fn ten_thousand_files_are_renamed_and_deleted_in_one_call_each(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant_with(json!({"memories_per_store": FILES})).await;
    bulk::fill(&deployment, &tenant, FILES - REAL_FILES - 1, 1).await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    for n in 0..REAL_FILES {
        let path = format!("/memories/d0/deep/{}/.hidden/{n}.txt", n % 3);
        client.create_file(&tenant, &path, "0123456789").await;
    }
    client.create_file(&tenant, "/memories/beside.txt", "12345").await;
    let one_more = json!({"command": "create", "path": "/memories/one_more", "file_text": ""});
    assert!(client.tool(&tenant, &one_more).await.is_error, "the store is full");

    let moved = json!({"command": "rename", "old_path": "/memories/d0", "new_path": "/memories/a/b/moved"});
    let block = json!({"type": "tool_use", "id": "toolu_move", "name": "memory", "input": moved});
    for _ in 0..2 {
        // The second one changes nothing: it is the same call.
        let told = client.tool_ok(&tenant, &block).await;
        assert_eq!(told, "Successfully renamed /memories/d0 to /memories/a/b/moved");
    }
    let listing = client.tool_ok(&tenant, &json!({"command": "view", "path": "/memories"})).await;
    let sizes = "97.7K\t/memories\n97.6K\t/memories/a/\n97.6K\t/memories/a/b/\n5B\t/memories/beside.txt";
    assert!(listing.ends_with(sizes), "{listing}");
    let moved_path = "/memories/a/b/moved/deep/1/.hidden/4.txt";
    assert_eq!(client.lines(&tenant, moved_path).await, ["0123456789"]);
    assert_counts(&client, &tenant, FILES, bulk::FILE_BYTES * (FILES - 1) + 5).await;

    let delete = json!({"command": "delete", "path": "/memories/a"});
    assert_eq!(client.tool_ok(&tenant, &delete).await, "Successfully deleted /memories/a");
    assert_counts(&client, &tenant, 1, 5).await;
    // The path is free.
    client.create_file(&tenant, "/memories/a", "").await;
    server.end().await;

    let database = deployment.database().await;
    let created = FILES.cast_signed();
    assert_one_transaction(&database, "modified", created + 1).await;
    assert_one_transaction(&database, "deleted", created * 2).await;
    let directories = "SELECT count(*) FROM directory WHERE path <> '/'";
    assert_eq!(database.number(directories).await, 0, "empty directories are left");
    database.close().await;
}

async fn assert_counts(client: &Client, tenant: &Tenant, memories: u64, bytes: u64) {
    let store = Store::of(client, tenant).object().await;
    shows(&store, &json!({"memory_count": memories, "content_bytes": bytes}));
}

/// The versions of one operation on the moved files: one for each file, made at
/// one time, without another between them.
async fn assert_one_transaction(database: &Database, operation: &str, first_seq: i64) {
    let of_call = format!("FROM version WHERE op = '{operation}' AND path LIKE '/a/b/moved/%'");
    let number = async |what: &str| database.number(&format!("SELECT {what} {of_call}")).await;
    let files = FILES.cast_signed() - 1;
    for what in ["count(*)", "count(DISTINCT memory_id)", "count(prev_seq)"] {
        assert_eq!(number(what).await, files, "{what}");
    }
    assert_eq!(number("count(DISTINCT created_at)").await, 1);
    assert_eq!((number("min(seq)").await, number("max(seq)").await), (first_seq, first_seq + files - 1));
}
