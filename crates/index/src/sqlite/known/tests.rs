//! The rules by which answers are kept and forgotten.

use keepsake_core::{ContentHash, DirPath, MemoryId, StoreId, Timestamp};

use super::*;
use crate::commit::{CommitChange, NewContent, ProposedChange};
use crate::model::{Claim, Directory, Expiry, MemoryItem, MemoryTarget, StoredContent};

const STORE: StoreState = StoreState { is_archived: false, purge_epoch: 3 };
/// The replica that commits.
const REPLICA: Uuid = Uuid::from_u128(1);

fn at(path: &str) -> HeadLookup {
    let (tenant_id, store_id) = (TenantId::from_uuid(Uuid::nil()), StoreId::from_uuid(Uuid::nil()));
    let path = (path != "/").then(|| MemoryPath::parse(path).unwrap());
    HeadLookup { place: PathKey { store: StoreKey { tenant_id, store_id }, path }, max_entries: 0 }
}

fn numbered(number: usize) -> HeadLookup {
    at(&format!("/{number}.md"))
}

fn memory_id(number: u128) -> MemoryId {
    MemoryId::from_uuid(Uuid::from_u128(number))
}

/// The head of a memory with this version.
fn head(path: &str, version: u128, claim: Option<Claim>) -> Head {
    let (path, version_id) =
        (MemoryPath::parse(path).unwrap(), VersionId::from_uuid(Uuid::from_u128(version)));
    let blob_id = VersionId::from_uuid(Uuid::nil());
    let content = StoredContent { blob_id, size_bytes: 0, sha256: ContentHash::of(b"") };
    Head { memory_id: memory_id(0), path, version_id, seq: 7, content, claim }
}

fn claim_of(replica: u128) -> Claim {
    Claim { replica: Uuid::from_u128(replica), until: Timestamp::from_micros(1) }
}

fn answer(target: Target) -> Lookup {
    Lookup { store: STORE, target }
}

fn directory() -> Target {
    Target::Directory(Directory { files: 1, size_bytes: 0, total_entries: 0, entries: Vec::new() })
}

fn look_up(known: &KnownAnswers, at: &HeadLookup, target: Target) {
    known.keep_target(known.moment(), at, &answer(target));
}

/// A commit that puts the memory of `before` to `path`, in version 2 of it.
fn put(before: Option<Head>, path: &str) -> Changes {
    let Head { path, content, memory_id, version_id, .. } = head(path, 2, None);
    let (from, content) =
        (before.map_or(Origin::New, Origin::Live), NewContent::Restored(content, "".into()));
    let wanted = ProposedChange::store(from, path, content);
    let change = CommitChange { memory_id, version_id, wanted, search: None };
    let store_id = StoreId::from_uuid(Uuid::nil());
    let commit = Commit::of(store_id, Timestamp::from_micros(0), REPLICA, vec![change]);
    let mut changed = ChangedPlaces::default();
    changed.add(TenantId::from_uuid(Uuid::nil()), &commit, 6, STORE.purge_epoch);
    Changes::Commits(changed)
}

fn make(known: &KnownAnswers, changes: Changes) {
    known.committing(changes);
    known.ended(true);
}

#[test]
fn changes_of_anything_forget_all_answers() {
    let known = KnownAnswers::default();
    let all = || (0..=MAX_ENTRIES).map(numbered);
    all().for_each(|at| look_up(&known, &at, Target::Missing));
    known.committing(Changes::All);
    look_up(&known, &numbered(1), Target::Missing);
    assert!(all().all(|at| known.target(&at).is_none()));
    let before = known.moment();
    known.ended(true);
    look_up(&known, &numbered(0), Target::Missing);
    assert!(known.target(&numbered(0)).is_some());
    known.keep_target(before, &numbered(1), &answer(Target::Missing));
    assert!(known.target(&numbered(1)).is_none());
}

#[test]
fn a_commit_forgets_its_places_and_their_directories_only() {
    let known = KnownAnswers::default();
    let changed = ["/", "/a", "/a/b", "/a/b/from.md", "/c", "/c/to.md"].map(at);
    let others = ["/a/other.md", "/d", "/a/b/from.mdx"].map(at);
    for at in changed.iter().chain(&others) {
        look_up(&known, at, directory());
    }
    let before = known.moment();
    known.committing(put(Some(head("/a/b/from.md", 1, None)), "/c/to.md"));
    let during = known.moment();
    for moment in [before, during] {
        assert!(others.iter().all(|at| known.target(at).is_some()));
        for at in &changed {
            known.keep_target(moment, at, &answer(directory()));
            assert!(known.target(at).is_none(), "{at:?}");
        }
    }
    known.ended(false);
    for at in &changed {
        known.keep_target(during, at, &answer(directory()));
        assert!(known.target(at).is_none(), "{at:?}");
        look_up(&known, at, directory());
        assert!(known.target(at).is_some(), "{at:?}");
    }
    known.keep_target(before, &at("/e.md"), &answer(Target::Missing));
    assert!(known.target(&at("/e.md")).is_some());
}

