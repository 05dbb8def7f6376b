//! Content: stored once under its own key, cached, and, in the index, removed with its
//! version.

use crate::prelude::*;

with_index_content! {
    content_of_expired_versions_and_purged_stores_is_removed_at_once,
    content_that_no_version_names_is_not_stored,
}

with_object_store! { blob_removed_between_two_reads_is_read_again, }

on_backend! { sqlite_and_s3, in_the_process, cached_content_costs_no_call_of_the_object_store, }

async fn content_of_expired_versions_and_purged_stores_is_removed_at_once(setup: TestEngine) {
    let delaying = setup.delaying();
    setup.delete(&setup.make("/a.txt", "one").await).await;
    setup.clock.advance(30 * DAY);
    assert_eq!(delaying.run(ExpireVersions).await["blobs"], 1);
    assert_eq!(setup.blobs_there().await, []);
    for number in 0..3 {
        setup.make(&format!("/{number}"), "text").await;
    }
    delaying.engine.stores.delete(&setup.principal, setup.store_id).await.unwrap();
    assert_eq!(delaying.run(PurgeStores).await["blobs"], 3);
    assert_eq!(setup.blobs_there().await, []);
    setup.clock.advance(7 * DAY);
    assert_eq!(delaying.run(DrainDeletions).await["failed"], 0);
}

async fn content_that_no_version_names_is_not_stored(setup: TestEngine) {
    let memory = setup.make("/a.txt", "kept").await;
    let named = setup.blob_key(&memory.memory.head);
    for key in [setup.orphan_key(7), named] {
        setup.blobs.inner().put(&key, Bytes::from_static(b"another")).await.unwrap();
    }
    assert_eq!(setup.blobs_there().await, [named]);
    assert_eq!(setup.elsewhere().text_at("/memories/a.txt").await, "kept");
    let swept = setup.worker().run(SweepBlobs::default()).await;
    assert_eq!((&swept["blobs"], &swept["condemned"], &swept["missing"]), (&json!(1), &json!(0), &json!(0)));
    // Nor that of a refused write.
    for taken in ["/a.txt", "/a.txt/b"] {
        let refused = setup.try_make(new_memory(taken, "two")).await;
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    }
    let outdated = Precondition::ContentSha256(ContentHash::of(b"another"));
    let edit = MemoryEdit { precondition: Some(outdated), ..new_content("two") };
    let refused = setup.update(&memory, edit).await;
    assert!(matches!(refused, Err(EngineError::PreconditionFailed { .. })), "{refused:?}");
    let tenant = setup.of_tenant_with(json!({"bytes_per_store": 10})).await;
    tenant.try_make(new_memory("/a.txt", "more than ten bytes")).await.unwrap_err();
    // A restored content must fit the limit of today.
    setup.delete(&memory).await;
    let (mut limited, mut principal) = (setup.clone(), (*setup.principal).clone());
    principal.limits.bytes_per_memory = 2;
    limited.principal = Arc::new(principal);
    let refused = limited.restore(&memory).await;
    assert!(matches!(refused, Err(EngineError::Invalid { field: "content", .. })), "{refused:?}");
    assert_eq!(setup.blobs_there().await, [named]);
}

async fn cached_content_costs_no_call_of_the_object_store(setup: TestEngine) {
    for number in 0..25 {
        setup.make(&format!("/{number:02}"), &number.to_string()).await;
    }
    let query = MemoryQuery { page: PageRequest { limit: Some(100), page: None }, ..MemoryQuery::default() };
    let replica = setup.elsewhere().engine;
    for (engine, gets) in [(&setup.engine, 0), (&replica, 20), (&replica, 20)] {
        let page = engine.memories.list(&setup.principal, setup.store_id, &query, View::Full).await.unwrap();
        assert_eq!(page.items.len(), 20, "a page with content is clamped");
        assert_eq!(setup.blobs.calls().get, gets);
    }
}

async fn blob_removed_between_two_reads_is_read_again(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let (writer, first) = (setup.clone(), setup.blobs_there().await[0]);
    setup.blobs.before_get(once(async move {
        writer.call(insert("/memories/a.txt", 1, "two")).await;
        writer.blobs.inner().delete(&first).await.unwrap();
    }));
    assert_eq!(setup.elsewhere().text_at("/memories/a.txt").await, "one\ntwo\n");
}
