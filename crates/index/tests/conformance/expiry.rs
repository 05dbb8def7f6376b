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

fn late() -> Timestamp {
    after_seconds(10 * 86_400)
}

/// Deletes memories of a store that have expired, as a job of the tenant.
async fn expire_of(tenant_id: TenantId, place: &Place, cause: ExpirationCause, memories: &[MemoryId]) -> u64 {
    let memories = memories.iter().map(|id| (*id, VersionId::from_uuid(next_uuid()))).collect();
    let expiration = Expiration { store_id: place.store_id, cause, memories, now: late(), replica: REPLICA };
    place.index.unused.expire(tenant_id, &expiration).await.unwrap()
}

fn unused() -> ExpirationCause {
    let expiry = Expiry { unused_after_secs: Some(PERIOD_SECS), set_at: Some(NOW) };
    ExpirationCause::Unused { expiry, until: late() }
}

async fn expire(place: &Place, memories: &[MemoryId]) -> u64 {
    expire_of(place.tenant_id, place, unused(), memories).await
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
    let [lapsed, was_read, written, pinned, gone] = heads;
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
    assert!(!lives(&place, lapsed.memory_id).await);
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
    assert_eq!(expire_of(place.stranger().await.tenant_id, &other, unused(), &[memory_id]).await, 0);
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
    assert_eq!(expire_of(place.tenant_id, place, ExpirationCause::Due, &ids).await, 1);
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
        place.change(vec![deleted(&place.create("/a", 1).await)]).await;
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
    let (mut batches, mut after) = (Vec::new(), 0);
    let (store_id, now) = (place.store_id, late());
    loop {
        let batch =
            VersionBatch { store_id, outdated, after, now, blobs_go_from: now, limit, dry_run: false };
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
            let head = place.changed(edited(&head, 20)).await;
            let head = place.changed(renamed(&head, &format!("/{number}/b"))).await;
            place.change(vec![deleted(&head)]).await;
        }
        let batches = take(&place, OutdatedPart::Deleted { by: NOW }, limit).await;
        let sums = batches.iter().fold([0; 3], |[versions, memories, blobs], taken| {
            [versions + taken.versions, memories + taken.memories, blobs + taken.blobs]
        });
        assert_eq!(sums, [12, 3, 6], "in batches of {limit}");
        place.assert_recount_with_gaps().await;
        assert_eq!([place.count("memory").await, place.count("version").await], [1, 1]);
        assert_eq!(place.memory("/stays").await, stays);
        let queued = place.queue().due(late(), 100).await.unwrap();
        assert_eq!(queued.iter().filter(|due| due.key.store_id == place.store_id).count(), 6);
    }
}

pub(crate) async fn deletion_by_a_clock_that_was_ahead_is_removed_with_those_after_it(place: Place) {
    for (path, seconds) in [("/a", 10), ("/b", 365 * 86_400), ("/c", 12)] {
        let mut commit = place.commit_of(vec![deleted(&place.create(path, 10).await)]);
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
    assert_eq!(place.count("version").await, 0);
}
