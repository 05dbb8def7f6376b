//! When a store's sensitive-data policy is applied, and to what.

use crate::prelude::*;

on_backend! { sqlite_and_s3, in_the_process, changes_without_new_content_are_not_scanned, }

with_object_store! { policy_changed_during_a_write_applies_to_it, }

/// A token of a known form, and a part of it that must show nowhere.
const TOKEN: &str = "ghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
const SECRET: &str = "mZ9vRtL4wNc8YsB3hJ6d";

async fn set_policy(setup: &TestEngine, policy: &str) {
    setup.edit_store(StoreEdit { policy: Some(policy.to_owned()), ..StoreEdit::default() }).await;
}

/// Judging reads the content that was there before, which a replica with an empty
/// cache has to fetch.
async fn changes_without_new_content_are_not_scanned(setup: TestEngine) {
    for policy in ["reject", "redact"] {
        let memory = setup.make("/d/a.md", TOKEN).await;
        set_policy(&setup, policy).await;
        let (replica, fetches) = (setup.elsewhere(), setup.blobs.calls().get);
        replica.update(&memory, new_path("/d/b.md")).await.unwrap();
        let moved = MemoryEdit { path: Some("/d/c.md".to_owned()), ..new_content(TOKEN) };
        replica.update(&memory, moved).await.unwrap();
        replica.update(&memory, pin(true)).await.unwrap();
        replica.call(rename("/memories/d", "/memories/e")).await;
        let moved = setup.head("/e/c.md").await.expect("it was renamed");
        assert_eq!(moved.content.blob_id, memory.memory.head.content.blob_id, "{policy}");
        replica.call(delete("/memories/e")).await;
        assert_eq!(setup.head("/e/c.md").await, None);
        assert_eq!(setup.blobs.calls().get, fetches, "{policy}");
        set_policy(&setup, "off").await;
    }
}

async fn policy_changed_during_a_write_applies_to_it(setup: TestEngine) {
    let memory = setup.make("/a.md", "one\n").await;
    let change_meanwhile = async |before: &str, meanwhile: &'static str| {
        set_policy(&setup, before).await;
        let other = setup.elsewhere();
        setup.blobs.before_put(once(async move { set_policy(&other, meanwhile).await }));
    };
    let refusal = "refuses: github_token in line 1";

    change_meanwhile("off", "reject").await;
    let made = setup.try_make(new_memory("/b.md", TOKEN)).await.unwrap_err();
    assert!(made.to_string().ends_with(refusal), "{made}");
    change_meanwhile("off", "redact").await;
    let updated = setup.update(&memory, new_content(TOKEN)).await.unwrap_err();
    assert!(updated.to_string().ends_with(refusal), "{updated}");
    change_meanwhile("off", "reject").await;
    assert!(setup.try_call(insert("/memories/a.md", 1, TOKEN)).await.unwrap().is_error);
    change_meanwhile("off", "redact").await;
    let said = setup.create("/memories/c.md", TOKEN).await;
    assert!(said.contains("1 secret replaced"), "{said}");
    assert_eq!(setup.text_at("/memories/c.md").await, "[redacted:github_token]");
    for key in setup.blobs_there().await {
        let bytes = setup.blobs.inner().get(&key, u64::MAX).await.unwrap().unwrap();
        assert!(!str::from_utf8(&bytes).unwrap().contains(SECRET), "that of the first attempt is removed");
    }

    // To a laxer policy: the content is scanned again, and stored unchanged.
    change_meanwhile("redact", "off").await;
    setup.create("/memories/d.md", TOKEN).await;
    assert_eq!(setup.text_at("/memories/d.md").await, TOKEN);
}
