//! Expiry: never what was read within its time, always what is past it.

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, Timestamp};
use keepsake_engine::jobs::{ExpireUnused, ExpireVersions, RunOutcome, RunRequest, run_job};
use keepsake_engine::{
    Clock, Engine, EngineError, MemoryEdit, Principal, Restoration, SearchQuery, ShownMemory, StoreEdit,
    TenantEdit, VersionQuery, View,
};
use keepsake_index::{MemoryTarget, Operation};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::bed::{Bed, edit_of, new_memory, view};

crate::on_every_bed! {
    memory_past_its_period_is_deleted_by_nobody_and_comes_back,
    memory_that_was_read_or_written_lives_on,
    nothing_expires_by_default,
    reads_that_another_replica_has_not_written_are_waited_for,
    replica_that_cannot_write_its_reads_stops_expiry,
    replica_that_died_is_forgotten_after_a_while,
    pinned_memory_never_expires,
    read_in_the_last_tenth_of_a_life_is_written_at_once,
    new_or_shorter_period_takes_effect_after_a_day,
    tenants_period_holds_where_a_store_has_none,
    dry_run_tells_and_changes_nothing,
    run_that_was_stopped_is_gone_on_with,
    deleted_memory_is_kept_for_the_retention_and_no_longer,
    history_of_a_live_memory_goes_by_age_or_number_alone,
    shared_blob_outlives_the_version_that_brought_it,
}

pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const PERIOD: Duration = Duration::from_hours(30 * 24);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn short_of(whole: Duration, part: Duration) -> Duration {
    whole.checked_sub(part).unwrap()
}

pub(crate) async fn run_on(engine: &Engine, dry_run: bool) -> Value {
    match run_job(
        engine,
        Arc::new(ExpireUnused),
        RunRequest::manual(dry_run),
        &CancellationToken::new(),
    )
    .await
    .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        other => panic!("{other:?}"),
    }
}

/// Runs the job; answers how many memories expired. No two runs begin at once.
pub(crate) async fn expire(bed: &Bed) -> u64 {
    bed.clock.advance(Duration::from_micros(1));
    let counts = run_on(&bed.engine, false).await;
    assert_eq!(counts["failed"], 0, "{counts}");
    counts["expired"].as_u64().unwrap()
}

async fn drop_versions(bed: &Bed, dry_run: bool) -> Value {
    bed.clock.advance(Duration::from_micros(1));
    let (job, request) = (Arc::new(ExpireVersions), RunRequest::manual(dry_run));
    match run_job(&bed.engine, job, request, &CancellationToken::new())
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        other => panic!("{other:?}"),
    }
}

async fn set_period(bed: &Bed, principal: &Arc<Principal>, store_id: StoreId, period: Duration) {
    let edit = StoreEdit {
        expires_unused_after: Some(period.as_secs()),
        ..StoreEdit::default()
    };
    bed.engine
        .update_store(principal, store_id, edit, None)
        .await
        .unwrap();
}

/// A bed whose store has a period that is in effect.
pub(crate) async fn with_period(bed: &Bed) {
    set_period(bed, &bed.principal, bed.store_id, PERIOD).await;
    bed.clock.advance(DAY);
}

async fn lives(bed: &Bed, memory: &ShownMemory) -> bool {
    let (tenant_id, memory_id) = (bed.principal.tenant_id, memory.memory.head.memory_id);
    let found = bed
        .index
        .memories
        .find(tenant_id, bed.store_id, memory_id)
        .await
        .unwrap();
    matches!(found.unwrap().target, MemoryTarget::Live(_))
}

pub(crate) async fn restore(bed: &Bed, memory: &ShownMemory) -> Result<ShownMemory, EngineError> {
    let restoration = Restoration {
        precondition: None,
        view: View::Full,
        idempotency: None,
    };
    let version_id = memory.memory.head.version_id;
    bed.engine
        .restore_version(&bed.principal, bed.store_id, version_id, restoration)
        .await
}

