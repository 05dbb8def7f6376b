//! Secrets of the server, tenants as tokens name them, and the use of keys.

use futures::future::join_all;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, TenantId};
use keepsake_index::{ApiKey, KeyUse, Scope, ServerSecret, Tenant, TenantName, TenantStanding, TenantStatus};

use crate::place::{NOW, PLENTY, after_seconds, audited, new_tenant, next_uuid};
use crate::subject::Subject;

fn secret(kid: &str, purpose: &str, byte: u8, seconds: i64) -> ServerSecret {
    ServerSecret {
        kid: kid.to_owned(),
        purpose: purpose.to_owned(),
        wrapped_key: vec![byte; 61],
        not_before: after_seconds(seconds),
        retired_at: None,
    }
}

pub(crate) async fn secrets_of_a_purpose_come_in_the_order_of_their_times(subject: &Subject) {
    let index = &subject.index;
    let later = secret("token-2", "token", 2, 20);
    let retired = ServerSecret {
        retired_at: Some(after_seconds(30)),
        ..secret("token-1", "token", 1, 10)
    };
    let other = secret("cursor", "cursor", 3, 0);
    for new in [&later, &retired, &other] {
        assert!(index.secrets.add(new).await.unwrap());
    }
    assert_eq!(
        index.secrets.list("token").await.unwrap(),
        [retired, later.clone()]
    );
    assert_eq!(index.secrets.list("cursor").await.unwrap(), [other]);
    assert_eq!(index.secrets.list("nothing").await.unwrap(), []);
    assert!(index.secrets.remove("token-1").await.unwrap());
    assert!(!index.secrets.remove("token-1").await.unwrap());
    assert_eq!(index.secrets.list("token").await.unwrap(), [later]);
}

pub(crate) async fn one_of_racing_secrets_with_the_same_name_is_kept(subject: &Subject) {
    let candidates: Vec<_> = (10..22)
        .map(|byte| secret("token-1", "token", byte, i64::from(byte)))
        .collect();
    let racing = candidates
        .iter()
        .map(|candidate| subject.index.secrets.add(candidate));
    let added = join_all(racing).await;
    let winners: Vec<_> = added
        .into_iter()
        .zip(&candidates)
        .filter_map(|(added, candidate)| added.unwrap().then_some(candidate.clone()))
        .collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(subject.index.secrets.list("token").await.unwrap(), winners);
}

pub(crate) async fn secret_is_rewrapped_only_if_unchanged_since_the_read(subject: &Subject) {
    let index = &subject.index;
    let old = secret("cursor", "cursor", 1, 0);
    index.secrets.add(&old).await.unwrap();
    let rewrap = async |kid: &str, from: u8, to: u8| {
        let rewrapped = index.secrets.rewrap(kid, &[from; 61], &[to; 61]).await;
        rewrapped.unwrap()
    };
    assert!(!rewrap("cursor", 9, 2).await);
    assert!(!rewrap("other", 1, 2).await);
    assert!(rewrap("cursor", 1, 2).await);
    assert!(!rewrap("cursor", 1, 3).await);
    let new = secret("cursor", "cursor", 2, 0);
    assert_eq!(index.secrets.list("cursor").await.unwrap(), [new]);
}

pub(crate) async fn retirement_of_a_secret_never_moves_later(subject: &Subject) {
    let index = &subject.index;
    index
        .secrets
        .add(&secret("token-1", "token", 1, 0))
        .await
        .unwrap();
    let retired_at = async || index.secrets.list("token").await.unwrap()[0].retired_at;
    for (seconds, expected) in [(20, 20), (30, 20), (10, 10)] {
        assert!(
            index
                .secrets
                .retire("token-1", after_seconds(seconds))
                .await
                .unwrap()
        );
        assert_eq!(retired_at().await, Some(after_seconds(expected)));
    }
    assert!(!index.secrets.retire("token-9", NOW).await.unwrap());
}

