//! Access times, signs of life, and the leases of scheduled jobs.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::join_all;
use keepsake_core::{Actor, ApiKeyId, MemoryId, Timestamp};
use keepsake_index::{AccessRow, Index};
use serde_json::json;
use uuid::Uuid;

use crate::place::{Place, after_seconds, by_tenant, created};
use crate::subject::{Subject, TextRow};

const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);
const JOB: &str = "sweep";

fn reader(number: i64) -> Actor {
    Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u64_pair(0, number.unsigned_abs())))
}

fn read_of(place: &Place, memory_id: MemoryId, seconds: i64, read_by: i64) -> AccessRow {
    AccessRow {
        tenant_id: place.tenant_id,
        store_id: place.store_id,
        memory_id,
        read_at: after_seconds(seconds),
        read_by: reader(read_by),
    }
}

async fn access_times(place: &Place) -> Vec<TextRow> {
    place
        .raw
        .rows(
            "SELECT CAST(last_read_at AS TEXT), last_read_by, CAST(active_at AS TEXT) FROM memory_access \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY memory_id",
            &place.ids(),
        )
        .await
}

/// Makes memories.
async fn memories(place: &Place, count: u32) -> Vec<MemoryId> {
    let changes: Vec<_> = (0..count)
        .map(|number| created(&format!("/{number}"), 0))
        .collect();
    let made = changes.iter().map(|change| change.memory_id).collect();
    place.change(changes).await;
    made
}

fn access(seconds: i64, read_by: i64) -> TextRow {
    let at = after_seconds(seconds).as_micros().to_string();
    vec![Some(at.clone()), Some(reader(read_by).id()), Some(at)]
}

pub(crate) async fn access_time_never_moves_back(subject: &Subject) {
    let place = Place::new(subject).await;
    let [first, second] = memories(&place, 2).await.try_into().unwrap();
    let flush = async |rows: &[AccessRow]| place.index.access_times.flush(rows).await.unwrap();
    flush(&[read_of(&place, second, 10, 1), read_of(&place, first, 10, 1)]).await;
    assert_eq!(access_times(&place).await, [access(10, 1), access(10, 1)]);
    flush(&[read_of(&place, first, 5, 2), read_of(&place, second, 15, 2)]).await;
    assert_eq!(access_times(&place).await, [access(10, 1), access(15, 2)]);
    flush(&[]).await;
    assert_eq!(access_times(&place).await, [access(10, 1), access(15, 2)]);
}

pub(crate) async fn activity_later_than_a_read_stays(subject: &Subject) {
    let place = Place::new(subject).await;
    let memory_id = memories(&place, 1).await[0];
    place
        .index
        .access_times
        .flush(&[read_of(&place, memory_id, 10, 1)])
        .await
        .unwrap();
    let active_at = after_seconds(100).as_micros();
    let later = format!("UPDATE memory_access SET active_at = {active_at}");
    place.raw.execute(&later, &[]).await;
    place
        .index
        .access_times
        .flush(&[read_of(&place, memory_id, 20, 2)])
        .await
        .unwrap();
    let mut expected = access(20, 2);
    expected[2] = Some(active_at.to_string());
    assert_eq!(access_times(&place).await, [expected]);
}

pub(crate) async fn reads_of_a_deleted_store_are_dropped(subject: &Subject) {
    let place = Place::new(subject).await;
    let memory_id = memories(&place, 1).await[0];
    let now = after_seconds(1);
    let by = by_tenant(now);
    let deleted = place
        .index
        .store_deletions
        .begin(place.tenant_id, place.store_id, &by);
    assert!(deleted.await.unwrap());
    let row = read_of(&place, memory_id, 10, 1);
    place.index.access_times.flush(&[row]).await.unwrap();
    assert!(access_times(&place).await.is_empty());
}

pub(crate) async fn latest_of_two_reads_in_one_flush_stays(subject: &Subject) {
    let place = Place::new(subject).await;
    let memory_id = memories(&place, 1).await[0];
    let rows = [(10, 1), (30, 3), (20, 2)];
    let rows = rows.map(|(seconds, read_by)| read_of(&place, memory_id, seconds, read_by));
    place.index.access_times.flush(&rows).await.unwrap();
    assert_eq!(access_times(&place).await, [access(30, 3)]);
}

pub(crate) async fn concurrent_flushes_are_all_stored(subject: &Subject) {
    let place = Place::new(subject).await;
    let memories = memories(&place, 200).await;
    let flushes = (0..8).map(|flush: i64| {
        let (place, mut memories) = (place.clone(), memories.clone());
        tokio::spawn(async move {
            if flush % 2 == 0 {
                memories.reverse();
            }
            let rows: Vec<_> = memories
                .into_iter()
                .map(|memory| read_of(&place, memory, flush, flush))
                .collect();
            place.index.access_times.flush(&rows).await.unwrap();
        })
    });
    join_all(flushes).await.into_iter().for_each(Result::unwrap);
    assert_eq!(access_times(&place).await, vec![access(7, 7); 200]);
}

