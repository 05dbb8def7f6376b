//! Erased content remains in no table, file, log or object.

use keepsake_index::MAX_OPEN_ERASURES;
use keepsake_testkit::{EmbeddingsServer, FaultProxy, s3_options};
use memchr::memmem;

use crate::prelude::*;
use crate::support::meaning;

/// A mark in every text to erase, and in no other text.
const MARK: &str = "qzx-erase-me";
/// A mark in every text to keep.
const KEPT: &str = "kept-for-good";
const KEPT_PATHS: [&str; 3] = ["/people/bob", "/people/other/x", "/z"];
/// The rows that search by meaning has of memories and of stores.
const OF_MEANING: &str = "SELECT (SELECT count(*) FROM embedding) + (SELECT count(*) FROM embedded_store)";
/// Those of the memories to keep and of their store.
const KEPT_OF_MEANING: i64 = 4;

on_pairs! { erased_memories_are_nowhere: PostgresS3, Postgres, Sqlite }

on_pairs! { erased_stores_are_nowhere }

async fn erase_below(client: &Client, store: &str, prefix: &str) -> Value {
    let below = json!({"memory_store_id": store, "path_prefix": prefix});
    ok(&client.post("/v1/erasures", &below).await)
}

async fn shown(client: &Client, erasure: &Value) -> Answer {
    client.get(&format!("/v1/erasures/{}", erasure["id"].as_str().unwrap())).await
}

async fn receipt(client: &Client, erasure: &Value) -> Value {
    let receipt = client.receipt(erasure).await;
    assert!(!receipt.text.contains(MARK), "{}", receipt.text);
    ok(&receipt)
}

/// Rewriting the file blocks all writers, so it is not done for each of them.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_erasures_rewrite_the_file_together() {
    const ERASURES: usize = 16;
    let operator = Operator::new();
    let (_deployment, tenant, _server, client) = started_with(Pair::Sqlite, &operator.config).await;
    let store = tenant.store_id.to_string();
    for number in 0..ERASURES {
        client.create_file(&tenant, &format!("/memories/{number}/a.md"), "text").await;
    }
    let prefixes: Vec<_> = (0..ERASURES).map(|number| format!("/{number}/")).collect();
    let erasures = join_all(prefixes.iter().map(|prefix| erase_below(&client, &store, prefix))).await;
    for erasure in &erasures {
        receipt(&client, erasure).await;
    }
    let series = "keepsake_index_call_duration_seconds_count{call=\"overwrite_deleted\",outcome=\"ok\"} ";
    let rewritten: usize = operator.metric(series).await.expect("the call has a metric");
    assert!((1..=ERASURES / 2).contains(&rewritten), "{rewritten}");
}

