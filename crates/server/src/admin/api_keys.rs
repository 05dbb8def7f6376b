//! `/admin/v1/tenants/{tenant_id}/api_keys`

use keepsake_core::{ApiKeyId, TenantId};
use keepsake_engine::{KeyDraft, KeyWithSecret};
use keepsake_index::ApiKey;

use super::OperatorCaller;
use super::body::{AdminBody, OptionalAdminBody};
use crate::answer::{Answer, Json};
use crate::body::Empty;
use crate::path::Path;
use crate::query::QueryParams;
use crate::routes::list::{List, ListPage};

/// Create a key for a tenant
///
/// Only this response contains the secret. A retry creates another key.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/api_keys",
    operation_id = "tenant_keys.create",
    request_body = KeyDraft,
    responses((status = 200, description = "The key and its secret.", body = KeyWithSecret)),
)]
pub(super) async fn create(
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    AdminBody(draft): AdminBody<KeyDraft>,
) -> Answer<KeyWithSecret> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    Ok(Json(engine.keys.create(&operator, draft, None).await?))
}

/// List a tenant's keys
///
/// Newest first, including revoked keys.
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/api_keys",
    operation_id = "tenant_keys.list",
    params(ListPage),
    responses((status = 200, description = "A page of keys.", body = List<ApiKey>)),
)]
pub(super) async fn list(
    OperatorCaller(engine, by): OperatorCaller,
    Path(tenant_id): Path<TenantId>,
    QueryParams(params): QueryParams<ListPage>,
) -> Answer<List<ApiKey>> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    let keys = engine.keys.list(&operator, &params.into()).await?;
    Ok(Json(keys.into()))
}

/// Retrieve a tenant's key
#[utoipa::path(
    get,
    path = "/tenants/{tenant_id}/api_keys/{api_key_id}",
    operation_id = "tenant_keys.retrieve",
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
pub(super) async fn retrieve(
    OperatorCaller(engine, by): OperatorCaller,
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
) -> Answer<ApiKey> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    Ok(Json(engine.keys.get(&operator, api_key_id).await?))
}

/// Revoke a tenant's key
///
/// Every replica refuses the key within five seconds. Revoking again changes
/// nothing. A revocation cannot be undone.
#[utoipa::path(
    post,
    path = "/tenants/{tenant_id}/api_keys/{api_key_id}/revoke",
    operation_id = "tenant_keys.revoke",
    request_body = Option<Empty>,
    responses((status = 200, description = "The revoked key.", body = ApiKey)),
)]
pub(super) async fn revoke(
    OperatorCaller(engine, by): OperatorCaller,
    Path((tenant_id, api_key_id)): Path<(TenantId, ApiKeyId)>,
    AdminBody(Empty {}): OptionalAdminBody<Empty>,
) -> Answer<ApiKey> {
    let operator = engine.tenants.operator(tenant_id, by).await?;
    Ok(Json(engine.keys.revoke(&operator, api_key_id).await?))
}
