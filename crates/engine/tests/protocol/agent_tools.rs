//! The agent tools: a race at the object store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_core::ContentHash;
use keepsake_engine::ToolCall;
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, tool_call};

crate::with_object_store! {
    write_with_an_outdated_precondition_is_refused,
}

fn write(content: &str, precondition: &Value) -> ToolCall {
    let input = json!({"path": "/memories/a", "content": content, "precondition": precondition});
    tool_call(None, input)
}

fn hash(text: &str) -> String {
    ContentHash::of(text.as_bytes()).to_string()
}

async fn write_with_an_outdated_precondition_is_refused(setup: TestEngine) {
    setup.create("/memories/a", "one").await;
    let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
    let raced = Arc::new(AtomicU32::new(0));
    setup.blobs.before_put(move |_| {
        let (other, principal, raced) = (other.clone(), Arc::clone(&principal), Arc::clone(&raced));
        async move {
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                let theirs = write("theirs", &Value::Null);
                let theirs = other.tools.call(&principal, store_id, "memory_write", theirs);
                assert!(!theirs.await.unwrap().is_error);
            }
            Ok(())
        }
    });
    let ours = write("ours", &json!({"type": "content_sha256", "content_sha256": hash("one")}));
    let tools = &setup.engine.tools;
    let answer = tools.call(&setup.principal, store_id, "memory_write", ours).await;
    let answer = answer.unwrap();
    assert!(answer.is_error && answer.content.contains(&hash("theirs")), "{}", answer.content);
    assert_eq!(setup.text_at(&setup.engine, "/memories/a").await, "theirs");
}
