//! Tenants, keys and stores to measure with, made through the index.

use keepsake_core::api_key::ApiKeySecret;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId};
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use keepsake_index::{ApiKey, Index, NewStore, Scope, StoreCreation, Tenant, TenantStatus};
use serde::Deserialize;

use super::plan::Layout;
use super::workload::BenchStore;
use crate::failure::Failure;

/// More than any run makes: the default limits would end one in seconds.
const LIMITS: LimitOverrides = LimitOverrides {
    bytes_per_memory: Some(1 << 30),
    max_view_chars: None,
    memories_per_store: Some(1 << 40),
    bytes_per_store: Some(1 << 50),
    stores_per_tenant: None,
    bytes_per_tenant: Some(1 << 50),
};
/// More stores than a layout has.
const STORES_LIMIT: u64 = 1 << 20;

/// Makes the tenants and stores of a layout.
///
/// # Errors
/// [`Failure`] when the index refuses.
pub(super) async fn provision(
    index: &dyn Index,
    layout: Layout,
    run: &str,
) -> Result<Vec<BenchStore>, Failure> {
    let (tenants, stores_each) = layout.tenants_and_stores();
    let mut stores = Vec::with_capacity(tenants * stores_each);
    for number in 0..tenants {
        let name = format!("bench {run} {} {number}", layout.title());
        let (tenant_id, api_key) = make_tenant(index, &name).await?;
        for _ in 0..stores_each {
            let store_id = make_store(index, tenant_id, &name).await?;
            stores.push(BenchStore {
                store_id,
                api_key: api_key.clone(),
                tenant_id: Some(tenant_id),
            });
        }
    }
    // Neighbours in the list are of different tenants, as callers are.
    Ok((0..stores_each)
        .flat_map(|store| stores.iter().skip(store).step_by(stores_each))
        .cloned()
        .collect())
}

async fn make_tenant(index: &dyn Index, name: &str) -> Result<(TenantId, String), Failure> {
    let refused = "a tenant could not be made";
    let now = SystemClock.now();
    let tenant_id = TenantId::from_uuid(RandomIds.uuid(now));
    let tenant = Tenant {
        tenant_id,
        external_id: None,
        name: name.to_owned(),
        status: TenantStatus::Active,
        limits: LIMITS,
        created_at: now,
    };
    index.create_tenant(&tenant).await.map_err(Failure::of(refused))?;
    let key = ApiKey {
        api_key_id: ApiKeyId::from_uuid(RandomIds.uuid(now)),
        tenant_id,
        name: name.to_owned(),
        scopes: vec![Scope::MemoryRead, Scope::MemoryWrite],
        store_ids: None,
        created_at: now,
        expires_at: None,
    };
    let secret = ApiKeySecret::from_random(RandomIds.secret());
    if index
        .create_api_key(&key, &secret.sha256())
        .await
        .map_err(Failure::of(refused))?
    {
        Ok((tenant_id, secret.expose().to_owned()))
    } else {
        Err(Failure::new("a tenant that was made is gone"))
    }
}

async fn make_store(index: &dyn Index, tenant_id: TenantId, name: &str) -> Result<StoreId, Failure> {
    let now = SystemClock.now();
    let store_id = StoreId::from_uuid(RandomIds.uuid(now));
    let store = NewStore {
        store_id,
        name: name.to_owned(),
        description: String::new(),
        metadata: serde_json::Map::new(),
        created_at: now,
    };
    let created = index.create_store(tenant_id, &store, STORES_LIMIT).await;
    match created.map_err(Failure::of("a store could not be made"))? {
        StoreCreation::Created => Ok(store_id),
        refusal => Err(Failure::new(format!("a store could not be made: {refusal:?}"))),
    }
}

/// One key and the stores that it reaches, as `--credentials` lists them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credential {
    api_key: String,
    store_ids: Vec<StoreId>,
}

/// Reads the stores of a `--credentials` file.
///
/// # Errors
/// [`Failure`] that quotes nothing of the file.
pub(super) fn given(json: &[u8]) -> Result<Vec<BenchStore>, Failure> {
    let refused =
        "the credentials must be JSON: [{\"api_key\": \"ks_live_…\", \"store_ids\": [\"memstore_…\"]}]";
    let credentials: Vec<Credential> = serde_json::from_slice(json).map_err(|_| Failure::new(refused))?;
    let stores: Vec<_> = credentials
        .into_iter()
        .flat_map(|Credential { api_key, store_ids }| {
            store_ids.into_iter().map(move |store_id| BenchStore {
                store_id,
                api_key: api_key.clone(),
                tenant_id: None,
            })
        })
        .collect();
    if stores.is_empty() {
        return Err(Failure::new("the credentials name no store"));
    }
    Ok(stores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_key_and_its_stores() {
        let id = StoreId::from_uuid(uuid::Uuid::from_u128(1));
        let stores = given(format!(r#"[{{"api_key":"k","store_ids":["{id}","{id}"]}}]"#).as_bytes()).unwrap();
        assert_eq!(stores.len(), 2);
        assert_eq!((stores[1].store_id, stores[1].api_key.as_str()), (id, "k"));
        for text in [
            "",
            "[]",
            "{}",
            r#"[{"api_key":"secret"}]"#,
            r#"[{"api_key":"secret","store_ids":["x"]}]"#,
        ] {
            assert!(!given(text.as_bytes()).unwrap_err().to_string().contains("secret"));
        }
    }
}
