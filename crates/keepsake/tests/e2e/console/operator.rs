//! The operator's console.

use std::time::Duration;

use super::browser::Browser;
use crate::support::deployment::ServerConfig;
use crate::support::{Deployment, Pair, Server, eventually};

/// A server with an operator's listener.
pub(super) struct Operated {
    pub(super) server: Server,
    /// Of the operator's listener.
    pub(super) url: String,
    pub(super) token: String,
}

impl Operated {
    pub(super) async fn on(deployment: &Deployment) -> Self {
        let (config, url, token) = ServerConfig::operated();
        Self {
            server: deployment.start_with(&config).await,
            url,
            token,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_looks_at_health_tenants_and_jobs() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let Operated { server, url, token } = Operated::on(&deployment).await;
    let mut browser = Browser::new(&url);
    assert_eq!(browser.get("/console/health").await.status, 303);
    let wrong = browser.sign_in(&tenant.key, "").await;
    assert_eq!(wrong.status, 401, "{}", wrong.text);
    let entered = browser.sign_in(&token, "").await;
    assert_eq!(
        (entered.status, entered.location()),
        (303, "/console/health"),
        "{}",
        entered.text
    );
    // The cookie of one console is none of the other.
    let mut stranger = Browser::new(&server.url());
    stranger.cookies.insert(
        "keepsake_console".to_owned(),
        browser.cookies["keepsake_operator"].clone(),
    );
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
    browser
        .act(&shown, &format!("{job}/run"), &[("dry_run", "1")])
        .await;
    eventually("the dry run ends", Duration::from_secs(20), async || {
        let text = browser.clone().get(job).await.text;
        text.contains("<span class=\"badge done\">done</span> <span class=\"badge\">dry</span>")
    })
    .await;
    assert_eq!(browser.get("/console/jobs/nothing").await.status, 404);
}
