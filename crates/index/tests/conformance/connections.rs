//! Connections to Postgres that break or go silent.

use keepsake_index::ChangeError;
use keepsake_telemetry::Metrics;
use keepsake_testkit::FaultProxy;

use crate::place::new_tenant;
use crate::prelude::*;

/// Long enough for an answer, short enough to wait for.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// An index behind a proxy, and a way past both.
struct Proxied {
    measured: Index,
    proxy: FaultProxy,
    raw: Raw,
    _database: OwnDatabase,
}

impl Proxied {
    async fn start() -> Self {
        let (_direct, raw, database) = postgres_index().await;
        let (proxy, url) = FaultProxy::before_url(&database.database.url()).await;
        let options = PostgresOptions { call_timeout: CALL_TIMEOUT, ..PostgresOptions::new(url) };
        let index = PostgresIndex::connect(&options).await.unwrap();
        let measured = Index::from(index).measured(Metrics::default());
        Self { measured, proxy, raw: Raw::Postgres(raw), _database: database }
    }

    async fn beat(&self, replica: Uuid) -> Result<(), IndexError> {
        self.measured.replicas.beat(replica, "gateway", NOW, NOW).await
    }

    async fn beats_of(&self, replica: Uuid) -> i64 {
        self.raw.number("SELECT count(*) FROM replica WHERE id = $1", &[replica]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_report_a_possible_commit_and_nothing_is_sent_again() {
    let proxied = Proxied::start().await;
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.silence_connections();
    let landed = proxied.beat(next_uuid()).await;
    assert!(matches!(landed, Err(IndexError::OutcomeUnknown(_))), "{landed:?}");

    // Silent before its COMMIT: nothing of it can have landed.
    proxied.beat(next_uuid()).await.unwrap();
    proxied.proxy.silence_connections();
    let made = proxied.measured.tenants.create(&new_tenant(), &audited()).await;
    assert!(matches!(made, Err(ChangeError::Index(IndexError::Unavailable(_)))), "{made:?}");
    proxied.measured.tenants.create(&new_tenant(), &audited()).await.unwrap();

    // The statement is prepared: the next answer comes after the commit.
    let fresh = Proxied::start().await;
    fresh.beat(next_uuid()).await.unwrap();
    fresh.proxy.cut_after(0);
    let replica = next_uuid();
    let made = fresh.beat(replica).await;
    assert!(matches!(made, Err(IndexError::OutcomeUnknown(_))), "{made:?}");
    assert_eq!(fresh.beats_of(replica).await, 1);
}
