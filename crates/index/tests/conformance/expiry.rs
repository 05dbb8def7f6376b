//! Expiry and retention: the selection, and the checks before a deletion.

use keepsake_index::{
    Expiration, ExpirationCause, ExpiresAt, IdleStores, OutdatedPart, PeriodOf, VersionBatchResult,
};

use crate::prelude::*;
use crate::upkeep::all_pages;

const PERIOD_SECS: u64 = 1000;

async fn set_period(place: &Place, period: Option<u64>) {
    let change = StoreChange { expires_unused_after: Some(period), now: NOW, ..StoreChange::default() };
    place.index.stores.update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW)).await.unwrap();
}

fn expiry() -> Expiry {
    Expiry { unused_after_secs: Some(PERIOD_SECS), set_at: Some(NOW) }
}

fn late() -> Timestamp {
    after_seconds(10 * 86_400)
}

fn expiration(place: &Place, memories: &[MemoryId]) -> Expiration {
    let version_id = || VersionId::from_uuid(next_uuid());
    Expiration {
        store_id: place.store_id,
        cause: ExpirationCause::Unused { expiry: expiry(), until: late() },
        memories: memories.iter().map(|id| (*id, version_id())).collect(),
        now: late(),
        replica: REPLICA,
    }
}

async fn expire(place: &Place, memories: &[MemoryId]) -> u64 {
    let expiration = expiration(place, memories);
    place.index.unused.expire(place.tenant_id, &expiration).await.unwrap()
}

async fn lives(place: &Place, memory_id: MemoryId) -> bool {
    let found = place.index.memories.find(place.tenant_id, place.store_id, memory_id).await;
    matches!(found.unwrap().unwrap().target, MemoryTarget::Live(_))
}

async fn create_all<const N: usize>(place: &Place, paths: [&str; N]) -> [Head; N] {
    let mut heads = Vec::new();
    for path in paths {
        heads.push(place.create(path, 3).await);
    }
    heads.try_into().unwrap()
}

/// All of it happens after memories were found and before they are deleted.
pub(crate) async fn expiry_checks_again_before_it_deletes(place: Place) {
    set_period(&place, Some(PERIOD_SECS)).await;
    let heads = create_all(&place, ["/unused/a", "/read", "/written", "/pinned", "/gone"]).await;
    let ids = heads.each_ref().map(|head| head.memory_id);
    let [unused, was_read, written, pinned, gone] = heads;
    let just_now = late().minus(Duration::from_secs(1));
    let read =
        LastUse { key: (place.tenant_id, place.store_id, was_read.memory_id), at: just_now, by: actor() };
    place.index.access_times.flush(&[read]).await.unwrap();
    let mut commit = place.commit_of(vec![edited(&written, 4)]);
    commit.now = just_now;
    place.run(&commit).await;
    place.pin(&pinned, ExpiryChange::pinned(true)).await;
    place.change(vec![deleted(&gone)]).await;

    assert_eq!(expire(&place, &ids).await, 1);
    assert!(!lives(&place, unused.memory_id).await);
    for head in [&was_read, &written, &pinned] {
        assert!(lives(&place, head.memory_id).await);
    }
    assert_eq!(expire(&place, &ids).await, 0, "sent twice it does nothing");
    place.assert_recount().await;
    due_memories_are_checked_again(&place).await;

    // A memory of another store stays, and one of another tenant.
    let other = place.sibling().await;
    set_period(&other, Some(PERIOD_SECS)).await;
    let memory_id = other.create("/a", 3).await.memory_id;
    assert_eq!(expire(&place, &[memory_id]).await, 0);
    let stranger = place.stranger().await.tenant_id;
    let foreign = place.index.unused.expire(stranger, &expiration(&other, &[memory_id])).await;
    assert_eq!(foreign.unwrap(), 0);
    // A period that changed meanwhile deletes nothing.
    for period in [Some(PERIOD_SECS + 1), None] {
        set_period(&other, period).await;
        assert_eq!(expire(&other, &[memory_id]).await, 0, "{period:?}");
    }
    assert!(lives(&other, memory_id).await);
    set_period(&other, Some(PERIOD_SECS)).await;
    other.delete_store().await;
    assert_eq!(expire(&other, &[memory_id]).await, 0);
}

