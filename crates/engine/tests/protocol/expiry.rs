//! Expiry: memories past their period are deleted, memories read within it never.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::jobs::{ExpireUnused, ExpireVersions, RunOutcome, RunRequest};
use keepsake_engine::{
    Clock, Engine, EngineError, ExpiresAt, MemoryEdit, NewMemory, Principal, Restoration, SearchQuery,
    ShownMemory, StoreEdit, TenantEdit, VersionQuery, View,
};
use keepsake_index::{MemoryTarget, Operation};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::{TestEngine, edit_of, new_memory, view};

crate::on_both_databases! {
    expired_memory_is_deleted_without_an_author_and_can_be_restored,
    read_or_written_memory_does_not_expire,
    nothing_expires_by_default,
    expiry_waits_for_unwritten_reads_of_other_replicas,
    replica_that_cannot_write_its_reads_stops_expiry,
    dead_replica_stops_delaying_expiry,
    pinned_memory_never_expires,
    memory_expires_at_its_time_even_if_it_is_used,
    passed_expiry_time_is_accepted_again_and_spares_a_pinned_memory,
    read_in_the_last_tenth_of_the_period_is_written_at_once,
    new_or_shorter_period_takes_effect_after_a_day,
    tenants_period_applies_to_stores_without_one,
    dry_run_counts_and_changes_nothing,
    deleted_memory_is_kept_exactly_for_the_retention,
    old_versions_of_a_live_memory_are_dropped_by_age_or_number,
    shared_blob_outlives_its_first_version,
}

// On Postgres with content in the index, too.
crate::on_backend! {
    postgres,
    on_postgres,
    deleted_memory_is_kept_exactly_for_the_retention,
    shared_blob_outlives_its_first_version,
}

pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const PERIOD: Duration = Duration::from_hours(30 * 24);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn short_of(whole: Duration, part: Duration) -> Duration {
    whole.checked_sub(part).unwrap()
}

pub(crate) async fn run_on(engine: &Engine, dry_run: bool) -> Value {
    match engine
        .jobs
        .run(Arc::new(ExpireUnused), RunRequest::manual(dry_run), &CancellationToken::new())
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        other => panic!("{other:?}"),
    }
}

/// Runs the job; answers how many memories expired. No two runs begin at once.
pub(crate) async fn expire(setup: &TestEngine) -> u64 {
    setup.clock.advance(Duration::from_micros(1));
    let counts = run_on(&setup.engine, false).await;
    assert_eq!(counts["failed"], 0, "{counts}");
    counts["expired"].as_u64().unwrap()
}

async fn drop_versions(setup: &TestEngine, dry_run: bool) -> Value {
    setup.clock.advance(Duration::from_micros(1));
    let (job, request) = (Arc::new(ExpireVersions), RunRequest::manual(dry_run));
    match setup.engine.jobs.run(job, request, &CancellationToken::new()).await.unwrap() {
        RunOutcome::Ran(counts) => counts,
        other => panic!("{other:?}"),
    }
}

async fn set_period(setup: &TestEngine, principal: &Arc<Principal>, store_id: StoreId, period: Duration) {
    let edit = StoreEdit { expires_unused_after: Some(period.as_secs()), ..StoreEdit::default() };
    setup.engine.stores.update(principal, store_id, edit, None).await.unwrap();
}

/// A test whose store has a period that is in effect.
pub(crate) async fn with_period(setup: &TestEngine) {
    set_period(setup, &setup.principal, setup.store_id, PERIOD).await;
    setup.clock.advance(DAY);
}

async fn lives(setup: &TestEngine, memory: &ShownMemory) -> bool {
    let (tenant_id, memory_id) = (setup.principal.tenant_id, memory.memory.head.memory_id);
    let found = setup.index.memories.find(tenant_id, setup.store_id, memory_id).await.unwrap();
    matches!(found.unwrap().target, MemoryTarget::Live(_))
}

pub(crate) async fn restore(setup: &TestEngine, memory: &ShownMemory) -> Result<ShownMemory, EngineError> {
    let restoration = Restoration { precondition: None, view: View::Full, idempotency: None };
    let version_id = memory.memory.head.version_id;
    setup.engine.memories.restore(&setup.principal, setup.store_id, version_id, restoration).await
}

