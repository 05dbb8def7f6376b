//! `/admin/v1/audit` and the audit of a tenant.

use axum::extract::State;
use keepsake_core::schemas::AuditEntryType;
use keepsake_core::{TenantId, Timestamp};
use keepsake_engine::Engine;
use keepsake_index::{AuditEntry, AuditFilter};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::OperatorCaller;
use crate::answer::{Answer, Json};
use crate::path::Path;
use crate::query::QueryParams;
use crate::routes::list::{List, ListPage};

/// An action. It contains no name, path or secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// A UUID.
    id: String,
    #[schema(inline)]
    r#type: AuditEntryType,
    at: Timestamp,
    /// `operator`, `operator_cli`, `api_key:apikey_…`, `session:sesn_…`,
    /// `user:…`, `service_account:…` or `job`.
    actor: String,
    /// The type of object and the action, with a dot between them; for a job
    /// also its name.
    #[schema(examples("tenant.create"))]
    action: String,
    /// The id of the object; null for a job, which has no id.
    #[schema(required)]
    object_id: Option<String>,
    /// The id of the tenant that the action concerns; null for a job and a token key.
    #[schema(required)]
    tenant_id: Option<String>,
    /// The settings of the tenant that `tenant.update` changed, by name: limits and
    /// `search_mode` with the former value (`from`) and the new one (`to`), where
    /// null is the configured value; `name` and `external_id` without values. Null
    /// for other actions.
    #[schema(value_type = Option<Object>, required)]
    changes: Option<Map<String, Value>>,
}

impl From<AuditEntry> for Entry {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id.uuid().to_string(),
            r#type: entry.r#type,
            at: entry.at,
            actor: entry.actor.to_string(),
            action: entry.action,
            object_id: entry.object.map(|object| object.id),
            tenant_id: entry.tenant_id.map(|tenant_id| tenant_id.to_string()),
            changes: entry.changes,
        }
    }
}

/// List a tenant's audit entries
///
/// Newest first: actions of the operator and of the tenant's credentials on the
/// tenant, its memory stores, sessions, API keys, redactions and erasures.
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/audit",
    operation_id = "tenants.audit",
    tag = "Audit",
    params(ListPage),
    responses((status = 200, description = "A page of entries.", body = List<Entry>)),
)]
pub(super) async fn of_tenant(
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    QueryParams(params): QueryParams<ListPage>,
) -> Answer<List<Entry>> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    let entries = engine.audit.list(&operator, &AuditFilter::default(), &params.into()).await?;
    Ok(Json(List::of(entries, Entry::from)))
}

/// List the operator's audit entries
///
/// Newest first. Entries are kept when a tenant is deleted.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "audit.list",
    params(ListPage),
    responses((status = 200, description = "A page of entries.", body = List<Entry>)),
)]
pub(super) async fn of_operator(
    State(engine): State<Engine>,
    QueryParams(params): QueryParams<ListPage>,
) -> Answer<List<Entry>> {
    let entries = engine.audit.of_operator(&AuditFilter::default(), &params.into()).await?;
    Ok(Json(List::of(entries, Entry::from)))
}