/// An erasure is not done while another one has content of its store to erase.
#[tokio::test(flavor = "multi_thread")]
async fn erasures_are_bounded_and_wait_for_each_other_while_the_object_store_is_stalled() {
    let endpoint = s3_options("").settings.endpoint.unwrap();
    let (proxy, endpoint) = FaultProxy::before_url(&endpoint).await;
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let (tenant, crowd) = (deployment.tenant().await, deployment.tenant().await);
    // Gateways run no jobs: the job would take over an erasure that stalls for two minutes.
    let gateway = |endpoint: Option<String>| {
        let config = ServerConfig { endpoint, ..ServerConfig::default() };
        Server::start(deployment.command(&config).env("KEEPSAKE_ROLE", "gateway"))
    };
    let stalled = gateway(Some(endpoint)).await;
    let (client, many) = (stalled.client(&tenant), stalled.client(&crowd));
    client.create_file(&tenant, "/memories/p/a.md", "text").await;

    proxy.stall();
    let (own, theirs) = (tenant.store_id.to_string(), crowd.store_id.to_string());
    let first = erase_below(&client, &own, "/p/").await;
    let are_erased = async || ok(&shown(&client, &first).await)["removed"]["memory_versions"] == 1;
    soon("the rows are erased", are_erased).await;
    let ask = |key: &str, prefix: &str| {
        let below = json!({"memory_store_id": theirs, "path_prefix": prefix});
        send(many.request(Method::POST, "/v1/erasures").json(&below).header("idempotency-key", key))
    };
    let limit = usize::try_from(MAX_OPEN_ERASURES).unwrap();
    let answers = join_all((0..limit + 12).map(|number| ask(&format!("key {number}"), "/p/"))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) =
        answers.iter().enumerate().partition(|(_, answer)| answer.status == 200);
    assert_eq!((accepted.len(), refused.len()), (limit, 12));
    for (_, answer) in refused {
        assert_eq!((answer.status, answer.header("retry-after")), (429, "30"), "{}", answer.text);
    }
    // The same call again is answered, another one with its key is refused.
    let (number, made) = accepted[0];
    let key = format!("key {number}");
    assert_eq!(ok(&ask(&key, "/p/").await)["id"], made.json()["id"]);
    assert_eq!(ask(&key, "/q/").await.status, 400);
    // A server whose object store works finds nothing left to erase.
    let working = gateway(None).await;
    let there = working.client(&tenant);
    let second = erase_below(&there, &own, "/p/").await;
    let elsewhere = Store::make(&there, "other").await;
    let third = erase_below(&there, &elsewhere.id, "/p/").await;
    // It works on one after the other.
    receipt(&there, &third).await;
    assert_eq!(ok(&shown(&there, &second).await)["state"], "running");
    let blobs = deployment.blobs().await;
    assert_eq!(blobs.list(None, None, 10).await.unwrap().len(), 1);

    proxy.heal().await;
    let has_gone_on = async || {
        let first = ok(&shown(&client, &first).await);
        first["state"] == "done" || !first["error"].is_null()
    };
    soon("the stalled call ends", has_gone_on).await;
    // Some minutes on, no worker holds an erasure; the first run ends what others wait for.
    let worker = deployment.worker_ahead(Duration::from_mins(5)).await;
    for _ in 0..2 {
        worker.run(Erase, RunRequest::SCHEDULED).await;
        worker.clock.advance(Duration::from_mins(5));
    }
    worker.close().await;
    assert_eq!(receipt(&client, &first).await["removed"]["blobs"], 1);
    assert_eq!(blobs.list(None, None, 10).await.unwrap(), []);
    receipt(&there, &second).await;
    let has_room = async || ask("another key", "/p/").await.status == 200;
    soon("others are done", has_room).await;
}

fn occurrences(bytes: &[u8], needle: &[u8]) -> usize {
    memmem::find_iter(bytes, needle).count()
}

/// How often bytes hold a text; a dump has content as hexadecimal digits.
pub(crate) fn text_occurrences(bytes: &[u8], text: &str) -> usize {
    let digits: Vec<_> = text.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    occurrences(bytes, text.as_bytes()) + occurrences(bytes, &digits)
}

/// A tenant's store, and what must be nowhere once it is erased.
struct Place<'a> {
    client: &'a Client,
    store: String,
    /// The hashes of sent content, which are sought like the mark.
    hashes: Vec<ContentHash>,
    requests: u32,
}

impl<'a> Place<'a> {
    fn new(client: &'a Client, tenant: &Tenant) -> Self {
        Self { client, store: tenant.store_id.to_string(), hashes: Vec::new(), requests: 0 }
    }

    /// Posts with an idempotency key; its record has the hash of the body.
    async fn post(&mut self, path: &str, body: &Value) -> Value {
        self.requests += 1;
        let body = body.to_string();
        self.hashes.push(ContentHash::of(body.as_bytes()));
        let request = self.client.request(Method::POST, &format!("/v1{path}")).body(body);
        let request = request.header("content-type", "application/json");
        ok(&send(request.header("idempotency-key", format!("key-{}", self.requests))).await)
    }

    /// Creates a memory, or changes the one with this id; answers its id.
    async fn write(&mut self, id: &str, change: Value) -> String {
        if let Some(content) = change["content"].as_str() {
            self.hashes.push(ContentHash::of(content.as_bytes()));
        }
        let path = format!("/memory_stores/{}/memories/{id}", self.store);
        let written = self.post(path.trim_end_matches('/'), &change).await;
        written["id"].as_str().unwrap().to_owned()
    }