async fn expired_memory_is_deleted_without_an_author_and_can_be_restored(setup: TestEngine) {
    with_period(&setup).await;
    let memory = setup.make("/a/b.txt", "kept").await;
    assert_eq!(memory.expires_at, Some(setup.clock.now().plus(PERIOD)));
    setup.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&setup).await, 0, "a second is left");
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&setup).await, 1);
    assert!(!lives(&setup, &memory).await);
    let last = setup
        .engine
        .versions
        .list(&setup.principal, setup.store_id, &VersionQuery::default(), View::Basic)
        .await
        .unwrap()
        .items
        .remove(0)
        .version;
    assert_eq!((last.operation, last.created_by), (Operation::Deleted, None), "by nobody");
    let store = setup.engine.stores.get(&setup.principal, setup.store_id).await.unwrap();
    assert_eq!((store.memory_count, store.live_bytes), (0, 0));
    assert_eq!(expire(&setup).await, 0, "run twice, it finds nothing");

    let back = restore(&setup, &memory).await.unwrap();
    assert_eq!(back.content.as_deref(), Some("kept"));
    setup.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&setup).await, 0, "its life runs from the restoration");
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&setup).await, 1);
}

async fn read_or_written_memory_does_not_expire(setup: TestEngine) {
    with_period(&setup).await;
    let read = setup.make("/read.txt", "a").await;
    let viewed = setup.make("/viewed.txt", "a").await;
    let written = setup.make("/written.txt", "a").await;
    let renamed = setup.make("/renamed.txt", "a").await;
    let listed = setup.make("/listed.txt", "a").await;
    setup.clock.advance(short_of(PERIOD, DAY));
    setup.read(&read, View::Full).await;
    setup.call(view("/memories/viewed.txt")).await;
    setup.update(&written, edit_of(Some("b"), None, None)).await.unwrap();
    setup.update(&renamed, edit_of(None, Some("/moved.txt"), None)).await.unwrap();
    setup.read(&listed, View::Basic).await;
    setup.call(view("/memories")).await;
    setup.clock.advance(DAY);
    assert_eq!(expire(&setup).await, 1, "what was only listed");
    for memory in [&read, &viewed, &written, &renamed] {
        assert!(lives(&setup, memory).await);
    }
    setup.clock.advance(short_of(PERIOD, DAY));
    assert_eq!(expire(&setup).await, 4);
}

async fn nothing_expires_by_default(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    assert_eq!(memory.expires_at, None);
    setup.clock.advance(DAY * 365 * 50);
    assert_eq!(expire(&setup).await, 0);
    assert!(lives(&setup, &memory).await);
}

async fn expiry_waits_for_unwritten_reads_of_other_replicas(setup: TestEngine) {
    with_period(&setup).await;
    let (unread, read) = (setup.make("/unread.txt", "a").await, setup.make("/b.txt", "a").await);
    let other = setup.replica();
    // Its last heartbeat comes before the end of the memories' period. Reads after it
    // may not be written yet.
    setup.clock.advance(short_of(PERIOD, Duration::from_mins(1)));
    other.replica.flush().await.unwrap();
    setup.clock.advance(Duration::from_mins(2));
    assert_eq!(expire(&setup).await, 0, "the replica may have unwritten reads");
    let memory_id = read.memory.head.memory_id;
    other.memories.get(&setup.principal, setup.store_id, memory_id, View::Full).await.unwrap();
    other.replica.flush().await.unwrap();
    assert_eq!(expire(&setup).await, 1);
    assert!(lives(&setup, &read).await && !lives(&setup, &unread).await);
}

async fn replica_that_cannot_write_its_reads_stops_expiry(setup: TestEngine) {
    with_period(&setup).await;
    setup.make("/a.txt", "a").await;
    setup.clock.advance(PERIOD * 2);
    let stalled = Uuid::from_u128(7);
    let behind = setup.clock.now().minus(Duration::from_mins(5));
    let now = setup.clock.now();
    setup.index.replicas.beat(stalled, "gateway", now, behind).await.unwrap();
    setup.clock.advance(Duration::from_secs(1));
    let counts = run_on(&setup.engine, false).await;
    assert_eq!((&counts["is_stalled"], &counts["expired"]), (&json!(true), &json!(0)));
    let now = setup.clock.now();
    setup.index.replicas.beat(stalled, "gateway", now, now).await.unwrap();
    assert_eq!(expire(&setup).await, 1);
}

