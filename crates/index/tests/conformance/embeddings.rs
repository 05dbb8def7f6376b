//! Vectors for the search by meaning: which are written, and when they are removed.

use keepsake_core::SearchMode;
use keepsake_index::{
    EmbeddingChanges, EmbeddingClaim, EmbeddingLimits, EmbeddingOutcome, EmbeddingPage, EmbeddingRow,
    OutdatedPart, RemovalLimits, TenantChange,
};

use crate::deletions::{ask, below_p, erase_rows, purge_store};
use crate::prelude::*;

const MODEL: &str = "model-256";
const OTHER_REPLICA: Uuid = Uuid::from_u128(2);
const LIMITS: EmbeddingLimits = EmbeddingLimits { versions: 10, bytes: 100 };
/// More rows and bytes than a store here has.
const MANY: (u64, u64) = (10, 1_000);
/// How long a claim lasts.
const CLAIM_SECONDS: i64 = 60;

const COMPLETE: EmbeddingOutcome = EmbeddingOutcome::Written { is_complete: true };
const INCOMPLETE: EmbeddingOutcome = EmbeddingOutcome::Written { is_complete: false };

fn claim_of(place: &Place, model: &str, replica: Uuid) -> EmbeddingClaim {
    EmbeddingClaim { tenant_id: place.tenant_id, store_id: place.store_id, model: model.into(), replica }
}

async fn claim_by(place: &Place, replica: Uuid, seconds: i64) -> Option<EmbeddingPage> {
    let (now, until) = (after_seconds(seconds), after_seconds(seconds + CLAIM_SECONDS));
    place.index.embeddings.claim(&claim_of(place, MODEL, replica), now, until, LIMITS).await.unwrap()
}

/// Claims a store in which there is something to embed.
async fn claim(place: &Place) -> EmbeddingPage {
    claim_by(place, REPLICA, 0).await.expect("a version is not embedded")
}

/// Two chunks for each memory of a page.
fn rows_of(page: &EmbeddingPage) -> Vec<EmbeddingRow> {
    let rows = page.memories.iter().map(|memory| EmbeddingRow {
        memory_id: memory.memory_id,
        version_id: memory.version_id,
        chunks: 2,
        vectors: Arc::from(memory.version_id.uuid().as_bytes().as_slice()),
    });
    rows.collect()
}

async fn put(place: &Place, page: &EmbeddingPage) -> EmbeddingOutcome {
    let claim = claim_of(place, MODEL, REPLICA);
    place.index.embeddings.put(&claim, page, &rows_of(page)).await.unwrap()
}

/// Embeds what a store has; answers the pages.
async fn embed(place: &Place, model: &str, limits: EmbeddingLimits) -> Vec<EmbeddingPage> {
    let (claim, embeddings) = (claim_of(place, model, REPLICA), &place.index.embeddings);
    let mut pages = Vec::new();
    while let Some(page) = embeddings.claim(&claim, NOW, after_seconds(1), limits).await.unwrap() {
        embeddings.put(&claim, &page, &rows_of(&page)).await.unwrap();
        pages.push(page);
    }
    pages
}

async fn changes(place: &Place, since_edit: i64) -> EmbeddingChanges {
    let changes = place.index.embeddings.changes(place.tenant_id, place.store_id, MODEL, since_edit).await;
    changes.unwrap().expect("the store exists")
}

/// The memories with vectors, and the versions of which these are.
async fn embedded(place: &Place) -> Vec<(MemoryId, VersionId)> {
    versions(&changes(place, 0).await)
}

fn versions(changes: &EmbeddingChanges) -> Vec<(MemoryId, VersionId)> {
    let mut versions: Vec<_> = changes.rows.iter().map(|row| (row.memory_id, row.version_id)).collect();
    versions.sort_unstable();
    versions
}

async fn set_mode(place: &Place, search_mode: Option<SearchMode>) {
    let change = StoreChange { search_mode: Some(search_mode), now: NOW, ..StoreChange::default() };
    let stores = &place.index.stores;
    let set = stores.update(place.tenant_id, place.store_id, &change, None, &by_tenant(NOW)).await.unwrap();
    let found = stores.find(place.tenant_id, place.store_id).await.unwrap().unwrap();
    assert_eq!((set.search_mode, found.search_mode), (search_mode, search_mode));
}

