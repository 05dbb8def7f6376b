//! The end of tenants, and the keys that they make for themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use keepsake_blobs::BlobError;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::jobs::{DeleteTenants, PurgeStores, RunOutcome, RunRequest};
use keepsake_engine::{AuditQuery, Clock, EngineError, KeyDraft, PageRequest, Principal};
use keepsake_index::{DeletionState, Scope, TenantDeletion, VersionCounts};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::test_engine::{TestEngine, create};

crate::on_every_backend! {
    credentials_of_a_deleted_tenant_are_refused,
    key_grants_no_more_than_its_own_rights,
    bound_key_sees_only_keys_of_its_stores,
    revoked_key_is_refused_on_every_replica_within_five_seconds,
}

crate::with_object_store! {
    deletion_leaves_no_row_and_no_blob,
    interrupted_deletion_is_resumed,
    write_during_the_deletion_leaves_nothing,
}

async fn run(setup: &TestEngine) -> Value {
    match setup
        .engine
        .jobs
        .run(
            Arc::new(DeleteTenants),
            RunRequest::SCHEDULED,
            &CancellationToken::new(),
        )
        .await
        .unwrap()
    {
        RunOutcome::Ran(counts) => counts,
        outcome => panic!("{outcome:?}"),
    }
}

async fn report(setup: &TestEngine) -> TenantDeletion {
    let operator = &setup.engine.operator;
    operator
        .tenants
        .deletion(setup.principal.tenant_id)
        .await
        .unwrap()
}

async fn delete(setup: &TestEngine) {
    let begun = setup
        .engine
        .operator
        .tenants
        .delete(setup.principal.tenant_id)
        .await;
    assert_eq!(begun.unwrap().state, DeletionState::Removing);
}

/// A blob of the test's tenant that no row names.
async fn orphan(setup: &TestEngine, number: u128) {
    setup
        .blobs
        .inner()
        .put(&orphan_key(setup, number), Bytes::from_static(b"orphan"))
        .await
        .unwrap();
}

fn orphan_key(setup: &TestEngine, number: u128) -> BlobKey {
    BlobKey {
        tenant_id: setup.principal.tenant_id,
        store_id: StoreId::from_uuid(Uuid::from_u128(number)),
        blob_id: VersionId::from_uuid(Uuid::from_u128(number)),
    }
}

async fn deletion_leaves_no_row_and_no_blob(setup: TestEngine) {
    for number in 0..3 {
        setup.create(&format!("/memories/{number}"), "12345").await;
    }
    orphan(&setup, 1).await;
    let (other, _) = setup.tenant_with(LimitOverrides::default()).await;
    let usage = setup
        .engine
        .operator
        .tenants
        .usage(other.tenant_id)
        .await
        .unwrap();
    delete(&setup).await;
    // Other purges and drains leave the counting to the deletion.
    setup
        .engine
        .jobs
        .run(
            Arc::new(PurgeStores),
            RunRequest::SCHEDULED,
            &CancellationToken::new(),
        )
        .await
        .unwrap();

    let counts = run(&setup).await;
    assert_eq!(counts["settling"], 1, "{counts}");
    assert_eq!(counts["blobs"], 4, "{counts}");
    assert_eq!(setup.blobs_there().await, []);
    let settling = report(&setup).await;
    assert_eq!(
        (settling.state, settling.ended_at),
        (DeletionState::Settling, None)
    );
    assert_eq!((settling.blobs, settling.blob_bytes), (4, 3 * 5 + 6));
    assert_eq!(
        (
            settling.rows["version"],
            settling.rows["memory"],
            settling.rows["store"]
        ),
        (3, 3, 1)
    );

    // The deletion is not done while an earlier request may still be running.
    orphan(&setup, 2).await;
    setup.clock.advance(Duration::from_mins(59));
    assert_eq!(run(&setup).await["done"], 0);
    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let done = report(&setup).await;
    assert_eq!(
        (done.state, done.ended_at),
        (DeletionState::Done, Some(setup.clock.now()))
    );
    assert_eq!((done.blobs, done.rows["tenant"]), (5, 1));
    assert_eq!(done.object_versions, versions(0, 5));
    let gone = setup.engine.operator.tenants.get(setup.principal.tenant_id).await;
    assert!(matches!(gone, Err(EngineError::TenantNotFound)));
    assert_eq!(
        setup
            .engine
            .operator
            .tenants
            .usage(other.tenant_id)
            .await
            .unwrap(),
        usage
    );

    setup.clock.advance(Duration::from_mins(1));
    let again = setup
        .engine
        .operator
        .tenants
        .delete(setup.principal.tenant_id)
        .await;
    assert_eq!(again.unwrap(), done);
    assert_eq!(run(&setup).await["done"], 0);
}

