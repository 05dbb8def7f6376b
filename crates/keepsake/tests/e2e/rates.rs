//! Rates of a tenant, through the front door of one server and of two.

use keepsake_engine::{Clock, SystemClock};

use crate::prelude::*;

fn rate(requests_per_second: u64, request_burst: u64) -> Value {
    json!({"requests_per_second": requests_per_second, "request_burst": request_burst})
}

/// Asks at once; answers the refusals.
async fn ask(client: &Client, times: usize) -> Vec<Answer> {
    let answers = join_all((0..times).map(|_| client.get(STORES))).await;
    answers.into_iter().filter(|answer| answer.status != 200).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn default_rates_admit_256_simultaneous_uploads() {
    let config = ServerConfig { more: String::new(), ..ServerConfig::default() };
    let (_deployment, tenant, _server, client) = started_with(Pair::PostgresS3, &config).await;
    let store = Store::of(&client, &tenant);
    join_all((0..256).map(async |n| store.create(&format!("/{n}"), "x").await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_refusal_has_retry_after_and_affects_one_tenant() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let (tenant, other) = (deployment.tenant_with(rate(1, 10)).await, deployment.tenant().await);
    let server = deployment.start().await;
    let refusals = ask(&server.client(&tenant), 40).await;
    // Ten at once, and one more for each second that it took.
    assert!((26..=30).contains(&refusals.len()), "{} were refused", refusals.len());
    for answer in refusals {
        refused(&answer, 429, "rate_limit_error");
        assert!((1..=30).contains(&answer.header("retry-after").parse::<u64>().unwrap()));
    }
    assert!(ask(&server.client(&other), 40).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_share_a_rate_and_one_that_ended_is_not_counted() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant_with(rate(1, 40)).await;
    let index = deployment.index().await;
    let _first = deployment.start().await;
    let mut second = deployment.start().await;
    let live = async || index.replicas.live_gateways(SystemClock.now()).await.unwrap();
    // One that was last heard of 90 seconds ago is taken for dead.
    let then = SystemClock.now().minus(Duration::from_secs(90)).as_micros();
    let silent = format!(
        "INSERT INTO replica (id, role, heartbeat_at, access_flushed_through) \
         VALUES (gen_random_uuid(), 'gateway', {then}, {then})"
    );
    deployment.execute(silent).await;
    assert_eq!(live().await, 2);
    // The second one knew of both from its start; half of the burst is its own.
    let refused = ask(&second.client(&tenant), 60).await.len();
    assert!((36..=40).contains(&refused), "{refused} were refused");
    second.end().await;
    assert_eq!(live().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rate_takes_effect_within_five_seconds() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant_with(rate(1_000, 1_000)).await;
    let server = deployment.start().await;
    let client = server.client(&tenant);
    assert!(ask(&client, 20).await.is_empty());
    deployment.provision().await.set_limits(tenant.id, &rate(0, 0)).await;
    let is_refused = async || ask(&client, 1).await.iter().any(|it| it.header("retry-after") == "30");
    eventually("nothing passes", Duration::from_secs(5), is_refused).await;
}
