//! Reads: what they cost, and what they never serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use keepsake_engine::EngineError;
use serde_json::json;

use crate::test_engine::{TestEngine, insert, tool_call, view};

crate::on_every_backend! {
    damaged_content_is_never_served,
    missing_blob_is_an_error_and_not_an_empty_file,
    reading_a_file_is_noted_and_listing_is_not,
}

crate::with_object_store! {
    cached_content_costs_no_call_of_the_blob_store,
    blob_removed_between_two_reads_is_read_again,
}

async fn cached_content_costs_no_call_of_the_blob_store(setup: TestEngine) {
    setup.create("/memories/a.txt", "hello").await;
    for _ in 0..3 {
        assert_eq!(setup.text_at(&setup.engine, "/memories/a.txt").await, "hello");
    }
    assert_eq!(setup.blobs.calls().get, 0, "content just written is cached");
    let other = setup.replica();
    for _ in 0..3 {
        assert_eq!(setup.text_at(&other, "/memories/a.txt").await, "hello");
    }
    assert_eq!(setup.blobs.calls().get, 1);
}

async fn damaged_content_is_never_served(setup: TestEngine) {
    setup.create("/memories/a.txt", "hello").await;
    let key = setup.blob_key(&setup.head("/a.txt").await.unwrap());
    setup.blobs.inner().delete(&key).await.unwrap();
    setup
        .blobs
        .inner()
        .put(&key, Bytes::from_static(b"hellO"))
        .await
        .unwrap();
    let other = setup.replica();
    for _ in 0..2 {
        let served = setup.call_on(&other, None, view("/memories/a.txt")).await;
        assert!(matches!(served, Err(EngineError::Damaged(_))), "{served:?}");
    }
    let edited = setup
        .call_on(&other, None, insert("/memories/a.txt", 0, "x"))
        .await;
    assert!(matches!(edited, Err(EngineError::Damaged(_))), "{edited:?}");
}

async fn missing_blob_is_an_error_and_not_an_empty_file(setup: TestEngine) {
    setup.create("/memories/a.txt", "hello").await;
    let key = setup.blob_key(&setup.head("/a.txt").await.unwrap());
    setup.blobs.inner().delete(&key).await.unwrap();
    let served = setup
        .call_on(&setup.replica(), None, view("/memories/a.txt"))
        .await;
    assert!(matches!(served, Err(EngineError::Damaged(_))), "{served:?}");
}

async fn blob_removed_between_two_reads_is_read_again(setup: TestEngine) {
    setup.create("/memories/a.txt", "one\n").await;
    let (writer, reader) = (setup.engine.clone(), setup.replica());
    let (principal, store_id) = (Arc::clone(&setup.principal), setup.store_id);
    let (blobs, raced) = (Arc::clone(&setup.blobs), Arc::new(AtomicU32::new(0)));
    setup.blobs.before_get(move |key| {
        let (writer, principal, blobs, key) =
            (writer.clone(), Arc::clone(&principal), Arc::clone(&blobs), *key);
        let raced = Arc::clone(&raced);
        async move {
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                let call = tool_call(None, insert("/memories/a.txt", 1, "two"));
                assert!(
                    !writer
                        .tools
                        .memory
                        .call(&principal, store_id, call)
                        .await
                        .unwrap()
                        .is_error
                );
                blobs.inner().delete(&key).await.unwrap();
            }
            Ok(())
        }
    });
    assert_eq!(setup.text_at(&reader, "/memories/a.txt").await, "one\ntwo\n");
}

async fn reading_a_file_is_noted_and_listing_is_not(setup: TestEngine) {
    setup.create("/memories/a.txt", "hello").await;
    setup.create("/memories/b.txt", "hello").await;
    setup.call(view("/memories")).await;
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 0);
    for _ in 0..3 {
        setup.call(view("/memories/a.txt")).await;
    }
    let beyond = json!({"command": "view", "path": "/memories/b.txt", "view_range": [5, 9]});
    assert!(setup.try_call(beyond).await.unwrap().is_error);
    assert_eq!(
        setup.engine.replica.flush().await.unwrap(),
        1,
        "three reads are one row"
    );
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 0);
}
