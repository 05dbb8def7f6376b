//! Connections to Postgres that break, go silent, or are left in the middle.

use std::time::Duration;

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
/// Twice as long as a call waits for a connection.
const FAIL_TOGETHER_WITHIN: Duration = Duration::from_secs(10);

/// An index behind a proxy, and a way past both.
struct Proxied {
    measured: Index,
    proxy: FaultProxy,
    raw: PgPool,
    _database: OwnDatabase,
}

impl Proxied {
    async fn start(call_timeout: Duration) -> Self {
        let (_direct, raw, database) = postgres_index().await;
        let (proxy, url) = FaultProxy::before_url(&database.database.url()).await;
        let options = PostgresOptions { call_timeout, ..PostgresOptions::new(url) };
        let index = PostgresIndex::connect(&options).await.unwrap();
        let measured = Index::from(index).measured(Metrics::default());
        Self { measured, proxy, raw, _database: database }
    }

    async fn beat(&self, replica: Uuid) -> Result<(), IndexError> {
        self.measured.replicas.beat(replica, "gateway", NOW, NOW).await
    }

    /// How many heartbeats of a replica are stored.
    async fn beats_of(&self, replica: Uuid) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM replica WHERE id = $1")
            .bind(replica)
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
        let stored = proxied.beats_of(replica).await;
        assert_eq!(stored, 1, "a heartbeat that was acknowledged is not stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_report_a_possible_commit_and_nothing_is_sent_again() {
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
    let made = proxied.measured.tenants.create(&new_tenant(), &audited()).await;
    assert!(made.unwrap());

    // The statement is prepared: the next answer comes after the commit.
    let fresh = Proxied::start(CALL_TIMEOUT).await;
    fresh.beat(next_uuid()).await.unwrap();
    fresh.proxy.cut_after(0);
    let replica = next_uuid();
    let made = fresh.beat(replica).await;
    assert!(matches!(made, Err(IndexError::OutcomeUnknown(_))), "{made:?}");
    assert_eq!(fresh.beats_of(replica).await, 1);
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
    let commits: Vec<_> =
        (0..100).map(|number| place.commit_of(vec![created(&format!("/{number}"), 1)])).collect();
    let reads = (0..100).map(|_| memories.head(place.tenant_id, place.store_id, Some(&there), 0));
    let writes = commits.iter().map(|commit| memories.commit(place.tenant_id, commit));
    let calls = futures::future::join(join_all(reads), join_all(writes));
    let (reads, writes) = tokio::time::timeout(FAIL_TOGETHER_WITHIN, calls).await.unwrap();
    for error in reads.into_iter().filter_map(Result::err) {
        assert!(matches!(error, IndexError::Unavailable(_)), "{error:?}");
    }
    let unknown = |error: &IndexError| matches!(error, IndexError::OutcomeUnknown(_));
    let failures: Vec<_> = writes.into_iter().filter_map(Result::err).collect();
    assert_eq!(failures.len(), 100);
    // Only a commit that was sent when the connection broke has an unknown outcome.
    assert!(failures.iter().filter(|error| unknown(error)).count() <= 1);

    proxied.proxy.heal().await;
    place.create("/after", 1).await;
    place.assert_recount().await;
}
