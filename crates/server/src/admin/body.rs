//! Request bodies of the operator's routes: as public ones, without a tenant's limits.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::body;
use crate::error::ApiError;

/// Enough for a key with a thousand stores.
const MAX_BYTES: u64 = 64 << 10;

pub(super) struct AdminBody<T>(pub(super) T);

pub(super) struct OptionalAdminBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for AdminBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        body::require_json(request.headers())?;
        body::parse(&read(request).await?).map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalAdminBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        body::parse(&body::or_empty_object(read(request).await?)).map(Self)
    }
}

async fn read(request: Request) -> Result<Bytes, ApiError> {
    // The operator has no tenant with a share of memory.
    let (head, body) = request.into_parts();
    body::read(&head, body, MAX_BYTES, |_| Ok(())).await
}
