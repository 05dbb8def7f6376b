//! A store's sensitive-data policy on every kind of write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keepsake_core::ContentHash;
use keepsake_engine::{EngineError, MemoryEdit, NewMemory, OnTaken, Restoration, StoreEdit, View};
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, create, edit_of, insert, new_memory};

crate::on_both_databases! {
    tool_refuses_secrets_under_the_reject_policy,
    tool_redacts_secrets_and_says_so,
    api_refuses_secrets_under_both_policies,
    content_is_not_scanned_when_the_policy_is_off,
    only_new_lines_are_scanned,
    restored_content_is_scanned_as_new,
    repeated_redacted_call_gets_the_same_answer,
    size_limit_applies_to_the_redacted_content,
}

crate::with_object_store! {
    changes_without_new_content_are_not_scanned,
    policy_changed_during_a_write_applies_to_it,
}

/// A token of a known form, and a part of it that must show nowhere.
fn token() -> (String, String) {
    let secret = "q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    (format!("ghp_{secret}"), secret[5..25].to_owned())
}

async fn set_policy(setup: &TestEngine, policy: &str) {
    let edit = StoreEdit {
        policy: Some(policy.to_owned()),
        ..StoreEdit::default()
    };
    setup
        .engine
        .stores
        .update(&setup.principal, setup.store_id, edit, None)
        .await
        .unwrap();
}

fn replace(path: &str, old: &str, new: &str) -> serde_json::Value {
    json!({"command": "str_replace", "path": path, "old_str": old, "new_str": new})
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

async fn tool_refuses_secrets_under_the_reject_policy(setup: TestEngine) {
    set_policy(&setup, "reject").await;
    setup.create("/memories/kept.md", "one\ntwo\n").await;
    let puts = Arc::new(AtomicBool::new(false));
    let has_put = Arc::clone(&puts);
    setup.blobs.before_put(move |_| {
        has_put.store(true, Ordering::SeqCst);
        async { Ok(()) }
    });
    let (token, secret) = token();
    let calls = [
        (create("/memories/a.md", &format!("\nuse {token}")), "a.md", 2),
        (replace("/memories/kept.md", "two", &token), "kept.md", 2),
        (insert("/memories/kept.md", 2, &token), "kept.md", 3),
    ];
    for (call, file, line) in calls {
        let answer = setup.try_call(call).await.unwrap();
        assert!(answer.is_error);
        assert_eq!(
            answer.content,
            format!(
                "Error: The memory store's sensitive-data policy refuses github_token in line {line} of \
                 /memories/{file}. Nothing was changed. Remove the secret; note instead where it is stored."
            )
        );
        assert!(!answer.content.contains(&secret));
    }
    assert!(!puts.load(Ordering::SeqCst), "refused before it is stored");
    assert_eq!(setup.operations().await, ["created"]);
}

async fn tool_redacts_secrets_and_says_so(setup: TestEngine) {
    set_policy(&setup, "redact").await;
    let (token, secret) = token();
    let said = setup
        .create(
            "/memories/a.md",
            &format!("use {token}\ncard 4111 1111 1111 1111\n"),
        )
        .await;
    assert_eq!(
        said,
        "File created successfully at: /memories/a.md\n2 secrets replaced by `[redacted:…]`, as the memory \
         store's sensitive-data policy requires: github_token in line 1, payment_card in line 2."
    );
    let said = setup
        .call(insert("/memories/a.md", 0, &format!("first {token}")))
        .await;
    assert_eq!(
        said,
        "The file /memories/a.md has been edited.\n1 secret replaced by `[redacted:…]`, as the memory store's \
         sensitive-data policy requires: github_token in line 1."
    );
    let said = setup
        .call(replace("/memories/a.md", "use ", &format!("{token} and ")))
        .await;
    assert_eq!(
        said,
        "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n\
         \u{20}    1\tfirst [redacted:github_token]\n\
         \u{20}    2\t[redacted:github_token] and [redacted:github_token]\n\
         \u{20}    3\tcard [redacted:payment_card]\n\
         \u{20}    4\t\n\
         1 secret replaced by `[redacted:…]`, as the memory store's sensitive-data policy requires: github_token \
         in line 2."
    );
    assert!(!blobs_hold(&setup, &secret).await && !blobs_hold(&setup, "4111").await);
}

async fn api_refuses_secrets_under_both_policies(setup: TestEngine) {
    let (token, secret) = token();
    for policy in ["reject", "redact"] {
        set_policy(&setup, policy).await;
        let memory = setup.make(&format!("/{policy}.md"), "one\n").await;
        let refused = [
            setup
                .try_make(new_memory("/new.md", &format!("a\nb {token}")))
                .await,
            setup
                .update(&memory, edit_of(Some(&format!("one\n{token}")), None, None))
                .await,
            setup
                .update(
                    &memory,
                    edit_of(Some(&format!("one\n{token}")), Some("/moved.md"), None),
                )
                .await,
            setup
                .try_make(NewMemory {
                    on_taken: OnTaken::Replace,
                    ..new_memory(&format!("/{policy}.md"), &format!("one\n{token}"))
                })
                .await,
            setup
                .try_make(NewMemory {
                    on_taken: OnTaken::Replace,
                    ..new_memory("/new.md", &format!("\n{token}"))
                })
                .await,
        ];
        for refused in refused {
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, EngineError::Invalid { field: "content", .. }),
                "{refused:?}"
            );
            assert_eq!(refused.to_string(), refusal(policy, "github_token in line 2"));
            assert!(!format!("{refused:?}").contains(&secret));
        }
    }
    assert_eq!(setup.operations().await, ["created", "created"]);
    assert!(!blobs_hold(&setup, &secret).await);
}

