//! Tenants, API keys, usage and the audit.

use std::collections::BTreeSet;

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{Actor, ApiKeyId, TenantId};
use keepsake_index::{
    ApiKey, AuditEntry, AuditListing, Auditor, Idempotency, KeyCreation, StoreCreation, Tenant, TenantChange,
    TenantStatus, TenantUpdate, TenantUsage,
};
use serde_json::{Map, Value, json};

use crate::place::{
    NOW, PLENTY, Place, after_seconds, audited, audited_by, by_tenant, deleted, edited, new_key, new_store,
    new_tenant, next_uuid,
};
use crate::subject::Subject;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn tenant(subject: &Subject, tenant_id: TenantId) -> Tenant {
    subject.index.tenants.find(tenant_id).await.unwrap().unwrap()
}

async fn update(subject: &Subject, tenant_id: TenantId, change: &TenantChange) -> TenantUpdate {
    let updated = subject.index.tenants.update(tenant_id, change, &audited()).await;
    updated.unwrap()
}

async fn audit_of(subject: &Subject, tenant_id: TenantId) -> Vec<AuditEntry> {
    let listing = AuditListing {
        limit: 100,
        ..AuditListing::default()
    };
    subject.index.audit.list(tenant_id, &listing).await.unwrap()
}

pub(crate) async fn tenants_are_listed_newest_first_page_by_page(subject: &Subject) {
    let mut made = Vec::new();
    for _ in 0..5 {
        made.insert(0, new_tenant(subject).await);
    }
    for limit in [1, 2, 5, 100] {
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let page = subject.index.tenants.list(None, before, limit).await.unwrap();
            assert!(page.len() <= limit as usize);
            listed.extend(page.iter().map(|tenant| tenant.tenant_id));
            before = listed.last().copied();
            if page.len() < limit as usize {
                break;
            }
        }
        assert_eq!(listed, made, "{limit}");
    }
    let change = TenantChange {
        external_id: Some(Some("customer-3".to_owned())),
        ..TenantChange::default()
    };
    update(subject, made[3], &change).await;
    let called = subject
        .index
        .tenants
        .list(Some("customer-3"), None, 100)
        .await
        .unwrap();
    assert_eq!(called, [tenant(subject, made[3]).await]);
    assert_eq!(
        subject
            .index
            .tenants
            .list(Some("nobody"), None, 100)
            .await
            .unwrap(),
        []
    );
}

pub(crate) async fn tenant_update_changes_only_the_given_fields(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let mut expected = tenant(subject, tenant_id).await;
    "Søn".clone_into(&mut expected.name);
    let change = TenantChange {
        name: Some("Søn".to_owned()),
        ..TenantChange::default()
    };
    assert_eq!(
        update(subject, tenant_id, &change).await,
        TenantUpdate::Done(Box::new(expected.clone()))
    );

    expected.external_id = Some("mine".to_owned());
    expected.limits = LimitOverrides {
        bytes_per_memory: Some(1),
        bytes_per_tenant: Some(u64::from(u32::MAX) * 1000),
        ..LimitOverrides::default()
    };
    let change = TenantChange {
        external_id: Some(Some("mine".to_owned())),
        limits: object(&json!({"bytes_per_memory": 1, "bytes_per_tenant": u64::from(u32::MAX) * 1000})),
        ..TenantChange::default()
    };
    assert_eq!(
        update(subject, tenant_id, &change).await,
        TenantUpdate::Done(Box::new(expected.clone()))
    );

    expected.external_id = None;
    expected.limits.bytes_per_memory = None;
    expected.limits.max_view_chars = Some(7);
    expected.status = TenantStatus::Suspended;
    let change = TenantChange {
        external_id: Some(None),
        limits: object(&json!({"bytes_per_memory": null, "max_view_chars": 7})),
        status: Some(TenantStatus::Suspended),
        ..TenantChange::default()
    };
    assert_eq!(
        update(subject, tenant_id, &change).await,
        TenantUpdate::Done(Box::new(expected.clone()))
    );
    assert_eq!(tenant(subject, tenant_id).await, expected);
    let nobody = TenantId::from_uuid(next_uuid());
    assert_eq!(update(subject, nobody, &change).await, TenantUpdate::NoTenant);
}

