//! `/admin/v1/tenants/{tenant_id}/api_keys`

use axum::Json;
use axum::extract::State;
use keepsake_engine::Engine;

use super::Acting;
use super::body::{AdminBody, OptionalAdminBody};
use crate::body::Empty;
use crate::error::ApiError;
use crate::path::{InTenant, InTenantKey};
use crate::query::QueryParams;
use crate::routes::api_keys::{ApiKey, CreateApiKey, NewApiKey};
use crate::routes::list::{List, ListPage};
use crate::schemas;

/// Create a key for a tenant
///
/// Only this response contains the secret. A retry creates another key.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/api_keys",
    operation_id = "tenant_keys.create",
    tag = "Tenant keys",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant.")),
    request_body = CreateApiKey,
    responses((status = 200, description = "The key and its secret.", body = NewApiKey)),
)]
pub(super) async fn create(
    State(engine): State<Engine>,
    acting: Acting,
    InTenant(tenant_id): InTenant,
    AdminBody(body): AdminBody<CreateApiKey>,
) -> Result<Json<NewApiKey>, ApiError> {
    let operator = acting.on(&engine);
    let made = operator.issue_key(tenant_id, body.draft()?).await?;
    Ok(Json(made.into()))
}

/// List a tenant's keys
///
/// Newest first, including revoked keys.
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/api_keys",
    operation_id = "tenant_keys.list",
    tag = "Tenant keys",
    params(("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant."), ListPage),
    responses((status = 200, description = "A page of keys.", body = List<ApiKey>)),
)]
pub(super) async fn list(
    State(engine): State<Engine>,
    InTenant(tenant_id): InTenant,
    QueryParams(params): QueryParams<ListPage>,
) -> Result<Json<List<ApiKey>>, ApiError> {
    let keys = engine.operator().keys(tenant_id, &params.into()).await?;
    Ok(Json(List::of(keys, ApiKey::from)))
}

/// Retrieve a tenant's key
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/api_keys/{api_key_id}",
    operation_id = "tenant_keys.retrieve",
    tag = "Tenant keys",
    params(
        ("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant."),
        ("api_key_id" = schemas::ApiKeyId, Path, description = "The key."),
    ),
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
pub(super) async fn retrieve(
    State(engine): State<Engine>,
    InTenantKey(tenant_id, api_key_id): InTenantKey,
) -> Result<Json<ApiKey>, ApiError> {
    Ok(Json(engine.operator().key(tenant_id, api_key_id).await?.into()))
}

/// Revoke a tenant's key
///
/// Every replica refuses the key within five seconds. Revoking again changes
/// nothing. A revocation cannot be undone.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/api_keys/{api_key_id}/revoke",
    operation_id = "tenant_keys.revoke",
    tag = "Tenant keys",
    params(
        ("tenant_id" = schemas::WorkspaceId, Path, description = "The tenant."),
        ("api_key_id" = schemas::ApiKeyId, Path, description = "The key."),
    ),
    request_body = Option<Empty>,
    responses((status = 200, description = "The revoked key.", body = ApiKey)),
)]
pub(super) async fn revoke(
    State(engine): State<Engine>,
    acting: Acting,
    InTenantKey(tenant_id, api_key_id): InTenantKey,
    OptionalAdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Result<Json<ApiKey>, ApiError> {
    let operator = acting.on(&engine);
    Ok(Json(operator.revoke_key(tenant_id, api_key_id).await?.into()))
}
