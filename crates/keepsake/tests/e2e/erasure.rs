//! Erased content remains in no table, file, log or object.

use std::time::Duration;

use futures::future::join_all;
use keepsake_core::ContentHash;
use memchr::memmem;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::client::send;
use crate::support::deployment::ServerConfig;
use crate::support::script::{PG_DUMP, from_environment, run};
use crate::support::{Answer, Client, Deployment, Pair, Tenant, eventually};

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
        let made = self
            .post(&memories, &json!({"path": path, "content": content}))
            .await;
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
    let history = ok(&place
        .client
        .get(&format!("/v1{versions}?memory_id={edited}"))
        .await);
    let first = history["data"].as_array().unwrap().last().unwrap()["id"].clone();
    place
        .post(
            &format!("{versions}/{}/redact", first.as_str().unwrap()),
            &json!({}),
        )
        .await;
    // Moved out, and in, and out again; deleted; brought back.
    let moved = place.create(&path("moved"), &text("moved")).await;
    place
        .update(&moved, json!({"path": format!("/out/{MARK}")}))
        .await;
    let passing = place.create("/before", &text("passing")).await;
    place.update(&passing, json!({"path": path("passing/by")})).await;
    place
        .update(&passing, json!({"path": "/after", "content": text("after")}))
        .await;
    let deleted = place.create(&path(".hidden/deleted"), &text("deleted")).await;
    place.delete(&deleted).await;
    // By the tool, as calls that may be sent again.
    let at = format!("/memories/people/{MARK}/tool.md");
    place
        .tool(
            "toolu_1",
            json!({"command": "create", "path": at, "file_text": text("tool")}),
        )
        .await;
    place
        .tool(
            "toolu_2",
            json!({"command": "str_replace", "path": at, "old_str": "tool", "new_str": "replaced"}),
        )
        .await;
    let to = format!("/memories/people/{MARK}/sub/tool.md");
    place
        .tool(
            "toolu_3",
            json!({"command": "rename", "old_path": at, "new_path": to}),
        )
        .await;
    // Read, so that times of access are written.
    let read = format!("/v1/memory_stores/{}/memories/{edited}", place.store);
    ok(&place.client.get(&read).await);
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

async fn erased_memories_are_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let mut place = Place {
        client: &client,
        store: tenant.store_id.to_string(),
        sought: Sought::default(),
        requests: 0,
    };
    let kept = keep(&mut place).await;
    live(&mut place).await;
    assert!(
        found_in(&deployment, &tenant, &place.sought).await > 30,
        "the search finds existing memories"
    );

    let prefix = json!({"memory_store_id": place.store, "path_prefix": format!("/people/{MARK}/")});
    let erasure = place.post("/erasures", &prefix).await;
    let receipt = receipt(&client, &erasure).await;
    assert_eq!(receipt["memory_store_ids"], json!([place.store]));
    assert_eq!(receipt["selected_by"], "path_prefix");
    assert_eq!(receipt["error"], Value::Null);
    let removed = &receipt["removed"];
    assert_eq!(removed["memories"], 5, "{receipt}");
    assert_eq!(removed["memory_versions"], 16, "{receipt}");
    // One of the versions' blobs went with its redaction.
    assert_eq!(removed["blobs"], 11, "{receipt}");
    assert_eq!(receipt["object_versions"]["not_versioned"], 11, "{receipt}");
    assert_eq!(receipt["backups"], "outside");
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);

    let memories = format!("/v1/memory_stores/{}/memories?view=full", place.store);
    let listed = ok(&client.get(&memories).await);
    let listed = listed["data"].as_array().unwrap();
    let paths: Vec<_> = listed
        .iter()
        .map(|memory| memory["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, kept);
    for memory in listed {
        assert_eq!(
            memory["content"],
            format!("{KEPT} {}", memory["path"].as_str().unwrap())
        );
    }
    let history = format!("/v1/memory_stores/{}/memory_versions", place.store);
    assert_eq!(
        ok(&client.get(&history).await)["data"].as_array().unwrap().len(),
        3
    );
    // The same call again finds the erasure, though what it asked is forgotten.
    let again = place.requests;
    place.requests = again - 1;
    assert_eq!(place.post("/erasures", &prefix).await["id"], erasure["id"]);
    let log = server.output();
    assert_eq!(place.sought.count_in(log.as_bytes()), 0, "{log}");
    server.end().await;
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
}

async fn erased_stores_are_nowhere(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    let client = server.client(&tenant);
    let mut place = Place {
        client: &client,
        store: tenant.store_id.to_string(),
        sought: Sought::default(),
        requests: 0,
    };
    keep(&mut place).await;
    let metadata = json!({"person": format!("ada {MARK}"), "kind": "test"});
    let mut stores = Vec::new();
    for number in 0..3 {
        let draft = json!({
            "name": format!("{MARK} {number}"), "description": MARK, "metadata": metadata,
        });
        let made = place.post("/memory_stores", &draft).await;
        let store = made["id"].as_str().unwrap().to_owned();
        place.store.clone_from(&store);
        live(&mut place).await;
        stores.push(store);
    }
    ok(&client
        .post(&format!("/v1/memory_stores/{}/archive", stores[0]), &json!({}))
        .await);
    assert!(found_in(&deployment, &tenant, &place.sought).await > 90);
    // Done last, because a job removes it within a minute.
    let deleted = client.request(Method::DELETE, &format!("/v1/memory_stores/{}", stores[1]));
    ok(&send(deleted).await);

    let selection = json!({"store_metadata": {"person": format!("ada {MARK}")}});
    let erasure = place.post("/erasures", &selection).await;
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
    assert_eq!(receipt["removed"]["blobs"], 33, "{receipt}");
    assert_eq!(found_in(&deployment, &tenant, &place.sought).await, 0);
    for store in &stores {
        let gone = client.get(&format!("/v1/memory_stores/{store}")).await;
        assert_eq!(gone.status, 404, "{}", gone.text);
        let body = json!({"memory_store_id": store});
        let answer = client.post("/v1/erasures", &body).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
    }
    let kept = ok(&client
        .get(&format!("/v1/memory_stores/{}/memories", tenant.store_id))
        .await);
    assert_eq!(kept["data"].as_array().unwrap().len(), 3);
    let log = server.output();
    assert_eq!(place.sought.count_in(log.as_bytes()), 0, "{log}");
    server.end().await;
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
    assert!(
        occurrences(&places[0], b"/people/bob") > 0,
        "the index was not searched"
    );
    if !deployment.pair.has_postgres() && !deployment.pair.has_s3() {
        assert!(
            occurrences(&places[0], KEPT.as_bytes()) > 0,
            "the content was not searched"
        );
        return sought.count_in(&places[0]);
    }
    let blobs = deployment.blobs().await;
    let mut objects = Vec::new();
    for listed in blobs.list(None, None, 100_000).await.unwrap() {
        assert_eq!(listed.key.tenant_id, tenant.id);
        objects.extend(
            blobs
                .get(&listed.key, listed.size_bytes)
                .await
                .unwrap()
                .unwrap_or_default(),
        );
    }
    assert!(
        occurrences(&objects, KEPT.as_bytes()) > 0,
        "the objects were not searched"
    );
    places.push(objects);
    places.iter().map(|bytes| sought.count_in(bytes)).sum()
}

/// The whole database as text.
async fn dump(deployment: &Deployment) -> Vec<u8> {
    let url = deployment.postgres_url();
    let mut command = Command::new(from_environment(PG_DUMP));
    run(command.arg("--dbname").arg(&url)).await.into_bytes()
}
