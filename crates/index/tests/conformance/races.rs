//! What changed since a commit or a job read the store.

use futures::future::join;
use keepsake_core::{MemoryId, VersionId};
use keepsake_index::{Commit, CommitOutcome, Guard, Refusal, SearchRow};
use uuid::Uuid;

use crate::place::{
    NOW, Place, after_seconds, by_tenant, committed, created, deleted, dir, edited, next_uuid, renamed,
};
use crate::subject::Subject;

const ANALYSER: u32 = 7;

pub(crate) async fn blob_is_either_committed_or_condemned(subject: &Subject) {
    let place = Place::new(subject).await;
    for round in 0..24 {
        let change = created(&format!("/{round}"), 1);
        let key = place.blob(change.version_id);
        let commit = place.try_changes(vec![change]);
        let condemn = place.queue().condemn_orphan(&key, after_seconds(60));
        let (outcome, condemned) = if round % 2 == 0 {
            join(commit, condemn).await
        } else {
            let (condemned, outcome) = join(condemn, commit).await;
            (outcome, condemned)
        };
        let condemned = condemned.unwrap();
        assert!(
            if condemned {
                outcome == CommitOutcome::Refused(Refusal::BlobCondemned)
            } else {
                matches!(outcome, CommitOutcome::Committed { .. })
            },
            "{condemned}, {outcome:?}"
        );
    }
}

/// Holds a commit to be refused, and nothing to be written by it.
async fn assert_stale(place: &Place, commit: &Commit) {
    let before = place.rows().await;
    assert_eq!(place.run(commit).await, CommitOutcome::Refused(Refusal::Stale));
    assert_eq!(place.rows().await, before);
}

pub(crate) async fn commit_of_outdated_heads_or_counts_writes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let guarded = |changes, files| Commit {
        guard: Some(Guard { directory: dir("/d/"), files }),
        ..place.commit_of(changes)
    };
    let good = place.create("/a", 1).await;
    let old = place.create("/b", 1).await;
    place.change(vec![edited(&old, 2)]).await;
    let changes = vec![created("/new", 1), edited(&good, 5), deleted(&old)];
    assert_stale(&place, &place.commit_of(changes)).await;
    let changes = vec![renamed(&old, "/moved")];
    assert_stale(&place, &place.commit_of(changes)).await;
    // The directory is not there.
    assert_stale(&place, &guarded(vec![edited(&good, 2)], 0)).await;

    place.create("/d/1", 1).await;
    place.create("/d/sub/2", 1).await;
    let read = place.heads_below("/d/").await;
    place.create("/d/sub/late", 1).await;
    assert_stale(&place, &guarded(read.iter().map(deleted).collect(), 2)).await;
    let read = place.heads_below("/d/").await;
    let commit = guarded(read.iter().map(deleted).collect(), 3);
    assert_eq!(place.run(&commit).await, committed(9));
    assert_eq!(place.paths_below("/").await, ["/a", "/b"]);
    place.assert_recount().await;
}

pub(crate) async fn created_at_decreases_only_after_a_clock_that_was_ahead(subject: &Subject) {
    let place = Place::new(subject).await;
    let year = 365 * 86_400;
    for (paths, seconds) in [
        (&["/a"][..], 10),
        (&["/b"], 3),
        (&["/c"], 12),
        (&["/d"], -40),
        (&["/e"], year),
        (&["/f"], 13),
        (&["/g"], year),
        // Not only puts.
        (&["/h", "/i"], 14),
    ] {
        let mut commit = place.commit_of(paths.iter().map(|path| created(path, 1)).collect());
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
    }
    let times = [10, 10, 12, 12, year, 13, year, 14, 14].map(|seconds| after_seconds(seconds).as_micros());
    let versions = "SELECT created_at FROM version WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq";
    let versions = place.raw.numbers(versions, &place.ids()).await;
    assert_eq!(versions, times.map(|at| [at]));
    let heads =
        "SELECT created_at, updated_at FROM memory WHERE tenant_id = $1 AND store_id = $2 ORDER BY head_seq";
    let heads = place.raw.numbers(heads, &place.ids()).await;
    assert_eq!(heads, times.map(|at| [at, at]));
}

pub(crate) async fn late_terms_do_not_replace_newer_ones(subject: &Subject) {
    let place = Place::new(subject).await;
    let row = |terms: &str, analyser| SearchRow { analyser, length: 3, terms: terms.as_bytes().to_vec() };
    let head = place.create("/a", 5).await;
    let mut edit = edited(&head, 6);
    edit.after.as_mut().unwrap().search = Some(row("new", ANALYSER));
    place.change(vec![edit]).await;
    let current = place.memory("/a").await;
    let search = &place.index.search;
    let (tenant_id, store_id) = (place.tenant_id, place.store_id);
    let edited_meanwhile = (head.memory_id, head.blob_id, row("old", ANALYSER));
    let never_there =
        (MemoryId::from_uuid(next_uuid()), VersionId::from_uuid(Uuid::nil()), row("x", ANALYSER));
    let of_an_older_analyser = (current.memory_id, current.blob_id, row("older", ANALYSER - 1));
    let late = [edited_meanwhile, never_there, of_an_older_analyser];
    assert_eq!(search.put(tenant_id, store_id, &late).await.unwrap(), 0);
    let newer = [(current.memory_id, current.blob_id, row("newer", ANALYSER + 1))];
    assert_eq!(search.put(tenant_id, store_id, &newer).await.unwrap(), 1);
    let deletions = &place.index.store_deletions;
    deletions.begin(tenant_id, store_id, &by_tenant(NOW)).await.unwrap();
    let newest = [(current.memory_id, current.blob_id, row("newest", ANALYSER + 2))];
    assert_eq!(search.put(tenant_id, store_id, &newest).await.unwrap(), 0);
}
