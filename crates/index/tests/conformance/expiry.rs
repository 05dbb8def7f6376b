//! Expiry and retention: the selection, and the checks before a deletion.

use std::time::Duration;

use keepsake_core::{Actor, ApiKeyId, MemoryId, Timestamp, VersionId};
use keepsake_index::{
    AccessFlush, AccessRow, Expiration, ExpirationCause, ExpiresAt, Expiry, ExpiryChange, FORGOTTEN_AFTER,
    Head, IdleStores, LIVES_FOR, MemoryTarget, Outdated, PeriodOf, Pin, PinOutcome, StoreChange,
    TenantChange, VersionBatch, VersionsTaken,
};
use serde_json::json;
use uuid::Uuid;

use crate::place::{
    NOW, Place, REPLICA, after_seconds, audited, by_tenant, created, deleted, edited, next_uuid, renamed,
};
use crate::subject::Subject;

const PERIOD_SECS: u64 = 1000;

async fn set_period(place: &Place, period: Option<u64>) {
    let change = StoreChange {
        expires_unused_after: Some(period),
        now: NOW,
        ..StoreChange::default()
    };
    place
        .index
        .stores
        .update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW))
        .await
        .unwrap();
}

/// The period that `set_period` sets.
fn expiry() -> Expiry {
    Expiry {
        unused_after_secs: Some(PERIOD_SECS),
        set_at: Some(NOW),
    }
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
        cause: ExpirationCause::Unused {
            expiry: expiry(),
            until: late(),
        },
        memories: memories.iter().map(|id| (*id, version_id())).collect(),
        now: late(),
        replica: REPLICA,
    }
}

async fn expire(place: &Place, memories: &[MemoryId]) -> u64 {
    let expiration = expiration(place, memories);
    place
        .index
        .unused
        .expire(place.tenant_id, &expiration)
        .await
        .unwrap()
}

async fn lives(place: &Place, memory_id: MemoryId) -> bool {
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, memory_id)
        .await;
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
    place
        .index
        .access_times
        .flush(&[read(&place, was_read.memory_id, just_now)])
        .await
        .unwrap();
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
}

pub(crate) async fn expiry_by_a_period_that_changed_deletes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    set_period(&place, Some(PERIOD_SECS)).await;
    let head = place.create("/a", 3).await;
    for period in [Some(PERIOD_SECS + 1), None] {
        set_period(&place, period).await;
        assert_eq!(expire(&place, &[head.memory_id]).await, 0, "{period:?}");
    }
    place
        .index
        .store_deletions
        .begin(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(
        expire(&place, &[head.memory_id]).await,
        0,
        "nor in a store that is gone"
    );
}

pub(crate) async fn expired_memory_of_another_store_stays(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    for place in [&place, &other] {
        set_period(place, Some(PERIOD_SECS)).await;
    }
    let head = other.create("/a", 3).await;
    assert_eq!(expire(&place, &[head.memory_id]).await, 0);
    let stranger = Place::new(subject).await;
    let expiration = expiration(&other, &[head.memory_id]);
    assert_eq!(
        stranger
            .index
            .unused
            .expire(stranger.tenant_id, &expiration)
            .await
            .unwrap(),
        0
    );
    assert!(lives(&other, head.memory_id).await);
}

async fn set_time(place: &Place, head: &Head, expires_at: ExpiresAt) -> PinOutcome {
    let pin = Pin {
        store_id: place.store_id,
        memory_id: head.memory_id,
        expected: head.version_id,
        expiry: ExpiryChange {
            is_pinned: None,
            expires_at: Some(expires_at),
        },
        idempotency: None,
        now: NOW,
    };
    place.index.memories.pin(place.tenant_id, &pin).await.unwrap()
}

/// The ids of memories of a store whose expiry time has come by `until`.
async fn due(place: &Place, until: Timestamp) -> Vec<MemoryId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = place.index.unused.due(after, until, 2).await.unwrap();
        let Some(last) = page.last() else {
            return found;
        };
        after = Some(*last);
        let of_store = page.iter().filter(|due| due.store_id == place.store_id);
        found.extend(of_store.map(|due| due.memory_id));
    }
}

