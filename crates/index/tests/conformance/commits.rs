//! What a commit writes.

use keepsake_core::ContentHash;
use keepsake_index::{CommitOutcome, StoredContent, Target};

use crate::place::{
    NEVER, NOW, PLENTY, Place, actor, after_seconds, committed, created, deleted, edited, renamed,
};
use crate::subject::Subject;

/// `seq`, `prev_seq` (0: none), size (-1: none), `created_at` of every version.
async fn versions(place: &Place) -> Vec<Vec<i64>> {
    place
        .raw
        .numbers(
            "SELECT seq, coalesce(prev_seq, 0), coalesce(size_bytes, -1), created_at FROM version \
             WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq",
            &place.ids(),
        )
        .await
}

pub(crate) async fn versions_of_a_memory_are_one_unbroken_chain(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/notes", 10).await;
    place.create("/other", 1).await;
    place.change(vec![edited(&head, 20)]).await;
    let head = place.memory("/notes").await;
    place.change(vec![renamed(&head, "/archive/notes")]).await;
    assert_eq!(place.target("/notes", 0).await, Target::Missing);
    let head = place.memory("/archive/notes").await;
    place.change(vec![edited(&head, 5)]).await;
    let head = place.memory("/archive/notes").await;
    assert_eq!(head.seq, 5);
    place.change(vec![deleted(&head)]).await;
    assert_eq!(place.target("/archive/notes", 0).await, Target::Missing);

    let mut chain = Vec::new();
    let mut next = Some(6);
    while let Some(seq) = next {
        chain.push(seq);
        next = place
            .index
            .versions
            .find_at(place.tenant_id, place.store_id, seq)
            .await
            .unwrap()
            .unwrap()
            .prev_seq;
    }
    assert_eq!(chain, [6, 5, 4, 3, 1]);
    let kept: Vec<_> = place
        .raw
        .rows(
            "SELECT op, path FROM version WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq",
            &place.ids(),
        )
        .await
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let expected = [
        ["created", "/notes"],
        ["created", "/other"],
        ["modified", "/notes"],
        ["modified", "/archive/notes"],
        ["modified", "/archive/notes"],
        ["deleted", "/archive/notes"],
    ];
    assert_eq!(kept, expected.concat());
    place.assert_recount().await;
}

pub(crate) async fn version_has_its_blob_and_hash(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 10).await;
    place.change(vec![renamed(&first, "/b")]).await;
    let moved = place.memory("/b").await;
    place.change(vec![deleted(&moved)]).await;

    let version = async |seq| {
        place
            .index
            .versions
            .find_at(place.tenant_id, place.store_id, seq)
            .await
            .unwrap()
    };
    let content = Some(StoredContent {
        blob_id: first.version_id,
        size_bytes: 10,
        sha256: first.sha256,
    });
    assert_eq!(version(1).await.unwrap().content, content);
    assert_eq!(version(2).await.unwrap().content, content);
    assert_ne!(moved.version_id, first.version_id);
    let deleted = version(3).await.unwrap();
    assert_eq!((deleted.prev_seq, deleted.content), (Some(2), None));
    assert_eq!(version(4).await, None);
    assert_eq!(version(0).await, None);
}

pub(crate) async fn edit_brings_new_content_and_keeps_the_memory(subject: &Subject) {
    let place = Place::new(subject).await;
    let before = place.create("/a", 10).await;
    let change = edited(&before, 30);
    assert_eq!(place.change(vec![change.clone()]).await, 2);
    let after = place.memory("/a").await;
    assert_eq!(after.memory_id, before.memory_id);
    assert_eq!(
        (after.version_id, after.blob_id),
        (change.version_id, change.version_id)
    );
    assert_eq!(after.sha256, ContentHash::of(change.version_id.uuid().as_bytes()));
    assert_eq!((after.size_bytes, after.seq), (30, 2));
}

pub(crate) async fn first_line_stays_with_its_content(subject: &Subject) {
    let place = Place::new(subject).await;
    let first_line = async || {
        let rows = place
            .raw
            .rows(
                "SELECT first_line FROM memory WHERE tenant_id = $1 AND store_id = $2",
                &place.ids(),
            )
            .await;
        rows[0][0].clone()
    };
    let head = place.create("/a", 1).await;
    let line = format!("first line of {}", head.version_id);
    assert_eq!(first_line().await, Some(line.clone()));
    place.change(vec![renamed(&head, "/b")]).await;
    assert_eq!(first_line().await, Some(line));
    place.change(vec![edited(&place.memory("/b").await, 2)]).await;
    let head = place.memory("/b").await;
    assert_eq!(
        first_line().await,
        Some(format!("first line of {}", head.version_id))
    );
    place.change(vec![deleted(&head)]).await;
    assert_eq!(first_line().await, None);
}

pub(crate) async fn actor_of_every_version_is_recorded(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    let mut by_a_job = place.commit_of(vec![created("/b", 1)]);
    by_a_job.actor = None;
    assert_eq!(place.run(&by_a_job).await, committed(2));
    let actors = place
        .raw
        .rows(
            "SELECT actor_type, actor_id FROM version WHERE tenant_id = $1 AND store_id = $2 ORDER BY seq",
            &place.ids(),
        )
        .await;
    let (kind, id) = (actor().kind().to_owned(), actor().id());
    assert_eq!(actors, [vec![Some(kind), Some(id)], vec![None, None]]);
}