    async fn delete(&self, path: &str) {
        ok(&delete(self.client, &format!("{STORES}/{}{path}", self.store)).await);
    }

    async fn keep(&self) {
        for path in KEPT_PATHS {
            Store::new(self.client, &self.store).create(path, &format!("{KEPT} {path}")).await;
        }
    }

    /// Writes every kind of data about a person in a directory.
    async fn live(&mut self) {
        let path = |name: &str| format!("/people/{MARK}/{name}");
        let content = |name: &str| format!("{MARK} {name}\nand more of it");
        let memory = |path: String, name: &str| json!({"path": path, "content": content(name)});
        // Old versions, and a first one that was redacted.
        let edited = self.write("", memory(path("edited"), "one")).await;
        for number in 0..5 {
            self.write(&edited, json!({"content": content(&format!("edit {number}"))})).await;
        }
        let versions = format!("/memory_stores/{}/memory_versions", self.store);
        let history = self.client.all(&format!("/v1{versions}?memory_id={edited}")).await;
        let first = text(&history.last().unwrap()["id"]);
        self.post(&format!("{versions}/{first}/redact"), &json!({})).await;
        // Moved out, and in, and out again; deleted.
        let moved = self.write("", memory(path("moved"), "moved")).await;
        self.write(&moved, json!({"path": format!("/out/{MARK}")})).await;
        let passing = self.write("", memory("/before".to_owned(), "passing")).await;
        self.write(&passing, json!({"path": path("passing/by")})).await;
        self.write(&passing, memory("/after".to_owned(), "after")).await;
        let deleted = self.write("", memory(path(".hidden/deleted"), "deleted")).await;
        self.delete(&format!("/memories/{deleted}")).await;
        // By the tool, as calls that may be sent again.
        let at = format!("/memories/people/{MARK}/tool.md");
        let to = format!("/memories/people/{MARK}/sub/tool.md");
        let replace = json!({"command": "str_replace", "path": at, "old_str": "tool", "new_str": "replaced"});
        for (id, input) in [
            ("toolu_1", json!({"command": "create", "path": at, "file_text": content("tool")})),
            ("toolu_2", replace),
            ("toolu_3", json!({"command": "rename", "old_path": at, "new_path": to})),
        ] {
            let call = json!({"type": "tool_use", "id": id, "name": "memory", "input": input});
            let answer = self.client.call(&self.store, &call).await;
            assert!(!answer.tool_result().is_error, "{}", answer.text);
        }
        // Read, so that times of access are written.
        ok(&self.client.get(&format!("/v1/memory_stores/{}/memories/{edited}", self.store)).await);
    }

    /// Makes stores with everything, the first of which has just this metadata.
    async fn live_in_three_stores(&mut self, metadata: &Value) -> Vec<String> {
        let mut stores = Vec::new();
        let mut draft = json!({"name": MARK, "description": MARK, "metadata": metadata});
        for _ in 0..3 {
            let made = self.post("/memory_stores", &draft).await;
            draft["metadata"]["more"] = json!(MARK);
            made["id"].as_str().unwrap().clone_into(&mut self.store);
            self.live().await;
            stores.push(self.store.clone());
        }
        stores
    }

    /// How often something sought is in some bytes.
    fn count_in(&self, bytes: &[u8]) -> usize {
        let hex = self.hashes.iter().map(|hash| hash.to_string().into_bytes());
        let raw = self.hashes.iter().map(|hash| hash.as_bytes().to_vec());
        text_occurrences(bytes, MARK) + hex.chain(raw).map(|hash| occurrences(bytes, &hash)).sum::<usize>()
    }

    /// How often something sought is anywhere that Keepsake writes. The texts to keep must
    /// be found each time, otherwise the search proves nothing.
    async fn found_in(&self, deployment: &Deployment) -> usize {
        let index = deployment.index_bytes().await;
        assert!(occurrences(&index, b"/people/bob") > 0, "the index was not searched");
        if deployment.pair == Pair::Sqlite {
            assert!(occurrences(&index, KEPT.as_bytes()) > 0, "the content was not searched");
            return self.count_in(&index);
        }
        let objects = deployment.content_bytes().await;
        assert!(occurrences(&objects, KEPT.as_bytes()) > 0, "the objects were not searched");
        self.count_in(&index) + self.count_in(&objects)
    }