async fn dead_replica_stops_delaying_expiry(setup: TestEngine) {
    with_period(&setup).await;
    setup.make("/a.txt", "a").await;
    setup.clock.advance(short_of(PERIOD, SECOND));
    let died_at = setup.clock.now();
    setup.index.replicas.beat(Uuid::from_u128(7), "all", died_at, died_at).await.unwrap();
    setup.clock.advance(Duration::from_mins(9));
    assert_eq!(expire(&setup).await, 0);
    setup.clock.advance(Duration::from_mins(2));
    assert_eq!(expire(&setup).await, 1);
}

async fn pinned_memory_never_expires(setup: TestEngine) {
    with_period(&setup).await;
    let (pinned, other) = (setup.make("/a.txt", "a").await, setup.make("/b.txt", "b").await);
    let pin = |pinned| MemoryEdit { pinned: Some(pinned), ..edit_of(None, None, None) };
    let shown = setup.update(&pinned, pin(true)).await.unwrap();
    assert_eq!(shown.expires_at, None);
    setup.clock.advance(PERIOD * 3);
    assert_eq!(expire(&setup).await, 1);
    assert!(lives(&setup, &pinned).await && !lives(&setup, &other).await);
    setup.update(&pinned, pin(false)).await.unwrap();
    assert_eq!(expire(&setup).await, 1, "once it may, it does");
}

fn expires_at(at: ExpiresAt) -> MemoryEdit {
    MemoryEdit { expires_at: Some(at), ..edit_of(None, None, None) }
}

fn in_days(setup: &TestEngine, days: u32) -> Timestamp {
    setup.clock.now().plus(DAY * days)
}

async fn memory_expires_at_its_time_even_if_it_is_used(setup: TestEngine) {
    let other = setup.make("/other.txt", "a").await;
    let time = in_days(&setup, 2);
    let new = NewMemory { expires_at: Some(ExpiresAt::Time(time)), ..new_memory("/a.txt", "a") };
    let timed = setup.try_make(new).await.unwrap();
    assert_eq!(timed.expires_at, Some(time));
    let later = setup.update(&other, expires_at(ExpiresAt::Time(in_days(&setup, 3)))).await.unwrap();
    let kept = setup.make("/kept.txt", "a").await;
    setup.update(&kept, expires_at(ExpiresAt::Time(time))).await.unwrap();
    let kept = setup.update(&kept, expires_at(ExpiresAt::Never)).await.unwrap();
    assert_eq!(kept.expires_at, None);
    assert_eq!(setup.operations().await, ["created"; 3], "a time is no version");

    setup.clock.advance(short_of(DAY * 2, SECOND));
    setup.read(&timed, View::Full).await;
    assert_eq!(expire(&setup).await, 0, "a second is left");
    let listed = setup.engine.usage.of_store(&setup.principal, setup.store_id, None).await;
    let listed: Vec<_> = listed.unwrap().expiring_next.iter().map(|next| next.memory_id).collect();
    assert_eq!(listed, [&timed, &later].map(|memory| memory.memory.head.memory_id));
    setup.clock.advance(SECOND);
    assert_eq!(expire(&setup).await, 1);
    assert!(!lives(&setup, &timed).await && lives(&setup, &later).await);
    assert_eq!(setup.operations().await[0], "deleted");

    // The earlier of both times counts.
    with_period(&setup).await;
    let far = setup.update(&kept, expires_at(ExpiresAt::Time(in_days(&setup, 365)))).await.unwrap();
    assert!(far.expires_at < Some(in_days(&setup, 31)), "{:?}", far.expires_at);
    assert_eq!(expire(&setup).await, 1, "the other one");
    assert!(lives(&setup, &kept).await && !lives(&setup, &later).await);
    setup.clock.advance(PERIOD);
    assert_eq!(expire(&setup).await, 1);
}

