//! Which data an erasure deletes, and which it keeps.

use std::collections::BTreeSet;

use keepsake_core::{ErasureId, MemoryId, VersionId};
use keepsake_index::{
    AccessRow, Auditor, CommitOutcome, ErasedBlobs, Erasure, ErasureCreation, ErasureState, Head,
    MemoryTarget, NewErasure, ObjectVersions, Redaction, RedactionOutcome, Refusal, Selector, StoreChange,
    StoreUpdate, VersionListing,
};
use keepsake_testkit::Seed;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;
use tokio::runtime::Handle;

use crate::place::{
    NOW, Place, actor, after_seconds, audited_by, by_nobody, by_tenant, created, deleted, edited, new_tenant,
    next_uuid, path, renamed,
};
use crate::subject::Subject;

/// Rows of a batch: few, so that every test takes several.
pub(crate) const LIMIT: u32 = 3;

pub(crate) fn below(place: &Place, prefix: &str) -> Selector {
    Selector::PathPrefix {
        store_id: place.store_id,
        below: prefix.to_owned(),
    }
}

pub(crate) fn new_erasure(selector: Selector) -> NewErasure {
    NewErasure {
        erasure_id: ErasureId::from_uuid(next_uuid()),
        selector,
        audited: audited_by(Auditor::Credential(actor()), after_seconds(50)),
    }
}

pub(crate) async fn ask(place: &Place, selector: Selector) -> ErasureId {
    let erasure = new_erasure(selector);
    let made = place.index.erasures.create(place.tenant_id, &erasure, None).await;
    assert_eq!(made.unwrap(), ErasureCreation::Created);
    erasure.erasure_id
}

/// One step; answers whether no row is left.
pub(crate) async fn step(place: &Place, erasure_id: ErasureId, limit: u32) -> bool {
    let (now, until) = (after_seconds(60), after_seconds(120));
    let index = &place.index;
    let rows = index
        .erasures
        .erase_rows(place.tenant_id, erasure_id, now, until, limit);
    rows.await.unwrap().is_done
}

async fn queued(place: &Place, erasure_id: ErasureId) -> BTreeSet<VersionId> {
    let keys = place
        .index
        .erasures
        .queued_blobs(place.tenant_id, erasure_id, 10_000)
        .await;
    keys.unwrap().into_iter().map(|key| key.blob_id).collect()
}

/// Tells every queued blob removed, and ends the erasure.
pub(crate) async fn end(place: &Place, erasure_id: ErasureId) -> Erasure {
    let keys = place
        .index
        .erasures
        .queued_blobs(place.tenant_id, erasure_id, 10_000)
        .await;
    let blobs = ErasedBlobs {
        keys: keys.unwrap(),
        orphans: 0,
        object_versions: ObjectVersions::NotVersioned,
    };
    let index = &place.index;
    let until = after_seconds(120);
    index
        .erasures
        .blobs_erased(place.tenant_id, erasure_id, &blobs, until)
        .await
        .unwrap();
    // Told twice, counted once.
    index
        .erasures
        .blobs_erased(place.tenant_id, erasure_id, &blobs, until)
        .await
        .unwrap();
    let now = after_seconds(90);
    assert!(
        index
            .erasures
            .finish(place.tenant_id, erasure_id, &audited_by(Auditor::Job, now))
            .await
            .unwrap()
    );
    assert!(
        !index
            .erasures
            .finish(place.tenant_id, erasure_id, &audited_by(Auditor::Job, now))
            .await
            .unwrap()
    );
    found(place, erasure_id).await
}

pub(crate) async fn erase(place: &Place, selector: Selector, limit: u32) -> Erasure {
    let erasure_id = ask(place, selector).await;
    while !step(place, erasure_id, limit).await {}
    end(place, erasure_id).await
}

pub(crate) async fn found(place: &Place, erasure_id: ErasureId) -> Erasure {
    let found = place
        .index
        .erasures
        .find(place.tenant_id, erasure_id)
        .await
        .unwrap();
    found.unwrap()
}

