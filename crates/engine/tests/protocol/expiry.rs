//! Expiry: memories past their period are deleted, memories read within it never.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;

use crate::access::last_read_at;
use crate::prelude::*;
use crate::removals::{below, erase};

on_both_databases! {
    expired_memory_without_a_pin_is_deleted_by_nobody_and_can_be_restored,
    dead_replica_stops_delaying_expiry,
    stopped_expiry_is_continued,
    memory_expires_at_its_time_even_if_it_is_used,
    passed_expiry_time_is_accepted_again_and_spares_a_pinned_memory,
    read_in_the_last_tenth_of_the_period_is_written_at_once,
    new_or_shorter_period_takes_effect_after_a_day,
    tenants_period_applies_to_stores_without_one,
    deleted_memory_is_kept_exactly_for_the_retention,
    old_versions_of_a_live_memory_are_dropped_by_age_or_number,
    shared_blob_outlives_its_first_version,
    daily_counts_equal_a_recount_of_the_log,
    expiry_is_exact_for_random_histories,
}

// On Postgres with content in the index, too.
on_backend! {
    postgres, on_postgres,
    deleted_memory_is_kept_exactly_for_the_retention,
    shared_blob_outlives_its_first_version,
}

pub(crate) const PERIOD: Duration = Duration::from_hours(30 * 24);
const OTHER_REPLICA: Uuid = Uuid::from_u128(7);

/// Runs the job; answers how many memories expired.
pub(crate) async fn expire(setup: &TestEngine) -> u64 {
    let counts = setup.run(ExpireUnused).await;
    assert_eq!(counts["failed"], 0, "{counts}");
    counts["expired"].as_u64().unwrap()
}

async fn set_period(setup: &TestEngine, period: Duration) {
    let edit = StoreEdit { expires_unused_after: Some(period.as_secs()), ..StoreEdit::default() };
    setup.edit_store(edit).await;
}

pub(crate) async fn with_period(setup: &TestEngine) {
    set_period(setup, PERIOD).await;
    setup.clock.advance(DAY);
}

async fn lives(setup: &TestEngine, memory: &ShownMemory) -> bool {
    let (tenant_id, memory_id) = (setup.principal.tenant_id, memory.memory.head.memory_id);
    let found = setup.index.memories.find(tenant_id, setup.store_id, memory_id).await.unwrap();
    matches!(found.unwrap().target, MemoryTarget::Live(_))
}

async fn expired_memory_without_a_pin_is_deleted_by_nobody_and_can_be_restored(setup: TestEngine) {
    with_period(&setup).await;
    let pinned = setup.make("/pinned", "a").await;
    assert_eq!(setup.update(&pinned, pin(true)).await.unwrap().expires_at, None);
    let memory = setup.make("/a/b.txt", "kept").await;
    assert_eq!(memory.expires_at, Some(setup.now().plus(PERIOD)));
    setup.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&setup).await, 0, "a second is left");
    setup.clock.advance(SECOND);
    let counts = setup.dry_run(ExpireUnused).await;
    assert_eq!((&counts["would_expire"], &counts["stores"]), (&json!(1), &json!(1)));
    assert!(lives(&setup, &memory).await);
    assert_eq!(expire(&setup).await, 1);
    assert!(!lives(&setup, &memory).await);
    let history = VersionQuery::default();
    let history = setup.engine.versions.list(&setup.principal, setup.store_id, &history, View::Basic).await;
    let last = history.unwrap().items.remove(0).version;
    assert_eq!((last.operation, last.created_by), (Operation::Deleted, None), "by nobody");
    assert_eq!(expire(&setup).await, 0, "run twice, it finds nothing");

    assert_eq!(setup.restore(&memory).await.unwrap().content.as_deref(), Some("kept"));
    setup.clock.advance(short_of(PERIOD, SECOND));
    assert_eq!(expire(&setup).await, 0, "its life runs from the restoration");
    setup.clock.advance(SECOND);
    assert_eq!(expire(&setup).await, 1);
    setup.update(&pinned, pin(false)).await.unwrap();
    assert_eq!(expire(&setup).await, 1, "once it may, it does");
}

async fn dead_replica_stops_delaying_expiry(setup: TestEngine) {
    with_period(&setup).await;
    setup.make("/a.txt", "a").await;
    setup.clock.advance(short_of(PERIOD, SECOND));
    let died_at = setup.now();
    setup.index.replicas.beat(OTHER_REPLICA, "all", died_at, died_at).await.unwrap();
    setup.clock.advance(9 * MINUTE);
    assert_eq!(expire(&setup).await, 0);
    setup.clock.advance(2 * MINUTE);
    assert_eq!(expire(&setup).await, 1);
}

