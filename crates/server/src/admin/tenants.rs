//! `/admin/v1/tenants`

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{Limits, TenantId, Timestamp};
use keepsake_engine::{Engine, NewTenant, PageRequest, TenantEdit, TenantQuery, UsageReport, limits_of};
use keepsake_index::{Tenant as FoundTenant, TenantDeletion as FoundDeletion};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Acting;
use super::body::{AdminBody, OptionalAdminBody};
use crate::body::Empty;
use crate::error::ApiError;
use crate::path::InTenant;
use crate::query::{Asked, FromQuery, Nothing, Query};
use crate::routes::erasures::ObjectVersions;
use crate::routes::list::List;
use crate::schemas::{self, TenantDeletionType, TenantType, TenantUsageType};

/// The body of a creation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTenant {
    /// A name for people.
    #[schema(value_type = schemas::TenantName)]
    name: String,
    /// Your own id for it, unique.
    #[schema(value_type = Option<schemas::TenantName>)]
    external_id: Option<String>,
    /// Where its limits differ from the configured ones.
    #[schema(value_type = Option<schemas::LimitPatch>)]
    limits: Option<Map<String, Value>>,
}

/// The body of an update; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateTenant {
    /// A name for people.
    #[schema(value_type = Option<schemas::TenantName>)]
    name: Option<String>,
    /// Your own id for it, unique; null removes it.
    #[serde(default, deserialize_with = "given")]
    #[expect(clippy::option_option, reason = "null is not the same as left out")]
    #[schema(value_type = Option<schemas::TenantName>)]
    external_id: Option<Option<String>>,
    /// Limits to set, or with null to take the configured ones; those not named
    /// stay. A lower limit on what may be held deletes nothing; one on history
    /// does.
    #[schema(value_type = Option<schemas::LimitPatch>)]
    limits: Option<Map<String, Value>>,
}

/// Distinguishes null from an omitted field.
#[expect(clippy::option_option, reason = "null is not the same as left out")]
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tenant {
    #[schema(value_type = schemas::WorkspaceId)]
    id: TenantId,
    #[schema(inline)]
    r#type: TenantType,
    name: String,
    #[schema(required)]
    external_id: Option<String>,
    #[schema(value_type = schemas::TenantStatus)]
    status: &'static str,
    /// Where its limits differ from the configured ones.
    #[schema(value_type = schemas::Limits)]
    limits: LimitOverrides,
    #[schema(value_type = schemas::Time)]
    created_at: String,
}

impl From<FoundTenant> for Tenant {
    fn from(tenant: FoundTenant) -> Self {
        Self {
            id: tenant.tenant_id,
            r#type: TenantType::Tenant,
            name: tenant.name,
            external_id: tenant.external_id,
            status: tenant.status.name(),
            limits: LimitOverrides {
                period_set_at: None,
                ..tenant.limits
            },
            created_at: tenant.created_at.to_rfc3339(),
        }
    }
}

/// What a tenant holds, as its counters say.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantUsage {
    #[schema(value_type = schemas::WorkspaceId)]
    id: TenantId,
    #[schema(inline)]
    r#type: TenantUsageType,
    /// Stores that are not deleted.
    memory_stores: u64,
    /// Live memories.
    memories: u64,
    /// Bytes of the live memories.
    content_bytes: u64,
    /// Versions kept, those of live memories included.
    memory_versions: u64,
    /// Bytes of all content kept, that of live memories included.
    version_bytes: u64,
    /// Bytes granted to its stores, used or not.
    granted_bytes: u64,
    /// Keys that were not revoked.
    api_keys: u64,
    /// Live and archived sessions.
    sessions: u64,
    /// Bytes of these sessions' descriptions.
    session_bytes: u64,
    /// The limits in force.
    #[schema(value_type = schemas::Limits)]
    limits: Limits,
}