pub(crate) async fn count(place: &Place, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {table} WHERE tenant_id = $1 AND store_id = $2");
    place.raw.numbers(&count, &place.ids()).await[0][0]
}

async fn read(place: &Place, memory_id: MemoryId) {
    let read = AccessRow {
        tenant_id: place.tenant_id,
        store_id: place.store_id,
        memory_id,
        read_at: NOW,
        read_by: actor(),
    };
    place.index.access_times.flush(&[read]).await.unwrap();
}

pub(crate) async fn memories_below_the_prefix_are_erased_and_others_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let inside = place.create("/a/b/in", 10).await;
    place.change(vec![edited(&inside, 20)]).await;
    let gone = place.create("/a/b/.hidden/deleted", 5).await;
    place.change(vec![deleted(&gone)]).await;
    for (at, size_bytes) in [("/a/b-c", 1), ("/a/b0/x", 2), ("/a/c", 3), ("/b", 4)] {
        place.create(at, size_bytes).await;
    }
    for head in [&inside, &place.memory("/b").await] {
        read(&place, head.memory_id).await;
    }
    place
        .raw
        .execute(
            "INSERT INTO search_doc (tenant_id, store_id, memory_id, analyser, length, terms) \
             SELECT tenant_id, store_id, memory_id, 1, 1, sha256 FROM memory \
             WHERE tenant_id = $1 AND store_id = $2 AND deleted_at IS NULL",
            &place.ids(),
        )
        .await;

    let erasure = erase(&place, below(&place, "/a/b/"), LIMIT).await;
    assert_eq!(place.paths_below("/").await, ["/a/b-c", "/a/b0/x", "/a/c", "/b"]);
    place.assert_recount_with_gaps().await;
    let receipt = &erasure.receipt;
    assert_eq!(receipt.memory_store_ids, [place.store_id]);
    assert_eq!(
        (receipt.memory_stores, receipt.memories, receipt.versions),
        (0, 2, 4)
    );
    assert_eq!(
        (receipt.blobs, receipt.versions_not_kept, receipt.bytes),
        (3, 3, 35)
    );
    assert_eq!((receipt.access_times, receipt.search_documents), (1, 1));
    assert_eq!(
        (
            count(&place, "memory_access").await,
            count(&place, "search_doc").await
        ),
        (1, 4)
    );
    // A read that is flushed after the erasure is dropped.
    read(&place, inside.memory_id).await;
    assert_eq!(count(&place, "memory_access").await, 1);
}