pub(crate) async fn heartbeat_is_kept_per_replica(subject: &Subject) {
    let beat = async |replica, role, seconds, flushed| {
        let (now, flushed) = (after_seconds(seconds), after_seconds(flushed));
        subject
            .index
            .replicas
            .beat(replica, role, now, flushed)
            .await
            .unwrap();
    };
    beat(ONE, "all", 1, 0).await;
    beat(OTHER, "serve", 2, 1).await;
    beat(ONE, "all", 5, 4).await;
    let replicas = subject
        .raw
        .rows(
            "SELECT role, CAST(heartbeat_at AS TEXT), CAST(access_flushed_through AS TEXT) FROM replica ORDER BY id",
            &[],
        )
        .await;
    let row = |role: &str, seconds, flushed| {
        let micros = |seconds| Some(after_seconds(seconds).as_micros().to_string());
        vec![Some(role.to_owned()), micros(seconds), micros(flushed)]
    };
    assert_eq!(replicas, [row("all", 5, 4), row("serve", 2, 1)]);
    let heartbeats = subject.index.replicas.heartbeats().await.unwrap();
    let expected = [(ONE, after_seconds(5)), (OTHER, after_seconds(2))];
    assert_eq!(heartbeats, HashMap::from(expected));
}

pub(crate) async fn gateway_is_live_until_it_ends_or_its_heartbeats_stop(subject: &Subject) {
    let index = &subject.index;
    let beat = async |replica, role, seconds| {
        let now = after_seconds(seconds);
        index.replicas.beat(replica, role, now, now).await.unwrap();
    };
    let live = async |seconds| {
        index
            .replicas
            .live_gateways(after_seconds(seconds))
            .await
            .unwrap()
    };
    assert_eq!(live(0).await, 0);
    let worker = Uuid::from_u128(3);
    beat(ONE, "all", 0).await;
    beat(OTHER, "gateway", 30).await;
    beat(worker, "worker", 30).await;
    assert_eq!([live(30).await, live(89).await], [2, 2]);
    // The first one was last heard of 90 seconds ago.
    assert_eq!([live(90).await, live(119).await, live(120).await], [1, 1, 0]);
    beat(ONE, "all", 100).await;
    assert_eq!(live(101).await, 2);
    index.replicas.retire(OTHER).await.unwrap();
    index.replicas.retire(OTHER).await.unwrap();
    assert_eq!(live(101).await, 1);
    // A process whose clock was ahead, and that was killed meanwhile.
    beat(OTHER, "gateway", 400 * 86_400).await;
    assert_eq!(live(101).await, 1);
}

/// Claims a slot at a time for a minute.
async fn claim(index: &Index, slot: i64, owner: Uuid, at: i64) -> Option<i64> {
    let slot = after_seconds(slot);
    index
        .job_runs
        .claim(JOB, slot, owner, after_seconds(at), after_seconds(at + 60))
        .await
        .unwrap()
}

async fn finish(index: &Index, slot: i64, fence: i64, at: i64) -> bool {
    let counts = json!({"removed": 3});
    let ended = index
        .job_runs
        .finish(JOB, after_seconds(slot), fence, after_seconds(at), &counts, None);
    ended.await.unwrap()
}

pub(crate) async fn second_owner_is_refused_until_the_lease_ends(subject: &Subject) {
    let index = &subject.index;
    let first = claim(index, 0, ONE, 0).await.unwrap();
    assert_eq!(claim(index, 0, OTHER, 59).await, None);
    assert_eq!(claim(index, 60, OTHER, 59).await, None);
    assert_eq!(claim(index, 0, ONE, 59).await, None, "the owner holds it already");
    let second = claim(index, 0, OTHER, 60).await.expect("the first owner died");
    assert!(second > first);
}

pub(crate) async fn lease_of_a_clock_that_was_ahead_can_be_taken(subject: &Subject) {
    let index = &subject.index;
    let ahead = claim(index, 0, ONE, 400 * 86_400).await.unwrap();
    let taken = claim(index, 60, OTHER, 60)
        .await
        .expect("its owner cannot hold it for a year");
    assert!(!finish(index, 0, ahead, 61).await, "its lease was lost");
    // A clock that is ahead by less than the length of a lease is believed.
    assert!(finish(index, 60, taken, 62).await);
    claim(index, 120, ONE, 179).await.unwrap();
    assert_eq!(claim(index, 180, OTHER, 121).await, None);
}

pub(crate) async fn finished_slot_is_not_run_again(subject: &Subject) {
    let index = &subject.index;
    let first = claim(index, 0, ONE, 0).await.unwrap();
    assert!(finish(index, 0, first, 10).await);
    assert_eq!(claim(index, 0, OTHER, 11).await, None);
    assert_eq!(claim(index, 0, OTHER, 1000).await, None);
    // A refused claim does not take the lease.
    let second = claim(index, 60, ONE, 1000).await.expect("nobody holds the lease");
    assert!(second > first);
}