pub(crate) async fn memories_are_due_at_their_expiry_time_page_by_page(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut heads = Vec::new();
    for number in 0..5 {
        let head = place.create(&format!("/{number}"), 1).await;
        let time = after_seconds(10 - number);
        let done = PinOutcome::Done {
            is_pinned: false,
            expires_at: Some(time),
        };
        assert_eq!(set_time(&place, &head, ExpiresAt::Time(time)).await, done);
        heads.push(head);
    }
    let ids = |numbers: &[usize]| numbers.iter().map(|at| heads[*at].memory_id).collect::<Vec<_>>();
    assert_eq!(due(&place, after_seconds(8)).await, ids(&[4, 3, 2]));

    set_time(&place, &heads[3], ExpiresAt::Never).await;
    let pin = Pin {
        store_id: place.store_id,
        memory_id: heads[2].memory_id,
        expected: heads[2].version_id,
        expiry: ExpiryChange::pinned(true),
        idempotency: None,
        now: NOW,
    };
    place.index.memories.pin(place.tenant_id, &pin).await.unwrap();
    place.change(vec![deleted(&heads[1])]).await;
    place.change(vec![renamed(&heads[0], "/moved")]).await;
    assert_eq!(due(&place, late()).await, ids(&[4, 0]));
}

pub(crate) async fn due_memory_is_checked_again_before_it_is_deleted(subject: &Subject) {
    let place = Place::new(subject).await;
    let (due, other, pinned) = (
        place.create("/due", 3).await,
        place.create("/other", 3).await,
        place.create("/pinned", 3).await,
    );
    for head in [&due, &pinned] {
        set_time(&place, head, ExpiresAt::Time(after_seconds(5))).await;
    }
    set_time(
        &place,
        &other,
        ExpiresAt::Time(late().plus(Duration::from_secs(1))),
    )
    .await;
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
    let expiration = Expiration {
        cause: ExpirationCause::Due,
        ..expiration(&place, &ids)
    };
    let unused = &place.index.unused;
    assert_eq!(unused.expire(place.tenant_id, &expiration).await.unwrap(), 1);
    assert!(!lives(&place, due.memory_id).await);
    for head in [&other, &pinned] {
        assert!(lives(&place, head.memory_id).await);
    }
    place.assert_recount().await;
}

