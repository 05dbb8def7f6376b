//! Connections to Postgres that break or go silent.

use keepsake_index::ChangeError;
use keepsake_telemetry::Metrics;
use keepsake_testkit::FaultProxy;

use crate::place::new_tenant;
use crate::prelude::*;

/// An index behind a proxy, which waits a second for an answer, and the tables.
async fn proxied() -> (Index, FaultProxy, Raw, OwnDatabase) {
    let (_direct, raw, database) = postgres_index().await;
    let (proxy, url) = FaultProxy::before_url(&database.database.url()).await;
    let options = PostgresOptions { call_timeout: Duration::from_secs(1), ..PostgresOptions::new(url) };
    let index = Index::from(PostgresIndex::connect(&options).await.unwrap());
    (index.measured(Metrics::default()), proxy, Raw::Postgres(raw), database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_report_a_possible_commit_and_nothing_is_sent_again() {
    let beat = async |index: &Index| index.replicas.beat(next_uuid(), "gateway", NOW, NOW).await;
    let (index, proxy, _raw, _database) = proxied().await;
    beat(&index).await.unwrap();
    proxy.silence_connections();
    let landed = beat(&index).await;
    assert!(matches!(landed, Err(IndexError::OutcomeUnknown(_))), "{landed:?}");

    // Silent before its COMMIT: nothing of it can have landed.
    beat(&index).await.unwrap();
    proxy.silence_connections();
    let made = index.tenants.create(&new_tenant(), &audited()).await;
    assert!(matches!(made, Err(ChangeError::Index(IndexError::Unavailable(_)))), "{made:?}");
    index.tenants.create(&new_tenant(), &audited()).await.unwrap();

    // The statement is prepared: the next answer comes after the commit.
    let (index, proxy, raw, _database) = proxied().await;
    beat(&index).await.unwrap();
    proxy.cut_after(0);
    let made = beat(&index).await;
    assert!(matches!(made, Err(IndexError::OutcomeUnknown(_))), "{made:?}");
    assert_eq!(raw.number("SELECT count(*) FROM replica", &[]).await, 2);
}
