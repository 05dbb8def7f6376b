//! A directory of ten thousand files is one call's work.

use crate::prelude::*;
use crate::support::bulk;
use crate::support::history::Database;

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
