//! Request bodies of the operator's routes: as public ones, without a tenant's
//! limits.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::body;
use crate::envelope::Deadline;
use crate::error::ApiError;

/// Maximum bytes of a body: enough for a key with a thousand stores.
const MAX_BYTES: u64 = 64 << 10;

/// A JSON body.
pub(super) struct AdminBody<T>(pub(super) T);

/// A JSON body that may be omitted.
pub(super) struct OptionalAdminBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for AdminBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        if !body::is_json(request.headers()) {
            return Err(ApiError::unsupported_media_type());
        }
        let bytes = read(request).await?;
        body::parse(&bytes).map(Self)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for OptionalAdminBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let bytes = read(request).await?;
        let is_empty = bytes.trim_ascii().is_empty();
        body::parse(if is_empty { body::EMPTY_OBJECT } else { &bytes }).map(Self)
    }
}

async fn read(request: Request) -> Result<Bytes, ApiError> {
    let deadline = request.extensions().get().map(|Deadline(deadline)| *deadline);
    // The operator has no tenant with a share of memory.
    body::read(request.into_body(), MAX_BYTES, deadline, |_| Ok(())).await
}