pub(crate) async fn memory_once_below_the_prefix_is_erased_completely(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/before", 1).await;
    place.change(vec![renamed(&head, "/p/inside")]).await;
    let head = place.memory("/p/inside").await;
    place.change(vec![renamed(&head, "/after/it")]).await;
    let head = place.memory("/after/it").await;
    place.change(vec![edited(&head, 7)]).await;
    let head = place.memory("/after/it").await;
    place.create("/p", 3).await;
    let erasure = erase(&place, below(&place, "/p/"), 1).await;
    assert_eq!(place.paths_below("/").await, ["/p"]);
    assert_eq!((erasure.receipt.versions, erasure.receipt.blobs), (4, 2));
    let listing = VersionListing {
        memory_id: Some(head.memory_id),
        limit: 10,
        ..VersionListing::default()
    };
    let left = place
        .index
        .versions
        .list(place.tenant_id, place.store_id, &listing)
        .await;
    assert_eq!(left.unwrap().unwrap().versions, []);
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn memories_created_after_the_request_are_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/p/old", 1).await;
    let outside = place.create("/outside", 2).await;
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    place.create("/p/new", 4).await;
    place.change(vec![renamed(&outside, "/p/moved")]).await;
    // A memory that is moved away and edited is erased too.
    place.change(vec![renamed(&head, "/elsewhere")]).await;
    let moved = place.memory("/elsewhere").await;
    place.change(vec![edited(&moved, 9)]).await;
    while !step(&place, erasure_id, LIMIT).await {}
    end(&place, erasure_id).await;
    assert_eq!(place.paths_below("/").await, ["/p/moved", "/p/new"]);
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn erased_memory_accepts_no_change(subject: &Subject) {
    let place = Place::new(subject).await;
    let live = place.create("/p/live", 1).await;
    let dead = place.create("/p/dead", 1).await;
    place.change(vec![deleted(&dead)]).await;
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    // The first step takes the memories, the versions are there still.
    assert!(!step(&place, erasure_id, 100).await);
    assert_eq!(
        (count(&place, "memory").await, count(&place, "version").await),
        (0, 3)
    );
    for change in [edited(&live, 2), renamed(&live, "/x"), deleted(&live)] {
        let outcome = place.try_changes(vec![change]).await;
        assert_eq!(outcome, CommitOutcome::Refused(Refusal::Stale));
    }
    let found = place
        .index
        .memories
        .find(place.tenant_id, place.store_id, dead.memory_id)
        .await;
    assert_eq!(found.unwrap().unwrap().target, MemoryTarget::Missing);
    let mut back = created("/p/dead", 1);
    (back.memory_id, back.revives) = (dead.memory_id, Some(dead.version_id));
    let mut commit = place.commit_of(vec![back]);
    commit.purge_epoch = Some(0);
    assert_eq!(place.run(&commit).await, CommitOutcome::Refused(Refusal::Stale));
    // The place is free for another.
    place.create("/p/live", 5).await;
    while !step(&place, erasure_id, LIMIT).await {}
    end(&place, erasure_id).await;
    assert_eq!(place.paths_below("/").await, ["/p/live"]);
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn erasure_owns_its_blobs_until_they_are_removed(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/p/a", 1).await;
    place.change(vec![edited(&head, 2)]).await;
    let newer = place.memory("/p/a").await;
    place.change(vec![renamed(&newer, "/p/b")]).await;
    // Redacted, with its blob in the queue still.
    let redaction = Redaction {
        store_id: place.store_id,
        version_id: head.version_id,
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
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    while !step(&place, erasure_id, 1).await {}
    assert_eq!(
        queued(&place, erasure_id).await,
        BTreeSet::from([head.blob_id, newer.blob_id])
    );
    let due = place.queue().due(after_seconds(1 << 30), 10).await.unwrap();
    assert_eq!(due, [], "the drain skips them");
    let now = after_seconds(90);
    let index = &place.index;
    assert!(
        !index
            .erasures
            .finish(place.tenant_id, erasure_id, &audited_by(Auditor::Job, now))
            .await
            .unwrap()
    );
    assert_eq!(found(&place, erasure_id).await.state, ErasureState::Running);
    assert_eq!(end(&place, erasure_id).await.receipt.blobs, 2);
    assert_eq!(queued(&place, erasure_id).await, BTreeSet::new());
    place.assert_recount_with_gaps().await;
}

pub(crate) async fn erasing_a_store_removes_its_rows(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    other.create("/stays", 1).await;
    for number in 0..5 {
        let head = place.create(&format!("/d/{number}"), 10).await;
        read(&place, head.memory_id).await;
        place.change(vec![edited(&head, 20)]).await;
    }
    let erasure = erase(&place, Selector::Store(place.store_id), LIMIT).await;
    let receipt = &erasure.receipt;
    assert_eq!(
        (receipt.memory_stores, receipt.memories, receipt.versions),
        (1, 5, 10)
    );
    assert_eq!((receipt.blobs, receipt.bytes, receipt.access_times), (10, 150, 5));
    for table in [
        "store",
        "memory",
        "version",
        "directory",
        "memory_access",
        "blob_deletion",
    ] {
        assert_eq!(count(&place, table).await, 0, "{table}");
    }
    other.assert_recount().await;
    let counts = "SELECT store_count, granted_bytes - (SELECT granted_bytes FROM store WHERE store_id = $2) \
                  FROM tenant WHERE tenant_id = $1";
    assert_eq!(place.raw.numbers(counts, &other.ids()).await, [[1, 0]]);
}

pub(crate) async fn deleted_store_can_be_erased(subject: &Subject) {
    for (selects_prefix, deleted_first) in [(false, true), (true, true), (true, false)] {
        let place = Place::new(subject).await;
        place.create("/p/a", 1).await;
        place.create("/other", 1).await;
        let index = &place.index;
        let delete = async || {
            index
                .store_deletions
                .begin(place.tenant_id, place.store_id, &by_tenant(NOW))
                .await
        };
        if deleted_first {
            assert!(delete().await.unwrap());
            assert!(
                index
                    .store_deletions
                    .due(10)
                    .await
                    .unwrap()
                    .contains(&(place.tenant_id, place.store_id))
            );
        }
        let selector = if selects_prefix {
            below(&place, "/p/")
        } else {
            Selector::Store(place.store_id)
        };
        let erasure_id = ask(&place, selector).await;
        if !deleted_first {
            assert!(delete().await.unwrap());
        }
        let waiting = index.store_deletions.due(10).await.unwrap();
        assert!(
            !waiting.contains(&(place.tenant_id, place.store_id)),
            "it waits for the erasure"
        );
        while !step(&place, erasure_id, LIMIT).await {}
        let erasure = end(&place, erasure_id).await;
        assert_eq!((erasure.receipt.memory_stores, erasure.receipt.blobs), (1, 2));
        assert_eq!(count(&place, "store").await, 0);
    }
}

pub(crate) async fn stores_are_selected_by_all_their_pairs(subject: &Subject) {
    let pairs = |value: serde_json::Value| match value {
        serde_json::Value::Object(pairs) => pairs,
        other => panic!("{other}"),
    };
    let first = Place::new(subject).await;
    let places = [
        (first.clone(), json!({"user": "ada", "env": "test"})),
        (
            Place::of_tenant(subject, first.tenant_id).await,
            json!({"user": "ada"}),
        ),
        (
            Place::of_tenant(subject, first.tenant_id).await,
            json!({"user": "ada", "env": "test", "x": ""}),
        ),
        (
            Place::of_tenant(subject, first.tenant_id).await,
            json!({"user": "bob", "env": "test"}),
        ),
        (Place::new(subject).await, json!({"user": "ada", "env": "test"})),
    ];
    for (place, metadata) in &places {
        place.create("/a", 1).await;
        let change = StoreChange {
            metadata: pairs(metadata.clone())
                .into_iter()
                .map(|(key, value)| (key, value.as_str().map(str::to_owned)))
                .collect(),
            metadata_pairs_limit: 16,
            now: NOW,
            name: None,
            description: None,
            policy: None,
            expires_unused_after: None,
        };
        let set = place
            .index
            .stores
            .update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW))
            .await;
        assert!(matches!(set.unwrap(), StoreUpdate::Done(_)));
    }
    let archived = first
        .index
        .stores
        .archive(first.tenant_id, first.store_id, &by_tenant(NOW))
        .await;
    assert!(archived.unwrap().is_some());
    let gone = places[2].0.store_id;
    assert!(
        first
            .index
            .store_deletions
            .begin(first.tenant_id, gone, &by_tenant(NOW))
            .await
            .unwrap()
    );

    let selector = Selector::StoreMetadata(pairs(json!({"env": "test", "user": "ada"})));
    let erasure = erase(&first, selector, LIMIT).await;
    assert_eq!(erasure.receipt.memory_store_ids, [first.store_id, gone]);
    assert_eq!((erasure.receipt.memory_stores, erasure.receipt.memories), (2, 2));
    let left: Vec<_> = futures::future::join_all(places.iter().map(|(place, _)| count(place, "store"))).await;
    assert_eq!(left, [0, 1, 0, 1, 1]);
    let nobody = Selector::StoreMetadata(pairs(json!({"user": "nobody"})));
    let erasure = erase(&first, nobody, LIMIT).await;
    assert_eq!(
        (erasure.state, erasure.receipt.memory_stores),
        (ErasureState::Done, 0)
    );
}

pub(crate) async fn two_workers_erase_everything_once(subject: &Subject) {
    let place = Place::new(subject).await;
    for number in 0..40 {
        let head = place.create(&format!("/p/{}/{number}", number % 3), 10).await;
        place.change(vec![edited(&head, 5)]).await;
    }
    let erasure_id = ask(&place, below(&place, "/p/")).await;
    let work = |place: Place| tokio::spawn(async move { while !step(&place, erasure_id, 8).await {} });
    let writes = {
        let place = place.clone();
        tokio::spawn(async move {
            for number in 0..20 {
                place.create(&format!("/p/1/new{number}"), 1).await;
            }
        })
    };
    for task in [work(place.clone()), work(place.clone()), writes] {
        task.await.unwrap();
    }
    let erasure = end(&place, erasure_id).await;
    assert_eq!((erasure.receipt.memories, erasure.receipt.versions), (40, 80));
    assert_eq!((erasure.receipt.blobs, erasure.receipt.bytes), (80, 600));
    assert_eq!(place.paths_below("/").await.len(), 20);
    place.assert_recount_with_gaps().await;
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "a-b", "a0", ".h"]);
    prop::collection::vec(segment, 1..=3).prop_map(|segments| format!("/{}", segments.join("/")))
}

