//! Who was shown which version: replicas that write late, retention, and removals.

use std::future::poll_fn;
use std::task::Poll;

use crate::prelude::*;
use crate::removals::{below, erase};

on_both_databases! {
    answer_is_complete_through_the_last_flush_of_each_replica,
    each_read_is_written_once_wherever_a_listing_ends,
    old_and_surplus_records_are_removed,
    removed_versions_leave_no_record_of_their_readers,
}

async fn readers(setup: &TestEngine) -> ReaderList {
    let page = PageRequest { limit: Some(100), page: None };
    let query = ReaderQuery { page, ..ReaderQuery::default() };
    setup.engine.readers.of_store(&setup.principal, setup.store_id, &query).await.unwrap()
}

async fn answer_is_complete_through_the_last_flush_of_each_replica(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    let other = setup.elsewhere();
    other.engine.replica.flush().await.unwrap();
    let flushed_at = setup.now();
    setup.clock.advance(5 * SECOND);
    let read_at = setup.now();
    other.read(&memory, View::Full).await;
    setup.clock.advance(5 * SECOND);
    setup.read(&memory, View::Full).await;
    let list = readers(&setup).await;
    assert_eq!(list.items[0].count, 1);
    assert_eq!(list.complete_through, flushed_at);

    other.engine.replica.flush().await.unwrap();
    let list = readers(&setup).await;
    assert_eq!((list.items.len(), list.complete_through), (1, setup.now()));
    let reader = &list.items[0];
    assert_eq!((reader.count, reader.first_read_at, reader.last_read_at), (2, read_at, setup.now()));
    assert!(list.complete_from.is_some_and(|from| from < read_at));

    // Reads that a replica noted before it died are lost.
    other.read(&memory, View::Full).await;
    let died_at = setup.now();
    setup.clock.advance(9 * MINUTE);
    assert_eq!(readers(&setup).await.complete_through, died_at);
    setup.clock.advance(MINUTE);
    let list = readers(&setup).await;
    assert_eq!((list.items[0].count, list.complete_through), (2, setup.now()));
    assert_eq!(list.complete_from, Some(setup.now()));
    // Prune keeps that in mind; a worker that died lost no reads.
    setup.index.replicas.beat(Uuid::nil(), "worker", setup.now(), setup.now()).await.unwrap();
    setup.clock.advance(8 * DAY);
    setup.engine.replica.flush().await.unwrap();
    assert_eq!(setup.run(Prune::default()).await["replicas"], 1);
    assert_eq!(readers(&setup).await.complete_from, list.complete_from);

    // Another replica had to drop reads.
    let tenant_id = setup.principal.tenant_id;
    for before in [setup.now(), read_at] {
        setup.index.reads.note_gap(tenant_id, before).await.unwrap();
    }
    assert_eq!(readers(&setup).await.complete_from, Some(setup.now()));
}

async fn each_read_is_written_once_wherever_a_listing_ends(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    let (mut reads, mut is_whole) = (0, false);
    while !is_whole {
        setup.read(&memory, View::Full).await;
        let (mut listing, mut waits) = (Box::pin(readers(&setup)), reads);
        is_whole = poll_fn(|context| match listing.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if waits == 0 => Poll::Ready(false),
            Poll::Pending => {
                waits -= 1;
                Poll::Pending
            }
        })
        .await;
        reads += 1;
    }
    assert_eq!(readers(&setup).await.items[0].count, reads);
}

