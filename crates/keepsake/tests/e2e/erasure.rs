//! Erased content remains in no table, file, log or object.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, ContentHash, VersionId};
use keepsake_engine::jobs::{Erase, RunOutcome, RunRequest};
use keepsake_engine::{Clock, Engine, EngineOptions, ManualClock, SystemClock};
use keepsake_index::MAX_OPEN_ERASURES;
use keepsake_testkit::{FaultProxy, s3_options};
use memchr::memmem;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::script::{PG_DUMP, from_environment, run};
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant, eventually, secrets};

/// A mark in every text to erase, and in no other text.
const MARK: &str = "qzx-erase-me";
/// A mark in every text to keep.
const KEPT: &str = "kept-for-good";

#[tokio::test(flavor = "multi_thread")]
async fn erased_memories_are_nowhere_on_postgres_and_s3() {
    erased_memories_are_nowhere(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_memories_are_nowhere_on_postgres() {
    erased_memories_are_nowhere(Pair::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_memories_are_nowhere_on_sqlite() {
    erased_memories_are_nowhere(Pair::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_stores_are_nowhere_on_postgres_and_s3() {
    erased_stores_are_nowhere(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_stores_are_nowhere_on_sqlite() {
    erased_stores_are_nowhere(Pair::Sqlite).await;
}

/// Rewriting the file blocks all writers, so it is not done for each of them.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_erasures_rewrite_the_file_together() {
    const ERASURES: usize = 16;
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let (config, operator, token) = ServerConfig::operated();
    let server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    for number in 0..ERASURES {
        let path = format!("/memories/{number}/a.md");
        let create = json!({"command": "create", "path": path, "file_text": "text"});
        client.tool_ok(&tenant, &create).await;
    }
    let erase = (0..ERASURES).map(|number| {
        let selector = json!({"memory_store_id": tenant.store_id, "path_prefix": format!("/{number}/")});
        let client = &client;
        async move { ok(&client.post("/v1/erasures", &selector).await) }
    });
    let erasures = join_all(erase).await;
    eventually("all erasures have ended", Duration::from_mins(1), async || {
        let ids = erasures.iter().map(|erasure| erasure["id"].as_str().unwrap());
        let states = ids.map(async |id| client.get(&format!("/v1/erasures/{id}")).await.json());
        let states = join_all(states).await;
        states.iter().all(|erasure| erasure["state"] == "done")
    })
    .await;
    let metrics = Client::new(&operator, "");
    let metrics = send(metrics.bare(Method::GET, "/metrics").bearer_auth(&token)).await;
    let rewritten = metrics.text.lines().find_map(|line| {
        let value = line.strip_prefix(
            "keepsake_index_call_duration_seconds_count{call=\"overwrite_deleted\",outcome=\"ok\"} ",
        )?;
        value.parse::<usize>().ok()
    });
    let rewritten = rewritten.expect("the call has a metric");
    assert!((1..=ERASURES / 2).contains(&rewritten), "{rewritten}");
}

/// An erasure is not done while another one has content of its store to erase.
#[tokio::test(flavor = "multi_thread")]
async fn erasures_are_bounded_and_wait_for_each_other_while_the_object_store_is_stalled() {
    let endpoint = s3_options("").settings.endpoint.unwrap();
    let proxy = FaultProxy::start(endpoint.rsplit('/').next().unwrap()).await;
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let (tenant, crowd) = (deployment.tenant().await, deployment.tenant().await);
    let config =
        ServerConfig { endpoint: Some(format!("http://{}", proxy.address())), ..ServerConfig::default() };
    // Its jobs would work on the same erasures.
    let gateway = deployment.command(&config).env("KEEPSAKE_ROLE", "gateway");
    let server = Server::start(gateway).await;
    let (client, many) = (server.client(&tenant), server.client(&crowd));
    let create = json!({"command": "create", "path": "/memories/p/a.md", "file_text": "text"});
    client.tool_ok(&tenant, &create).await;
    let below = |store: &str, prefix: &str| json!({"memory_store_id": store, "path_prefix": prefix});

    proxy.stall();
    let own = tenant.store_id.to_string();
    let first = ok(&client.post("/v1/erasures", &below(&own, "/p/")).await);
    let are_erased = async || shown(&client, &first).await["removed"]["memory_versions"] == 1;
    eventually("the rows are erased", Duration::from_mins(1), are_erased).await;
    let theirs = crowd.store_id.to_string();
    let ask = |key: String, prefix: &str| {
        let request = many.request(Method::POST, "/v1/erasures");
        send(request.json(&below(&theirs, prefix)).header("idempotency-key", key))
    };
    let limit = usize::try_from(MAX_OPEN_ERASURES).unwrap();
    let answers = join_all((0..limit + 12).map(|number| ask(format!("key {number}"), "/p/"))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) =
        answers.iter().enumerate().partition(|(_, answer)| answer.status == 200);
    assert_eq!((accepted.len(), refused.len()), (limit, 12));
    for (_, answer) in refused {
        assert_eq!(answer.status, 429, "{}", answer.text);
        assert_eq!(answer.header("retry-after"), "30");
    }
    // The same call again is answered, another one with its key is refused.
    let (number, made) = accepted[0];
    let key = format!("key {number}");
    assert_eq!(ok(&ask(key.clone(), "/p/").await)["id"], made.json()["id"]);
    let other_body = ask(key, "/q/").await;
    assert_eq!(other_body.status, 400, "{}", other_body.text);

    // A server whose object store works finds nothing left to erase.
    let there = deployment.start().await;
    let there = there.client(&tenant);
    let second = ok(&there.post("/v1/erasures", &below(&own, "/p/")).await);
    let elsewhere = ok(&there.post("/v1/memory_stores", &json!({"name": "other"})).await);
    let elsewhere = below(elsewhere["id"].as_str().unwrap(), "/p/");
    let third = ok(&there.post("/v1/erasures", &elsewhere).await);
    // It works on one after the other.
    receipt(&there, &third).await;
    assert_eq!(shown(&there, &second).await["state"], "running");
    let blobs = deployment.blobs().await;
    assert_eq!(blobs.list(None, None, 10).await.unwrap().len(), 1);

    proxy.heal().await;
    assert_eq!(receipt(&client, &first).await["removed"]["blobs"], 1);
    assert_eq!(blobs.list(None, None, 10).await.unwrap(), []);
    run_job(&deployment).await;
    receipt(&there, &second).await;
    let has_room = async || ask("another key".to_owned(), "/p/").await.status == 200;
    eventually("others are done", Duration::from_mins(3), has_room).await;
}

async fn shown(client: &Client, erasure: &Value) -> Value {
    let path = format!("/v1/erasures/{}", erasure["id"].as_str().unwrap());
    ok(&client.get(&path).await)
}

/// Runs the job some minutes on, when no worker holds an erasure.
async fn run_job(deployment: &Deployment) {
    let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_mins(5))));
    let options = EngineOptions { clock, ..EngineOptions::default() };
    let index = deployment.index().await;
    let engine = Engine::new(index.clone(), deployment.object_store().await, options);
    let stopping = CancellationToken::new();
    let ran = engine.jobs.run(Arc::new(Erase), RunRequest::SCHEDULED, &stopping).await;
    assert!(matches!(ran, Ok(RunOutcome::Ran(_))), "{ran:?}");
    index.close().await;
}

/// The hashes of sent content, which the search looks for in addition to the marks.
#[derive(Debug, Default)]
struct Sought(Vec<ContentHash>);

impl Sought {
    fn remember(&mut self, text: &str) -> String {
        self.0.push(ContentHash::of(text.as_bytes()));
        text.to_owned()
    }

    /// How often something of it is in some bytes; a dump has content as hexadecimal
    /// digits.
    fn count_in(&self, bytes: &[u8]) -> usize {
        let hex = self.0.iter().map(|hash| hash.to_string().into_bytes());
        let raw = self.0.iter().map(|hash| hash.as_bytes().to_vec());
        let digits = MARK.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes());
        let needles = hex.chain(raw).chain([MARK.as_bytes().to_vec(), digits.collect()]);
        needles.map(|needle| occurrences(bytes, &needle)).sum()
    }
}

fn occurrences(bytes: &[u8], needle: &[u8]) -> usize {
    memmem::find_iter(bytes, needle).count()
}

/// A tenant's store and operations on it.
struct Place<'a> {
    client: &'a Client,
    store: String,
    sought: Sought,
    requests: u32,
}

impl Place<'_> {
    /// Posts with an idempotency key, and remembers the hash of the body.
    async fn post(&mut self, path: &str, body: &Value) -> Value {
        self.requests += 1;
        let body = self.sought.remember(&body.to_string());
        let key = format!("key-{}", self.requests);
        let request = self
            .client
            .request(Method::POST, &format!("/v1{path}"))
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body);
        ok(&send(request).await)
    }

    async fn create(&mut self, path: &str, content: &str) -> String {
        let content = self.sought.remember(content);
        let memories = format!("/memory_stores/{}/memories", self.store);
        let made = self.post(&memories, &json!({"path": path, "content": content})).await;
        made["id"].as_str().unwrap().to_owned()
    }

    async fn update(&mut self, memory: &str, mut change: Value) -> Value {
        if let Some(content) = change["content"].as_str() {
            change["content"] = self.sought.remember(content).into();
        }
        let path = format!("/memory_stores/{}/memories/{memory}", self.store);
        self.post(&path, &change).await
    }

    async fn delete(&self, memory: &str) {
        let path = format!("/v1/memory_stores/{}/memories/{memory}", self.store);
        ok(&send(self.client.request(Method::DELETE, &path)).await);
    }

    async fn tool(&self, id: &str, input: Value) {
        let call = json!({"type": "tool_use", "id": id, "name": "memory", "input": input});
        let answer = self.client.call(&self.store, &call).await;
        assert!(!answer.tool_result().is_error, "{}", answer.text);
    }
}

fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// Waits for the receipt.
async fn receipt(client: &Client, erasure: &Value) -> Value {
    let path = format!("/v1/erasures/{}", erasure["id"].as_str().unwrap());
    let is_done = async || ok(&client.get(&path).await)["state"] == "done";
    eventually("the erasure is done", Duration::from_mins(3), is_done).await;
    let receipt = client.get(&path).await;
    assert!(!receipt.text.contains(MARK), "{}", receipt.text);
    ok(&receipt)
}

/// Writes every kind of data about a person in a directory.
async fn live(place: &mut Place<'_>) {
    let path = |name: &str| format!("/people/{MARK}/{name}");
    let text = |name: &str| format!("{MARK} {name}\nand more of it");
    // Old versions, and a first one that was redacted.
    let edited = place.create(&path("edited"), &text("one")).await;
    for number in 0..5 {
        let content = text(&format!("edit {number}"));
        place.update(&edited, json!({"content": content})).await;
    }
    let versions = format!("/memory_stores/{}/memory_versions", place.store);
    let history = ok(&place.client.get(&format!("/v1{versions}?memory_id={edited}")).await);
    let first = history["data"].as_array().unwrap().last().unwrap()["id"].clone();
    place.post(&format!("{versions}/{}/redact", first.as_str().unwrap()), &json!({})).await;
    // Moved out, and in, and out again; deleted; brought back.
    let moved = place.create(&path("moved"), &text("moved")).await;
    place.update(&moved, json!({"path": format!("/out/{MARK}")})).await;
    let passing = place.create("/before", &text("passing")).await;
    place.update(&passing, json!({"path": path("passing/by")})).await;
    place.update(&passing, json!({"path": "/after", "content": text("after")})).await;
    let deleted = place.create(&path(".hidden/deleted"), &text("deleted")).await;
    place.delete(&deleted).await;
    // By the tool, as calls that may be sent again.
    let at = format!("/memories/people/{MARK}/tool.md");
    place.tool("toolu_1", json!({"command": "create", "path": at, "file_text": text("tool")})).await;
    place
        .tool(
            "toolu_2",
            json!({"command": "str_replace", "path": at, "old_str": "tool", "new_str": "replaced"}),
        )
        .await;
    let to = format!("/memories/people/{MARK}/sub/tool.md");
    place.tool("toolu_3", json!({"command": "rename", "old_path": at, "new_path": to})).await;
    // Read, so that times of access are written.
    let read = format!("/v1/memory_stores/{}/memories/{edited}", place.store);
    ok(&place.client.get(&read).await);
}