/// Paths where memories are made, then moves of one of them, or its end.
type History = (Vec<(String, u64)>, Vec<(prop::sample::Index, Option<String>)>);

fn any_history() -> impl Strategy<Value = History> {
    let made = prop::collection::vec((any_path(), 0_u64..20), 1..12);
    let moves = prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            prop::option::weighted(0.8, any_path()),
        ),
        0..12,
    );
    (made, moves)
}

/// Lives a history; answers each memory's head, where it lives, and every path it had.
async fn live(place: &Place, (made, moves): &History) -> Vec<(Option<Head>, BTreeSet<String>)> {
    let mut memories: Vec<(Option<Head>, BTreeSet<String>)> = Vec::new();
    for (at, size_bytes) in made {
        if let CommitOutcome::Committed { .. } = place.try_changes(vec![created(at, *size_bytes)]).await {
            let head = place.memory(at).await;
            memories.push((Some(head), BTreeSet::from([at.clone()])));
        }
    }
    for (which, to) in moves {
        let (head, paths) = which.get_mut(&mut memories);
        let Some(before) = head.clone() else { continue };
        match to {
            None => {
                place.change(vec![deleted(&before)]).await;
                *head = None;
            }
            Some(to) => {
                if let CommitOutcome::Committed { .. } = place.try_changes(vec![renamed(&before, to)]).await {
                    *head = Some(place.memory(to).await);
                    paths.insert(to.clone());
                }
            }
        }
    }
    memories
}