async fn memory_past_its_period_is_deleted_by_nobody_and_comes_back(bed: Bed) {
    with_period(&bed).await;
    let memory = bed.make("/a/b.txt", "kept").await;
    assert_eq!(memory.expires_at, Some(bed.clock.now().plus(PERIOD)));
    bed.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&bed).await, 0, "a second is left");
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&bed).await, 1);
    assert!(!lives(&bed, &memory).await);
    let last = bed
        .engine
        .versions(
            &bed.principal,
            bed.store_id,
            &VersionQuery::default(),
            View::Basic,
        )
        .await
        .unwrap()
        .items
        .remove(0)
        .version;
    assert_eq!(
        (last.operation, last.created_by),
        (Operation::Deleted, None),
        "by nobody"
    );
    let store = bed.engine.store(&bed.principal, bed.store_id).await.unwrap();
    assert_eq!((store.memory_count, store.live_bytes), (0, 0));
    assert_eq!(expire(&bed).await, 0, "run twice, it finds nothing");

    let back = restore(&bed, &memory).await.unwrap();
    assert_eq!(back.content.as_deref(), Some("kept"));
    bed.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&bed).await, 0, "its life runs from the restoration");
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&bed).await, 1);
}

async fn memory_that_was_read_or_written_lives_on(bed: Bed) {
    with_period(&bed).await;
    let read = bed.make("/read.txt", "a").await;
    let viewed = bed.make("/viewed.txt", "a").await;
    let written = bed.make("/written.txt", "a").await;
    let renamed = bed.make("/renamed.txt", "a").await;
    let listed = bed.make("/listed.txt", "a").await;
    bed.clock.advance(short_of(PERIOD, DAY));
    bed.read(&read, View::Full).await;
    bed.call(view("/memories/viewed.txt")).await;
    bed.update(&written, edit_of(Some("b"), None, None))
        .await
        .unwrap();
    bed.update(&renamed, edit_of(None, Some("/moved.txt"), None))
        .await
        .unwrap();
    bed.read(&listed, View::Basic).await;
    bed.call(view("/memories")).await;
    bed.clock.advance(DAY);
    assert_eq!(expire(&bed).await, 1, "what was only listed");
    for memory in [&read, &viewed, &written, &renamed] {
        assert!(lives(&bed, memory).await);
    }
    bed.clock.advance(short_of(PERIOD, DAY));
    assert_eq!(expire(&bed).await, 4);
}

async fn nothing_expires_by_default(bed: Bed) {
    let memory = bed.make("/a.txt", "a").await;
    assert_eq!(memory.expires_at, None);
    bed.clock.advance(DAY * 365 * 50);
    assert_eq!(expire(&bed).await, 0);
    assert!(lives(&bed, &memory).await);
}

async fn reads_that_another_replica_has_not_written_are_waited_for(bed: Bed) {
    with_period(&bed).await;
    let (unread, read) = (bed.make("/unread.txt", "a").await, bed.make("/b.txt", "a").await);
    let other = bed.replica();
    // Its last sign of life comes before the memories' time is up, and nothing of
    // what was read there since is written.
    bed.clock.advance(short_of(PERIOD, Duration::from_mins(1)));
    other.flush_access().await.unwrap();
    bed.clock.advance(Duration::from_mins(2));
    assert_eq!(expire(&bed).await, 0, "who knows what was read there");
    let memory_id = read.memory.head.memory_id;
    other
        .memory(&bed.principal, bed.store_id, memory_id, View::Full)
        .await
        .unwrap();
    other.flush_access().await.unwrap();
    assert_eq!(expire(&bed).await, 1);
    assert!(lives(&bed, &read).await && !lives(&bed, &unread).await);
}