pub(crate) async fn memories_are_paged_with_their_latest_use(subject: &Subject) {
    let place = Place::new(subject).await;
    let mut heads = Vec::new();
    for number in 0..5 {
        heads.push(place.create(&format!("/{number}"), 1).await);
    }
    let read_at = after_seconds(50);
    place
        .index
        .access_times
        .flush(&[read(&place, heads[1].memory_id, read_at)])
        .await
        .unwrap();
    place.change(vec![deleted(&heads[3])]).await;
    let mut found = Vec::new();
    loop {
        let after = found.last().map(|life: &keepsake_index::Life| life.memory_id);
        let page = place
            .index
            .unused
            .lives(place.tenant_id, place.store_id, after, 2)
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let expected: Vec<_> = [0, 1, 2, 4]
        .map(|number| (heads[number].memory_id, if number == 1 { read_at } else { NOW }))
        .into();
    let found: Vec<_> = found.iter().map(|life| (life.memory_id, life.alive_at)).collect();
    assert_eq!(found, expected);
}

pub(crate) async fn stores_are_listed_once_a_memory_may_have_expired(subject: &Subject) {
    let place = Place::new(subject).await;
    let of_tenant = Place::of_tenant(subject, place.tenant_id).await;
    let without = Place::new(subject).await;
    set_period(&place, Some(PERIOD_SECS)).await;
    let idle = async |period_of, until| {
        let wanted = IdleStores {
            period_of,
            after: None,
            until,
            limit: 100,
        };
        let stores = place.index.unused.idle_stores(&wanted).await.unwrap();
        stores.iter().map(|store| store.store_id).collect::<Vec<_>>()
    };
    assert_eq!(idle(PeriodOf::Store, late()).await, [place.store_id]);
    assert!(idle(PeriodOf::Tenant, late()).await.is_empty());
    let change = TenantChange {
        limits: json!({"expires_unused_after": 7}).as_object().unwrap().clone(),
        ..TenantChange::default()
    };
    place
        .index
        .tenants
        .update(place.tenant_id, &change, &audited())
        .await
        .unwrap();
    assert_eq!(idle(PeriodOf::Tenant, late()).await, [of_tenant.store_id]);
    assert_eq!(
        idle(PeriodOf::Store, late()).await,
        [place.store_id],
        "its own comes first"
    );

    let set_idle_since = async |at| {
        let index = &place.index;
        index
            .unused
            .set_idle_since(place.tenant_id, place.store_id, at)
            .await
            .unwrap();
    };
    set_idle_since(NOW).await;
    set_idle_since(NOW.minus(Duration::from_secs(9))).await;
    let period = Duration::from_secs(PERIOD_SECS);
    let before = NOW.plus(period).minus(Duration::from_micros(1));
    assert!(
        idle(PeriodOf::Store, before).await.is_empty(),
        "it never moves back"
    );
    assert_eq!(idle(PeriodOf::Store, NOW.plus(period)).await, [place.store_id]);
    assert!(!idle(PeriodOf::Tenant, late()).await.contains(&without.store_id));
}

pub(crate) async fn stores_with_a_period_come_page_by_page(subject: &Subject) {
    let first = Place::new(subject).await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let place = Place::of_tenant(subject, first.tenant_id).await;
        set_period(&place, Some(PERIOD_SECS)).await;
        expected.push((place.tenant_id, place.store_id));
    }
    let mut found = Vec::new();
    loop {
        let wanted = IdleStores {
            period_of: PeriodOf::Store,
            after: found.last().copied(),
            until: late(),
            limit: 2,
        };
        let page = first.index.unused.idle_stores(&wanted).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page.iter().map(|store| (store.tenant_id, store.store_id)));
    }
    expected.sort();
    assert_eq!(found, expected);
}

pub(crate) async fn stores_with_a_history_come_page_by_page(subject: &Subject) {
    let first = Place::new(subject).await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let place = Place::of_tenant(subject, first.tenant_id).await;
        let head = place.create("/a", 1).await;
        place.change(vec![deleted(&head)]).await;
        expected.push((place.tenant_id, place.store_id));
    }
    let mut found = Vec::new();
    loop {
        let page = first.index.retention.histories(found.last().copied(), 2);
        let page = page.await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.iter().all(|history| history.deleted_at.is_some()));
        found.extend(page.iter().map(|history| (history.tenant_id, history.store_id)));
    }
    expected.sort();
    assert_eq!(found, expected);
}

