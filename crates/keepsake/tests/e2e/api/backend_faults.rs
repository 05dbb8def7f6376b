//! Backends that are wrongly set up, full or silent: the errors that clients and
//! operators get, and recovery without a restart.

use bytes::Bytes;
use keepsake_testkit::{FaultProxy, s3_options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::console::browser::Browser;
use crate::prelude::*;

/// Within which everything works again once a fault is over.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// What `/readyz` says of the index and the blobs becomes this.
async fn is_ready(client: &Client, index: &str, blobs: &str) {
    let expected = json!({"index": index, "blobs": blobs, "upkeep": "ok"});
    eventually("/readyz says so", BACK_WITHIN, async || {
        let probe = send(client.bare(Method::GET, "/readyz")).await;
        probe.status == 200 && probe.json() == expected
    })
    .await;
}

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
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
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

async fn recovers(store: &Store) {
    let is_taken = async || store.try_create("/back", "x").await.status == 200;
    eventually("a write is taken", BACK_WITHIN, is_taken).await;
    is_ready(&store.client, "ok", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_of_s3_are_named_and_corrected_without_a_restart() {
    for (status, code, word, named) in [
        ("403 Forbidden", "SignatureDoesNotMatch", "access_denied", "credentials are refused by its object"),
        ("404 Not Found", "NoSuchBucket", "misconfigured", "settings do not fit its object store"),
    ] {
        let proxy = FaultProxy::start(&s3_that_refuses(status, code).await).await;
        let (_deployment, tenant, server, client) = started_with(Pair::PostgresS3, &behind(&proxy)).await;
        let store = Store::of(&client, &tenant);
        let is_logged = async || {
            let output = server.output();
            output.contains("the server may not use its blob store (blobs.url)") && output.contains(code)
        };
        soon("the log says so", is_logged).await;
        is_ready(&client, "ok", word).await;
        for answer in create_both_ways(&store, "a", "one").await {
            let error = refused(&answer, 503, "overloaded_error");
            says(text(&error["message"]), &[named, "the server's operator"]);
            retry_after(&answer);
        }
        assert_eq!(store.paths().await, [""; 0]);
        proxy.set_upstream(&real_s3());
        proxy.reset_connections();
        recovers(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_object_store_fails_only_calls_that_need_it_and_soon() {
    let proxy = FaultProxy::start(&real_s3()).await;
    let (deployment, tenant, _server, client) = started_with(Pair::PostgresS3, &behind(&proxy)).await;
    let (client, store) = (&client, Store::of(&client, &tenant));
    let cached = store.create("/cached", "one word").await;
    let search = format!("{}/search?query=word", store.path);
    ok(&client.get(&search).await);
    // This server has cached nothing that the other server writes.
    let other = deployment.start().await;
    let elsewhere = store.seen_by(&other.client(&tenant));
    let memory = elsewhere.create("/a", "one").await;
    let edited = elsewhere.update(&memory, &json!({"content": "two"})).await;
    let doomed = elsewhere.create("/doomed", "three").await;
    let (at, version) = (store.memory(&memory), store.version(&memory["memory_version_id"]));

    proxy.silence_all();
    let began_at = Instant::now();
    let answers = tokio::join!(
        client.get(&at),
        client.get(&version),
        store.try_create("/w1", "x"),
        store.try_create("/w2", "x"),
        store.try_create("/w3", "x"),
    );
    // 5 seconds, and some for a machine that is busy.
    let took = began_at.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let view = json!({"command": "view", "path": "/memories/a"});
    let [memories, versions] = [store.memories(), store.versions()].map(|list| format!("{list}?view=full"));
    let content = json!({"content": "four"});
    let more = tokio::join!(
        client.get(&memories),
        client.get(&versions),
        store.try_update(&memory, &content),
        client.call(&store.id, &view),
    );
    for answer in <[Answer; 5]>::from(answers).iter().chain(&<[Answer; 4]>::from(more)) {
        refused(answer, 503, "overloaded_error");
        retry_after(answer);
    }
    // Other refusals come first.
    invalid(&store.try_create("/bad//path", "x").await, "path");
    is_ready(client, "ok", "unavailable").await;

    assert_eq!(store.read(&cached).await["content"], "one word");
    assert_eq!(store.basic(&memory).await["content_sha256"], edited["content_sha256"]);
    ok(&client.get(&search).await);
    let made = ok(&client.post(STORES, &json!({"name": "made"})).await);
    ok(&delete(client, &format!("{STORES}/{}", text(&made["id"]))).await);
    store.update(&memory, &json!({"path": "/moved"})).await;
    store.delete(&doomed).await;
    // The blob goes when the object store can be reached.
    let redacted = store.redact(&memory["memory_version_id"]).await;
    assert!(redacted["content_sha256"].is_null(), "{redacted}");
    assert_eq!(store.paths().await, ["/cached", "/moved"]);

    proxy.heal().await;
    recovers(&store).await;
    assert_eq!(store.read(&memory).await["content"], "two");
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
    let (_deployment, tenant, server, client) = started(Pair::Sqlite).await;
    let store = Store::of(&client, &tenant);
    let memory = store.create("/a", "one word").await;
    limit_files(&server, "2000").await;
    for content in ["x".repeat(3_000), "x".to_owned()] {
        for answer in create_both_ways(&store, "b", &content).await {
            refused_for(&answer, 507, "overloaded_error", "may or may not have been made");
        }
    }
    assert_eq!(store.read(&memory).await["content"], "one word");
    assert_eq!(store.paths().await, ["/a"]);
    ok(&store.client.get(&format!("{}/search?query=word", store.path)).await);
    is_ready(&store.client, "disk_full", "ok").await;
    limit_files(&server, "unlimited").await;
    let made = store.create("/b", &"x".repeat(3_000)).await;
    assert_eq!(store.read(&made).await["content"], "x".repeat(3_000));
    recovers(&store).await;
}

on_pairs! { damaged_or_missing_content_is_never_served }

async fn damaged_or_missing_content_is_never_served(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let store = Store::of(&client, &tenant);
    let damaged = store.create("/damaged", "zebra one").await;
    let missing = store.create("/missing", "x").await;
    let missing = store.update(&missing, &json!({"content": "zebra three"})).await;
    let whole = store.create("/whole", "gone").await;
    store.update(&whole, &json!({"content": "zebra eleven"})).await;
    server.end().await;
    let blobs = deployment.blobs().await;
    let listed = blobs.list(Some(tenant.id), None, 10).await.unwrap();
    let of_size = |size| listed.iter().find(|blob| blob.size_bytes == size).unwrap().key;
    let [changed, removed, older] = [9, 11, 4].map(of_size);
    for key in [changed, removed, older] {
        blobs.delete(&key).await.unwrap();
    }
    blobs.put(&changed, Bytes::from_static(b"zebra 0ne")).await.unwrap();
    drop(blobs);
    // Nothing is cached.
    server.restart().await;
    let store = store.seen_by(&server.client(&tenant));
    for (memory, how) in [(&damaged, "damaged"), (&missing, "missing")] {
        let (at, path) = (store.memory(memory), format!("/memories/{how}"));
        for _ in 0..2 {
            let answer = store.client.get(&at).await;
            let error = refused(&answer, 410, &format!("content_{how}"));
            assert!(!answer.text.contains("zebra"), "{}", answer.text);
            assert_eq!(error["memory_version_id"], memory["memory_version_id"]);
            let named = (&error["path"], answer.header("x-should-retry"));
            assert_eq!(named, (&memory["path"], "false"));
        }
        let insert = json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "x"});
        for input in [json!({"command": "view", "path": path}), insert] {
            let answer = store.client.call(&store.id, &input).await;
            let result = answer.tool_result();
            let is_named = result.content.contains(&format!("{path} is {how}"));
            assert!(result.is_error && is_named, "{}", answer.text);
        }
    }
    // Lists and searches still answer, and mark the memories whose content is lost.
    let lost = |items: &[Value]| {
        let lost = items.iter().filter(|item| !item["content_error"].is_null());
        let mut lost: Vec<_> = lost.map(|it| json!([it["path"], it["content_error"]["type"]])).collect();
        lost.sort_by_key(Value::to_string);
        lost
    };
    let (memories, _) = page_of(&store.client.get(&format!("{}?view=full", store.memories())).await);
    let both = json!([["/damaged", "content_damaged"], ["/missing", "content_missing"]]);
    assert_eq!((json!(lost(&memories)), &memories[2]["content"]), (both.clone(), &json!("zebra eleven")));
    let (versions, _) = page_of(&store.client.get(&format!("{}?view=full", store.versions())).await);
    let mut three = both.clone();
    three.as_array_mut().unwrap().push(json!(["/whole", "content_missing"]));
    assert_eq!(json!(lost(&versions)), three);
    let (hits, _) = page_of(&store.client.get(&format!("{}/search?query=zebra", store.path)).await);
    let of_missing = hits.iter().find(|hit| hit["path"] == "/missing").unwrap();
    assert_eq!((hits.len(), text(&of_missing["snippet"]).contains("content_missing")), (3, true));
    let mut browser = Browser::signed_in(&server.url(), &tenant.key).await;
    let path = format!("/console/stores/{}/archive?versions=true", store.id);
    let download = browser.request(Method::GET, &path).send().await.unwrap().bytes().await.unwrap();
    let edit = format!("/console/stores/{}/memories/{}/edit", store.id, text(&missing["id"]));
    let form = browser.open(&edit).await;
    form.has("is missing");
    let base = form.field("base_sha256");
    readers_of_a_whole_store_leave_lost_content_out(&server, &tenant, &download).await;
    // Writing the same content repairs both memories.
    let same = json!({"path": "/memories/damaged", "content": "zebra one"});
    let same = json!({"type": "tool_use", "id": "toolu_1", "name": "memory_write", "input": same});
    assert!(!store.client.call(&store.id, &same).await.tool_result().is_error);
    assert_eq!(store.read(&damaged).await["content"], "zebra one");
    let same = json!({"operations": [{"type": "upsert", "path": "/missing", "content": "zebra three"}]});
    assert_eq!(ok(&store.batch(&same).await)["data"][0]["status"], "updated");
    assert_eq!(store.read(&missing).await["content"], "zebra three");
    browser.act(&form, &edit, &[("content", "by a person"), ("base_sha256", base.as_str())]).await;
    assert_eq!(store.read(&missing).await["content"], "by a person");
}

async fn readers_of_a_whole_store_leave_lost_content_out(server: &Server, tenant: &Tenant, download: &[u8]) {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let variables = server.variables(tenant, home.path());
    let run = async |line: &str| keepsake_with(&words(line), &borrowed(&variables)).await;
    let (archive, saved) = (at("archive"), at("saved.tar.zst"));
    let names_both = |run: &Run, code: i32| {
        run.ends(code, "the content of `/missing`");
        run.ends(code, "the content of `/damaged`");
    };
    names_both(&run(&format!("export {archive} --versions")).await, 1);
    std::fs::write(&saved, download).unwrap();
    for (archive, copy) in [(&archive, "one"), (&saved, "two")] {
        names_both(&run(&format!("import {archive}")).await, 0);
        run(&format!("store create {copy}")).await.ok();
        let imported = run(&format!("import {archive} --versions --store {copy}")).await.ok();
        assert!(imported.starts_with("1 created"), "{imported}");
    }
    let shown = run("memory cat missing none whole").await;
    shown.ends(3, "the content of `/missing`");
    assert_eq!(shown.stdout, "zebra eleven");
    let folder = at("folder");
    names_both(&run(&format!("sync {folder}")).await, 1);
    assert_eq!(std::fs::read_to_string(format!("{folder}/whole")).unwrap(), "zebra eleven");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_of_postgres_is_507_for_writes_and_reads_continue() {
    let (deployment, tenant, _server, client) = started(Pair::Postgres).await;
    let store = Store::of(&client, &tenant);
    let memory = store.create("/a", "one word").await;
    // What Postgres answers when it cannot extend a table's file.
    let fill = "CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
        CREATE TRIGGER disk_is_full BEFORE INSERT ON version EXECUTE FUNCTION disk_is_full(); \
        CREATE TRIGGER disk_is_full BEFORE INSERT ON replica EXECUTE FUNCTION disk_is_full()";
    let database = deployment.database().await;
    database.execute(fill.to_owned()).await;
    refused_for(&store.try_create("/b", "x").await, 507, "overloaded_error", "nothing was changed");
    assert_eq!(store.read(&memory).await["content"], "one word");
    is_ready(&client, "disk_full", "ok").await;

    database.execute("DROP FUNCTION disk_is_full CASCADE".to_owned()).await;
    database.close().await;
    recovers(&store).await;
    assert_eq!(store.paths().await, ["/a", "/back"]);
}

/// How `keepsake config check --connect` ends, and what it says of each step.
async fn check(config: &str) -> (Option<i32>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keepsake.toml");
    std::fs::write(&file, config.replace("{port}", "0")).unwrap();
    let file = file.display().to_string();
    let run = keepsake(&["config", "check", "--connect", "--config", &file]).await;
    for printed in [&run.stdout, &run.stderr] {
        secrets::assert_none_in(printed, "keepsake config check --connect");
    }
    let is_step = |line: &&str| line.starts_with("index.url  ") || line.starts_with("blobs.url  ");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    (run.code, run.stdout.lines().filter(is_step).map(words).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn config_check_names_the_step_that_fails() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let config = deployment.config(&ServerConfig::default());
    // Beside a server, and nothing is left behind.
    let mut server = deployment.start().await;
    let of_blobs = "connect write read list delete".split(' ').map(|step| format!("blobs.url {step} ok -"));
    let index_is_ok = "index.url connect ok -".to_owned();
    let all_ok: Vec<_> = std::iter::once(index_is_ok.clone()).chain(of_blobs).collect();
    assert_eq!(check(&config).await, (Some(0), all_ok.clone()));
    server.end().await;
    assert_eq!(deployment.blobs().await.list(None, None, 10).await.unwrap(), []);
    let broken = config.replace("secret_access_key = \"", "secret_access_key = \"not-it-");
    let (code, said) = check(&broken).await;
    assert_eq!((code, &said[0]), (Some(1), &index_is_ok));
    assert!(said[1].starts_with("blobs.url connect failed "), "{said:?}");
    assert!(!said[1..].iter().any(|step| step.ends_with(" ok -")), "{said:?}");
    let broken = config.replace(&deployment.index_url(), "postgres://u:p@127.0.0.1:1/none");
    let (code, said) = check(&broken).await;
    assert!(code == Some(1) && said[0].starts_with("index.url connect failed "), "{said:?}");
    assert_eq!(said[1..], all_ok[1..]);
    let deployment = Deployment::new(Pair::Sqlite).await;
    let config = deployment.config(&ServerConfig::default());
    assert_eq!(check(&config).await, (Some(0), vec![index_is_ok]));
    std::fs::write(deployment.sqlite_file(), "x".repeat(5_000)).unwrap();
    let (code, said) = check(&config).await;
    assert!(code == Some(1) && said[0].starts_with("index.url connect failed "), "{said:?}");
}