async fn passed_expiry_time_is_accepted_again_and_spares_a_pinned_memory(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    let now = setup.clock.now();
    // A retry of a call is answered after the time, too.
    let call = || MemoryEdit {
        idempotency: Some(setup.call_named("key", "body")),
        ..expires_at(ExpiresAt::Time(now.plus(SECOND)))
    };
    setup.update(&memory, call()).await.unwrap();
    setup.clock.advance(SECOND);
    setup.update(&memory, call()).await.unwrap();

    let pin = |pinned| MemoryEdit { pinned: Some(pinned), ..edit_of(None, None, None) };
    let shown = setup.update(&memory, pin(true)).await.unwrap();
    assert_eq!(shown.expires_at, None);
    assert_eq!(expire(&setup).await, 0, "it is pinned");
    let shown = setup.update(&memory, pin(false)).await.unwrap();
    assert_eq!(shown.expires_at, Some(now.plus(SECOND)));
    assert_eq!(expire(&setup).await, 1);
}

async fn read_in_the_last_tenth_of_the_period_is_written_at_once(setup: TestEngine) {
    with_period(&setup).await;
    let (early, late, viewed, found) = (
        setup.make("/early.txt", "a").await,
        setup.make("/late.txt", "a").await,
        setup.make("/viewed.txt", "a").await,
        setup.make("/found.txt", "zebras at the lake").await,
    );
    // A replica without periodic flushes: if it died, it would lose its unwritten reads.
    let other = setup.replica();
    let read = async |memory: &ShownMemory| {
        let memory_id = memory.memory.head.memory_id;
        other.memories.get(&setup.principal, setup.store_id, memory_id, View::Full).await.unwrap();
    };
    let read_at = async |memory: &ShownMemory| -> Option<Timestamp> {
        let (tenant_id, memory_id) = (setup.principal.tenant_id, memory.memory.head.memory_id);
        let found = setup.index.memories.find(tenant_id, setup.store_id, memory_id).await.unwrap();
        match found.unwrap().target {
            MemoryTarget::Live(memory) => memory.last_read_at,
            other => panic!("{other:?}"),
        }
    };
    let written = async |memory: &ShownMemory| {
        let now = setup.clock.now();
        let is_there = async { while read_at(memory).await != Some(now) {} };
        tokio::time::timeout(Duration::from_secs(20), is_there).await.unwrap();
    };
    setup.clock.advance(PERIOD / 2);
    read(&early).await;
    setup.clock.advance(PERIOD * 2 / 5 + Duration::from_secs(1));
    setup.call_on(&other, None, view("/memories/viewed.txt")).await.unwrap();
    written(&viewed).await;
    assert!(read_at(&early).await.is_some(), "what waited goes along");
    read(&late).await;
    written(&late).await;
    let fresh = setup.make("/fresh.txt", "zebras, zebras").await;
    let query = SearchQuery { query: "zebras".to_owned(), ..SearchQuery::default() };
    let hits = other.search.find(&setup.principal, &[setup.store_id], &query).await;
    let hits = hits.unwrap().items;
    let memory_ids: Vec<_> = hits.iter().map(|hit| hit.memory_id).collect();
    assert_eq!(memory_ids, [&fresh, &found].map(|memory| memory.memory.head.memory_id));
    written(&found).await;
    setup.clock.advance(PERIOD / 10);
    assert_eq!(expire(&setup).await, 0);
}

async fn new_or_shorter_period_takes_effect_after_a_day(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    setup.clock.advance(PERIOD * 2);
    set_period(&setup, &setup.principal, setup.store_id, PERIOD).await;
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&setup).await, 0);
    let in_effect_at = setup.clock.now().plus(Duration::from_secs(1));
    let shown = setup.read(&memory, View::Basic).await;
    assert!(shown.expires_at <= Some(in_effect_at), "{:?}", shown.expires_at);
    setup.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&setup).await, 1);

    let memory = setup.make("/b.txt", "a").await;
    setup.clock.advance(DAY * 3);
    set_period(&setup, &setup.principal, setup.store_id, DAY * 2).await;
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&setup).await, 0, "shorter than before");
    set_period(&setup, &setup.principal, setup.store_id, PERIOD).await;
    setup.clock.advance(DAY);
    assert_eq!(expire(&setup).await, 0, "a longer one counts at once");
    assert!(lives(&setup, &memory).await);
}