pub(crate) async fn external_id_of_another_tenant_is_refused(subject: &Subject) {
    let (mine, theirs) = (new_tenant(subject).await, new_tenant(subject).await);
    let change = TenantChange {
        external_id: Some(Some("same".to_owned())),
        name: Some("another".to_owned()),
        ..TenantChange::default()
    };
    assert!(matches!(
        update(subject, mine, &change).await,
        TenantUpdate::Done(_)
    ));
    let before = tenant(subject, theirs).await;
    assert_eq!(
        update(subject, theirs, &change).await,
        TenantUpdate::ExternalIdTaken
    );
    assert_eq!(tenant(subject, theirs).await, before);
    assert!(
        matches!(update(subject, mine, &change).await, TenantUpdate::Done(_)),
        "its own it may keep"
    );
}

pub(crate) async fn concurrent_changes_lose_nothing(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let limits = [
        "bytes_per_memory",
        "max_view_chars",
        "memories_per_store",
        "bytes_per_store",
    ];
    let changes = limits.map(|name| TenantChange {
        limits: object(&json!({name: 5})),
        ..TenantChange::default()
    });
    join_all(changes.iter().map(|change| update(subject, tenant_id, change))).await;
    let stored = serde_json::to_value(tenant(subject, tenant_id).await.limits).unwrap();
    assert!(limits.iter().all(|name| stored[*name] == 5), "{stored}");
}

pub(crate) async fn expired_or_revoked_key_creates_no_keys(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let index = &subject.index;
    let maker = ApiKey {
        expires_at: Some(after_seconds(10)),
        ..new_key(tenant_id)
    };
    let first = index
        .keys
        .create(&maker, &[1; 32], PLENTY, None, &audited())
        .await;
    assert_eq!(first.unwrap(), KeyCreation::Created);
    let audited_maker = |seconds| {
        let by = Auditor::Credential(Actor::ApiKey(maker.api_key_id));
        audited_by(by, after_seconds(seconds))
    };
    let create = async |number: u8, seconds| {
        let (key, by) = (new_key(tenant_id), audited_maker(seconds));
        let outcome = index.keys.create(&key, &[number; 32], PLENTY, None, &by).await;
        outcome.unwrap()
    };
    assert_eq!(create(2, 9).await, KeyCreation::Created);
    assert_eq!(create(3, 10).await, KeyCreation::MakerRevoked);
    let status = |status| TenantChange {
        status: Some(status),
        ..TenantChange::default()
    };
    update(subject, tenant_id, &status(TenantStatus::Suspended)).await;
    assert_eq!(create(4, 9).await, KeyCreation::MakerRevoked);
    update(subject, tenant_id, &status(TenantStatus::Active)).await;
    let revoked = index.keys.revoke(tenant_id, maker.api_key_id, &audited()).await;
    assert!(revoked.unwrap().is_some());
    assert_eq!(create(5, 9).await, KeyCreation::MakerRevoked);
    assert_eq!(index.keys.list(tenant_id, None, 10).await.unwrap().len(), 2);
}

pub(crate) async fn keys_are_listed_newest_first_page_by_page(subject: &Subject) {
    let (tenant_id, other) = (new_tenant(subject).await, new_tenant(subject).await);
    let mut made = Vec::new();
    for number in 1..=5 {
        let key = new_key(tenant_id);
        let created = subject
            .index
            .keys
            .create(&key, &[number; 32], PLENTY, None, &audited())
            .await;
        assert_eq!(created.unwrap(), KeyCreation::Created);
        made.insert(0, key);
    }
    let foreign = new_key(other);
    let created = subject
        .index
        .keys
        .create(&foreign, &[9; 32], PLENTY, None, &audited())
        .await;
    created.unwrap();
    let (mut listed, mut before) = (Vec::new(), None);
    while listed.len() < made.len() {
        let page = subject.index.keys.list(tenant_id, before, 2).await.unwrap();
        listed.extend(page.into_iter().map(|issued| issued.key));
        before = listed.last().map(|key| key.api_key_id);
    }
    assert_eq!(listed, made);
    assert_eq!(subject.index.keys.list(tenant_id, before, 2).await.unwrap(), []);
    let found = async |api_key_id| subject.index.keys.find(tenant_id, api_key_id).await.unwrap();
    let issued = found(made[1].api_key_id).await.unwrap();
    assert_eq!(
        (issued.key, issued.revoked_at, issued.last_used_at),
        (made[1].clone(), None, None)
    );
    assert_eq!(found(foreign.api_key_id).await, None);
}