/// Blobs whose versions were all deleted, and blobs without versions; none are kept.
const fn versions(deleted: u64, not_versioned: u64) -> VersionCounts {
    VersionCounts {
        deleted,
        not_versioned,
        kept: 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_leaves_no_object_version_of_deleted_blobs() {
    let (setup, bucket) = TestEngine::sqlite_and_versioned_s3().await;
    setup.create("/memories/live", "12345").await;
    // As the queue removes what a deleted store had, long ago.
    for store in [1, 2] {
        orphan(&setup, store).await;
        setup
            .blobs
            .inner()
            .delete(&orphan_key(&setup, store))
            .await
            .unwrap();
    }
    let of_another = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(9)),
        ..orphan_key(&setup, 9)
    };
    let text = Bytes::from_static(b"another's");
    setup.blobs.inner().put(&of_another, text).await.unwrap();
    // Each deleted one is a version and a delete marker.
    assert_eq!(bucket.objects(&setup).await, bucket.either(1 + 2 * 2 + 1, 2));
    delete(&setup).await;
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let settling = report(&setup).await;
    assert_eq!(
        (settling.blobs, settling.object_versions),
        (1, bucket.either(versions(3, 0), versions(0, 1)))
    );

    // A late blob that its writer removed again.
    orphan(&setup, 3).await;
    setup.blobs.inner().delete(&orphan_key(&setup, 3)).await.unwrap();
    setup.clock.advance(Duration::from_hours(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(bucket.objects(&setup).await, 1, "another tenant's");
    let done = report(&setup).await;
    assert_eq!(
        (done.state, done.object_versions),
        (DeletionState::Done, bucket.either(versions(4, 0), versions(0, 1)))
    );
}

/// With credentials of the object store that may only write and delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_reports_versions_that_it_could_not_delete() {
    let setup = TestEngine::sqlite_and_s3().await;
    setup.create("/memories/live", "12345").await;
    delete(&setup).await;
    let kept = |seen| VersionCounts {
        kept: seen,
        ..VersionCounts::default()
    };
    // Versions cannot be listed: at least the blob that was just removed has some.
    setup.blobs.keep_versions(Some(0));
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(report(&setup).await.object_versions, kept(1));
    // Two versions can be listed, but not deleted.
    setup.blobs.keep_versions(Some(2));
    setup.clock.advance(Duration::from_hours(1));
    let counts = run(&setup).await;
    assert_eq!(
        (&counts["done"], &counts["older_versions_kept"]),
        (&1.into(), &2.into())
    );
    let done = report(&setup).await;
    assert_eq!((done.state, done.object_versions), (DeletionState::Done, kept(2)));
}

async fn interrupted_deletion_is_resumed(setup: TestEngine) {
    for number in 0..6 {
        setup.create(&format!("/memories/{number}"), "12345").await;
    }
    delete(&setup).await;
    // The third removal fails, and the run's counting is ahead of it.
    let removals = Arc::new(AtomicU64::new(0));
    setup.blobs.before_delete(move |_| {
        let many = removals.fetch_add(1, Ordering::SeqCst);
        async move {
            if many == 2 {
                return Err(BlobError::Unavailable("as the test wants it".to_owned()));
            }
            Ok(())
        }
    });
    let counts = run(&setup).await;
    assert_eq!(counts["failed"], 1, "{counts}");
    assert_eq!(counts["settling"], 0, "{counts}");
    setup.blobs.clear_hooks();
    assert!(!setup.blobs_there().await.is_empty());
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    // A cancelled worker ends after its batch.
    setup.clock.advance(Duration::from_mins(1));
    let stopping = CancellationToken::new();
    stopping.cancel();
    setup
        .engine
        .jobs
        .run(Arc::new(DeleteTenants), RunRequest::SCHEDULED, &stopping)
        .await
        .unwrap();
    assert_eq!(report(&setup).await.state, DeletionState::Removing);

    setup.clock.advance(Duration::from_mins(1));
    assert_eq!(run(&setup).await["settling"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let report = report(&setup).await;
    assert_eq!((report.blobs, report.blob_bytes), (6, 30), "each is counted once");
    assert_eq!(report.rows["version"], 6);
}

async fn write_during_the_deletion_leaves_nothing(setup: TestEngine) {
    setup.create("/memories/before", "12345").await;
    let (engine, tenant_id) = (setup.engine.clone(), setup.principal.tenant_id);
    // All is removed between the look at the store and the content's arrival.
    setup.blobs.before_put(move |_| {
        let engine = engine.clone();
        async move {
            engine.operator.tenants.delete(tenant_id).await.unwrap();
            let ran = engine
                .jobs
                .run(
                    Arc::new(DeleteTenants),
                    RunRequest::SCHEDULED,
                    &CancellationToken::new(),
                )
                .await;
            assert!(matches!(ran, Ok(RunOutcome::Ran(_))), "{ran:?}");
            Ok(())
        }
    });
    // From then on nothing can be removed: the refused write's blob stays.
    let blobs = Arc::clone(&setup.blobs);
    setup.blobs.after_put(move |_| {
        blobs.before_delete(|_| async { Err(BlobError::Unavailable("as the test wants it".to_owned())) });
        async { Ok(()) }
    });
    let refused = setup.try_call(create("/memories/late", "late")).await;
    assert!(matches!(refused, Err(EngineError::StoreNotFound)), "{refused:?}");
    setup.blobs.clear_hooks();
    assert_eq!(report(&setup).await.state, DeletionState::Settling);
    assert_eq!(setup.blobs_there().await.len(), 1, "an orphan that came late");
    setup.clock.advance(Duration::from_hours(1));
    assert_eq!(run(&setup).await["done"], 1);
    assert_eq!(setup.blobs_there().await, []);
    let done = report(&setup).await;
    assert_eq!((done.blobs, done.rows["version"]), (2, 1));
}

async fn credentials_of_a_deleted_tenant_are_refused(setup: TestEngine) {
    let other = setup.replica();
    let made = setup
        .engine
        .keys
        .create(&setup.principal, draft(&[Scope::MemoryRead]), None)
        .await
        .unwrap();
    let secret = made.secret.unwrap();
    other.auth.authenticate(secret.expose()).await.unwrap();
    delete(&setup).await;
    setup.clock.advance(Duration::from_secs(5));
    for engine in [&setup.engine, &other] {
        let refused = engine.auth.authenticate(secret.expose()).await;
        assert!(
            matches!(
                refused,
                Err(EngineError::Unauthenticated("the API key is unknown"))
            ),
            "{refused:?}"
        );
    }
    // A request that was let in before finds the tenant gone.
    let refused = setup
        .engine
        .keys
        .create(&setup.principal, draft(&[Scope::MemoryRead]), None)
        .await;
    assert!(
        matches!(refused, Err(EngineError::Unauthenticated(_))),
        "{refused:?}"
    );
}

fn draft(scopes: &[Scope]) -> KeyDraft {
    KeyDraft {
        name: "made".to_owned(),
        scopes: scopes.to_vec(),
        store_ids: None,
        expires_at: None,
    }
}

/// A key that the test's own makes, and who presents it.
async fn made(setup: &TestEngine, draft: KeyDraft) -> Arc<Principal> {
    let made = setup
        .engine
        .keys
        .create(&setup.principal, draft, None)
        .await
        .unwrap();
    let secret = made.secret.unwrap();
    setup.engine.auth.authenticate(secret.expose()).await.unwrap()
}

fn field(refused: &EngineError) -> &'static str {
    match refused {
        EngineError::Invalid { field, .. } => field,
        other => panic!("{other}"),
    }
}

async fn key_grants_no_more_than_its_own_rights(setup: TestEngine) {
    let engine = &setup.engine;
    let end = setup.clock.now().plus(Duration::from_hours(1));
    let maker = made(
        &setup,
        KeyDraft {
            store_ids: Some(vec![setup.store_id]),
            expires_at: Some(end),
            ..draft(&[Scope::KeysAdmin, Scope::MemoryRead])
        },
    )
    .await;
    let good = KeyDraft {
        store_ids: Some(vec![setup.store_id]),
        expires_at: Some(end),
        ..draft(&[Scope::MemoryRead])
    };
    let try_make = async |draft: KeyDraft| engine.keys.create(&maker, draft, None).await;
    assert!(try_make(good.clone()).await.is_ok());

    let more_scopes = KeyDraft {
        scopes: vec![Scope::MemoryRead, Scope::MemoryWrite],
        ..good.clone()
    };
    let refused = try_make(more_scopes).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::PermissionDenied(Scope::MemoryWrite)),
        "{refused}"
    );
    let every_store = KeyDraft {
        store_ids: None,
        ..good.clone()
    };
    assert_eq!(
        field(&try_make(every_store).await.unwrap_err()),
        "memory_store_ids"
    );
    let other_store = engine
        .operator
        .create_store(setup.principal.tenant_id, "other")
        .await
        .unwrap();
    for store_id in [other_store.store_id, StoreId::from_uuid(Uuid::from_u128(7))] {
        let draft = KeyDraft {
            store_ids: Some(vec![setup.store_id, store_id]),
            ..good.clone()
        };
        let refused = try_make(draft).await.unwrap_err();
        assert!(matches!(refused, EngineError::StoreNotFound), "{refused}");
    }
    for expires_at in [None, Some(end.plus(Duration::from_micros(1)))] {
        let draft = KeyDraft {
            expires_at,
            ..good.clone()
        };
        assert_eq!(field(&try_make(draft).await.unwrap_err()), "expires_at");
    }
    let past = KeyDraft {
        expires_at: Some(setup.clock.now()),
        ..good.clone()
    };
    assert_eq!(field(&try_make(past).await.unwrap_err()), "expires_at");
    assert_eq!(
        field(
            &try_make(KeyDraft {
                scopes: vec![],
                ..good.clone()
            })
            .await
            .unwrap_err()
        ),
        "scopes"
    );
    let without = made(&setup, draft(&[Scope::MemoryRead])).await;
    let refused = engine.keys.create(&without, good, None).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::PermissionDenied(Scope::KeysAdmin)),
        "{refused}"
    );
    let all = engine
        .keys
        .list(&setup.principal, &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(all.items.len(), 4, "refused requests created no keys");
}