pub(crate) async fn erasure_of_any_directory_claims_queued_blobs(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a/x", 1).await;
    let entries =
        ["redacted", "expired", "orphan", "gone"].map(|reason| (VersionId::from_uuid(next_uuid()), reason));
    for (blob_id, reason) in entries {
        let queue = format!(
            "INSERT INTO blob_deletion (tenant_id, store_id, blob_id, not_before, attempts, reason) \
             VALUES ($1, $2, $3, 0, 0, '{reason}')"
        );
        let ids = [place.tenant_id.uuid(), place.store_id.uuid(), blob_id.uuid()];
        place.raw.execute(&queue, &ids).await;
    }
    let erasure_id = ask(&place, below(&place, "/elsewhere/")).await;
    while !step(&place, erasure_id, LIMIT).await {}
    let claimed = entries[..2].iter().map(|(blob_id, _)| *blob_id).collect();
    assert_eq!(queued(&place, erasure_id).await, claimed);
    let left = place.queue().due(NOW, 10).await.unwrap();
    let left: BTreeSet<_> = left.iter().map(|due| due.key.blob_id).collect();
    let tombstones = entries[2..].iter().map(|(blob_id, _)| *blob_id).collect();
    assert_eq!(left, tombstones, "a slow commit must find them");
    assert_eq!(end(&place, erasure_id).await.receipt.blobs, 2);
}

