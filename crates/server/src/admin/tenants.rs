//! `/admin/v1/tenants`

use axum::extract::State;
use axum::http::StatusCode;
use keepsake_core::TenantId;
use keepsake_engine::{Engine, NewTenant};
use keepsake_index::{Tenant, TenantChange, TenantDeletion, TenantUsage};

use super::OperatorCaller;
use super::body::{AdminBody, OptionalAdminBody};
use crate::answer::{Answer, Json};
use crate::body::Empty;
use crate::error::ApiError;
use crate::path::Path;
use crate::query::{QueryParams, query_params};
use crate::routes::list::{List, ListPage};
use crate::schemas;

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
    request_body = NewTenant,
    responses((status = 200, description = "The tenant.", body = Tenant)),
)]
pub(super) async fn create(
    OperatorCaller(engine, by): OperatorCaller,
    AdminBody(new): AdminBody<NewTenant>,
) -> Answer<Tenant> {
    Ok(Json(engine.tenants.create(new, by).await?))
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
) -> Answer<List<Tenant>> {
    let tenants = engine.tenants.list(params.external_id.as_deref(), &page.into()).await?;
    Ok(Json(tenants.into()))
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
) -> Answer<Tenant> {
    Ok(Json(engine.tenants.get(tenant_id).await?))
}

/// Update a tenant
///
/// Omitted fields stay unchanged. Limits take effect within five seconds.
#[utoipa::path(
    patch,
    path = "/tenants/{tenant_id}",
    operation_id = "tenants.update",
    request_body = TenantChange,
    responses((status = 200, description = "The updated tenant.", body = Tenant)),
)]
pub(super) async fn update(
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    AdminBody(change): AdminBody<TenantChange>,
) -> Answer<Tenant> {
    Ok(Json(engine.tenants.update(tenant_id, change, by).await?.after))
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
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    AdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Answer<Tenant> {
    Ok(Json(engine.tenants.suspend(tenant_id, by).await?))
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
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    AdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Answer<Tenant> {
    Ok(Json(engine.tenants.resume(tenant_id, by).await?))
}

/// Retrieve a tenant's usage
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/usage",
    operation_id = "tenants.usage",
    responses((status = 200, description = "The tenant's usage and limits.", body = TenantUsage)),
)]
pub(super) async fn usage(
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
) -> Answer<TenantUsage> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    Ok(Json(engine.usage.of_tenant(&operator).await?))
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
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    _: QueryParams<()>,
) -> Result<(StatusCode, Json<TenantDeletion>), ApiError> {
    let begun = engine.tenants.delete(tenant_id, by).await?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
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
) -> Answer<TenantDeletion> {
    Ok(Json(engine.tenants.deletion(tenant_id).await?))
}