async fn change_tenant(place: &Place, change: TenantChange) {
    let tenants = &place.index.tenants;
    let before = tenants.find(place.tenant_id).await.unwrap().unwrap();
    let update = tenants.update(place.tenant_id, &change, &audited()).await.unwrap();
    assert_eq!(update.before, before);
    assert_eq!(tenants.find(place.tenant_id).await.unwrap(), Some(update.after));
}

async fn redact(place: &Place, version_id: VersionId) {
    let redactions = &place.index.redactions;
    redactions.redact(place.tenant_id, place.store_id, version_id, &by_tenant(NOW)).await.unwrap();
}

pub(crate) async fn each_version_is_embedded_once(place: Place) {
    let old = place.create("/a", 1).await;
    let b = place.create("/b", 1).await;
    let first = claim(&place).await;
    assert_eq!((first.from, first.through, first.is_last), (0, 2, true));
    assert_eq!((first.memory_count, first.live_bytes), (2, 2));
    assert_eq!(first.memories[1].path, path("/b"));
    assert_eq!(claim_by(&place, OTHER_REPLICA, CLAIM_SECONDS - 1).await, None);
    let (own, until) = (claim_of(&place, MODEL, REPLICA), after_seconds(2 * CLAIM_SECONDS));
    assert!(place.index.embeddings.renew(&own, &first, until).await.unwrap());
    assert_eq!(claim_by(&place, OTHER_REPLICA, 2 * CLAIM_SECONDS - 1).await, None);
    assert_eq!(claim(&place).await, first, "its own claim is no obstacle");

    let a = place.changed(edited(&old, 1)).await;
    assert_eq!(put(&place, &first).await, INCOMPLETE);
    let before = changes(&place, 0).await;
    assert_eq!(versions(&before), [(b.memory_id, b.version_id)], "the other one has changed");

    assert_eq!(claim_by(&place, OTHER_REPLICA, 1).await, None, "there is more to embed");
    let second = claim(&place).await;
    assert_eq!((second.from, second.through, second.memories.len()), (2, 3, 1));
    assert_eq!(put(&place, &first).await, EmbeddingOutcome::Refused, "it was embedded before");
    let other = claim_of(&place, MODEL, OTHER_REPLICA);
    for (claim, page) in [(&own, &first), (&other, &second)] {
        assert!(!place.index.embeddings.renew(claim, page, until).await.unwrap());
    }
    assert_eq!(put(&place, &second).await, COMPLETE);
    assert_eq!(claim_by(&place, REPLICA, 1).await, None);

    let after = changes(&place, before.edit).await;
    assert_eq!((after.edit, after.is_whole, after.is_hybrid), (before.edit + 1, false, true));
    assert_eq!(after.rows, rows_of(&second));
    assert!(changes(&place, after.edit).await.rows.is_empty());
    let all = [(a.memory_id, a.version_id), (b.memory_id, b.version_id)];
    for since in [0, after.edit + 1] {
        let whole = changes(&place, since).await;
        assert!(whole.is_whole && whole.edit == after.edit);
        assert_eq!(versions(&whole), all);
    }
    let usage = async || {
        let usage = place.index.usage.of_store(place.tenant_id, place.store_id, 1).await.unwrap().unwrap();
        (usage.embedded_memories, usage.embedding_chunks, usage.embedding_bytes)
    };
    assert_eq!(usage().await, (2, 4, 32));

    let sibling = place.sibling().await;
    let stores = [place.store_id, sibling.store_id, place.stranger().await.store_id];
    let mut states = place.index.embeddings.states(place.tenant_id, &stores, MODEL).await.unwrap();
    states.sort_unstable_by_key(|state| state.store_id);
    let states = states.iter().map(|state| (state.store_id, state.is_hybrid, state.edit, state.live_bytes));
    let expected = [(stores[0], true, after.edit, second.live_bytes), (stores[1], true, 0, 0)];
    assert_eq!(states.collect::<Vec<_>>(), expected);

    place.change(vec![created("/c", 1), edited(&b, 1)]).await;
    assert_eq!(usage().await, (1, 4, 32), "the vectors of one are outdated");
    assert!(claim_by(&place, OTHER_REPLICA, 1).await.is_some(), "the claim has ended");
}

