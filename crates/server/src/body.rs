//! What comes in: bodies within the tenant's bound, ids in paths.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use keepsake_core::StoreId;
use keepsake_engine::Principal;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Room for what is around the content: a whole `tool_use` block, metadata.
const BODY_OVERHEAD_BYTES: u64 = 64 << 10;
/// JSON may write one byte of content as six characters (`\u0001`).
const ESCAPED_BYTES: u64 = 6;

/// Who makes the request.
pub(crate) struct Caller(pub(crate) Arc<Principal>);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let principal = Extension::<Arc<Principal>>::from_request_parts(parts, state).await;
        principal
            .map(|Extension(principal)| Self(principal))
            .map_err(|_| ApiError::internal())
    }
}

/// The store named in the path; what is no id is told as one that is nowhere.
pub(crate) struct InStore(pub(crate) StoreId);

impl<S: Send + Sync> FromRequestParts<S> for InStore {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::store_not_found())?;
        text.parse().map(Self).map_err(|_| ApiError::store_not_found())
    }
}

/// A JSON body, read no further than the tenant's limits allow.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::unsupported_media_type());
        }
        let principal = request
            .extensions()
            .get::<Arc<Principal>>()
            .ok_or_else(ApiError::internal)?;
        let bytes_per_memory = principal.limits.bytes_per_memory;
        let limit_bytes = bytes_per_memory
            .saturating_mul(ESCAPED_BYTES)
            .saturating_add(BODY_OVERHEAD_BYTES);
        let bytes = read(request.into_body(), limit_bytes).await?;
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let (path, why) = (error.path().to_string(), error.inner());
            let place = if path == "." {
                String::new()
            } else {
                format!("`{path}`: ")
            };
            ApiError::invalid_request(format!("the body is not valid: {place}{why}"))
        })?;
        json.end().map_err(|_| {
            ApiError::invalid_request("the body is not valid: something follows the JSON value")
        })?;
        Ok(Self(parsed))
    }
}

async fn read(body: Body, limit_bytes: u64) -> Result<axum::body::Bytes, ApiError> {
    let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::body_too_large(limit_bytes)),
        Err(_) => Err(ApiError::invalid_request("the request body broke off")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| {
            value
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
        });
    essence.is_some_and(|essence| {
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
    })
}
