//! Jobs by role, by hand, and what they leave on record.

use crate::prelude::*;

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
    let probe = || Client::new(&of_worker.url, "").bare(Method::GET, "/readyz");
    let is_ready = async || try_send(probe()).await.is_ok_and(|answer| answer.status == 200);
    soon("the worker is ready", is_ready).await;
    // A worker serves no clients.
    assert!(Client::new(&worker.url(), "").bare(Method::GET, "/livez").send().await.is_err());
    assert_eq!(Client::new(&gateway.url(), &tenant.key).get("/v1/memory_stores").await.status, 200);

    let database = deployment.database().await;
    let ended = "SELECT count(DISTINCT name) FROM job_run WHERE ended_at IS NOT NULL \
                 AND name IN ('drain-deletions', 'purge-stores', 'erase', 'delete-tenants')";
    let ran = async || database.number(ended).await == 4;
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
    // The gateway runs by hand what it is asked to; its metrics count no dry run.
    for dry in ["--dry-run", ""] {
        let line = format!("job run prune {dry} --server {}", of_gateway.url);
        keepsake_with(&words(&line), &[("KEEPSAKE_OPERATOR_TOKEN", &of_gateway.token)]).await.ok();
    }
    let series = "keepsake_job_runs_total{job=\"prune\",outcome=\"succeeded\"} ";
    let is_counted_once = async || of_gateway.metric(series).await == Some(1);
    soon("one run is counted", is_counted_once).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_by_hand() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let operator = Operator::new();
    let mut server = deployment.start_with(&operator.config).await;
    let job = async |line: &str| {
        let line = format!("job {line} --server {}", operator.url);
        keepsake_with(&words(&line), &[("KEEPSAKE_OPERATOR_TOKEN", &operator.token)]).await
    };
    let dry = job("run sweep-blobs --dry-run -o json").await.json();
    let fields = ["status", "dry_run", "asked_for_by"].map(|field| dry[field].clone());
    assert_eq!(fields, [json!("done"), json!(true), json!("operator")], "{dry}");
    let pruned = job("run prune -o json").await.json();
    assert_eq!(pruned["counts"]["idempotency_records"], 0, "{pruned}");
    job("run make-coffee").await.ends(3, "no job has the name `make-coffee`; `keepsake job list` shows");
    job("run drain-deletions --dry-run").await.ends(1, "`--dry-run` must not be true");

    let run = async |job: &str, body: Option<&Value>| {
        operator.send(Method::POST, &format!("/admin/v1/jobs/{job}/run"), body).await
    };
    let begun = run("reconcile-usage", None).await;
    assert_eq!((begun.status, &begun.json()["status"]), (202, &json!("running")));
    assert_eq!(run("prune", Some(&json!({"dry": true}))).await.status, 400);
    let audit = operator.get("/admin/v1/audit?limit=100").await;
    let audit = audit["data"].as_array().unwrap();
    for action in ["job.dry_run.sweep-blobs", "job.run.prune", "job.run.reconcile-usage"] {
        let entries = audit.iter().filter(|entry| entry["action"] == action);
        let actors: Vec<_> = entries.map(|entry| &entry["actor"]).collect();
        assert_eq!(actors, ["operator"], "{action} {audit:?}");
    }
    // A run that fails says why.
    let database = deployment.database().await;
    database.execute("ALTER TABLE redeemed_code RENAME TO away".to_owned()).await;
    job("run prune").await;
    let runs = operator.get("/admin/v1/jobs/prune/runs?limit=1").await;
    let failed = &runs["data"][0];
    assert!(failed["status"] == "failed" && failed["error"].is_string(), "{runs}");
    database.execute("ALTER TABLE away RENAME TO redeemed_code".to_owned()).await;
    // One that was killed is shown as running until its lease ends.
    for (until, status) in [((now_secs() + 60) * 1_000_000, "running"), (1, "interrupted")] {
        let kill = format!(
            "UPDATE job_run SET ended_at = NULL, error = NULL WHERE slot = {}; \
             UPDATE job SET lease_until = {until}, owner = randomblob(16) WHERE name = 'prune'",
            failed["id"].as_str().unwrap()
        );
        database.execute(kill).await;
        let runs = operator.get("/admin/v1/jobs/prune/runs?limit=1").await;
        assert_eq!(runs["data"][0]["status"], status, "{runs}");
    }
    // Another replica has the lease.
    let set = format!("lease_until = {}, fence = fence + 1", (now_secs() + 60) * 1_000_000);
    database.execute(format!("UPDATE job SET {set}, owner = randomblob(16) WHERE name = 'prune'")).await;
    let held = run("prune", None).await;
    assert_eq!((held.status, &held.json()["error"]["type"]), (409, &json!("conflict_error")));
    job("run prune").await.ends(4, "the job is running already");
    database.close().await;
    server.end().await;
}
