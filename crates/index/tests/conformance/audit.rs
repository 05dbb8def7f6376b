//! The audit of tenants: which actions have an entry, filters, and pruning.

use keepsake_core::{Actor, ApiKeyId, SensitiveDataPolicy, SessionId, StoreId, TenantId};
use keepsake_index::{
    Access, AttachmentName, AuditAction, AuditEntry, AuditListing, AuditObject, Auditor, Detail, Idempotency,
    Prunable, Redaction, SessionUpdate, StoreChange, StoreCreation, StoreUpdate,
};
use uuid::Uuid;

use crate::place::{
    NOW, PLENTY, Place, actor, after_seconds, audited_by, by_nobody, by_tenant, edited, new_store,
    new_tenant, next_uuid,
};
use crate::sessions::{UNLIMITED, attachment, change, new_session};
use crate::subject::Subject;

async fn listed(place: &Place, listing: &AuditListing) -> Vec<AuditEntry> {
    place.index.audit.list(place.tenant_id, listing).await.unwrap()
}

fn all() -> AuditListing {
    AuditListing {
        limit: 100,
        ..AuditListing::default()
    }
}

/// The audit entries, oldest first, without those of `Place`.
async fn told(place: &Place) -> Vec<(String, Uuid, Option<StoreId>)> {
    let mut entries = listed(place, &all()).await;
    entries.sort_by_key(|entry| entry.id);
    let entries = entries.into_iter().skip(2);
    let by = Auditor::Credential(actor()).to_string();
    entries
        .map(|entry| {
            assert_eq!(entry.actor, by);
            (entry.action, entry.object_id.unwrap(), entry.store_id)
        })
        .collect()
}

fn store_change() -> StoreChange {
    StoreChange {
        metadata_pairs_limit: 16,
        now: after_seconds(1),
        ..StoreChange::default()
    }
}

async fn update(place: &Place, change: &StoreChange, call: Option<&Idempotency>) -> StoreUpdate {
    let by = by_tenant(change.now);
    let updated = place
        .index
        .stores
        .update(place.tenant_id, place.store_id, change, call, &by);
    updated.await.unwrap()
}

fn renaming() -> StoreChange {
    StoreChange {
        name: Some("another".to_owned()),
        ..store_change()
    }
}

fn rejecting() -> StoreChange {
    StoreChange {
        policy: Some(SensitiveDataPolicy::Reject),
        ..store_change()
    }
}

