//! The operator's console.

use std::time::Duration;

use super::browser::Browser;
use crate::operator::Operator;
use crate::support::{Deployment, Pair, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn operator_looks_at_health_tenants_and_jobs() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let operator = Operator::new();
    let server = deployment.start_with(&operator.config).await;
    let mut browser = Browser::new(&operator.url);
    assert_eq!(browser.get("/console/health").await.status, 303);
    let wrong = browser.sign_in(&tenant.key, "").await;
    assert_eq!(wrong.status, 401, "{}", wrong.text);
    let entered = browser.sign_in(&operator.token, "").await;
    assert_eq!((entered.status, entered.location()), (303, "/console/health"));
    // The cookie of one console is none of the other.
    let mut stranger = Browser::new(&server.url());
    let cookie = browser.cookies["keepsake_operator"].clone();
    stranger.cookies.insert("keepsake_console".to_owned(), cookie);
    assert_eq!(stranger.get("/console/stores").await.status, 303);

    let health = browser.open("/console/health").await;
    health.has("ready");
    health.has("Requests under way");
    browser.open("/console/tenants").await.has(&tenant.id.to_string());
    let page = format!("/console/tenants/{}", tenant.id);
    let shown = browser.open(&page).await;
    shown.has("memories per store");
    let unknown = browser.post(&format!("{page}/suspend"), &[("token", "x")]).await;
    assert_eq!(unknown.status, 403);
    browser.act(&shown, &format!("{page}/suspend"), &[]).await;
    let client = server.client(&tenant);
    eventually("the tenant is suspended", Duration::from_secs(8), async || {
        client.get("/v1/memory_stores").await.status != 200
    })
    .await;
    browser.act(&shown, &format!("{page}/resume"), &[]).await;

    let jobs = browser.open("/console/jobs").await;
    jobs.has("sweep-blobs");
    let job = "/console/jobs/sweep-blobs";
    let shown = browser.open(job).await;
    let run = format!("{job}/run");
    browser.act(&shown, &run, &[("dry_run", "1")]).await;
    eventually("the dry run ends", Duration::from_secs(20), async || {
        let text = browser.clone().get(job).await.text;
        text.contains("<span class=\"badge done\">done</span> <span class=\"badge\">dry</span>")
    })
    .await;
    assert_eq!(browser.get("/console/jobs/nothing").await.status, 404);
}
