//! A listing costs what it shows, not what the store holds.

use std::time::{Duration, Instant};

use keepsake_core::limits::LimitOverrides;
use serde_json::json;

use crate::support::{Client, Deployment, Pair, Tenant, bulk};

const MANY: u64 = 100_000;
const FEW: u64 = 100;
const DIRECTORIES: u64 = 10;
const REQUESTS: usize = 50;
/// A busy machine may disturb one measurement, hardly three.
const MEASUREMENTS: usize = 3;
const MOST_TIMES_SLOWER: f64 = 3.0;

#[tokio::test(flavor = "multi_thread")]
async fn listing_a_hundred_thousand_files_costs_little_more_on_postgres() {
    listing_costs_little_more(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_a_hundred_thousand_files_costs_little_more_on_sqlite() {
    listing_costs_little_more(Pair::SqliteFiles).await;
}

async fn listing_costs_little_more(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let limits = LimitOverrides {
        memories_per_store: Some(MANY),
        ..LimitOverrides::default()
    };
    let few = deployment.tenant_with(limits.clone()).await;
    let many = deployment.tenant_with(limits).await;
    bulk::fill(&deployment, &few, FEW, DIRECTORIES).await;
    bulk::fill(&deployment, &many, MANY, DIRECTORIES).await;
    let server = deployment.start().await;
    let (few_client, many_client) = (server.client(&few), server.client(&many));
    let (few_lines, many_lines) = (view(&few_client, &few).await.1, view(&many_client, &many).await.1);
    // Header, root, directories, files.
    assert_eq!(few_lines, 2 + 10 + 100);
    assert!(many_lines > 300, "{many_lines} lines: the listing is to be full");

    let mut ratios = Vec::new();
    for _ in 0..MEASUREMENTS {
        let (mut few_times, mut many_times) = (Vec::new(), Vec::new());
        for _ in 0..REQUESTS {
            few_times.push(view(&few_client, &few).await.0);
            many_times.push(view(&many_client, &many).await.0);
        }
        let ratio = median(many_times).as_secs_f64() / median(few_times).as_secs_f64();
        println!("{MANY} files take {ratio:.2} times as long as {FEW}");
        if ratio <= MOST_TIMES_SLOWER {
            return;
        }
        ratios.push(ratio);
    }
    panic!("listing {MANY} files takes {ratios:.2?} times as long as listing {FEW}");
}

/// How long one view of the root took, and how many lines it had.
async fn view(client: &Client, tenant: &Tenant) -> (Duration, usize) {
    let input = json!({"command": "view", "path": "/memories"});
    let started = Instant::now();
    let answer = client.call(tenant.store_id, &input).await;
    let took = started.elapsed();
    assert_eq!(answer.status, 200, "{}", answer.text);
    (took, answer.tool_result().content.lines().count())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
