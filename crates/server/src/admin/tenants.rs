//! `/admin/v1/tenants`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{Limits, TenantId, Timestamp};
use keepsake_engine::{Engine, NewTenant, TenantUsageReport, limits_of};
use keepsake_index::{Tenant as FoundTenant, TenantChange, TenantDeletion as FoundDeletion};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::By;
use super::body::{AdminBody, OptionalAdminBody};
use crate::answer::Json;
use crate::body::Empty;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::routes::erasures::ObjectVersions;
use crate::routes::list::{List, ListPage};
use crate::schemas::{self, TenantDeletionType, TenantType, TenantUsageType};

/// The body of a create request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTenant {
    /// A display name.
    #[schema(value_type = schemas::TenantName)]
    name: String,
    /// Your own unique id for the tenant.
    #[schema(value_type = Option<schemas::TenantName>)]
    external_id: Option<String>,
    /// The limits that differ from the configured ones.
    #[schema(value_type = Option<schemas::LimitPatch>)]
    limits: Option<Map<String, Value>>,
}

/// The body of an update; omitted fields stay unchanged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateTenant {
    /// A display name.
    #[schema(value_type = Option<schemas::TenantName>)]
    name: Option<String>,
    /// Your own unique id for the tenant; null removes it.
    #[serde(default, deserialize_with = "given")]
    #[expect(clippy::option_option, reason = "null differs from an omitted field")]
    #[schema(value_type = Option<schemas::TenantName>)]
    external_id: Option<Option<String>>,
    /// Limits to set; null resets a limit to the configured value, and omitted
    /// limits stay unchanged. Lowering a limit on live data deletes nothing;
    /// lowering a limit on history deletes older versions.
    #[schema(value_type = Option<schemas::LimitPatch>)]
    limits: Option<Map<String, Value>>,
}

/// Distinguishes null from an omitted field.
#[expect(clippy::option_option, reason = "null differs from an omitted field")]
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
    /// The limits that differ from the configured ones.
    #[schema(value_type = schemas::Limits)]
    limits: LimitOverrides,
    #[schema(value_type = schemas::Time)]
    created_at: String,
}

impl From<FoundTenant> for Tenant {
    fn from(tenant: FoundTenant) -> Self {
        Self {
            id: tenant.tenant_id,
            r#type: TenantType,
            name: tenant.name,
            external_id: tenant.external_id,
            status: tenant.status.name(),
            limits: LimitOverrides { period_set_at: None, ..tenant.limits },
            created_at: tenant.created_at.to_rfc3339(),
        }
    }
}

/// A tenant's usage, by its counters.
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
    /// Keys that are not revoked.
    api_keys: u64,
    /// Live and archived sessions.
    sessions: u64,
    /// Bytes of the sessions' descriptions.
    session_bytes: u64,
    /// The limits in force.
    #[schema(value_type = schemas::Limits)]
    limits: Limits,
}