async fn due_memories_are_checked_again(place: &Place) {
    let heads = create_all(place, ["/due", "/later", "/pinned-again"]).await;
    let ids = heads.each_ref().map(|head| head.memory_id);
    let [due, later, pinned] = heads;
    let at = |time| ExpiryChange { is_pinned: None, expires_at: Some(ExpiresAt::Time(time)) };
    place.pin(&due, at(after_seconds(5))).await;
    place.pin(&pinned, at(after_seconds(5))).await;
    place.pin(&pinned, ExpiryChange::pinned(true)).await;
    place.pin(&later, at(late().plus(Duration::from_secs(1)))).await;
    let expiration = Expiration { cause: ExpirationCause::Due, ..expiration(place, &ids) };
    assert_eq!(place.index.unused.expire(place.tenant_id, &expiration).await.unwrap(), 1);
    for (head, is_there) in [(&due, false), (&later, true), (&pinned, true)] {
        assert_eq!(lives(place, head.memory_id).await, is_there, "{}", head.path);
    }
    place.assert_recount().await;
}

pub(crate) async fn stores_with_a_period_or_a_history_come_page_by_page(first: Place) {
    let mut expected = Vec::new();
    for _ in 0..3 {
        let place = first.sibling().await;
        set_period(&place, Some(PERIOD_SECS)).await;
        let head = place.create("/a", 1).await;
        place.change(vec![deleted(&head)]).await;
        expected.push((place.tenant_id, place.store_id));
    }
    expected.sort();
    let idle = async |after| {
        let wanted = IdleStores { period_of: PeriodOf::Store, after, until: late(), limit: 2 };
        let page = first.index.unused.idle_stores(&wanted).await.unwrap();
        page.iter().map(|store| (store.tenant_id, store.store_id)).collect::<Vec<_>>()
    };
    assert_eq!(all_pages(idle).await, expected);
    let with_a_history = async |after| {
        let page = first.index.retention.histories(after, 2).await.unwrap();
        assert!(page.iter().all(|history| history.deleted_at.is_some()));
        page.iter().map(|history| (history.tenant_id, history.store_id)).collect::<Vec<_>>()
    };
    assert_eq!(all_pages(with_a_history).await, expected);
}

async fn take(place: &Place, outdated: OutdatedPart, limit: u32) -> Vec<VersionBatchResult> {
    let mut batches = Vec::new();
    let mut after = 0;
    loop {
        let batch = VersionBatch {
            store_id: place.store_id,
            outdated,
            after,
            now: late(),
            blobs_go_from: late(),
            limit,
            dry_run: false,
        };
        let taken = place.index.retention.remove(place.tenant_id, &batch).await.unwrap();
        after = taken.next;
        batches.push(taken);
        if taken.is_done {
            return batches;
        }
        assert!(batches.len() < 100, "it never ends: {batches:?}");
    }
}

pub(crate) async fn deleted_memories_are_removed_in_batches_of_any_size(first: Place) {
    for limit in [1, 2, 3, 100] {
        let place = first.stranger().await;
        let stays = place.create("/stays", 5).await;
        for number in 0..3 {
            let head = place.create(&format!("/{number}/a"), 10).await;
            place.change(vec![edited(&head, 20)]).await;
            let head = place.memory(&format!("/{number}/a")).await;
            place.change(vec![renamed(&head, &format!("/{number}/b"))]).await;
            let head = place.memory(&format!("/{number}/b")).await;
            place.change(vec![deleted(&head)]).await;
        }
        let batches = take(&place, OutdatedPart::Deleted { by: NOW }, limit).await;
        let sum = |of: fn(&VersionBatchResult) -> u64| batches.iter().map(of).sum::<u64>();
        assert_eq!(
            (sum(|taken| taken.versions), sum(|taken| taken.memories), sum(|taken| taken.blobs)),
            (12, 3, 6),
            "in batches of {limit}"
        );
        place.assert_recount_with_gaps().await;
        for table in ["memory", "version"] {
            let rows = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
            assert_eq!(place.raw.number(&rows, &place.ids()).await, 1, "{table}");
        }
        assert_eq!(place.memory("/stays").await, stays);
        let queued = place.queue().due(late(), 100).await.unwrap();
        let queued = queued.iter().filter(|due| due.key.store_id == place.store_id);
        assert_eq!(queued.count(), 6);
    }
}

pub(crate) async fn deletion_by_a_clock_that_was_ahead_is_removed_with_those_after_it(place: Place) {
    for (path, seconds) in [("/a", 10), ("/b", 365 * 86_400), ("/c", 12)] {
        let head = place.create(path, 10).await;
        let mut commit = place.commit_of(vec![deleted(&head)]);
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
    }
    let taken = async |seconds| {
        let by = after_seconds(seconds);
        let batches = take(&place, OutdatedPart::Deleted { by }, 100).await;
        batches.iter().map(|taken| taken.memories).sum::<u64>()
    };
    assert_eq!(taken(11).await, 1);
    assert_eq!(taken(12).await, 2);
    let versions = "SELECT count(*) FROM version WHERE tenant_id = $1 AND store_id = $2";
    assert_eq!(place.raw.number(versions, &place.ids()).await, 0);
}
