//! `/v1/api_keys`

use axum::extract::State;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use keepsake_engine::{Engine, KeyDraft, MadeKey};
use keepsake_index::{ApiKey as FoundKey, Scope};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::list::{List, ListPage};
use crate::answer::Json;
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody, parse_time};
use crate::error::ApiError;
use crate::path::Path;
use crate::query::QueryParams;
use crate::schemas::{self, ApiKeyType};

/// The body of a create request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateApiKey {
    /// 1 to 255 characters without control characters.
    #[schema(value_type = schemas::TenantName)]
    name: String,
    /// The permissions of the key; at least one.
    #[schema(value_type = Vec<schemas::Scope>, min_items = 1)]
    scopes: Vec<Scope>,
    /// The only stores that the key can access, at most 1,000; all stores by
    /// default.
    #[schema(value_type = Option<Vec<schemas::MemoryStoreId>>, min_items = 1, max_items = 1000)]
    memory_store_ids: Option<Vec<StoreId>>,
    /// When the key expires, in the future; never by default.
    #[schema(value_type = Option<schemas::Time>)]
    expires_at: Option<String>,
}

impl CreateApiKey {
    pub(crate) fn draft(self) -> Result<KeyDraft, ApiError> {
        let expires_at = self.expires_at.map(|text| parse_time("expires_at", &text));
        Ok(KeyDraft {
            name: self.name,
            scopes: self.scopes,
            store_ids: self.memory_store_ids,
            expires_at: expires_at.transpose()?,
        })
    }
}

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKey {
    #[schema(value_type = schemas::ApiKeyId)]
    id: ApiKeyId,
    #[schema(inline)]
    r#type: ApiKeyType,
    #[schema(value_type = schemas::WorkspaceId)]
    workspace_id: TenantId,
    name: String,
    #[schema(value_type = Vec<schemas::Scope>)]
    scopes: Vec<Scope>,
    /// The only stores that the key can access; null: all stores.
    #[schema(value_type = Option<Vec<schemas::MemoryStoreId>>, required)]
    memory_store_ids: Option<Vec<StoreId>>,
    #[schema(value_type = schemas::Time)]
    created_at: String,
    /// When the key expires; null: never.
    #[schema(value_type = Option<schemas::Time>, required)]
    expires_at: Option<String>,
    /// When a request last used the key, accurate to half a minute.
    #[schema(value_type = Option<schemas::Time>, required)]
    last_used_at: Option<String>,
    /// When the key was revoked.
    #[schema(value_type = Option<schemas::Time>, required)]
    revoked_at: Option<String>,
}

/// An API key with its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct NewApiKey {
    #[serde(flatten)]
    key: ApiKey,
    /// The secret, returned only once; null in the response to a retry.
    #[schema(required)]
    api_key: Option<String>,
}

impl From<FoundKey> for ApiKey {
    fn from(key: FoundKey) -> Self {
        Self {
            id: key.api_key_id,
            r#type: ApiKeyType,
            workspace_id: key.tenant_id,
            name: key.name,
            scopes: key.scopes,
            memory_store_ids: key.store_ids,
            created_at: key.created_at.to_rfc3339(),
            expires_at: key.expires_at.map(Timestamp::to_rfc3339),
            last_used_at: key.last_used_at.map(Timestamp::to_rfc3339),
            revoked_at: key.revoked_at.map(Timestamp::to_rfc3339),
        }
    }
}

impl From<MadeKey> for NewApiKey {
    fn from(made: MadeKey) -> Self {
        Self { key: made.key.into(), api_key: made.secret.map(|secret| secret.expose().to_owned()) }
    }
}

/// Create an API key
///
/// The key cannot have a scope, store or expiry beyond those of the credential.
/// Only this response contains its secret.
#[utoipa::path(
    post,
    path = "/api_keys",
    operation_id = "api_keys.create",
    request_body = CreateApiKey,
    responses((status = 200, description = "The key and its secret.", body = NewApiKey)),
)]
pub(crate) async fn create(
    State(engine): State<Engine>,
    JsonBody(principal, body, call): JsonBody<CreateApiKey>,
) -> Result<Json<NewApiKey>, ApiError> {
    let made = engine.keys.create(&principal, body.draft()?, call).await?;
    Ok(Json(made.into()))
}

/// List API keys
///
/// The keys of the credential's tenant, newest first, including revoked keys. A
/// credential bound to memory stores sees only keys that are bound to a subset
/// of these stores.
#[utoipa::path(
    get,
    path = "/api_keys",
    operation_id = "api_keys.list",
    params(ListPage),
    responses((status = 200, description = "A page of keys.", body = List<ApiKey>)),
)]
pub(crate) async fn list(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    QueryParams(params): QueryParams<ListPage>,
) -> Result<Json<List<ApiKey>>, ApiError> {
    let keys = engine.keys.list(&principal, &params.into()).await?;
    Ok(Json(List::of(keys, ApiKey::from)))
}

/// Retrieve an API key
#[utoipa::path(
    get,
    path = "/api_keys/{api_key_id}",
    operation_id = "api_keys.retrieve",
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
pub(crate) async fn retrieve(
    State(engine): State<Engine>,
    Caller(principal): Caller,
    Path(api_key_id): Path<ApiKeyId>,
) -> Result<Json<ApiKey>, ApiError> {
    Ok(Json(engine.keys.get(&principal, api_key_id).await?.into()))
}

/// Revoke an API key
///
/// Every replica refuses the key within five seconds. Revoking again changes
/// nothing. A revocation cannot be undone.
#[utoipa::path(
    post,
    path = "/api_keys/{api_key_id}/revoke",
    operation_id = "api_keys.revoke",
    request_body = Option<Empty>,
    responses((status = 200, description = "The revoked key.", body = ApiKey)),
)]
pub(crate) async fn revoke(
    State(engine): State<Engine>,
    Path(api_key_id): Path<ApiKeyId>,
    OptionalBody(principal, ..): OptionalBody<Empty>,
) -> Result<Json<ApiKey>, ApiError> {
    Ok(Json(engine.keys.revoke(&principal, api_key_id).await?.into()))
}