async fn tenants_period_applies_to_stores_without_one(setup: TestEngine) {
    let limits = |secs: u64| json!({"expires_unused_after": secs}).as_object().unwrap().clone();
    let set = async |secs: u64| {
        let edit = TenantEdit { limits: limits(secs), ..TenantEdit::default() };
        setup.engine.operator.tenants.update(setup.principal.tenant_id, edit).await.unwrap();
        setup.clock.advance(Duration::from_secs(10));
    };
    let memory = setup.make("/a.txt", "a").await;
    setup.clock.advance(PERIOD * 2);
    set(PERIOD.as_secs()).await;
    assert_eq!(expire(&setup).await, 0, "it is new");
    setup.clock.advance(DAY);
    assert_eq!(expire(&setup).await, 1);
    assert!(!lives(&setup, &memory).await);

    let own = setup.make("/b.txt", "a").await;
    set_period(&setup, &setup.principal, setup.store_id, PERIOD * 3).await;
    setup.clock.advance(PERIOD * 2);
    assert_eq!(expire(&setup).await, 0, "the store's own comes first");
    set_period(&setup, &setup.principal, setup.store_id, Duration::ZERO).await;
    assert_eq!(expire(&setup).await, 0, "without it the tenant's is new again");
    setup.clock.advance(DAY);
    set(0).await;
    assert_eq!(expire(&setup).await, 0, "and the tenant has none any more");
    assert!(lives(&setup, &own).await);

    // A tenant that is made with a period shows it from the first memory on.
    let overrides =
        LimitOverrides { expires_unused_after: Some(PERIOD.as_secs()), ..LimitOverrides::default() };
    let (principal, store_id) = setup.tenant_with(overrides).await;
    setup.clock.advance(DAY * 2);
    let made = setup.engine.memories.create(&principal, store_id, new_memory("/a.txt", "a")).await.unwrap();
    assert_eq!(made.expires_at, Some(setup.clock.now().plus(PERIOD)));
}

async fn dry_run_counts_and_changes_nothing(setup: TestEngine) {
    with_period(&setup).await;
    let memory = setup.make("/a.txt", "a").await;
    setup.clock.advance(PERIOD);
    for _ in 0..2 {
        setup.clock.advance(Duration::from_micros(1));
        let counts = run_on(&setup.engine, true).await;
        assert_eq!((&counts["would_expire"], &counts["stores"]), (&json!(1), &json!(1)));
        assert!(lives(&setup, &memory).await);
    }
    assert_eq!(setup.operations().await, ["created"]);
    assert_eq!(expire(&setup).await, 1);
}

async fn deleted_memory_is_kept_exactly_for_the_retention(setup: TestEngine) {
    let memory = setup.make("/a.txt", "one").await;
    setup.clock.advance(DAY * 100);
    let edited = setup.update(&memory, edit_of(Some("two"), None, None)).await.unwrap();
    let other = setup.make("/b.txt", "other").await;
    setup.clock.advance(DAY);
    setup.delete(&edited, None).await.unwrap();
    setup.clock.advance(short_of(DAY * 30, SECOND));
    assert_eq!(drop_versions(&setup, false).await["versions"], 0);
    restore(&setup, &edited).await.unwrap();
    setup.clock.advance(DAY);
    assert_eq!(drop_versions(&setup, false).await["versions"], 0, "it is back");
    setup.delete(&edited, None).await.unwrap();
    setup.clock.advance(DAY * 30);
    assert_eq!(
        drop_versions(&setup, true).await,
        json!({"would_drop_versions": 5, "would_forget_memories": 1, "failed": 0})
    );
    assert_eq!(setup.operations().await.len(), 6, "a dry run drops nothing");
    let dropped = drop_versions(&setup, false).await;
    assert_eq!(
        dropped,
        json!({"versions": 5, "memories": 1, "blobs": 2, "failed": 0}),
        "two contents: one was restored"
    );
    assert_eq!(drop_versions(&setup, false).await["versions"], 0, "once is enough");
    let refused = restore(&setup, &edited).await;
    assert!(matches!(refused, Err(EngineError::VersionNotFound)), "{refused:?}");
    assert_eq!(setup.operations().await, ["created"]);
    setup.clock.advance(DAY);
    let job = Arc::new(keepsake_engine::jobs::DrainDeletions);
    setup.engine.jobs.run(job, RunRequest::manual(false), &CancellationToken::new()).await.unwrap();
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&other.memory.head)]);
    assert_eq!(setup.content_of(&other).await, "other");
}

