//! Upkeep: recounts beside commits, pages of jobs, and pruning of old rows.

use keepsake_core::Surface;
use keepsake_index::{CountedUse, FlushedBatch, MICROS_PER_DAY, Prunable, UseNumbers, UseOfDay, UseOfStore};
use serde_json::json;

use crate::deletions::purge_store;
use crate::prelude::*;

const JOB: &str = "sweep";

async fn mend(place: &Place) {
    let upkeep = &place.index.upkeep;
    upkeep.recount((place.tenant_id, Some(place.store_id)), true).await.unwrap().unwrap();
    upkeep.recount((place.tenant_id, None), true).await.unwrap().unwrap();
}

pub(crate) async fn drift_is_corrected_during_commits(place: Place) {
    let drift = "UPDATE store SET memory_count = memory_count + 100 WHERE tenant_id = $1 AND store_id = $2";
    place.raw.execute(drift, &place.ids()).await;
    let writers = (0..4).map(|writer| {
        let place = place.clone();
        async move {
            for number in 0..10 {
                place.change(vec![created(&format!("/{writer}/{number}.md"), 10)]).await;
            }
        }
    });
    tokio::join!(join_all(writers), mend(&place), mend(&place));
    place.assert_recount().await;
    let count = "SELECT memory_count FROM store WHERE tenant_id = $1 AND store_id = $2";
    assert_eq!(place.raw.number(count, &place.ids()).await, 40);
}

/// A minute begins 40 seconds after `NOW`.
pub(crate) async fn directories_have_the_time_of_their_last_change(place: Place) {
    let [a, b, c] = ["/d/sub/a", "/d/sub/b", "/d/sub/c"];
    place.change(vec![created(a, 5), created(b, 5)]).await;
    let times =
        "SELECT DISTINCT CAST(changed_at AS TEXT) FROM directory WHERE tenant_id = $1 AND store_id = $2";
    // The clock is set back, and forward again.
    for (seconds, from, to, size_bytes, shown) in [
        (30, b, b, 5, 0),
        (45, b, b, 5, 45),
        (50, a, a, 5, 45),
        (51, b, b, 6, 51),
        (110, b, c, 6, 110),
        (20, a, a, 5, 20),
        (115, c, c, 6, 115),
        (117, c, c, 6, 115),
    ] {
        let head = place.memory(from).await;
        let change = if from == to { edited(&head, size_bytes) } else { renamed(&head, to) };
        let mut commit = place.commit_of(vec![change]);
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
        let shown = Some(after_seconds(shown).as_micros().to_string());
        assert_eq!(place.raw.rows(times, &place.ids()).await, [[shown]], "after {seconds} seconds");
        place.assert_recount().await;
    }
    // Of the memories that stay, the newest is from a clock that was ahead.
    let [ahead, gone] = [place.memory(a).await, place.memory(c).await];
    for (seconds, change) in [(9_000, edited(&ahead, 7)), (120, deleted(&gone))] {
        let mut commit = place.commit_of(vec![change]);
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
        place.assert_recount().await;
    }
}

/// All that comes page by page, each after the last of the page before.
pub(crate) async fn all_pages<T: Copy>(page: impl AsyncFn(Option<T>) -> Vec<T>) -> Vec<T> {
    let mut found: Vec<_> = Vec::new();
    loop {
        let next = page(found.last().copied()).await;
        if next.is_empty() {
            return found;
        }
        found.extend(next);
    }
}

