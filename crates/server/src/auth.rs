//! From headers to a principal.

use std::sync::{Arc, OnceLock};

use axum::Extension;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use keepsake_engine::{Engine, Principal};

use crate::error::ApiError;

/// The header that names the tenant: told in every answer, checked where sent.
pub(crate) const WORKSPACE: &str = "anthropic-workspace-id";

/// Tells the outermost layer whose request it is, which answers it too when the
/// deadline has cut off everything below.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workspace(Arc<OnceLock<HeaderValue>>);

impl Workspace {
    fn set(&self, workspace: &str) {
        if let Ok(value) = HeaderValue::try_from(workspace) {
            // A request has one credential.
            let _ = self.0.set(value);
        }
    }

    /// The tenant's id, once the credential was found to be good.
    pub(crate) fn get(&self) -> Option<&HeaderValue> {
        self.0.get()
    }
}

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

/// Lets a request pass with its [`Principal`] in the extensions, or refuses it.
pub(crate) async fn require(State(engine): State<Engine>, mut request: Request, next: Next) -> Response {
    let principal = match principal_of(&engine, request.headers()).await {
        Ok(principal) => principal,
        Err(error) => return error.into_response(),
    };
    let workspace = principal.tenant_id.to_string();
    tracing::Span::current().record("tenant.id", &workspace);
    let claimed = request.headers().get(WORKSPACE);
    let is_foreign = claimed.is_some_and(|claimed| claimed.as_bytes() != workspace.as_bytes());
    if let Some(told) = request.extensions().get::<Workspace>() {
        told.set(&workspace);
    }
    if is_foreign {
        return ApiError::permission_denied(format!("`{WORKSPACE}` is not the workspace of this credential"))
            .into_response();
    }
    request.extensions_mut().insert(principal);
    next.run(request).await
}

async fn principal_of(engine: &Engine, headers: &HeaderMap) -> Result<Arc<Principal>, ApiError> {
    let presented = presented(headers).ok_or_else(|| {
        ApiError::unauthenticated("no credential: send an API key as `x-api-key` or `authorization: Bearer`")
    })?;
    Ok(engine.authenticate(presented).await?)
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
