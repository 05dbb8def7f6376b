//! Upkeep: recounts beside commits, pages of jobs, and pruning of old rows.

use futures::future::join_all;
use keepsake_index::{Auditor, Index, Prunable};
use serde_json::json;
use uuid::Uuid;

use crate::place::{NOW, Place, after_seconds, audited_by, by_tenant, created, new_tenant};
use crate::subject::Subject;

const JOB: &str = "sweep";
const ONE: Uuid = Uuid::from_u128(1);

/// Whether a recount finds the store, and its tenant, as they are recorded.
async fn is_true_to_itself(place: &Place) -> bool {
    let store = place.upkeep().recount_store(place.tenant_id, place.store_id, false);
    let store = store.await.unwrap().unwrap();
    let tenant = place.upkeep().recount_tenant(place.tenant_id, false);
    let tenant = tenant.await.unwrap().unwrap();
    !store.has_drifted() && store.lost_heads == 0 && !tenant.has_drifted()
}

async fn mend(place: &Place) {
    let store = place.upkeep().recount_store(place.tenant_id, place.store_id, true);
    store.await.unwrap().unwrap();
    let tenant = place.upkeep().recount_tenant(place.tenant_id, true);
    tenant.await.unwrap().unwrap();
}

pub(crate) async fn drift_is_corrected_during_commits(subject: &Subject) {
    let place = Place::new(subject).await;
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
    assert!(is_true_to_itself(&place).await);
    place.assert_recount().await;
}

pub(crate) async fn stores_and_tenants_come_in_their_order(subject: &Subject) {
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(Place::new(subject).await);
    }
    let index = &subject.index;
    let gone = places.pop().unwrap();
    assert!(index.store_deletions.begin(gone.tenant_id, gone.store_id, &by_tenant(NOW)).await.unwrap());
    let mut expected: Vec<_> = places.iter().map(|place| (place.tenant_id, place.store_id)).collect();
    expected.sort_unstable();
    let mut found = Vec::new();
    loop {
        let page = index.upkeep.stores_after(found.last().copied(), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, expected);
    let first = index.upkeep.counters_after(None, 1).await.unwrap();
    let rest = index.upkeep.counters_after(expected.first().copied(), 100);
    let counted = [first, rest.await.unwrap()].concat();
    let stores: Vec<_> = counted.iter().map(|store| (store.tenant_id, store.store_id)).collect();
    assert_eq!(stores, expected);
    let leaving = new_tenant(subject).await;
    let audited = audited_by(Auditor::OperatorCli, NOW);
    assert!(index.tenant_deletions.begin(leaving, &audited).await.unwrap().is_some());
    let tenants = index.upkeep.tenants_after(None, 100).await.unwrap();
    assert!(tenants.is_sorted() && tenants.len() == 5, "{tenants:?}");
    assert!(!tenants.contains(&leaving));
    assert_eq!(index.upkeep.tenants_after(Some(tenants[2]), 100).await.unwrap(), tenants[3..]);
    assert_eq!(index.upkeep.recount_tenant(leaving, false).await.unwrap(), None);
    assert_eq!(index.upkeep.recount_store(gone.tenant_id, gone.store_id, true).await.unwrap(), None);
}

async fn run(index: &Index, slot: i64, at: i64) -> Option<i64> {
    let (slot, at, until) = (after_seconds(slot), after_seconds(at), after_seconds(at + 60));
    index.job_runs.claim(JOB, slot, ONE, at, until).await.unwrap()
}

async fn end(index: &Index, slot: i64, fence: i64, at: i64) {
    let (slot, at, counts) = (after_seconds(slot), after_seconds(at), json!({"done": fence}));
    let ended = index.job_runs.finish(JOB, slot, fence, at, &counts, None);
    assert!(ended.await.unwrap());
}

pub(crate) async fn old_job_runs_replicas_and_codes_are_pruned(subject: &Subject) {
    let index = &subject.index;
    for number in 0..5_i64 {
        let fence = run(index, number, number).await.unwrap();
        end(index, number, fence, number).await;
        let replica = Uuid::from_u64_pair(9, number.unsigned_abs());
        let at = after_seconds(number);
        index.replicas.beat(replica, "all", at, at).await.unwrap();
        let code = [number.to_le_bytes()[0]; 32];
        for is_first in [true, false] {
            assert_eq!(index.redeemed_codes.add(&code, at).await.unwrap(), is_first);
        }
    }
    let (upkeep, before) = (&index.upkeep, after_seconds(3));
    for what in [Prunable::JobRuns, Prunable::Replicas, Prunable::RedeemedCodes] {
        assert_eq!(upkeep.prune(what, before, 2, true).await.unwrap(), 3, "{what:?}");
        assert_eq!(upkeep.prune(what, before, 2, false).await.unwrap(), 2, "{what:?}");
        assert_eq!(upkeep.prune(what, before, 2, false).await.unwrap(), 1, "{what:?}");
        assert_eq!(upkeep.prune(what, before, 2, false).await.unwrap(), 0, "{what:?}");
    }
    let runs = index.job_runs.list(JOB, None, NOW, 10).await.unwrap();
    let slots: Vec<_> = runs.iter().map(|run| run.slot).collect();
    assert_eq!(slots, [after_seconds(4), after_seconds(3)]);
}