async fn bound_key_sees_only_keys_of_its_stores(setup: TestEngine) {
    let engine = &setup.engine;
    let bound = KeyDraft {
        store_ids: Some(vec![setup.store_id]),
        ..draft(&[Scope::KeysAdmin])
    };
    let admin = made(&setup, bound.clone()).await;
    let unbound = engine
        .keys
        .create(&setup.principal, draft(&[Scope::MemoryRead]), None);
    let unbound = unbound.await.unwrap().issued.key.api_key_id;
    for _ in 0..4 {
        made(&setup, bound.clone()).await;
    }
    let (mut seen, mut page) = (Vec::new(), None);
    loop {
        let request = PageRequest { limit: Some(2), page };
        let keys = engine.keys.list(&admin, &request).await.unwrap();
        seen.extend(keys.items.into_iter().map(|issued| issued.key.api_key_id));
        page = keys.next;
        if page.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 5);
    assert!(!seen.contains(&unbound));
    for refused in [
        engine.keys.get(&admin, unbound).await,
        engine.keys.revoke(&admin, unbound).await,
    ] {
        assert!(matches!(refused, Err(EngineError::KeyNotFound)), "{refused:?}");
    }
    let still = engine.keys.get(&setup.principal, unbound).await.unwrap();
    assert_eq!(still.revoked_at, None);
    assert!(
        engine
            .keys
            .revoke(&admin, seen[0])
            .await
            .unwrap()
            .revoked_at
            .is_some()
    );
}

