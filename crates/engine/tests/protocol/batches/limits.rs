//! Limits, policies, scopes and archived stores under batches.

use std::collections::HashSet;
use std::sync::Arc;

use keepsake_core::limits::LimitOverrides;
use keepsake_engine::{BatchStatus, EngineError, NewKey, Precondition, Principal, StoreEdit};
use keepsake_index::Scope;

use super::{all_told, atomic, create, delete, each, hash, pin, told, update, upsert, upsert_if};
use crate::test_engine::{TestEngine, edit_of};

crate::on_every_backend! {
    operations_over_the_quota_are_left_out,
    policy_refuses_operations_with_secrets,
    batch_reveals_no_other_memories_to_a_write_only_key,
    archived_store_accepts_only_deletions,
    five_hundred_operations_are_one_commit,
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

async fn operations_over_the_quota_are_left_out(setup: TestEngine) {
    let of = |count: Option<u64>, bytes: Option<u64>| LimitOverrides {
        memories_per_store: count,
        bytes_per_store: bytes,
        ..LimitOverrides::default()
    };
    let batch = || {
        vec![
            create("/a", "12345"),
            create("/b", &"x".repeat(50)),
            create("/c", "12345"),
        ]
    };
    let full = "the memory store would hold";
    for (limits, expected) in [
        (of(Some(2), None), ["created /a", "created /b", full]),
        (of(None, Some(12)), ["created /a", full, "created /c"]),
        (
            LimitOverrides {
                bytes_per_tenant: Some(12),
                ..LimitOverrides::default()
            },
            ["created /a", "the workspace would hold", "created /c"],
        ),
    ] {
        let (principal, store_id) = setup.tenant_with(limits).await;
        let memories = &setup.engine.memories;
        let refused = memories
            .batch(&principal, store_id, atomic(batch()))
            .await
            .unwrap_err();
        let first = expected.iter().position(|told| told.contains("would hold"));
        let EngineError::OfOperation { operation, .. } = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(Some(*operation), first);
        let results = memories.batch(&principal, store_id, each(batch())).await.unwrap();
        for (result, expected) in results.iter().zip(expected) {
            assert!(told(result).starts_with(expected), "{expected}: {}", told(result));
        }
    }
}

async fn policy_refuses_operations_with_secrets(setup: TestEngine) {
    let token = "ghp_q7XkP2mZ9vRtL4wNc8YsB3hJ6dF1gT5eKpWu";
    for (policy, expected) in [
        ("off", "created"),
        ("redact", "`content` has"),
        ("reject", "`content` has"),
    ] {
        let edit = StoreEdit {
            policy: Some(policy.to_owned()),
            ..StoreEdit::default()
        };
        let stores = &setup.engine.stores;
        stores
            .update(&setup.principal, setup.store_id, edit, None)
            .await
            .unwrap();
        let path = |name: &str| format!("/{policy}/{name}");
        let batch = vec![
            create(&path("a"), token),
            create(&path("b"), "clean"),
            upsert(&path("c"), token),
        ];
        if policy != "off" {
            let refused = setup.batch(atomic(batch.clone())).await.unwrap_err();
            assert!(
                matches!(refused, EngineError::OfOperation { operation: 0, .. }),
                "{refused:?}"
            );
        }
        let told = all_told(&setup.batch(each(batch)).await.unwrap());
        assert!(told[0].starts_with(expected), "{told:?}");
        assert_eq!(told[1], format!("created /{policy}/b"));
        assert!(told[2].starts_with(expected), "{told:?}");
    }
}

async fn batch_reveals_no_other_memories_to_a_write_only_key(setup: TestEngine) {
    let writer = writer(&setup).await;
    let same = setup.make("/same", "one").await;
    setup.make("/dir/hidden", "two").await;
    let batch = each(vec![
        upsert("/same", "one"),
        upsert("/new", "x"),
        create("/dir", "x"),
        upsert_if("/other", "x", "y"),
        create("/made", "mine"),
    ]);
    let results = setup
        .engine
        .memories
        .batch(&writer, setup.store_id, batch)
        .await
        .unwrap();
    let status = |place: usize| results[place].outcome.as_ref().map(|(status, _)| *status);
    assert_eq!(status(0).unwrap(), BatchStatus::Updated);
    assert_eq!(status(1).unwrap(), BatchStatus::Updated);
    assert_eq!(status(4).unwrap(), BatchStatus::Created);
    assert_eq!(results[0].memory_id, Some(same.memory.head.memory_id));
    let Err(error) = &results[2].outcome else {
        panic!("{results:?}")
    };
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
    for result in &results {
        let Ok((_, Some(shown))) = &result.outcome else {
            continue;
        };
        assert!(shown.receipt.is_some(), "{shown:?}");
    }
    let over = each(vec![pin(&same, Some(Precondition::ContentSha256(hash("other"))))]);
    let results = setup
        .engine
        .memories
        .batch(&writer, setup.store_id, over)
        .await
        .unwrap();
    let Err(error) = &results[0].outcome else {
        panic!("{results:?}")
    };
    assert!(
        matches!(
            **error,
            EngineError::PreconditionFailed {
                current_sha256: None,
                memory_id: None,
                ..
            }
        ),
        "{error:?}"
    );
}

async fn archived_store_accepts_only_deletions(setup: TestEngine) {
    let memory = setup.make("/a", "one").await;
    let stores = &setup.engine.stores;
    stores.archive(&setup.principal, setup.store_id).await.unwrap();
    let results = setup
        .batch(each(vec![create("/b", "x"), delete(&memory, None)]))
        .await
        .unwrap();
    let told = all_told(&results);
    assert!(told[0].starts_with("the memory store is archived"), "{}", told[0]);
    assert_eq!(told[1], "deleted");
}

async fn five_hundred_operations_are_one_commit(setup: TestEngine) {
    let text = "four kilobytes of text\n".repeat(180);
    let path = |number| format!("/d{}/e{}/f{number}", number % 10, number % 7);
    let batch = (0..500).map(|number| create(&path(number), &format!("{number} {text}")));
    let results = setup.batch(atomic(batch.collect())).await.unwrap();
    assert!(
        results
            .iter()
            .all(|result| told(result).starts_with("created /d"))
    );
    let made = results
        .into_iter()
        .map(|result| *result.outcome.unwrap().1.unwrap());
    let made: Vec<_> = made.collect();
    assert_eq!(setup.content_of(&made[499]).await, format!("499 {text}"));
    let times: HashSet<_> = made.iter().map(|shown| shown.memory.updated_at).collect();
    assert_eq!(times.len(), 1, "the versions of one commit have one time");
    let edits = made
        .iter()
        .map(|memory| update(memory, edit_of(Some("short"), None, None)));
    let results = setup.batch(atomic(edits.collect())).await.unwrap();
    assert!(
        results
            .iter()
            .all(|result| told(result).starts_with("updated /d"))
    );
    let deletions = made.iter().map(|memory| delete(memory, Some("short")));
    setup.batch(atomic(deletions.collect())).await.unwrap();
    assert_eq!(setup.operations().await.len(), 20, "a page of the last versions");
    assert!(setup.head(&path(3)).await.is_none());
}
