//! What changed since a commit or a job read the store.

use futures::future::join;
use keepsake_index::{Claim, Guard, SearchRow, ServerSecret};

use crate::place::dir;
use crate::prelude::*;

const ANALYSER: u32 = 7;
const OTHER_REPLICA: Uuid = Uuid::from_u128(2);

pub(crate) async fn blob_is_either_committed_or_condemned(place: Place) {
    for round in 0..24 {
        let change = created(&format!("/{round}"), 1);
        let key = place.blob(change.version_id);
        let (changes, now) = (vec![change], after_seconds(60));
        let (commit, condemn) = (place.try_changes(changes), place.queue().condemn_orphan(&key, now));
        let (outcome, condemned) = if round % 2 == 0 {
            join(commit, condemn).await
        } else {
            let (condemned, outcome) = join(condemn, commit).await;
            (outcome, condemned)
        };
        let is_committed = matches!(outcome, CommitOutcome::Committed { .. });
        assert!(is_committed || outcome == CommitOutcome::BlobCondemned, "{outcome:?}");
        assert_ne!(is_committed, condemned.unwrap());
    }
}

/// Holds a commit to be refused, and nothing to be written by it.
async fn assert_stale(place: &Place, commit: &Commit) {
    let before = place.rows().await;
    assert_eq!(place.run(commit).await, CommitOutcome::Stale);
    assert_eq!(place.rows().await, before);
}

