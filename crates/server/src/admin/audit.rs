//! `/admin/v1/audit` and the audit of a tenant.

use axum::Json;
use axum::extract::State;
use keepsake_engine::{AuditQuery, Engine};
use keepsake_index::AuditEntry;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::path::InTenant;
use crate::query::Asked;
use crate::routes::audit::object_id;
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
    /// `operator`, `operator_cli`, `api_key:apikey_…`, `session:sesn_…`,
    /// `user:…`, `service_account:…` or `job`.
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

/// List what concerns a tenant
///
/// The newest first: what the operator and its own credentials did to it, its
/// memory stores, sessions, API keys, redactions and erasures.
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
    let query = AuditQuery {
        page: asked.into(),
        ..AuditQuery::default()
    };
    let entries = engine.operator().audit(tenant_id, &query).await?;
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
