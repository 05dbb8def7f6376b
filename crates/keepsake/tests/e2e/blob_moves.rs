//! `keepsake blobs move`

use std::sync::Arc;

use keepsake_engine::{MoveFence, SystemClock};
use serde_json::{Value, json};

use crate::support::command::{Run, keepsake};
use crate::support::{Deployment, Pair, Server};

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
        let kept = move_content(&server, &["--to", "index:", "--keep", "-o", "json"])
            .await
            .json();
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
        let lines = moved_server
            .client(&tenant)
            .lines(&tenant, &format!("/memories/{path}.txt"))
            .await;
        assert_eq!(lines, [text, ""]);
    }
    moved_server.end().await;

    let s3_url = url_in(&std::fs::read_to_string(s3_config).unwrap());
    let back = move_content(&server, &["--from", "index:", "--to", &s3_url, "-o", "json"])
        .await
        .json();
    assert_eq!((&back["copied"], &back["removed"]), (&json!(3), &json!(3)));
    let verified = keepsake(&["verify", "--config", server.config_file().to_str().unwrap()]).await;
    assert!(verified.ok().contains("3 blobs of 14 B"));
    let same = move_content(&server, &["--to", &s3_url]).await;
    assert!(
        same.stderr.contains("--from and --to are both s3://"),
        "{}",
        same.stderr
    );
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
    let fence = MoveFence::put_up(index.clone(), Arc::new(SystemClock))
        .await
        .unwrap();
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
    assert!(
        second.stderr.contains("all originals were kept"),
        "{}",
        second.stderr
    );
    fence.hold().await.expect("the refused server left a heartbeat");
    fence.take_down(&Value::Null, None).await;
    index.close().await;

    server.restart().await;
    let lines = server.client(&tenant).lines(&tenant, "/memories/a.txt").await;
    assert_eq!(lines, ["one", ""]);
    server.end().await;
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
