//! 64 writers race at each limit, through two servers on Postgres: together they stop
//! exactly at the limit.

use crate::api::quotas::{made_up_to, over_quota};
use crate::prelude::*;

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

    fn store(&self, tenant: &Tenant) -> Store {
        Store::of(&self.client(tenant, 0), tenant)
    }

    /// Posts what each writer has to say, all at once; answers how many were let in. The
    /// others are over the limit.
    async fn race(&self, tenant: &Tenant, limit: u64, post: impl Fn(usize) -> (String, Value)) -> usize {
        let writes = (0..WRITERS).map(|writer| {
            let client = self.client(tenant, writer);
            let (path, body) = post(writer);
            async move { client.post_patiently(&path, &body, &format!("writer {writer}")).await }
        });
        made_up_to(limit, join_all(writes).await).len()
    }
}

fn memory(store: &Store, writer: usize, bytes: usize) -> (String, Value) {
    (store.memories(), json!({"path": format!("/{writer}"), "content": "x".repeat(bytes)}))
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
    let [memories, store_bytes, tenant_bytes, stores] = fleet.tenants.first_chunk::<4>().unwrap();
    for (tenant, bytes, limit) in [(memories, 1, 40), (store_bytes, 10, 400)] {
        let store = fleet.store(tenant);
        assert_eq!(fleet.race(tenant, limit, |writer| memory(&store, writer, bytes)).await, 40);
        assert_eq!(store.object().await["content_bytes"], limit);
    }

    // Over eight stores of the tenant.
    let mut eight = vec![fleet.store(tenant_bytes)];
    for number in 1..8 {
        eight.push(Store::make(&eight[0].client, &number.to_string()).await);
    }
    let raced = fleet.race(tenant_bytes, 400, |writer| memory(&eight[writer % 8], writer, 10));
    assert_eq!(raced.await, 40);
    let held = eight.iter().map(async |store| store.object().await["content_bytes"].as_u64().unwrap());
    assert_eq!(join_all(held).await.iter().sum::<u64>(), 400);

    // One is there already.
    let name = |writer: usize| (STORES.to_owned(), json!({"name": writer.to_string()}));
    assert_eq!(fleet.race(stores, 41, name).await, 40);
    assert_eq!(fleet.client(stores, 0).all(&format!("{STORES}?limit=100")).await.len(), 41);

    lowered_limit_deletes_nothing_and_lets_nothing_grow(fleet).await;
}

async fn lowered_limit_deletes_nothing_and_lets_nothing_grow(mut fleet: Fleet) {
    let tenant = fleet.tenants[0].clone();
    for server in &mut fleet.servers {
        server.end().await;
    }
    let provision = fleet.deployment.provision().await;
    let lowered = json!({"memories_per_store": 10, "bytes_per_store": 20, "bytes_per_tenant": 20, "stores_per_tenant": 0});
    provision.set_limits(tenant.id, &lowered).await;
    provision.close().await;
    fleet.servers[0].restart().await;
    let store = fleet.store(&tenant);
    let memories = store.client.all(&format!("{}?limit=100", store.memories())).await;
    assert_eq!((memories.len(), &store.object().await["content_bytes"]), (40, &json!(40)));
    over_quota(&store.try_create("/more", "x").await, 10);
    over_quota(&store.client.post(STORES, &json!({"name": "more"})).await, 0);
    over_quota(&store.try_update(&memories[0], &json!({"content": "xx"})).await, 20);
    // Changing without growing, and shrinking, go on.
    for content in ["y", ""] {
        store.update(&memories[0], &json!({"content": content})).await;
    }
}