impl TenantUsage {
    fn of(tenant_id: TenantId, report: UsageReport) -> Self {
        let usage = report.usage;
        Self {
            id: tenant_id,
            r#type: TenantUsageType::Usage,
            memory_stores: usage.stores,
            memories: usage.memories,
            content_bytes: usage.live_bytes,
            memory_versions: usage.versions,
            version_bytes: usage.version_bytes,
            granted_bytes: usage.granted_bytes,
            api_keys: usage.api_keys,
            sessions: usage.sessions,
            session_bytes: usage.session_bytes,
            limits: report.limits,
        }
    }
}

/// A tenant's deletion: what it removed. It outlives the tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TenantDeletion {
    /// The tenant.
    #[schema(value_type = schemas::WorkspaceId)]
    id: TenantId,
    #[schema(inline)]
    r#type: TenantDeletionType,
    #[schema(value_type = schemas::TenantDeletionStatus)]
    status: &'static str,
    #[schema(value_type = schemas::Time)]
    requested_at: String,
    /// When it is looked again for what came late.
    #[schema(value_type = Option<schemas::Time>, required)]
    settles_at: Option<String>,
    /// Since when nothing is left but what `object_versions` says is not deleted.
    #[schema(value_type = Option<schemas::Time>, required)]
    ended_at: Option<String>,
    /// Rows removed so far, by table.
    rows: BTreeMap<String, u64>,
    /// Blobs removed so far.
    blobs: u64,
    /// Bytes of the blobs removed so far.
    blob_bytes: u64,
    /// Of blobs too that were deleted before the tenant was.
    object_versions: ObjectVersions,
}

impl From<FoundDeletion> for TenantDeletion {
    fn from(deletion: FoundDeletion) -> Self {
        Self {
            id: deletion.tenant_id,
            r#type: TenantDeletionType::Deletion,
            status: deletion.state.name(),
            requested_at: deletion.requested_at.to_rfc3339(),
            settles_at: deletion.settles_at.map(Timestamp::to_rfc3339),
            ended_at: deletion.ended_at.map(Timestamp::to_rfc3339),
            rows: deletion.rows,
            blobs: deletion.blobs,
            blob_bytes: deletion.blob_bytes,
            object_versions: deletion.object_versions.into(),
        }
    }
}

/// Filters of the tenant listing.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListTenants {
    /// Only the tenant that you call so.
    #[param(value_type = Option<schemas::GivenName>)]
    external_id: Option<String>,
    /// Items of a page; 20 where unset.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u64>,
    /// The `next_page` of the page before.
    #[param(value_type = Option<schemas::Cursor>)]
    page: Option<String>,
}

impl FromQuery for ListTenants {
    fn from_query(query: &mut Query) -> Result<Self, ApiError> {
        Ok(Self {
            external_id: query.name("external_id")?,
            limit: query.limit()?,
            page: query.text("page")?,
        })
    }
}

/// Create a tenant
///
/// A retry without an `external_id` makes another one; with one it is 409.
#[utoipa::path(
    post,
    path = "/tenants",
    operation_id = "tenants.create",
    tag = "Tenants",
    request_body = CreateTenant,
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(super) async fn create(
    State(engine): State<Engine>,
    acting: Acting,
    AdminBody(body): AdminBody<CreateTenant>,
) -> Result<Json<Tenant>, ApiError> {
    let new = NewTenant {
        name: body.name,
        external_id: body.external_id,
        limits: limits_of(body.limits.unwrap_or_default())?,
    };
    let tenant = acting.on(&engine).create_tenant(new).await?;
    Ok(Json(tenant.into()))
}

/// List tenants
///
/// The newest first.
#[utoipa::path(
    get,
    path = "/tenants",
    operation_id = "tenants.list",
    tag = "Tenants",
    params(ListTenants),
    responses((status = 200, description = "A page of tenants.", body = List<Tenant>)),
)]
pub(super) async fn list(
    State(engine): State<Engine>,
    Asked(asked): Asked<ListTenants>,
) -> Result<Json<List<Tenant>>, ApiError> {
    let query = TenantQuery {
        external_id: asked.external_id,
        page: PageRequest {
            limit: asked.limit,
            page: asked.page,
        },
    };
    let tenants = engine.operator().tenants(&query).await?;
    Ok(Json(List::of(tenants, Tenant::from)))
}

