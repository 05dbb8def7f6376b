//! Streams of changes and of session events.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keepsake_client::Events;
use keepsake_core::limits::LimitOverrides;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::support::client::send;
use crate::support::{Client, Deployment, Pair, Server, Tenant, eventually};

/// More than any step of a test takes.
const WITHIN: Duration = Duration::from_secs(30);
/// A revoked key ends its streams within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Changes that a reader leaves unread: more bytes than the system keeps for it.
const UNREAD: usize = 6_000;
/// A client that takes nothing is disconnected within this time.
const CUT_OFF_WITHIN: Duration = Duration::from_mins(2);
/// Changes and kills of the test of readers that continue; `KEEPSAKE_TEST_CHANGES`
/// and `KEEPSAKE_TEST_KILLS` replace them.
const CHANGES: u64 = 1_000;
const KILLS: u64 = 5;

fn changes_of(tenant: &Tenant) -> String {
    format!("/v1/memory_stores/{}/changes", tenant.store_id)
}

fn reader(server: &Server, tenant: &Tenant) -> keepsake_client::Client {
    keepsake_client::Client::new(&server.url(), &tenant.key.as_str().into()).unwrap()
}

/// A stream of a tenant's store from the next change on.
async fn follow(server: &Server, tenant: &Tenant) -> Events {
    let store = tenant.store_id.to_string();
    let path = ["memory_stores", store.as_str(), "changes", "stream"];
    let mut events = reader(server, tenant).events(&path, &[], None);
    events.open().await.unwrap();
    events
}

/// The next event, which must come.
async fn next(events: &mut Events) -> (String, Value) {
    let event = tokio::time::timeout(WITHIN, events.next()).await;
    let event = event.expect("no event came").unwrap();
    (event.name, event.data)
}

async fn create(client: &Client, tenant: &Tenant, path: &str) {
    let input = json!({"command": "create", "path": format!("/memories{path}"), "file_text": "text"});
    client.tool_ok(tenant, &input).await;
}

/// Limits of a tenant whose store may have this number of memories.
fn holding(memories: u64) -> LimitOverrides {
    LimitOverrides { memories_per_store: Some(memories), ..LimitOverrides::default() }
}

