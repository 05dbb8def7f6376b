//! The rules by which answers are kept and forgotten.

use std::ops::Range;

use keepsake_core::{ContentHash, MemoryId, MemoryPath, StoreId, TenantId, Timestamp, VersionId};
use uuid::Uuid;

use super::{Changed, Changes, KnownHeads, MAX_ENTRIES};
use crate::commit::{Change, Commit};
use crate::memories::{HeadAt, Place, StoreKey};
use crate::model::{Claim, Directory, ExpiryChange, Head, HeadChange, Lookup, StoreState, Target};

const STORE: StoreState = StoreState {
    is_archived: false,
    purge_epoch: 3,
};
/// The replica that commits.
const REPLICA: Uuid = Uuid::from_u128(1);

fn at(path: &str) -> HeadAt {
    let store = StoreKey {
        tenant_id: TenantId::from_uuid(Uuid::nil()),
        store_id: StoreId::from_uuid(Uuid::nil()),
    };
    HeadAt {
        place: Place {
            store,
            path: (path != "/").then(|| MemoryPath::parse(path).unwrap()),
        },
        max_entries: 0,
    }
}

fn numbered(number: usize) -> HeadAt {
    at(&format!("/{number}.md"))
}

/// The head of a memory with this version.
fn head(path: &str, version: u128, claim: Option<Claim>) -> Head {
    Head {
        memory_id: MemoryId::from_uuid(Uuid::nil()),
        path: MemoryPath::parse(path).unwrap(),
        version_id: VersionId::from_uuid(Uuid::from_u128(version)),
        seq: 7,
        blob_id: VersionId::from_uuid(Uuid::nil()),
        size_bytes: 0,
        sha256: ContentHash::of(b""),
        claim,
    }
}

fn claim_of(replica: u128) -> Claim {
    Claim {
        replica: Uuid::from_u128(replica),
        until: Timestamp::from_micros(1),
    }
}

fn answer(target: Target) -> Lookup {
    Lookup { store: STORE, target }
}

fn directory() -> Target {
    Target::Directory(Directory {
        files: 1,
        size_bytes: 0,
        total_entries: 0,
        entries: Vec::new(),
    })
}

fn look_up(known: &KnownHeads, at: &HeadAt, target: Target) {
    known.keep(known.moment(), at, &answer(target));
}

/// A commit that puts the memory of `before` to `path`, in version 2 of it.
fn put(before: Option<Head>, path: &str) -> Changes {
    let after = HeadChange {
        path: MemoryPath::parse(path).unwrap(),
        blob_id: VersionId::from_uuid(Uuid::nil()),
        size_bytes: 0,
        sha256: ContentHash::of(b""),
        content: None,
        first_line: None,
        expiry: ExpiryChange::default(),
        search: None,
    };
    let change = Change {
        memory_id: MemoryId::from_uuid(Uuid::nil()),
        version_id: VersionId::from_uuid(Uuid::from_u128(2)),
        before,
        revives: None,
        after: Some(after),
    };
    let commit = Commit {
        store_id: StoreId::from_uuid(Uuid::nil()),
        now: Timestamp::from_micros(0),
        actor: None,
        replica: REPLICA,
        memory_limit: 0,
        byte_limit: 0,
        idempotency: None,
        guard: None,
        purge_epoch: None,
        policy: None,
        changes: vec![change],
        kept: Vec::new(),
        results: None,
    };
    let mut changed = Changed::default();
    changed.add(TenantId::from_uuid(Uuid::nil()), &commit, 6, STORE.purge_epoch);
    Changes::Commits(changed)
}

fn make(known: &KnownHeads, changes: Changes) {
    known.committing(changes);
    known.ended(true);
}

#[test]
fn oldest_answers_are_forgotten_first() {
    let known = KnownHeads::default();
    let look_up_all = |numbers: Range<usize>| {
        for number in numbers {
            look_up(&known, &numbered(number), Target::Missing);
        }
    };
    look_up_all(0..2 * MAX_ENTRIES);
    assert!(known.get(&numbered(0)).is_some());
    look_up_all(2 * MAX_ENTRIES..2 * MAX_ENTRIES + 1);
    assert!(known.get(&numbered(MAX_ENTRIES - 1)).is_none());
    assert!(known.get(&numbered(MAX_ENTRIES)).is_some());
    assert!(known.get(&numbered(2 * MAX_ENTRIES)).is_some());
}

