//! Flushes of access times and of the use of keys, and the leases of scheduled jobs.

use std::time::Duration;

use futures::future::join_all;
use keepsake_core::{Actor, ApiKeyId, MemoryId, Timestamp};
use keepsake_index::{AccessRow, ApiKey, Index, KeyUse};
use uuid::Uuid;

use crate::place::{PLENTY, Place, after_seconds, audited, by_tenant, created, new_key, new_tenant};
use crate::subject::{Subject, TextRow};

const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

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
    let changes: Vec<_> = (0..count).map(|number| created(&format!("/{number}"), 0)).collect();
    let made = changes.iter().map(|change| change.memory_id).collect();
    place.change(changes).await;
    made
}

fn access(seconds: i64, read_by: i64) -> TextRow {
    let at = after_seconds(seconds).as_micros().to_string();
    vec![Some(at.clone()), Some(reader(read_by).id()), Some(at)]
}

/// Each in its own store, or of its own tenant.
pub(crate) async fn late_flushes_move_nothing_back(subject: &Subject) {
    access_time_never_moves_back(subject).await;
    latest_of_two_reads_in_one_flush_stays(subject).await;
    reads_of_a_deleted_store_are_dropped(subject).await;
    activity_later_than_a_read_stays(subject).await;
    use_of_a_key_never_moves_back(subject).await;
}

async fn access_time_never_moves_back(subject: &Subject) {
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

async fn activity_later_than_a_read_stays(subject: &Subject) {
    let place = Place::new(subject).await;
    let memory_id = memories(&place, 1).await[0];
    place.index.access_times.flush(&[read_of(&place, memory_id, 10, 1)]).await.unwrap();
    let active_at = after_seconds(100).as_micros();
    let later = format!("UPDATE memory_access SET active_at = {active_at}");
    place.raw.execute(&later, &[]).await;
    place.index.access_times.flush(&[read_of(&place, memory_id, 20, 2)]).await.unwrap();
    let mut expected = access(20, 2);
    expected[2] = Some(active_at.to_string());
    assert_eq!(access_times(&place).await, [expected]);
}

async fn reads_of_a_deleted_store_are_dropped(subject: &Subject) {
    let place = Place::new(subject).await;
    let memory_id = memories(&place, 1).await[0];
    let now = after_seconds(1);
    let by = by_tenant(now);
    let deleted = place.index.store_deletions.begin(place.tenant_id, place.store_id, &by);
    assert!(deleted.await.unwrap());
    let row = read_of(&place, memory_id, 10, 1);
    place.index.access_times.flush(&[row]).await.unwrap();
    assert!(access_times(&place).await.is_empty());
}

async fn latest_of_two_reads_in_one_flush_stays(subject: &Subject) {
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
            let rows: Vec<_> =
                memories.into_iter().map(|memory| read_of(&place, memory, flush, flush)).collect();
            place.index.access_times.flush(&rows).await.unwrap();
        })
    });
    join_all(flushes).await.into_iter().for_each(Result::unwrap);
    assert_eq!(access_times(&place).await, vec![access(7, 7); 200]);
}

async fn last_uses(subject: &Subject) -> Vec<Option<i64>> {
    let query = "SELECT CAST(last_used_at AS TEXT) FROM api_key ORDER BY name";
    let rows = subject.raw.rows(query, &[]).await;
    rows.into_iter().map(|row| row[0].as_ref().map(|micros| micros.parse().unwrap())).collect()
}

async fn use_of_a_key_never_moves_back(subject: &Subject) {
    let index = &subject.index;
    let (of, foreign) = (new_tenant(subject).await, new_tenant(subject).await);
    let keys: Vec<_> =
        (0..3_u8).map(|number| ApiKey { name: format!("key {number}"), ..new_key(of) }).collect();
    for (number, key) in (0..).zip(&keys) {
        let (secret, by) = ([number; 32], audited());
        let made = index.keys.create(key, &secret, PLENTY, None, &by);
        made.await.unwrap();
    }
    let used = |key: usize, seconds| KeyUse {
        tenant_id: of,
        api_key_id: keys[key].api_key_id,
        used_at: after_seconds(seconds),
    };
    let foreign_use = KeyUse { tenant_id: foreign, ..used(2, 50) };
    let micros = |seconds| Some(after_seconds(seconds).as_micros());
    let flush = async |uses: &[KeyUse]| index.keys.flush_use(uses).await.unwrap();
    flush(&[]).await;
    assert_eq!(last_uses(subject).await, [None, None, None]);
    flush(&[used(1, 20), used(0, 10), foreign_use]).await;
    assert_eq!(last_uses(subject).await, [micros(10), micros(20), None]);
    flush(&[used(0, 5), used(1, 30), used(1, 25)]).await;
    assert_eq!(last_uses(subject).await, [micros(10), micros(30), None]);
    let racing = (0..20).map(|round| {
        let (first, second) = (round % 3, (round + 1) % 3);
        let seconds = 100 + i64::try_from(round).unwrap();
        let both = [used(first, seconds), used(second, seconds)];
        async move { index.keys.flush_use(&both).await.unwrap() }
    });
    join_all(racing).await;
    assert_eq!(last_uses(subject).await, [micros(118), micros(119), micros(119)]);
}

/// The lease of a job, for a minute each time.
struct Lease<'a> {
    index: &'a Index,
    job: &'static str,
}

