//! Tenants, keys and stores to measure with.

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId};
use keepsake_engine::{NewKey, NewTenant, Operator};
use keepsake_index::Scope;
use serde::Deserialize;

use super::plan::Layout;
use super::workload::BenchStore;
use crate::failure::Failure;

/// More than any run makes: the default limits would end one in seconds.
pub(super) const LIMITS: LimitOverrides = LimitOverrides {
    bytes_per_memory: Some(1 << 30),
    max_view_chars: Some(1 << 30),
    memories_per_store: Some(1 << 40),
    bytes_per_store: Some(1 << 50),
    stores_per_tenant: Some(1 << 20),
    bytes_per_tenant: Some(1 << 50),
    requests_per_second: Some(1 << 40),
    request_burst: Some(1 << 40),
    version_retention_secs: None,
    version_age_secs: None,
    versions_per_memory: None,
    expires_unused_after: None,
    period_set_at: None,
    sessions_per_tenant: None,
    session_bytes_per_tenant: None,
    api_keys_per_tenant: None,
    audit_entries_per_day: None,
};

/// Makes the tenants and stores of a layout.
///
/// # Errors
/// [`Failure`] when the index refuses.
pub(super) async fn provision(
    operator: Operator<'_>,
    layout: Layout,
    run: &str,
) -> Result<Vec<BenchStore>, Failure> {
    let (tenants, stores_each) = layout.tenants_and_stores();
    let mut stores = Vec::with_capacity(tenants * stores_each);
    for number in 0..tenants {
        let name = format!("bench {run} {} {number}", layout.title());
        let (tenant_id, api_key) = make_tenant(operator, &name, LIMITS).await?;
        for _ in 0..stores_each {
            let made = operator.create_store(tenant_id, &name).await;
            stores.push(BenchStore {
                store_id: made.map_err(Failure::of("a store cannot be made"))?.store_id,
                api_key: api_key.clone(),
                tenant_id: Some(tenant_id),
            });
        }
    }
    // Neighbours in the list are of different tenants, as callers are.
    let by_turns = (0..stores_each).flat_map(|first| stores.iter().skip(first).step_by(stores_each));
    Ok(by_turns.cloned().collect())
}

/// Makes a tenant with limits of its own, and one store.
///
/// # Errors
/// [`Failure`] when the index refuses.
pub(super) async fn tenant_with_store(
    operator: Operator<'_>,
    name: &str,
    limits: LimitOverrides,
) -> Result<BenchStore, Failure> {
    let (tenant_id, api_key) = make_tenant(operator, name, limits).await?;
    let made = operator.create_store(tenant_id, name).await;
    Ok(BenchStore {
        store_id: made.map_err(Failure::of("a store cannot be made"))?.store_id,
        api_key,
        tenant_id: Some(tenant_id),
    })
}

/// Answers the tenant and the secret of its key.
async fn make_tenant(
    operator: Operator<'_>,
    name: &str,
    limits: LimitOverrides,
) -> Result<(TenantId, String), Failure> {
    let tenant = NewTenant {
        name: name.to_owned(),
        external_id: None,
        limits,
    };
    let made = operator.create_tenant(tenant).await;
    let tenant_id = made.map_err(Failure::of("a tenant cannot be made"))?.tenant_id;
    let key = NewKey {
        tenant_id,
        name: name.to_owned(),
        scopes: vec![Scope::MemoryRead, Scope::MemoryWrite],
        store_ids: None,
        expires_at: None,
    };
    let made = operator.create_key(key).await;
    let (_, secret) = made.map_err(Failure::of("an API key cannot be made"))?;
    Ok((tenant_id, secret.expose().to_owned()))
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