async fn stopped_expiry_is_continued(setup: TestEngine) {
    with_period(&setup).await;
    setup.write_all((0..250).map(|n| (format!("/{n}"), "a".to_owned()))).await;
    let stores = &setup.engine.stores;
    let left = async || stores.get(&setup.principal, setup.store_id).await.unwrap().memory_count;
    setup.clock.advance(PERIOD);
    setup.run_stopped(ExpireUnused).await;
    let rest = left().await;
    assert!((1..250).contains(&rest), "{rest}");
    assert_eq!(setup.engine.verifier.run(8, |_| {}).await.unwrap().problems, []);
    assert_eq!(expire(&setup).await, rest);
    assert_eq!(left().await, 0);
}

fn expires_at(at: ExpiresAt) -> MemoryEdit {
    MemoryEdit { expires_at: Some(at.to_string()), ..MemoryEdit::default() }
}

fn in_days(setup: &TestEngine, days: u32) -> Timestamp {
    setup.now().plus(days * DAY)
}

async fn memory_expires_at_its_time_even_if_it_is_used(setup: TestEngine) {
    let other = setup.make("/other.txt", "a").await;
    let time = in_days(&setup, 2);
    let new = NewMemory { expires_at: Some(time.to_rfc3339()), ..new_memory("/a.txt", "a") };
    let timed = setup.try_make(new).await.unwrap();
    assert_eq!(timed.expires_at, Some(time));
    let later = setup.update(&other, expires_at(ExpiresAt::Time(in_days(&setup, 3)))).await.unwrap();
    let kept = setup.make("/kept.txt", "a").await;
    for at in [ExpiresAt::Time(time), ExpiresAt::Never] {
        setup.update(&kept, expires_at(at)).await.unwrap();
    }

    setup.clock.advance(short_of(2 * DAY, SECOND));
    setup.read(&timed, View::Full).await;
    assert_eq!(expire(&setup).await, 0, "a second is left");
    let usage = setup.engine.usage.of_store(&setup.principal, setup.store_id, None, None).await.unwrap();
    let next: Vec<_> = usage.expiring_next.iter().map(|next| next.memory_id).collect();
    assert_eq!(next, [&timed, &later].map(|memory| memory.memory.head.memory_id));
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
    let time = setup.now().plus(SECOND);
    // A retry of a call is answered after the time, too.
    let call = || MemoryEdit {
        idempotency: Some(setup.call_named("key", "body")),
        ..expires_at(ExpiresAt::Time(time))
    };
    setup.update(&memory, call()).await.unwrap();
    setup.clock.advance(SECOND);
    setup.update(&memory, call()).await.unwrap();

    let shown = setup.update(&memory, pin(true)).await.unwrap();
    assert_eq!(shown.expires_at, None);
    assert_eq!(expire(&setup).await, 0, "it is pinned");
    assert_eq!(setup.update(&memory, pin(false)).await.unwrap().expires_at, Some(time));
    assert_eq!(expire(&setup).await, 1);
}

async fn read_in_the_last_tenth_of_the_period_is_written_at_once(setup: TestEngine) {
    with_period(&setup).await;
    let early = setup.make("/early.txt", "a").await;
    let late = setup.make("/late.txt", "a").await;
    let viewed = setup.make("/viewed.txt", "a").await;
    let found = setup.make("/found.txt", "zebras at the lake").await;
    // A replica without periodic flushes: if it died, it would lose its unwritten reads.
    let other = setup.elsewhere();
    let is_written = async |memory: &ShownMemory| {
        let is_there = async { while last_read_at(&setup, memory).await != Some(setup.now()) {} };
        tokio::time::timeout(20 * SECOND, is_there).await.unwrap();
    };
    setup.clock.advance(PERIOD / 2);
    other.read(&early, View::Full).await;
    setup.clock.advance(PERIOD * 2 / 5 + SECOND);
    other.call(view("/memories/viewed.txt")).await;
    is_written(&viewed).await;
    assert!(last_read_at(&setup, &early).await.is_some(), "what waited goes along");
    other.read(&late, View::Full).await;
    is_written(&late).await;
    let fresh = setup.make("/fresh.txt", "zebras, zebras").await;
    let query = SearchQuery { query: "zebras".to_owned(), ..SearchQuery::default() };
    let hits = other.engine.search.find(&setup.principal, &[setup.store_id], &query).await.unwrap().items;
    let memory_ids: Vec<_> = hits.iter().map(|hit| hit.memory_id).collect();
    assert_eq!(memory_ids, [&fresh, &found].map(|memory| memory.memory.head.memory_id));
    is_written(&found).await;
    setup.clock.advance(PERIOD / 10);
    assert_eq!(expire(&setup).await, 0);
}

