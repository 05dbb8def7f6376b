//! Rates of a tenant, through the front door of one server and of two.

use std::time::Duration;

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use serde_json::json;

use crate::support::deployment::ServerConfig;
use crate::support::{Answer, Client, Deployment, Pair, eventually};

const STORES: &str = "/v1/memory_stores";

fn rate(requests_per_second: u64, request_burst: u64) -> LimitOverrides {
    LimitOverrides {
        requests_per_second: Some(requests_per_second),
        request_burst: Some(request_burst),
        ..LimitOverrides::default()
    }
}

async fn ask(client: &Client, times: usize) -> Vec<Answer> {
    join_all((0..times).map(|_| client.get(STORES))).await
}

fn passed(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.status == 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn default_rates_admit_256_simultaneous_uploads() {
    let deployment = Deployment::new(Pair::PostgresS3).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { more: String::new(), ..ServerConfig::default() };
    let server = deployment.start_with(&config).await;
    let client = server.client(&tenant);
    let memories = format!("{STORES}/{}/memories", tenant.store_id);
    let uploads = (0..256).map(|n| {
        let body = json!({"path": format!("/{n}"), "content": "x"});
        let (client, memories) = (&client, &memories);
        async move { client.post(memories, &body).await }
    });
    for answer in join_all(uploads).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_refusal_has_retry_after_and_affects_one_tenant() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let provision = deployment.provision().await;
    let tenant = provision.tenant(rate(1, 10)).await;
    let other = provision.tenant(LimitOverrides::default()).await;
    provision.close().await;
    let server = deployment.start().await;
    let answers = ask(&server.client(&tenant), 40).await;
    // Ten at once, and one more for each second that it took.
    let admitted = passed(&answers);
    assert!((10..15).contains(&admitted), "{admitted} passed");
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(refused.status, 429, "{}", refused.text);
        assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
        let after: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=30).contains(&after));
        assert_eq!(refused.header("x-should-retry"), "");
    }
    assert_eq!(passed(&ask(&server.client(&other), 40).await), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_share_a_rate_and_one_that_ended_is_not_counted() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant_with(rate(1, 40)).await;
    let index = deployment.index().await;
    let first = deployment.start().await;
    let mut second = deployment.start().await;
    let live = async || index.replicas.live_gateways(now()).await.unwrap();
    assert_eq!(live().await, 2);
    // One that was last heard of 90 seconds ago is taken for dead.
    let then = now().minus(Duration::from_secs(90)).as_micros();
    let silent = format!("INSERT INTO replica VALUES (gen_random_uuid(), 'gateway', {then}, {then})");
    let database = deployment.database().await;
    database.execute(silent).await;
    database.close().await;
    assert_eq!(live().await, 2);
    // The second one knew of both from its start; half of the burst is its own.
    let passed_there = passed(&ask(&second.client(&tenant), 60).await);
    assert!((20..25).contains(&passed_there), "{passed_there} passed");
    second.end().await;
    assert_eq!(live().await, 1);
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rate_takes_effect_within_five_seconds() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant_with(rate(1_000, 1_000)).await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    assert_eq!(passed(&ask(&client, 20).await), 20);
    let none = json!({"requests_per_second": 0, "request_burst": 0});
    deployment.provision().await.set_limits(tenant.id, &none).await;
    eventually("nothing passes", Duration::from_secs(5), async || client.get(STORES).await.status == 429)
        .await;
    let refused = client.get(STORES).await;
    assert_eq!(refused.header("retry-after"), "30");
}

fn now() -> keepsake_core::Timestamp {
    use keepsake_engine::{Clock, SystemClock};
    SystemClock.now()
}
