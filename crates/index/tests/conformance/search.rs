//! Search terms: written with every change, and returned as changes since a position.

use std::collections::BTreeMap;

use keepsake_core::{MemoryId, VersionId};
use keepsake_index::{
    Change, Head, HeadChange, Redaction, RedactionOutcome, SearchChange, SearchChanges, SearchPlace,
    SearchRow, SearchSince, Unindexed,
};
use uuid::Uuid;

use crate::place::{NOW, Place, by_tenant, created, deleted, edited, next_uuid, renamed};
use crate::subject::Subject;

const ANALYSER: u32 = 7;

fn row(terms: &str) -> SearchRow {
    SearchRow {
        analyser: ANALYSER,
        length: 3,
        terms: terms.as_bytes().to_vec(),
    }
}

/// A change that brings search terms with its content.
fn with_terms(mut change: Change, terms: &str) -> Change {
    change.after.as_mut().unwrap().search = Some(row(terms));
    change
}

const fn knowing_nothing() -> SearchSince {
    SearchSince {
        place: None,
        analyser: ANALYSER,
        unindexed: Vec::new(),
        may_be_whole: true,
    }
}

fn since(changes: &SearchChanges) -> SearchSince {
    SearchSince {
        place: Some(changes.place),
        ..knowing_nothing()
    }
}

async fn told(place: &Place, since: &SearchSince) -> SearchChanges {
    let told = place
        .index
        .search
        .changes(place.tenant_id, place.store_id, since)
        .await;
    told.unwrap().expect("the store exists")
}

/// The changes by path, with their terms; a deleted memory is shown by its id.
fn shown(changes: &SearchChanges) -> BTreeMap<String, Option<String>> {
    let show = |change: &SearchChange| match &change.head {
        Some(head) => {
            let terms = head
                .terms
                .as_deref()
                .map(|terms| String::from_utf8(terms.to_vec()).unwrap());
            (head.path.as_str().to_owned(), terms)
        }
        None => (change.memory_id.to_string(), None),
    };
    changes.memories.iter().map(show).collect()
}

fn expected<const N: usize>(memories: [(&str, Option<&str>); N]) -> BTreeMap<String, Option<String>> {
    memories
        .map(|(path, terms)| (path.to_owned(), terms.map(str::to_owned)))
        .into()
}

async fn rows(place: &Place) -> i64 {
    let count = "SELECT count(*) FROM search_doc WHERE tenant_id = $1 AND store_id = $2";
    place.raw.numbers(count, &place.ids()).await[0][0]
}

async fn create(place: &Place, at: &str, terms: &str) -> Head {
    place.change(vec![with_terms(created(at, 5), terms)]).await;
    place.memory(at).await
}

pub(crate) async fn terms_follow_every_change(subject: &Subject) {
    let place = Place::new(subject).await;
    let first = create(&place, "/a", "one").await;
    let second = create(&place, "/d/b", "two").await;
    let whole = told(&place, &knowing_nothing()).await;
    assert!(whole.is_whole);
    assert_eq!((whole.place.seq, whole.place.purge_epoch), (2, 0));
    assert_eq!(
        shown(&whole),
        expected([("/a", Some("one")), ("/d/b", Some("two"))])
    );
    let head = whole
        .memories
        .iter()
        .find(|change| change.memory_id == first.memory_id);
    let head = head.unwrap().head.as_ref().unwrap();
    assert_eq!(
        (head.blob_id, head.sha256, head.updated_at),
        (first.blob_id, first.sha256, NOW)
    );

    place.change(vec![with_terms(edited(&first, 6), "three")]).await;
    place.change(vec![renamed(&second, "/e/c")]).await;
    let since_then = told(&place, &since(&whole)).await;
    assert!(!since_then.is_whole);
    assert_eq!(
        shown(&since_then),
        expected([("/a", Some("three")), ("/e/c", Some("two"))])
    );

    let delete = deleted(&place.memory("/a").await);
    place.change(vec![delete.clone()]).await;
    let gone = told(&place, &since(&since_then)).await;
    assert_eq!(
        shown(&gone),
        expected([(first.memory_id.to_string().as_str(), None)])
    );
    assert_eq!(rows(&place).await, 1);
    assert_eq!(told(&place, &since(&gone)).await.memories, []);

    let mut revive = with_terms(created("/back", 4), "four");
    (revive.memory_id, revive.revives) = (delete.memory_id, Some(delete.version_id));
    place.change(vec![revive]).await;
    let back = told(&place, &since(&gone)).await;
    assert_eq!(shown(&back), expected([("/back", Some("four"))]));
    assert_eq!(
        shown(&told(&place, &knowing_nothing()).await),
        expected([("/back", Some("four")), ("/e/c", Some("two"))])
    );
}