async fn replica_that_cannot_write_its_reads_stops_expiry(bed: Bed) {
    with_period(&bed).await;
    bed.make("/a.txt", "a").await;
    bed.clock.advance(PERIOD * 2);
    let stalled = Uuid::from_u128(7);
    let behind = bed.clock.now().minus(Duration::from_mins(5));
    let now = bed.clock.now();
    bed.index
        .replicas
        .beat(stalled, "gateway", now, behind)
        .await
        .unwrap();
    bed.clock.advance(Duration::from_secs(1));
    let counts = run_on(&bed.engine, false).await;
    assert_eq!(
        (&counts["is_stalled"], &counts["expired"]),
        (&json!(true), &json!(0))
    );
    let now = bed.clock.now();
    bed.index
        .replicas
        .beat(stalled, "gateway", now, now)
        .await
        .unwrap();
    assert_eq!(expire(&bed).await, 1);
}

async fn replica_that_died_is_forgotten_after_a_while(bed: Bed) {
    with_period(&bed).await;
    bed.make("/a.txt", "a").await;
    bed.clock.advance(short_of(PERIOD, SECOND));
    let died_at = bed.clock.now();
    bed.index
        .replicas
        .beat(Uuid::from_u128(7), "all", died_at, died_at)
        .await
        .unwrap();
    bed.clock.advance(Duration::from_mins(9));
    assert_eq!(expire(&bed).await, 0);
    bed.clock.advance(Duration::from_mins(2));
    assert_eq!(expire(&bed).await, 1);
}

async fn pinned_memory_never_expires(bed: Bed) {
    with_period(&bed).await;
    let (pinned, other) = (bed.make("/a.txt", "a").await, bed.make("/b.txt", "b").await);
    let pin = |pinned| MemoryEdit {
        pinned: Some(pinned),
        ..edit_of(None, None, None)
    };
    let shown = bed.update(&pinned, pin(true)).await.unwrap();
    assert_eq!(shown.expires_at, None);
    bed.clock.advance(PERIOD * 3);
    assert_eq!(expire(&bed).await, 1);
    assert!(lives(&bed, &pinned).await && !lives(&bed, &other).await);
    bed.update(&pinned, pin(false)).await.unwrap();
    assert_eq!(expire(&bed).await, 1, "once it may, it does");
}

async fn read_in_the_last_tenth_of_a_life_is_written_at_once(bed: Bed) {
    with_period(&bed).await;
    let (early, late, viewed, found) = (
        bed.make("/early.txt", "a").await,
        bed.make("/late.txt", "a").await,
        bed.make("/viewed.txt", "a").await,
        bed.make("/found.txt", "zebras at the lake").await,
    );
    // A replica that never flushes by itself, and would die with what it knows.
    let other = bed.replica();
    let read = async |memory: &ShownMemory| {
        let memory_id = memory.memory.head.memory_id;
        other
            .memory(&bed.principal, bed.store_id, memory_id, View::Full)
            .await
            .unwrap();
    };
    let read_at = async |memory: &ShownMemory| -> Option<Timestamp> {
        let (tenant_id, memory_id) = (bed.principal.tenant_id, memory.memory.head.memory_id);
        let found = bed
            .index
            .memories
            .find(tenant_id, bed.store_id, memory_id)
            .await
            .unwrap();
        match found.unwrap().target {
            MemoryTarget::Live(memory) => memory.last_read_at,
            other => panic!("{other:?}"),
        }
    };
    let written = async |memory: &ShownMemory| {
        let now = bed.clock.now();
        let is_there = async { while read_at(memory).await != Some(now) {} };
        tokio::time::timeout(Duration::from_secs(20), is_there)
            .await
            .unwrap();
    };
    bed.clock.advance(PERIOD / 2);
    read(&early).await;
    bed.clock.advance(PERIOD * 2 / 5 + Duration::from_secs(1));
    bed.call_on(&other, None, view("/memories/viewed.txt"))
        .await
        .unwrap();
    written(&viewed).await;
    assert!(read_at(&early).await.is_some(), "what waited goes along");
    read(&late).await;
    written(&late).await;
    let fresh = bed.make("/fresh.txt", "zebras, zebras").await;
    let query = SearchQuery {
        query: "zebras".to_owned(),
        ..SearchQuery::default()
    };
    let hits = other.search(&bed.principal, &[bed.store_id], &query).await;
    let hits = hits.unwrap().items;
    let memory_ids: Vec<_> = hits.iter().map(|hit| hit.memory_id).collect();
    assert_eq!(
        memory_ids,
        [&fresh, &found].map(|memory| memory.memory.head.memory_id)
    );
    written(&found).await;
    bed.clock.advance(PERIOD / 10);
    assert_eq!(expire(&bed).await, 0);
}