pub(crate) async fn stores_and_tenants_come_in_their_order(first: Place) {
    let (index, mut places) = (first.index.clone(), vec![first]);
    for _ in 1..5 {
        places.push(places[0].stranger().await);
    }
    let upkeep = &index.upkeep;
    let gone = places.pop().unwrap();
    gone.delete_store().await;
    let counted = upkeep.recount((gone.tenant_id, None), false).await.unwrap();
    assert!(!counted.unwrap().has_drifted(), "a deleted store that waits for its purge is not counted");
    assert_eq!(upkeep.recount((gone.tenant_id, Some(gone.store_id)), true).await.unwrap(), None);
    let mut expected: Vec<_> = places.iter().map(|place| (place.tenant_id, place.store_id)).collect();
    expected.sort_unstable();
    let pages = async |after| {
        let stores = upkeep.stores_after(after, 3).await.unwrap();
        stores.iter().map(|store| (store.tenant_id, store.store_id)).collect()
    };
    assert_eq!(all_pages(pages).await, expected);
    let walked = all_pages(async |after| upkeep.places_after(after, 3).await.unwrap()).await;
    let stores = expected.iter().map(|(tenant_id, store_id)| (*tenant_id, Some(*store_id)));
    let tenants = upkeep.tenants_after(None, 100).await.unwrap();
    let tenants = tenants.into_iter().map(|tenant_id| (tenant_id, None));
    assert_eq!(walked, stores.chain(tenants).collect::<Vec<_>>(), "tenants come after all stores");

    let leaving = places[0].stranger().await.tenant_id;
    assert!(index.tenant_deletions.begin(leaving, &audited()).await.unwrap().is_some());
    let tenants = upkeep.tenants_after(None, 100).await.unwrap();
    assert!(tenants.is_sorted() && tenants.len() == 5, "{tenants:?}");
    assert!(!tenants.contains(&leaving));
    assert_eq!(upkeep.tenants_after(Some(tenants[2]), 100).await.unwrap(), tenants[3..]);
    assert_eq!(upkeep.recount((leaving, None), false).await.unwrap(), None);
}

pub(crate) async fn old_job_runs_replicas_and_codes_are_pruned(place: Place) {
    let index = &place.index;
    for number in 0..5_i64 {
        let (at, until) = (after_seconds(number), after_seconds(number + 60));
        let fence = index.job_runs.claim(JOB, at, Uuid::nil(), at, until).await.unwrap();
        let ended = index.job_runs.finish(JOB, at, fence.unwrap(), at, &json!({}), None).await;
        assert!(ended.unwrap());
        let replica = Uuid::from_u64_pair(9, number.unsigned_abs());
        index.replicas.beat(replica, "all", at, at).await.unwrap();
        index.daily_use.add(FlushedBatch { replica, id: replica, at }, &[]).await.unwrap();
        let code = [number.to_le_bytes()[0]; 32];
        for is_first in [true, false] {
            assert_eq!(index.redeemed_codes.add(&code, at).await.unwrap(), is_first);
        }
    }
    let tallies = index.job_runs.tally(&[JOB, "none"], after_seconds(1), Duration::from_secs(3)).await;
    let tallies =
        tallies.unwrap().into_iter().map(|tally| (tally.part, tally.runs, tally.failed, tally.open));
    assert_eq!(tallies.collect::<Vec<_>>(), [(0, 3, 0, 0), (1, 1, 0, 0)]);
    let (upkeep, before) = (&index.upkeep, after_seconds(3));
    // The last one that died before that time is kept.
    let last = before.minus(Duration::from_micros(1));
    index.replicas.beat(Uuid::nil(), "gateway", last, last).await.unwrap();
    for what in [Prunable::JobRuns, Prunable::Replicas, Prunable::FlushedBatches, Prunable::RedeemedCodes] {
        assert_eq!(upkeep.prune(what, before, 2, true).await.unwrap(), 3, "{what:?}");
        for pruned in [2, 1, 0] {
            assert_eq!(upkeep.prune(what, before, 2, false).await.unwrap(), pruned, "{what:?}");
        }
    }
    let runs = index.job_runs.list(JOB, None, NOW, 10).await.unwrap();
    let slots: Vec<_> = runs.iter().map(|run| run.slot).collect();
    assert_eq!(slots, [after_seconds(4), after_seconds(3)]);
}