pub(crate) async fn second_revocation_keeps_the_first_time(subject: &Subject) {
    let (tenant_id, other) = (new_tenant(subject).await, new_tenant(subject).await);
    let key = new_key(tenant_id);
    let created = subject
        .index
        .keys
        .create(&key, &[1; 32], PLENTY, None, &audited())
        .await;
    created.unwrap();
    let revoke = async |tenant_id, at| {
        let audited = audited_by(Auditor::Operator, after_seconds(at));
        let revoked = subject
            .index
            .keys
            .revoke(tenant_id, key.api_key_id, &audited)
            .await;
        revoked.unwrap()
    };
    assert_eq!(revoke(other, 1).await, None, "another tenant's key");
    assert!(
        !subject
            .index
            .credentials
            .authenticate(&[1; 32])
            .await
            .unwrap()
            .unwrap()
            .is_revoked
    );
    let first = revoke(tenant_id, 5).await.unwrap();
    assert_eq!(first.revoked_at, Some(after_seconds(5)));
    assert_eq!(revoke(tenant_id, 9).await, Some(first));
    assert!(
        subject
            .index
            .credentials
            .authenticate(&[1; 32])
            .await
            .unwrap()
            .unwrap()
            .is_revoked
    );
    let nobody = ApiKeyId::from_uuid(next_uuid());
    let revoked = subject.index.keys.revoke(tenant_id, nobody, &audited()).await;
    assert_eq!(revoked.unwrap(), None);
    assert_eq!(
        audit_of(subject, other).await.len(),
        1,
        "a refused change has no entry"
    );
}

pub(crate) async fn repeated_call_makes_one_key(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let call = |request| Idempotency {
        scope_sha256: [1; 32],
        request_sha256: [request; 32],
        since: after_seconds(-60),
    };
    let create = async |secret, request| {
        let (key, call) = (new_key(tenant_id), call(request));
        let made = subject
            .index
            .keys
            .create(&key, &[secret; 32], PLENTY, Some(&call), &audited())
            .await;
        (key.api_key_id, made.unwrap())
    };
    let created = join_all((1..=8).map(|secret| create(secret, 2))).await;
    let made: Vec<_> = created
        .iter()
        .filter(|(_, made)| *made == KeyCreation::Created)
        .collect();
    assert_eq!(made.len(), 1, "{created:?}");
    let api_key_id = made[0].0;
    let replays = created
        .iter()
        .filter(|(_, made)| *made == KeyCreation::Replayed { api_key_id });
    assert_eq!(replays.count(), 7);
    assert_eq!(create(20, 3).await.1, KeyCreation::KeyReused);
    assert_eq!(
        subject.index.keys.list(tenant_id, None, 100).await.unwrap().len(),
        1
    );
}