#[test]
fn changes_of_anything_forget_all_answers() {
    let known = KnownHeads::default();
    let all = || (0..=MAX_ENTRIES).map(numbered);
    all().for_each(|at| look_up(&known, &at, Target::Missing));
    known.committing(Changes::All);
    look_up(&known, &numbered(1), Target::Missing);
    assert!(all().all(|at| known.get(&at).is_none()));
    let before = known.moment();
    known.ended(true);
    look_up(&known, &numbered(0), Target::Missing);
    assert!(known.get(&numbered(0)).is_some());
    known.keep(before, &numbered(1), &answer(Target::Missing));
    assert!(known.get(&numbered(1)).is_none());
}

#[test]
fn a_commit_forgets_its_places_and_their_directories_only() {
    let known = KnownHeads::default();
    let changed = ["/", "/a", "/a/b", "/a/b/from.md", "/c", "/c/to.md"].map(at);
    let others = ["/a/other.md", "/d", "/a/b/from.mdx"].map(at);
    for at in changed.iter().chain(&others) {
        look_up(&known, at, directory());
    }
    let before = known.moment();
    known.committing(put(Some(head("/a/b/from.md", 1, None)), "/c/to.md"));
    let during = known.moment();
    for moment in [before, during] {
        assert!(others.iter().all(|at| known.get(at).is_some()));
        for at in &changed {
            known.keep(moment, at, &answer(directory()));
            assert!(known.get(at).is_none(), "{at:?}");
        }
    }
    known.ended(false);
    for at in &changed {
        known.keep(during, at, &answer(directory()));
        assert!(known.get(at).is_none(), "{at:?}");
        look_up(&known, at, directory());
        assert!(known.get(at).is_some(), "{at:?}");
    }
    known.keep(before, &at("/e.md"), &answer(Target::Missing));
    assert!(known.get(&at("/e.md")).is_some());
}

#[test]
fn changes_are_not_forgotten_while_a_look_up_of_their_place_is_kept() {
    let known = KnownHeads::default();
    let before = known.moment();
    make(&known, put(None, "/new.md"));
    (0..=2 * MAX_ENTRIES).for_each(|number| look_up(&known, &numbered(number), Target::Missing));
    assert!(known.get(&at("/new.md")).is_none());
    known.keep(before, &at("/new.md"), &answer(Target::Missing));
    assert!(known.get(&at("/new.md")).is_none());
}

#[test]
fn nothing_is_kept_beyond_the_limits() {
    let known = KnownHeads::default();
    known.committing(put(None, "/new.md"));
    let room = MAX_ENTRIES - 2;
    (0..=room).for_each(|number| look_up(&known, &numbered(number), Target::Missing));
    assert!(known.get(&numbered(room - 1)).is_some());
    assert!(known.get(&numbered(room)).is_none());
    known.ended(true);
    look_up(&known, &numbered(room), Target::Missing);
    assert!(known.get(&numbered(room)).is_some());
    assert!(known.get(&numbered(0)).is_some());

    let listing = |max_entries| HeadAt {
        max_entries,
        ..at("/d")
    };
    for max_entries in 0..9 {
        look_up(&known, &listing(max_entries), directory());
    }
    assert!((0..5).all(|max_entries| known.get(&listing(max_entries)).is_none()));
    assert!((5..9).all(|max_entries| known.get(&listing(max_entries)).is_some()));
}

#[test]
fn new_heads_are_known() {
    let known = KnownHeads::default();
    make(&known, put(None, "/new.md"));
    let new = answer(Target::Memory(head("/new.md", 2, None)));
    assert_eq!(known.get(&at("/new.md")), Some(new.clone()));
    let listing = HeadAt {
        max_entries: 10,
        ..at("/new.md")
    };
    assert_eq!(known.get(&listing), Some(new));
    known.committing(put(None, "/failed.md"));
    known.ended(false);
    assert_eq!(known.get(&at("/failed.md")), None);
}

#[test]
fn new_head_has_the_claim_of_another_replica() {
    let known = KnownHeads::default();
    for (replica, kept) in [(1, None), (2, Some(claim_of(2)))] {
        let before = head("/old.md", 1, Some(claim_of(replica)));
        look_up(&known, &at("/old.md"), Target::Memory(before.clone()));
        make(&known, put(Some(before), "/renamed.md"));
        let renamed = answer(Target::Memory(head("/renamed.md", 2, kept)));
        assert_eq!(known.get(&at("/renamed.md")), Some(renamed));
        assert_eq!(known.get(&at("/old.md")), None);
    }
    make(&known, put(Some(head("/unknown.md", 1, None)), "/other.md"));
    assert_eq!(known.get(&at("/other.md")), None);
}