pub(crate) async fn changes_of_one_commit_are_returned_together(subject: &Subject) {
    let place = Place::new(subject).await;
    let changes = (0..40).map(|number| with_terms(created(&format!("/d/{number}"), 1), &number.to_string()));
    place.change(changes.collect()).await;
    let whole = told(&place, &knowing_nothing()).await;
    assert_eq!(whole.memories.len(), 40);
    assert_eq!(shown(&whole)["/d/39"].as_deref(), Some("39"));
    let heads = place.heads_below("/d/").await;
    place.change(heads.iter().map(deleted).collect()).await;
    assert_eq!(rows(&place).await, 0);
    let gone = told(&place, &since(&whole)).await;
    assert_eq!(gone.memories.len(), 40);
    assert!(gone.memories.iter().all(|change| change.head.is_none()));
}

pub(crate) async fn refused_commit_leaves_no_terms(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = create(&place, "/a", "one").await;
    place.change(vec![with_terms(edited(&head, 6), "two")]).await;
    place
        .try_changes(vec![with_terms(edited(&head, 7), "three")])
        .await;
    place
        .try_changes(vec![with_terms(created("/a", 7), "four")])
        .await;
    let whole = told(&place, &knowing_nothing()).await;
    assert_eq!(shown(&whole), expected([("/a", Some("two"))]));
    assert_eq!(rows(&place).await, 1);
}

pub(crate) async fn terms_of_outdated_content_are_not_returned(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = create(&place, "/a", "one").await;
    // By a binary that knows no search.
    place.change(vec![edited(&head, 6)]).await;
    let whole = told(&place, &knowing_nothing()).await;
    assert_eq!(shown(&whole), expected([("/a", None)]));
    let other = SearchSince {
        analyser: ANALYSER + 1,
        ..knowing_nothing()
    };
    create(&place, "/b", "two").await;
    assert_eq!(
        shown(&told(&place, &other).await),
        expected([("/a", None), ("/b", None)])
    );
}

pub(crate) async fn whole_store_is_returned_after_a_purge(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = create(&place, "/a", "one").await;
    place.change(vec![with_terms(edited(&head, 6), "two")]).await;
    let before = told(&place, &knowing_nothing()).await;
    let redaction = Redaction {
        store_id: place.store_id,
        version_id: head.version_id,
        audited: by_tenant(NOW),
    };
    let outcome = place
        .index
        .redactions
        .redact(place.tenant_id, &redaction)
        .await
        .unwrap();
    assert!(
        matches!(outcome, RedactionOutcome::Redacted { .. }),
        "{outcome:?}"
    );
    let after = told(&place, &since(&before)).await;
    assert!(after.is_whole && after.place.purge_epoch > before.place.purge_epoch);
    let asking = SearchSince {
        may_be_whole: false,
        ..since(&before)
    };
    let in_part = told(&place, &asking).await;
    assert_eq!(
        (
            in_part.is_whole,
            in_part.place.purge_epoch,
            in_part.memories.len()
        ),
        (true, after.place.purge_epoch, 0)
    );
    assert_eq!(shown(&after), expected([("/a", Some("two"))]));
}

pub(crate) async fn missing_and_deleted_stores_are_none(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::new(subject).await;
    create(&place, "/a", "one").await;
    let index = &place.index;
    let crossed = index
        .search
        .changes(other.tenant_id, place.store_id, &knowing_nothing())
        .await;
    assert_eq!(crossed.unwrap(), None);
    index
        .store_deletions
        .begin(place.tenant_id, place.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    let gone = index
        .search
        .changes(place.tenant_id, place.store_id, &knowing_nothing())
        .await;
    assert_eq!(gone.unwrap(), None);
}

/// Every memory that is to be indexed in a store, page by page.
async fn unindexed(place: &Place, analyser: u32, limit: u32) -> Vec<Unindexed> {
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let page = place
            .index
            .search
            .unindexed(after, analyser, limit)
            .await
            .unwrap();
        let of_store = page.unindexed.into_iter();
        found.extend(of_store.filter(|memory| memory.place.1 == place.store_id));
        after = page.last;
        if page.looked_at < u64::from(limit) {
            return found;
        }
    }
}