pub(crate) async fn usage_equals_the_written_data(subject: &Subject) {
    let place = Place::new(subject).await;
    let (tenant_id, index) = (place.tenant_id, &subject.index);
    let head = place.create("/a", 10).await;
    place.change(vec![edited(&head, 25)]).await;
    let gone = place.create("/b", 7).await;
    place.change(vec![deleted(&gone)]).await;
    let other = Place::of_tenant(subject, tenant_id).await;
    other.create("/c", 5).await;
    let ended = Place::of_tenant(subject, tenant_id).await;
    ended.create("/d", 100).await;
    index
        .store_deletions
        .begin(tenant_id, ended.store_id, &by_tenant(NOW))
        .await
        .unwrap();
    for secret in [1, 2] {
        let key = new_key(tenant_id);
        let created = index
            .keys
            .create(&key, &[secret; 32], PLENTY, None, &audited())
            .await;
        created.unwrap();
        if secret == 2 {
            let revoked = index.keys.revoke(tenant_id, key.api_key_id, &audited()).await;
            revoked.unwrap();
        }
    }
    Place::new(subject).await.create("/theirs", 1).await;
    let granted = "SELECT granted_bytes FROM tenant WHERE tenant_id = $1";
    let granted = subject.raw.numbers(granted, &[tenant_id.uuid()]).await[0][0];
    let expected = TenantUsage {
        stores: 2,
        memories: 2,
        live_bytes: 30,
        versions: 5,
        version_bytes: 10 + 25 + 7 + 5,
        granted_bytes: u64::try_from(granted).unwrap(),
        api_keys: 1,
        sessions: 0,
        session_bytes: 0,
    };
    assert!(expected.granted_bytes >= 30);
    assert_eq!(index.tenants.usage(tenant_id).await.unwrap(), Some(expected));
    let empty = new_tenant(subject).await;
    assert_eq!(
        index.tenants.usage(empty).await.unwrap(),
        Some(TenantUsage::default())
    );
    let nobody = TenantId::from_uuid(next_uuid());
    assert_eq!(index.tenants.usage(nobody).await.unwrap(), None);
}

pub(crate) async fn every_action_is_in_the_audit(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let id = tenant_id.uuid();
    let at = |seconds| audited_by(Auditor::Operator, after_seconds(seconds));
    let by_status = |status: Option<TenantStatus>| TenantChange {
        status,
        name: status.is_none().then(|| "renamed".to_owned()),
        ..TenantChange::default()
    };
    let index = &subject.index;
    for (seconds, status) in [
        (1, Some(TenantStatus::Suspended)),
        (2, Some(TenantStatus::Active)),
        (3, None),
    ] {
        let updated = index
            .tenants
            .update(tenant_id, &by_status(status), &at(seconds))
            .await;
        updated.unwrap();
        // Once more, it changes nothing.
        let again = index
            .tenants
            .update(tenant_id, &by_status(status), &at(seconds))
            .await;
        again.unwrap();
    }
    let store = new_store();
    let made = index.stores.create(tenant_id, &store, PLENTY, None, &at(4)).await;
    assert_eq!(made.unwrap(), StoreCreation::Created);
    let key = new_key(tenant_id);
    let by_key = Auditor::Credential(Actor::ApiKey(key.api_key_id));
    index
        .keys
        .create(&key, &[1; 32], PLENTY, None, &at(5))
        .await
        .unwrap();
    let revoked = index
        .keys
        .revoke(tenant_id, key.api_key_id, &audited_by(by_key, after_seconds(6)))
        .await;
    revoked.unwrap();
    let again = index.keys.revoke(tenant_id, key.api_key_id, &at(6)).await;
    again.unwrap();
    index.tenant_deletions.begin(tenant_id, &at(7)).await.unwrap();

    let key_id = key.api_key_id.uuid();
    let told = |entry: &AuditEntry| {
        let seconds = (entry.at.as_micros() - NOW.as_micros()) / 1_000_000;
        (
            seconds,
            entry.actor.clone(),
            entry.action.clone(),
            entry.object_id.unwrap(),
        )
    };
    let operator =
        |seconds, action: &str, object| (seconds, "operator".to_owned(), action.to_owned(), object);
    let mut expected = vec![
        operator(7, "tenant.delete", id),
        (
            6,
            format!("api_key:{}", key.api_key_id),
            "api_key.revoke".to_owned(),
            key_id,
        ),
        operator(5, "api_key.create", key_id),
        operator(4, "memory_store.create", store.store_id.uuid()),
        operator(3, "tenant.update", id),
        operator(2, "tenant.resume", id),
        operator(1, "tenant.suspend", id),
        (0, "operator_cli".to_owned(), "tenant.create".to_owned(), id),
    ];
    let entries = audit_of(subject, tenant_id).await;
    assert_eq!(entries.iter().map(told).collect::<Vec<_>>(), expected);
    expected.remove(1);
    let entries = index.audit.list_of_operator(None, 100).await.unwrap();
    assert_eq!(entries.iter().map(told).collect::<Vec<_>>(), expected);
}

