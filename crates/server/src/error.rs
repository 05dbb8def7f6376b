//! How an outcome that is not an answer is shown: the one place.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keepsake_blobs::BlobError;
use keepsake_engine::EngineError;
use keepsake_index::IndexError;

/// An error as the API shows it.
///
/// The envelope around it needs the request's id, which the outermost layer
/// knows: the response carries this in its extensions until then.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    retry: Retry,
}

/// What a client is told of trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Nothing: the status says it.
    AsTheStatusSays,
    /// After this many seconds.
    After(u8),
    /// Not, although the status might say so.
    Never,
}

impl ApiError {
    const fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self {
            status,
            kind,
            message,
            retry: Retry::AsTheStatusSays,
        }
    }

    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message.into())
    }

    pub(crate) fn body_too_large(limit_bytes: u64) -> Self {
        let message = format!("the request body is over the limit of {limit_bytes} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    pub(crate) fn unsupported_media_type() -> Self {
        let message = "the content type must be application/json".to_owned();
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_request_error",
            message,
        )
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "this method is not supported here".to_owned();
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    pub(crate) fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message.into())
    }

    pub(crate) fn permission_denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message.into())
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message.into())
    }

    pub(crate) fn store_not_found() -> Self {
        Self::not_found("the memory store was not found")
    }

    pub(crate) fn timed_out() -> Self {
        let message = "the deadline passed before the request was done; a write may still land".to_owned();
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message)
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "api_error",
            "an internal error occurred".to_owned(),
        )
    }

    fn unavailable(what: &str) -> Self {
        let message = format!("{what} cannot be reached at the moment; a write may still land");
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", message);
        error.retry = Retry::After(1);
        error
    }

    fn quota(message: String) -> Self {
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        error.retry = Retry::Never;
        error
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        Self::from(&error)
    }
}

impl From<&EngineError> for ApiError {
    fn from(error: &EngineError) -> Self {
        let internal = || {
            tracing::error!(error = %error, "http.request ended in an internal error");
            Self::internal()
        };
        let unavailable = |what| {
            tracing::warn!(error = %error, "http.request met an unavailable backend");
            Self::unavailable(what)
        };
        match error {
            EngineError::Unauthenticated(why) => Self::unauthenticated(*why),
            EngineError::PermissionDenied(_) => Self::permission_denied(error.to_string()),
            EngineError::StoreNotFound => Self::store_not_found(),
            EngineError::Invalid { .. } => Self::invalid_request(error.to_string()),
            EngineError::TooManyStores { .. } => Self::quota(error.to_string()),
            EngineError::Index(IndexError::Unavailable(_)) => unavailable("the database"),
            EngineError::Blobs(BlobError::Unavailable(_)) => unavailable("the object store"),
            EngineError::Shared(shared) => Self::from(&**shared),
            EngineError::TenantNotFound
            | EngineError::TenantExists
            | EngineError::Index(
                IndexError::SchemaTooOld { .. }
                | IndexError::Migration(_)
                | IndexError::BadUrl(_)
                | IndexError::Corrupt { .. }
                | IndexError::Database(_),
            )
            | EngineError::Blobs(_)
            | EngineError::Damaged(_)
            | EngineError::Internal(_) => internal(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        match self.retry {
            Retry::AsTheStatusSays => {}
            Retry::After(seconds) => {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, HeaderValue::from(u16::from(seconds)));
            }
            Retry::Never => {
                response
                    .headers_mut()
                    .insert("x-should-retry", HeaderValue::from_static("false"));
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}
