//! Idempotency keys: calls of two credentials are never taken for one.

use std::sync::Arc;

use keepsake_core::StoreId;
use keepsake_engine::{Engine, MEMORY_TOOL, NewKey, Principal, ToolAnswer};
use keepsake_index::Scope;
use serde_json::{Value, json};

use crate::test_engine::{TestEngine, create, insert, tool_call};

crate::on_both_databases! {
    same_block_of_two_credentials_is_two_calls,
    same_request_key_of_two_credentials_is_two_calls,
}

/// Another key of the same tenant.
async fn another_key(setup: &TestEngine) -> Arc<Principal> {
    let new = NewKey {
        tenant_id: setup.principal.tenant_id,
        name: "another".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = setup.engine.operator.keys.create(new).await.unwrap();
    setup.engine.auth.authenticate(secret.expose()).await.unwrap()
}

async fn call(
    engine: &Engine,
    principal: &Arc<Principal>,
    store_id: StoreId,
    tool: &str,
    input: Value,
) -> ToolAnswer {
    let call = tool_call(Some("toolu_1"), input);
    let answer = engine.tools.call(principal, store_id, tool, call).await.unwrap();
    assert!(!answer.is_error, "{}", answer.content);
    answer
}

async fn same_block_of_two_credentials_is_two_calls(setup: TestEngine) {
    setup.create("/memories/log.txt", "").await;
    let theirs = another_key(&setup).await;
    let calls = [
        (MEMORY_TOOL, insert("/memories/log.txt", 0, "memory tool")),
        (
            "memory_append",
            json!({"path": "/memories/log.txt", "content": "agent tool\n"}),
        ),
    ];
    for (tool, input) in calls {
        // Each is sent twice: a call that is sent again is still done once.
        for principal in [&setup.principal, &theirs, &setup.principal, &theirs] {
            call(&setup.engine, principal, setup.store_id, tool, input.clone()).await;
        }
    }
    let text = setup.text_at(&setup.engine, "/memories/log.txt").await;
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let expected = ["memory tool", "memory tool", "agent tool", "agent tool"];
    assert_eq!(lines, expected);
}

async fn same_request_key_of_two_credentials_is_two_calls(setup: TestEngine) {
    let theirs = another_key(&setup).await;
    let named = |principal: &Principal| {
        setup
            .engine
            .calls
            .of_request(principal, "POST", "/somewhere", "key", b"body")
            .unwrap()
    };
    assert_ne!(named(&setup.principal).scope_sha256, named(&theirs).scope_sha256);
    for (principal, path) in [(&setup.principal, "/memories/a"), (&theirs, "/memories/b")] {
        let mut call = tool_call(None, create(path, "one"));
        call.idempotency = Some(named(principal));
        let answer = setup
            .engine
            .tools
            .memory
            .call(principal, setup.store_id, call)
            .await
            .unwrap();
        assert!(!answer.is_error, "{}", answer.content);
        assert!(setup.head(path.trim_start_matches("/memories")).await.is_some());
    }
}
