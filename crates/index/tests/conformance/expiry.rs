//! Expiry and retention: the selection, and the checks before a deletion.

use std::time::Duration;

use keepsake_core::{Actor, ApiKeyId, MemoryId, Timestamp, VersionId};
use keepsake_index::{
    AccessRow, Expiration, ExpirationCause, ExpiresAt, Expiry, ExpiryChange, Head, IdleStores, MemoryTarget,
    Outdated, PeriodOf, Pin, PinOutcome, StoreChange, VersionBatch, VersionsTaken,
};
use uuid::Uuid;

use crate::place::{NOW, Place, REPLICA, after_seconds, by_tenant, deleted, edited, next_uuid, renamed};
use crate::subject::Subject;

const PERIOD_SECS: u64 = 1000;

async fn set_period(place: &Place, period: Option<u64>) {
    let change = StoreChange { expires_unused_after: Some(period), now: NOW, ..StoreChange::default() };
    place.index.stores.update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW)).await.unwrap();
}

/// The period that `set_period` sets.
fn expiry() -> Expiry {
    Expiry { unused_after_secs: Some(PERIOD_SECS), set_at: Some(NOW) }
}

/// Long after the period has taken effect.
fn late() -> Timestamp {
    after_seconds(10 * 86_400)
}

fn read(place: &Place, memory_id: MemoryId, read_at: Timestamp) -> AccessRow {
    AccessRow {
        tenant_id: place.tenant_id,
        store_id: place.store_id,
        memory_id,
        read_at,
        read_by: Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(5))),
    }
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

pub(crate) async fn expiry_checks_again_before_it_deletes(subject: &Subject) {
    let place = Place::new(subject).await;
    set_period(&place, Some(PERIOD_SECS)).await;
    let unused = place.create("/unused/a", 3).await;
    let was_read = place.create("/read", 3).await;
    let written = place.create("/written", 3).await;
    let pinned = place.create("/pinned", 3).await;
    let gone = place.create("/gone", 3).await;
    let ids = [&unused, &was_read, &written, &pinned, &gone].map(|head| head.memory_id);

    // All of this happens after they were found and before they are deleted.
    let just_now = late().minus(Duration::from_secs(1));
    place.index.access_times.flush(&[read(&place, was_read.memory_id, just_now)]).await.unwrap();
    let mut commit = place.commit_of(vec![edited(&written, 4)]);
    commit.now = just_now;
    place.run(&commit).await;
    let pin = Pin {
        store_id: place.store_id,
        memory_id: pinned.memory_id,
        expected: pinned.version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: just_now,
    };
    place.index.memories.pin(place.tenant_id, &pin).await.unwrap();
    place.change(vec![deleted(&gone)]).await;

    assert_eq!(expire(&place, &ids).await, 1);
    assert!(!lives(&place, unused.memory_id).await);
    for head in [&was_read, &written, &pinned] {
        assert!(lives(&place, head.memory_id).await);
    }
    assert_eq!(expire(&place, &ids).await, 0, "sent twice it does nothing");
    place.assert_recount().await;

    // A memory of another store stays, and one of another tenant.
    let other = Place::of_tenant(subject, place.tenant_id).await;
    set_period(&other, Some(PERIOD_SECS)).await;
    let head = other.create("/a", 3).await;
    assert_eq!(expire(&place, &[head.memory_id]).await, 0);
    let stranger = Place::new(subject).await;
    let foreign = expiration(&other, &[head.memory_id]);
    let expired = stranger.index.unused.expire(stranger.tenant_id, &foreign);
    assert_eq!(expired.await.unwrap(), 0);
    // A period that changed meanwhile deletes nothing.
    for period in [Some(PERIOD_SECS + 1), None] {
        set_period(&other, period).await;
        assert_eq!(expire(&other, &[head.memory_id]).await, 0, "{period:?}");
    }
    assert!(lives(&other, head.memory_id).await);
    // Nor is anything deleted in a store that is gone.
    set_period(&other, Some(PERIOD_SECS)).await;
    let (index, by) = (&other.index, by_tenant(NOW));
    let gone = index.store_deletions.begin(other.tenant_id, other.store_id, &by);
    assert!(gone.await.unwrap());
    assert_eq!(expire(&other, &[head.memory_id]).await, 0);
}

async fn set_time(place: &Place, head: &Head, expires_at: ExpiresAt) -> PinOutcome {
    let pin = Pin {
        store_id: place.store_id,
        memory_id: head.memory_id,
        expected: head.version_id,
        expiry: ExpiryChange { is_pinned: None, expires_at: Some(expires_at) },
        idempotency: None,
        now: NOW,
    };
    place.index.memories.pin(place.tenant_id, &pin).await.unwrap()
}