async fn content_is_not_scanned_when_the_policy_is_off(setup: TestEngine) {
    let (token, _) = token();
    assert_eq!(
        setup.create("/memories/a.md", &token).await,
        "File created successfully at: /memories/a.md"
    );
    let memory = setup.make("/b.md", &token).await;
    setup
        .update(&memory, edit_of(Some(&format!("{token}\n{token}")), None, None))
        .await
        .unwrap();
    assert_eq!(setup.content_of(&memory).await, format!("{token}\n{token}"));
}

async fn only_new_lines_are_scanned(setup: TestEngine) {
    let (token, _) = token();
    let memory = setup.make("/old.md", &format!("head\n{token}\n")).await;
    set_policy(&setup, "reject").await;
    setup.call(insert("/memories/old.md", 0, "new")).await;
    setup
        .call(replace("/memories/old.md", "head", "other head"))
        .await;
    let kept = format!("all new\n{token}\n");
    setup
        .update(&memory, edit_of(Some(&kept), None, None))
        .await
        .unwrap();
    assert_eq!(setup.content_of(&memory).await, kept);
    let touched = setup
        .try_call(replace("/memories/old.md", "ghp_", "x ghp_"))
        .await
        .unwrap();
    assert!(touched.is_error, "the line is new");
    let copied = edit_of(Some(&format!("{kept}{token}\n")), None, None);
    assert_eq!(
        setup.update(&memory, copied).await.unwrap_err().to_string(),
        refusal("reject", "github_token in line 3")
    );
    set_policy(&setup, "redact").await;
    setup.call(insert("/memories/old.md", 2, &token)).await;
    assert_eq!(
        setup.content_of(&memory).await,
        format!("{kept}[redacted:github_token]\n"),
        "the old line stays"
    );
}

