//! Authentication of requests by their headers.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keepsake_console::SignInEnd;
use keepsake_core::{Purpose, Timestamp};
use keepsake_engine::{Engine, EngineError, Principal};
use tokio::time::Instant;

use crate::envelope::SharedProcess;
use crate::error::ApiError;

/// The tenant's id: in every answer, and checked if a request sends it.
pub(crate) const WORKSPACE: &str = "anthropic-workspace-id";
const KEY_HEADER: &str = "x-api-key";
/// How long an authentication is valid while the body arrives or the answer is sent.
pub(crate) const AUTHENTICATION_TTL: Duration = Duration::from_secs(1);

/// Passes the tenant's id to the outermost layer, which also answers when the
/// deadline has cancelled all inner layers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workspace(Arc<OnceLock<HeaderValue>>);

impl Workspace {
    fn set(&self, workspace: &str) {
        if let Ok(value) = HeaderValue::try_from(workspace) {
            // A request has one credential, so this is set once.
            let _ = self.0.set(value);
        }
    }

    /// The tenant's id, once the credential was accepted.
    pub(crate) fn get(&self) -> Option<&HeaderValue> {
        self.0.get()
    }
}

/// Who makes a request, and the engine that serves it.
///
/// A handler with a body uses the caller of the body extractor, which authenticates again if the
/// body arrived slowly.
pub(crate) struct Caller(pub(crate) Engine, pub(crate) Arc<Principal>);

impl FromRequestParts<Engine> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, engine: &Engine) -> Result<Self, ApiError> {
        if parts.method == Method::POST || parts.method == Method::PATCH {
            tracing::error!("http.request has a body, and its handler took the principal of before it");
            return Err(ApiError::internal());
        }
        let principal = parts.extensions.get().cloned();
        principal.map(|principal| Self(engine.clone(), principal)).ok_or_else(ApiError::internal)
    }
}

/// The credential of a request whose answer may take long, for further authentications until it ends.
pub(crate) struct LastingCredential {
    /// The headers with the credential.
    headers: HeaderMap,
    /// When a person's sign-in in the browser ends.
    until: Option<Timestamp>,
    authenticated_at: Instant,
}

impl<S: Send + Sync> FromRequestParts<S> for LastingCredential {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let names = [header::AUTHORIZATION, HeaderName::from_static(KEY_HEADER)];
        let sent = |name| parts.headers.get(&name).cloned().map(|value| (name, value));
        Ok(Self {
            headers: names.into_iter().filter_map(sent).collect(),
            until: parts.extensions.get().map(|SignInEnd(end)| *end),
            authenticated_at: Instant::now(),
        })
    }
}

impl LastingCredential {
    pub(crate) async fn authenticate(&mut self, engine: &Engine) -> Result<Arc<Principal>, ApiError> {
        if self.until.is_some_and(|until| until <= engine.now()) {
            return Err(ApiError::unauthenticated("the sign-in has ended"));
        }
        let principal = principal_of(engine, &self.headers).await?;
        self.authenticated_at = Instant::now();
        Ok(principal)
    }

    /// Whether the last authentication is no longer valid.
    pub(crate) fn is_due(&self) -> bool {
        self.authenticated_at.elapsed() > AUTHENTICATION_TTL
    }
}

/// Stores the [`Principal`] of a request in its extensions, or answers with a refusal.
pub(crate) async fn authenticate(engine: &Engine, request: &mut Request) -> Result<Arc<Principal>, Response> {
    let principal = match principal_of(engine, request.headers()).await {
        Ok(principal) => principal,
        Err(error) => return Err(refusal(error, request)),
    };
    let workspace = principal.tenant_id.to_string();
    tracing::Span::current().record("tenant.id", &workspace);
    let claimed = request.headers().get(WORKSPACE);
    let is_foreign = claimed.is_some_and(|claimed| claimed.as_bytes() != workspace.as_bytes());
    if let Some(slot) = request.extensions().get::<Workspace>() {
        slot.set(&workspace);
    }
    if is_foreign {
        let message = format!("`{WORKSPACE}` is not the tenant of this credential");
        return Err(ApiError::permission_denied(message).into_response());
    }
    request.extensions_mut().insert(Arc::clone(&principal));
    Ok(principal)
}

/// A 401 answer says how to get a credential.
fn refusal(error: ApiError, request: &Request) -> Response {
    let mut response = error.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        let serving = request.extensions().get::<SharedProcess>();
        let challenge = serving.map(|serving| serving.sign_in.challenge(request.uri()));
        let challenge = challenge.unwrap_or(HeaderValue::from_static("Bearer"));
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

pub(crate) async fn principal_of(engine: &Engine, headers: &HeaderMap) -> Result<Arc<Principal>, ApiError> {
    let principal = presented(headers)?.authenticate(engine).await?;
    Ok(match purpose(headers)? {
        None => principal,
        Some(purpose) => Arc::new(principal.reading_for(purpose)),
    })
}

/// What the request says that it reads for; `None`: an agent reads.
fn purpose(headers: &HeaderMap) -> Result<Option<Purpose>, ApiError> {
    let mut values = headers.get_all(Purpose::HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let purpose = value.to_str().ok().and_then(Purpose::parse);
    match purpose {
        Some(Purpose::Backup | Purpose::Person) if values.next().is_none() => Ok(purpose),
        _ => {
            let rule = format!("`{}` must be `backup` or `person`", Purpose::HEADER);
            Err(ApiError::invalid_request(rule))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PresentedCredential<'a> {
    /// Sent as `x-api-key`, which accepts only API keys.
    Key(&'a str),
    /// Sent as `authorization: Bearer`, which also accepts tokens.
    Bearer(&'a str),
}

impl PresentedCredential<'_> {
    pub(crate) async fn authenticate(self, engine: &Engine) -> Result<Arc<Principal>, EngineError> {
        match self {
            Self::Key(key) => engine.auth.authenticate_key(key).await,
            Self::Bearer(credential) => engine.auth.authenticate(credential).await,
        }
    }
}

/// Two different credentials are refused: a component that reads the other one,
/// such as a proxy, would attribute the request to another caller.
pub(crate) fn presented(headers: &HeaderMap) -> Result<PresentedCredential<'_>, ApiError> {
    let key = only(headers, KEY_HEADER)?;
    let bearer = only(headers, header::AUTHORIZATION.as_str())?.and_then(bearer);
    match (key, bearer) {
        (Some(key), Some(bearer)) if key != bearer => Err(ApiError::unauthenticated(
            "two different credentials: send one, as `x-api-key` or as `authorization: Bearer`",
        )),
        (Some(key), _) => Ok(PresentedCredential::Key(key)),
        (None, Some(bearer)) => Ok(PresentedCredential::Bearer(bearer)),
        (None, None) => Err(ApiError::unauthenticated(
            "no credential: send an API key as `x-api-key`, or an API key or a token as `authorization: Bearer`",
        )),
    }
}

/// The value of a header that must not be repeated.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(ApiError::unauthenticated(format!("`{name}` is sent twice")));
    }
    value
        .map(|value| value.to_str())
        .transpose()
        .map_err(|_| ApiError::unauthenticated(format!("`{name}` is not ASCII text")))
}

/// `None`: another scheme than `Bearer`.
pub(crate) fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, credential) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| credential.trim())
}
