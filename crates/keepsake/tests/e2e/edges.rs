//! 64 writers race at each limit, through two servers on Postgres: together they stop
//! exactly at the limit.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::client::tool_calls;
use crate::support::{Answer, Client, Deployment, Pair, Server, Tenant};

const STORES: &str = "/v1/memory_stores";
const WRITERS: usize = 64;

/// Two servers on Postgres, one on SQLite, which has one process.
struct Fleet {
    deployment: Deployment,
    servers: Vec<Server>,
    tenants: Vec<Tenant>,
}

impl Fleet {
    async fn new(pair: Pair, limits: [Value; 5]) -> Self {
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let mut tenants = Vec::new();
        for limits in limits {
            let limits = serde_json::from_value(limits).unwrap();
            tenants.push(provision.tenant(limits).await);
        }
        provision.close().await;
        let mut servers = vec![deployment.start().await];
        if pair.has_postgres() {
            servers.push(deployment.start().await);
        }
        Self { deployment, servers, tenants }
    }

    /// A writer's client; neighbours use different servers.
    fn client(&self, tenant: &Tenant, writer: usize) -> Client {
        self.servers[writer % self.servers.len()].client(tenant)
    }

    /// Posts what each writer has to say, all at once; answers how many were
    /// let in, after a check of how the others were refused.
    async fn race(&self, tenant: &Tenant, post: impl Fn(usize) -> (String, Value)) -> usize {
        let writes = (0..WRITERS).map(|writer| {
            let client = self.client(tenant, writer);
            let (path, body) = post(writer);
            async move { client.post_patiently(&path, &body, &format!("writer {writer}")).await }
        });
        let answers = join_all(writes).await;
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            over_quota(refused);
        }
        answers.iter().filter(|answer| answer.status == 200).count()
    }

    async fn store(&self, tenant: &Tenant, store_id: &str) -> Value {
        let path = format!("{STORES}/{store_id}");
        self.client(tenant, 0).get(&path).await.json()
    }
}

fn over_quota(answer: &Answer) {
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    assert_eq!(answer.header("x-should-retry"), "false", "{}", answer.text);
    assert_eq!(answer.header("retry-after"), "");
}