pub(crate) async fn daily_use_adds_up_until_its_store_or_its_time_ends(place: Place) {
    const DAY: i64 = NOW.as_micros() / MICROS_PER_DAY;
    let (sibling, stranger) = (place.sibling().await, place.stranger().await);
    let daily = &place.index.daily_use;
    let numbers = |[reads, writes]: [u64; 2]| UseNumbers {
        reads,
        writes,
        refusals: reads,
        conflicts: 0,
        growth: reads.cast_signed() - writes.cast_signed(),
    };
    let count = |of: &Place, day, surface, uses| {
        let (tenant_id, store_id, numbers) = (of.tenant_id, Some(of.store_id), numbers(uses));
        CountedUse { tenant_id, store_id, day, surface, numbers }
    };
    let of_tenant = CountedUse { store_id: None, ..count(&place, DAY, Surface::Api, [7, 7]) };
    let batch = |id| FlushedBatch { replica: Uuid::nil(), id: Uuid::from_u128(id), at: NOW };
    // The second attempt of each batch is a repetition.
    for id in [1, 1, 2, 2] {
        let counts = [
            count(&sibling, DAY, Surface::Api, [1, 2]),
            count(&place, DAY, Surface::Api, [3, 0]),
            count(&place, DAY - 400, Surface::Mcp, [5, 1]),
            count(&stranger, DAY, Surface::Tool, [9, 9]),
            of_tenant,
        ];
        daily.add(batch(id), &counts).await.unwrap();
    }
    let used = |day, surface, [reads, writes]: [u64; 2]| UseOfDay {
        day,
        surface,
        reads,
        writes,
        refusals: reads,
        conflicts: 0,
    };
    let since = async |only: Option<&[StoreId]>| daily.since(place.tenant_id, only, DAY - 400).await.unwrap();
    let both = [place.store_id, sibling.store_id];
    let old = used(DAY - 400, Surface::Mcp, [10, 2]);
    assert_eq!(since(None).await, [used(DAY, Surface::Api, [14, 14])]);
    assert_eq!(since(Some(&both)).await, [old, used(DAY, Surface::Api, [8, 4])]);
    assert!(since(Some(&[stranger.store_id])).await.is_empty());
    let tenant_ids = [place.tenant_id, stranger.tenant_id];
    assert_eq!(daily.of_tenants(&tenant_ids, DAY).await.unwrap(), [(place.tenant_id, 14, 14)]);
    let sizes = place.index.tenants.sizes(&tenant_ids[..1]).await.unwrap();
    assert_eq!(sizes.iter().map(|size| (size.stores, size.memories)).collect::<Vec<_>>(), [(2, 0)]);
    for (only, day, limit, written, refused) in [
        (None, DAY, 10, &both[1..], &both[..]),
        (None, DAY - 400, 10, &[both[1], both[0]], &both),
        (None, DAY - 400, 1, &both[1..], &both[..1]),
        (Some(&both[..1]), DAY - 400, 10, &both[..1], &both[..1]),
    ] {
        let most = daily.most_used(place.tenant_id, only, day, limit, 10).await.unwrap();
        let ids = |stores: &[UseOfStore]| stores.iter().map(|store| store.store_id).collect::<Vec<_>>();
        assert_eq!(
            (ids(&most.written), ids(&most.refused)),
            (written.to_vec(), refused.to_vec()),
            "since {day}"
        );
        let grown: Vec<_> = most.grown.iter().map(|store| (store.store_id, store.growth)).collect();
        assert_eq!(grown, [(place.store_id, if day == DAY { 6 } else { 14 })]);
    }
    let among_none = daily.most_used(place.tenant_id, None, DAY, 10, 0).await.unwrap();
    assert_eq!((among_none.written, among_none.refused), (vec![], vec![]));

    let (upkeep, before) = (&place.index.upkeep, after_seconds(-399 * 86_400));
    for (is_dry, pruned) in [(true, 1), (false, 1), (false, 0)] {
        assert_eq!(upkeep.prune(Prunable::DailyUse, before, 10, is_dry).await.unwrap(), pruned);
    }
    assert_eq!(since(Some(&both)).await, [used(DAY, Surface::Api, [8, 4])]);
    sibling.delete_store().await;
    daily.add(batch(3), &[count(&sibling, DAY, Surface::Api, [1, 1])]).await.unwrap();
    assert_eq!(since(Some(&both[1..])).await, [used(DAY, Surface::Api, [2, 4])], "it is deleted");
    purge_store(sibling).await;
    assert!(since(Some(&both[1..])).await.is_empty());
    assert_eq!(since(None).await, [used(DAY, Surface::Api, [14, 14])], "the tenant's own counts stay");
}