async fn new_or_shorter_period_takes_effect_after_a_day(setup: TestEngine) {
    let memory = setup.make("/a.txt", "a").await;
    assert_eq!(memory.expires_at, None);
    setup.clock.advance(DAY * 365 * 50);
    assert_eq!(expire(&setup).await, 0, "by default nothing expires");
    set_period(&setup, PERIOD).await;
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&setup).await, 0);
    let shown = setup.read(&memory, View::Basic).await;
    assert!(shown.expires_at <= Some(setup.now().plus(SECOND)), "{:?}", shown.expires_at);
    setup.clock.advance(SECOND);
    assert_eq!(expire(&setup).await, 1);

    let memory = setup.make("/b.txt", "a").await;
    setup.clock.advance(3 * DAY);
    set_period(&setup, 2 * DAY).await;
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&setup).await, 0, "shorter than before");
    set_period(&setup, PERIOD).await;
    setup.clock.advance(DAY);
    assert_eq!(expire(&setup).await, 0, "a longer one counts at once");
    assert!(lives(&setup, &memory).await);
}

async fn tenants_period_applies_to_stores_without_one(setup: TestEngine) {
    setup.make("/a.txt", "a").await;
    setup.clock.advance(2 * PERIOD);
    let limits = json!({"expires_unused_after": PERIOD.as_secs()});
    let change = TenantChange { limits: limits.as_object().unwrap().clone(), ..TenantChange::default() };
    let tenant_id = setup.principal.tenant_id;
    setup.engine.tenants.update(tenant_id, change, Auditor::OperatorCli).await.unwrap();
    setup.clock.advance(10 * SECOND);
    assert_eq!(expire(&setup).await, 0, "it is new");
    setup.clock.advance(DAY);
    assert_eq!(expire(&setup).await, 1);

    setup.make("/b.txt", "a").await;
    set_period(&setup, 3 * PERIOD).await;
    setup.clock.advance(2 * PERIOD);
    assert_eq!(expire(&setup).await, 0, "the store's own comes first");
    set_period(&setup, Duration::ZERO).await;
    setup.clock.advance(short_of(DAY, SECOND));
    assert_eq!(expire(&setup).await, 0, "without the store's own, the tenant's is new");
    setup.clock.advance(SECOND);
    assert_eq!(expire(&setup).await, 1);
    // A tenant that is made with a period shows it from the first memory on.
    let other = setup.of_tenant_with(limits).await;
    setup.clock.advance(2 * DAY);
    assert_eq!(other.make("/a.txt", "a").await.expires_at, Some(setup.now().plus(PERIOD)));
}

async fn deleted_memory_is_kept_exactly_for_the_retention(setup: TestEngine) {
    let dropped = async || setup.run(ExpireVersions).await["versions"].as_u64().unwrap();
    let memory = setup.make("/a.txt", "one").await;
    setup.clock.advance(100 * DAY);
    let edited = setup.update(&memory, new_content("two")).await.unwrap();
    let other = setup.make("/b.txt", "other").await;
    setup.clock.advance(DAY);
    setup.delete(&edited).await;
    setup.clock.advance(short_of(30 * DAY, SECOND));
    assert_eq!(dropped().await, 0);
    setup.restore(&edited).await.unwrap();
    setup.clock.advance(DAY);
    assert_eq!(dropped().await, 0, "it is back");
    setup.delete(&edited).await;
    setup.clock.advance(30 * DAY);
    let would = setup.dry_run(ExpireVersions).await;
    assert_eq!(would, json!({"would_drop_versions": 5, "would_forget_memories": 1, "failed": 0}));
    assert_eq!(setup.operations().await.len(), 6, "a dry run drops nothing");
    // Two contents: one was restored.
    let counts = setup.run(ExpireVersions).await;
    assert_eq!(counts, json!({"versions": 5, "memories": 1, "blobs": 2, "failed": 0}));
    assert_eq!(dropped().await, 0, "once is enough");
    let refused = setup.restore(&edited).await;
    assert!(matches!(refused, Err(EngineError::NotFound(ObjectKind::Version))), "{refused:?}");
    assert_eq!(setup.operations().await, ["created"]);
    setup.clock.advance(DAY);
    setup.run(DrainDeletions).await;
    assert_eq!(setup.blobs_there().await, [setup.blob_key(&other.memory.head)]);
    assert_eq!(setup.content_of(&other).await, "other");
}