/// The raw stream at a path.
async fn open(client: &Client, path: &str) -> Response {
    client.request(Method::GET, path).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_listed_in_the_order_of_their_commits() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    for name in ["/a.md", "/b.md"] {
        create(&client, &tenant, name).await;
    }
    let rename = json!({"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/c.md"});
    client.tool_ok(&tenant, &rename).await;
    let delete = json!({"command": "delete", "path": "/memories/b.md"});
    client.tool_ok(&tenant, &delete).await;
    let changes = changes_of(&tenant);
    let first = client.get(&format!("{changes}?limit=3")).await.json();
    let told: Vec<_> = first["data"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(told, [(1, "created", "/a.md"), (2, "created", "/b.md"), (3, "modified", "/c.md")]);
    assert_eq!((&first["has_more"], &first["history_removed"]), (&json!(true), &json!(false)));
    let after = |page: &Value| page["next_after"].as_str().unwrap().to_owned();
    assert_eq!(first["data"][0]["created_by"]["type"], "api_actor");
    let last = client.get(&format!("{changes}?after={}", after(&first))).await.json();
    let told: Vec<_> = last["data"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(told, [(4, "deleted", "/b.md")]);
    assert_eq!(last["has_more"], false);
    // A stream that is continued gets nothing twice, though its address has the first place.
    let store = tenant.store_id.to_string();
    let path = ["memory_stores", store.as_str(), "changes", "stream"];
    let mut events = reader(&server, &tenant).events(&path, &[("after", Some("0"))], Some(after(&first)));
    assert_eq!(next(&mut events).await.1["seq"], 4);
    let end = client.get(&format!("{changes}?after={}", after(&last))).await.json();
    assert_eq!(
        end,
        json!({"data": [], "next_after": after(&last), "has_more": false, "history_removed": false})
    );
    // A number alone, as places once were, says nothing about the history.
    for number in ["4", "3", "9"] {
        let page = client.get(&format!("{changes}?after={number}")).await.json();
        assert_eq!((&page["next_after"], &page["history_removed"]), (&json!(after(&last)), &json!(true)));
    }
    let rule = "`after` must be 0, the `next_after` of a page, or the id of an event of this store";
    for (query, rule) in [
        ("after=-1", rule),
        ("after=9223372036854775808", rule),
        ("after=4.0.x", rule),
        ("limit=0", "`limit` must be 1 to 1000, but is 0"),
        ("limit=1001", "`limit` must be 1 to 1000, but is 1001"),
    ] {
        let refused = client.get(&format!("{changes}?{query}")).await;
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.json()["error"]["message"], rule, "{query}");
    }
}

fn place(change: &Value) -> (i64, &str, &str) {
    let text = |field: &str| change[field].as_str().unwrap();
    (change["seq"].as_i64().unwrap(), text("operation"), text("path"))
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_history_is_reported() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    create(&client, &tenant, "/secret/a.md").await;
    create(&client, &tenant, "/kept.md").await;
    let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": "/secret/"});
    let erased = client.post("/v1/erasures", &erasure).await;
    assert!(erased.status < 300, "{}", erased.text);
    eventually("the history is removed", WITHIN, async || {
        client.get(&changes_of(&tenant)).await.json()["history_removed"] == true
    })
    .await;
    let listed = client.get(&changes_of(&tenant)).await.json();
    assert!(!listed.to_string().contains("secret"), "{listed}");
    let mut stream = open(&client, &format!("{}/stream?after=0", changes_of(&tenant))).await;
    let mut text = String::new();
    while !text.contains("/kept.md") {
        let part = tokio::time::timeout(WITHIN, stream.chunk()).await.unwrap();
        text.push_str(std::str::from_utf8(&part.unwrap().unwrap()).unwrap());
    }
    let (first, _) = text.split_once("\n\n").unwrap();
    assert!(first.contains("event: history_removed") && !first.contains("id:"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_is_told_of_a_removal_and_of_another_history() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    for path in ["/kept.md", "/secret/a.md"] {
        create(&client, &tenant, path).await;
    }
    server.end().await;
    let (index, backup) = (deployment.sqlite_file(), tempfile::NamedTempFile::new().unwrap());
    std::fs::copy(&index, backup.path()).unwrap();
    server.restart().await;
    create(&client, &tenant, "/lost.md").await;
    let changes = changes_of(&tenant);
    let page = async |after: &str| client.get(&format!("{changes}?after={after}")).await.json();
    let is_told = async |after: &str| page(after).await["history_removed"] == true;
    let known = page("0").await["next_after"].as_str().unwrap().to_owned();
    assert!(!is_told(&known).await);

    // Restored, with as many changes again.
    server.end().await;
    std::fs::copy(backup.path(), &index).unwrap();
    server.restart().await;
    create(&client, &tenant, "/other.md").await;
    assert!(is_told(&known).await, "{known}");
    let mut stream = open(&client, &format!("{changes}/stream?after={known}")).await;
    let first = tokio::time::timeout(WITHIN, stream.chunk()).await.unwrap();
    let first = first.unwrap().unwrap();
    assert!(std::str::from_utf8(&first).unwrap().contains("event: history_removed"), "{first:?}");

    // An erasure removes changes that the reader has seen.
    let known = page("0").await["next_after"].as_str().unwrap().to_owned();
    let mut stream = open(&client, &format!("{changes}/stream?after={known}")).await;
    let erasure = json!({"memory_store_id": tenant.store_id, "path_prefix": "/secret/"});
    let erased = client.post("/v1/erasures", &erasure).await;
    assert!(erased.status < 300, "{}", erased.text);
    let mut text = String::new();
    while !text.contains("event: history_removed") {
        let part = tokio::time::timeout(WITHIN, stream.chunk()).await.unwrap();
        text.push_str(std::str::from_utf8(&part.unwrap().unwrap()).unwrap());
    }
    assert!(is_told(&known).await, "{known}");
    let known = page(&known).await["next_after"].as_str().unwrap().to_owned();
    assert!(!is_told(&known).await, "{known}");
}

#[tokio::test(flavor = "multi_thread")]
async fn change_on_another_replica_is_streamed() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let (near, far) = (deployment.start().await, deployment.start().await);
    let client = far.client(&tenant);
    let mut events = follow(&near, &tenant).await;
    for n in 0..5 {
        create(&client, &tenant, &format!("/{n}.md")).await;
        let committed = Instant::now();
        let (name, change) = next(&mut events).await;
        let took = committed.elapsed();
        assert_eq!((name.as_str(), &change["path"]), ("memory_change", &json!(format!("/{n}.md"))));
        println!("heard after {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn continued_stream_has_every_change_once() {
    let from_environment = |name: &str, usual| {
        let given = std::env::var(name).ok();
        given.map_or(usual, |text| text.parse().unwrap())
    };
    let changes = from_environment("KEEPSAKE_TEST_CHANGES", CHANGES);
    let kills = from_environment("KEEPSAKE_TEST_KILLS", KILLS);
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant_with(holding(changes)).await;
    let writer = deployment.start().await;
    let mut read_from = deployment.start().await;
    let mut events = follow(&read_from, &tenant).await;
    let write = tokio::spawn({
        let (client, tenant) = (writer.client(&tenant), tenant.clone());
        async move {
            for n in 0..changes {
                create(&client, &tenant, &format!("/{}/{n}.md", n % 50)).await;
            }
        }
    });
    let mut heard = BTreeSet::new();
    let mut last = 0;
    let mut killed = 0;
    while last < i64::try_from(changes).unwrap() {
        let (name, change) = next(&mut events).await;
        assert_eq!(name, "memory_change", "{change}");
        let seq = change["seq"].as_i64().unwrap();
        assert!(heard.insert(seq), "{seq} twice");
        assert_eq!(seq, last + 1, "after {last}");
        last = seq;
        if killed < kills && heard.len() as u64 >= (killed + 1) * changes / (kills + 1) {
            read_from.kill9().await;
            read_from.restart().await;
            killed += 1;
        }
    }
    write.await.unwrap();
    assert_eq!((heard.len() as u64, killed), (changes, kills));
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_ends_with_its_key() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let made =
        client.post("/v1/api_keys", &json!({"name": "reader", "scopes": ["memory:read"]})).await.json();
    let reader = client.with_key(made["api_key"].as_str().unwrap());
    crate::support::secrets::remember(made["api_key"].as_str().unwrap(), "an API key");
    let mut stream = open(&reader, &format!("{}/stream", changes_of(&tenant))).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["x-accel-buffering"], "no");
    let revoke = format!("/v1/api_keys/{}/revoke", made["id"].as_str().unwrap());
    assert_eq!(client.post(&revoke, &json!({})).await.status, 200);
    let revoked = Instant::now();
    let mut text = String::new();
    while let Some(part) = tokio::time::timeout(WITHIN, stream.chunk()).await.unwrap().unwrap() {
        text.push_str(std::str::from_utf8(&part).unwrap());
    }
    let took = revoked.elapsed();
    assert!(text.contains("event: error") && text.contains("authentication_error"), "{text}");
    assert!(took < ENDS_WITHIN, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_refused_like_their_lists() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (tenant, other) = (deployment.tenant().await, deployment.tenant().await);
    let server = deployment.start().await;
    let client = server.client(&other);
    let session = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": tenant.store_id}]});
    let session = server.client(&tenant).post("/v1/sessions", &session).await.json();
    let session = format!("/v1/sessions/{}/events/stream", session["id"].as_str().unwrap());
    for path in [changes_of(&tenant), format!("{}/stream", changes_of(&tenant)), session] {
        assert_eq!(send(client.request(Method::GET, &path)).await.status, 404, "{path}");
        let bare = send(client.bare(Method::GET, &path)).await;
        assert_eq!(bare.status, 401, "{path}");
    }
    let own = format!("{}/stream", changes_of(&other));
    let misplaced = client.request(Method::GET, &own).header("last-event-id", "x");
    let refused = send(misplaced).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["message"].as_str().unwrap().to_owned()),
        (400, "`last-event-id` must be the id of an event of this stream".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_do_not_count_as_running_requests() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    // More than the tenant's share of running requests would allow.
    let path = format!("{}/stream", changes_of(&tenant));
    let mut streams = Vec::new();
    loop {
        let stream = open(&client, &path).await;
        if stream.status() == 429 {
            let refusal: Value = stream.json().await.unwrap();
            let message = "the tenant has too many open streams on this server: close one";
            assert_eq!(refusal["error"]["message"], message);
            break;
        }
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    assert!(streams.len() >= 200, "{}", streams.len());
    create(&client, &tenant, "/a.md").await;
    for stream in &mut streams {
        let part = tokio::time::timeout(WITHIN, stream.chunk()).await.unwrap();
        let part = part.unwrap().unwrap();
        assert!(std::str::from_utf8(&part).unwrap().contains("/a.md"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_session_are_streamed() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let session = json!({"agent": "a", "environment_id": "e", "resources": [
        {"type": "memory_store", "memory_store_id": tenant.store_id}]});
    let session = client.post("/v1/sessions", &session).await.json();
    let id = session["id"].as_str().unwrap();
    let call = async |path: &str| {
        let input = json!({"command": "view", "path": path});
        let called = client.post(&format!("/v1/sessions/{id}/tool_calls"), &input).await;
        assert_eq!(called.status, 200, "{}", called.text);
    };
    call("/mnt/memory/before").await;
    let path = ["sessions", id, "events", "stream"];
    let mut events = reader(&server, &tenant).events(&path, &[], None);
    events.open().await.unwrap();
    let mut told = Vec::new();
    for n in 0..3 {
        call(&format!("/mnt/memory/{n}")).await;
        let (name, event) = next(&mut events).await;
        assert_eq!((name.as_str(), &event["type"]), ("agent.tool_use", &json!("agent.tool_use")));
        told.push(event);
    }
    let listed = client.get(&format!("/v1/sessions/{id}/events")).await.json();
    assert_eq!(listed["data"].as_array().unwrap()[1..], told);
    // After a break, the following ones come, and those of the 90 seconds before: other
    // replicas write theirs late.
    let first = told[0]["id"].as_str().unwrap().to_owned();
    let mut again = reader(&server, &tenant).events(&path, &[], Some(first.clone()));
    let mut ids = BTreeSet::new();
    while ids.len() < 3 {
        let (_, event) = next(&mut again).await;
        assert_ne!(event["id"], first.as_str());
        assert!(ids.insert(event["id"].as_str().unwrap().to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_is_disconnected() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant_with(holding(UNREAD as u64)).await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let directory = "long".repeat(60);
    let folder = [directory.as_str(); 4].join("/");
    for first in (0..UNREAD).step_by(100) {
        let create = |n: usize| json!({"type": "create", "path": format!("/{folder}/{n}"), "content": ""});
        let operations: Vec<_> = (first..first + 100).map(create).collect();
        let batch = format!("/v1/memory_stores/{}/memories/batch", tenant.store_id);
        let made = client.post(&batch, &json!({"operations": operations})).await;
        assert_eq!(made.status, 200, "{}", made.text);
    }
    let socket = TcpSocket::new_v4().unwrap();
    // Otherwise the system takes all of it for the client.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let address = ([127, 0, 0, 1], server.port()).into();
    let mut socket = socket.connect(address).await.unwrap();
    let request = format!(
        "GET {}/stream?after=0 HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\n\r\n",
        changes_of(&tenant),
        tenant.key
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.read_exact(&mut [0; 12]).await.unwrap();
    // Another reader gets all of it meanwhile.
    let store = tenant.store_id.to_string();
    let path = ["memory_stores", store.as_str(), "changes", "stream"];
    let mut events = reader(&server, &tenant).events(&path, &[("after", Some("0"))], None);
    for n in 1..=UNREAD {
        assert_eq!(next(&mut events).await.1["seq"], n);
    }
    let port = format!(":{:04X}", socket.local_addr().unwrap().port());
    let is_cut_off = async || {
        let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // The server's end of the connection; 01 is established.
        !rows.any(|row| row[2].ends_with(&port) && row[3] == "01")
    };
    eventually("the client is disconnected", CUT_OFF_WITHIN, is_cut_off).await;
}
