//! When a store's sensitive-data policy is applied, and to what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keepsake_engine::{MemoryEdit, StoreEdit};
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, edit_of, insert, new_memory};

crate::on_backend! { sqlite_and_s3, in_the_process, changes_without_new_content_are_not_scanned, }

crate::with_object_store! {
    policy_changed_during_a_write_applies_to_it,
}

/// A token of a known form, and a part of it that must show nowhere.
fn token() -> (String, String) {
    let secret = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    (format!("ghp_{secret}"), secret[5..25].to_owned())
}

async fn set_policy(setup: &TestEngine, policy: &str) {
    let edit = StoreEdit { policy: Some(policy.to_owned()), ..StoreEdit::default() };
    setup.engine.stores.update(&setup.principal, setup.store_id, edit, None).await.unwrap();
}

/// The rule by which the API refuses the token in `line`.
fn refusal(policy: &str, found: &str) -> String {
    format!("`content` has what the memory store's sensitive-data policy (`{policy}`) refuses: {found}")
}

async fn blobs_hold(setup: &TestEngine, text: &str) -> bool {
    for key in setup.blobs_there().await {
        let bytes = setup.blobs.inner().get(&key, u64::MAX).await.unwrap().unwrap();
        if str::from_utf8(&bytes).unwrap().contains(text) {
            return true;
        }
    }
    false
}

/// Judging reads the content that was there before, which a replica with an empty
/// cache has to fetch.
async fn changes_without_new_content_are_not_scanned(setup: TestEngine) {
    let (token, _) = token();
    for policy in ["reject", "redact"] {
        let memory = setup.make("/d/a.md", &token).await;
        set_policy(&setup, policy).await;
        let (replica, fetches) = (setup.replica(), setup.blobs.calls().get);
        let update = async |edit: MemoryEdit| {
            let memory_id = memory.memory.head.memory_id;
            replica.memories.update(&setup.principal, setup.store_id, memory_id, edit).await.unwrap()
        };
        let call = async |input: Value| {
            let answer = setup.call_on(&replica, None, input).await.unwrap();
            assert!(!answer.is_error, "{}", answer.content);
        };
        update(edit_of(None, Some("/d/b.md"), None)).await;
        update(edit_of(Some(&token), Some("/d/c.md"), None)).await;
        let pinned = MemoryEdit { pinned: Some(true), ..edit_of(None, None, None) };
        update(pinned).await;
        call(json!({"command": "rename", "old_path": "/memories/d", "new_path": "/memories/e"})).await;
        let moved = setup.head("/e/c.md").await.expect("it was renamed");
        assert_eq!(moved.blob_id, memory.memory.head.blob_id, "{policy}");
        call(json!({"command": "delete", "path": "/memories/e"})).await;
        assert_eq!(setup.head("/e/c.md").await, None);
        assert_eq!(setup.blobs.calls().get, fetches, "{policy}");
        set_policy(&setup, "off").await;
    }
}

async fn policy_changed_during_a_write_applies_to_it(setup: TestEngine) {
    let (token, secret) = token();
    let setup = Arc::new(setup);
    let memory = setup.make("/a.md", "one\n").await;
    let change_policy_at_the_next_put = |policy: &'static str| {
        let (other, principal, store_id) = (setup.replica(), Arc::clone(&setup.principal), setup.store_id);
        let is_done = Arc::new(AtomicBool::new(false));
        setup.blobs.before_put(move |_| {
            let (other, principal, is_done) = (other.clone(), Arc::clone(&principal), Arc::clone(&is_done));
            async move {
                if !is_done.swap(true, Ordering::SeqCst) {
                    let edit = StoreEdit { policy: Some(policy.to_owned()), ..StoreEdit::default() };
                    other.stores.update(&principal, store_id, edit, None).await.unwrap();
                }
                Ok(())
            }
        });
    };

    change_policy_at_the_next_put("reject");
    let made = setup.try_make(new_memory("/b.md", &token)).await.unwrap_err();
    assert_eq!(made.to_string(), refusal("reject", "github_token in line 1"));
    set_policy(&setup, "off").await;
    change_policy_at_the_next_put("redact");
    let updated = setup.update(&memory, edit_of(Some(&token), None, None)).await.unwrap_err();
    assert_eq!(updated.to_string(), refusal("redact", "github_token in line 1"));
    set_policy(&setup, "off").await;
    change_policy_at_the_next_put("reject");
    assert!(setup.try_call(insert("/memories/a.md", 1, &token)).await.unwrap().is_error);
    set_policy(&setup, "off").await;
    change_policy_at_the_next_put("redact");
    let said = setup.create("/memories/c.md", &token).await;
    assert!(said.contains("1 secret replaced"), "{said}");
    assert_eq!(setup.text_at(&setup.engine, "/memories/c.md").await, "[redacted:github_token]");
    assert!(!blobs_hold(&setup, &secret).await, "the blob of the first attempt is removed");

    // To a laxer policy: the content is scanned again, and stored unchanged.
    change_policy_at_the_next_put("off");
    assert_eq!(setup.create("/memories/d.md", &token).await, "File created successfully at: /memories/d.md");
    assert_eq!(setup.text_at(&setup.engine, "/memories/d.md").await, token);
}