pub(crate) async fn pages_end_at_their_limits_and_lack_settings(place: Place) {
    for (at, size_bytes) in
        [("/a", 60), ("/b", 50), ("/c", 200), ("/.keepsake/tests.toml", 300), ("/d", 1), ("/e", 1)]
    {
        place.create(at, size_bytes).await;
    }
    let pages = embed(&place, MODEL, EmbeddingLimits { versions: 4, ..LIMITS }).await;
    let pages = pages.iter().map(|page| {
        let paths: Vec<_> = page.memories.iter().map(|memory| memory.path.as_str()).collect();
        format!("{} {} {}", page.through, page.is_last, paths.join(" "))
    });
    let expected = ["1 false /a", "2 false /b", "4 false /c", "6 true /d /e"];
    assert_eq!(pages.collect::<Vec<_>>(), expected);

    // Versions that are not current any more do not fill a page.
    let mut a = place.memory("/a").await;
    for _ in 0..7 {
        a = place.changed(edited(&a, 1)).await;
    }
    let pages = embed(&place, MODEL, EmbeddingLimits { versions: 2, ..LIMITS }).await;
    assert_eq!(pages.iter().map(|page| (page.through, page.memories.len())).collect::<Vec<_>>(), [(13, 1)]);
}

pub(crate) async fn late_vectors_are_not_written(place: Place) {
    place.create("/a", 1).await;
    let page = claim(&place).await;
    set_mode(&place, Some(SearchMode::Lexical)).await;
    assert_eq!(put(&place, &page).await, EmbeddingOutcome::Refused);
    assert_eq!(claim_by(&place, REPLICA, 0).await, None);
    set_mode(&place, None).await;
    let suspend = |status| change_tenant(&place, TenantChange::of_status(status));
    suspend(TenantStatus::Suspended).await;
    assert_eq!(put(&place, &page).await, EmbeddingOutcome::Refused);
    suspend(TenantStatus::Active).await;

    place.change(vec![deleted(&place.memory("/a").await)]).await;
    assert_eq!(put(&place, &page).await, INCOMPLETE);
    place.create("/p/erased", 1).await;
    let page = claim(&place).await;
    erase_rows(place.clone(), ask(&place, below_p(&place)).await).await;
    assert_eq!(put(&place, &page).await, EmbeddingOutcome::Refused);
    assert!(embedded(&place).await.is_empty());

    place.create("/b", 1).await;
    let page = claim(&place).await;
    place.delete_store().await;
    assert_eq!(put(&place, &page).await, EmbeddingOutcome::Refused);
    assert_eq!(claim_by(&place, REPLICA, 0).await, None);
}