pub(crate) async fn slot_of_a_dead_owner_is_run_again(subject: &Subject) {
    let index = &subject.index;
    let first = claim(index, 0, ONE, 0).await.unwrap();
    let second = claim(index, 0, OTHER, 61).await.unwrap();
    assert!(!finish(index, 0, first, 62).await, "its lease was lost");
    assert!(!renew(index, first, 200, None).await);
    assert!(finish(index, 0, second, 63).await);
    assert!(!finish(index, 0, second, 64).await, "it has ended");
    let runs = subject
        .raw
        .rows(
            "SELECT CAST(slot AS TEXT), CAST(started_at AS TEXT), CAST(ended_at AS TEXT), error FROM job_run",
            &[],
        )
        .await;
    let micros = |seconds| Some(after_seconds(seconds).as_micros().to_string());
    assert_eq!(runs, [vec![micros(0), micros(61), micros(63), None]]);
}

pub(crate) async fn job_is_claimed_until_its_lease_ends_or_is_released(subject: &Subject) {
    let index = &subject.index;
    let is_claimed = async |at| {
        let length = Duration::from_mins(1);
        let claimed = index.job_runs.is_claimed(JOB, after_seconds(at), length);
        claimed.await.unwrap()
    };
    assert!(!is_claimed(0).await);
    let fence = claim(index, 0, ONE, 0).await.unwrap();
    assert_eq!([is_claimed(59).await, is_claimed(60).await], [true, false]);
    assert!(renew(index, fence, 1_000, None).await);
    assert!(!is_claimed(60).await, "a clock was ahead");
    assert!(renew(index, fence, 100, None).await);
    assert_eq!([is_claimed(99).await, is_claimed(100).await], [true, false]);
    assert!(finish(index, 0, fence, 61).await);
    assert!(!is_claimed(62).await);
}

async fn renew(index: &Index, fence: i64, until: i64, cursor: Option<&str>) -> bool {
    index
        .job_runs
        .renew(JOB, fence, after_seconds(until), cursor)
        .await
        .unwrap()
}

pub(crate) async fn renewed_lease_holds_longer(subject: &Subject) {
    let index = &subject.index;
    let fence = claim(index, 0, ONE, 0).await.unwrap();
    assert!(renew(index, fence, 600, Some("store-17")).await);
    assert_eq!(claim(index, 60, OTHER, 599).await, None);
    let kept = subject.raw.rows("SELECT cursor FROM job", &[]).await;
    assert_eq!(kept, [[Some("store-17".to_owned())]]);
    assert!(!renew(index, fence + 1, 900, None).await);
    assert!(!renew(index, fence - 1, 900, None).await);
    assert!(claim(index, 60, OTHER, 600).await.unwrap() > fence);
}

pub(crate) async fn released_lease_is_not_renewed(subject: &Subject) {
    let index = &subject.index;
    let fence = claim(index, 0, ONE, 0).await.unwrap();
    assert!(finish(index, 0, fence, 5).await);
    assert!(!renew(index, fence, 600, None).await);
    assert!(claim(index, 60, OTHER, 6).await.is_some());
}

pub(crate) async fn run_records_what_it_did(subject: &Subject) {
    let index = &subject.index;
    let fence = claim(index, 0, ONE, 0).await.unwrap();
    let counts = json!({"removed": 3, "errors": {"s3": 1}});
    let ended_at = after_seconds(9);
    let ended = index.job_runs.finish(
        JOB,
        after_seconds(0),
        fence,
        ended_at,
        &counts,
        Some("gave up: \"s3\""),
    );
    assert!(ended.await.unwrap());
    let runs = subject
        .raw
        .rows("SELECT name, CAST(counts AS TEXT), error FROM job_run", &[])
        .await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0][0].as_deref(), Some(JOB));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(runs[0][1].as_ref().unwrap()).unwrap(),
        counts
    );
    assert_eq!(runs[0][2].as_deref(), Some("gave up: \"s3\""));
}

pub(crate) async fn jobs_do_not_wait_for_each_other(subject: &Subject) {
    let index = &subject.index;
    assert!(claim(index, 0, ONE, 0).await.is_some());
    let other: Option<i64> = index
        .job_runs
        .claim(
            "reconcile",
            after_seconds(0),
            OTHER,
            after_seconds(0),
            after_seconds(60),
        )
        .await
        .unwrap();
    assert!(other.is_some());
}

pub(crate) async fn one_of_many_claims_of_a_slot_wins(subject: &Subject) {
    let index = &subject.index;
    for round in 0..4_i64 {
        let at = round * 1000;
        let claims = join_all((10..18).map(|owner| claim(index, at, Uuid::from_u128(owner), at))).await;
        let fences: Vec<_> = claims.into_iter().flatten().collect();
        assert_eq!(fences, [round + 1]);
    }
}

pub(crate) async fn due_time_of_a_job_is_exact_to_the_microsecond(subject: &Subject) {
    let index = &subject.index;
    let just_before = Timestamp::from_micros(after_seconds(60).as_micros() - 1);
    assert!(claim(index, 0, ONE, 0).await.is_some());
    let early = index
        .job_runs
        .claim(JOB, after_seconds(60), OTHER, just_before, after_seconds(90))
        .await
        .unwrap();
    assert_eq!(early, None);
    assert!(claim(index, 60, OTHER, 60).await.is_some());
}