async fn old_versions_of_a_live_memory_are_dropped_by_age_or_number(setup: TestEngine) {
    let with = async |limits: Value| {
        let tenant = setup.of_tenant_with(limits).await;
        let made = tenant.make("/a.txt", "0").await;
        for edit in 1..4 {
            setup.clock.advance(DAY);
            tenant.update(&made, new_content(&edit.to_string())).await.unwrap();
        }
        tenant
    };
    let kept = async |tenant: &TestEngine| {
        let (versions, query) = (&setup.engine.versions, VersionQuery::default());
        let page = versions.list(&tenant.principal, tenant.store_id, &query, View::Full).await;
        let contents = page.unwrap().items.into_iter().map(|shown| shown.content.unwrap().to_string());
        contents.collect::<Vec<_>>()
    };
    let dropped = async || setup.run(ExpireVersions).await["versions"].as_u64().unwrap();
    let free = with(json!({})).await;
    let aged = with(json!({"version_age_secs": DAY.as_secs()})).await;
    let few = with(json!({"versions_per_memory": 2, "version_retention_secs": DAY.as_secs()})).await;
    setup.clock.advance(2 * DAY);
    assert_eq!(dropped().await, 2);
    assert_eq!(kept(&few).await, ["3", "2"]);
    assert_eq!(kept(&aged).await.len(), 4, "superseded not long ago");
    // Now its first version was made a retention ago, but superseded a day later.
    setup.clock.advance(22 * DAY);
    assert_eq!(dropped().await, 0);
    setup.clock.advance(38 * DAY);
    assert_eq!(dropped().await, 3);
    assert_eq!(kept(&aged).await, ["3"], "the current one stays, however old");
    assert_eq!(kept(&few).await, ["3", "2"]);
    assert_eq!(kept(&free).await.len(), 4, "no limit by default");
    assert_eq!(few.text_at("/memories/a.txt").await, "3");
}

async fn shared_blob_outlives_its_first_version(setup: TestEngine) {
    let limits = json!({"versions_per_memory": 1, "version_retention_secs": 0});
    let tenant = setup.of_tenant_with(limits).await;
    let made = tenant.make("/a.txt", "kept").await;
    tenant.update(&made, new_path("/b.txt")).await.unwrap();
    let counts = setup.run(ExpireVersions).await;
    assert_eq!(counts, json!({"versions": 1, "memories": 0, "blobs": 0, "failed": 0}));
    assert_eq!(tenant.elsewhere().content_of(&made).await, "kept");
    let usage = setup.engine.usage.of_tenant(&tenant.principal).await.unwrap();
    assert_eq!((usage.versions, usage.version_bytes, usage.live_bytes), (1, 4, 4));
}

async fn daily_counts_equal_a_recount_of_the_log(setup: TestEngine) {
    let limits = json!({"versions_per_memory": 2, "version_retention_secs": DAY.as_secs()});
    let setup = setup.of_tenant_with(limits).await;
    let (mut recounted, mut expired, mut pruned) = (Vec::new(), 0, 0);
    let report = async || {
        setup.engine.replica.flush().await.unwrap();
        let query = DailyUseQuery { days: Some(40), store_id: None };
        let report = setup.engine.usage.daily(&setup.principal, query).await.unwrap();
        let store = setup.engine.stores.get(&setup.principal, setup.store_id).await.unwrap();
        let growth = report.most_grown.first().map_or(0, |grown| grown.growth.unsigned_abs());
        assert_eq!(growth, store.memory_count);
        report
    };
    for day in 0..30_u64 {
        if day > 0 {
            setup.clock.advance(DAY);
        }
        let began = setup.now();
        expired += expire(&setup).await;
        let expires_at = Some(in_days(&setup, 2).to_rfc3339());
        let new = NewMemory { expires_at, ..new_memory(&format!("/{day}.txt"), "new") };
        let memory = setup.try_make(new).await.unwrap();
        for edit in 0..day % 4 {
            setup.update(&memory, new_content(&edit.to_string())).await.unwrap();
        }
        let reads = day % 5;
        for _ in 0..reads {
            setup.read(&memory, View::Full).await;
        }
        if day % 3 == 0 {
            setup.delete(&memory).await;
        }
        if day % 6 == 0 {
            setup.restore(&memory).await.unwrap();
        }
        report().await;
        let query = VersionQuery { created_from: Some(began), ..VersionQuery::default() };
        let log = setup.engine.versions.list(&setup.principal, setup.store_id, &query, View::Basic).await;
        // Versions of a job are no writes.
        let writes = log.unwrap().items.iter().filter(|shown| shown.version.created_by.is_some()).count();
        recounted.push((reads, writes as u64));
        pruned += setup.run(ExpireVersions).await["versions"].as_u64().unwrap();
    }
    assert!(expired > 0 && pruned > 0, "{expired} expired, {pruned} pruned");
    setup.clock.advance(2 * DAY);
    assert!(expire(&setup).await > 0, "no read or write of this day");
    let counted: Vec<_> = report().await.data.iter().map(|of_day| (of_day.reads, of_day.writes)).collect();
    assert_eq!(counted, recounted);
    setup.make("/p/live", "a").await;
    let deleted = setup.make("/p/deleted", "b").await;
    setup.delete(&deleted).await;
    erase(&setup, below(&setup, "/p/")).await;
    report().await;
}