/// A commit to `/changed` forgets the answers to what it changes, also those of look-ups that began before it,
/// and leaves another one.
fn assert_forgets<Q>(
    changed: &[Q],
    other: &Q,
    keep: impl Fn(&KnownAnswers, Moment, &Q),
    is_known: impl Fn(&KnownAnswers, &Q) -> bool,
) {
    let known = KnownAnswers::default();
    let before = known.moment();
    for asked in changed.iter().chain([other]) {
        keep(&known, before, asked);
        assert!(is_known(&known, asked));
    }
    make(&known, put(None, "/changed/new.md"));
    for asked in changed {
        keep(&known, before, asked);
        assert!(!is_known(&known, asked));
        keep(&known, known.moment(), asked);
        assert!(is_known(&known, asked));
    }
    assert!(is_known(&known, other));
    make(&known, Changes::All);
    assert!(!is_known(&known, other));
}

#[test]
fn memories_and_pages_are_known_until_a_commit_changes_them() {
    let by_id = |id| (at("/").place.store, memory_id(id));
    let found = FoundMemory { store: STORE, expiry: Expiry::default(), target: MemoryTarget::Missing };
    assert_forgets(
        &[by_id(0)],
        &by_id(1),
        |known, moment, asked| known.keep_memory(moment, *asked, &found),
        |known, asked| known.memory(*asked).as_ref() == Some(&found),
    );
    assert_forgets(
        &["/", "/changed"].map(first_page),
        &first_page("/other"),
        |known, moment, asked| known.keep_page(moment, at("/").place.store, asked, &page(1)),
        |known, asked| known.page(at("/").place.store, asked) == Some(page(1)),
    );
}

#[test]
fn changes_are_not_forgotten_while_a_look_up_of_their_place_is_kept() {
    let known = KnownAnswers::default();
    let before = known.moment();
    make(&known, put(None, "/new.md"));
    (0..=2 * MAX_ENTRIES).for_each(|number| look_up(&known, &numbered(number), Target::Missing));
    assert!(known.target(&at("/new.md")).is_none());
    known.keep_target(before, &at("/new.md"), &answer(Target::Missing));
    assert!(known.target(&at("/new.md")).is_none());
}

#[test]
fn nothing_is_kept_beyond_the_limits() {
    let known = KnownAnswers::default();
    known.committing(put(None, "/new.md"));
    let room = MAX_ENTRIES - 3;
    (0..=room).for_each(|number| look_up(&known, &numbered(number), Target::Missing));
    assert!(known.target(&numbered(room - 1)).is_some());
    assert!(known.target(&numbered(room)).is_none());
    known.ended(true);
    look_up(&known, &numbered(room), Target::Missing);
    assert!(known.target(&numbered(room)).is_some());
    assert!(known.target(&numbered(0)).is_some());

    (room..=2 * MAX_ENTRIES).for_each(|number| look_up(&known, &numbered(number), Target::Missing));
    assert!(known.target(&numbered(1)).is_none(), "the oldest are forgotten first");
    assert!(known.target(&numbered(2 * MAX_ENTRIES)).is_some());

    let listing = |max_entries| HeadLookup { max_entries, ..at("/d") };
    for max_entries in 0..9 {
        look_up(&known, &listing(max_entries), directory());
    }
    assert!((0..5).all(|max_entries| known.target(&listing(max_entries)).is_none()));
    assert!((5..9).all(|max_entries| known.target(&listing(max_entries)).is_some()));

    // Items of pages count.
    let known = KnownAnswers::default();
    let (store, pages) = (at("/").place.store, ["/0", "/1", "/2"].map(first_page));
    for asked in &pages {
        known.keep_page(known.moment(), store, asked, &page(MAX_ENTRIES));
    }
    assert_eq!(known.page(store, &pages[0]), None);
    assert!(known.page(store, &pages[2]).is_some());
}

/// A page of the directories below `/d`.
fn page(number_of_items: usize) -> MemoryPage {
    let items = vec![MemoryItem::Prefix(DirPath::root()); number_of_items];
    MemoryPage { store: STORE, expiry: Expiry::default(), items }
}

fn first_page(path: &str) -> MemoryListing {
    MemoryListing { below: at(path).place.directory(), depth: Depth::All, after: None, limit: 1 }
}

#[test]
fn new_head_is_known_with_the_claim_of_another_replica() {
    let known = KnownAnswers::default();
    for (replica, kept) in [(1, None), (2, Some(claim_of(2)))] {
        let before = head("/old.md", 1, Some(claim_of(replica)));
        look_up(&known, &at("/old.md"), Target::Memory(before.clone()));
        make(&known, put(Some(before), "/renamed.md"));
        let renamed = answer(Target::Memory(head("/renamed.md", 2, kept)));
        assert_eq!(known.target(&at("/renamed.md")), Some(renamed));
        assert_eq!(known.target(&at("/old.md")), None);
    }
    known.committing(put(None, "/failed.md"));
    known.ended(false);
    assert_eq!(known.target(&at("/failed.md")), None);
    make(&known, put(Some(head("/unknown.md", 1, None)), "/other.md"));
    assert_eq!(known.target(&at("/other.md")), None);
}