pub(crate) async fn refused_action_is_not_in_the_audit(subject: &Subject) {
    let (mine, theirs) = (new_tenant(subject).await, new_tenant(subject).await);
    let index = &subject.index;
    let name = TenantChange {
        external_id: Some(Some("same".to_owned())),
        ..TenantChange::default()
    };
    update(subject, mine, &name).await;
    let before = [audit_of(subject, mine).await, audit_of(subject, theirs).await];
    let by_operator = index.audit.list_of_operator(None, 100).await.unwrap();
    assert_eq!(
        update(subject, theirs, &name).await,
        TenantUpdate::ExternalIdTaken
    );
    let refused = index.stores.create(mine, &new_store(), 0, None, &audited()).await;
    assert_eq!(refused.unwrap(), StoreCreation::TooMany { count: 0 });
    let nobody = TenantId::from_uuid(next_uuid());
    index.tenant_deletions.begin(nobody, &audited()).await.unwrap();
    let taken = Tenant {
        tenant_id: nobody,
        ..tenant(subject, mine).await
    };
    assert!(!index.tenants.create(&taken, &audited()).await.unwrap());
    assert_eq!(
        [audit_of(subject, mine).await, audit_of(subject, theirs).await],
        before
    );
    assert_eq!(
        index.audit.list_of_operator(None, 100).await.unwrap(),
        by_operator
    );
    assert_eq!(audit_of(subject, nobody).await, []);
}

pub(crate) async fn audit_is_listed_newest_first_page_by_page(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    // Several entries have the same time and are ordered by their ids.
    for number in 0..9 {
        let audited = audited_by(Auditor::OperatorCli, after_seconds(number / 3));
        let renaming = TenantChange {
            name: Some(format!("name {number}")),
            ..TenantChange::default()
        };
        let updated = subject.index.tenants.update(tenant_id, &renaming, &audited).await;
        updated.unwrap();
    }
    let all = audit_of(subject, tenant_id).await;
    assert_eq!(all.len(), 10);
    assert!(all.is_sorted_by(|one, next| (one.at, one.id) > (next.at, next.id)));
    for limit in [1, 3, 4] {
        let (mut listed, mut by_operator) = (Vec::<AuditEntry>::new(), Vec::<AuditEntry>::new());
        for _ in 0..10 {
            let before = listed.last().map(|entry| (entry.at, entry.id));
            let listing = AuditListing {
                before,
                limit,
                ..AuditListing::default()
            };
            listed.extend(subject.index.audit.list(tenant_id, &listing).await.unwrap());
            let page = subject.index.audit.list_of_operator(before, limit).await.unwrap();
            by_operator.extend(page);
        }
        assert_eq!(listed, all, "{limit}");
        assert_eq!(by_operator, all, "{limit}");
    }
}

pub(crate) async fn operators_store_counts_and_is_limited(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let stores: Vec<_> = (0..8).map(|_| new_store()).collect();
    let made = join_all(stores.iter().map(async |store| {
        let made = subject
            .index
            .stores
            .create(tenant_id, store, 3, None, &audited())
            .await;
        made.unwrap()
    }))
    .await;
    let created = made.iter().filter(|made| **made == StoreCreation::Created);
    assert_eq!(created.count(), 3, "{made:?}");
    let usage = subject.index.tenants.usage(tenant_id).await.unwrap().unwrap();
    assert_eq!(usage.stores, 3);
    let actions: BTreeSet<_> = audit_of(subject, tenant_id)
        .await
        .into_iter()
        .filter(|entry| entry.action == "memory_store.create")
        .map(|entry| entry.object_id)
        .collect();
    assert_eq!(actions.len(), 3);
}
