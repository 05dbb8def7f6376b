//! Tenants, keys and stores to measure with, made by the product itself.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::future::try_join_all;
use http_body_util::Full;
use hyper::Request;
use keepsake_config::Failure;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Connection;
use super::operator::Operator;
use super::workload::BenchStore;
use crate::product::Product;

/// How many tenants or stores are created at the same time.
const AT_ONCE: usize = 16;

/// The scopes of a tenant's key.
const SCOPES: [&str; 6] =
    ["memory:read", "memory:write", "stores:admin", "sessions:write", "keys:admin", "tenant:admin"];

/// More than any run reaches: the default limits would end it within seconds.
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
    read_retention_secs: None,
    recorded_reads_per_tenant: None,
    expires_unused_after: None,
    period_set_at: None,
    sessions_per_tenant: None,
    session_bytes_per_tenant: None,
    api_keys_per_tenant: None,
    audit_entries_per_day: None,
};

/// A tenant and a key of it.
#[derive(Debug)]
pub(super) struct BenchTenant {
    tenant_id: TenantId,
    api_key: String,
    name: String,
}

/// Creates a tenant with these limits, and a key.
///
/// # Errors
/// [`Failure`] with what the product's command printed.
pub(super) async fn tenant(
    product: &Product,
    name: &str,
    limits: &LimitOverrides,
) -> Result<BenchTenant, Failure> {
    let limits = serde_json::to_value(limits).map_err(Failure::of("the limits"))?;
    let limits: Vec<_> = limits
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("--limit={name}={value}"))
        .collect();
    let mut command = vec!["tenant", "create", "--name", name];
    command.extend(limits.iter().map(String::as_str));
    let tenant_id: TenantId = id_of(&product.json(&command).await?)?;
    let (id, scopes) = (tenant_id.to_string(), SCOPES.map(|scope| format!("--scope={scope}")));
    let mut command = vec!["key", "create", "--tenant", &id, "--name", name];
    command.extend(scopes.iter().map(String::as_str));
    let key = product.json(&command).await?;
    let api_key = key["api_key"].as_str().ok_or_else(|| Failure::new("a key has no secret"))?;
    Ok(BenchTenant { tenant_id, api_key: api_key.to_owned(), name: name.to_owned() })
}

/// Creates a number of tenants with the product's commands.
///
/// # Errors
/// As [`tenant`].
pub(super) async fn tenants(product: &Product, count: usize, run: &str) -> Result<Vec<BenchTenant>, Failure> {
    let mut tenants = Vec::with_capacity(count);
    for number in 0..count {
        tenants.push(tenant(product, &format!("bench {run} {number}"), &LIMITS).await?);
    }
    Ok(tenants)
}

/// Creates a number of tenants at a running server, many at a time.
///
/// # Errors
/// [`Failure`] with the server's answer.
pub(super) async fn many_tenants(
    operator: Operator,
    count: usize,
    run: &str,
) -> Result<Vec<BenchTenant>, Failure> {
    let parts = (0..AT_ONCE).map(async |part| {
        let mut connection = operator.connect().await?;
        let mut tenants = Vec::new();
        for number in (part..count).step_by(AT_ONCE) {
            let name = format!("bench {run} {number}");
            let body = json!({"name": name, "limits": LIMITS});
            let tenant_id: TenantId = id_of(&operator.create(&mut connection, "tenants", &body).await?)?;
            let body = json!({"name": name, "scopes": SCOPES});
            let route = format!("tenants/{tenant_id}/api_keys");
            let key = operator.create(&mut connection, &route, &body).await?;
            let api_key = key["api_key"].as_str().ok_or_else(|| Failure::new("a key has no secret"))?;
            tenants.push(BenchTenant { tenant_id, api_key: api_key.to_owned(), name });
        }
        Ok::<_, Failure>(tenants)
    });
    Ok(try_join_all(parts).await?.into_iter().flatten().collect())
}

/// Creates a number of stores of each tenant at a running server.
///
/// Neighbours in the list belong to different tenants.
///
/// # Errors
/// As [`BenchTenant::store`].
pub(super) async fn stores(
    tenants: &[BenchTenant],
    stores_each: usize,
    server: SocketAddr,
) -> Result<Vec<BenchStore>, Failure> {
    let mut stores = Vec::with_capacity(tenants.len() * stores_each);
    for _ in 0..stores_each {
        for tenants in tenants.chunks(AT_ONCE) {
            stores.extend(try_join_all(tenants.iter().map(|tenant| tenant.store(server))).await?);
        }
    }
    Ok(stores)
}

impl BenchTenant {
    /// Creates a store at a running server.
    ///
    /// # Errors
    /// [`Failure`] with the server's answer.
    pub(super) async fn store(&self, server: SocketAddr) -> Result<BenchStore, Failure> {
        const FAILED: &str = "a store cannot be created";
        let body = json!({"name": self.name}).to_string();
        let request = Request::post("/v1/memory_stores")
            .header("host", server.to_string())
            .header("x-api-key", &self.api_key)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(Failure::of(FAILED))?;
        let mut connection = Connection::open(server).await?;
        let (status, answer) = connection.call(request).await.map_err(Failure::of(FAILED))?;
        if !status.is_success() {
            let answer = String::from_utf8_lossy(&answer);
            return Err(Failure::new(format!("{FAILED}: {status}: {answer}")));
        }
        let store: Value = serde_json::from_slice(&answer).map_err(Failure::of(FAILED))?;
        Ok(BenchStore {
            store_id: id_of(&store)?,
            api_key: self.api_key.clone(),
            tenant_id: Some(self.tenant_id),
        })
    }
}

fn id_of<T: for<'de> Deserialize<'de>>(object: &Value) -> Result<T, Failure> {
    T::deserialize(&object["id"]).map_err(Failure::of("an answer has no id"))
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
    fn given_credentials_are_a_key_and_its_stores() {
        let id = StoreId::from_uuid(uuid::Uuid::from_u128(1));
        let stores = given(format!(r#"[{{"api_key":"k","store_ids":["{id}","{id}"]}}]"#).as_bytes()).unwrap();
        assert_eq!(stores.len(), 2);
        assert_eq!((stores[1].store_id, stores[1].api_key.as_str()), (id, "k"));
        for text in
            ["", "[]", "{}", r#"[{"api_key":"secret"}]"#, r#"[{"api_key":"secret","store_ids":["x"]}]"#]
        {
            assert!(!given(text.as_bytes()).unwrap_err().to_string().contains("secret"));
        }
    }
}
