//! Compares the stores at the end with the clients' logs.

use std::time::Duration;

use futures::stream::{self, StreamExt};
use keepsake_testkit::history::{FinalHead, Operation, Version};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::client::StoreLog;
use super::fleet::{Fleet, Pair};

const AT_ONCE: usize = 4;
const JOB_LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone)]
pub(crate) struct Reader {
    http: reqwest::Client,
    url: String,
    key: String,
}

impl Reader {
    pub(crate) fn new(url: &str, key: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_mins(1)).build().unwrap();
        Self { http, url: url.to_owned(), key: key.to_owned() }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let request = self.http.get(format!("{}{path}", self.url)).header("x-api-key", &self.key);
        let response = request.send().await.map_err(|error| format!("{path}: {error}"))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| format!("{path}: {error}"))?;
        if !status.is_success() {
            return Err(format!("{path} was answered {status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
    }

    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        let mut page = String::new();
        loop {
            let mut answer = self.get(&format!("{path}?view=full&limit=20{page}")).await?;
            items.append(answer["data"].as_array_mut().ok_or("a list without data")?);
            match answer["next_page"].as_str() {
                Some(next) => page = format!("&page={next}"),
                None => return Ok(items),
            }
        }
    }

    async fn check_store(&self, log: &StoreLog) -> Result<Vec<String>, String> {
        let store = format!("/v1/memory_stores/{}", log.store_id);
        let mut history = log.history().clone();
        let mut versions = self.list(&format!("{store}/memory_versions")).await?;
        versions.reverse();
        history.versions = versions.iter().map(version).collect();
        let heads = self.list(&format!("{store}/memories")).await?;
        history.heads = heads.iter().map(head).collect();
        let mut violations: Vec<_> = history.check().iter().map(ToString::to_string).collect();
        let counted: usize = history.heads.iter().map(|head| head.content.len()).sum();
        let shown = self.get(&store).await?;
        if shown["memory_count"] != json!(heads.len()) || shown["content_bytes"] != json!(counted) {
            let of = format!("{} memories of {counted} bytes are listed", heads.len());
            violations.push(format!("{of}, the store's counters say {shown}"));
        }
        Ok(violations)
    }

    pub(crate) async fn check_stores(&self, logs: &[std::sync::Arc<StoreLog>]) -> Vec<String> {
        let checks = stream::iter(logs).map(|log| async move {
            let violations = self.check_store(log).await.unwrap_or_else(|error| vec![error]);
            violations
                .into_iter()
                .map(|violation| format!("{}: {violation}", log.store_id))
                .collect::<Vec<_>>()
        });
        checks.buffer_unordered(AT_ONCE).concat().await
    }
}

/// Violations of the whole fleet: counters, open transactions, missing blobs.
pub(crate) async fn check_fleet(fleet: &Fleet) -> Vec<String> {
    let mut violations = recount(fleet).await;
    violations.extend(open_transactions(fleet).await);
    if fleet.pair == Pair::Sqlite {
        // One process at a time has the file.
        fleet.gateways[0].terminate().await;
    }
    match fleet.verify().await {
        Ok(report) if report["problem_count"] == 0 => {}
        Ok(report) => violations.push(format!("`keepsake verify` found {report}")),
        Err(error) => violations.push(error),
    }
    violations
}

/// Counts stores and tenants again by the job, which must find nothing.
async fn recount(fleet: &Fleet) -> Vec<String> {
    let gateway = &fleet.gateways[0];
    let deadline = tokio::time::Instant::now() + JOB_LIMIT;
    let mut run_id: Option<String> = None;
    while tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Some(wanted) = &run_id else {
            let body = json!({"dry_run": true});
            // 409 while another run is under way.
            let begun = gateway.operator(Method::POST, "/jobs/reconcile-usage/run", Some(&body)).await;
            run_id = begun.and_then(|begun| begun["id"].as_str().map(str::to_owned));
            continue;
        };
        let runs = gateway.operator(Method::GET, "/jobs/reconcile-usage/runs", None).await;
        let runs = runs.unwrap_or_default();
        let run =
            runs["data"].as_array().and_then(|runs| runs.iter().find(|run| run["id"] == **wanted).cloned());
        let Some(run) = run.filter(|run| run["status"] != "running") else { continue };
        let drifts = ["drifted_stores", "drifted_directories", "drifted_tenants", "lost_heads", "failed"];
        let is_clean = run["status"] == "done" && drifts.iter().all(|drift| run["counts"][drift] == 0);
        return if is_clean { Vec::new() } else { vec![format!("`reconcile-usage` found {run}")] };
    }
    vec!["`reconcile-usage` did not end in time".to_owned()]
}

async fn open_transactions(fleet: &Fleet) -> Vec<String> {
    let Some(url) = fleet.postgres_url().await else { return Vec::new() };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT usename || ' in ' || coalesce(query, '') FROM pg_stat_activity \
         WHERE state LIKE 'idle in transaction%' AND state_change < now() - interval '5 seconds'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    open.into_iter().map(|session| format!("a transaction is left open: {session}")).collect()
}

fn version(shown: &Value) -> Version {
    let text = |field: &str| shown[field].as_str().map(str::to_owned);
    Version {
        id: text("id").unwrap(),
        memory_id: text("memory_id").unwrap(),
        operation: match shown["operation"].as_str() {
            Some("created") => Operation::Created,
            Some("modified") => Operation::Modified,
            Some("deleted") => Operation::Deleted,
            other => panic!("an unknown operation: {other:?}"),
        },
        path: text("path"),
        content: text("content"),
        is_redacted: shown["redacted_at"].is_string(),
    }
}

fn head(shown: &Value) -> FinalHead {
    let text = |field: &str| shown[field].as_str().unwrap_or_default().to_owned();
    FinalHead { memory_id: text("id"), path: text("path"), content: text("content") }
}