pub(crate) async fn commit_of_outdated_heads_or_counts_writes_nothing(place: Place) {
    let guarded = |changes, files| Commit {
        guard: Some(Guard { directory: dir("/d/"), files }),
        ..place.commit_of(changes)
    };
    let good = place.create("/a", 1).await;
    let old = place.create("/b", 1).await;
    place.change(vec![edited(&old, 2)]).await;
    let changes = vec![created("/new", 1), edited(&good, 5), deleted(&old)];
    assert_stale(&place, &place.commit_of(changes)).await;
    // A put, which is its own statement on Postgres, and a change that is none.
    for change in [edited(&old, 9), renamed(&old, "/moved")] {
        assert_stale(&place, &place.commit_of(vec![change])).await;
    }
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

pub(crate) async fn created_at_decreases_only_after_a_clock_that_was_ahead(place: Place) {
    let year = 365 * 86_400;
    // The last one is no put.
    let commits = [("/a", 10), ("/b", 3), ("/c", 12), ("/d", -40), ("/e", year), ("/f", 13), ("/g", year)];
    for (paths, seconds) in commits.into_iter().chain([("/h /i", 14)]) {
        let mut commit = place.commit_of(paths.split(' ').map(|path| created(path, 1)).collect());
        commit.now = after_seconds(seconds);
        place.run(&commit).await;
    }
    let times = [10, 10, 12, 12, year, 13, year, 14, 14];
    let times = times.map(|seconds| vec![Some(after_seconds(seconds).as_micros().to_string()); 2]);
    let written = "SELECT CAST(v.created_at AS TEXT), CAST(m.updated_at AS TEXT) FROM version v JOIN memory m \
                   ON m.tenant_id = v.tenant_id AND m.store_id = v.store_id AND m.memory_id = v.memory_id \
                   WHERE v.tenant_id = $1 AND v.store_id = $2 ORDER BY v.seq";
    assert_eq!(place.raw.rows(written, &place.ids()).await, times);
}

pub(crate) async fn late_terms_do_not_replace_newer_ones(place: Place) {
    let row = |terms: &str, analyser| SearchRow { analyser, length: 3, terms: terms.as_bytes().to_vec() };
    let head = place.create("/a", 5).await;
    let mut edit = edited(&head, 6);
    edit.search = Some(row("new", ANALYSER));
    let current = place.changed(edit).await;
    let put = async |rows: &[_]| place.index.search.put(place.tenant_id, place.store_id, rows).await.unwrap();
    let edited_meanwhile = (head.memory_id, head.content.blob_id, row("old", ANALYSER));
    let never_there =
        (MemoryId::from_uuid(next_uuid()), VersionId::from_uuid(Uuid::nil()), row("x", ANALYSER));
    let of_analyser = |terms, analyser| (current.memory_id, current.content.blob_id, row(terms, analyser));
    assert_eq!(put(&[edited_meanwhile, never_there, of_analyser("older", ANALYSER - 1)]).await, 0);
    assert_eq!(put(&[of_analyser("newer", ANALYSER + 1)]).await, 1);
    place.delete_store().await;
    assert_eq!(put(&[of_analyser("newest", ANALYSER + 2)]).await, 0);
}

/// Two memories, one with a name that literals of Postgres quote, and a directory and a file.
pub(crate) async fn paths_are_swapped_in_one_commit(place: Place) {
    let quoted = r#"/{a}, "b" \ (c)"#;
    let mut moves = Vec::new();
    for (from, to) in [("/one", quoted), (quoted, "/one"), ("/dir/a", "/file/a"), ("/file", "/dir")] {
        moves.push((place.create(from, 1).await, to));
    }
    let changes = moves.iter().map(|(head, to)| renamed(head, to)).collect();
    let swap = Commit { reuses_paths: true, ..place.commit_of(changes) };
    assert_eq!(place.run(&swap).await, committed(8));
    for (head, to) in moves {
        assert_eq!(place.memory(to).await.memory_id, head.memory_id);
    }
    place.assert_recount().await;
}

async fn claim(place: &Place, at: &str, replica: Uuid, now: i64) -> bool {
    let head = place.memory(at).await;
    let (now, until) = (after_seconds(now), after_seconds(now + 10));
    let claim =
        place.index.memories.claim_edit(place.tenant_id, place.store_id, head.memory_id, replica, now, until);
    claim.await.unwrap()
}

pub(crate) async fn claim_goes_to_the_first_replica_until_it_ends(place: Place) {
    place.create("/a", 1).await;
    assert!(claim(&place, "/a", REPLICA, 0).await);
    let held = Claim { replica: REPLICA, until: after_seconds(10) };
    assert_eq!(place.memory("/a").await.claim, Some(held));
    assert_eq!(place.heads_below("/").await[0].claim, Some(held));
    assert!(!claim(&place, "/a", OTHER_REPLICA, 9).await);
    assert!(claim(&place, "/a", REPLICA, 5).await, "its own claim is no obstacle");
    assert!(!claim(&place, "/a", OTHER_REPLICA, 14).await);
    assert!(claim(&place, "/a", OTHER_REPLICA, 15).await);
    assert_eq!(place.memory("/a").await.claim.map(|claim| claim.replica), Some(OTHER_REPLICA));
    // A clock that is wrong claims nothing beyond the time of a claim.
    assert!(claim(&place, "/a", REPLICA, 86_400).await);
    assert!(claim(&place, "/a", OTHER_REPLICA, 16).await);
}

pub(crate) async fn secret_is_rewrapped_only_if_unchanged_since_the_read(place: Place) {
    let secrets = &place.index.secrets;
    let secret = |byte| ServerSecret {
        kid: "cursor".to_owned(),
        purpose: "cursor".to_owned(),
        wrapped_key: vec![byte; 61],
        not_before: NOW,
        retired_at: None,
    };
    secrets.add(&secret(1)).await.unwrap();
    let rewrap =
        async |kid: &str, from: u8, to: u8| secrets.rewrap(kid, &[from; 61], &[to; 61]).await.unwrap();
    assert!(!rewrap("cursor", 9, 2).await);
    assert!(!rewrap("other", 1, 2).await);
    assert!(rewrap("cursor", 1, 2).await);
    assert!(!rewrap("cursor", 1, 3).await);
    assert_eq!(secrets.list("cursor").await.unwrap(), [secret(2)]);
}