pub(crate) async fn vectors_are_removed_with_their_content(place: Place) {
    let paths = ["/deleted", "/redacted", "/superseded", "/p/erased", "/kept"];
    place.change(paths.map(|at| created(at, 1)).into()).await;
    embed(&place, MODEL, LIMITS).await;
    embed(&place, "another", LIMITS).await;
    let versions_of = async |paths: &[&str]| {
        let mut heads = Vec::new();
        for at in paths {
            let head = place.memory(at).await;
            heads.push((head.memory_id, head.version_id));
        }
        heads.sort_unstable();
        heads
    };
    let kept = versions_of(&["/kept"]).await;
    let redacted = place.memory("/redacted").await;
    let superseded = place.memory("/superseded").await;
    let mut left = versions_of(&["/redacted", "/superseded", "/p/erased", "/kept"]).await;

    place.change(vec![deleted(&place.memory("/deleted").await)]).await;
    assert_eq!(embedded(&place).await, left);

    // Vectors of an earlier version stay until others come, or the version goes.
    place.change(vec![edited(&redacted, 1), renamed(&superseded, "/moved/superseded")]).await;
    assert_eq!(embedded(&place).await, left);
    redact(&place, redacted.version_id).await;
    left.retain(|(memory_id, _)| *memory_id != redacted.memory_id);
    assert_eq!(embedded(&place).await, left);

    let (by, now) = (after_seconds(10), after_seconds(20));
    let batch = VersionBatch {
        store_id: place.store_id,
        outdated: OutdatedPart::Superseded { by, made_by: Some(by), beyond: None },
        after: 0,
        now,
        blobs_go_from: now,
        limit: 100,
        dry_run: false,
    };
    assert!(place.index.retention.remove(place.tenant_id, &batch).await.unwrap().is_done);
    left.retain(|(memory_id, _)| *memory_id != superseded.memory_id);
    assert_eq!(embedded(&place).await, left);

    erase_rows(place.clone(), ask(&place, below_p(&place)).await).await;
    assert_eq!(embedded(&place).await, kept);

    let rows = async || [place.count("embedding").await, place.count("embedded_store").await];
    assert_eq!(rows().await, [2, 2], "those of the other model went too");
    place.delete_store().await;
    let deletions = &place.index.store_deletions;
    let first = deletions.purge(place.tenant_id, place.store_id, NOW, 4).await.unwrap();
    assert_eq!((first.rows(), first.blobs), (4, 0), "vectors go before versions");
    assert_eq!(rows().await, [0, 0]);
    assert!(purge_store(place.clone()).await.0 > 0);
}

/// The stores that the job embeds, and those with outdated vectors.
async fn work(place: &Place, model: Option<&str>, now: Timestamp) -> (Vec<StoreId>, Vec<StoreId>) {
    let (mut pending, mut outdated, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = place.index.embeddings.work(model, now, after, 2).await.unwrap();
        assert!(page.looked_at <= 2);
        pending.extend(page.pending.into_iter().map(|(_, store_id)| store_id));
        outdated.extend(page.outdated.into_iter().map(|(_, store_id)| store_id));
        after = page.last;
        if after.is_none() {
            return (pending, outdated);
        }
    }
}