/// Both erasures select the same memory, and the first one queued its blob.
pub(crate) async fn erasure_waits_for_another_one_of_its_store(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a/x", 1).await;
    let [first, second] = [
        ask(&place, below(&place, "/a/")).await,
        ask(&place, below(&place, "/a/")).await,
    ];
    for erasure_id in [first, second] {
        while !step(&place, erasure_id, LIMIT).await {}
    }
    assert_eq!(queued(&place, first).await.len(), 1);
    let audited = audited_by(Auditor::Job, after_seconds(90));
    let finished = place.index.erasures.finish(place.tenant_id, second, &audited);
    assert!(!finished.await.unwrap(), "content is left");
    assert_eq!(found(&place, second).await.state, ErasureState::Running);
    end(&place, first).await;
    end(&place, second).await;
}

pub(crate) async fn forgotten_blobs_have_no_row(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 1).await;
    place.change(vec![renamed(&first, "/b")]).await;
    let [queued, gone] = [(); 2].map(|()| VersionId::from_uuid(next_uuid()));
    let condemned = place.queue().condemn_orphan(&place.blob(queued), NOW).await;
    assert!(condemned.unwrap());
    let asked = [first.blob_id, queued, gone];
    let forgotten = place
        .index
        .erasures
        .forgotten_blobs(place.tenant_id, place.store_id, &asked)
        .await;
    assert_eq!(forgotten.unwrap(), [gone]);
}

pub(crate) async fn erasure_of_any_history_removes_all_that_was_below_the_prefix(subject: &Subject) {
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let (seed, runtime) = (Seed::new(), Handle::current());
    let tenant_id = new_tenant(subject).await;
    tokio::task::block_in_place(|| {
        seed.runner(config)
            .run(&(any_history(), any_path(), 1_u32..12), |(history, prefix, limit)| {
                runtime.block_on(async {
                    let place = Place::of_tenant(subject, tenant_id).await;
                    let memories = live(&place, &history).await;
                    let directory = path(&prefix).as_dir();
                    let stood_below =
                        |paths: &BTreeSet<String>| paths.iter().any(|at| path(at).is_below(&directory));
                    let erasure = erase(&place, below(&place, directory.as_str()), limit).await;
                    let (erased, kept): (Vec<_>, Vec<_>) =
                        memories.iter().partition(|(_, paths)| stood_below(paths));
                    assert_eq!(erasure.receipt.memories, erased.len() as u64);
                    let left: BTreeSet<_> = place.paths_below("/").await.into_iter().collect();
                    let kept = kept.into_iter().filter_map(|(head, _)| head.as_ref());
                    let kept: BTreeSet<_> = kept.map(|head| head.path.as_str().to_owned()).collect();
                    assert_eq!(left, kept);
                    let traces = "SELECT path FROM version WHERE tenant_id = $1 AND store_id = $2 \
                                  UNION ALL SELECT path FROM memory WHERE tenant_id = $1 AND store_id = $2 \
                                  UNION ALL SELECT path FROM directory WHERE tenant_id = $1 AND store_id = $2";
                    for row in place.raw.rows(traces, &place.ids()).await {
                        let at = row[0].clone().unwrap();
                        assert!(!at.starts_with(directory.as_str()), "{at} is left");
                    }
                    place.assert_recount_with_gaps().await;
                });
                Ok(())
            })
            .unwrap();
    });
}
