//! Flushes of access times and of the use of sessions, and the leases of scheduled jobs.

use crate::place::PLENTY;
use crate::prelude::*;
use keepsake_core::{Actor, ApiKeyId, MemoryUndoId, SessionId};
use keepsake_index::{
    FORK_HELD_FOR, ForkCounts, NewUndo, Store, StoreOrigin, StoreOriginStatus, UndoKey, UndoPart,
};
use std::collections::BTreeMap;

const ONE: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);
const SECOND: Duration = Duration::from_secs(1);

fn reader(number: u128) -> Actor {
    Actor::ApiKey(ApiKeyId::from_uuid(Uuid::from_u128(number)))
}

/// Writes reads: of which memory, in which second, by whom.
async fn flush(place: &Place, reads: &[(MemoryId, i64, u128)]) {
    let row = |(memory_id, seconds, read_by): &(MemoryId, i64, u128)| LastUse {
        key: (place.tenant_id, place.store_id, *memory_id),
        at: after_seconds(*seconds),
        by: reader(*read_by),
    };
    let rows: Vec<_> = reads.iter().map(row).collect();
    place.index.access_times.flush(&rows).await.unwrap();
}

async fn access_times(place: &Place) -> Vec<TextRow> {
    let times = "SELECT CAST(last_read_at AS TEXT), last_read_by, CAST(active_at AS TEXT) FROM memory_access \
                 WHERE tenant_id = $1 AND store_id = $2 ORDER BY memory_id";
    place.raw.rows(times, &place.ids()).await
}

async fn memories(place: &Place, count: u32) -> Vec<MemoryId> {
    let changes: Vec<_> = (0..count).map(|number| created(&format!("/{number}"), 0)).collect();
    let made = changes.iter().map(|change| change.memory_id).collect();
    place.change(changes).await;
    made
}

fn micros(seconds: i64) -> String {
    after_seconds(seconds).as_micros().to_string()
}

/// A row of a memory that was last read and active in a second.
fn access(seconds: i64, read_by: u128) -> TextRow {
    [micros(seconds), reader(read_by).id(), micros(seconds)].map(Some).to_vec()
}

pub(crate) async fn late_flushes_move_nothing_back(place: Place) {
    let [first, second] = memories(&place, 2).await.try_into().unwrap();
    flush(&place, &[(second, 10, 1), (first, 10, 1)]).await;
    assert_eq!(access_times(&place).await, [access(10, 1), access(10, 1)]);
    flush(&place, &[(first, 5, 2), (second, 15, 2), (second, 30, 3), (second, 20, 2)]).await;
    assert_eq!(access_times(&place).await, [access(10, 1), access(30, 3)]);
    flush(&place, &[]).await;
    let active_at = after_seconds(100).as_micros();
    place.raw.execute(&format!("UPDATE memory_access SET active_at = {active_at}"), &[]).await;
    flush(&place, &[(first, 20, 2)]).await;
    let mut later_active = [access(20, 2), access(30, 3)];
    for row in &mut later_active {
        row[2] = Some(micros(100));
    }
    assert_eq!(access_times(&place).await, later_active);

    let deleted = place.stranger().await;
    let [memory_id] = memories(&deleted, 1).await.try_into().unwrap();
    deleted.delete_store().await;
    flush(&deleted, &[(memory_id, 10, 1)]).await;
    assert!(access_times(&deleted).await.is_empty());
    // Nor does the use of a session move back. It has the id of its only store.
    for statement in [
        "INSERT INTO session (tenant_id, session_id, agent, agent_id, agent_name, agent_version, environment_id, \
         metadata, vault_ids, created_at, updated_at) VALUES ($1, $2, '{}', 'a', 'a', 1, 'e', '{}', '[]', 1, 1)",
        "INSERT INTO session_resource (tenant_id, session_id, resource_id, position, store_id, \
         session_created_at, slug, access, name, description, created_at, updated_at) \
         VALUES ($1, $2, $2, 1, $2, 1, 's', 'read_write', 'n', '', 1, 1)",
    ] {
        place.raw.execute(statement, &place.ids()).await;
    }
    let last_use =
        async |tenant_id| place.index.unused.last_session_use(tenant_id, place.store_id).await.unwrap();
    for (seconds, expected) in [(5, 5), (3, 5), (9, 9)] {
        let key = (place.tenant_id, SessionId::from_uuid(place.store_id.uuid()));
        let used = LastUse { key, at: after_seconds(seconds), by: () };
        place.index.access_times.flush_sessions(&[used]).await.unwrap();
        assert_eq!(last_use(place.tenant_id).await, Some(after_seconds(expected)));
    }
    assert_eq!(last_use(place.stranger().await.tenant_id).await, None);
}

pub(crate) async fn concurrent_flushes_are_all_stored(place: Place) {
    let memories = memories(&place, 200).await;
    let flushes = (0..8_u8).map(|number| {
        let (place, mut memories) = (place.clone(), memories.clone());
        tokio::spawn(async move {
            if number % 2 == 0 {
                memories.reverse();
            }
            let read = |memory| (memory, i64::from(number), u128::from(number));
            flush(&place, &memories.into_iter().map(read).collect::<Vec<_>>()).await;
        })
    });
    join_all(flushes).await.into_iter().for_each(Result::unwrap);
    assert_eq!(access_times(&place).await, vec![access(7, 7); 200]);
}

