//! Access times that cannot be written, and heartbeats that do not arrive.
//!
//! These tests use Postgres, where tables can be locked and grants revoked.

use crate::prelude::*;

/// When a memory was last read, as the index has it.
pub(crate) async fn last_read_at(setup: &TestEngine, memory: &ShownMemory) -> Option<Timestamp> {
    let (tenant_id, memory_id) = (setup.principal.tenant_id, memory.memory.head.memory_id);
    let found = setup.index.memories.find(tenant_id, setup.store_id, memory_id).await.unwrap();
    match found.unwrap().target {
        MemoryTarget::Live(memory) => memory.last_read_at,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_cancelled_or_failed_flush_are_written_by_the_next() {
    let setup = TestEngine::postgres_and_s3().await;
    let (first, second) = (setup.make("/a.txt", "a").await, setup.make("/b.txt", "b").await);
    setup.clock.advance(5 * SECOND);
    let read_at = setup.now();
    setup.read(&first, View::Full).await;
    let flush_is_cancelled_at = async |table: &str| {
        let lock = setup.database().lock_table(table).await;
        let flush = tokio::time::timeout(SECOND / 2, setup.engine.replica.flush());
        assert!(flush.await.is_err(), "a flush got past the lock");
        lock.unlock().await;
    };
    flush_is_cancelled_at("memory_access").await;
    setup.database().execute("REVOKE INSERT ON memory_access FROM keepsake_jobs").await;
    setup.engine.replica.flush().await.unwrap_err();
    // The heartbeat does not claim reads that are not written.
    setup.clock.advance(5 * SECOND);
    setup.read(&second, View::Full).await;
    let flush = setup.index.unused.access_flush(setup.now()).await.unwrap();
    assert!(flush.through.is_some_and(|through| through < read_at), "{flush:?}");

    setup.database().execute("GRANT INSERT ON memory_access TO keepsake_jobs").await;
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 2);
    assert_eq!(last_read_at(&setup, &first).await, Some(read_at));
    assert_eq!(last_read_at(&setup, &second).await, Some(setup.now()));

    setup.read(&first, View::Full).await;
    flush_is_cancelled_at("daily_use").await;
    setup.engine.replica.flush().await.unwrap();
    let counted = setup.engine.usage.daily(&setup.principal, DailyUseQuery::default()).await.unwrap();
    assert_eq!((counted.reads, counted.writes), (3, 2), "each is counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_announces_itself_and_refuses_credentials_while_its_heartbeats_hang() {
    let setup = TestEngine::postgres_and_s3().await;
    let (key, auth) = (setup.key_with(&Scope::ALL, None).await, &setup.engine.auth);
    // Before its first heartbeat, another process could expire memories that it serves.
    let gateway = setup.elsewhere_with(|options| options.role = "gateway");
    setup.clock.advance(2 * MINUTE);
    let gateways = async || setup.index.replicas.live_gateways(setup.now()).await.unwrap();
    assert_eq!(gateways().await, 0);
    gateway.engine.auth.authenticate(&key).await.unwrap();
    assert_eq!(gateways().await, 1);

    setup.engine.replica.flush().await.unwrap();
    let lock = setup.database().lock_table("replica").await;
    let engine = setup.engine.clone();
    let hanging = tokio::spawn(async move { engine.replica.flush().await });
    setup.clock.advance(4 * MINUTE);
    auth.authenticate(&key).await.unwrap();
    setup.clock.advance(MINUTE);
    let refused = auth.authenticate(&key).await;
    assert!(matches!(refused, Err(EngineError::CutOff)), "{refused:?}");
    assert!(!setup.engine.health.check().await.has_index());
    lock.unlock().await;
    // This heartbeat arrives, but was sent five minutes ago.
    drop(hanging.await.unwrap());
    // The next request sends one itself.
    auth.authenticate(&key).await.unwrap();
    assert!(setup.engine.health.check().await.has_index());
}
