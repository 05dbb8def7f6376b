//! `/admin/v1/audit` and a tenant's own.

use axum::Json;
use axum::extract::State;
use keepsake_core::{ApiKeyId, ErasureId, StoreId, TenantId};
use keepsake_engine::Engine;
use keepsake_index::AuditEntry;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::ApiError;
use crate::path::InTenant;
use crate::query::Asked;
use crate::routes::list::{List, ListPage};
use crate::schemas::{self, AuditEntryType};

/// Something that was done; never a name, a path or a secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// A UUID.
    id: String,
    #[schema(inline)]
    r#type: AuditEntryType,
    #[schema(value_type = schemas::Time)]
    at: String,
    /// `operator`, `operator_cli`, `api_key:apikey_…`, `user:…`,
    /// `service_account:…` or `job`.
    actor: String,
    /// The kind of object, a dot, and what was done to it; of a job also which.
    #[schema(examples("tenant.create"))]
    action: String,
    /// What it was done to; null of a job, which has no id.
    #[schema(required)]
    object_id: Option<String>,
}

impl From<AuditEntry> for Entry {
    fn from(entry: AuditEntry) -> Self {
        let object_id = entry.object_id.map(|id| object_id(&entry.action, id));
        Self {
            id: entry.id.to_string(),
            r#type: AuditEntryType::Entry,
            at: entry.at.to_rfc3339(),
            actor: entry.actor,
            action: entry.action,
            object_id,
        }
    }
}

/// The id of an object as its own surface writes it; a UUID where there is none.
fn object_id(action: &str, id: Uuid) -> String {
    match action.split('.').next() {
        Some("tenant") => TenantId::from_uuid(id).to_string(),
        Some("api_key") => ApiKeyId::from_uuid(id).to_string(),
        Some("memory_store") => StoreId::from_uuid(id).to_string(),
        Some("erasure") => ErasureId::from_uuid(id).to_string(),
        _ => id.to_string(),
    }
}

/// List what concerns a tenant
///
/// The newest first: what the operator did to it, its keys and its erasures.
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/audit",
    operation_id = "tenants.audit",
    tag = "Audit",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant."), ListPage),
    responses((status = 200, description = "A page of entries.", body = List<Entry>)),
)]
pub(super) async fn of_tenant(
    State(engine): State<Engine>,
    InTenant(tenant_id): InTenant,
    Asked(asked): Asked<ListPage>,
) -> Result<Json<List<Entry>>, ApiError> {
    let entries = engine.operator().audit(tenant_id, &asked.into()).await?;
    Ok(Json(List::of(entries, Entry::from)))
}

/// List what the operator did
///
/// The newest first; it outlives the tenants.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "audit.list",
    tag = "Audit",
    params(ListPage),
    responses((status = 200, description = "A page of entries.", body = List<Entry>)),
)]
pub(super) async fn of_operator(
    State(engine): State<Engine>,
    Asked(asked): Asked<ListPage>,
) -> Result<Json<List<Entry>>, ApiError> {
    let entries = engine.operator().operator_audit(&asked.into()).await?;
    Ok(Json(List::of(entries, Entry::from)))
}