/// Makes a session with stores; answers its path, and the directories of the stores.
async fn session_with(client: &Client, stores: &[&str]) -> (String, Vec<String>) {
    let attached = stores
        .iter()
        .map(|store| json!({"type": "memory_store", "memory_store_id": store}))
        .collect::<Vec<_>>();
    let new = json!({"agent": "a", "environment_id": "e", "resources": attached});
    let made = ok(&client.post("/v1/sessions", &new).await);
    secrets::remember(made["token"].as_str().unwrap(), "a session's token");
    let resources = made["resources"].as_array().unwrap().iter();
    let mounts = resources.map(|resource| resource["mount_path"].as_str().unwrap().to_owned());
    (format!("/v1/sessions/{}", made["id"].as_str().unwrap()), mounts.collect())
}

/// Views a path in a session, which may be gone.
async fn view_in(client: &Client, session: &str, path: &str) {
    let view = json!({"command": "view", "path": path});
    ok(&client.post(&format!("{session}/tool_calls"), &view).await);
}

/// The paths that a session's calls named, oldest first.
async fn paths_in(client: &Client, session: &str) -> Vec<Value> {
    let events = ok(&client.get(&format!("{session}/events?limit=100")).await);
    assert!(!events.to_string().contains(MARK), "{events}");
    let events = events["data"].as_array().unwrap().iter();
    events.map(|event| event["input"]["path"].clone()).collect()
}

