//! The history of a store: versions by id, and lists of them.

use keepsake_core::actor::ActorKind;
use keepsake_core::{Actor, SessionId, StoreId, Timestamp, VersionId};
use keepsake_index::{Operation, StoreState, Version, VersionListing, VersionPage};
use uuid::Uuid;

use crate::place::{NOW, Place, actor, after_seconds, created, deleted, edited, next_uuid, renamed};
use crate::subject::Subject;

fn all() -> VersionListing {
    VersionListing {
        limit: 100,
        ..VersionListing::default()
    }
}

async fn page(place: &Place, listing: &VersionListing) -> VersionPage {
    let page = place
        .index
        .versions
        .list(place.tenant_id, place.store_id, listing)
        .await
        .unwrap();
    page.expect("the store exists")
}

/// The places of the versions of a listing, read page by page.
async fn seqs(place: &Place, listing: &VersionListing) -> Vec<i64> {
    let mut listing = listing.clone();
    let mut seqs = Vec::new();
    loop {
        let versions = page(place, &listing).await.versions;
        assert!(versions.len() <= listing.limit as usize);
        seqs.extend(versions.iter().map(|version| version.seq));
        if versions.len() < listing.limit as usize {
            return seqs;
        }
        listing.before = seqs.last().copied();
    }
}

fn session() -> Actor {
    Actor::Session(SessionId::from_uuid(Uuid::from_u128(7)))
}

/// Twenty-four versions, three of each ten seconds, of four memories, by three
/// actors and a job.
async fn history(subject: &Subject) -> (Place, Vec<Version>) {
    let place = Place::new(subject).await;
    let actors = [
        Some(actor()),
        Some(session()),
        Some(Actor::User(session().id())),
        None,
    ];
    for turn in 0..24_usize {
        let at = format!("/{}", turn % 4);
        let change = match turn / 4 {
            0 | 4 => created(&at, 1),
            1 => edited(&place.memory(&at).await, 2),
            2 => renamed(&place.memory(&at).await, &at),
            _ if turn % 2 == 0 => edited(&place.memory(&at).await, 3),
            3 => deleted(&place.memory(&at).await),
            _ => edited(&place.memory(&at).await, 4),
        };
        let is_there = matches!(place.target(&at, 0).await, keepsake_index::Target::Memory(_));
        let change = if change.before.is_none() && is_there {
            edited(&place.memory(&at).await, 9)
        } else {
            change
        };
        let mut commit = place.commit_of(vec![change]);
        commit.actor.clone_from(&actors[turn * 7 % 4]);
        commit.now = after_seconds(10 * i64::try_from(turn / 3).unwrap());
        place.run(&commit).await;
    }
    let versions = page(&place, &all()).await.versions;
    assert_eq!(versions.len(), 24);
    (place, versions)
}

/// Whether a version is one that a listing asks for.
fn is_asked_for(version: &Version, listing: &VersionListing) -> bool {
    let by = version.created_by.as_ref();
    let by = by.map(|by| (by.kind(), by.id()));
    let wanted = listing.actor.as_ref();
    let wanted = wanted.map(|(kind, id)| (kind.name(), id.clone()));
    listing
        .memory_id
        .is_none_or(|memory_id| version.memory_id == memory_id)
        && listing
            .operation
            .is_none_or(|operation| version.operation == operation)
        && (wanted.is_none() || by == wanted)
        && listing.created_from.is_none_or(|from| version.created_at >= from)
        && listing.created_to.is_none_or(|to| version.created_at <= to)
}

pub(crate) async fn every_filter_lists_what_it_says_newest_first(subject: &Subject) {
    let (place, versions) = history(subject).await;
    assert!(versions.iter().map(|version| version.seq).eq((1..=24).rev()));
    let times = [
        (None, None),
        (Some(20), None),
        (None, Some(35)),
        (Some(10), Some(50)),
        (Some(10), Some(10)),
        (Some(15), Some(19)),
        (Some(-5), Some(999)),
        (Some(60), Some(20)),
    ];
    let mut found_something = 0;
    for memory_id in [None, Some(versions[0].memory_id), Some(versions[3].memory_id)] {
        for operation in [
            None,
            Some(Operation::Created),
            Some(Operation::Modified),
            Some(Operation::Deleted),
        ] {
            for by in [
                None,
                Some(actor()),
                Some(session()),
                Some(Actor::User(session().id())),
            ] {
                for (from, to) in times {
                    let listing = VersionListing {
                        memory_id,
                        operation,
                        actor: by.as_ref().map(|by| (kind_of(by), by.id())),
                        includes_imported: false,
                        created_from: from.map(after_seconds),
                        created_to: to.map(after_seconds),
                        before: None,
                        limit: 3,
                    };
                    let expected: Vec<_> = versions
                        .iter()
                        .filter(|version| is_asked_for(version, &listing))
                        .map(|version| version.seq)
                        .collect();
                    assert_eq!(seqs(&place, &listing).await, expected, "{listing:?}");
                    found_something += usize::from(expected.len() > 1);
                }
            }
        }
    }
    assert!(found_something > 50, "the history is too poor: {found_something}");
}

const fn kind_of(by: &Actor) -> ActorKind {
    match by {
        Actor::ApiKey(_) => ActorKind::ApiKey,
        Actor::Session(_) => ActorKind::Session,
        Actor::User(_) => ActorKind::User,
        Actor::ServiceAccount(_) => ActorKind::ServiceAccount,
        Actor::Imported(kind, _) => *kind,
    }
}

