//! Tool results for credentials without the scope `memory:read`.

use std::sync::Arc;

use keepsake_core::ContentHash;
use keepsake_core::tool::agent::AgentResult;
use keepsake_engine::{NewKey, Principal, StoreEdit, ToolAnswer};
use keepsake_index::Scope;
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, tool_call};

crate::on_both_databases! {
    tool_results_hide_existing_content_from_a_write_only_key,
    findings_of_an_append_have_line_numbers_of_the_request,
}

async fn writer(setup: &TestEngine) -> Arc<Principal> {
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "writes".to_owned(),
        scopes: vec![Scope::MemoryWrite],
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    setup.engine.auth.authenticate(secret.expose()).await.unwrap()
}

async fn call(setup: &TestEngine, principal: &Arc<Principal>, tool: &str, input: Value) -> ToolAnswer {
    let call = tool_call(None, input);
    let answer = setup.engine.tools.call(principal, setup.store_id, tool, call);
    answer.await.unwrap()
}

async fn tool_results_hide_existing_content_from_a_write_only_key(setup: TestEngine) {
    let writer = writer(&setup).await;
    let text = "a pelican\n".repeat(7);
    setup.create("/memories/a", &text).await;
    setup.create("/memories/dir/hidden", "x").await;
    let hash = ContentHash::of(text.as_bytes()).to_string();
    let stale = json!({"type": "content_sha256", "content_sha256": "0".repeat(64)});
    let long = "x".repeat(102_400);
    let deep = format!("/memories{}", "/d".repeat(20));
    for (tool, input, told) in [
        (
            "memory_write",
            json!({"path": "/memories/a", "content": "y", "precondition": stale}),
            "has other content",
        ),
        (
            "memory_write",
            json!({"path": "/memories/a", "content": "y", "precondition": {"type": "not_exists"}}),
            "/memories/a exists. ",
        ),
        (
            "memory_delete",
            json!({"path": "/memories/a", "expected_content_sha256": "0".repeat(64)}),
            "has other content",
        ),
        (
            "memory_append",
            json!({"path": "/memories/a", "content": long}),
            "would be over the limit",
        ),
        (
            "memory",
            json!({"command": "rename", "old_path": "/memories/dir", "new_path": deep}),
            "the new path of a file in it",
        ),
        (
            "memory",
            json!({"command": "create", "path": "/memories/a", "file_text": "y"}),
            "already exists",
        ),
    ] {
        let answer = call(&setup, &writer, tool, input.clone()).await;
        assert!(
            answer.is_error && answer.content.contains(told),
            "{input}: {}",
            answer.content
        );
        for secret in [hash.as_str(), "102471", "hidden", "pelican"] {
            assert!(!answer.content.contains(secret), "{input}: {}", answer.content);
        }
        // A key that may read is refused for the same reason.
        let read = call(&setup, &setup.principal, tool, input).await;
        assert!(read.is_error, "{}", read.content);
    }
    let append = json!({"path": "/memories/a", "content": "mine"});
    let appended = call(&setup, &writer, "memory_append", append.clone()).await;
    let Some(AgentResult::Write(file)) = appended.result else {
        panic!("{appended:?}")
    };
    assert_eq!((file.content_sha256, file.content_size_bytes), (None, None));
    let both = call(&setup, &setup.principal, "memory_append", append).await;
    let Some(AgentResult::Write(file)) = both.result else {
        panic!("{both:?}")
    };
    assert_eq!(file.content_size_bytes, Some(80));
    // The result of a write of a whole file has the hash of the written content.
    let whole = json!({"path": "/memories/a", "content": "mine"});
    let written = call(&setup, &writer, "memory_write", whole).await;
    let Some(AgentResult::Write(file)) = written.result else {
        panic!("{written:?}")
    };
    assert_eq!(file.content_sha256, Some(ContentHash::of(b"mine").to_string()));
}

async fn findings_of_an_append_have_line_numbers_of_the_request(setup: TestEngine) {
    let writer = writer(&setup).await;
    setup.create("/memories/a", &"line\n".repeat(30)).await;
    let append = json!({"path": "/memories/a", "content": "one\nghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu\n"});
    for (policy, is_error) in [("reject", true), ("redact", false)] {
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
        let answer = call(&setup, &writer, "memory_append", append.clone()).await;
        assert_eq!(answer.is_error, is_error, "{}", answer.content);
        assert!(answer.content.contains("in line 2"), "{}", answer.content);
    }
}
