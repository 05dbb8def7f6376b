//! A listing costs what it shows, not what the store holds.
//!
//! Measured is the CPU time of the server, which does not depend on what else the
//! machine does. The tests of the index count the rows and steps of the database.

use keepsake_core::limits::LimitOverrides;
use serde_json::json;

use crate::support::{Client, Deployment, Pair, Tenant, bulk};

const MANY: u64 = 100_000;
const FEW: u64 = 100;
const DIRECTORIES: u64 = 10;
const REQUESTS: usize = 50;
/// The least of them counts: what else the machine does can only add to one.
const MEASUREMENTS: usize = 3;
/// Maximum CPU time per line of the large listing, relative to the small
/// listing.
const MAX_TIMES_PER_LINE: u64 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn listing_a_hundred_thousand_files_costs_little_more_on_postgres() {
    listing_costs_little_more(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_a_hundred_thousand_files_costs_little_more_on_sqlite() {
    listing_costs_little_more(Pair::Sqlite).await;
}

async fn listing_costs_little_more(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let limits = LimitOverrides { memories_per_store: Some(MANY), ..LimitOverrides::default() };
    let few = deployment.tenant_with(limits.clone()).await;
    let many = deployment.tenant_with(limits).await;
    bulk::fill(&deployment, &few, FEW, DIRECTORIES).await;
    bulk::fill(&deployment, &many, MANY, DIRECTORIES).await;
    let server = deployment.start().await;
    let (few_client, many_client) = (server.client(&few), server.client(&many));
    let (few_lines, many_lines) = (view(&few_client, &few).await, view(&many_client, &many).await);
    // Header, root, directories, files.
    assert_eq!(few_lines, 2 + 10 + 100);
    assert!(many_lines > 300, "{many_lines} lines: the listing is to be full");

    let cost = async |client: &Client, tenant: &Tenant| {
        let before = server.cpu_ticks();
        for _ in 0..REQUESTS {
            view(client, tenant).await;
        }
        // Less than one tick cannot be measured, and counts as one.
        (server.cpu_ticks() - before).max(1)
    };
    let mut least = [u64::MAX; 2];
    for _ in 0..MEASUREMENTS {
        least[0] = least[0].min(cost(&few_client, &few).await);
        least[1] = least[1].min(cost(&many_client, &many).await);
    }
    let [few_ticks, many_ticks] = least;
    println!("{REQUESTS} views take {few_ticks} ticks of {FEW} files and {many_ticks} of {MANY}");
    // The full listing shows about three times as many lines.
    let lines = u64::try_from(many_lines.div_ceil(few_lines)).unwrap();
    assert!(
        many_ticks <= few_ticks * lines * MAX_TIMES_PER_LINE,
        "listing {MANY} files takes {many_ticks} ticks, listing {FEW} takes {few_ticks}"
    );
}

/// How many lines one view of the root has.
async fn view(client: &Client, tenant: &Tenant) -> usize {
    let input = json!({"command": "view", "path": "/memories"});
    let answer = client.call(tenant.store_id, &input).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.tool_result().content.lines().count()
}