pub(crate) async fn slowest_replica_determines_how_far_reads_are_written(subject: &Subject) {
    let index = &subject.index;
    let flush = async || index.unused.access_flush(late()).await.unwrap();
    assert_eq!(flush().await, AccessFlush::default());
    let seconds = |seconds| late().minus(Duration::from_secs(seconds));
    let beat = async |replica: u128, at, through| {
        let replica = Uuid::from_u128(replica);
        index
            .replicas
            .beat(replica, "gateway", at, through)
            .await
            .unwrap();
    };
    beat(1, seconds(10), seconds(20)).await;
    beat(2, seconds(5), seconds(40)).await;
    let expected = |through, is_stalled| AccessFlush {
        through: Some(through),
        is_stalled,
    };
    assert_eq!(flush().await, expected(seconds(40), false));
    // Silent, but perhaps alive; and one that has surely died.
    beat(3, seconds(LIVES_FOR.as_secs() + 1), seconds(300)).await;
    beat(4, seconds(FORGOTTEN_AFTER.as_secs() + 1), seconds(9_000)).await;
    assert_eq!(flush().await, expected(seconds(300), false));
    // A live replica that cannot write its reads.
    beat(2, seconds(5), seconds(LIVES_FOR.as_secs() + 1)).await;
    assert_eq!(flush().await, expected(seconds(300), true));
    for replica in 1..=4 {
        index.replicas.retire(Uuid::from_u128(replica)).await.unwrap();
    }
    assert_eq!(flush().await, AccessFlush::default());
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
        let taken = place
            .index
            .retention
            .remove(place.tenant_id, &batch)
            .await
            .unwrap();
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
            (
                sum(|taken| taken.versions),
                sum(|taken| taken.memories),
                sum(|taken| taken.blobs)
            ),
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

pub(crate) async fn retention_is_counted_from_the_deletion(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 10).await;
    let mut commit = place.commit_of(vec![deleted(&head)]);
    commit.now = after_seconds(100);
    place.run(&commit).await;
    let taken = async |seconds| {
        let by = after_seconds(seconds);
        let batches = take(&place, Outdated::Deleted { by }, 100).await;
        batches.iter().map(|taken| taken.versions).sum::<u64>()
    };
    assert_eq!(taken(99).await, 0);
    assert_eq!(taken(100).await, 2);
    assert_eq!(taken(101).await, 0);
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

pub(crate) async fn current_version_of_a_live_memory_is_never_removed(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 10).await;
    place.change(vec![edited(&head, 20)]).await;
    let current = place.memory("/a").await;
    let everything = Outdated::Superseded {
        by: late(),
        made_by: Some(late()),
        beyond: Some(1),
    };
    for limit in [1, 100] {
        let batches = take(&place, everything, limit).await;
        let versions = batches.iter().map(|taken| taken.versions).sum::<u64>();
        assert_eq!(versions, u64::from(limit == 1), "{batches:?}");
    }
    assert_eq!(place.memory("/a").await, current);
    let counters = "SELECT version_count, version_bytes FROM store WHERE tenant_id = $1 AND store_id = $2";
    assert_eq!(place.raw.numbers(counters, &place.ids()).await, [[1, 20]]);
}

pub(crate) async fn usage_lists_unused_memories_with_their_last_reader(subject: &Subject) {
    let place = Place::new(subject).await;
    let read_one = place.create("/a", 1).await;
    let (unread, other) = (place.create("/b", 2).await, place.create("/c", 3).await);
    let row = read(&place, read_one.memory_id, after_seconds(9));
    place
        .index
        .access_times
        .flush(std::slice::from_ref(&row))
        .await
        .unwrap();
    let usage = async |limit| {
        let found = place
            .index
            .usage
            .of_store(place.tenant_id, place.store_id, limit)
            .await;
        found.unwrap().unwrap()
    };
    let all = usage(10).await;
    assert_eq!((all.versions, all.version_bytes, all.never_read_count), (3, 6, 2));
    let ids =
        |list: &[keepsake_index::UsedMemory]| list.iter().map(|used| used.memory_id).collect::<Vec<_>>();
    assert_eq!(ids(&all.never_read), [unread.memory_id, other.memory_id]);
    assert_eq!(
        ids(&all.idle),
        [unread.memory_id, other.memory_id, read_one.memory_id]
    );
    let used = &all.idle[2];
    assert_eq!(
        (used.last_read_at, &used.read_by),
        (Some(after_seconds(9)), &Some(row.read_by))
    );
    assert_eq!(used.written_by, place.commit_of(vec![created("/x", 1)]).actor);
    let few = usage(1).await;
    assert_eq!(
        (ids(&few.never_read), few.idle.len()),
        (vec![unread.memory_id], 1)
    );
    let stranger = Place::new(subject).await;
    let foreign = stranger
        .index
        .usage
        .of_store(stranger.tenant_id, place.store_id, 10)
        .await;
    assert_eq!(foreign.unwrap(), None);
}