async fn new_or_shorter_period_takes_effect_after_a_day(bed: Bed) {
    let memory = bed.make("/a.txt", "a").await;
    bed.clock.advance(PERIOD * 2);
    set_period(&bed, &bed.principal, bed.store_id, PERIOD).await;
    bed.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&bed).await, 0);
    let in_effect_at = bed.clock.now().plus(Duration::from_secs(1));
    let shown = bed.read(&memory, View::Basic).await;
    assert!(shown.expires_at <= Some(in_effect_at), "{:?}", shown.expires_at);
    bed.clock.advance(Duration::from_secs(1));
    assert_eq!(expire(&bed).await, 1);

    let memory = bed.make("/b.txt", "a").await;
    bed.clock.advance(DAY * 3);
    set_period(&bed, &bed.principal, bed.store_id, DAY * 2).await;
    bed.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&bed).await, 0, "shorter than before");
    set_period(&bed, &bed.principal, bed.store_id, PERIOD).await;
    bed.clock.advance(DAY);
    assert_eq!(expire(&bed).await, 0, "a longer one counts at once");
    assert!(lives(&bed, &memory).await);
}

async fn tenants_period_holds_where_a_store_has_none(bed: Bed) {
    let limits = |secs: u64| json!({"expires_unused_after": secs}).as_object().unwrap().clone();
    let set = async |secs: u64| {
        let edit = TenantEdit {
            limits: limits(secs),
            ..TenantEdit::default()
        };
        bed.engine
            .operator()
            .update_tenant(bed.principal.tenant_id, edit)
            .await
            .unwrap();
        bed.clock.advance(Duration::from_secs(10));
    };
    let memory = bed.make("/a.txt", "a").await;
    bed.clock.advance(PERIOD * 2);
    set(PERIOD.as_secs()).await;
    assert_eq!(expire(&bed).await, 0, "it is new");
    bed.clock.advance(DAY);
    assert_eq!(expire(&bed).await, 1);
    assert!(!lives(&bed, &memory).await);

    let own = bed.make("/b.txt", "a").await;
    set_period(&bed, &bed.principal, bed.store_id, PERIOD * 3).await;
    bed.clock.advance(PERIOD * 2);
    assert_eq!(expire(&bed).await, 0, "the store's own comes first");
    set_period(&bed, &bed.principal, bed.store_id, Duration::ZERO).await;
    assert_eq!(expire(&bed).await, 0, "without it the tenant's is new again");
    bed.clock.advance(DAY);
    set(0).await;
    assert_eq!(expire(&bed).await, 0, "and the tenant has none any more");
    assert!(lives(&bed, &own).await);

    // A tenant that is made with a period shows it from the first memory on.
    let overrides = LimitOverrides {
        expires_unused_after: Some(PERIOD.as_secs()),
        ..LimitOverrides::default()
    };
    let (principal, store_id) = bed.tenant_with(overrides).await;
    bed.clock.advance(DAY * 2);
    let made = bed
        .engine
        .create_memory(&principal, store_id, new_memory("/a.txt", "a"))
        .await
        .unwrap();
    assert_eq!(made.expires_at, Some(bed.clock.now().plus(PERIOD)));
}

