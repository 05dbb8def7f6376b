//! 64 writers race at each limit, through two servers on Postgres: together they stop
//! exactly at the limit.

use futures::future::join_all;
use serde_json::{Value, json};

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
    async fn new(pair: Pair, limits: [Value; 4]) -> Self {
        let deployment = Deployment::new(pair).await;
        let provision = deployment.provision().await;
        let mut tenants = Vec::new();
        for limits in limits {
            tenants.push(provision.tenant_with(limits).await);
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
        let (made, refused): (Vec<_>, Vec<_>) =
            join_all(writes).await.into_iter().partition(|answer| answer.status == 200);
        refused.iter().for_each(over_quota);
        made.len()
    }

    async fn get(&self, tenant: &Tenant, path: &str) -> Value {
        self.client(tenant, 0).get(path).await.json()
    }

    async fn bytes_in(&self, tenant: &Tenant, store_id: &str) -> u64 {
        self.get(tenant, &format!("{STORES}/{store_id}")).await["content_bytes"].as_u64().unwrap()
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

on_pairs! { racing_writers_stop_exactly_at_every_limit }

async fn racing_writers_stop_exactly_at_every_limit(pair: Pair) {
    let limits = [
        json!({"memories_per_store": 40}),
        json!({"bytes_per_store": 400}),
        json!({"bytes_per_tenant": 400}),
        json!({"stores_per_tenant": 41}),
    ];
    let fleet = Fleet::new(pair, limits).await;
    let [memories, store_bytes, tenant_bytes, stores] = &fleet.tenants[..] else {
        unreachable!("four tenants were made");
    };
    for (tenant, bytes, held) in [(memories, 1, 40), (store_bytes, 10, 400)] {
        let store_id = tenant.store_id.to_string();
        assert_eq!(fleet.race(tenant, |writer| memory(&store_id, writer, bytes)).await, 40);
        assert_eq!(fleet.bytes_in(tenant, &store_id).await, held);
    }

    // Over eight stores of the tenant.
    let mut ids = vec![tenant_bytes.store_id.to_string()];
    for number in 1..8 {
        let name = json!({"name": format!("{number}")});
        let made = fleet.client(tenant_bytes, 0).post(STORES, &name).await;
        ids.push(made.json()["id"].as_str().unwrap().to_owned());
    }
    let raced = fleet.race(tenant_bytes, |writer| memory(&ids[writer % ids.len()], writer, 10));
    assert_eq!(raced.await, 40);
    let held = join_all(ids.iter().map(|id| fleet.bytes_in(tenant_bytes, id))).await;
    assert_eq!(held.iter().sum::<u64>(), 400);

    // One is there already.
    let name = |writer: usize| (STORES.to_owned(), json!({"name": format!("{writer}")}));
    assert_eq!(fleet.race(stores, name).await, 40);
    let listed = fleet.get(stores, &format!("{STORES}?limit=100")).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 41);

    lowered_limit_deletes_nothing_and_lets_nothing_grow(fleet).await;
}

async fn lowered_limit_deletes_nothing_and_lets_nothing_grow(mut fleet: Fleet) {
    let tenant = fleet.tenants[0].clone();
    let (memories, more) = memory(&tenant.store_id.to_string(), 1_000, 1);
    let first = fleet.get(&tenant, &format!("{memories}?limit=1")).await["data"][0]["id"].clone();
    let first = format!("{memories}/{}", first.as_str().unwrap());
    for server in &mut fleet.servers {
        server.end().await;
    }
    let provision = fleet.deployment.provision().await;
    let lowered = json!({"memories_per_store": 10, "bytes_per_store": 20, "bytes_per_tenant": 20, "stores_per_tenant": 0});
    provision.set_limits(tenant.id, &lowered).await;
    provision.close().await;
    fleet.servers[0].restart().await;
    let client = fleet.client(&tenant, 0);
    let listed = fleet.get(&tenant, &format!("{memories}?limit=100")).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 40);
    assert_eq!(fleet.bytes_in(&tenant, &tenant.store_id.to_string()).await, 40);
    over_quota(&client.post(&memories, &more).await);
    over_quota(&client.post(STORES, &json!({"name": "more"})).await);
    over_quota(&client.post(&first, &json!({"content": "xx"})).await);
    // Changing without growing, and shrinking, go on.
    assert_eq!(client.post(&first, &json!({"content": "y"})).await.status, 200);
    assert_eq!(client.post(&first, &json!({"content": ""})).await.status, 200);
}