pub(crate) async fn stores_come_that_are_to_be_embedded_or_forgotten(place: Place) {
    let outdated = place.sibling().await;
    let lexical = place.sibling().await;
    let theirs = place.stranger().await;
    for store in [&place, &outdated, &lexical, &theirs] {
        store.change(vec![created("/a", 1), created("/b", 1)]).await;
    }
    // A store without memories, and one that is gone.
    place.sibling().await;
    let gone = place.sibling().await;
    gone.create("/a", 1).await;
    gone.delete_store().await;
    let embeddings = &place.index.embeddings;
    for (store, model) in [(&outdated, "older"), (&outdated, MODEL), (&lexical, MODEL)] {
        embed(store, model, LIMITS).await;
    }
    set_mode(&lexical, Some(SearchMode::Lexical)).await;

    // A claim by a clock that was ahead does not count.
    let ahead = "UPDATE embedded_store SET claimed_until = edit + 86400000000 WHERE model = 'older'";
    place.raw.execute(ahead, &[]).await;
    // Vectors of another model are kept for so long.
    let later = after_seconds(3_601);
    let work_at = async |model, now| work(&place, model, now).await;
    let work = async |model| work_at(model, later).await;
    assert_eq!(work_at(Some(MODEL), after_seconds(3_599)).await.1, [lexical.store_id]);
    let both = vec![outdated.store_id, lexical.store_id];
    assert_eq!(work(Some(MODEL)).await, (vec![place.store_id, theirs.store_id], both.clone()));
    assert_eq!(work(None).await, (vec![], vec![lexical.store_id]));

    let of_tenant = |mode| TenantChange { search_mode: Some(mode), ..TenantChange::default() };
    change_tenant(&theirs, of_tenant(Some(SearchMode::Lexical))).await;
    assert_eq!(work(Some(MODEL)).await.0, [place.store_id]);
    set_mode(&theirs, Some(SearchMode::Hybrid)).await;
    assert_eq!(work(Some(MODEL)).await.0, [place.store_id, theirs.store_id]);
    change_tenant(&theirs, TenantChange::of_status(TenantStatus::Suspended)).await;
    assert_eq!(work(Some(MODEL)).await.0, [place.store_id]);

    let remove_at = async |store: &Place, now, limits: (u64, u64)| {
        let (tenant_id, store_id) = (store.tenant_id, store.store_id);
        let limits = RemovalLimits { rows: limits.0, bytes: limits.1 };
        let removed =
            embeddings.remove_outdated(tenant_id, store_id, Some(MODEL), now, limits).await.unwrap();
        (removed.rows, removed.is_done)
    };
    let remove = async |store: &Place, limits| remove_at(store, later, limits).await;
    let kept = embedded(&outdated).await;
    assert_eq!(remove_at(&outdated, after_seconds(3_599), MANY).await, (0, true));
    // The vectors of a memory have 16 bytes here.
    assert_eq!(remove(&outdated, (10, 16)).await, (1, false));
    assert_eq!((remove(&outdated, (10, 17)).await, remove(&outdated, MANY).await), ((1, true), (0, true)));
    assert_eq!(embedded(&outdated).await, kept);
    assert_eq!(remove(&place, MANY).await, (0, true), "it is not embedded yet");

    assert_eq!(remove(&lexical, (1, 1_000)).await, (1, false));
    set_mode(&lexical, None).await;
    assert_eq!(remove(&lexical, MANY).await, (0, true), "they are needed again");
    assert_eq!(work(Some(MODEL)).await, (vec![place.store_id, lexical.store_id], vec![]));
    embed(&lexical, MODEL, LIMITS).await;

    set_mode(&lexical, Some(SearchMode::Lexical)).await;
    assert_eq!(remove(&lexical, MANY).await, (2, true));
    assert!(work(Some(MODEL)).await.1.is_empty());

    // Of these and the empty store, only those are read again in which there is something to do.
    let looked_at = async |model| embeddings.work(model, later, None, 100).await.unwrap().looked_at;
    assert_eq!(looked_at(Some(MODEL)).await, 5);
    let idle = embeddings.work(Some(MODEL), later, None, 100).await.unwrap().idle;
    embeddings.settle(Some(MODEL), &idle).await.unwrap();
    assert_eq!(work(Some(MODEL)).await, (vec![place.store_id], vec![]));
    assert_eq!(looked_at(Some(MODEL)).await, 1);
    for (model, count) in [(Some("another"), 5), (Some("zzz"), 5), (None, 5)] {
        assert_eq!(looked_at(model).await, count, "{model:?}");
    }
    let everything = [place.store_id, outdated.store_id, lexical.store_id].map(|id| (place.tenant_id, id));
    embeddings.settle(Some(MODEL), &everything).await.unwrap();
    assert_eq!(looked_at(Some(MODEL)).await, 1, "one is not embedded");
    set_mode(&lexical, None).await;
    assert_eq!(looked_at(Some(MODEL)).await, 2);
    // A model that was rolled back after its first claim leaves nothing.
    let rolled_back = claim_of(&outdated, "rolled-back", REPLICA);
    assert!(embeddings.claim(&rolled_back, NOW, after_seconds(1), LIMITS).await.unwrap().is_some());
    assert_eq!(work(Some(MODEL)).await.1, [outdated.store_id]);
    assert_eq!(remove(&outdated, MANY).await, (0, true));
    embeddings.settle(Some(MODEL), &everything).await.unwrap();
    assert_eq!(looked_at(Some(MODEL)).await, 2);
    outdated.create("/c", 1).await;
    assert_eq!(looked_at(Some(MODEL)).await, 3);
    change_tenant(&theirs, TenantChange::of_status(TenantStatus::Active)).await;
    assert_eq!(looked_at(Some(MODEL)).await, 3);
    // In steps of one store, the last one of which finds no other.
    for is_left in [true, true, false] {
        assert_eq!(embeddings.unsettle(1).await.unwrap(), is_left);
    }
    assert_eq!(looked_at(Some(MODEL)).await, 4);
}