pub(crate) async fn extreme_times_are_valid_bounds(subject: &Subject) {
    let (place, _) = history(subject).await;
    let listing = VersionListing {
        created_from: Some(Timestamp::from_micros(i64::MIN)),
        created_to: Some(Timestamp::from_micros(i64::MAX)),
        before: Some(i64::MAX),
        ..all()
    };
    assert_eq!(seqs(&place, &listing).await.len(), 24);
    let nothing = VersionListing {
        created_from: Some(Timestamp::from_micros(i64::MAX)),
        ..all()
    };
    assert_eq!(seqs(&place, &nothing).await, Vec::<i64>::new());
    for before in [1, 0, -5] {
        let nothing = VersionListing {
            before: Some(before),
            ..all()
        };
        assert_eq!(seqs(&place, &nothing).await, Vec::<i64>::new());
    }
}

pub(crate) async fn time_range_is_found_across_gaps_in_the_order(subject: &Subject) {
    let (place, versions) = history(subject).await;
    let gaps = "DELETE FROM version WHERE tenant_id = $1 AND store_id = $2 AND seq % 5 IN (0, 1, 2)";
    place.raw.execute(gaps, &place.ids()).await;
    for seconds in -5..80 {
        for (from, to) in [
            (Some(seconds), None),
            (None, Some(seconds)),
            (Some(seconds), Some(seconds + 15)),
        ] {
            let listing = VersionListing {
                created_from: from.map(after_seconds),
                created_to: to.map(after_seconds),
                ..all()
            };
            let expected: Vec<_> = versions
                .iter()
                .filter(|version| version.seq % 5 > 2 && is_asked_for(version, &listing))
                .map(|version| version.seq)
                .collect();
            assert_eq!(seqs(&place, &listing).await, expected, "{from:?} to {to:?}");
        }
    }
}

pub(crate) async fn versions_created_while_listing_are_not_listed(subject: &Subject) {
    let (place, _) = history(subject).await;
    let mut listing = VersionListing { limit: 5, ..all() };
    let mut seen = Vec::new();
    for turn in 0..5 {
        seen.extend(
            page(&place, &listing)
                .await
                .versions
                .iter()
                .map(|version| version.seq),
        );
        place.create(&format!("/later/{turn}"), 1).await;
        listing.before = seen.last().copied();
    }
    assert!(seen.into_iter().eq((1..=24).rev()));
}

pub(crate) async fn version_is_the_same_by_id_by_place_and_in_lists(subject: &Subject) {
    let (place, versions) = history(subject).await;
    for version in versions {
        let (tenant_id, store_id) = (place.tenant_id, place.store_id);
        let found = place
            .index
            .versions
            .find(tenant_id, store_id, version.version_id)
            .await;
        assert_eq!(found.unwrap().unwrap().version, Some(version.clone()));
        let found = place
            .index
            .versions
            .find_at(tenant_id, store_id, version.seq)
            .await;
        assert_eq!(found.unwrap(), Some(version));
    }
}

pub(crate) async fn version_has_every_written_field(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 3).await;
    let delete = deleted(&head);
    let mut commit = place.commit_of(vec![delete.clone()]);
    commit.actor = Some(session());
    commit.now = after_seconds(9);
    place.run(&commit).await;
    let expected = Version {
        version_id: delete.version_id,
        seq: 2,
        prev_seq: Some(1),
        memory_id: head.memory_id,
        operation: Operation::Deleted,
        path: Some(head.path),
        content: None,
        created_at: after_seconds(9),
        created_by: Some(session()),
        redacted_at: None,
        redacted_by: None,
    };
    let page = page(&place, &all()).await;
    assert_eq!(page.versions[0], expected);
    assert_eq!(
        (page.versions[1].operation, page.versions[1].created_at),
        (Operation::Created, NOW)
    );
    assert_eq!(
        page.store,
        StoreState {
            is_archived: false,
            purge_epoch: 0
        }
    );
}

pub(crate) async fn unknown_version_and_unknown_store_are_distinguished(subject: &Subject) {
    let place = Place::new(subject).await;
    let version_id = VersionId::from_uuid(next_uuid());
    let found = place
        .index
        .versions
        .find(place.tenant_id, place.store_id, version_id)
        .await;
    assert_eq!(found.unwrap().unwrap().version, None);
    let nowhere = StoreId::from_uuid(next_uuid());
    let found = place
        .index
        .versions
        .find(place.tenant_id, nowhere, version_id)
        .await;
    assert_eq!(found.unwrap(), None);
    let page = place.index.versions.list(place.tenant_id, nowhere, &all()).await;
    assert_eq!(page.unwrap(), None);
}

pub(crate) async fn versions_of_one_content_are_found_newest_first(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 3).await;
    place.change(vec![renamed(&head, "/b")]).await;
    let moved = place.memory("/b").await;
    place.change(vec![edited(&moved, 1)]).await;
    let mut copy = created("/copy", 3);
    copy.after.as_mut().unwrap().sha256 = head.sha256;
    place.change(vec![copy.clone()]).await;
    let found = async |limit| {
        place
            .index
            .versions
            .with_content(place.tenant_id, place.store_id, head.sha256, limit)
            .await
            .unwrap()
    };
    let all = [copy.version_id, moved.version_id, head.version_id];
    assert_eq!(found(10).await, all);
    assert_eq!(found(2).await, all[..2]);
}