/// Retrieve a tenant
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.retrieve",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(super) async fn retrieve(
    State(engine): State<Engine>,
    InTenant(tenant_id): InTenant,
) -> Result<Json<Tenant>, ApiError> {
    Ok(Json(engine.operator().tenant(tenant_id).await?.into()))
}

/// Update a tenant
///
/// What is left out stays. Limits are felt within five seconds.
#[utoipa::path(
    patch,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.update",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    request_body = UpdateTenant,
    responses((status = 200, description = "The tenant as it is now.", body = Tenant)),
)]
pub(super) async fn update(
    State(engine): State<Engine>,
    acting: Acting,
    InTenant(tenant_id): InTenant,
    AdminBody(body): AdminBody<UpdateTenant>,
) -> Result<Json<Tenant>, ApiError> {
    let edit = TenantEdit {
        name: body.name,
        external_id: body.external_id,
        limits: body.limits.unwrap_or_default(),
    };
    let operator = acting.on(&engine);
    Ok(Json(operator.update_tenant(tenant_id, edit).await?.into()))
}

/// Suspend a tenant
///
/// Its credentials are refused within five seconds; all it has is kept.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/suspend",
    operation_id = "tenants.suspend",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    request_body = Option<Empty>,
    responses((status = 200, description = "The tenant, suspended.", body = Tenant)),
)]
pub(super) async fn suspend(
    State(engine): State<Engine>,
    acting: Acting,
    InTenant(tenant_id): InTenant,
    OptionalAdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Result<Json<Tenant>, ApiError> {
    let operator = acting.on(&engine);
    Ok(Json(operator.suspend_tenant(tenant_id).await?.into()))
}

/// Resume a tenant
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/resume",
    operation_id = "tenants.resume",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    request_body = Option<Empty>,
    responses((status = 200, description = "The tenant, served again.", body = Tenant)),
)]
pub(super) async fn resume(
    State(engine): State<Engine>,
    acting: Acting,
    InTenant(tenant_id): InTenant,
    OptionalAdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Result<Json<Tenant>, ApiError> {
    let operator = acting.on(&engine);
    Ok(Json(operator.resume_tenant(tenant_id).await?.into()))
}

/// Retrieve what a tenant holds
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/usage",
    operation_id = "tenants.usage",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    responses((status = 200, description = "What it holds and may hold.", body = TenantUsage)),
)]
pub(super) async fn usage(
    State(engine): State<Engine>,
    InTenant(tenant_id): InTenant,
) -> Result<Json<TenantUsage>, ApiError> {
    let report = engine.operator().usage(tenant_id).await?;
    Ok(Json(TenantUsage::of(tenant_id, report)))
}

/// Delete a tenant
///
/// Its credentials are refused within five seconds. Every row and blob of it is
/// removed by the job `delete-tenants`; it cannot be undone. Deleting again
/// answers how far it is.
#[utoipa::path(
    delete,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.delete",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    responses((status = 202, description = "It has begun.", body = TenantDeletion)),
)]
pub(super) async fn delete(
    State(engine): State<Engine>,
    acting: Acting,
    InTenant(tenant_id): InTenant,
    Asked(Nothing): Asked<Nothing>,
) -> Result<(StatusCode, Json<TenantDeletion>), ApiError> {
    let begun = acting.on(&engine).delete_tenant(tenant_id).await?;
    Ok((StatusCode::ACCEPTED, Json(begun.into())))
}

/// Retrieve a tenant's deletion
#[utoipa::path(
    get,
    path = "/tenant_deletions/{tenant_id}",
    operation_id = "tenant_deletions.retrieve",
    tag = "Tenants",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    responses((status = 200, description = "How far it is.", body = TenantDeletion)),
)]
pub(super) async fn deletion(
    State(engine): State<Engine>,
    InTenant(tenant_id): InTenant,
) -> Result<Json<TenantDeletion>, ApiError> {
    Ok(Json(engine.operator().tenant_deletion(tenant_id).await?.into()))
}
