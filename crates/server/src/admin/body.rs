//! Request bodies of the operator's routes: as public ones, without a tenant's limits.

use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::body;
use crate::error::ApiError;

/// Enough for a key with a thousand stores.
const MAX_BYTES: u64 = 64 << 10;

/// With `MAY_BE_EMPTY`, no body means an empty object.
pub(super) struct AdminBody<T, const MAY_BE_EMPTY: bool = false>(pub(super) T);

pub(super) type OptionalAdminBody<T> = AdminBody<T, true>;

impl<T, S, const MAY_BE_EMPTY: bool> FromRequest<S> for AdminBody<T, MAY_BE_EMPTY>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        if !MAY_BE_EMPTY {
            body::require_json(request.headers())?;
        }
        // The operator has no tenant with a share of memory.
        let (head, body) = request.into_parts();
        let bytes = body::read(&head, body, MAX_BYTES, |_| Ok(())).await?;
        let bytes = if MAY_BE_EMPTY { body::or_empty_object(bytes) } else { bytes };
        body::parse(&bytes).map(Self)
    }
}
