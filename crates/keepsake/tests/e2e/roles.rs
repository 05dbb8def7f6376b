//! Jobs by role, by hand, and what they leave on record.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::send;
use crate::support::command::{Run, keepsake_with};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, eventually, now_secs, secrets};

/// A schedule wakes each minute's jobs at one of three seconds.
const RUN_WITHIN: Duration = Duration::from_secs(90);

/// Asks an operator's listener; answers status and body.
async fn ask(url: &str, token: &str, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    let request = Client::new(url, "")
        .bare(method, &format!("/admin/v1{path}"))
        .bearer_auth(token);
    let answer = send(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await;
    (answer.status, answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_run_every_job_and_gateways_none() {
    let deployment = Deployment::new(Pair::Postgres).await;
    let tenant = deployment.tenant().await;
    let (of_gateway, gateway_url, gateway_token) = ServerConfig::operated();
    let (of_worker, worker_url, worker_token) = ServerConfig::operated();
    let gateway = deployment
        .command(&of_gateway)
        .env("KEEPSAKE_ROLE", "gateway")
        .start()
        .await;
    let command = deployment.command(&of_worker).env("KEEPSAKE_ROLE", "worker");
    let mut worker = command.spawn();
    let is_ready = async || {
        let request = Client::new(&worker_url, "").bare(Method::GET, "/readyz");
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
    for (url, token) in [(&gateway_url, &gateway_token), (&worker_url, &worker_token)] {
        let (status, jobs) = ask(url, token, Method::GET, "/jobs", None).await;
        assert_eq!(status, 200, "{jobs}");
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
        let command = deployment
            .command(&ServerConfig::default())
            .env("KEEPSAKE_ROLE", role);
        let mut refused = command.spawn();
        assert_eq!(refused.wait().await.code(), Some(1));
        let output = refused.output();
        assert!(
            output.contains("role") && output.contains("must be all"),
            "{output}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_by_hand_on_postgres_and_s3() {
    jobs_run_by_hand(Pair::PostgresS3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_by_hand_on_sqlite() {
    jobs_run_by_hand(Pair::Sqlite).await;
}

async fn jobs_run_by_hand(pair: Pair) {
    let deployment = Deployment::new(pair).await;
    let (config, url, token) = ServerConfig::operated();
    let mut server = deployment.start_with(&config).await;
    let job = async |arguments: &[&str]| {
        let asked = [&["job"], arguments, &["--server", &url]].concat();
        keepsake_with(&asked, &[("KEEPSAKE_OPERATOR_TOKEN", &token)]).await
    };
    let listed = job(&["list"]).await.ok();
    for name in ["drain-deletions", "sweep-blobs", "reconcile-usage", "prune"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{listed}");
    }
    for words in [
        "JOB",
        "SCHEDULE",
        "every minute, next ",
        "daily at 00:05 UTC, next in ",
    ] {
        assert!(listed.contains(words), "{words}: {listed}");
    }
    let dry = job(&["run", "sweep-blobs", "--dry-run", "-o", "json"])
        .await
        .json();
    assert_eq!(
        (&dry["status"], &dry["dry_run"]),
        (&json!("done"), &json!(true)),
        "{dry}"
    );
    assert_eq!(dry["asked_for_by"], "operator");
    let shown = job(&["run", "prune"]).await.ok();
    assert!(
        shown.contains("status        done") && shown.contains("idempotency_records=0"),
        "{shown}"
    );
    let history = job(&["history", "sweep-blobs", "-o", "json", "--limit", "1"])
        .await
        .json();
    assert_eq!(history["data"][0]["job"], "sweep-blobs", "{history}");
    refused(3, &job(&["run", "make-coffee"]).await, "the job was not found");
    refused(
        3,
        &job(&["history", "make-coffee"]).await,
        "the job was not found",
    );
    refused(
        1,
        &job(&["run", "drain-deletions", "--dry-run"]).await,
        "`dry_run` must not be true",
    );

    let ask =
        async |method, path: &str, body: Option<Value>| ask(&url, &token, method, path, body.as_ref()).await;
    let (status, begun) = ask(Method::POST, "/jobs/reconcile-usage/run", None).await;
    assert_eq!((status, &begun["status"]), (202, &json!("running")), "{begun}");
    let (status, error) = ask(Method::POST, "/jobs/prune/run", Some(json!({"dry": true}))).await;
    assert_eq!(status, 400, "{error}");
    let (_, audit) = ask(Method::GET, "/audit?limit=100", None).await;
    let audit = audit["data"].as_array().unwrap();
    for action in [
        "job.dry_run.sweep-blobs",
        "job.run.prune",
        "job.run.reconcile-usage",
    ] {
        let entries: Vec<_> = audit.iter().filter(|entry| entry["action"] == action).collect();
        assert_eq!(entries.len(), 1, "{action} {audit:?}");
        assert_eq!(entries[0]["actor"], "operator");
    }

    // Another replica has the lease.
    let database = deployment.database().await;
    let held = async || {
        let until = (now_secs() + 60) * 1_000_000;
        let take = format!(
            "UPDATE job SET lease_until = {until}, fence = fence + 1, owner = name_owner WHERE name = 'prune'"
        );
        let owner = if pair.has_postgres() {
            "gen_random_uuid()"
        } else {
            "randomblob(16)"
        };
        database.execute(take.replace("name_owner", owner)).await;
    };
    held().await;
    let (status, error) = ask(Method::POST, "/jobs/prune/run", None).await;
    assert_eq!(
        (status, &error["error"]["type"]),
        (409, &json!("conflict_error")),
        "{error}"
    );
    refused(4, &job(&["run", "prune"]).await, "the job is running already");
    database.close().await;
    server.end().await;

    run_beside_the_database(server.config_file().to_str().unwrap()).await;
}

/// Runs a job once no server has the database.
async fn run_beside_the_database(config: &str) {
    let beside = ["job", "run", "sweep-blobs", "-o", "json", "--config", config];
    let ran = keepsake_with(&beside, &[]).await.json();
    assert_eq!(
        (&ran["status"], &ran["counts"]["missing"]),
        (&json!("done"), &json!(0)),
        "{ran}"
    );
}

fn refused(code: i32, run: &Run, why: &str) {
    assert_eq!(run.code, Some(code), "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains(why), "{}", run.stderr);
}