async fn revoked_key_is_refused_on_every_replica_within_five_seconds(setup: TestEngine) {
    let other = setup.replica();
    let made = setup
        .engine
        .keys
        .create(&setup.principal, draft(&[Scope::MemoryRead]), None)
        .await
        .unwrap();
    let secret = made.secret.unwrap();
    other.auth.authenticate(secret.expose()).await.unwrap();
    let key_id = made.issued.key.api_key_id;
    setup.engine.keys.revoke(&setup.principal, key_id).await.unwrap();
    setup.clock.advance(Duration::from_secs(5));
    for engine in [&setup.engine, &other] {
        let refused = engine.auth.authenticate(secret.expose()).await;
        assert!(
            matches!(
                refused,
                Err(EngineError::Unauthenticated("the API key has been revoked"))
            ),
            "{refused:?}"
        );
    }
    let entries = setup
        .engine
        .operator
        .audit(setup.principal.tenant_id, &AuditQuery::default())
        .await
        .unwrap();
    let by = format!("api_key:{}", setup.principal.actor.id());
    let own: Vec<_> = entries
        .items
        .iter()
        .filter(|entry| entry.object_id == Some(key_id.uuid()))
        .map(|entry| (entry.actor.as_str(), entry.action.as_str()))
        .collect();
    assert_eq!(own.len(), 2);
    assert!(own.contains(&(by.as_str(), "api_key.create")) && own.contains(&(by.as_str(), "api_key.revoke")));
}
