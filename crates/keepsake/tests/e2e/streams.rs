//! Streams of changes and of session events.

use keepsake_client::Events;
use reqwest::Response;
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::prelude::*;

const WITHIN: Duration = Duration::from_secs(30);
/// A revoked key ends its streams within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// Changes that a reader leaves unread: more bytes than the system keeps for it.
const UNREAD: usize = 6_000;
/// A client that takes nothing is disconnected within this time.
const CUT_OFF_WITHIN: Duration = Duration::from_mins(2);
/// Changes that a reader hears, and kills of its server meanwhile.
const CHANGES: usize = 1_000;
const KILLS: usize = 5;

fn changes_of(tenant: &Tenant) -> String {
    format!("/v1/memory_stores/{}/changes", tenant.store_id)
}

fn reader(server: &Server, tenant: &Tenant) -> keepsake_client::Client {
    keepsake_client::Client::new(&server.url(), &tenant.key.as_str().into()).unwrap()
}

fn changes_after(server: &Server, tenant: &Tenant, after: Option<&str>, last: Option<String>) -> Events {
    let store = tenant.store_id.to_string();
    let path = ["memory_stores", store.as_str(), "changes", "stream"];
    reader(server, tenant).events(&path, &[("after", after)], last)
}

async fn next(events: &mut Events) -> (String, Value) {
    let event = timeout(WITHIN, events.next()).await.expect("no event came").unwrap();
    (event.name, event.data)
}

async fn open(client: &Client, path: &str) -> Response {
    client.request(Method::GET, path).send().await.unwrap()
}

