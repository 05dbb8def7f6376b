//! Backends that are wrongly set up, full or silent: the errors that clients and
//! operators get, and recovery without a restart.

use std::time::{Duration, Instant};

use bytes::Bytes;
use keepsake_testkit::{FaultProxy, s3_options};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::support::{Store, ok, page_of, refused, strings, text};
use crate::support::client::send;
use crate::support::command::keepsake;
use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Client, Deployment, Pair, Server, eventually, secrets};

/// Within which everything works again once a fault is over.
const BACK_WITHIN: Duration = Duration::from_secs(15);

async fn ready(client: &Client) -> Answer {
    send(client.bare(Method::GET, "/readyz")).await
}

/// What `/readyz` says of the index and the blobs becomes this.
async fn says(client: &Client, index: &str, blobs: &str) {
    let expected = json!({"index": index, "blobs": blobs, "upkeep": "ok"});
    eventually("/readyz says so", BACK_WITHIN, async || {
        let probe = ready(client).await;
        probe.status == 200 && probe.json() == expected
    })
    .await;
}

/// Creates a memory by the API and by the tool.
async fn create_both_ways(store: &Store, name: &str, content: &str) -> [Answer; 2] {
    let path = format!("/memories/{name}");
    let input = json!({"command": "create", "path": path, "file_text": content});
    [store.try_create(&format!("/{name}"), content).await, store.client.call(&store.id, &input).await]
}

#[track_caller]
fn retry_after(answer: &Answer) {
    let seconds: u8 = answer.header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds} seconds");
}