const MEMORIES: usize = 4;

/// What is known of a memory besides the index.
struct Life {
    memory: ShownMemory,
    /// When it was written and read.
    signs: Vec<Timestamp>,
    is_pinned: bool,
}

impl Life {
    /// Whether it was over by a time, for all that had happened by another.
    fn was_over(&self, by: Timestamp, known: Timestamp) -> bool {
        let last = self.signs.iter().filter(|sign| **sign <= known).max();
        !self.is_pinned && last.is_some_and(|last| last.plus(PERIOD) <= by)
    }
}

/// Random histories of two replicas, one of which writes its reads late. A memory that
/// was used within its period never expires, and every unused one does in the next run.
async fn expiry_is_exact_for_random_histories(setup: TestEngine) {
    with_period(&setup).await;
    // What is done, with which memory, by the second replica or with a pin, and for how long.
    let step = (0_u8..24, 0..MEMORIES, any::<bool>(), 1_u32..400);
    let (histories, seed) = (prop::collection::vec(step, 50..90), Seed::new());
    let mut runner = seed.runner(Config::default());
    let mut expired = 0;
    for history in 0..8 {
        let (second, mut second_wrote_at) = (setup.elsewhere(), setup.now());
        let mut lives: [Option<Life>; MEMORIES] = [const { None }; MEMORIES];
        for (number, life) in lives.iter_mut().enumerate() {
            let memory = setup.make(&format!("/{history}/{number}.txt"), "a").await;
            *life = Some(Life { memory, signs: vec![setup.now()], is_pinned: false });
        }
        for (kind, number, flag, time) in histories.new_tree(&mut runner).unwrap().current() {
            // A read at the moment of a flush could be written or not.
            setup.clock.advance(Duration::from_micros(1));
            match (kind, &mut lives[number]) {
                (0..5, Some(life)) => {
                    let reader = if flag { &second } else { &setup };
                    reader.read(&life.memory, View::Full).await;
                    life.signs.push(setup.now());
                }
                (5..7, Some(life)) => {
                    let text = setup.now().to_rfc3339();
                    setup.update(&life.memory, new_content(&text)).await.unwrap();
                    life.signs.push(setup.now());
                }
                (7, Some(life)) => {
                    setup.update(&life.memory, pin(flag)).await.unwrap();
                    life.is_pinned = flag;
                }
                // It has expired.
                (0..8, None) => {}
                (8..11, _) => {
                    second.engine.replica.flush().await.unwrap();
                    second_wrote_at = setup.now();
                }
                (11..16, _) => setup.clock.advance(time * HOUR),
                (16..19, _) => setup.clock.advance(time / 5 * SECOND),
                _ => expired += run_and_compare(&setup, second_wrote_at, &mut lives).await,
            }
        }
    }
    assert!(expired > 0, "no memory expired: the histories are too short");
}

/// Runs the job; answers how many memories expired.
async fn run_and_compare(
    setup: &TestEngine,
    second_wrote_at: Timestamp,
    all: &mut [Option<Life>; MEMORIES],
) -> usize {
    let (now, mut expired) = (setup.now(), 0);
    // The second replica lives, but could not write its later reads.
    setup.index.replicas.beat(OTHER_REPLICA, "gateway", now, second_wrote_at).await.unwrap();
    setup.run(ExpireUnused).await;
    let is_stalled = second_wrote_at < setup.now().minus(LIVES_FOR);
    for known in all {
        let Some(life) = known else { continue };
        if !lives(setup, &life.memory).await {
            let is_right = !is_stalled && life.was_over(second_wrote_at, second_wrote_at);
            assert!(is_right, "it was used within its time: {:?}", life.signs);
            *known = None;
            expired += 1;
        } else if !is_stalled {
            assert!(!life.was_over(second_wrote_at, now), "it is past its time: {:?}", life.signs);
        }
    }
    expired
}
