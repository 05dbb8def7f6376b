//! Reads: what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::test_engine::{TestEngine, insert, tool_call, view};

crate::on_backend! {
    sqlite_and_s3,
    in_the_process,
    cached_content_costs_no_call_of_the_blob_store,
    reading_a_file_is_noted_and_listing_is_not,
}

crate::with_object_store! {
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
                assert!(!writer.tools.memory.call(&principal, store_id, call).await.unwrap().is_error);
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
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 1, "three reads are one row");
    assert_eq!(setup.engine.replica.flush().await.unwrap(), 0);
}