pub(crate) async fn versions_of_one_commit_follow_the_order_of_its_changes(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/old", 1).await;
    let changes = vec![created("/z", 2), deleted(&head), created("/a", 3)];
    assert_eq!(place.change(changes).await, 4);
    let written: Vec<_> = versions(&place)
        .await
        .iter()
        .map(|version| (version[0], version[1], version[2]))
        .collect();
    assert_eq!(written, [(1, 0, 1), (2, 0, 2), (3, 1, -1), (4, 0, 3)]);
    assert_eq!(place.memory("/a").await.seq, 4);
    assert_eq!(place.paths_below("/").await, ["/a", "/z"]);
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
    let times: Vec<_> = versions(&place).await.iter().map(|version| version[3]).collect();
    assert_eq!(
        times,
        [10, 10, 12, 12, year, 13, year, 14, 14].map(|seconds| after_seconds(seconds).as_micros())
    );
    let heads = place
        .raw
        .numbers(
            "SELECT created_at, updated_at FROM memory WHERE tenant_id = $1 AND store_id = $2 ORDER BY head_seq",
            &place.ids(),
        )
        .await;
    let expected: Vec<_> = times.iter().map(|at| vec![*at, *at]).collect();
    assert_eq!(heads, expected);
}

pub(crate) async fn edit_moves_updated_at_and_leaves_created_at(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let mut commit = place.commit_of(vec![edited(&head, 1)]);
    commit.now = after_seconds(60);
    place.run(&commit).await;
    let times = place
        .raw
        .numbers(
            "SELECT created_at, updated_at FROM memory WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert_eq!(
        times,
        [[after_seconds(0).as_micros(), after_seconds(60).as_micros()]]
    );
}

pub(crate) async fn path_of_a_deleted_memory_is_free_for_another(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = place.create("/a", 1).await;
    place.change(vec![deleted(&first)]).await;
    let second = place.create("/a", 2).await;
    assert_ne!(second.memory_id, first.memory_id);
    let version = place
        .index
        .versions
        .find_at(place.tenant_id, place.store_id, second.seq)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(version.prev_seq, None);
    place.assert_recount().await;
}

pub(crate) async fn empty_memory_is_a_memory(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/empty", 0).await;
    assert_eq!(head.size_bytes, 0);
    assert_eq!(place.directory("/", 0).await.files, 1);
    place.change(vec![deleted(&head)]).await;
    assert_eq!(place.directory("/", 0).await.files, 0);
    place.assert_recount().await;
}

pub(crate) async fn text_is_kept_character_by_character(subject: &Subject) {
    let place = Place::new(subject).await;
    let awkward = "/\"quotes\" 'and' \\slashes\\/100% ünïcödé 日本語 🦀/$1 ; --";
    let mut change = created(awkward, 1);
    let line = "tab\there \"and\" \\u0041 🦀 {\"json\": [1]}";
    change.after.as_mut().unwrap().first_line = Some(line.to_owned());
    place.change(vec![change]).await;
    assert_eq!(place.memory(awkward).await.path.as_str(), awkward);
    assert_eq!(place.paths_below("/").await, [awkward]);
    let rows = place
        .raw
        .rows(
            "SELECT m.path, v.path, m.parent || m.name, m.first_line FROM memory m \
             JOIN version v ON v.tenant_id = m.tenant_id AND v.store_id = m.store_id \
             WHERE m.tenant_id = $1 AND m.store_id = $2",
            &place.ids(),
        )
        .await;
    assert_eq!(
        rows,
        [[awkward, awkward, awkward, line].map(|text| Some(text.to_owned()))]
    );
    place.assert_recount().await;
}

pub(crate) async fn store_counts_follow_its_commits(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 10).await;
    place.create("/b", 5).await;
    place.change(vec![edited(&head, 7)]).await;
    let store = place
        .index
        .stores
        .find(place.tenant_id, place.store_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((store.memory_count, store.live_bytes), (2, 12));
    let kept = place
        .raw
        .numbers(
            "SELECT version_count, version_bytes FROM store WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert_eq!(kept, [[3, 22]]);
}

pub(crate) async fn content_that_stays_counts_once_in_the_history(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 10).await;
    place.change(vec![renamed(&head, "/b")]).await;
    place.change(vec![renamed(&place.memory("/b").await, "/c")]).await;
    let kept = place
        .raw
        .numbers(
            "SELECT version_count, version_bytes, live_bytes FROM store WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    assert_eq!(kept, [[3, 10, 10]]);
}

pub(crate) async fn largest_sizes_are_counted_exactly(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", PLENTY - 1).await;
    let mut commit = place.commit_of(vec![created("/b", PLENTY - 1)]);
    commit.byte_limit = 2 * PLENTY;
    let outcome = place.run_within(&commit, 2 * PLENTY).await;
    assert_eq!(outcome, committed(2));
    assert_eq!(place.directory("/", 0).await.size_bytes, 2 * PLENTY - 2);
    place.assert_recount().await;
}

pub(crate) async fn commit_returns_the_epoch_of_the_last_purge(subject: &Subject) {
    let place = Place::new(subject).await;
    assert_eq!(place.try_changes(vec![created("/a", 1)]).await, committed(1));
    place
        .raw
        .execute(
            "UPDATE store SET purge_epoch = 7 WHERE tenant_id = $1 AND store_id = $2",
            &place.ids(),
        )
        .await;
    let after = CommitOutcome::Committed {
        seq: 2,
        purge_epoch: 7,
        at: NOW,
        expiry: NEVER,
    };
    assert_eq!(place.try_changes(vec![created("/b", 1)]).await, after);
}