pub(crate) async fn text_until(stream: &mut Response, part: &str) -> String {
    let mut text = String::new();
    while !text.contains(part) {
        let chunk = timeout(WITHIN, stream.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("{part} did not come: {text}")).unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream ended")).unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_listed_in_the_order_of_their_commits() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    let store = Store::of(&client, &tenant);
    let [a, b] = [store.create("/a.md", "text").await, store.create("/b.md", "text").await];
    store.update(&a, &json!({"path": "/c.md"})).await;
    store.delete(&b).await;
    let list = async |query: &str| client.get(&format!("{}?{query}", changes_of(&tenant))).await.json();
    let told = |page: &Value| {
        let change = |it: &Value| json!([it["seq"], it["operation"], it["path"]]);
        page["data"].as_array().unwrap().iter().map(change).collect::<Vec<_>>()
    };
    let after = |page: &Value| text(&page["next_after"]).to_owned();
    let first = list("limit=3").await;
    let expected =
        [json!([1, "created", "/a.md"]), json!([2, "created", "/b.md"]), json!([3, "modified", "/c.md"])];
    assert_eq!(told(&first), expected);
    assert_eq!((&first["has_more"], &first["history_removed"]), (&json!(true), &json!(false)));
    assert_eq!(first["data"][0]["created_by"]["type"], "api_actor");
    let rest = list(&format!("after={}", after(&first))).await;
    assert_eq!((told(&rest), &rest["has_more"]), (vec![json!([4, "deleted", "/b.md"])], &json!(false)));
    let end = list(&format!("after={}", after(&rest))).await;
    let same = after(&rest);
    assert_eq!(end, json!({"data": [], "next_after": same, "has_more": false, "history_removed": false}));
    // A stream that is continued gets nothing twice, though its address has the first place.
    let mut events = changes_after(&server, &tenant, Some("0"), Some(after(&first)));
    assert_eq!(next(&mut events).await.1["seq"], 4);
    // An empty place is none.
    let mut events = changes_after(&server, &tenant, Some(&after(&first)), Some(String::new()));
    assert_eq!(next(&mut events).await.1["seq"], 4);
    // A number alone, as places once were, says nothing about the history.
    for number in ["4", "3", "9"] {
        let page = list(&format!("after={number}")).await;
        assert_eq!((after(&page), &page["history_removed"]), (after(&rest), &json!(true)));
    }
    for (query, last_id, field) in [
        ("?after=-1", "", "after"),
        ("?after=9223372036854775808", "", "after"),
        ("?after=4.0.x", "", "after"),
        ("?limit=0", "", "limit"),
        ("?limit=1001", "", "limit"),
        ("/stream", "x", "last-event-id"),
    ] {
        let request = client.request(Method::GET, &format!("{}{query}", changes_of(&tenant)));
        invalid(&send(request.header("last-event-id", last_id)).await, &format!("`{field}`"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_is_told_of_a_removal_and_of_another_history() {
    let (deployment, mut server, tenant, client) = on_sqlite().await;
    let store = Store::of(&client, &tenant);
    for path in ["/kept.md", "/secret/a.md"] {
        store.create(path, "text").await;
    }
    server.end().await;
    let (index, backup) = (deployment.sqlite_file(), tempfile::NamedTempFile::new().unwrap());
    std::fs::copy(&index, backup.path()).unwrap();
    server.restart().await;
    store.create("/lost.md", "text").await;
    let changes = changes_of(&tenant);
    let page = async |after: &str| client.get(&format!("{changes}?after={after}")).await.json();
    let is_told = async |after: &str| page(after).await["history_removed"] == true;
    let end_after = async |after: &str| page(after).await["next_after"].as_str().unwrap().to_owned();
    let stream = async |after: &str| open(&client, &format!("{changes}/stream?after={after}")).await;
    let known = end_after("0").await;
    assert!(!is_told(&known).await);
    // Restored, with as many changes again.
    server.end().await;
    std::fs::copy(backup.path(), &index).unwrap();
    server.restart().await;
    let other = store.create("/other.md", "text").await;
    assert!(is_told(&known).await, "{known}");
    text_until(&mut stream(&known).await, "event: history_removed").await;
    // A redaction removes something, though a deletion has no content.
    store.delete(&other).await;
    let known = end_after("0").await;
    store.redact(&store.history().await[0]["id"]).await;
    assert!(is_told(&known).await, "{known}");
    // An erasure removes changes that the reader has seen.
    let known = end_after(&known).await;
    let mut open_before = stream(&known).await;
    let erasure = json!({"memory_store_id": store.id, "path_prefix": "/secret/"});
    ok(&client.post("/v1/erasures", &erasure).await);
    text_until(&mut open_before, "event: history_removed").await;
    assert!(is_told(&known).await, "{known}");
    let known = end_after(&known).await;
    assert!(!is_told(&known).await, "{known}");
    let text = text_until(&mut stream("0").await, "/kept.md").await;
    let (first, _) = text.split_once("\n\n").unwrap();
    assert!(first.contains("event: history_removed") && !first.contains("id:"), "{text}");
    let listed = page("0").await.to_string();
    assert!(!text.contains("secret") && !listed.contains("secret"), "{text} {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn continued_stream_has_every_change_of_another_replica_once() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant_with(json!({"memories_per_store": CHANGES})).await;
    let writer = deployment.start().await;
    let mut read_from = deployment.start().await;
    let mut events = changes_after(&read_from, &tenant, None, None);
    events.open().await.unwrap();
    let store = Store::of(&writer.client(&tenant), &tenant);
    let write = tokio::spawn(async move {
        for n in 0..CHANGES {
            store.create(&format!("/{}/{n}.md", n % 50), "text").await;
        }
    });
    let mut kills = 0;
    for seq in 1..=CHANGES {
        let (name, change) = next(&mut events).await;
        assert_eq!((name.as_str(), &change["seq"]), ("memory_change", &json!(seq)), "{change}");
        if kills < KILLS && seq >= (kills + 1) * CHANGES / (KILLS + 1) {
            read_from.kill9().await;
            read_from.restart().await;
            kills += 1;
        }
    }
    write.await.unwrap();
    assert_eq!(kills, KILLS);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_key_and_do_not_count_as_running_requests() {
    let (_deployment, _server, tenant, client) = on_sqlite().await;
    let path = format!("{}/stream", changes_of(&tenant));
    let (key, key_path) = client.new_key(&["memory:read"]).await;
    let mut stream = open(&client.with_key(&key), &path).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.headers()["x-accel-buffering"], "no");
    client.revoke(&key_path).await;
    let end = timeout(ENDS_WITHIN, async {
        let end = text_until(&mut stream, "authentication_error").await;
        while stream.chunk().await.unwrap().is_some() {}
        end
    });
    let end = end.await.expect("the stream ends in time");
    assert!(end.contains("event: error"), "{end}");

    let mut streams = Vec::new();
    let refused = loop {
        let stream = open(&client, &path).await;
        if stream.status() != 200 {
            break stream;
        }
        streams.push(stream);
    };
    assert_eq!(refused.status(), 429);
    // More than the tenant's share of running requests would allow.
    assert!(streams.len() >= 200, "{}", streams.len());
    Store::of(&client, &tenant).create("/a.md", "text").await;
    for stream in &mut streams {
        text_until(stream, "/a.md").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_session_are_streamed() {
    let (_deployment, server, tenant, client) = on_sqlite().await;
    let (session, _) = open_session(&client, &[tenant.store_id]).await;
    let id = session.rsplit('/').next().unwrap();
    let call = async |path: &str| view_in(&client, &session, path).await;
    let path = ["sessions", id, "events", "stream"];
    let events_after = |last| reader(&server, &tenant).events(&path, &[], last);
    call("/mnt/memory/before").await;
    let mut events = events_after(None);
    events.open().await.unwrap();
    let mut told = Vec::new();
    for n in 0..3 {
        call(&format!("/mnt/memory/{n}")).await;
        let (name, event) = next(&mut events).await;
        assert_eq!((name.as_str(), &event["type"]), ("agent.tool_use", &json!("agent.tool_use")));
        told.push(event);
    }
    let listed = client.get(&format!("{session}/events")).await.json();
    assert_eq!(listed["data"].as_array().unwrap()[1..], told);
    // After a break, the following ones come, and those of the 90 seconds before: other
    // replicas write theirs late.
    let first = told[0]["id"].as_str().unwrap();
    let mut again = events_after(Some(first.to_owned()));
    let mut ids = BTreeSet::new();
    while ids.len() < 3 {
        let (_, event) = next(&mut again).await;
        assert_ne!(event["id"], first);
        assert!(ids.insert(event["id"].as_str().unwrap().to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_is_disconnected() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant_with(json!({"memories_per_store": UNREAD})).await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let folder = ["long".repeat(60).as_str(); 4].join("/");
    for first in (0..UNREAD).step_by(100) {
        let create = |n: usize| json!({"type": "create", "path": format!("/{folder}/{n}"), "content": ""});
        let operations: Vec<_> = (first..first + 100).map(create).collect();
        ok(&Store::of(&client, &tenant).batch(&json!({"operations": operations})).await);
    }
    let socket = TcpSocket::new_v4().unwrap();
    // Otherwise the system takes all of it for the client.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut socket = socket.connect(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let (changes, key) = (changes_of(&tenant), &tenant.key);
    let request = format!("GET {changes}/stream?after=0 HTTP/1.1\r\nHost: x\r\nx-api-key: {key}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.read_exact(&mut [0; 12]).await.unwrap();
    // Another reader gets all of it meanwhile.
    let mut events = changes_after(&server, &tenant, Some("0"), None);
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