/// The lease of a job, for a minute each time.
struct Lease<'a> {
    index: &'a Index,
    job: &'static str,
}

impl Lease<'_> {
    async fn claim(&self, slot: i64, owner: Uuid, at: i64) -> Option<i64> {
        let (slot, at, until) = (after_seconds(slot), after_seconds(at), after_seconds(at + 60));
        self.index.job_runs.claim(self.job, slot, owner, at, until).await.unwrap()
    }

    async fn finish(&self, slot: i64, fence: i64, at: i64) -> bool {
        let (slot, at, counts) = (after_seconds(slot), after_seconds(at), serde_json::json!({"removed": 3}));
        self.index.job_runs.finish(self.job, slot, fence, at, &counts, None).await.unwrap()
    }

    async fn renew(&self, fence: i64, until: i64, cursor: Option<&str>) -> bool {
        self.index.job_runs.renew(self.job, fence, after_seconds(until), cursor).await.unwrap()
    }

    async fn is_claimed(&self, at: i64) -> bool {
        let length = Duration::from_mins(1);
        self.index.job_runs.is_claimed(self.job, after_seconds(at), length).await.unwrap()
    }
}

pub(crate) async fn lease_has_one_owner_until_it_ends(place: Place) {
    let lease = Lease { index: &place.index, job: "sweep" };
    assert!(!lease.is_claimed(0).await);
    let first = lease.claim(0, ONE, 0).await.unwrap();
    let just_before_its_end = Timestamp::from_micros(after_seconds(60).as_micros() - 1);
    let runs = &place.index.job_runs;
    let early = runs.claim("sweep", after_seconds(0), OTHER, just_before_its_end, after_seconds(90));
    assert_eq!(early.await.unwrap(), None);
    assert_eq!([lease.is_claimed(59).await, lease.is_claimed(60).await], [true, false]);
    let second = lease.claim(0, OTHER, 60).await.unwrap();
    assert!(second > first);
    assert!(!lease.finish(0, first, 61).await, "its lease was lost");
    assert!(!lease.renew(first, 200, None).await);
    assert!(lease.renew(second, 600, Some("store-17")).await);
    assert!(!lease.renew(second + 1, 900, None).await);
    let cursor = "SELECT cursor FROM job WHERE name = 'sweep'";
    assert_eq!(place.raw.rows(cursor, &[]).await, [[Some("store-17".to_owned())]]);
    assert_eq!(lease.claim(60, ONE, 599).await, None);
    assert_eq!([lease.is_claimed(599).await, lease.is_claimed(600).await], [true, false]);
    assert!(!lease.is_claimed(61).await, "a clock was ahead");
    assert!(lease.finish(0, second, 590).await);
    assert!(!lease.finish(0, second, 591).await, "it has ended");
    assert!(!lease.renew(second, 900, None).await);
    assert!(!lease.is_claimed(591).await);
    let runs =
        "SELECT CAST(slot AS TEXT), CAST(started_at AS TEXT), CAST(ended_at AS TEXT), error FROM job_run";
    let runs = place.raw.rows(runs, &[]).await;
    assert_eq!(runs, [[Some(micros(0)), Some(micros(60)), Some(micros(590)), None]]);

    let lease = Lease { index: &place.index, job: "a job of a clock that was ahead" };
    let ahead = lease.claim(0, ONE, 400 * 86_400).await.unwrap();
    let taken = lease.claim(60, OTHER, 60).await.expect("its owner cannot hold it for a year");
    assert!(!lease.finish(0, ahead, 61).await, "its lease was lost");
    // A clock that is ahead by less than the length of a lease is believed.
    assert!(lease.finish(60, taken, 62).await);
    lease.claim(120, ONE, 179).await.unwrap();
    assert_eq!(lease.claim(180, OTHER, 121).await, None);
}

