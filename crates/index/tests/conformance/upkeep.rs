//! Upkeep: listing of named blobs, recounts of counters, and pruning of old rows.

use futures::future::join_all;
use keepsake_core::{BlobKey, Timestamp, VersionId};
use keepsake_index::{
    Auditor, CommitOutcome, Idempotency, Index, JobRun, NamedBlob, Prunable, Redaction, RedactionOutcome,
    StoreCounters,
};
use serde_json::json;
use uuid::Uuid;

use crate::place::{
    NOW, Place, after_seconds, audited_by, by_nobody, by_tenant, created, deleted, edited, new_tenant,
    next_uuid, renamed,
};
use crate::subject::Subject;

const JOB: &str = "sweep";
const ONE: Uuid = Uuid::from_u128(1);

async fn redact(place: &Place, version_id: VersionId) {
    let redaction = Redaction {
        store_id: place.store_id,
        version_id,
        audited: by_nobody(NOW),
    };
    let redacted = place
        .index
        .redactions
        .redact(place.tenant_id, &redaction)
        .await
        .unwrap();
    assert!(
        matches!(redacted, RedactionOutcome::Redacted { .. }),
        "{redacted:?}"
    );
}

/// Every row that names a blob, read in pages of `limit` rows.
async fn named(place: &Place, limit: u32) -> Vec<NamedBlob> {
    let mut all: Vec<NamedBlob> = Vec::new();
    loop {
        let after = all.last().map(|row| row.key);
        let page = place.upkeep().named_blobs(after.as_ref(), limit).await.unwrap();
        if page.is_empty() {
            return all;
        }
        assert!(page.len() <= limit as usize);
        all.extend(page);
    }
}

pub(crate) async fn database_without_damage_has_no_damage_to_report(subject: &Subject) {
    let place = Place::new(subject).await;
    history(&place).await;
    assert_eq!(place.upkeep().find_damage().await.unwrap(), Vec::<String>::new());
}

/// A memory of three versions: the second shares the blob of the first, which
/// is redacted. Answers the blobs that are named.
async fn history(place: &Place) -> [BlobKey; 2] {
    let first = place.create("/a/b.md", 10).await;
    place.change(vec![renamed(&first, "/a/c.md")]).await;
    let second = place.memory("/a/c.md").await;
    place.change(vec![edited(&second, 20)]).await;
    let third = place.memory("/a/c.md").await;
    redact(place, first.version_id).await;
    [place.blob(first.blob_id), place.blob(third.blob_id)]
}

pub(crate) async fn blobs_are_named_in_the_order_of_their_keys(subject: &Subject) {
    let one = Place::new(subject).await;
    let other = Place::new(subject).await;
    let mut expected = [history(&one).await, history(&other).await].concat();
    let gone = other.create("/gone.md", 5).await;
    other.change(vec![deleted(&gone)]).await;
    expected.push(other.blob(gone.blob_id));
    expected.sort_unstable();
    for limit in [1, 2, 3, 100] {
        let rows = named(&one, limit).await;
        let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
        assert_eq!(keys, expected, "{limit} at a time");
        assert!(rows.iter().all(|row| row.is_live));
    }
    let sizes: u64 = named(&one, 100).await.iter().map(|row| row.size_bytes).sum();
    assert_eq!(sizes, 2 * (10 + 20) + 5);
}

pub(crate) async fn blob_of_a_deleted_store_is_named_until_it_is_purged(subject: &Subject) {
    let place = Place::new(subject).await;
    let keys = history(&place).await;
    for key in &keys {
        assert!(place.upkeep().blob_is_named(key).await.unwrap());
    }
    let nobody = place.blob(VersionId::from_uuid(next_uuid()));
    assert!(!place.upkeep().blob_is_named(&nobody).await.unwrap());
    let by = by_tenant(NOW);
    let deleted = place
        .index
        .store_deletions
        .begin(place.tenant_id, place.store_id, &by);
    assert!(deleted.await.unwrap());
    let rows = named(&place, 10).await;
    assert!(rows.len() == 2 && rows.iter().all(|row| !row.is_live), "{rows:?}");
    assert!(!place.upkeep().blob_is_named(&keys[0]).await.unwrap());
    while !place
        .index
        .store_deletions
        .purge(place.tenant_id, place.store_id, NOW, 10)
        .await
        .unwrap()
        .is_done
    {}
    assert_eq!(named(&place, 10).await, []);
}

