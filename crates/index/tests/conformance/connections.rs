//! Connections to Postgres that break, go silent, or are left in the middle.

use std::time::{Duration, Instant};

use futures::future::join_all;
use keepsake_index::postgres::PostgresOptions;
use keepsake_index::{Index, IndexError, PostgresIndex, Tenant, TenantStatus};
use keepsake_telemetry::Metrics;
use keepsake_testkit::FaultProxy;
use sqlx::postgres::PgPool;
use uuid::Uuid;

use crate::place::{NOW, Place, audited, created, next_uuid, path};
use crate::subject::{OwnDatabase, Raw, postgres_index};

/// Long enough for an answer, short enough to wait for.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a call waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that a test opens before it breaks them.
const CONNECTIONS: usize = 6;

/// An index behind a proxy, and a way past both.
struct Proxied {
    index: PostgresIndex,
    measured: Index,
    proxy: FaultProxy,
    raw: PgPool,
    _database: OwnDatabase,
}

impl Proxied {
    async fn start(call_timeout: Duration) -> Self {
        let (_direct, raw, database) = postgres_index().await;
        let (proxy, url) = FaultProxy::before_url(&database.database.url()).await;
        let options = PostgresOptions {
            call_timeout,
            ..PostgresOptions::new(url)
        };
        let index = PostgresIndex::connect(&options).await.unwrap();
        let measured = Index::from(index.clone()).measured(Metrics::default());
        Self {
            index,
            measured,
            proxy,
            raw,
            _database: database,
        }
    }

    /// Has the pool open several connections, and leaves them idle.
    async fn open_connections(&self) {
        let sleep = async || self.index.execute("SELECT pg_sleep(0.1)").await.unwrap();
        join_all((0..CONNECTIONS).map(|_| sleep())).await;
        assert!(self.proxy.connections().len() >= CONNECTIONS);
    }

    async fn beat(&self, replica: Uuid) -> Result<(), IndexError> {
        self.measured.replicas.beat(replica, "gateway", NOW, NOW).await
    }

    async fn number(&self, query: &'static str, id: Uuid) -> i64 {
        sqlx::query_scalar(query)
            .bind(id)
            .fetch_one(&self.raw)
            .await
            .unwrap()
    }
}

fn new_tenant() -> Tenant {
    Tenant {
        tenant_id: keepsake_core::TenantId::from_uuid(next_uuid()),
        external_id: None,
        name: "t".to_owned(),
        status: TenantStatus::Active,
        limits: keepsake_core::limits::LimitOverrides::default(),
        created_at: NOW,
    }
}