async fn dry_run_tells_and_changes_nothing(bed: Bed) {
    with_period(&bed).await;
    let memory = bed.make("/a.txt", "a").await;
    bed.clock.advance(PERIOD);
    for _ in 0..2 {
        bed.clock.advance(Duration::from_micros(1));
        let counts = run_on(&bed.engine, true).await;
        assert_eq!(
            (&counts["would_expire"], &counts["stores"]),
            (&json!(1), &json!(1))
        );
        assert!(lives(&bed, &memory).await);
    }
    assert_eq!(bed.operations().await, ["created"]);
    assert_eq!(expire(&bed).await, 1);
}

async fn run_that_was_stopped_is_gone_on_with(bed: Bed) {
    with_period(&bed).await;
    let other = bed
        .engine
        .operator()
        .create_store(bed.principal.tenant_id, "b")
        .await
        .unwrap();
    set_period(&bed, &bed.principal, other.store_id, PERIOD).await;
    for store_id in [bed.store_id, other.store_id] {
        bed.engine
            .create_memory(&bed.principal, store_id, new_memory("/a.txt", "a"))
            .await
            .unwrap();
    }
    bed.clock.advance(PERIOD * 2);
    let stopping = CancellationToken::new();
    stopping.cancel();
    let job = Arc::new(ExpireUnused);
    let ran = run_job(&bed.engine, job, RunRequest::SCHEDULED, &stopping)
        .await
        .unwrap();
    let RunOutcome::Ran(counts) = ran else {
        panic!("{ran:?}");
    };
    assert_eq!(counts["expired"], 1, "it stops after its first batch");
    bed.clock.advance(Duration::from_hours(1));
    let (replica, none) = (bed.replica(), CancellationToken::new());
    let (one, two) = tokio::join!(
        run_job(&bed.engine, Arc::new(ExpireUnused), RunRequest::SCHEDULED, &none),
        run_job(&replica, Arc::new(ExpireUnused), RunRequest::SCHEDULED, &none),
    );
    let expired = |outcome: RunOutcome| match outcome {
        RunOutcome::Ran(counts) => counts["expired"].as_u64().unwrap(),
        RunOutcome::NotOurs => 0,
        RunOutcome::Failed(error) => panic!("{error}"),
    };
    assert_eq!(
        expired(one.unwrap()) + expired(two.unwrap()),
        1,
        "one replica runs the slot"
    );
}

async fn deleted_memory_is_kept_for_the_retention_and_no_longer(bed: Bed) {
    let memory = bed.make("/a.txt", "one").await;
    bed.clock.advance(DAY * 100);
    let edited = bed
        .update(&memory, edit_of(Some("two"), None, None))
        .await
        .unwrap();
    let other = bed.make("/b.txt", "other").await;
    bed.clock.advance(DAY);
    bed.delete(&edited, None).await.unwrap();
    bed.clock.advance(short_of(DAY * 30, SECOND));
    assert_eq!(drop_versions(&bed, false).await["versions"], 0);
    restore(&bed, &edited).await.unwrap();
    bed.clock.advance(DAY);
    assert_eq!(drop_versions(&bed, false).await["versions"], 0, "it is back");
    bed.delete(&edited, None).await.unwrap();
    bed.clock.advance(DAY * 30);
    assert_eq!(
        drop_versions(&bed, true).await,
        json!({"would_drop_versions": 5, "would_forget_memories": 1, "failed": 0})
    );
    assert_eq!(bed.operations().await.len(), 6, "a dry run drops nothing");
    let dropped = drop_versions(&bed, false).await;
    assert_eq!(
        dropped,
        json!({"versions": 5, "memories": 1, "blobs": 2, "failed": 0}),
        "two contents: one was restored"
    );
    assert_eq!(drop_versions(&bed, false).await["versions"], 0, "once is enough");
    let refused = restore(&bed, &edited).await;
    assert!(
        matches!(refused, Err(EngineError::VersionNotFound)),
        "{refused:?}"
    );
    assert_eq!(bed.operations().await, ["created"]);
    bed.clock.advance(DAY);
    let job = Arc::new(keepsake_engine::jobs::DrainDeletions);
    run_job(
        &bed.engine,
        job,
        RunRequest::manual(false),
        &CancellationToken::new(),
    )
    .await
    .unwrap();
    assert_eq!(bed.blobs_there().await, [bed.blob_key(&other.memory.head)]);
    assert_eq!(bed.content_of(&other).await, "other");
}

