//! `keepsake blobs move`

use keepsake_blobs::BlobStore;
use keepsake_engine::{MoveFence, SystemClock};

use crate::prelude::*;

const TEXTS: [(&str, &str); 3] = [("a", "one\n"), ("b", "two\n"), ("c", "three\n")];

async fn write(server: &Server, tenant: &Tenant, texts: &[(&str, &str)]) {
    for (name, text) in texts {
        server.client(tenant).create_file(tenant, &format!("/memories/{name}"), text).await;
    }
}

async fn assert_readable(server: &Server, tenant: &Tenant, texts: &[(&str, &str)]) {
    for (name, text) in texts {
        let lines = server.client(tenant).lines(tenant, &format!("/memories/{name}")).await;
        assert_eq!(lines, [text.trim_end(), ""]);
    }
}

async fn move_content(config: &Path, line: &str) -> Run {
    keepsake(&words(&format!("blobs move --config {} {line}", config.display()))).await
}

/// How many contents were copied, had been copied before, and were removed.
fn counts(report: &Value) -> [u64; 3] {
    ["copied", "present", "removed"].map(|name| report[name].as_u64().unwrap())
}

fn s3_url_in(config: &Path) -> String {
    let config = std::fs::read_to_string(config).unwrap();
    let begin = config.find("s3://").unwrap();
    config[begin..].split('"').next().unwrap().to_owned()
}

on_pairs! { content_moves_into_the_index_and_back: PostgresS3, SqliteS3 }

async fn content_moves_into_the_index_and_back(with_s3: Pair) {
    let (mut deployment, tenant, mut server, _) = started(with_s3).await;
    let config = server.config_file();
    write(&server, &tenant, &TEXTS[..2]).await;
    let (with_index, reason) = if with_s3.has_postgres() {
        (Pair::Postgres, "a server was running")
    } else {
        (Pair::Sqlite, "another process is using")
    };
    move_content(&config, "--to index:").await.ends(1, reason);
    if with_s3.has_postgres() {
        let kept = move_content(&config, "--to index: --keep -o json").await.json();
        assert_eq!(counts(&kept), [2, 0, 0]);
    }
    write(&server, &tenant, &TEXTS[2..]).await;
    server.end().await;

    let moved = move_content(&config, "--to index:").await.ok();
    let told = "3 originals removed\nset blobs.url = \"index:\" before you start a server\n";
    assert!(moved.ends_with(told), "{moved}");
    deployment.pair = with_index;
    let mut moved_server = deployment.start().await;
    assert_readable(&moved_server, &tenant, &TEXTS).await;
    moved_server.end().await;

    let s3_url = s3_url_in(&config);
    let back = move_content(&config, &format!("--from index: --to {s3_url} -o json")).await.json();
    assert_eq!(counts(&back), [3, 0, 3]);
    assert!(server.beside("verify").await.ok().contains("3 blobs of 14 B"));
    let same = move_content(&config, &format!("--to {s3_url}")).await;
    assert!(same.stderr.contains("--from and --to are both s3://"), "{}", same.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_does_not_start_during_a_move() {
    let (deployment, tenant, mut server, _) = started(Pair::PostgresS3).await;
    write(&server, &tenant, &TEXTS).await;
    server.end().await;

    let index = deployment.index().await;
    let fence = MoveFence::put_up(index.clone(), Arc::new(SystemClock)).await.unwrap();
    let config = server.config_file();
    let start = ["serve", "--config", config.to_str().unwrap()];
    keepsake(&start).await.ends(6, "`keepsake blobs move` is removing content from its old place");
    let second = move_content(&config, "--to index:").await;
    second.ends(1, "another `keepsake blobs move` is running");
    second.ends(1, "all originals were kept");
    fence.hold().await.expect("the refused server left a heartbeat");
    fence.take_down(&Value::Null, None).await;
    index.close().await;

    server.restart().await;
    assert_readable(&server, &tenant, &TEXTS).await;
    server.end().await;
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
    let (mut deployment, tenant, mut server, _) = started(Pair::SqliteS3).await;
    write(&server, &tenant, &TEXTS).await;
    server.end().await;
    let config = server.config_file();
    let bucket = deployment.blobs().await;
    let [damaged, missing, sound] = keys(&*bucket).await.try_into().unwrap();
    let contents = [&damaged, &missing].map(|key| bucket.get(key, 100));
    let contents = join_all(contents).await.into_iter().map(|content| content.unwrap().unwrap());
    replace(&*bucket, &damaged, Bytes::from_static(b"other bytes")).await;
    bucket.delete(&missing).await.unwrap();
    let run = move_content(&config, "--to index: -o json").await;
    run.ends(1, "2 contents are missing or damaged, and the originals were kept");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(counts(&report), [1, 0, 0]);
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
    let moved = move_content(&config, "--to index: -o json").await.json();
    assert_eq!((counts(&moved), &moved["foreign"]), ([3, 0, 4], &json!(1)));
    assert_eq!(keys(&*bucket).await, [foreign]);
    // A server with the old configuration logs that the content is elsewhere.
    server.restart().await;
    let said = "content of this index is not at blobs.url";
    soon("the log says so", async || server.output().contains(said)).await;
    server.end().await;
    let mut server = deployment.start().await;
    assert_readable(&server, &tenant, &TEXTS).await;
    assert!(!server.output().contains(said));
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_redacted_between_two_passes_is_removed_from_the_copy() {
    let (mut deployment, tenant, mut server, client) = started(Pair::Sqlite).await;
    write(&server, &tenant, &[("a", "secret\n")]).await;
    let edits = json!([{"old_str": "secret", "new_str": "public"}]);
    client.tool_ok(&tenant, &block("memory_edit", &json!({"path": "/memories/a", "edits": edits}))).await;
    server.end().await;
    deployment.pair = Pair::SqliteS3;
    let with_s3 = deployment.command(&ServerConfig::default());
    let config = with_s3.config_file();
    let line = format!("--from index: --to {} -o json", s3_url_in(&config));
    assert_eq!(counts(&move_content(&config, &format!("{line} --keep")).await.json()), [2, 0, 0]);

    server.restart().await;
    let store = Store::of(&client, &tenant);
    store.redact(&store.history().await[1]["id"]).await;
    server.end().await;
    assert_eq!(counts(&move_content(&config, &line).await.json()), [0, 1, 2]);
    assert_eq!(keys(&*deployment.blobs().await).await.len(), 1);
}