/// Makes calls in a session; four of them name memories that are erased with the directory.
async fn live_in_session(client: &Client, session: &str, mount: &str) {
    for path in [
        format!("/people/{MARK}"),
        format!("/people/{MARK}/missing"),
        format!("/out/{MARK}"),
        "/people/bob".to_owned(),
        "/people".to_owned(),
    ] {
        view_in(client, session, &format!("{mount}{path}")).await;
    }
    let to = format!("{mount}/people/{MARK}/new");
    let refused = json!({"command": "rename", "old_path": format!("{mount}/none"), "new_path": to});
    ok(&client.post(&format!("{session}/tool_calls"), &refused).await);
}

async fn keep(place: &mut Place<'_>) -> Vec<String> {
    let mut kept = Vec::new();
    for path in ["/people/bob", "/people/other/x", "/z"] {
        let made = ok(&place
            .client
            .post(
                &format!("/v1/memory_stores/{}/memories", place.store),
                &json!({"path": path, "content": format!("{KEPT} {path}")}),
            )
            .await);
        kept.push(made["path"].as_str().unwrap().to_owned());
    }
    kept
}

#[track_caller]
fn assert_log_has_nothing(server: &Server, sought: &Sought) {
    let log = server.output();
    assert_eq!(sought.count_in(log.as_bytes()), 0, "{log}");
}

async fn erased_memories_are_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let mut place =
        Place { client: &client, store: tenant.store_id.to_string(), sought: Sought::default(), requests: 0 };
    let kept = keep(&mut place).await;
    live(&mut place).await;
    let (session, mounts) = session_with(&client, &[&place.store]).await;
    live_in_session(&client, &session, &mounts[0]).await;
    assert_log_has_nothing(&server, &place.sought);
    // So that the events are written.
    server.end().await;
    server.restart().await;
    assert!(found_in(&deployment, &tenant, &place.sought).await > 30, "the search finds existing memories");
    // So that the server has the index of the store in memory.
    let search = format!("/v1/memory_stores/{}/search?query=qzx", place.store);
    assert_ne!(ok(&client.get(&search).await)["data"], json!([]));

    // Another server writes late what it knows from before the erasure.
    let mut late = None;
    if pair.has_postgres() {
        let there = deployment.start().await;
        let path = format!("{}/people/{MARK}/late", mounts[0]);
        view_in(&there.client(&tenant), &session, &path).await;
        late = Some(there);
    }
    let prefix = json!({"memory_store_id": place.store, "path_prefix": format!("/people/{MARK}/")});
    let erasure = place.post("/erasures", &prefix).await;
    let receipt = receipt(&client, &erasure).await;
    if let Some(mut there) = late {
        there.end().await;
    }
    assert_eq!(receipt["memory_store_ids"], json!([place.store]));
    assert_eq!(receipt["selected_by"], "path_prefix");
    assert_eq!(receipt["error"], Value::Null);
    let removed = &receipt["removed"];
    assert_eq!(removed["memories"], 5, "{receipt}");
    assert_eq!(removed["memory_versions"], 16, "{receipt}");
    // One of the versions' blobs went with its redaction.
    assert_eq!(removed["blobs"], 11, "{receipt}");
    assert_eq!(receipt["object_versions"]["not_versioned"], 11, "{receipt}");
    // The late one is erased where it was written in time.
    let events = removed["session_events"].as_u64().unwrap();
    assert!((4..=5).contains(&events), "{receipt}");
    let of_session = ["/people/bob", "/people"].map(|path| json!(format!("{}{path}", mounts[0])));
    assert_eq!(paths_in(&client, &session).await, of_session);
    assert_eq!(receipt["backups"], "outside");
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
    assert_eq!(ok(&client.get(&search).await)["data"], json!([]));

    let memories = format!("/v1/memory_stores/{}/memories?view=full", place.store);
    let listed = ok(&client.get(&memories).await);
    let listed = listed["data"].as_array().unwrap();
    let paths: Vec<_> = listed.iter().map(|memory| memory["path"].as_str().unwrap()).collect();
    assert_eq!(paths, kept);
    for memory in listed {
        assert_eq!(memory["content"], format!("{KEPT} {}", memory["path"].as_str().unwrap()));
    }
    let history = format!("/v1/memory_stores/{}/memory_versions", place.store);
    assert_eq!(ok(&client.get(&history).await)["data"].as_array().unwrap().len(), 3);
    // The same call again finds the erasure, though what it asked is forgotten.
    let again = place.requests;
    place.requests = again - 1;
    assert_eq!(place.post("/erasures", &prefix).await["id"], erasure["id"]);
    assert_log_has_nothing(&server, &place.sought);
    server.end().await;
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
}