async fn history_of_a_live_memory_goes_by_age_or_number_alone(bed: Bed) {
    let with = async |limits: LimitOverrides| {
        let (principal, store_id) = bed.tenant_with(limits).await;
        let (engine, principal) = (&bed.engine, &principal);
        let made = engine
            .create_memory(principal, store_id, new_memory("/a.txt", "0"))
            .await
            .unwrap();
        for edit in 1..4 {
            bed.clock.advance(DAY);
            let edit = edit_of(Some(&edit.to_string()), None, None);
            let memory_id = made.memory.head.memory_id;
            engine
                .update_memory(principal, store_id, memory_id, edit)
                .await
                .unwrap();
        }
        (Arc::clone(principal), store_id, made)
    };
    let kept = async |principal: &Principal, store_id: StoreId| {
        let query = VersionQuery::default();
        let page = bed.engine.versions(principal, store_id, &query, View::Full).await;
        let contents = page
            .unwrap()
            .items
            .into_iter()
            .map(|shown| shown.content.unwrap().to_string());
        contents.collect::<Vec<_>>()
    };
    let (free, free_store, _) = with(LimitOverrides::default()).await;
    let (aged, aged_store, _) = with(LimitOverrides {
        version_age_secs: Some(DAY.as_secs()),
        ..LimitOverrides::default()
    })
    .await;
    let (few, few_store, made) = with(LimitOverrides {
        versions_per_memory: Some(2),
        version_retention_secs: Some(DAY.as_secs()),
        ..LimitOverrides::default()
    })
    .await;
    bed.clock.advance(DAY * 2);
    assert_eq!(drop_versions(&bed, false).await["versions"], 2);
    assert_eq!(kept(&few, few_store).await, ["3", "2"]);
    assert_eq!(kept(&aged, aged_store).await.len(), 4, "superseded not long ago");
    bed.clock.advance(DAY * 60);
    assert_eq!(drop_versions(&bed, false).await["versions"], 3);
    assert_eq!(
        kept(&aged, aged_store).await,
        ["3"],
        "the current one stays, however old"
    );
    assert_eq!(kept(&few, few_store).await, ["3", "2"]);
    assert_eq!(kept(&free, free_store).await.len(), 4, "no limit by default");
    let shown = bed
        .engine
        .memory(&few, few_store, made.memory.head.memory_id, View::Full)
        .await
        .unwrap();
    assert_eq!(shown.content.as_deref(), Some("3"));
}

async fn shared_blob_outlives_the_version_that_brought_it(bed: Bed) {
    let limits = LimitOverrides {
        versions_per_memory: Some(1),
        version_retention_secs: Some(0),
        ..LimitOverrides::default()
    };
    let (principal, store_id) = bed.tenant_with(limits).await;
    let (engine, principal) = (&bed.engine, &principal);
    let made = engine
        .create_memory(principal, store_id, new_memory("/a.txt", "kept"))
        .await
        .unwrap();
    let memory_id = made.memory.head.memory_id;
    let edit = edit_of(None, Some("/b.txt"), None);
    engine
        .update_memory(principal, store_id, memory_id, edit)
        .await
        .unwrap();
    assert_eq!(
        drop_versions(&bed, false).await,
        json!({"versions": 1, "memories": 0, "blobs": 0, "failed": 0})
    );
    let elsewhere = bed.replica();
    let shown = elsewhere
        .memory(principal, store_id, memory_id, View::Full)
        .await
        .unwrap();
    assert_eq!(shown.content.as_deref(), Some("kept"));
    let usage = engine.operator().usage(principal.tenant_id).await.unwrap().usage;
    assert_eq!((usage.versions, usage.version_bytes, usage.live_bytes), (1, 4, 4));
}
