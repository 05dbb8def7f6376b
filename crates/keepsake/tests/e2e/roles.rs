//! Jobs by role, by hand, and what they leave on record.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::support::command::{keepsake_with, words};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Tenant, eventually, now_secs, secrets};

/// A schedule wakes each minute's jobs at one of three seconds.
const RUN_WITHIN: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn workers_run_every_job_and_gateways_none() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let (of_gateway, of_worker) = (Operator::new(), Operator::new());
    let gateway = deployment.command(&of_gateway.config).env("KEEPSAKE_ROLE", "gateway").start().await;
    let command = deployment.command(&of_worker.config).env("KEEPSAKE_ROLE", "worker");
    let mut worker = command.spawn();
    let is_ready = async || {
        let request = Client::new(&of_worker.url, "").bare(Method::GET, "/readyz");
        matches!(request.send().await, Ok(answer) if answer.status().is_success())
    };
    eventually("the worker is ready", Duration::from_secs(30), is_ready).await;
    // A worker serves no clients.
    let client = Client::new(&worker.url(), &tenant.key);
    assert!(client.bare(Method::GET, "/livez").send().await.is_err());
    let client = Client::new(&gateway.url(), &tenant.key);
    assert_eq!(client.get("/v1/memory_stores").await.status, 200);

    let database = deployment.database().await;
    let ran = async || {
        database
            .number(
                "SELECT count(DISTINCT name) FROM job_run WHERE ended_at IS NOT NULL \
                 AND name IN ('drain-deletions', 'purge-stores', 'erase', 'delete-tenants')",
            )
            .await
            == 4
    };
    eventually("the jobs of each minute run", RUN_WITHIN, ran).await;
    let by_others = "SELECT count(*) FROM job_run r WHERE NOT EXISTS ( \
                     SELECT 1 FROM replica p WHERE p.id = r.owner AND p.role = 'worker')";
    assert_eq!(database.number(by_others).await, 0, "a gateway ran a job");
    let gateways = "SELECT count(*) FROM replica WHERE role = 'gateway' AND access_flushed_through > 0";
    assert_eq!(database.number(gateways).await, 1, "it flushes for itself");
    database.close().await;
    // Each replica shows the runs.
    for operator in [&of_gateway, &of_worker] {
        let jobs = operator.get("/admin/v1/jobs").await;
        let jobs = jobs["data"].as_array().unwrap();
        let drain = jobs.iter().find(|job| job["name"] == "drain-deletions").unwrap();
        assert_eq!(drain["last_run"]["status"], "done", "{drain}");
    }
    worker.terminate().await;
    assert_eq!(worker.wait().await.code(), Some(0), "{}", worker.output());
    secrets::assert_none_in(&worker.output(), "the worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_refuses_split_roles() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    for role in ["gateway", "worker"] {
        let command = deployment.command(&ServerConfig::default()).env("KEEPSAKE_ROLE", role);
        let mut refused = command.spawn();
        assert_eq!(refused.wait().await.code(), Some(1));
        let told = refused.output();
        assert!(told.contains("role") && told.contains("must be all"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_by_hand() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenants = [deployment.tenant().await, deployment.tenant().await];
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config).await;
    write(&server.client(&tenants[0]), &tenants[0]).await;
    let job = async |line: &str| {
        let line = format!("job {line} --server {}", operator.url);
        keepsake_with(&words(&line), &[("KEEPSAKE_OPERATOR_TOKEN", &operator.token)]).await
    };
    let listed = job("list").await.ok();
    for name in ["drain-deletions", "sweep-blobs", "reconcile-usage", "prune"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{listed}");
    }
    let dry = job("run sweep-blobs --dry-run -o json").await.json();
    for (field, value) in
        [("status", json!("done")), ("dry_run", json!(true)), ("asked_for_by", json!("operator"))]
    {
        assert_eq!(dry[field], value, "{dry}");
    }
    let shown = job("run prune").await.ok();
    for part in ["status        done", "idempotency_records=0"] {
        assert!(shown.contains(part), "{shown}");
    }
    let history = job("history sweep-blobs -o json --limit 1").await.json();
    assert_eq!(history["data"][0]["job"], "sweep-blobs", "{history}");
    job("run make-coffee").await.ends(3, "the job was not found");
    job("history make-coffee").await.ends(3, "the job was not found");
    job("run drain-deletions --dry-run").await.ends(1, "`dry_run` must not be true");

    let run = async |job: &str, body: Option<&Value>| {
        let path = format!("/admin/v1/jobs/{job}/run");
        operator.send(Method::POST, &path, body).await
    };
    let begun = run("reconcile-usage", None).await;
    assert_eq!((begun.status, &begun.json()["status"]), (202, &json!("running")));
    let unknown = run("prune", Some(&json!({"dry": true}))).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text);
    let audit = operator.get("/admin/v1/audit?limit=100").await;
    let audit = audit["data"].as_array().unwrap();
    for action in ["dry_run.sweep-blobs", "run.prune", "run.reconcile-usage"] {
        let action = format!("job.{action}");
        let entries: Vec<_> = audit.iter().filter(|entry| entry["action"] == action).collect();
        assert_eq!(entries.len(), 1, "{action} {audit:?}");
        assert_eq!(entries[0]["actor"], "operator");
    }

    // A run that fails says why.
    let database = deployment.database().await;
    let rename = async |from: &str, to: &str| {
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        database.execute(rename).await;
    };
    rename("redeemed_code", "away").await;
    job("run prune").await;
    let runs = operator.get("/admin/v1/jobs/prune/runs?limit=1").await;
    let failed = &runs["data"][0];
    assert_eq!(failed["status"], "failed", "{runs}");
    assert!(failed["error"].is_string(), "{runs}");
    rename("away", "redeemed_code").await;

    // Another replica has the lease.
    let until = (now_secs() + 60) * 1_000_000;
    let take = format!(
        "UPDATE job SET lease_until = {until}, fence = fence + 1, owner = randomblob(16) WHERE name = 'prune'"
    );
    database.execute(take).await;
    let held = run("prune", None).await;
    assert_eq!((held.status, &held.json()["error"]["type"]), (409, &json!("conflict_error")));
    job("run prune").await.ends(4, "the job is running already");
    database.close().await;
    server.end().await;

    run_beside_the_database(server.config_file().to_str().unwrap()).await;
}

/// Two memories of three versions.
async fn write(client: &Client, tenant: &Tenant) {
    let create = |path: &str| json!({"command": "create", "path": path, "file_text": "text\n"});
    let insert = json!({"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "more"});
    for call in [create("/memories/a"), create("/memories/b"), insert] {
        client.tool_ok(tenant, &call).await;
    }
}

/// Runs jobs once no server has the database.
async fn run_beside_the_database(config: &str) {
    let run = async |job: &str| {
        let line = format!("job run {job} -o json --config {config}");
        keepsake_with(&words(&line), &[]).await.json()
    };
    let ran = run("count-totals").await;
    let expected = json!({
        "stores": 2, "memories": 2, "versions": 3, "memory_bytes": 15, "version_bytes": 20,
    });
    assert_eq!(ran["counts"]["totals"], expected, "{ran}");
    let ran = run("sweep-blobs").await;
    assert_eq!(ran["status"], "done");
    assert_eq!(ran["counts"]["missing"], 0);
}
