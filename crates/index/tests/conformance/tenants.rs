//! Tenants, their stores, their limits and their keys.

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{SensitiveDataPolicy, StoreId, TenantId};
use keepsake_index::{
    ApiKey, Credential, KeyCreation, NewStore, Scope, Store, StoreCreation, Tenant, TenantChange,
    TenantStatus, TenantUpdate,
};
use serde_json::json;

use crate::place::{
    NOW, PLENTY, Place, after_seconds, audited, by_tenant, new_key, new_store, new_tenant, next_uuid,
};
use crate::subject::Subject;

fn tenant_called(external_id: Option<&str>) -> Tenant {
    Tenant {
        tenant_id: TenantId::from_uuid(next_uuid()),
        external_id: external_id.map(str::to_owned),
        name: "Ada & Søn".to_owned(),
        status: TenantStatus::Active,
        limits: LimitOverrides {
            stores_per_tenant: Some(3),
            ..LimitOverrides::default()
        },
        created_at: NOW,
    }
}

async fn create_key(subject: &Subject, key: &ApiKey, secret: [u8; 32]) -> KeyCreation {
    let made = subject
        .index
        .keys
        .create(key, &secret, PLENTY, None, &audited())
        .await;
    made.unwrap()
}

pub(crate) async fn created_tenant_is_returned_unchanged(subject: &Subject) {
    for tenant in [
        tenant_called(Some("customer-1")),
        tenant_called(None),
        tenant_called(None),
        Tenant {
            status: TenantStatus::Suspended,
            ..tenant_called(None)
        },
    ] {
        assert!(subject.index.tenants.create(&tenant, &audited()).await.unwrap());
        assert_eq!(
            subject.index.tenants.find(tenant.tenant_id).await.unwrap(),
            Some(tenant)
        );
    }
    assert_eq!(
        subject
            .index
            .tenants
            .find(TenantId::from_uuid(next_uuid()))
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn taken_external_id_creates_no_tenant(subject: &Subject) {
    let (first, second) = (tenant_called(Some("same")), tenant_called(Some("same")));
    assert!(subject.index.tenants.create(&first, &audited()).await.unwrap());
    assert!(!subject.index.tenants.create(&second, &audited()).await.unwrap());
    assert_eq!(subject.index.tenants.find(second.tenant_id).await.unwrap(), None);
    assert!(!subject.index.tenants.create(&first, &audited()).await.unwrap());
}

pub(crate) async fn one_of_many_tenants_of_an_external_id_is_made(subject: &Subject) {
    let tenants: Vec<_> = (0..8).map(|_| tenant_called(Some("same"))).collect();
    let create = async |tenant| subject.index.tenants.create(tenant, &audited()).await.unwrap();
    let made = join_all(tenants.iter().map(create)).await;
    assert_eq!(made.into_iter().filter(|made| *made).count(), 1);
}

pub(crate) async fn created_store_is_returned_unchanged(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let metadata = json!({"team": "søn", "empty": "", "quote\"d": "\\ \n 🦀"});
    let store = NewStore {
        store_id: StoreId::from_uuid(next_uuid()),
        name: "Ünïcode \"name\"".to_owned(),
        description: "two\nlines".to_owned(),
        metadata: metadata.as_object().unwrap().clone(),
        created_at: after_seconds(5),
        policy: SensitiveDataPolicy::Reject,
        expires_unused_after: Some(7 << 32),
    };
    assert_eq!(
        subject
            .index
            .stores
            .create(tenant_id, &store, 1, None, &by_tenant(NOW))
            .await
            .unwrap(),
        StoreCreation::Created
    );
    let expected = Store {
        store_id: store.store_id,
        name: store.name,
        description: store.description,
        metadata: store.metadata,
        policy: SensitiveDataPolicy::Reject,
        expires_unused_after: Some(7 << 32),
        memory_count: 0,
        live_bytes: 0,
        created_at: after_seconds(5),
        updated_at: after_seconds(5),
        last_version_at: None,
        archived_at: None,
    };
    assert_eq!(
        subject
            .index
            .stores
            .find(tenant_id, store.store_id)
            .await
            .unwrap(),
        Some(expected)
    );
    assert_eq!(
        subject
            .index
            .stores
            .find(tenant_id, StoreId::from_uuid(next_uuid()))
            .await
            .unwrap(),
        None
    );
}

pub(crate) async fn store_of_an_unknown_tenant_is_not_created(subject: &Subject) {
    let nobody = TenantId::from_uuid(next_uuid());
    let store = new_store();
    assert_eq!(
        subject
            .index
            .stores
            .create(nobody, &store, PLENTY, None, &by_tenant(NOW))
            .await
            .unwrap(),
        StoreCreation::NoTenant
    );
    assert_eq!(
        subject.index.stores.find(nobody, store.store_id).await.unwrap(),
        None
    );
}

pub(crate) async fn stores_limit_holds_exactly(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let create = async |limit| {
        subject
            .index
            .stores
            .create(tenant_id, &new_store(), limit, None, &by_tenant(NOW))
            .await
            .unwrap()
    };
    assert_eq!(create(0).await, StoreCreation::TooMany { count: 0 });
    assert_eq!(create(2).await, StoreCreation::Created);
    assert_eq!(create(2).await, StoreCreation::Created);
    assert_eq!(create(2).await, StoreCreation::TooMany { count: 2 });
    assert_eq!(create(3).await, StoreCreation::Created);
    let other = new_tenant(subject).await;
    let made = subject
        .index
        .stores
        .create(other, &new_store(), 1, None, &by_tenant(NOW))
        .await
        .unwrap();
    assert_eq!(
        made,
        StoreCreation::Created,
        "one tenant's stores do not count for another"
    );
}

pub(crate) async fn racing_stores_stop_exactly_at_the_limit(subject: &Subject) {
    let tenant_id = new_tenant(subject).await;
    let stores: Vec<_> = (0..16).map(|_| new_store()).collect();
    let creates = stores.iter().map(async |store| {
        subject
            .index
            .stores
            .create(tenant_id, store, 5, None, &by_tenant(NOW))
            .await
    });
    let made: Vec<_> = join_all(creates).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        made.iter()
            .filter(|made| **made == StoreCreation::Created)
            .count(),
        5
    );
    let refused = made
        .iter()
        .filter(|made| **made == StoreCreation::TooMany { count: 5 });
    assert_eq!(refused.count(), 11, "{made:?}");
    let mut there = 0;
    for store in &stores {
        there += usize::from(
            subject
                .index
                .stores
                .find(tenant_id, store.store_id)
                .await
                .unwrap()
                .is_some(),
        );
    }
    assert_eq!(there, 5);
}

pub(crate) async fn taken_store_id_creates_no_second_store(subject: &Subject) {
    let place = Place::new(subject).await;
    place.create("/a", 1).await;
    let again = NewStore {
        store_id: place.store_id,
        ..new_store()
    };
    let before = place.rows().await;
    assert!(
        place
            .index
            .stores
            .create(place.tenant_id, &again, PLENTY, None, &by_tenant(NOW))
            .await
            .is_err()
    );
    assert_eq!(place.rows().await, before);
    let store_count = "SELECT store_count FROM tenant WHERE tenant_id = $1";
    assert_eq!(
        place.raw.numbers(store_count, &[place.tenant_id.uuid()]).await,
        [[1]]
    );
}

pub(crate) async fn secret_authenticates_its_key(subject: &Subject) {
    let tenant = tenant_called(None);
    subject.index.tenants.create(&tenant, &audited()).await.unwrap();
    let bound = ApiKey {
        store_ids: Some(vec![
            StoreId::from_uuid(next_uuid()),
            StoreId::from_uuid(next_uuid()),
        ]),
        expires_at: Some(after_seconds(60)),
        scopes: Scope::ALL.to_vec(),
        ..new_key(tenant.tenant_id)
    };
    for (key, secret) in [(new_key(tenant.tenant_id), [1; 32]), (bound, [2; 32])] {
        assert_eq!(create_key(subject, &key, secret).await, KeyCreation::Created);
        let expected = Credential {
            tenant_id: key.tenant_id,
            api_key_id: key.api_key_id,
            scopes: key.scopes,
            store_ids: key.store_ids,
            expires_at: key.expires_at,
            is_revoked: false,
            tenant_status: TenantStatus::Active,
            limits: tenant.limits.clone(),
        };
        assert_eq!(
            subject.index.credentials.authenticate(&secret).await.unwrap(),
            Some(expected)
        );
    }
    assert_eq!(
        subject.index.credentials.authenticate(&[3; 32]).await.unwrap(),
        None
    );
}

pub(crate) async fn credential_shows_changes_of_its_key_and_tenant(subject: &Subject) {
    let tenant = tenant_called(None);
    subject.index.tenants.create(&tenant, &audited()).await.unwrap();
    create_key(subject, &new_key(tenant.tenant_id), [1; 32]).await;
    let credential = async || {
        subject
            .index
            .credentials
            .authenticate(&[1; 32])
            .await
            .unwrap()
            .unwrap()
    };

    let limits = LimitOverrides {
        max_view_chars: Some(9),
        ..LimitOverrides::default()
    };
    let change = TenantChange {
        limits: json!({"stores_per_tenant": null, "max_view_chars": 9})
            .as_object()
            .unwrap()
            .clone(),
        ..TenantChange::default()
    };
    let changed = subject
        .index
        .tenants
        .update(tenant.tenant_id, &change, &audited())
        .await;
    assert!(matches!(changed.unwrap(), TenantUpdate::Done(_)));
    assert_eq!(credential().await.limits, limits);
    let ids = [tenant.tenant_id.uuid()];
    subject
        .raw
        .execute(
            "UPDATE tenant SET status = 'suspended' WHERE tenant_id = $1",
            &ids,
        )
        .await;
    assert_eq!(credential().await.tenant_status, TenantStatus::Suspended);
    assert!(!credential().await.is_revoked);
    subject
        .raw
        .execute("UPDATE api_key SET revoked_at = 1 WHERE tenant_id = $1", &ids)
        .await;
    assert!(credential().await.is_revoked);
}

pub(crate) async fn key_of_an_unknown_tenant_is_not_created(subject: &Subject) {
    let key = new_key(TenantId::from_uuid(next_uuid()));
    assert_eq!(create_key(subject, &key, [1; 32]).await, KeyCreation::NoTenant);
    assert_eq!(
        subject.index.credentials.authenticate(&[1; 32]).await.unwrap(),
        None
    );
}

pub(crate) async fn secret_belongs_to_only_one_key(subject: &Subject) {
    let (mine, theirs) = (new_tenant(subject).await, new_tenant(subject).await);
    let first = new_key(mine);
    assert_eq!(create_key(subject, &first, [1; 32]).await, KeyCreation::Created);
    assert!(
        subject
            .index
            .keys
            .create(&new_key(theirs), &[1; 32], PLENTY, None, &audited())
            .await
            .is_err()
    );
    let found = subject
        .index
        .credentials
        .authenticate(&[1; 32])
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.tenant_id, found.api_key_id), (mine, first.api_key_id));
    let keys = subject.raw.numbers("SELECT count(*) FROM api_key", &[]).await;
    assert_eq!(keys, [[1]]);
}
