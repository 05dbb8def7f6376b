//! Access times that cannot be written, and heartbeats that do not arrive.
//!
//! These tests use Postgres, where tables can be locked and grants revoked.

use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_engine::{Clock as _, EngineError, NewKey, ShownMemory, View};
use keepsake_index::{MemoryTarget, Scope};

use crate::bed::Bed;

/// When a memory was last read, as the index has it.
async fn last_read_at(bed: &Bed, memory: &ShownMemory) -> Option<Timestamp> {
    let (tenant_id, memory_id) = (bed.principal.tenant_id, memory.memory.head.memory_id);
    let found = bed
        .index
        .memories
        .find(tenant_id, bed.store_id, memory_id)
        .await
        .unwrap();
    match found.unwrap().target {
        MemoryTarget::Live(memory) => memory.last_read_at,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_failed_flush_are_written_by_the_next() {
    let bed = Bed::postgres_and_s3().await;
    let (first, second) = (bed.make("/a.txt", "a").await, bed.make("/b.txt", "b").await);
    bed.clock.advance(Duration::from_secs(5));
    let read_at = bed.clock.now();
    bed.read(&first, View::Full).await;
    bed.as_owner("REVOKE INSERT ON memory_access FROM keepsake_jobs")
        .await;
    bed.engine.flush_access().await.unwrap_err();
    // The heartbeat does not claim reads that are not written.
    bed.clock.advance(Duration::from_secs(5));
    bed.read(&second, View::Full).await;
    let flush = bed.index.unused.access_flush(bed.clock.now()).await.unwrap();
    assert!(
        flush.through.is_some_and(|through| through < read_at),
        "{flush:?}"
    );

    bed.as_owner("GRANT INSERT ON memory_access TO keepsake_jobs")
        .await;
    assert_eq!(bed.engine.flush_access().await.unwrap(), 2);
    assert_eq!(last_read_at(&bed, &first).await, Some(read_at));
    assert_eq!(last_read_at(&bed, &second).await, Some(bed.clock.now()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_flush_that_was_given_up_are_written_by_the_next() {
    let bed = Bed::postgres_and_s3().await;
    let memory = bed.make("/a.txt", "a").await;
    bed.read(&memory, View::Full).await;
    let lock = bed.lock_table("memory_access").await;
    let flush = tokio::time::timeout(Duration::from_millis(500), bed.engine.flush_access());
    assert!(flush.await.is_err(), "a flush got past the lock");
    lock.unlock().await;
    assert_eq!(bed.engine.flush_access().await.unwrap(), 1);
    assert_eq!(last_read_at(&bed, &memory).await, Some(bed.clock.now()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_whose_heartbeats_hang_refuses_credentials() {
    let bed = Bed::postgres_and_s3().await;
    let new = NewKey {
        tenant_id: bed.principal.tenant_id,
        name: "reader".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = bed.engine.operator().create_key(new).await.unwrap();
    let key = secret.expose();
    bed.engine.flush_access().await.unwrap();
    let lock = bed.lock_table("replica").await;
    let engine = bed.engine.clone();
    let hanging = tokio::spawn(async move { engine.flush_access().await });
    bed.clock.advance(Duration::from_mins(4));
    bed.engine.authenticate(key).await.unwrap();
    bed.clock.advance(Duration::from_mins(1));
    let refused = bed.engine.authenticate(key).await;
    assert!(matches!(refused, Err(EngineError::CutOff)), "{refused:?}");
    assert!(!bed.engine.readiness().await.has_index());
    lock.unlock().await;
    // This heartbeat arrives, but was sent five minutes ago.
    drop(hanging.await.unwrap());
    // The next request sends one itself.
    bed.engine.authenticate(key).await.unwrap();
    assert!(bed.engine.readiness().await.has_index());
}

/// Another process would expire what this one serves before it is heard of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_is_heard_of_before_it_serves() {
    let bed = Bed::postgres_and_s3().await;
    let new = NewKey {
        tenant_id: bed.principal.tenant_id,
        name: "reader".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = bed.engine.operator().create_key(new).await.unwrap();
    let replica = bed.replica_with(|options| options.role = "gateway");
    bed.clock.advance(Duration::from_mins(2));
    let gateways = async || bed.index.replicas.live_gateways(bed.clock.now()).await.unwrap();
    assert_eq!(gateways().await, 0);
    replica.authenticate(secret.expose()).await.unwrap();
    assert_eq!(gateways().await, 1);
}