/// Makes stores with everything, of which one has just this metadata.
async fn three_stores(place: &mut Place<'_>, metadata: &Value) -> Vec<String> {
    let mut stores = Vec::new();
    for number in 0..3 {
        let mut metadata = metadata.clone();
        if number > 0 {
            metadata["more"] = json!(MARK);
        }
        let draft = json!({
            "name": format!("{MARK} {number}"), "description": MARK, "metadata": metadata,
        });
        let made = place.post("/memory_stores", &draft).await;
        let store = made["id"].as_str().unwrap().to_owned();
        place.store.clone_from(&store);
        live(place).await;
        stores.push(store);
    }
    stores
}

async fn erased_stores_are_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let limits = LimitOverrides { stores_per_tenant: Some(6), ..LimitOverrides::default() };
    let tenant = deployment.tenant_with(limits).await;
    let stranger = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let mut place =
        Place { client: &client, store: tenant.store_id.to_string(), sought: Sought::default(), requests: 0 };
    keep(&mut place).await;
    let both = json!({"person": "ada", "kind": "test"});
    let others = client.with_key(&stranger.key);
    let mut bystanders = Vec::new();
    for (client, metadata) in [
        (&client, json!({"person": "ada"})),
        (&client, json!({"person": "bob", "kind": "test"})),
        (&others, both.clone()),
    ] {
        let draft = json!({"name": "stays", "metadata": metadata});
        let made = ok(&client.post("/v1/memory_stores", &draft).await);
        bystanders.push((client, format!("/v1/memory_stores/{}", made["id"].as_str().unwrap())));
    }
    let mut stores = three_stores(&mut place, &both).await;
    ok(&client.post(&format!("/v1/memory_stores/{}/archive", stores[0]), &json!({})).await);
    let (session, mounts) = session_with(&client, &[&stores[2], &tenant.store_id.to_string()]).await;
    for mount in &mounts {
        view_in(&client, &session, &format!("{mount}/people/bob")).await;
    }
    assert_log_has_nothing(&server, &place.sought);
    // So that the events are written.
    server.end().await;
    server.restart().await;
    let orphans = u64::from(pair.has_s3());
    if pair.has_s3() {
        plant_orphan(&deployment, &tenant, &stores[2]).await;
    }
    assert!(found_in(&deployment, &tenant, &place.sought).await > 90);
    // Done last, because a job removes it within a minute.
    let deleted = client.request(Method::DELETE, &format!("/v1/memory_stores/{}", stores[1]));
    ok(&send(deleted).await);

    let erasure = place.post("/erasures", &json!({"store_metadata": both})).await;
    let receipt = receipt(&client, &erasure).await;
    let mut erased: Vec<_> = receipt["memory_store_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    erased.sort();
    stores.sort();
    assert_eq!(erased, stores);
    assert_eq!(receipt["removed"]["memory_stores"], 3, "{receipt}");
    assert_eq!(receipt["removed"]["memories"], 15, "{receipt}");
    assert_eq!(receipt["removed"]["blobs"], 33 + orphans, "{receipt}");
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
    for store in &stores {
        let gone = client.get(&format!("/v1/memory_stores/{store}")).await;
        assert_eq!(gone.status, 404, "{}", gone.text);
        let body = json!({"memory_store_id": store});
        let answer = client.post("/v1/erasures", &body).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    for name in ["session_resources", "session_events"] {
        assert_eq!(receipt["removed"][name], 1, "{receipt}");
    }
    assert_eq!(paths_in(&client, &session).await, [json!(format!("{}/people/bob", mounts[1]))]);
    let left = ok(&client.get(&session).await)["resources"].clone();
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left[0]["memory_store_id"], tenant.store_id.to_string());
    for (client, store) in bystanders {
        ok(&client.get(&store).await);
    }
    let kept = ok(&client.get(&format!("/v1/memory_stores/{}/memories", tenant.store_id)).await);
    assert_eq!(kept["data"].as_array().unwrap().len(), 3);
    assert_rest_of_stores_is_erased(&mut place).await;
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
    assert_log_has_nothing(&server, &place.sought);
    server.end().await;
}

