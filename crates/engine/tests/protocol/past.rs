//! The past of a store whose history is removed bit by bit.

use crate::prelude::*;

on_both_databases! { point_is_shown_as_it_was_or_refused_with_the_oldest_one, }

/// The memories at each sequence number.
type States = BTreeMap<i64, Vec<(MemoryPath, ContentHash)>>;

async fn note(setup: &TestEngine, states: &mut States) {
    let (memories, query) = (&setup.engine.memories, MemoryQuery::default());
    let page = memories.list(&setup.principal, setup.store_id, &query, View::Basic).await.unwrap();
    let heads = page.items.into_iter().map(|item| match item {
        ShownItem::Memory(shown) => (shown.memory.head.path.clone(), shown.memory.head.content.sha256),
        ShownItem::Prefix(path) => panic!("{path:?}"),
    });
    let newest = setup.index.past.point(setup.principal.tenant_id, setup.store_id, Moment::Newest).await;
    states.insert(newest.unwrap().seq, heads.collect());
}

/// Compares all points with the states. Answers how many are shown.
async fn shown_points(setup: &TestEngine, states: &States) -> usize {
    let (tenant_id, store_id, past) = (setup.principal.tenant_id, setup.store_id, &setup.index.past);
    let mut count = 0;
    for (&seq, state) in states {
        let at = NamedMoment::parse(("at", None), ("at_seq", Some(seq.cast_unsigned()))).unwrap().unwrap();
        let (engine, query) = (&setup.engine, MemoryQuery::default());
        let page = engine.past.list(&setup.principal, store_id, &query, at, View::Basic).await;
        match past.point(tenant_id, store_id, Moment::Seq(seq)).await {
            Ok(_) => {
                let shown = page.unwrap().items.into_iter().map(|item| match item {
                    ShownPastItem::Memory(shown) => {
                        (shown.version.path.unwrap(), shown.version.content.unwrap().sha256)
                    }
                    ShownPastItem::Prefix(path) => panic!("{path:?}"),
                });
                assert_eq!(shown.collect::<Vec<_>>(), *state, "{seq}");
                assert_eq!(scanned(setup, seq).await, *state, "{seq}");
                assert_eq!(counted(setup, seq).await, state.len() as u64, "{seq}");
                count += 1;
            }
            Err(PointError::Removed { oldest_seq, oldest_at }) => {
                assert!(seq < oldest_seq, "{seq} {oldest_seq}");
                let names = |rule: &str| {
                    rule.contains(&oldest_seq.to_string()) && rule.contains(&oldest_at.to_rfc3339())
                };
                assert!(
                    matches!(&page, Err(EngineError::Invalid { field: "at_seq", rule }) if names(rule)),
                    "{page:?}"
                );
                for moment in [Moment::Seq(oldest_seq), Moment::Time(oldest_at)] {
                    let oldest = past.point(tenant_id, store_id, moment).await.unwrap();
                    assert!(oldest.seq >= oldest_seq, "{oldest:?}");
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    count
}

/// The memories at a point, read by id in batches.
async fn scanned(setup: &TestEngine, seq: i64) -> Vec<(MemoryPath, ContentHash)> {
    let (mut found, mut next) = (Vec::new(), None);
    loop {
        let range = (None, Moment::Seq(seq));
        let past = &setup.index.past;
        let batch = past.changes(setup.principal.tenant_id, setup.store_id, range, next, 7).await.unwrap();
        let memories = batch.items.into_iter().filter_map(|[_, after]| after);
        found.extend(memories.map(|memory| (memory.path.unwrap(), memory.content.unwrap().sha256)));
        next = batch.next;
        if next.is_none() {
            found.sort_by(|(one, _), (other, _)| one.cmp(other));
            return found;
        }
    }
}

/// The number of memories at a point, counted in batches.
async fn counted(setup: &TestEngine, seq: i64) -> u64 {
    let (mut count, mut next) = (0, None);
    let (tenant_id, store_id, past) = (setup.principal.tenant_id, setup.store_id, &setup.index.past);
    loop {
        let batch = past.count(tenant_id, store_id, Moment::Seq(seq), next, 7).await.unwrap();
        (count, next) = (count + batch.0, batch.1);
        if next.is_none() {
            return count;
        }
    }
}

async fn point_is_shown_as_it_was_or_refused_with_the_oldest_one(setup: TestEngine) {
    let limits = json!({"versions_per_memory": 2, "version_retention_secs": DAY.as_secs()});
    let setup = setup.of_tenant_with(limits).await;
    let mut states = States::new();
    note(&setup, &mut states).await;
    let mut live: Vec<ShownMemory> = Vec::new();
    let mut counts = Vec::new();
    for step in 0..24_usize {
        setup.clock.advance(4 * HOUR);
        match step % 6 {
            0 => live.push(setup.make(&format!("/{step}.txt"), "made").await),
            5 if live.len() > 2 => setup.delete(&live.remove(0)).await,
            4 => {
                setup.update(&live[0], new_path(&format!("/renamed-{step}.txt"))).await.unwrap();
            }
            _ => {
                let memory = &live[step % live.len()];
                setup.update(memory, new_content(&step.to_string())).await.unwrap();
            }
        }
        note(&setup, &mut states).await;
        if step % 8 == 7 {
            setup.run(ExpireVersions).await;
            counts.push(shown_points(&setup, &states).await);
        }
    }
    assert!(counts.iter().all(|count| (1..states.len()).contains(count)), "{counts:?} of {}", states.len());
    // After many changes, the changed memories are found in another way.
    let shown = shown_points(&setup, &states).await;
    for part in 0..3 {
        setup.write_all((0..400).map(|n| (format!("/new/{part}/{n}"), "x".to_owned()))).await;
    }
    assert_eq!(shown_points(&setup, &states).await, shown);
    // The deleted memories are removed, and with them the points at which they were there.
    setup.clock.advance(2 * DAY);
    setup.run(ExpireVersions).await;
    shown_points(&setup, &states).await;
}