/// A heartbeat inside a leaked transaction would be rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_transactions_lose_no_later_write() {
    let proxied = Proxied::start(Duration::from_secs(10)).await;
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.delay(Duration::from_millis(75));
    let (tenant, audited) = (new_tenant(), audited());
    for millis in (30..1_000).step_by(40) {
        let call = proxied.measured.tenants.create(&tenant, &audited);
        // The outcome of the call does not matter.
        drop(tokio::time::timeout(Duration::from_millis(millis), call).await);
    }
    proxied.proxy.heal().await;
    let replicas: Vec<Uuid> = (0..16).map(|_| next_uuid()).collect();
    for beat in join_all(replicas.iter().map(|replica| proxied.beat(*replica))).await {
        beat.unwrap();
    }
    for replica in replicas {
        let stored = proxied
            .number("SELECT count(*) FROM replica WHERE id = $1", replica)
            .await;
        assert_eq!(stored, 1, "a heartbeat that was acknowledged is not stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_cost_one_timeout() {
    let proxied = Proxied::start(CALL_TIMEOUT).await;
    proxied.open_connections().await;
    proxied.proxy.silence_connections();
    let began_at = Instant::now();
    let mut failed = 0;
    for _ in 0..2 * CONNECTIONS {
        match proxied.measured.check().await {
            Ok(()) => {}
            Err(IndexError::Unavailable(_)) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(failed <= 1, "{failed} calls failed");
    let took = began_at.elapsed();
    assert!(took < CALL_TIMEOUT * 3, "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_on_silent_connections_end_and_report_a_possible_commit() {
    let proxied = Proxied::start(CALL_TIMEOUT).await;
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.silence_connections();
    let landed = proxied.beat(next_uuid()).await;
    assert!(matches!(landed, Err(IndexError::OutcomeUnknown(_))), "{landed:?}");

    // Silent before its COMMIT: nothing of it can have landed.
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.silence_connections();
    let made = proxied.measured.tenants.create(&new_tenant(), &audited()).await;
    assert!(matches!(made, Err(IndexError::Unavailable(_))), "{made:?}");
    proxied
        .measured
        .tenants
        .create(&new_tenant(), &audited())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connections_fail_no_read_and_no_transaction() {
    let proxied = Proxied::start(CALL_TIMEOUT).await;
    proxied.open_connections().await;
    proxied.proxy.reset_connections();
    for check in join_all((0..2 * CONNECTIONS).map(|_| proxied.measured.check())).await {
        check.unwrap();
    }
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.reset_connections();
    let made = proxied.measured.tenants.create(&new_tenant(), &audited()).await;
    assert!(made.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_waits_long_for_a_server_that_does_not_answer() {
    let proxied = Proxied::start(CALL_TIMEOUT).await;
    proxied.open_connections().await;
    proxied.proxy.silence_all();
    let began_at = Instant::now();
    let calls = join_all((0..40).map(|_| proxied.measured.check()));
    for check in calls.await {
        assert!(matches!(check, Err(IndexError::Unavailable(_))), "{check:?}");
    }
    let took = began_at.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    let close = tokio::time::timeout(Duration::from_secs(1), proxied.measured.close());
    close.await.unwrap();
}

/// The sessions on the server that are inside a transaction and wait.
const IDLE_IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND $1 IS NOT NULL";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_are_dropped_are_rolled_back() {
    let proxied = Proxied::start(Duration::from_secs(10)).await;
    proxied.proxy.delay(Duration::from_millis(20));
    for millis in (10..400).step_by(13) {
        let (tenant, audited) = (new_tenant(), audited());
        let call = proxied.measured.tenants.create(&tenant, &audited);
        drop(tokio::time::timeout(Duration::from_millis(millis), call).await);
    }
    let is_clean = async { while proxied.number(IDLE_IN_TRANSACTION, next_uuid()).await > 0 {} };
    // Sooner than the server's own limit for such sessions.
    tokio::time::timeout(Duration::from_secs(5), is_clean)
        .await
        .unwrap();
}

/// With more calls than fit into a batch, the waiting ones fail with the first batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_fail_together_when_the_database_is_lost() {
    let proxied = Proxied::start(CALL_TIMEOUT).await;
    let place = Place::on(proxied.measured.clone(), Raw::Postgres(proxied.raw.clone())).await;
    place.create("/there", 1).await;
    proxied.proxy.refuse_connections().await;
    proxied.proxy.reset_connections();
    let there = path("/there");
    let memories = &place.index.memories;
    let commits: Vec<_> = (0..100)
        .map(|number| place.commit_of(vec![created(&format!("/{number}"), 1)]))
        .collect();
    let began_at = Instant::now();
    let reads = (0..100).map(|_| memories.head(place.tenant_id, place.store_id, Some(&there), 0));
    let writes = commits
        .iter()
        .map(|commit| memories.commit(place.tenant_id, commit));
    let (reads, writes) = tokio::join!(join_all(reads), join_all(writes));
    let took = began_at.elapsed();
    for error in reads.into_iter().filter_map(Result::err) {
        assert!(matches!(error, IndexError::Unavailable(_)), "{error:?}");
    }
    let unknown = |error: &IndexError| matches!(error, IndexError::OutcomeUnknown(_));
    let failures: Vec<_> = writes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), 100);
    // Only a commit that was sent when the connection broke has an unknown outcome.
    assert!(failures.iter().filter(|error| unknown(error)).count() <= 1);
    assert!(took < ACQUIRE_TIMEOUT * 2, "{took:?}");

    proxied.proxy.heal().await;
    place.create("/after", 1).await;
    place.assert_recount().await;
}