/// Whether a recount finds the store, and its tenant, as they are recorded.
async fn is_true_to_itself(place: &Place) -> bool {
    let store = place
        .upkeep()
        .recount_store(place.tenant_id, place.store_id, false);
    let store = store.await.unwrap().unwrap();
    let tenant = place.upkeep().recount_tenant(place.tenant_id, false);
    let tenant = tenant.await.unwrap().unwrap();
    !store.has_drifted() && store.lost_heads == 0 && !tenant.has_drifted()
}

async fn mend(place: &Place) {
    let store = place
        .upkeep()
        .recount_store(place.tenant_id, place.store_id, true);
    store.await.unwrap().unwrap();
    let tenant = place.upkeep().recount_tenant(place.tenant_id, true);
    tenant.await.unwrap().unwrap();
}

pub(crate) async fn counters_do_not_drift_after_commits_and_redactions(subject: &Subject) {
    let place = Place::new(subject).await;
    assert!(is_true_to_itself(&place).await, "an empty store");
    history(&place).await;
    place.create("/a/.hidden/d.md", 7).await;
    let gone = place.create("/gone/e.md", 9).await;
    place.change(vec![deleted(&gone)]).await;
    assert!(is_true_to_itself(&place).await);
    let before = place.rows().await;
    mend(&place).await;
    assert_eq!(place.rows().await, before, "there was nothing to repair");
}

pub(crate) async fn drifted_counters_are_corrected(subject: &Subject) {
    let place = Place::new(subject).await;
    history(&place).await;
    place.create("/x/y/z.md", 7).await;
    let before = place.rows().await;
    let ids = place.ids();
    for drift in [
        "UPDATE store SET memory_count = memory_count + 3 WHERE tenant_id = $1 AND store_id = $2",
        "UPDATE store SET live_bytes = live_bytes - 1 WHERE tenant_id = $1 AND store_id = $2",
        "UPDATE store SET version_count = 0 WHERE tenant_id = $1 AND store_id = $2",
        "UPDATE store SET version_bytes = version_bytes + 5 WHERE tenant_id = $1 AND store_id = $2",
        "UPDATE directory SET files = 9 WHERE tenant_id = $1 AND store_id = $2 AND path = '/a/'",
        "UPDATE directory SET visible_children = 0 WHERE tenant_id = $1 AND store_id = $2 AND path = '/'",
        "DELETE FROM directory WHERE tenant_id = $1 AND store_id = $2 AND path = '/x/y/'",
        "INSERT INTO directory (tenant_id, store_id, path, parent, name, files, bytes, visible_children) \
         VALUES ($1, $2, '/nowhere/', '/', 'nowhere', 1, 1, 1)",
    ] {
        place.raw.execute(drift, &ids).await;
        assert!(!is_true_to_itself(&place).await, "{drift}");
        mend(&place).await;
        assert!(is_true_to_itself(&place).await, "{drift}");
        assert_eq!(place.rows().await, before, "{drift}");
    }
    for drift in [
        "UPDATE tenant SET store_count = store_count + 1 WHERE tenant_id = $1",
        "UPDATE tenant SET granted_bytes = granted_bytes - 1 WHERE tenant_id = $1",
    ] {
        place.raw.execute(drift, &ids[..1]).await;
        assert!(!is_true_to_itself(&place).await, "{drift}");
        mend(&place).await;
        assert!(is_true_to_itself(&place).await, "{drift}");
    }
}

pub(crate) async fn store_above_its_grant_gets_a_larger_grant(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a.md", 100).await;
    let take = "UPDATE store SET granted_bytes = 40 WHERE tenant_id = $1 AND store_id = $2";
    place.raw.execute(take, &place.ids()).await;
    let take = "UPDATE tenant SET granted_bytes = 40 WHERE tenant_id = $1";
    place.raw.execute(take, &place.ids()[..1]).await;
    let count = place
        .upkeep()
        .recount_store(place.tenant_id, place.store_id, true);
    assert_eq!(count.await.unwrap().unwrap().overdrawn_bytes, 60);
    assert!(is_true_to_itself(&place).await);
    let granted = "SELECT granted_bytes FROM tenant WHERE tenant_id = $1";
    assert_eq!(place.raw.numbers(granted, &place.ids()[..1]).await, [[100]]);
}