/// An S3 server that answers every request with one error; answers its address.
async fn s3_that_refuses(status: &'static str, code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 16 * 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

fn real_s3() -> String {
    let endpoint = s3_options("").settings.endpoint.unwrap();
    endpoint.rsplit('/').next().unwrap().to_owned()
}

fn behind(proxy: &FaultProxy) -> ServerConfig {
    ServerConfig { endpoint: Some(format!("http://{}", proxy.address())), ..ServerConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_named_and_work_without_a_restart_once_corrected() {
    let named = "credentials are refused by its object store";
    corrected_without_a_restart("403 Forbidden", "SignatureDoesNotMatch", "access_denied", named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_bucket_is_named_and_works_without_a_restart_once_made() {
    let named = "settings do not fit its object store";
    corrected_without_a_restart("404 Not Found", "NoSuchBucket", "misconfigured", named).await;
}

async fn corrected_without_a_restart(status: &'static str, code: &'static str, word: &str, named: &str) {
    let proxy = FaultProxy::start(&s3_that_refuses(status, code).await).await;
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start_with(&behind(&proxy)).await;
    let client = server.client(&tenant);
    let store = Store::new(&client, &tenant.store_id.to_string());

    let is_logged = async || {
        let output = server.output();
        output.contains("the server may not use its blob store (blobs.url)") && output.contains(code)
    };
    eventually("the log says so", Duration::from_secs(10), is_logged).await;
    let probe = ready(&client).await;
    assert_eq!(probe.status, 200);
    let said = json!({"index": "ok", "blobs": word, "upkeep": "ok"});
    assert_eq!(probe.json(), said);
    for answer in create_both_ways(&store, "a", "one").await {
        let error = refused(&answer, 503, "overloaded_error");
        for part in [named, "the server's operator"] {
            assert!(text(&error["message"]).contains(part), "{error}");
        }
        retry_after(&answer);
    }
    assert_eq!(store.paths().await, [""; 0]);

    proxy.set_upstream(&real_s3());
    proxy.reset_connections();
    eventually("a write is taken", BACK_WITHIN, async || store.try_create("/a", "one").await.status == 200)
        .await;
    says(&client, "ok", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_object_store_fails_uncached_calls_with_503_soon() {
    let proxy = FaultProxy::start(&real_s3()).await;
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start_with(&behind(&proxy)).await;
    let other = deployment.start().await;
    let store = Store::new(&server.client(&tenant), &tenant.store_id.to_string());
    let client = &store.client;
    let cached = store.create("/cached", "one word").await;
    let elsewhere = store.seen_by(&other.client(&tenant));
    let uncached = elsewhere.create("/uncached", "two").await;
    let uncached_path = store.memory(&uncached);
    let search = format!("{}/search?query=word", store.path);
    ok(&client.get(&search).await);

    proxy.silence_all();
    let began_at = Instant::now();
    let (reads, writes) = tokio::join!(
        futures::future::join_all((0..4).map(|_| client.get(&uncached_path))),
        futures::future::join_all(["/w1", "/w2", "/w3", "/w4"].map(|path| store.try_create(path, "x"))),
    );
    // 5 seconds, and some for a machine that is busy.
    let took = began_at.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    for answer in reads.into_iter().chain(writes) {
        refused(&answer, 503, "overloaded_error");
        retry_after(&answer);
    }
    assert_eq!(store.read(&cached).await["content"], "one word");
    assert_eq!(store.paths().await, ["/cached", "/uncached"]);
    ok(&client.get(&search).await);
    let probe = ready(client).await;
    let said = json!({"index": "ok", "blobs": "unavailable", "upkeep": "ok"});
    assert_eq!((probe.status, probe.json()), (200, said));

    proxy.heal().await;
    eventually("a write is taken", BACK_WITHIN, async || store.try_create("/new", "x").await.status == 200)
        .await;
    for number in 0..20 {
        store.create(&format!("/many/{number}"), "x").await;
    }
    assert_eq!(store.read(&uncached).await["content"], "two");
}

/// Limits the size of files that a process may write, as a full disk would; files
/// that are there stay readable.
async fn limit_files(server: &Server, max_bytes: &str) {
    let pid = server.pid().unwrap().to_string();
    let limit = format!("--fsize={max_bytes}:");
    let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status().await;
    assert!(status.unwrap().success(), "prlimit of util-linux is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_507_for_writes_and_reads_continue() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let store = Store::new(&client, &tenant.store_id.to_string());
    let memory = store.create("/a", "one word").await;

    limit_files(&server, "2000").await;
    let outcome = "may or may not have been made";
    for content in ["x".repeat(3_000), "x".to_owned()] {
        for answer in create_both_ways(&store, "b", &content).await {
            let error = refused(&answer, 507, "overloaded_error");
            assert!(text(&error["message"]).contains(outcome), "{error}");
            assert_eq!(answer.header("x-should-retry"), "false");
        }
    }
    assert_eq!(store.read(&memory).await["content"], "one word");
    assert_eq!(store.paths().await, ["/a"]);
    ok(&client.get(&format!("{}/search?query=word", store.path)).await);
    says(&client, "disk_full", "ok").await;

    limit_files(&server, "unlimited").await;
    let made = store.create("/b", &"x".repeat(3_000)).await;
    assert_eq!(store.read(&made).await["content"], "x".repeat(3_000));
    says(&client, "ok", "ok").await;
    assert_eq!(store.paths().await, ["/a", "/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_or_missing_content_is_never_served_on_postgres_and_s3() {
    damaged_or_missing_content_is_never_served(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_or_missing_content_is_never_served_on_sqlite() {
    damaged_or_missing_content_is_never_served(Pair::Sqlite).await;
}

async fn damaged_or_missing_content_is_never_served(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let store = Store::new(&server.client(&tenant), &tenant.store_id.to_string());
    let damaged = store.create("/damaged", "zebra one").await;
    let missing = store.create("/missing", "zebra three").await;
    store.create("/whole", "zebra eleven").await;
    server.end().await;
    let blobs = deployment.blobs().await;
    let listed = blobs.list(Some(tenant.id), None, 10).await.unwrap();
    let of_size = |size: u64| listed.iter().find(|blob| blob.size_bytes == size).unwrap().key;
    let changed = of_size(damaged["content_size_bytes"].as_u64().unwrap());
    for key in [changed, of_size(missing["content_size_bytes"].as_u64().unwrap())] {
        blobs.delete(&key).await.unwrap();
    }
    blobs.put(&changed, Bytes::from_static(b"zebra 0ne")).await.unwrap();
    drop(blobs);

    // Nothing is cached.
    server.restart().await;
    let store = store.seen_by(&server.client(&tenant));
    for memory in [&damaged, &missing] {
        let path = format!("/memories{}", text(&memory["path"]));
        let insert = json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "x"});
        let view = json!({"command": "view", "path": path});
        for answer in [
            store.client.get(&store.memory(memory)).await,
            store.client.get(&store.memory(memory)).await,
            store.client.call(&store.id, &view).await,
            store.client.call(&store.id, &insert).await,
        ] {
            refused(&answer, 500, "api_error");
            assert!(!answer.text.contains("zebra"), "{}", answer.text);
        }
    }
    // The hits with content are shown, and no empty page comes before them.
    for limit in [1, 10] {
        let search = format!("{}/search?query=zebra&limit={limit}", store.path);
        let (hits, next) = page_of(&store.client.get(&search).await);
        assert_eq!(strings(&hits, "path"), ["/whole"]);
        assert_eq!(next, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_of_postgres_is_507_for_writes_and_reads_continue() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let store = Store::new(&client, &tenant.store_id.to_string());
    let memory = store.create("/a", "one word").await;
    // What Postgres answers when it cannot extend a table's file.
    let fill = "CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
        CREATE TRIGGER disk_is_full BEFORE INSERT ON version EXECUTE FUNCTION disk_is_full(); \
        CREATE TRIGGER disk_is_full BEFORE INSERT ON replica EXECUTE FUNCTION disk_is_full()";
    let database = deployment.database().await;
    database.execute(fill.to_owned()).await;

    let error = refused(&store.try_create("/b", "x").await, 507, "overloaded_error");
    assert!(text(&error["message"]).contains("nothing was changed"), "{error}");
    assert_eq!(store.read(&memory).await["content"], "one word");
    assert_eq!(store.paths().await, ["/a"]);
    says(&client, "disk_full", "ok").await;

    database.execute("DROP FUNCTION disk_is_full CASCADE".to_owned()).await;
    database.close().await;
    store.create("/b", "x").await;
    says(&client, "ok", "ok").await;
}

/// What `keepsake config check --connect` says of each step.
fn steps(stdout: &str) -> Vec<String> {
    let is_step = |line: &&str| line.starts_with("index.url  ") || line.starts_with("blobs.url  ");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    stdout.lines().filter(is_step).map(words).collect()
}

const ALL_OK: [&str; 6] = [
    "index.url connect ok -",
    "blobs.url connect ok -",
    "blobs.url write ok -",
    "blobs.url read ok -",
    "blobs.url list ok -",
    "blobs.url delete ok -",
];

#[tokio::test(flavor = "multi_thread")]
async fn config_check_connects_on_postgres_and_s3() {
    config_check_connects(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn config_check_connects_on_sqlite() {
    config_check_connects(Pair::Sqlite).await;
}

async fn config_check_connects(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let check = async |config: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keepsake.toml");
        std::fs::write(&file, config.replace("{port}", "0")).unwrap();
        let file = file.display().to_string();
        let run = keepsake(&["config", "check", "--connect", "--config", &file]).await;
        secrets::assert_none_in(&run.stdout, "keepsake config check --connect");
        secrets::assert_none_in(&run.stderr, "keepsake config check --connect");
        run
    };
    let config = deployment.config(&ServerConfig::default());
    let all_ok = if pair.has_s3() { &ALL_OK[..] } else { &ALL_OK[..1] };
    let run = check(&config).await;
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(steps(&run.stdout), all_ok);
    // Beside a server too, and nothing is left behind.
    let mut server = deployment.start().await;
    assert_eq!(check(&config).await.code, Some(0));
    server.end().await;
    assert_eq!(deployment.blobs().await.list(None, None, 10).await.unwrap(), []);

    if pair.has_s3() {
        let broken = config.replace("secret_access_key = \"", "secret_access_key = \"not-it-");
        let run = check(&broken).await;
        assert_eq!(run.code, Some(1));
        let said = steps(&run.stdout);
        assert_eq!(said[0], ALL_OK[0]);
        assert!(said[1].starts_with("blobs.url connect failed "), "{said:?}");
        let is_well = |step: &String| step.starts_with("blobs.url") && step.ends_with(" ok -");
        assert!(!said.iter().any(is_well), "{said:?}");
    }

    let broken = if pair.has_postgres() {
        config.replace(&deployment.index_url(), "postgres://u:p@127.0.0.1:1/none")
    } else {
        std::fs::write(deployment.sqlite_file(), "x".repeat(5_000)).unwrap();
        config.clone()
    };
    let run = check(&broken).await;
    assert_eq!(run.code, Some(1));
    let said = steps(&run.stdout);
    assert!(said[0].starts_with("index.url connect failed "), "{said:?}");
    assert_eq!(said[1..], all_ok[1..]);
}