impl TenantUsage {
    fn of(tenant_id: TenantId, report: TenantUsageReport) -> Self {
        let usage = report.usage;
        Self {
            id: tenant_id,
            r#type: TenantUsageType,
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

/// A tenant's deletion and its counts of removed data. It is kept after the
/// tenant is gone.
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
    /// When the deletion checks again for data that was written late.
    #[schema(value_type = Option<schemas::Time>, required)]
    settles_at: Option<String>,
    /// When the deletion was done. Only the data that `object_versions` reports
    /// as not deleted can be left.
    #[schema(value_type = Option<schemas::Time>, required)]
    ended_at: Option<String>,
    /// Rows removed so far, by table.
    rows: BTreeMap<String, u64>,
    /// Blobs removed so far.
    blobs: u64,
    /// Bytes of the blobs removed so far.
    blob_bytes: u64,
    /// Includes blobs that were deleted before the tenant.
    object_versions: ObjectVersions,
}

impl From<FoundDeletion> for TenantDeletion {
    fn from(deletion: FoundDeletion) -> Self {
        Self {
            id: deletion.tenant_id,
            r#type: TenantDeletionType,
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

query_params! {
    /// Filters of the tenant listing.
    ListTenants {
        /// Only the tenant with this id of yours.
        #[param(value_type = Option<schemas::GivenName>)]
        external_id: Option<String> = name("external_id"),
    }
}

/// Create a tenant
///
/// A retry without an `external_id` creates another tenant; with one the
/// response is 409.
#[utoipa::path(
    post,
    path = "/tenants",
    operation_id = "tenants.create",
    request_body = CreateTenant,
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(super) async fn create(
    State(engine): State<Engine>,
    By(by): By,
    AdminBody(body): AdminBody<CreateTenant>,
) -> Result<Json<Tenant>, ApiError> {
    let new = NewTenant {
        name: body.name,
        external_id: body.external_id,
        limits: limits_of(body.limits.unwrap_or_default())?,
    };
    let tenant = engine.tenants.create(new, by).await?;
    Ok(Json(tenant.into()))
}

/// List tenants
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/tenants",
    operation_id = "tenants.list",
    params(ListTenants, ListPage),
    responses((status = 200, description = "A page of tenants.", body = List<Tenant>)),
)]
pub(super) async fn list(
    State(engine): State<Engine>,
    QueryParams((params, page)): QueryParams<(ListTenants, ListPage)>,
) -> Result<Json<List<Tenant>>, ApiError> {
    let tenants = engine.tenants.list(params.external_id.as_deref(), &page.into()).await?;
    Ok(Json(List::of(tenants, Tenant::from)))
}

/// Retrieve a tenant
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.retrieve",
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(super) async fn retrieve(
    State(engine): State<Engine>,
    Path(tenant_id): Path<TenantId>,
) -> Result<Json<Tenant>, ApiError> {
    Ok(Json(engine.tenants.get(tenant_id).await?.into()))
}

/// Update a tenant
///
/// Omitted fields stay unchanged. Limits take effect within five seconds.
#[utoipa::path(
    patch,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.update",
    request_body = UpdateTenant,
    responses((status = 200, description = "The updated tenant.", body = Tenant)),
)]
pub(super) async fn update(
    State(engine): State<Engine>,
    By(by): By,
    Path(tenant_id): Path<TenantId>,
    AdminBody(body): AdminBody<UpdateTenant>,
) -> Result<Json<Tenant>, ApiError> {
    let change = TenantChange {
        name: body.name,
        external_id: body.external_id,
        limits: body.limits.unwrap_or_default(),
        status: None,
    };
    Ok(Json(engine.tenants.update(tenant_id, change, by).await?.into()))
}

/// Suspend a tenant
///
/// Its credentials are refused within five seconds. Its data is kept.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/suspend",
    operation_id = "tenants.suspend",
    request_body = Option<Empty>,
    responses((status = 200, description = "The suspended tenant.", body = Tenant)),
)]
pub(super) async fn suspend(
    State(engine): State<Engine>,
    By(by): By,
    Path(tenant_id): Path<TenantId>,
    OptionalAdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Result<Json<Tenant>, ApiError> {
    Ok(Json(engine.tenants.suspend(tenant_id, by).await?.into()))
}

/// Resume a tenant
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/resume",
    operation_id = "tenants.resume",
    request_body = Option<Empty>,
    responses((status = 200, description = "The resumed tenant.", body = Tenant)),
)]
pub(super) async fn resume(
    State(engine): State<Engine>,
    By(by): By,
    Path(tenant_id): Path<TenantId>,
    OptionalAdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Result<Json<Tenant>, ApiError> {
    Ok(Json(engine.tenants.resume(tenant_id, by).await?.into()))
}

/// Retrieve a tenant's usage
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/usage",
    operation_id = "tenants.usage",
    responses((status = 200, description = "The tenant's usage and limits.", body = TenantUsage)),
)]
pub(super) async fn usage(
    State(engine): State<Engine>,
    By(by): By,
    Path(tenant_id): Path<TenantId>,
) -> Result<Json<TenantUsage>, ApiError> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    let report = engine.usage.of_tenant(&operator).await?;
    Ok(Json(TenantUsage::of(tenant_id, report)))
}

/// Delete a tenant
///
/// Its credentials are refused within five seconds. The job `delete-tenants`
/// removes all its rows and blobs. A deletion cannot be undone. Deleting again
/// returns the deletion's progress.
#[utoipa::path(
    delete,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.delete",
    responses((status = 202, description = "The deletion has started.", body = TenantDeletion)),
)]
pub(super) async fn delete(
    State(engine): State<Engine>,
    By(by): By,
    Path(tenant_id): Path<TenantId>,
    _: QueryParams<()>,
) -> Result<(StatusCode, Json<TenantDeletion>), ApiError> {
    let begun = engine.tenants.delete(tenant_id, by).await?;
    Ok((StatusCode::ACCEPTED, Json(begun.into())))
}

/// Retrieve a tenant's deletion
#[utoipa::path(
    get,
    path = "/tenant_deletions/{tenant_id}",
    operation_id = "tenant_deletions.retrieve",
    tag = "Tenants",
    responses((status = 200, description = "The deletion and its progress.", body = TenantDeletion)),
)]
pub(super) async fn deletion(
    State(engine): State<Engine>,
    Path(tenant_id): Path<TenantId>,
) -> Result<Json<TenantDeletion>, ApiError> {
    Ok(Json(engine.tenants.deletion(tenant_id).await?.into()))
}