async fn old_and_surplus_records_are_removed(setup: TestEngine) {
    let limits = json!({"read_retention_secs": 10 * DAY.as_secs(), "recorded_reads_per_tenant": 3});
    setup.read(&setup.make("/other.txt", "x").await, View::Full).await;
    readers(&setup).await;
    let tenant = setup.of_tenant_with(limits).await;
    let mut times = Vec::new();
    for number in 0..5 {
        let memory = tenant.make(&format!("/{number}.txt"), "x").await;
        setup.clock.advance(DAY);
        times.push(setup.now());
        tenant.read(&memory, View::Full).await;
    }
    let kept = async || {
        let mut times: Vec<_> =
            readers(&tenant).await.items.iter().map(|reader| reader.last_read_at).collect();
        times.sort_unstable();
        times
    };
    assert_eq!(kept().await, times);
    assert_eq!(tenant.dry_run(PruneReads).await, json!({"would_remove": 2, "failed": 0}));
    assert_eq!(tenant.run(PruneReads).await, json!({"removed": 2, "failed": 0}));
    assert_eq!(kept().await, times[2..]);
    let complete_from = readers(&tenant).await.complete_from.unwrap();
    assert!(times[1] < complete_from && complete_from <= times[2], "{complete_from:?}");

    setup.clock.advance(8 * DAY);
    assert_eq!(tenant.run(PruneReads).await["removed"], 1);
    assert_eq!(kept().await, times[3..]);
    assert_eq!(readers(&setup).await.items.len(), 1, "that of another tenant");

    let quiet = setup.of_tenant_with(json!({"read_retention_secs": 0})).await;
    quiet.read(&quiet.make("/a.txt", "x").await, View::Full).await;
    let none = readers(&quiet).await;
    assert_eq!((none.items.len(), none.complete_from), (0, None), "the tenant turned the record off");
}

/// Has more people read a version than one transaction removes.
async fn seen_by_many(setup: &TestEngine, memory: &ShownMemory) {
    const READERS: usize = 1_200;
    let at = setup.now();
    let reads = |number: usize| RecordedReads {
        tenant_id: setup.principal.tenant_id,
        store_id: setup.store_id,
        version_id: memory.memory.head.version_id,
        reader: VersionReader {
            actor: Actor::User(format!("person {number}")),
            session_id: None,
            surface: Surface::Person,
        },
        span: ReadSpan { first_at: at, last_at: at, count: 1 },
    };
    let reads: Vec<_> = (0..READERS).map(reads).collect();
    let batch = FlushedBatch { replica: Uuid::nil(), id: setup.engine.new_uuid(), at };
    // The second attempt is a repetition.
    for _ in 0..2 {
        setup.index.reads.flush(batch, &reads).await.unwrap();
    }
}

async fn removed_versions_leave_no_record_of_their_readers(setup: TestEngine) {
    let setup = setup.of_tenant_with(json!({"version_retention_secs": DAY.as_secs()})).await;
    let recorded = async || {
        let (reads, tenant_id) = (&setup.index.reads, setup.principal.tenant_id);
        let page = reads.of_store(tenant_id, setup.store_id, ReadVersions::Store, None, 10_000).await;
        page.unwrap().unwrap().readers.iter().map(|reader| reader.count).sum::<u64>()
    };
    let redacted = setup.make("/redacted.txt", "x").await;
    setup.update(&redacted, new_content("y")).await.unwrap();
    let expired = setup.make("/expired.txt", "x").await;
    let erased = setup.make("/p/erased.txt", "x").await;
    let all = [&redacted, &expired, &erased];
    for (memory, left) in all.into_iter().zip([1_200, 2_400, 3_600]) {
        seen_by_many(&setup, memory).await;
        assert_eq!(recorded().await, left);
    }
    setup.redact(&redacted).await;
    assert_eq!(recorded().await, 2_400);
    setup.delete(&expired).await;
    setup.clock.advance(2 * DAY);
    assert_eq!(setup.run(ExpireVersions).await["memories"], 1);
    assert_eq!(recorded().await, 1_200);
    assert_eq!(erase(&setup, below(&setup, "/p/")).await.removed.memory_readers, 1_200);
    // A replica that writes its reads only now records none of what is gone.
    for memory in all {
        seen_by_many(&setup, memory).await;
    }
    assert_eq!(recorded().await, 0);
}