pub(crate) async fn recounts_during_commits_find_and_cause_no_drift(subject: &Subject) {
    let place = Place::new(subject).await;
    let writers = (0..4).map(|writer| {
        let place = place.clone();
        tokio::spawn(async move {
            for number in 0..15 {
                let at = format!("/{writer}/{number}/a.md");
                place.change(vec![created(&at, 10 + number)]).await;
                let head = place.memory(&at).await;
                let next = if number % 3 == 0 {
                    deleted(&head)
                } else {
                    renamed(&head, &format!("/{writer}/b{number}.md"))
                };
                place.change(vec![next]).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        assert!(is_true_to_itself(&place).await, "it sees one state");
        mend(&place).await;
    }
    join_all(writers).await.into_iter().for_each(Result::unwrap);
    assert!(is_true_to_itself(&place).await);
    place.assert_recount().await;
}

pub(crate) async fn drift_is_corrected_during_commits(subject: &Subject) {
    let place = Place::new(subject).await;
    let drift = "UPDATE store SET memory_count = memory_count + 100 WHERE tenant_id = $1 AND store_id = $2";
    place.raw.execute(drift, &place.ids()).await;
    let writers = (0..4).map(|writer| {
        let place = place.clone();
        async move {
            for number in 0..10 {
                place
                    .change(vec![created(&format!("/{writer}/{number}.md"), 10)])
                    .await;
            }
        }
    });
    tokio::join!(join_all(writers), mend(&place), mend(&place));
    assert!(is_true_to_itself(&place).await);
    place.assert_recount().await;
}

pub(crate) async fn head_without_a_version_is_reported(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a.md", 1).await;
    place.create("/b.md", 1).await;
    let lose = "UPDATE memory SET head_seq = 99 WHERE tenant_id = $1 AND store_id = $2 AND path = '/a.md'";
    place.raw.execute(lose, &place.ids()).await;
    let count = place
        .upkeep()
        .recount_store(place.tenant_id, place.store_id, true);
    assert_eq!(count.await.unwrap().unwrap().lost_heads, 1);
}

pub(crate) async fn counters_of_a_store_are_what_it_holds(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a.md", 10).await;
    place.create("/b.md", 20).await;
    place.change(vec![edited(&first, 300)]).await;
    let counted = subject.index.upkeep.counters_after(None, 10).await.unwrap();
    let expected = StoreCounters {
        tenant_id: place.tenant_id,
        store_id: place.store_id,
        memory_count: 2,
        live_bytes: 320,
        version_count: 3,
        version_bytes: 330,
    };
    assert_eq!(counted, [expected]);
}

pub(crate) async fn stores_and_tenants_come_in_their_order(subject: &Subject) {
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(Place::new(subject).await);
    }
    let index = &subject.index;
    let gone = places.pop().unwrap();
    assert!(
        index
            .store_deletions
            .begin(gone.tenant_id, gone.store_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let mut expected: Vec<_> = places
        .iter()
        .map(|place| (place.tenant_id, place.store_id))
        .collect();
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
    let stores: Vec<_> = counted
        .iter()
        .map(|store| (store.tenant_id, store.store_id))
        .collect();
    assert_eq!(stores, expected);
    let leaving = new_tenant(subject).await;
    let audited = audited_by(Auditor::OperatorCli, NOW);
    assert!(
        index
            .tenant_deletions
            .begin(leaving, &audited)
            .await
            .unwrap()
            .is_some()
    );
    let tenants = index.upkeep.tenants_after(None, 100).await.unwrap();
    assert!(tenants.is_sorted() && tenants.len() == 5, "{tenants:?}");
    assert!(!tenants.contains(&leaving));
    assert_eq!(
        index.upkeep.tenants_after(Some(tenants[2]), 100).await.unwrap(),
        tenants[3..]
    );
    assert_eq!(index.upkeep.recount_tenant(leaving, false).await.unwrap(), None);
    assert_eq!(
        index
            .upkeep
            .recount_store(gone.tenant_id, gone.store_id, true)
            .await
            .unwrap(),
        None
    );
}

/// Records a call of a name, made at a time.
async fn call(place: &Place, name: u8, seconds: i64) {
    let mut commit = place.commit_of(vec![created(&format!("/{name}.md"), 1)]);
    commit.now = after_seconds(seconds);
    commit.idempotency = Some(Idempotency {
        scope_sha256: [name; 32],
        request_sha256: [name; 32],
        since: NOW,
    });
    let outcome = place.run(&commit).await;
    assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
}

pub(crate) async fn old_idempotency_records_are_pruned_in_batches(subject: &Subject) {
    let place = Place::new(subject).await;
    for name in 1..=10 {
        call(&place, name, i64::from(name % 5)).await;
    }
    let walk = async |is_dry| {
        let (mut rows, mut batches, mut after) = (0, 0, None);
        loop {
            let batch = place
                .upkeep()
                .prune_calls(after.as_ref(), after_seconds(3), 4, is_dry);
            let batch = batch.await.unwrap();
            assert!(batch.rows <= 4);
            (rows, batches, after) = (rows + batch.rows, batches + 1, batch.last);
            if after.is_none() {
                return (rows, batches);
            }
        }
    };
    assert_eq!(walk(true).await, (6, 3));
    assert_eq!(walk(true).await, (6, 3), "a dry run removes nothing");
    assert_eq!(walk(false).await.0, 6);
    assert_eq!(walk(true).await.0, 0);
    let left = "SELECT count(*) FROM idempotency";
    assert_eq!(place.raw.numbers(left, &[]).await, [[4]]);
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

async fn runs(index: &Index, at: i64) -> Vec<JobRun> {
    index
        .job_runs
        .list(JOB, None, after_seconds(at), 10)
        .await
        .unwrap()
}

pub(crate) async fn job_runs_show_their_state(subject: &Subject) {
    let index = &subject.index;
    assert_eq!(runs(index, 0).await, []);
    let first = run(index, 0, 0).await.unwrap();
    let standing = &runs(index, 59).await[0];
    assert!(standing.is_running && standing.ended_at.is_none(), "{standing:?}");
    assert_eq!((standing.owner, standing.by_hand), (Some(ONE), false));
    assert!(!runs(index, 60).await[0].is_running, "its lease has run out");
    let second = run(index, 60, 61).await.unwrap();
    let [of_second, of_first] = runs(index, 62).await.try_into().unwrap();
    assert!(
        of_second.is_running && !of_first.is_running,
        "the lease is another's"
    );
    end(index, 60, second, 63).await;
    let ended = &runs(index, 63).await[0];
    assert_eq!(ended.counts, Some(json!({"done": second})));
    assert_eq!(
        (ended.is_running, ended.ended_at),
        (false, Some(after_seconds(63)))
    );
    assert_ne!(first, second);
    // Page by page, newest first.
    let place = (ended.started_at, ended.slot);
    let rest = index
        .job_runs
        .list(JOB, Some(place), after_seconds(63), 10)
        .await
        .unwrap();
    assert_eq!(rest, [of_first]);
}

pub(crate) async fn manual_run_is_in_the_audit(subject: &Subject) {
    let index = &subject.index;
    for (slot, is_dry_run, action) in [(1, true, "job.dry_run.sweep"), (2, false, "job.run.sweep")] {
        let fence = run(index, slot, slot).await.unwrap();
        let audited = audited_by(Auditor::Operator, after_seconds(slot));
        let noted = index
            .job_runs
            .note_manual(JOB, after_seconds(slot), is_dry_run, &audited);
        noted.await.unwrap();
        end(index, slot, fence, slot).await;
        let noted = &runs(index, slot).await[0];
        assert_eq!((noted.by_hand, noted.is_dry_run), (true, is_dry_run));
        let entry = &index.audit.list_of_operator(None, 1).await.unwrap()[0];
        let told = (entry.actor.as_str(), entry.action.as_str(), entry.object_id);
        assert_eq!(told, ("operator", action, None));
    }
}

pub(crate) async fn released_run_is_resumed(subject: &Subject) {
    let index = &subject.index;
    let first = run(index, 0, 0).await.unwrap();
    assert_eq!(index.job_runs.cursor(JOB).await.unwrap(), None);
    let renewed = index
        .job_runs
        .renew(JOB, first, after_seconds(60), Some("half way"));
    assert!(renewed.await.unwrap());
    index.job_runs.release(JOB, first + 1).await.unwrap();
    assert_eq!(run(index, 0, 1).await, None, "the lease of another fence stays");
    index.job_runs.release(JOB, first).await.unwrap();
    assert!(!runs(index, 1).await[0].is_running);
    let second = run(index, 0, 1).await.expect("its slot has not ended");
    assert_eq!(
        index.job_runs.cursor(JOB).await.unwrap().as_deref(),
        Some("half way")
    );
    assert!(second > first);
    assert_eq!(index.job_runs.cursor("another").await.unwrap(), None);
}

pub(crate) async fn late_orphan_is_removed_again(subject: &Subject) {
    let place = Place::new(subject).await;
    let key = place.blob(VersionId::from_uuid(next_uuid()));
    let due = async |seconds| place.queue().due(after_seconds(seconds), 10).await.unwrap();
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(0))
            .await
            .unwrap()
    );
    let month: Timestamp = after_seconds(30 * 24 * 3600);
    let removed = due(0).await;
    assert!(place.queue().finish(&removed, month, None).await.unwrap());
    assert_eq!(due(1000).await, [], "it is gone, and stays condemned");
    // A slow write put the blob again.
    assert!(
        place
            .queue()
            .condemn_orphan(&key, after_seconds(500))
            .await
            .unwrap()
    );
    assert_eq!(due(499).await, []);
    assert_eq!(due(500).await.len(), 1);
}