pub(crate) async fn changes_of_stores_are_in_the_audit(subject: &Subject) {
    let place = Place::new(subject).await;
    let head = place.create("/a", 1).await;
    place.change(vec![edited(&head, 2)]).await;
    update(&place, &renaming(), None).await;
    update(&place, &rejecting(), None).await;
    let redaction = Redaction {
        store_id: place.store_id,
        version_id: head.version_id,
        audited: by_tenant(after_seconds(2)),
    };
    place
        .index
        .redactions
        .redact(place.tenant_id, &redaction)
        .await
        .unwrap();
    let (index, tenant_id, store_id) = (&place.index, place.tenant_id, place.store_id);
    let archived = index.stores.archive(tenant_id, store_id, &by_tenant(NOW)).await;
    archived.unwrap().unwrap();
    assert!(
        index
            .store_deletions
            .begin(tenant_id, store_id, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let store = store_id.uuid();
    let expected = [
        ("memory_store.update", store, None),
        ("memory_store.update_policy", store, None),
        ("memory_version.redact", head.version_id.uuid(), Some(store_id)),
        ("memory_store.archive", store, None),
        ("memory_store.delete", store, None),
    ];
    let expected = expected.map(|(action, object, store)| (action.to_owned(), object, store));
    assert_eq!(told(&place).await, expected);
    let first = &listed(&place, &all()).await.pop().unwrap();
    assert_eq!(first.action, "tenant.create");
}

pub(crate) async fn changes_of_sessions_are_in_the_audit(subject: &Subject) {
    let place = Place::new(subject).await;
    let other = Place::of_tenant(subject, place.tenant_id).await;
    let new = new_session(&[place.store_id], NOW);
    let (index, tenant_id, session_id) = (&place.index, place.tenant_id, new.session_id);
    let made = index
        .sessions
        .create(tenant_id, &new, &UNLIMITED, None, &by_tenant(NOW))
        .await;
    made.unwrap();
    let title = |title: &str| Detail::Describe {
        title: Some(title.to_owned()),
        metadata: Vec::new(),
        metadata_pairs_limit: 16,
    };
    let name = AttachmentName::Store(other.store_id);
    let reattach = || Detail::Reattach {
        name,
        access: Some(Access::ReadOnly),
        instructions: None,
    };
    let added = attachment(other.store_id);
    for detail in [
        title("new"),
        // It has this title already.
        title("new"),
        Detail::Attach(added.clone()),
        reattach(),
        reattach(),
        Detail::Detach(AttachmentName::Resource(added.resource_id)),
        Detail::Archive,
        Detail::Archive,
    ] {
        let changed = change(&place, session_id, detail).await;
        assert!(matches!(changed, SessionUpdate::Done(_)), "{changed:?}");
    }
    for is_there in [true, false] {
        let deleted = index
            .sessions
            .delete(tenant_id, session_id, &by_tenant(NOW))
            .await;
        assert_eq!(deleted.unwrap(), is_there);
    }
    let session = session_id.uuid();
    let expected = [
        ("session.create", None),
        ("session.update", None),
        ("session.add_resource", Some(other.store_id)),
        ("session.update_resource", Some(other.store_id)),
        ("session.delete_resource", Some(other.store_id)),
        ("session.archive", None),
        ("session.delete", None),
    ];
    let expected = expected.map(|(action, store)| (action.to_owned(), session, store));
    // The other store was made first.
    assert_eq!(told(&place).await[1..], expected);
}

pub(crate) async fn change_that_changes_nothing_is_not_in_the_audit(subject: &Subject) {
    let place = Place::new(subject).await;
    let (index, tenant_id, store_id) = (&place.index, place.tenant_id, place.store_id);
    let call = Idempotency {
        scope_sha256: [1; 32],
        request_sha256: [2; 32],
        since: after_seconds(-10),
    };
    update(&place, &renaming(), Some(&call)).await;
    assert!(matches!(
        update(&place, &renaming(), Some(&call)).await,
        StoreUpdate::Replayed(_)
    ));
    update(&place, &renaming(), None).await;
    update(&place, &store_change(), None).await;
    let head = place.create("/a", 1).await;
    let redaction = Redaction {
        store_id,
        version_id: head.version_id,
        audited: by_tenant(NOW),
    };
    // Refused: a live memory holds this content.
    index.redactions.redact(tenant_id, &redaction).await.unwrap();
    for _ in 0..2 {
        let archived = index.stores.archive(tenant_id, store_id, &by_tenant(NOW)).await;
        archived.unwrap().unwrap();
    }
    assert_eq!(update(&place, &rejecting(), None).await, StoreUpdate::Archived);
    let nowhere = StoreId::from_uuid(next_uuid());
    assert!(
        !index
            .store_deletions
            .begin(tenant_id, nowhere, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let refused = index
        .stores
        .create(tenant_id, &new_store(), 1, None, &by_tenant(NOW))
        .await;
    assert_eq!(refused.unwrap(), StoreCreation::TooMany { count: 1 });
    let session = SessionId::from_uuid(next_uuid());
    assert!(
        !index
            .sessions
            .delete(tenant_id, session, &by_tenant(NOW))
            .await
            .unwrap()
    );
    let actions: Vec<_> = told(&place).await.into_iter().map(|told| told.0).collect();
    assert_eq!(actions, ["memory_store.update", "memory_store.archive"]);
}

async fn record(place: &Place, by: Actor, seconds: i64, action: AuditAction, object: Uuid) {
    let audited = audited_by(Auditor::Credential(by), after_seconds(seconds));
    let recorded = place
        .index
        .audit
        .record(place.tenant_id, &audited, action, AuditObject::new(object));
    recorded.await.unwrap().unwrap();
}

pub(crate) async fn audit_is_filtered_by_action_actor_object_and_time(subject: &Subject) {
    let (place, theirs) = (Place::new(subject).await, Place::new(subject).await);
    let key = ApiKeyId::from_uuid(next_uuid());
    let actors = [
        Actor::ApiKey(key),
        Actor::User("ada".to_owned()),
        Actor::ServiceAccount("ada".to_owned()),
    ];
    let objects = [next_uuid(), next_uuid()];
    let actions = [AuditAction::SessionUpdated, AuditAction::SessionTokenIssued];
    let mut seconds = 0;
    for action in actions {
        for by in &actors {
            for object in objects {
                seconds += 1;
                record(&place, by.clone(), seconds, action, object).await;
                record(&theirs, by.clone(), seconds, action, object).await;
            }
        }
    }
    let seconds_of = async |listing: &AuditListing| -> Vec<i64> {
        let entries = listed(&place, listing).await.into_iter();
        entries
            .map(|entry| (entry.at.as_micros() - NOW.as_micros()) / 1_000_000)
            .filter(|seconds| *seconds > 0)
            .collect()
    };
    let by_action = AuditListing {
        action: Some(AuditAction::SessionTokenIssued),
        ..all()
    };
    assert_eq!(seconds_of(&by_action).await, [12, 11, 10, 9, 8, 7]);
    let by = |id: &str| AuditListing {
        actor_id: Some(id.to_owned()),
        ..all()
    };
    assert_eq!(seconds_of(&by(&key.to_string())).await, [8, 7, 2, 1]);
    assert_eq!(seconds_of(&by("ada")).await, [12, 11, 10, 9, 6, 5, 4, 3]);
    assert_eq!(seconds_of(&by("nobody")).await, [0; 0]);
    let on = AuditListing {
        object_id: Some(objects[1]),
        ..all()
    };
    assert_eq!(seconds_of(&on).await, [12, 10, 8, 6, 4, 2]);
    let between = AuditListing {
        from: Some(after_seconds(3)),
        to: Some(after_seconds(5)),
        ..all()
    };
    assert_eq!(seconds_of(&between).await, [5, 4, 3]);
    let mut both = AuditListing {
        action: Some(AuditAction::SessionUpdated),
        limit: 1,
        ..by("ada")
    };
    let mut page_by_page = Vec::new();
    while let Some(entry) = listed(&place, &both).await.pop() {
        both.before = Some((entry.at, entry.id));
        page_by_page.push((entry.at.as_micros() - NOW.as_micros()) / 1_000_000);
    }
    assert_eq!(page_by_page, [6, 5, 4, 3]);
}

pub(crate) async fn old_entries_are_pruned_and_no_others(subject: &Subject) {
    let places = [Place::new(subject).await, Place::new(subject).await];
    for place in &places {
        for seconds in 1..=5 {
            record(place, actor(), seconds, AuditAction::SessionUpdated, next_uuid()).await;
        }
    }
    let prune = async |seconds, is_dry| {
        let index = &subject.index;
        let pruned = index
            .upkeep
            .prune(Prunable::Audit, after_seconds(seconds), 4, is_dry)
            .await;
        pruned.unwrap()
    };
    // For each tenant, the two entries of `Place` and the entries before the time.
    assert_eq!(prune(4, true).await, 10);
    assert_eq!([prune(4, false).await, prune(4, false).await], [4, 4]);
    assert_eq!([prune(4, false).await, prune(4, false).await], [2, 0]);
    assert_eq!(prune(0, false).await, 0, "a time never goes back");
    for place in &places {
        let left = listed(place, &all()).await;
        let left: Vec<_> = left.iter().map(|entry| entry.at).collect();
        assert_eq!(left, [after_seconds(5), after_seconds(4)]);
    }
    let horizon = "SELECT kept_from FROM audit_horizon";
    let horizon = subject.raw.numbers(horizon, &[]).await;
    assert_eq!(horizon, [[after_seconds(4).as_micros()]]);
    let by_operator = subject.index.audit.list_of_operator(None, 100).await.unwrap();
    assert_eq!(by_operator.len(), 2, "the operator's audit is kept");
}

pub(crate) async fn audit_entries_of_jobs_do_not_count_towards_the_daily_limit(subject: &Subject) {
    let tenant_id: TenantId = new_tenant(subject).await;
    let object = AuditObject::new(next_uuid());
    let index = &subject.index;
    let recorded = index
        .audit
        .record(tenant_id, &by_nobody(NOW), AuditAction::ErasureFinished, object)
        .await;
    recorded.unwrap().unwrap();
    let counted = "SELECT count(*) FROM tenant_counter WHERE tenant_id = $1";
    let counted = subject.raw.numbers(counted, &[tenant_id.uuid()]).await;
    assert_eq!(counted, [[0]]);
    let made = index
        .stores
        .create(tenant_id, &new_store(), PLENTY, None, &by_tenant(NOW))
        .await;
    assert_eq!(made.unwrap(), StoreCreation::Created);
    let counted = "SELECT audit_entries FROM tenant_counter WHERE tenant_id = $1";
    let counted = subject.raw.numbers(counted, &[tenant_id.uuid()]).await;
    assert_eq!(counted, [[1]]);
}