pub(crate) async fn due_memory_is_checked_again_before_it_is_deleted(subject: &Subject) {
    let place = Place::new(subject).await;
    let (due, other, pinned) =
        (place.create("/due", 3).await, place.create("/other", 3).await, place.create("/pinned", 3).await);
    for head in [&due, &pinned] {
        set_time(&place, head, ExpiresAt::Time(after_seconds(5))).await;
    }
    set_time(&place, &other, ExpiresAt::Time(late().plus(Duration::from_secs(1)))).await;
    let pin = Pin {
        store_id: place.store_id,
        memory_id: pinned.memory_id,
        expected: pinned.version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: NOW,
    };
    place.index.memories.pin(place.tenant_id, &pin).await.unwrap();
    let ids = [&due, &other, &pinned].map(|head| head.memory_id);
    let expiration = Expiration { cause: ExpirationCause::Due, ..expiration(&place, &ids) };
    let unused = &place.index.unused;
    assert_eq!(unused.expire(place.tenant_id, &expiration).await.unwrap(), 1);
    assert!(!lives(&place, due.memory_id).await);
    for head in [&other, &pinned] {
        assert!(lives(&place, head.memory_id).await);
    }
    place.assert_recount().await;
}

pub(crate) async fn stores_with_a_period_or_a_history_come_page_by_page(subject: &Subject) {
    let first = Place::new(subject).await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let place = Place::of_tenant(subject, first.tenant_id).await;
        set_period(&place, Some(PERIOD_SECS)).await;
        let head = place.create("/a", 1).await;
        place.change(vec![deleted(&head)]).await;
        expected.push((place.tenant_id, place.store_id));
    }
    expected.sort();
    let (mut with_a_period, mut with_a_history) = (Vec::new(), Vec::new());
    loop {
        let wanted = IdleStores {
            period_of: PeriodOf::Store,
            after: with_a_period.last().copied(),
            until: late(),
            limit: 2,
        };
        let page = first.index.unused.idle_stores(&wanted).await.unwrap();
        if page.is_empty() {
            break;
        }
        with_a_period.extend(page.iter().map(|store| (store.tenant_id, store.store_id)));
    }
    assert_eq!(with_a_period, expected);
    loop {
        let page = first.index.retention.histories(with_a_history.last().copied(), 2);
        let page = page.await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.iter().all(|history| history.deleted_at.is_some()));
        with_a_history.extend(page.iter().map(|history| (history.tenant_id, history.store_id)));
    }
    assert_eq!(with_a_history, expected);
}

async fn take(place: &Place, outdated: Outdated, limit: u32) -> Vec<VersionsTaken> {
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

pub(crate) async fn deleted_memories_are_removed_in_batches_of_any_size(subject: &Subject) {
    for limit in [1, 2, 3, 100] {
        let place = Place::new(subject).await;
        let stays = place.create("/stays", 5).await;
        for number in 0..3 {
            let head = place.create(&format!("/{number}/a"), 10).await;
            place.change(vec![edited(&head, 20)]).await;
            let head = place.memory(&format!("/{number}/a")).await;
            place.change(vec![renamed(&head, &format!("/{number}/b"))]).await;
            let head = place.memory(&format!("/{number}/b")).await;
            place.change(vec![deleted(&head)]).await;
        }
        let batches = take(&place, Outdated::Deleted { by: NOW }, limit).await;
        let sum = |of: fn(&VersionsTaken) -> u64| batches.iter().map(of).sum::<u64>();
        assert_eq!(
            (sum(|taken| taken.versions), sum(|taken| taken.memories), sum(|taken| taken.blobs)),
            (12, 3, 6),
            "in batches of {limit}"
        );
        let counters = "SELECT version_count, version_bytes, memory_count FROM store WHERE tenant_id = $1 AND store_id = $2";
        assert_eq!(place.raw.numbers(counters, &place.ids()).await, [[1, 5, 1]]);
        for table in ["memory", "version"] {
            let rows = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
            assert_eq!(place.raw.numbers(&rows, &place.ids()).await, [[1]], "{table}");
        }
        assert_eq!(place.memory("/stays").await, stays);
        let queued = place.queue().due(late(), 100).await.unwrap();
        let queued = queued.iter().filter(|due| due.key.store_id == place.store_id);
        assert_eq!(queued.count(), 6);
    }
}

pub(crate) async fn deletion_by_a_clock_that_was_ahead_is_removed_with_those_after_it(subject: &Subject) {
    let place = Place::new(subject).await;
    for (path, seconds) in [("/a", 10), ("/b", 365 * 86_400), ("/c", 12)] {
        let head = place.create(path, 10).await;
        let mut commit = place.commit_of(vec![deleted(&head)]);
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
    }
    let taken = async |seconds| {
        let by = after_seconds(seconds);
        let batches = take(&place, Outdated::Deleted { by }, 100).await;
        batches.iter().map(|taken| taken.memories).sum::<u64>()
    };
    assert_eq!(taken(11).await, 1);
    assert_eq!(taken(12).await, 2);
    let versions = "SELECT count(*) FROM version WHERE tenant_id = $1 AND store_id = $2";
    assert_eq!(place.raw.numbers(versions, &place.ids()).await, [[0]]);
}