async fn restored_content_is_scanned_as_new(setup: TestEngine) {
    let (token, _) = token();
    let memory = setup.make("/a.md", &token).await;
    setup
        .update(&memory, edit_of(Some("clean"), None, None))
        .await
        .unwrap();
    let restore = || {
        let restoration = Restoration {
            precondition: None,
            view: View::Basic,
            idempotency: None,
        };
        let version_id = memory.memory.head.version_id;
        setup
            .engine
            .memories
            .restore(&setup.principal, setup.store_id, version_id, restoration)
    };
    for policy in ["reject", "redact"] {
        set_policy(&setup, policy).await;
        assert_eq!(
            restore().await.unwrap_err().to_string(),
            refusal(policy, "github_token in line 1")
        );
    }
    assert_eq!(setup.content_of(&memory).await, "clean");
    set_policy(&setup, "off").await;
    restore().await.unwrap();
    assert_eq!(setup.content_of(&memory).await, token);
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
            replica
                .memories
                .update(&setup.principal, setup.store_id, memory_id, edit)
                .await
                .unwrap()
        };
        let call = async |input: Value| {
            let answer = setup.call_on(&replica, None, input).await.unwrap();
            assert!(!answer.is_error, "{}", answer.content);
        };
        update(edit_of(None, Some("/d/b.md"), None)).await;
        update(edit_of(Some(&token), Some("/d/c.md"), None)).await;
        let pinned = MemoryEdit {
            pinned: Some(true),
            ..edit_of(None, None, None)
        };
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
                    let edit = StoreEdit {
                        policy: Some(policy.to_owned()),
                        ..StoreEdit::default()
                    };
                    other
                        .stores
                        .update(&principal, store_id, edit, None)
                        .await
                        .unwrap();
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
    let updated = setup
        .update(&memory, edit_of(Some(&token), None, None))
        .await
        .unwrap_err();
    assert_eq!(updated.to_string(), refusal("redact", "github_token in line 1"));
    set_policy(&setup, "off").await;
    change_policy_at_the_next_put("reject");
    assert!(
        setup
            .try_call(insert("/memories/a.md", 1, &token))
            .await
            .unwrap()
            .is_error
    );
    set_policy(&setup, "off").await;
    change_policy_at_the_next_put("redact");
    let said = setup.create("/memories/c.md", &token).await;
    assert!(said.contains("1 secret replaced"), "{said}");
    assert_eq!(
        setup.text_at(&setup.engine, "/memories/c.md").await,
        "[redacted:github_token]"
    );
    assert!(
        !blobs_hold(&setup, &secret).await,
        "the blob of the first attempt is removed"
    );

    // To a laxer policy: the content is scanned again, and stored unchanged.
    change_policy_at_the_next_put("off");
    assert_eq!(
        setup.create("/memories/d.md", &token).await,
        "File created successfully at: /memories/d.md"
    );
    assert_eq!(setup.text_at(&setup.engine, "/memories/d.md").await, token);
}

async fn repeated_redacted_call_gets_the_same_answer(setup: TestEngine) {
    set_policy(&setup, "redact").await;
    let (token, _) = token();
    let calls = [
        ("toolu_1", create("/memories/a.md", &format!("{token}\nsecond\n"))),
        ("toolu_2", insert("/memories/a.md", 1, &format!("more {token}"))),
        (
            "toolu_3",
            replace("/memories/a.md", "second", &format!("{token}\nthird")),
        ),
        ("toolu_4", insert("/memories/a.md", 0, "clean")),
    ];
    let mut answers = Vec::new();
    for (id, call) in &calls {
        answers.push(
            setup
                .call_on(&setup.engine, Some(id), call.clone())
                .await
                .unwrap(),
        );
    }
    assert!(
        answers[..3]
            .iter()
            .all(|answer| answer.content.contains("1 secret replaced"))
    );
    // Under another policy too: it was made under that one.
    for policy in ["redact", "reject", "off"] {
        set_policy(&setup, policy).await;
        for ((id, call), first) in calls.iter().zip(&answers) {
            let again = setup
                .call_on(&setup.replica(), Some(id), call.clone())
                .await
                .unwrap();
            assert_eq!(again, *first, "{id} under {policy}");
        }
    }
    assert_eq!(setup.operations().await.len(), 4);
}

async fn size_limit_applies_to_the_redacted_content(setup: TestEngine) {
    set_policy(&setup, "redact").await;
    let limit = usize::try_from(setup.principal.limits.bytes_per_memory).unwrap();
    let (token, _) = token();
    // Too long as it was sent, and not once it is redacted.
    let text = format!("{}\n{token}\n", "x".repeat(limit - token.len()));
    assert!(text.len() > limit);
    setup.create("/memories/a.md", &text).await;
    let head = setup.head("/a.md").await.unwrap();
    assert!(head.size_bytes <= limit as u64);
    let stored = text.replace(&token, "[redacted:github_token]");
    assert_eq!(head.sha256, ContentHash::of(stored.as_bytes()));
}