    #[track_caller]
    fn assert_is_not_logged(&self, server: &Server) {
        let log = server.output();
        assert_eq!(self.count_in(log.as_bytes()), 0, "{log}");
    }
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
    let erased = [format!("/people/{MARK}"), format!("/people/{MARK}/missing"), format!("/out/{MARK}")];
    for path in erased.iter().map(String::as_str).chain(["/people/bob", "/people"]) {
        view_in(client, session, &format!("{mount}{path}")).await;
    }
    let to = format!("{mount}/people/{MARK}/new");
    let refused = json!({"command": "rename", "old_path": format!("{mount}/none"), "new_path": to});
    ok(&client.post(&format!("{session}/tool_calls"), &refused).await);
}

async fn erased_memories_are_nowhere(pair: Pair) {
    let embeddings = EmbeddingsServer::start(meaning::CONCEPTS).await;
    let (deployment, tenant, mut server, client) = started_with(pair, &meaning::config(&embeddings)).await;
    let mut place = Place::new(&client, &tenant);
    place.keep().await;
    place.live().await;
    meaning::is_complete(&client, &place.store).await;
    assert!(deployment.number(OF_MEANING).await > KEPT_OF_MEANING);
    let (session, mounts) = open_session(&client, &[&place.store]).await;
    live_in_session(&client, &session, &mounts[0]).await;
    place.assert_is_not_logged(&server);
    // So that the events are written.
    server.end().await;
    server.restart().await;
    assert!(place.found_in(&deployment).await > 30, "the search finds existing memories");
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
    shows(&receipt, &json!({"selected_by": "path_prefix", "error": null, "backups": "outside"}));
    let steps = receipt["steps"].as_array().unwrap();
    assert_eq!(strings(steps, "name"), ["rows", "idempotency_records", "blobs"]);
    assert!(steps.iter().all(|step| step["ended_at"].is_string()), "{receipt}");
    // One of the versions' blobs went with its redaction.
    let removed = &receipt["removed"];
    let counts = ["memories", "memory_versions", "blobs"].map(|name| removed[name].as_u64().unwrap());
    assert_eq!(counts, [5, 16, 11], "{receipt}");
    assert_eq!(receipt["object_versions"]["not_versioned"], 11, "{receipt}");
    // The late one is erased where it was written in time.
    let events = removed["session_events"].as_u64().unwrap();
    assert!((4..=5).contains(&events), "{receipt}");
    let of_session = ["/people/bob", "/people"].map(|path| json!(format!("{}{path}", mounts[0])));
    assert_eq!(paths_in(&client, &session).await, of_session);
    assert_eq!(place.found_in(&deployment).await, 0);
    assert_eq!(deployment.number(OF_MEANING).await, KEPT_OF_MEANING);
    // In a store of a few memories, search by meaning finds all.
    let found = ok(&client.get(&search).await);
    let mut found = strings(found["data"].as_array().unwrap(), "path");
    found.sort_unstable();
    assert_eq!(found, KEPT_PATHS);

    let store = Store::of(&client, &tenant);
    let listed = client.all(&format!("{}?view=full", store.memories())).await;
    assert_eq!(strings(&listed, "path"), KEPT_PATHS);
    assert_eq!(strings(&listed, "content"), KEPT_PATHS.map(|path| format!("{KEPT} {path}")));
    assert_eq!(store.version_count().await, 3);
    // The same call again finds the erasure, though what it asked is forgotten.
    place.requests -= 1;
    assert_eq!(place.post("/erasures", &prefix).await["id"], erasure["id"]);
    place.assert_is_not_logged(&server);
    server.end().await;
    assert_eq!(place.found_in(&deployment).await, 0);
}

