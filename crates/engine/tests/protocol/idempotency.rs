//! Idempotency keys: calls of two credentials are never taken for one.

use std::sync::Arc;

use keepsake_core::StoreId;
use keepsake_engine::{Engine, MEMORY_TOOL, NewKey, Principal, ToolAnswer};
use keepsake_index::Scope;
use serde_json::{Value, json};

use crate::bed::{Bed, create, insert, tool_call};

crate::on_both_databases! {
    same_block_of_two_credentials_is_two_calls,
    same_request_key_of_two_credentials_is_two_calls,
}

/// Another key of the same tenant.
async fn another_key(bed: &Bed) -> Arc<Principal> {
    let new = NewKey {
        tenant_id: bed.principal.tenant_id,
        name: "another".to_owned(),
        scopes: Scope::ALL.to_vec(),
        store_ids: None,
        expires_at: None,
    };
    let (_, secret) = bed.engine.operator().create_key(new).await.unwrap();
    bed.engine.authenticate(secret.expose()).await.unwrap()
}

async fn call(
    engine: &Engine,
    principal: &Arc<Principal>,
    store_id: StoreId,
    tool: &str,
    input: Value,
) -> ToolAnswer {
    let call = tool_call(Some("toolu_1"), input);
    let answer = engine
        .call_tool_named(principal, store_id, tool, call)
        .await
        .unwrap();
    assert!(!answer.is_error, "{}", answer.content);
    answer
}

async fn same_block_of_two_credentials_is_two_calls(bed: Bed) {
    bed.create("/memories/log.txt", "").await;
    let theirs = another_key(&bed).await;
    let calls = [
        (MEMORY_TOOL, insert("/memories/log.txt", 0, "memory tool")),
        (
            "memory_append",
            json!({"path": "/memories/log.txt", "content": "agent tool\n"}),
        ),
    ];
    for (tool, input) in calls {
        // Each is sent twice: a call that is sent again is still done once.
        for principal in [&bed.principal, &theirs, &bed.principal, &theirs] {
            call(&bed.engine, principal, bed.store_id, tool, input.clone()).await;
        }
    }
    let text = bed.text_at(&bed.engine, "/memories/log.txt").await;
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let expected = ["memory tool", "memory tool", "agent tool", "agent tool"];
    assert_eq!(lines, expected);
}

async fn same_request_key_of_two_credentials_is_two_calls(bed: Bed) {
    let theirs = another_key(&bed).await;
    let named = |principal: &Principal| {
        bed.engine
            .idempotent_call(principal, "POST", "/somewhere", "key", b"body")
            .unwrap()
    };
    assert_ne!(named(&bed.principal).scope_sha256, named(&theirs).scope_sha256);
    for (principal, path) in [(&bed.principal, "/memories/a"), (&theirs, "/memories/b")] {
        let mut call = tool_call(None, create(path, "one"));
        call.idempotency = Some(named(principal));
        let answer = bed.engine.call_tool(principal, bed.store_id, call).await.unwrap();
        assert!(!answer.is_error, "{}", answer.content);
        assert!(bed.head(path.trim_start_matches("/memories")).await.is_some());
    }
}