pub(crate) async fn worker_whose_copy_or_undo_was_taken_over_records_nothing(place: Place) {
    let (tenant_id, store_id, first) = (place.tenant_id, StoreId::from_uuid(ONE), NOW.plus(FORK_HELD_FOR));
    let [taken_over, second, third] =
        [first.plus(SECOND), first.plus(FORK_HELD_FOR), first.plus(2 * FORK_HELD_FOR)];
    let (memory_store_id, status) = (place.store_id, StoreOriginStatus::Copying);
    let copying = StoreOrigin { memory_store_id, seq: 0, status, skipped: 0, error: None };
    let fork = Store { forked_from: Some(copying.clone()), ..Store::new(store_id, "fork".to_owned(), NOW) };
    place.index.stores.create(tenant_id, &fork, PLENTY, None, &by_tenant(NOW)).await.unwrap();
    let forks = &place.index.forks;
    let counts = ForkCounts { memories: Some(3), copied: 2 };
    let advance = async |after, held, until| {
        forks.advance(tenant_id, store_id, (after, counts), held, until).await.unwrap()
    };
    assert!(!forks.hold(tenant_id, store_id, NOW, second).await.unwrap());
    assert!(advance("/a", first, first).await, "its own");
    assert!(forks.hold(tenant_id, store_id, taken_over, second).await.unwrap());
    assert!(advance("/c", second, third).await);
    assert!(!advance("/b", first, third).await);
    let end = async |status, held| {
        let origin = StoreOrigin { status, ..copying.clone() };
        forks.end(tenant_id, store_id, &origin, held).await.unwrap();
    };
    end(StoreOriginStatus::Failed, first).await;
    let open = forks.find(tenant_id, store_id).await.unwrap().unwrap();
    assert_eq!((open.after.as_deref(), open.counts), (Some("/c"), counts));
    end(StoreOriginStatus::Done, third).await;
    let origin = place.index.stores.find(tenant_id, store_id).await.unwrap().unwrap().forked_from;
    assert_eq!(origin.map(|origin| origin.status), Some(StoreOriginStatus::Done));

    let undos = &place.index.undo_jobs;
    let part = UndoPart { is_done: false, counts: BTreeMap::new(), steps: "[]".to_owned() };
    let key = UndoKey { tenant_id, store_id, undo_id: MemoryUndoId::from_uuid(ONE) };
    let (undo_id, parts) = (key.undo_id, vec![part.clone()]);
    let undo = NewUndo { undo_id, store_id, actor: None, created_at: NOW, lease_until: first, parts };
    undos.create(tenant_id, &undo, None).await.unwrap();
    let waiting = UndoKey { undo_id: MemoryUndoId::from_uuid(OTHER), store_id: place.store_id, ..key };
    let (undo_id, lease_until) = (waiting.undo_id, taken_over);
    let other = NewUndo { undo_id, store_id: place.store_id, lease_until, ..undo };
    undos.create(tenant_id, &other, None).await.unwrap();
    let next = async || undos.open(taken_over, FORK_HELD_FOR, 10).await.unwrap();
    assert_eq!(next().await, [key], "one of each tenant");
    let finish = async |held| undos.finish_part(key, (0, &part), held, third).await.unwrap();
    assert!(undos.hold(key, taken_over, second).await.unwrap());
    assert_eq!(next().await, [waiting]);
    assert!(!finish(first).await);
    undos.end(key, taken_over, Some("late"), first).await.unwrap();
    let (open, parts) = undos.find(key).await.unwrap().unwrap();
    assert_eq!((open.ended_at, parts[0].is_done), (None, false));
    assert!(finish(second).await);
    undos.end(key, taken_over, None, third).await.unwrap();
    let (ended, parts) = undos.find(key).await.unwrap().unwrap();
    assert_eq!((ended.ended_at, ended.error, parts[0].is_done), (Some(taken_over), None, true));
    // A part that is made while the undo is cancelled is recorded, and is the last one.
    assert!(undos.cancel(waiting).await.unwrap());
    assert!(!undos.finish_part(waiting, (0, &part), taken_over, third).await.unwrap());
    let (cancelled, parts) = undos.find(waiting).await.unwrap().unwrap();
    assert!(cancelled.is_cancelled && parts[0].is_done);
}

pub(crate) async fn undos_of_a_store_are_bounded(place: Place) {
    let (tenant_id, store_id, undos) = (place.tenant_id, place.store_id, &place.index.undo_jobs);
    let id = |number: u32| MemoryUndoId::from_uuid(Uuid::from_u128(number.into()));
    let key = |number| UndoKey { tenant_id, store_id, undo_id: id(number) };
    let begins = async |number: u32| {
        let parts = vec![UndoPart { is_done: false, counts: BTreeMap::new(), steps: "[]".to_owned() }];
        let undo_id = id(number);
        let undo = NewUndo { undo_id, store_id, actor: None, created_at: NOW, lease_until: NOW, parts };
        undos.create(tenant_id, &undo, None).await.unwrap().is_some()
    };
    for number in 1..=22 {
        assert!(begins(number).await);
        assert!(!begins(100).await, "one is under way");
        undos.end(key(number), after_seconds(number.into()), None, NOW).await.unwrap();
    }
    assert_eq!((undos.find(key(1)).await.unwrap(), undos.steps(key(1), 0).await.unwrap()), (None, None));
    assert!(undos.find(key(2)).await.unwrap().is_some());
    for number in 23..=32 {
        assert!(begins(number).await && undos.cancel(key(number)).await.unwrap());
    }
    assert!(!begins(100).await, "10 have not ended");
}

pub(crate) async fn one_of_many_claims_of_a_slot_wins(place: Place) {
    let lease = Lease { index: &place.index, job: "sweep" };
    for round in 0..4_i64 {
        let at = round * 1000;
        let claims = join_all((10..18).map(|owner| lease.claim(at, Uuid::from_u128(owner), at))).await;
        assert_eq!(claims.into_iter().flatten().collect::<Vec<_>>(), [round + 1]);
    }
}