async fn erased_stores_are_nowhere(pair: Pair) {
    let embeddings = EmbeddingsServer::start(meaning::CONCEPTS).await;
    let deployment = Deployment::new(pair).await;
    let (tenant, stranger) = (deployment.tenant().await, deployment.tenant().await);
    let mut server = deployment.start_with(&meaning::config(&embeddings)).await;
    let client = server.client(&tenant);
    let mut place = Place::new(&client, &tenant);
    place.keep().await;
    let both = json!({"person": "ada", "kind": "test"});
    let others = client.with_key(&stranger.key);
    let mut bystanders = Vec::new();
    let [of_ada, of_bob] = [json!({"person": "ada"}), json!({"person": "bob", "kind": "test"})];
    for (client, metadata) in [(&client, &of_ada), (&client, &of_bob), (&others, &both)] {
        let draft = json!({"name": "stays", "metadata": metadata});
        bystanders.push(Store::make_with(client, &draft).await);
    }
    let mut stores = place.live_in_three_stores(&both).await;
    ok(&client.post(&format!("/v1/memory_stores/{}/archive", stores[0]), &json!({})).await);
    let kept = tenant.store_id.to_string();
    let (session, mounts) = open_session(&client, &[&stores[2], &kept]).await;
    for mount in &mounts {
        view_in(&client, &session, &format!("{mount}/people/bob")).await;
    }
    place.assert_is_not_logged(&server);
    for store in [&stores[2], &kept] {
        meaning::is_complete(&client, store).await;
    }
    // So that the events are written.
    server.end().await;
    server.restart().await;
    if pair.has_s3() {
        // The blob of a write that died, which no row names.
        let blob_id = VersionId::from_uuid(Uuid::from_u128(7));
        let key = BlobKey { tenant_id: tenant.id, store_id: stores[2].parse().unwrap(), blob_id };
        deployment.blobs().await.put(&key, Bytes::from_static(MARK.as_bytes())).await.unwrap();
    }
    assert!(place.found_in(&deployment).await > 90);
    // Done last, because a job removes it within a minute.
    stores[1].clone_into(&mut place.store);
    place.delete("").await;

    let erasure = place.post("/erasures", &json!({"store_metadata": both})).await;
    let receipt = receipt(&client, &erasure).await;
    let ids = receipt["memory_store_ids"].as_array().unwrap().iter();
    let mut erased: Vec<_> = ids.map(|id| id.as_str().unwrap().to_owned()).collect();
    erased.sort();
    stores.sort();
    assert_eq!(erased, stores);
    let blobs = 33 + u64::from(pair.has_s3());
    let counts = json!({"memory_stores": 3, "memories": 15, "blobs": blobs, "session_resources": 1, "session_events": 1});
    shows(&receipt["removed"], &counts);
    assert_eq!(place.found_in(&deployment).await, 0);
    for store in &stores {
        not_found(&client.get(&format!("/v1/memory_stores/{store}")).await);
        not_found(&client.post("/v1/erasures", &json!({"memory_store_id": store})).await);
    }
    assert_eq!(paths_in(&client, &session).await, [json!(format!("{}/people/bob", mounts[1]))]);
    let left = ok(&client.get(&session).await)["resources"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["memory_store_id"]), (1, &json!(kept)));
    for store in bystanders {
        store.object().await;
    }
    assert_eq!(Store::new(&client, &kept).paths().await.len(), KEPT_PATHS.len());
    // The erasure of a directory erases the rest of a deleted store.
    let made = place.post("/memory_stores", &json!({"name": "another"})).await;
    made["id"].as_str().unwrap().clone_into(&mut place.store);
    place.write("", json!({"path": "/a", "content": MARK})).await;
    place.delete("").await;
    let prefix = json!({"memory_store_id": place.store, "path_prefix": "/b/"});
    let erasure = place.post("/erasures", &prefix).await;
    let removed = self::receipt(&client, &erasure).await["removed"].clone();
    assert_eq!((&removed["memory_stores"], &removed["blobs"]), (&json!(1), &json!(1)));
    assert_eq!(place.found_in(&deployment).await, 0);
    place.assert_is_not_logged(&server);
    server.end().await;
    assert_eq!(deployment.number(OF_MEANING).await, KEPT_OF_MEANING);
    // The counters of stores and bytes are right.
    server.beside("verify").await.ok();
}