/// Puts the blob of a write that died, which no row names.
async fn plant_orphan(deployment: &Deployment, tenant: &Tenant, store: &str) {
    let key = BlobKey {
        tenant_id: tenant.id,
        store_id: store.parse().unwrap(),
        blob_id: VersionId::from_uuid(Uuid::from_u128(7)),
    };
    let content = Bytes::from_static(MARK.as_bytes());
    deployment.blobs().await.put(&key, content).await.unwrap();
}

/// The erased stores count no longer; a selection may find nothing, and a deleted store
/// is erased as a whole, also by a directory.
async fn assert_rest_of_stores_is_erased(place: &mut Place<'_>) {
    let nobody = json!({"store_metadata": {"person": "nobody"}});
    let erasure = place.post("/erasures", &nobody).await;
    assert_eq!(receipt(place.client, &erasure).await["memory_store_ids"], json!([]));
    let draft = json!({"name": "another"});
    let mut made = Value::Null;
    for _ in 0..3 {
        made = ok(&place.client.post("/v1/memory_stores", &draft).await);
    }
    let over = place.client.post("/v1/memory_stores", &draft).await;
    assert_eq!(over.status, 429, "{}", over.text);
    made["id"].as_str().unwrap().clone_into(&mut place.store);
    place.create("/a", MARK).await;
    let path = format!("/v1/memory_stores/{}", place.store);
    ok(&send(place.client.request(Method::DELETE, &path)).await);
    let prefix = json!({"memory_store_id": place.store, "path_prefix": "/b/"});
    let erasure = place.post("/erasures", &prefix).await;
    let removed = receipt(place.client, &erasure).await["removed"].clone();
    assert_eq!((&removed["memory_stores"], &removed["blobs"]), (&json!(1), &json!(1)));
}

/// How often something sought is anywhere that Keepsake writes.
///
/// The texts to keep must be found each time, otherwise the search proves nothing.
async fn found_in(deployment: &Deployment, tenant: &Tenant, sought: &Sought) -> usize {
    let mut places = if deployment.pair.has_postgres() {
        vec![dump(deployment).await]
    } else {
        let file = deployment.sqlite_file();
        let beside = ["db", "db-wal"].map(|extension| file.with_extension(extension));
        let bytes = beside.iter().filter_map(|file| std::fs::read(file).ok());
        vec![bytes.flatten().collect()]
    };
    assert!(occurrences(&places[0], b"/people/bob") > 0, "the index was not searched");
    if !deployment.pair.has_postgres() && !deployment.pair.has_s3() {
        assert!(occurrences(&places[0], KEPT.as_bytes()) > 0, "the content was not searched");
        return sought.count_in(&places[0]);
    }
    let blobs = deployment.blobs().await;
    let mut objects = Vec::new();
    for listed in blobs.list(None, None, 100_000).await.unwrap() {
        assert_eq!(listed.key.tenant_id, tenant.id);
        objects.extend(blobs.get(&listed.key, listed.size_bytes).await.unwrap().unwrap_or_default());
    }
    assert!(occurrences(&objects, KEPT.as_bytes()) > 0, "the objects were not searched");
    places.push(objects);
    places.iter().map(|bytes| sought.count_in(bytes)).sum()
}

/// The whole database as text.
async fn dump(deployment: &Deployment) -> Vec<u8> {
    let url = deployment.postgres_url();
    let mut command = Command::new(from_environment(PG_DUMP));
    run(command.arg("--dbname").arg(&url)).await.into_bytes()
}