fn tenant(external_id: Option<&str>, status: TenantStatus) -> Tenant {
    Tenant {
        tenant_id: TenantId::from_uuid(next_uuid()),
        external_id: external_id.map(str::to_owned),
        name: "tenant".to_owned(),
        status,
        limits: LimitOverrides {
            stores_per_tenant: Some(3),
            ..LimitOverrides::default()
        },
        created_at: NOW,
    }
}

pub(crate) async fn tenant_is_found_by_either_of_its_names(subject: &Subject) {
    let index = &subject.index;
    let active = tenant(Some("acme"), TenantStatus::Active);
    let suspended = tenant(Some("Acme"), TenantStatus::Suspended);
    for tenant in [&active, &suspended] {
        index.tenants.create(tenant, &audited()).await.unwrap();
        let expected = TenantStanding {
            tenant_id: tenant.tenant_id,
            status: tenant.status,
            limits: tenant.limits.clone(),
        };
        let external = tenant.external_id.clone().unwrap();
        for name in [TenantName::Id(tenant.tenant_id), TenantName::External(external)] {
            let found = index.credentials.tenant_standing(&name).await.unwrap();
            assert_eq!(found.as_ref(), Some(&expected), "{name:?}");
        }
    }
    for name in [
        TenantName::Id(TenantId::from_uuid(next_uuid())),
        TenantName::External("ACME".to_owned()),
        TenantName::External(String::new()),
        TenantName::External("acme' OR 1=1".to_owned()),
        TenantName::External("acme%".to_owned()),
    ] {
        assert_eq!(
            index.credentials.tenant_standing(&name).await.unwrap(),
            None,
            "{name:?}"
        );
    }
    assert_eq!(
        TenantName::parse(&active.tenant_id.to_string()),
        TenantName::Id(active.tenant_id)
    );
    assert_eq!(TenantName::parse("acme"), TenantName::External("acme".to_owned()));
}

async fn last_uses(subject: &Subject) -> Vec<Option<i64>> {
    let rows = subject
        .raw
        .rows(
            "SELECT CAST(last_used_at AS TEXT) FROM api_key ORDER BY name",
            &[],
        )
        .await;
    rows.into_iter()
        .map(|row| row[0].as_ref().map(|micros| micros.parse().unwrap()))
        .collect()
}

pub(crate) async fn use_of_a_key_never_moves_back(subject: &Subject) {
    let index = &subject.index;
    let of = new_tenant(subject).await;
    let foreign = new_tenant(subject).await;
    let keys: Vec<_> = (0..3_u8)
        .map(|number| ApiKey {
            api_key_id: ApiKeyId::from_uuid(next_uuid()),
            tenant_id: of,
            name: format!("key {number}"),
            scopes: vec![Scope::MemoryRead],
            store_ids: None,
            created_at: NOW,
            expires_at: None,
        })
        .collect();
    for (number, key) in (0..).zip(&keys) {
        index
            .keys
            .create(key, &[number; 32], PLENTY, None, &audited())
            .await
            .unwrap();
    }
    let used = |key: usize, seconds| KeyUse {
        tenant_id: of,
        api_key_id: keys[key].api_key_id,
        used_at: after_seconds(seconds),
    };
    let foreign_use = KeyUse {
        tenant_id: foreign,
        ..used(2, 50)
    };
    let micros = |seconds| Some(after_seconds(seconds).as_micros());
    let flush = async |uses: &[KeyUse]| index.keys.flush_use(uses).await.unwrap();
    flush(&[]).await;
    assert_eq!(last_uses(subject).await, [None, None, None]);
    flush(&[used(1, 20), used(0, 10), foreign_use]).await;
    assert_eq!(last_uses(subject).await, [micros(10), micros(20), None]);
    flush(&[used(0, 5), used(1, 30), used(1, 25)]).await;
    assert_eq!(last_uses(subject).await, [micros(10), micros(30), None]);
    let racing = (0..20).map(|round| {
        let (first, second) = (round % 3, (round + 1) % 3);
        let seconds = 100 + i64::try_from(round).unwrap();
        let both = [used(first, seconds), used(second, seconds)];
        async move { index.keys.flush_use(&both).await.unwrap() }
    });
    join_all(racing).await;
    assert_eq!(last_uses(subject).await, [micros(118), micros(119), micros(119)]);
}
