//! Jobs beside clients, in this process: a clock that is ahead makes everything old enough to be removed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use keepsake_blobs::BlobStore;
use keepsake_core::Timestamp;
use keepsake_engine::jobs::{
    DrainDeletions, ExpireUnused, ExpireVersions, Job, Prune, RunOutcome, RunRequest, SweepBlobs,
};
use keepsake_engine::{Clock, Engine, EngineOptions, KeyDraft, NewTenant, SystemClock};
use keepsake_index::{Auditor, Index, Scope, SqliteIndex};
use keepsake_server::{Lifecycle, ServerOptions};
use keepsake_testkit::{fresh_s3, locked};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::audit::Reader;
use super::client::{Endpoint, Shared, StoreLog};
use super::random::{Random, fresh_seed};
use super::workload::Group;

/// Acknowledged and refused calls after which the clients stop.
const CALLS: u64 = 1_500;
const LIMIT: Duration = Duration::from_mins(2);

/// Two servers in this process on one index, as two replicas are.
struct Servers {
    urls: Vec<String>,
    engines: Vec<Engine>,
    index: Index,
    lifecycle: Lifecycle,
}

impl Servers {
    /// Without an object store, content is in the index.
    async fn start(folder: &Path, blobs: Option<&Arc<dyn BlobStore>>, options: &EngineOptions) -> Self {
        let url = format!("sqlite://{}", folder.join("index.db").display());
        let index = Index::from(SqliteIndex::open(&url).await.unwrap());
        let lifecycle = Lifecycle::default();
        let (mut urls, mut engines) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let engine = Engine::new(index.clone(), blobs.cloned(), options.clone());
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            urls.push(format!("http://{}", listener.local_addr().unwrap()));
            engines.push(engine.clone());
            let served =
                keepsake_server::serve(engine, listener, ServerOptions::default(), lifecycle.clone());
            tokio::spawn(served);
        }
        Self { urls, engines, index, lifecycle }
    }

    /// The key of a new tenant.
    async fn new_key(&self) -> String {
        let (engine, by) = (&self.engines[0], Auditor::OperatorCli);
        let name = "torture".to_owned();
        let tenant = NewTenant { name: name.clone(), ..NewTenant::default() };
        let tenant_id = engine.tenants.create(tenant, by.clone()).await.unwrap().tenant_id;
        let operator = engine.tenants.operator(tenant_id, by).await.unwrap();
        let draft = KeyDraft { name, scopes: Scope::ALL.to_vec(), store_ids: None, expires_at: None };
        let made = engine.keys.create(&operator, draft, None).await.unwrap();
        made.secret.unwrap().expose().to_owned()
    }

    async fn stop(self) {
        self.lifecycle.draining.cancel();
        self.lifecycle.stopping.cancel();
        for engine in &self.engines {
            engine.shut_down(Duration::from_secs(10)).await;
        }
        self.index.close().await;
    }
}

/// Runs a group of clients for [`CALLS`]; their logs.
async fn work(servers: &Servers, key: &str) -> Vec<Arc<StoreLog>> {
    let seed = fresh_seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let endpoints = servers.urls.iter().map(|url| Endpoint { url: url.clone(), is_faulty: false });
    let (shared, stopping) = (Shared::new(endpoints.collect(), key), CancellationToken::new());
    let logs = Arc::default();
    let clients = Group::new(&shared, &logs, Duration::ZERO).start(&mut random, &stopping);
    let made = || {
        let counts = shared.counts();
        counts.done + counts.refused
    };
    let enough = async {
        while made() < CALLS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, enough).await.expect("the clients are too slow");
    stopping.cancel();
    join_all(clients).await;
    locked(&logs).clone()
}

/// Two days ahead: every blob is old enough to be swept as soon as it is put.
#[derive(Debug)]
struct ClockAhead;

impl Clock for ClockAhead {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus(Duration::from_hours(48))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_beside_clients_remove_no_object_that_is_needed() {
    jobs_remove_nothing_that_is_needed(Some(fresh_s3().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_beside_clients_remove_no_content_that_is_needed() {
    jobs_remove_nothing_that_is_needed(None).await;
}

async fn jobs_remove_nothing_that_is_needed(blobs: Option<Arc<dyn BlobStore>>) {
    let folder = tempfile::tempdir().unwrap();
    let options = EngineOptions { clock: Arc::new(ClockAhead), ..EngineOptions::default() };
    let servers = Servers::start(folder.path(), blobs.as_ref(), &options).await;
    let key = servers.new_key().await;
    let engine = servers.engines[1].clone();
    let jobs = tokio::spawn(async move {
        loop {
            run_once(&engine, SweepBlobs::default()).await;
            run_once(&engine, DrainDeletions).await;
            run_once(&engine, ExpireVersions).await;
            run_once(&engine, ExpireUnused).await;
            run_once(&engine, Prune::default()).await;
        }
    });
    let logs = work(&servers, &key).await;
    assert!(!jobs.is_finished(), "a job failed");
    jobs.abort();
    servers.stop().await;
    // With empty caches.
    let servers = Servers::start(folder.path(), blobs.as_ref(), &EngineOptions::default()).await;
    let violations = Reader::new(&servers.urls[0], &key).check_stores(&logs).await;
    servers.stop().await;
    assert!(violations.is_empty(), "{violations:#?}");
}

async fn run_once(engine: &Engine, job: impl Job + 'static) {
    let stopping = CancellationToken::new();
    let outcome = engine.jobs.run(Arc::new(job), RunRequest::manual(false), &stopping).await.unwrap();
    assert!(matches!(outcome, RunOutcome::Ran(_)), "{outcome:?}");
}
