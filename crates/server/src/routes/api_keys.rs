//! `/v1/api_keys` and `/v1/credential`

use keepsake_core::ApiKeyId;
use keepsake_engine::{Credential, KeyDraft, KeyWithSecret};
use keepsake_index::ApiKey;

use super::list::{List, ListPage};
use crate::answer::{Answer, Json};
use crate::auth::Caller;
use crate::body::{Empty, JsonBody, OptionalBody};
use crate::path::Path;
use crate::query::QueryParams;

/// Create an API key
///
/// The key cannot have a scope, store or expiry beyond those of the credential.
/// Only this response contains its secret.
#[utoipa::path(
    post,
    path = "/api_keys",
    operation_id = "api_keys.create",
    request_body = KeyDraft,
    responses((status = 200, description = "The key and its secret.", body = KeyWithSecret)),
)]
pub(crate) async fn create(
    JsonBody(Caller(engine, principal), draft, call): JsonBody<KeyDraft>,
) -> Answer<KeyWithSecret> {
    Ok(Json(engine.keys.create(&principal, draft, call).await?))
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
    Caller(engine, principal): Caller,
    QueryParams(params): QueryParams<ListPage>,
) -> Answer<List<ApiKey>> {
    let keys = engine.keys.list(&principal, &params.into()).await?;
    Ok(Json(keys.into()))
}

/// Retrieve an API key
#[utoipa::path(
    get,
    path = "/api_keys/{api_key_id}",
    operation_id = "api_keys.retrieve",
    responses((status = 200, description = "The key.", body = ApiKey)),
)]
pub(crate) async fn retrieve(
    Caller(engine, principal): Caller,
    Path(api_key_id): Path<ApiKeyId>,
) -> Answer<ApiKey> {
    Ok(Json(engine.keys.get(&principal, api_key_id).await?))
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
    Path(api_key_id): Path<ApiKeyId>,
    JsonBody(Caller(engine, principal), ..): OptionalBody<Empty>,
) -> Answer<ApiKey> {
    Ok(Json(engine.keys.revoke(&principal, api_key_id).await?))
}

/// Retrieve the credential
///
/// Whom the credential of the request stands for, and what it may do. Every API key and every token of an issuer
/// may make this call.
#[utoipa::path(
    get,
    path = "/credential",
    operation_id = "credential.retrieve",
    tag = "API keys",
    responses((status = 200, description = "The credential, without its secret.", body = Credential)),
)]
pub(crate) async fn retrieve_credential(Caller(_, principal): Caller) -> Answer<Credential> {
    Ok(Json(principal.credential()?))
}
