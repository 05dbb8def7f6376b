//! `keepsake blobs move`

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::BlobStore;
use keepsake_core::{BlobKey, TenantId, VersionId};
use keepsake_engine::{MoveFence, SystemClock};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::command::{Run, keepsake};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn content_moves_into_postgres_and_back() {
    content_moves_into_the_index_and_back(Pair::PostgresS3, Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_moves_into_sqlite_and_back() {
    content_moves_into_the_index_and_back(Pair::SqliteS3, Pair::Sqlite).await;
}

async fn content_moves_into_the_index_and_back(with_s3: Pair, with_index: Pair) {
    let mut deployment = Deployment::new(with_s3).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    for (path, text) in [("/memories/a.txt", "one\n"), ("/memories/b.txt", "two\n")] {
        let command = json!({"command": "create", "path": path, "file_text": text});
        server.client(&tenant).tool_ok(&tenant, &command).await;
    }
    let refused = move_content(&server, &["--to", "index:"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let (running, locked) = ("a server was running", "another process is using");
    let reason = if with_s3.has_postgres() { running } else { locked };
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    if with_s3.has_postgres() {
        let kept = move_content(&server, &["--to", "index:", "--keep", "-o", "json"]).await.json();
        assert_eq!((&kept["copied"], &kept["removed"]), (&json!(2), &json!(0)));
    }
    let command = json!({"command": "create", "path": "/memories/c.txt", "file_text": "three\n"});
    server.client(&tenant).tool_ok(&tenant, &command).await;
    server.end().await;

    let moved = move_content(&server, &["--to", "index:"]).await.ok();
    assert!(
        moved.ends_with("3 originals removed\nset blobs.url = \"index:\" before you start a server\n"),
        "{moved}"
    );
    let s3_config = server.config_file();
    deployment.pair = with_index;
    let mut moved_server = deployment.start().await;
    for (path, text) in [("a", "one"), ("b", "two"), ("c", "three")] {
        let lines = moved_server.client(&tenant).lines(&tenant, &format!("/memories/{path}.txt")).await;
        assert_eq!(lines, [text, ""]);
    }
    moved_server.end().await;

    let s3_url = url_in(&std::fs::read_to_string(s3_config).unwrap());
    let back = move_content(&server, &["--from", "index:", "--to", &s3_url, "-o", "json"]).await.json();
    assert_eq!((&back["copied"], &back["removed"]), (&json!(3), &json!(3)));
    let verified = keepsake(&["verify", "--config", server.config_file().to_str().unwrap()]).await;
    assert!(verified.ok().contains("3 blobs of 14 B"));
    let same = move_content(&server, &["--to", &s3_url]).await;
    assert!(same.stderr.contains("--from and --to are both s3://"), "{}", same.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_does_not_start_during_a_move() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let command = json!({"command": "create", "path": "/memories/a.txt", "file_text": "one\n"});
    server.client(&tenant).tool_ok(&tenant, &command).await;
    server.end().await;

    let index = deployment.index().await;
    let fence = MoveFence::put_up(index.clone(), Arc::new(SystemClock)).await.unwrap();
    let config = server.config_file();
    let start = ["serve", "--config", config.to_str().unwrap()];
    let refused = keepsake(&start).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    let reason = "`keepsake blobs move` is removing content from its old place";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    let second = move_content(&server, &["--to", "index:"]).await;
    assert_eq!(second.code, Some(1), "{second:?}");
    let reason = "another `keepsake blobs move` is running";
    assert!(second.stderr.contains(reason), "{}", second.stderr);
    assert!(second.stderr.contains("all originals were kept"), "{}", second.stderr);
    fence.hold().await.expect("the refused server left a heartbeat");
    fence.take_down(&Value::Null, None).await;
    index.close().await;

    server.restart().await;
    let lines = server.client(&tenant).lines(&tenant, "/memories/a.txt").await;
    assert_eq!(lines, ["one", ""]);
    server.end().await;
}

async fn write(client: &Client, tenant: &Tenant, path: &str, content: &str) {
    let input = json!({"path": path, "content": content});
    let block = json!({"type": "tool_use", "name": "memory_write", "input": input});
    client.tool_ok(tenant, &block).await;
}

async fn keys(blobs: &dyn BlobStore) -> Vec<BlobKey> {
    let listed = blobs.list(None, None, 100).await.unwrap();
    listed.into_iter().map(|blob| blob.key).collect()
}

/// A damaged content would not be overwritten.
async fn replace(blobs: &dyn BlobStore, key: &BlobKey, bytes: Bytes) {
    blobs.delete(key).await.unwrap();
    blobs.put(key, bytes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_keeps_the_originals_and_leftovers_are_removed() {
    let mut deployment = Deployment::new(Pair::SqliteS3).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let texts = [("/memories/a", "one\n"), ("/memories/b", "two\n"), ("/memories/c", "three\n")];
    for (path, text) in texts {
        write(&server.client(&tenant), &tenant, path, text).await;
    }
    server.end().await;
    let bucket = deployment.blobs().await;
    let [damaged, missing, sound] = keys(&*bucket).await.try_into().unwrap();
    let mut contents = Vec::new();
    for key in [&damaged, &missing] {
        contents.push(bucket.get(key, 100).await.unwrap().unwrap());
    }
    replace(&*bucket, &damaged, Bytes::from_static(b"other bytes")).await;
    bucket.delete(&missing).await.unwrap();
    let run = move_content(&server, &["--to", "index:", "-o", "json"]).await;
    assert_eq!(run.code, Some(1), "{run:?}");
    let told = "2 contents are missing or damaged, and the originals were kept";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["copied"], &report["removed"]), (&json!(1), &json!(0)));
    for (kind, key) in [("damaged_blob", damaged), ("missing_blob", missing)] {
        let problems = report["problems"].as_array().unwrap();
        let problem = problems.iter().find(|problem| problem["problem"] == kind);
        assert_eq!(problem.unwrap()["memory_version"], key.blob_id.to_string());
    }

    // Mended, with a damaged copy, an object of no version and one of another index.
    for (key, content) in [damaged, missing].iter().zip(contents) {
        replace(&*bucket, key, content).await;
    }
    let leftover = BlobKey { blob_id: VersionId::from_uuid(Uuid::from_u128(3)), ..sound };
    let foreign = BlobKey { tenant_id: TenantId::from_uuid(Uuid::from_u128(1)), ..sound };
    for key in [leftover, foreign] {
        bucket.put(&key, Bytes::from_static(b"x")).await.unwrap();
    }
    deployment.pair = Pair::Sqlite;
    let copies = deployment.blobs().await;
    replace(&*copies, &sound, Bytes::from_static(b"x")).await;
    drop(copies);
    let moved = move_content(&server, &["--to", "index:", "-o", "json"]).await.json();
    for (count, expected) in [("copied", 3), ("present", 0), ("removed", 4), ("foreign", 1)] {
        assert_eq!(moved[count], expected, "{count} of {moved}");
    }
    assert_eq!(keys(&*bucket).await, [foreign]);

    // A server with the old configuration logs that the content is elsewhere.
    server.restart().await;
    let said = "content of this index is not at blobs.url";
    eventually("the log says so", Duration::from_secs(10), async || server.output().contains(said)).await;
    server.end().await;
    let mut server = deployment.start().await;
    for (path, text) in texts {
        let lines = server.client(&tenant).lines(&tenant, path).await;
        assert_eq!(lines, [text.trim_end(), ""]);
    }
    assert!(!server.output().contains(said));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_redacted_between_two_passes_is_removed_from_the_copy() {
    let mut deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    for text in ["secret\n", "public\n"] {
        write(&client, &tenant, "/memories/a", text).await;
    }
    server.end().await;
    deployment.pair = Pair::SqliteS3;
    let with_s3 = deployment.command(&ServerConfig::default());
    let config = with_s3.config_file();
    let url = url_in(&std::fs::read_to_string(&config).unwrap());
    let arguments = [
        "blobs",
        "move",
        "--config",
        config.to_str().unwrap(),
        "--from",
        "index:",
        "--to",
        &url,
        "-o",
        "json",
    ];
    let copied = keepsake(&[&arguments[..], &["--keep"]].concat()).await.json();
    assert_eq!((&copied["copied"], &copied["removed"]), (&json!(2), &json!(0)));

    server.restart().await;
    let versions = format!("/v1/memory_stores/{}/memory_versions", tenant.store_id);
    let history = client.get(&versions).await.json();
    let first = history["data"][1]["id"].as_str().unwrap();
    let redacted = client.post(&format!("{versions}/{first}/redact"), &json!({})).await;
    assert_eq!(redacted.status, 200, "{}", redacted.text);
    server.end().await;
    let moved = keepsake(&arguments).await.json();
    for (count, expected) in [("copied", 0), ("present", 1), ("removed", 2)] {
        assert_eq!(moved[count], expected, "{count} of {moved}");
    }
    let bucket = deployment.blobs().await;
    assert_eq!(keys(&*bucket).await.len(), 1);
}

async fn move_content(server: &Server, more: &[&str]) -> Run {
    let config = server.config_file();
    let mut arguments = vec!["blobs", "move", "--config", config.to_str().unwrap()];
    arguments.extend(more);
    keepsake(&arguments).await
}

/// The URL of the object store in a configuration.
fn url_in(config: &str) -> String {
    let begin = config.find("s3://").unwrap();
    config[begin..].split('"').next().unwrap().to_owned()
}