pub(crate) async fn memories_without_terms_are_found_and_written(subject: &Subject) {
    let place = Place::new(subject).await;
    create(&place, "/indexed", "one").await;
    let older = place.create("/older", 5).await;
    let stale = create(&place, "/stale", "two").await;
    place.change(vec![edited(&stale, 6)]).await;
    let gone = place.create("/gone", 5).await;
    place.change(vec![deleted(&gone)]).await;

    for limit in [1, 2, 100] {
        let mut found: Vec<MemoryId> = unindexed(&place, ANALYSER, limit)
            .await
            .iter()
            .map(|memory| memory.place.2)
            .collect();
        found.sort_by_key(|memory_id| memory_id.uuid());
        let mut wanted = vec![older.memory_id, stale.memory_id];
        wanted.sort_by_key(|memory_id| memory_id.uuid());
        assert_eq!(found, wanted, "in pages of {limit}");
    }
    assert_eq!(unindexed(&place, ANALYSER + 1, 100).await.len(), 3);

    let known = told(&place, &knowing_nothing()).await;
    let found = unindexed(&place, ANALYSER, 100).await;
    let written: Vec<_> = found
        .iter()
        .map(|memory| (memory.place.2, memory.blob_id, row("late")))
        .collect();
    let index = &place.index;
    let (tenant_id, store_id) = (place.tenant_id, place.store_id);
    assert_eq!(index.search.put(tenant_id, store_id, &written).await.unwrap(), 2);
    // A second run writes nothing.
    assert_eq!(index.search.put(tenant_id, store_id, &written).await.unwrap(), 0);
    assert_eq!(unindexed(&place, ANALYSER, 100).await, []);
    // No version was created, so a reader that knew these memories without terms asks
    // for them by id.
    assert_eq!(told(&place, &since(&known)).await.memories, []);
    let asking = SearchSince {
        unindexed: vec![older.memory_id, stale.memory_id, gone.memory_id],
        ..since(&known)
    };
    let again = told(&place, &asking).await;
    assert_eq!(
        shown(&again),
        expected([
            ("/older", Some("late")),
            ("/stale", Some("late")),
            (gone.memory_id.to_string().as_str(), None)
        ])
    );
}

pub(crate) async fn late_terms_do_not_replace_newer_ones(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 5).await;
    place.change(vec![with_terms(edited(&head, 6), "new")]).await;
    let edited_meanwhile = (head.memory_id, head.blob_id, row("old"));
    let never_there = (
        MemoryId::from_uuid(next_uuid()),
        VersionId::from_uuid(Uuid::nil()),
        row("x"),
    );
    let current = place.memory("/a").await;
    let older = SearchRow {
        analyser: ANALYSER - 1,
        ..row("older")
    };
    let of_an_older_analyser = (current.memory_id, current.blob_id, older);
    let late = [edited_meanwhile, never_there, of_an_older_analyser];
    let (tenant_id, store_id) = (place.tenant_id, place.store_id);
    let written = place.index.search.put(tenant_id, store_id, &late).await;
    assert_eq!(written.unwrap(), 0);
    let newer = SearchRow {
        analyser: ANALYSER + 1,
        ..row("newer")
    };
    let newer = [(current.memory_id, current.blob_id, newer)];
    let written = place.index.search.put(tenant_id, store_id, &newer).await;
    assert_eq!(written.unwrap(), 1);
    place
        .index
        .store_deletions
        .begin(tenant_id, store_id, &by_tenant(NOW))
        .await
        .unwrap();
    let newest = [(
        current.memory_id,
        current.blob_id,
        SearchRow {
            analyser: ANALYSER + 2,
            ..row("newest")
        },
    )];
    let written = place.index.search.put(tenant_id, store_id, &newest).await;
    assert_eq!(written.unwrap(), 0);
}

pub(crate) async fn large_terms_are_kept_byte_by_byte(subject: &Subject) {
    let place = Place::new(subject).await;
    let terms: Vec<u8> = (0..300_000_u32)
        .map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1])
        .collect();
    let mut change = created("/a", 5);
    change.after = change.after.map(|after| HeadChange {
        search: Some(SearchRow {
            analyser: u32::MAX,
            length: u32::MAX,
            terms: terms.clone(),
        }),
        ..after
    });
    place.change(vec![change]).await;
    let all = SearchSince {
        analyser: u32::MAX,
        ..knowing_nothing()
    };
    let whole = told(&place, &all).await;
    assert_eq!(
        whole.memories[0].head.as_ref().unwrap().terms.as_deref(),
        Some(terms.as_slice())
    );
}

/// A restored database ends before the place that a replica knows, or has other
/// versions there.
pub(crate) async fn whole_store_is_returned_if_its_history_differs(subject: &Subject) {
    let place = Place::new(subject).await;
    create(&place, "/a", "one").await;
    create(&place, "/b", "two").await;
    let known = told(&place, &knowing_nothing()).await.place;
    let told_since = async |at: SearchPlace, may_be_whole: bool| {
        let asking = SearchSince {
            place: Some(at),
            may_be_whole,
            ..knowing_nothing()
        };
        let changes = told(&place, &asking).await;
        (changes.is_whole, changes.memories.len())
    };
    assert_eq!(told_since(known, true).await, (false, 0));
    let others = [
        SearchPlace {
            seq: known.seq + 5,
            ..known
        },
        SearchPlace {
            version_id: Some(VersionId::from_uuid(next_uuid())),
            ..known
        },
        SearchPlace {
            version_id: None,
            ..known
        },
    ];
    for other in others {
        assert_eq!(told_since(other, true).await, (true, 2), "{other:?}");
        assert_eq!(told_since(other, false).await, (true, 0), "{other:?}");
    }
}