async fn old_versions_of_a_live_memory_are_dropped_by_age_or_number(setup: TestEngine) {
    let with = async |limits: LimitOverrides| {
        let (principal, store_id) = setup.tenant_with(limits).await;
        let (engine, principal) = (&setup.engine, &principal);
        let made = engine.memories.create(principal, store_id, new_memory("/a.txt", "0")).await.unwrap();
        for edit in 1..4 {
            setup.clock.advance(DAY);
            let edit = edit_of(Some(&edit.to_string()), None, None);
            let memory_id = made.memory.head.memory_id;
            engine.memories.update(principal, store_id, memory_id, edit).await.unwrap();
        }
        (Arc::clone(principal), store_id, made)
    };
    let kept = async |principal: &Principal, store_id: StoreId| {
        let query = VersionQuery::default();
        let page = setup.engine.versions.list(principal, store_id, &query, View::Full).await;
        let contents = page.unwrap().items.into_iter().map(|shown| shown.content.unwrap().to_string());
        contents.collect::<Vec<_>>()
    };
    let (free, free_store, _) = with(LimitOverrides::default()).await;
    let (aged, aged_store, _) =
        with(LimitOverrides { version_age_secs: Some(DAY.as_secs()), ..LimitOverrides::default() }).await;
    let (few, few_store, made) = with(LimitOverrides {
        versions_per_memory: Some(2),
        version_retention_secs: Some(DAY.as_secs()),
        ..LimitOverrides::default()
    })
    .await;
    setup.clock.advance(DAY * 2);
    assert_eq!(drop_versions(&setup, false).await["versions"], 2);
    assert_eq!(kept(&few, few_store).await, ["3", "2"]);
    assert_eq!(kept(&aged, aged_store).await.len(), 4, "superseded not long ago");
    // Now its first version was made a retention ago, but superseded a day later.
    setup.clock.advance(DAY * 22);
    assert_eq!(drop_versions(&setup, false).await["versions"], 0);
    setup.clock.advance(DAY * 38);
    assert_eq!(drop_versions(&setup, false).await["versions"], 3);
    assert_eq!(kept(&aged, aged_store).await, ["3"], "the current one stays, however old");
    assert_eq!(kept(&few, few_store).await, ["3", "2"]);
    assert_eq!(kept(&free, free_store).await.len(), 4, "no limit by default");
    let shown =
        setup.engine.memories.get(&few, few_store, made.memory.head.memory_id, View::Full).await.unwrap();
    assert_eq!(shown.content.as_deref(), Some("3"));
}

async fn shared_blob_outlives_its_first_version(setup: TestEngine) {
    let limits = LimitOverrides {
        versions_per_memory: Some(1),
        version_retention_secs: Some(0),
        ..LimitOverrides::default()
    };
    let (principal, store_id) = setup.tenant_with(limits).await;
    let (engine, principal) = (&setup.engine, &principal);
    let made = engine.memories.create(principal, store_id, new_memory("/a.txt", "kept")).await.unwrap();
    let memory_id = made.memory.head.memory_id;
    let edit = edit_of(None, Some("/b.txt"), None);
    engine.memories.update(principal, store_id, memory_id, edit).await.unwrap();
    assert_eq!(
        drop_versions(&setup, false).await,
        json!({"versions": 1, "memories": 0, "blobs": 0, "failed": 0})
    );
    let elsewhere = setup.replica();
    let shown = elsewhere.memories.get(principal, store_id, memory_id, View::Full).await.unwrap();
    assert_eq!(shown.content.as_deref(), Some("kept"));
    let usage = engine.operator.tenants.usage(principal.tenant_id).await.unwrap().usage;
    assert_eq!((usage.versions, usage.version_bytes, usage.live_bytes), (1, 4, 4));
}
