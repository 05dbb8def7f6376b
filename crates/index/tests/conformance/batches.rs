//! Many changes in one commit.

use keepsake_index::{Change, Commit, Directory, Guard, Target};

use crate::place::{Place, created, deleted, dir, edited, renamed};
use crate::subject::Subject;

const MANY: u64 = 10_000;

/// A file here and there: in a hundred directories of two levels, some hidden.
async fn place_with_many(subject: &Subject) -> Place {
    let place = Place::new(subject).await;
    let name = |number: u64| match number % 100 {
        0 => format!("/old/d{}/.hidden-{number}", number % 10),
        rest => format!("/old/d{}/s{rest}/f{number}", number % 10),
    };
    place.create("/other/x", 5).await;
    place
        .change((0..MANY).map(|number| created(&name(number), 3)).collect())
        .await;
    place.raw.settle().await;
    place
}

fn guarded(place: &Place, changes: Vec<Change>) -> Commit {
    let guard = Guard {
        directory: dir("/old/"),
        files: changes.len() as u64,
    };
    Commit {
        guard: Some(guard),
        ..place.commit_of(changes)
    }
}

pub(crate) async fn ten_thousand_files_are_deleted_at_once(subject: &Subject) {
    let place = place_with_many(subject).await;
    place.assert_recount().await;
    let directory = place.directory("/old", 1000).await;
    assert_eq!((directory.files, directory.size_bytes), (MANY, 3 * MANY));
    // Ten directories, and in each of nine of them ten more: `/old/d0` has nine.
    assert_eq!(directory.total_entries, 10 + 99);

    let heads = place.heads_below("/old/").await;
    assert_eq!(heads.len() as u64, MANY);
    place
        .run(&guarded(&place, heads.iter().map(deleted).collect()))
        .await;
    assert_eq!(place.target("/old", 10).await, Target::Missing);
    let root = place.directory("/", 10).await;
    assert_eq!((root.files, root.size_bytes, root.total_entries), (1, 5, 2));
    place.assert_recount().await;
}

pub(crate) async fn ten_thousand_files_are_renamed_at_once(subject: &Subject) {
    let place = place_with_many(subject).await;
    let before = place.directory("/old", 1000).await;
    let heads = place.heads_below("/old/").await;
    let (from, to) = (dir("/old/"), dir("/new/deeper/"));
    let moves = heads
        .iter()
        .map(|head| renamed(head, head.path.rebased(&from, &to).unwrap().as_str()));
    place.run(&guarded(&place, moves.collect())).await;

    assert_eq!(place.target("/old", 10).await, Target::Missing);
    let after = place.directory("/new/deeper", 1000).await;
    let rename = |directory: &Directory| {
        let entries = directory.entries.iter().cloned().map(|mut entry| {
            entry.path = entry.path.replacen("/old/", "/new/deeper/", 1);
            entry
        });
        Directory {
            entries: entries.collect(),
            ..directory.clone()
        }
    };
    assert_eq!(after, rename(&before));
    let arrived = place.heads_below("/new/").await;
    assert!(
        arrived
            .iter()
            .map(|head| (head.memory_id, head.blob_id))
            .eq(heads.iter().map(|head| (head.memory_id, head.blob_id)))
    );
    assert_eq!(place.directory("/new", 0).await.files, MANY);
    place.assert_recount().await;
}

pub(crate) async fn directory_moves_into_an_existing_one(subject: &Subject) {
    let place = Place::new(subject).await;
    for at in [
        "/from/a",
        "/from/sub/b",
        "/from/.hidden/c",
        "/to/there",
        "/to/sub/there",
    ] {
        place.create(at, 2).await;
    }
    let heads = place.heads_below("/from/").await;
    let (from, to) = (dir("/from/"), dir("/to/"));
    let moves = heads
        .iter()
        .map(|head| renamed(head, head.path.rebased(&from, &to).unwrap().as_str()));
    place.change(moves.collect()).await;
    let below = [
        "/to/.hidden/c",
        "/to/a",
        "/to/sub/b",
        "/to/sub/there",
        "/to/there",
    ];
    assert_eq!(place.paths_below("/").await, below);
    place.assert_recount().await;
}

pub(crate) async fn commit_mixes_every_kind_of_change(subject: &Subject) {
    let place = Place::new(subject).await;
    let edit = place.create("/d/edit", 1).await;
    let moved = place.create("/d/move", 2).await;
    let gone = place.create("/gone/last", 4).await;
    place
        .change(vec![
            created("/gone-too/new", 8),
            edited(&edit, 16),
            renamed(&moved, "/e/f/moved"),
            deleted(&gone),
        ])
        .await;
    assert_eq!(
        place.paths_below("/").await,
        ["/d/edit", "/e/f/moved", "/gone-too/new"]
    );
    assert_eq!(place.directory("/", 0).await.size_bytes, 8 + 16 + 2);
    assert_eq!(place.target("/gone", 0).await, Target::Missing);
    place.assert_recount().await;
}

pub(crate) async fn directory_whose_files_are_all_replaced_is_kept(subject: &Subject) {
    let place = Place::new(subject).await;
    let old = place.create("/d/sub/old", 3).await;
    place.change(vec![deleted(&old), created("/d/sub/new", 3)]).await;
    assert_eq!(place.paths_below("/").await, ["/d/sub/new"]);
    assert_eq!(place.directory("/d", 10).await.total_entries, 2);
    place.assert_recount().await;

    // A visible file becomes hidden: only the counts of visible children change.
    let old = place.memory("/d/sub/new").await;
    place.change(vec![renamed(&old, "/d/sub/.new")]).await;
    assert_eq!(place.directory("/d", 10).await.total_entries, 1);
    place.assert_recount().await;
}

pub(crate) async fn empty_commit_changes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    assert_eq!(place.change(Vec::new()).await, 1);
    assert_eq!(place.directory("/", 0).await.files, 1);
    place.assert_recount().await;
}

pub(crate) async fn commit_that_contradicts_itself_writes_nothing(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    let before = place.rows().await;
    for changes in [
        vec![created("/same", 1), created("/same", 1)],
        vec![created("/new", 0), renamed(&head, "/new")],
    ] {
        let outcome = place
            .index
            .memories
            .commit(place.tenant_id, &place.commit_of(changes.clone()))
            .await;
        assert!(outcome.is_err(), "{changes:?} came to {outcome:?}");
        assert_eq!(place.rows().await, before);
    }
    place.create("/b", 1).await;
}