fn memory(store_id: &str, writer: usize, bytes: usize) -> (String, Value) {
    let body = json!({"path": format!("/{writer}"), "content": "x".repeat(bytes)});
    (format!("{STORES}/{store_id}/memories"), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_stop_exactly_at_every_limit_on_postgres_and_s3() {
    racing_writers_stop_exactly_at_every_limit(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_stop_exactly_at_every_limit_on_sqlite() {
    racing_writers_stop_exactly_at_every_limit(Pair::Sqlite).await;
}

async fn racing_writers_stop_exactly_at_every_limit(pair: Pair) {
    let fleet = Fleet::new(
        pair,
        [
            json!({"memories_per_store": 40}),
            json!({"bytes_per_store": 400}),
            json!({"bytes_per_tenant": 400}),
            json!({"stores_per_tenant": 41}),
            json!({"bytes_per_memory": 100}),
        ],
    )
    .await;
    let [memories, store_bytes, tenant_bytes, stores, memory_bytes] = &fleet.tenants[..] else {
        unreachable!("five tenants were made");
    };

    let store_id = memories.store_id.to_string();
    let made = fleet.race(memories, |writer| memory(&store_id, writer, 1)).await;
    assert_eq!(made, 40);
    assert_eq!(fleet.store(memories, &store_id).await["memory_count"], 40);

    let store_id = store_bytes.store_id.to_string();
    let made = fleet.race(store_bytes, |writer| memory(&store_id, writer, 10));
    assert_eq!(made.await, 40);
    assert_eq!(fleet.store(store_bytes, &store_id).await["content_bytes"], 400);

    // Over eight stores of the tenant.
    let mut ids = vec![tenant_bytes.store_id.to_string()];
    for number in 1..8 {
        let name = json!({"name": format!("{number}")});
        let made = fleet.client(tenant_bytes, 0).post(STORES, &name).await;
        ids.push(made.json()["id"].as_str().unwrap().to_owned());
    }
    let raced = fleet.race(tenant_bytes, |writer| memory(&ids[writer % ids.len()], writer, 10));
    assert_eq!(raced.await, 40);
    let mut held = 0;
    for id in &ids {
        let store = fleet.store(tenant_bytes, id).await;
        held += store["content_bytes"].as_u64().unwrap();
    }
    assert_eq!(held, 400);

    // One is there already.
    let name = |writer: usize| (STORES.to_owned(), json!({"name": format!("{writer}")}));
    assert_eq!(fleet.race(stores, name).await, 40);
    let list = format!("{STORES}?limit=100");
    let listed = fleet.client(stores, 0).get(&list).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 41);

    memory_never_grows_past_its_limit(&fleet, memory_bytes).await;
    lowered_limit_deletes_nothing_and_lets_nothing_grow(fleet).await;
}

/// Writers that each add ten bytes to one memory end at its limit.
async fn memory_never_grows_past_its_limit(fleet: &Fleet, tenant: &Tenant) {
    let create = json!({"command": "create", "path": "/memories/a", "file_text": ""});
    fleet.client(tenant, 0).tool_ok(tenant, &create).await;
    let line =
        json!({"command": "insert", "path": "/memories/a", "insert_line": 0, "insert_text": "123456789\n"});
    let writes = (0..WRITERS).map(|writer| {
        let (client, line) = (fleet.client(tenant, writer), &line);
        let path = tool_calls(tenant.store_id);
        async move {
            let mut attempt = 0;
            loop {
                attempt += 1;
                let key = format!("writer {writer} attempt {attempt}");
                let answer = client.post_patiently(&path, line, &key).await;
                assert_eq!(answer.status, 200, "{}", answer.text);
                let result = answer.tool_result();
                // After a conflict with other writers, the client tries again.
                if !result.is_error || result.content.contains("100") {
                    return result.is_error;
                }
            }
        }
    });
    let refused = join_all(writes).await;
    let added = refused.iter().filter(|is_refused| !**is_refused).count();
    assert_eq!(added, 10);
    let object = fleet.store(tenant, &tenant.store_id.to_string()).await;
    assert_eq!(object["content_bytes"], 100);
}

async fn lowered_limit_deletes_nothing_and_lets_nothing_grow(fleet: Fleet) {
    let tenant = fleet.tenants[0].clone();
    let store_id = tenant.store_id.to_string();
    let (path, more) = memory(&store_id, 1_000, 1);
    // A memory that was longer once.
    let writer = fleet.client(&tenant, 0);
    let first = writer.get(&format!("{path}?limit=1")).await.json()["data"][0]["id"].clone();
    let first = format!("{path}/{}", first.as_str().unwrap());
    let longer = writer.post(&first, &json!({"content": "xyz"})).await.json();
    assert_eq!(writer.post(&first, &json!({"content": "x"})).await.status, 200);
    let lowered = json!({
        "memories_per_store": 10, "bytes_per_store": 20, "bytes_per_tenant": 20, "stores_per_tenant": 0,
        "bytes_per_memory": 2,
    });
    let Fleet { deployment, mut servers, .. } = fleet;
    for server in &mut servers {
        server.end().await;
    }
    let provision = deployment.provision().await;
    provision.set_limits(tenant.id, &lowered).await;
    provision.close().await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    let object = client.get(&format!("{STORES}/{store_id}")).await.json();
    assert_eq!(object["memory_count"], 40);
    assert_eq!(object["content_bytes"], 40);
    over_quota(&client.post(&path, &more).await);
    over_quota(&client.post(STORES, &json!({"name": "more"})).await);
    let listed = client.get(&format!("{path}?limit=100")).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 40);
    let version = longer["memory_version_id"].as_str().unwrap();
    let restore = format!("{STORES}/{store_id}/memory_versions/{version}/restore");
    let refused = client.post(&restore, &json!({})).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let said = "over the limit of 2 bytes";
    assert!(refused.text.contains(said), "{}", refused.text);
    over_quota(&client.post(&first, &json!({"content": "xx"})).await);
    // Changing without growing, and shrinking, go on.
    assert_eq!(client.post(&first, &json!({"content": "y"})).await.status, 200);
    assert_eq!(client.post(&first, &json!({"content": ""})).await.status, 200);
}