impl Lease<'_> {
    /// Claims a slot at a time.
    async fn claim(&self, slot: i64, owner: Uuid, at: i64) -> Option<i64> {
        let (slot, at, until) = (after_seconds(slot), after_seconds(at), after_seconds(at + 60));
        let claimed = self.index.job_runs.claim(self.job, slot, owner, at, until);
        claimed.await.unwrap()
    }

    async fn finish(&self, slot: i64, fence: i64, at: i64) -> bool {
        let (slot, at, counts) = (after_seconds(slot), after_seconds(at), serde_json::json!({"removed": 3}));
        let ended = self.index.job_runs.finish(self.job, slot, fence, at, &counts, None);
        ended.await.unwrap()
    }

    async fn renew(&self, fence: i64, until: i64, cursor: Option<&str>) -> bool {
        let renewed = self.index.job_runs.renew(self.job, fence, after_seconds(until), cursor);
        renewed.await.unwrap()
    }
}

pub(crate) async fn lease_of_a_clock_that_was_ahead_can_be_taken(subject: &Subject) {
    let lease = Lease { index: &subject.index, job: "sweep" };
    let ahead = lease.claim(0, ONE, 400 * 86_400).await.unwrap();
    let taken = lease.claim(60, OTHER, 60).await.expect("its owner cannot hold it for a year");
    assert!(!lease.finish(0, ahead, 61).await, "its lease was lost");
    // A clock that is ahead by less than the length of a lease is believed.
    assert!(lease.finish(60, taken, 62).await);
    lease.claim(120, ONE, 179).await.unwrap();
    assert_eq!(lease.claim(180, OTHER, 121).await, None);
}

pub(crate) async fn lease_has_one_owner_until_it_ends(subject: &Subject) {
    let of = |job| Lease { index: &subject.index, job };
    slot_of_a_dead_owner_is_run_again(subject, &of("dead")).await;
    job_is_claimed_until_its_lease_ends_or_is_released(&of("claimed")).await;
    renewed_lease_holds_longer(subject, &of("renewed")).await;
    released_lease_is_not_renewed(&of("released")).await;
    due_time_is_exact_to_the_microsecond(&of("due")).await;
}

async fn slot_of_a_dead_owner_is_run_again(subject: &Subject, lease: &Lease<'_>) {
    let first = lease.claim(0, ONE, 0).await.unwrap();
    let second = lease.claim(0, OTHER, 61).await.unwrap();
    assert!(!lease.finish(0, first, 62).await, "its lease was lost");
    assert!(!lease.renew(first, 200, None).await);
    assert!(lease.finish(0, second, 63).await);
    assert!(!lease.finish(0, second, 64).await, "it has ended");
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

async fn job_is_claimed_until_its_lease_ends_or_is_released(lease: &Lease<'_>) {
    let is_claimed = async |at| {
        let length = Duration::from_mins(1);
        let claimed = lease.index.job_runs.is_claimed(lease.job, after_seconds(at), length);
        claimed.await.unwrap()
    };
    assert!(!is_claimed(0).await);
    let fence = lease.claim(0, ONE, 0).await.unwrap();
    assert_eq!([is_claimed(59).await, is_claimed(60).await], [true, false]);
    assert!(lease.renew(fence, 1_000, None).await);
    assert!(!is_claimed(60).await, "a clock was ahead");
    assert!(lease.renew(fence, 100, None).await);
    assert_eq!([is_claimed(99).await, is_claimed(100).await], [true, false]);
    assert!(lease.finish(0, fence, 61).await);
    assert!(!is_claimed(62).await);
}

async fn renewed_lease_holds_longer(subject: &Subject, lease: &Lease<'_>) {
    let fence = lease.claim(0, ONE, 0).await.unwrap();
    assert!(lease.renew(fence, 600, Some("store-17")).await);
    assert_eq!(lease.claim(60, OTHER, 599).await, None);
    let kept = "SELECT cursor FROM job WHERE name = 'renewed'";
    assert_eq!(subject.raw.rows(kept, &[]).await, [[Some("store-17".to_owned())]]);
    assert!(!lease.renew(fence + 1, 900, None).await);
    assert!(!lease.renew(fence - 1, 900, None).await);
    assert!(lease.claim(60, OTHER, 600).await.unwrap() > fence);
}

async fn released_lease_is_not_renewed(lease: &Lease<'_>) {
    let fence = lease.claim(0, ONE, 0).await.unwrap();
    assert!(lease.finish(0, fence, 5).await);
    assert!(!lease.renew(fence, 600, None).await);
    assert!(lease.claim(60, OTHER, 6).await.is_some());
}

async fn due_time_is_exact_to_the_microsecond(lease: &Lease<'_>) {
    let just_before = Timestamp::from_micros(after_seconds(60).as_micros() - 1);
    assert!(lease.claim(0, ONE, 0).await.is_some());
    let early =
        lease.index.job_runs.claim(lease.job, after_seconds(60), OTHER, just_before, after_seconds(90)).await;
    assert_eq!(early.unwrap(), None);
    assert!(lease.claim(60, OTHER, 60).await.is_some());
}

pub(crate) async fn one_of_many_claims_of_a_slot_wins(subject: &Subject) {
    let lease = Lease { index: &subject.index, job: "sweep" };
    for round in 0..4_i64 {
        let at = round * 1000;
        let claims = join_all((10..18).map(|owner| lease.claim(at, Uuid::from_u128(owner), at))).await;
        let fences: Vec<_> = claims.into_iter().flatten().collect();
        assert_eq!(fences, [round + 1]);
    }
}
