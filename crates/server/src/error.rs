//! Conversion of every error to an API error.

use std::fmt::Display;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use keepsake_blobs::BlobError;
use keepsake_core::{MemoryId, Refused, VersionId};
use keepsake_engine::{EngineError, TestResult};
use keepsake_index::{IndexError, TenantStatus};
use keepsake_telemetry::Conflict;
use keepsake_tokens::TokenError;
use serde::{Serialize, Serializer};

/// An error repeats at most this many characters of an unsupported encoding.
const MAX_ENCODING_CHARS: usize = 40;

/// An error before it has a body. The response carries it in its extensions, because only the
/// outermost layer knows the request id that the body contains.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    kind: ErrorKind,
    pub(crate) message: String,
    /// Fields that let a client continue without another read.
    pub(crate) details: Option<Box<Details>>,
    /// Index of the refused operation of a batch.
    operation: Option<usize>,
    retry: Retry,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Details {
    /// For a failed precondition.
    Precondition { current_content_sha256: Option<String>, memory_id: Option<MemoryId> },
    PathConflict {
        /// Empty if the conflicting memory no longer exists.
        conflicting_memory_id: String,
        conflicting_path: String,
    },
    /// The tests that do not hold after a change of many memories, at most 20; none if the credential lacks the
    /// scope `memory:read`.
    Tests { tests: Vec<TestResult> },
    /// The content of a version is missing or damaged.
    Content { path: String, memory_version_id: VersionId },
    /// The credential's tenant is not served.
    Tenant { tenant_status: TenantStatus },
}

#[derive(Debug, Serialize)]
pub(crate) struct ErrorObject<'a> {
    r#type: ErrorKind,
    message: &'a str,
    #[serde(flatten)]
    details: Option<&'a Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<usize>,
}

impl Serialize for ApiError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object().serialize(serializer)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// The status suffices.
    AsTheStatusSays,
    /// After this many seconds.
    After(u8),
    /// Clients retry some statuses on their own; here a retry does not help.
    Never,
}

keepsake_core::named_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ErrorKind {
        InvalidRequest = "invalid_request_error",
        Authentication = "authentication_error",
        Permission = "permission_error",
        NotFound = "not_found_error",
        PreconditionFailed = "memory_precondition_failed_error",
        PathConflict = "memory_path_conflict_error",
        ContentMissing = "content_missing",
        ContentDamaged = "content_damaged",
        TestsBroken = "memory_store_test_error",
        Conflict = "conflict_error",
        RateLimit = "rate_limit_error",
        Overloaded = "overloaded_error",
        Timeout = "timeout_error",
        Api = "api_error",
    }
}

keepsake_core::shown_by_name!(ErrorKind as "ErrorType" => "The type of an error.";);

impl ErrorKind {
    /// The usual kind of an error with this status.
    const fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::Authentication,
            403 => Self::Permission,
            404 => Self::NotFound,
            408 | 504 => Self::Timeout,
            409 => Self::Conflict,
            429 => Self::RateLimit,
            400..=499 => Self::InvalidRequest,
            503 | 507 | 529 => Self::Overloaded,
            _ => Self::Api,
        }
    }
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: ErrorKind::of(status),
            message: message.into(),
            details: None,
            operation: None,
            retry: Retry::AsTheStatusSays,
        }
    }

    pub(crate) fn object(&self) -> ErrorObject<'_> {
        ErrorObject {
            r#type: self.kind,
            message: &self.message,
            details: self.details.as_deref(),
            operation: self.operation,
        }
    }

    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn body_too_large(limit_bytes: u64) -> Self {
        Self::too_large(StatusCode::PAYLOAD_TOO_LARGE, "the request body is", limit_bytes)
    }

    pub(crate) fn body_too_slow() -> Self {
        let message = "the request body did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, message)
    }

    pub(crate) fn too_large(status: StatusCode, what: &str, limit_bytes: impl Display) -> Self {
        Self::new(status, format!("{what} over the limit of {limit_bytes} bytes"))
    }

    pub(crate) fn unsupported_media_type(expected: &str) -> Self {
        let message = format!("the content type must be {expected}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    pub(crate) fn unsupported_encoding(encoding: &str) -> Self {
        let encoding: String = encoding.chars().take(MAX_ENCODING_CHARS).collect();
        let message =
            format!("the content encoding `{encoding}` is not supported: send the body uncompressed");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not supported here")
    }

    pub(crate) fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn permission_denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn timed_out() -> Self {
        let message = "the deadline passed before the request was done; a write may still land";
        Self::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "an internal error occurred")
    }

    pub(crate) fn not_ready() -> Self {
        Self::overloaded("the database is unavailable at the moment")
    }

    pub(crate) fn draining() -> Self {
        Self::overloaded("this replica is shutting down")
    }

    fn overloaded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).retried_after(1)
    }

    /// The memory for forms of people who are not signed in is used up.
    pub(crate) fn too_many_forms() -> Self {
        Self::overloaded("too many forms are being sent at the moment; nothing was done: try again shortly")
    }

    pub(crate) fn too_many_in_flight() -> Self {
        Self::too_much("too many requests are running")
    }

    pub(crate) fn over_memory() -> Self {
        Self::too_much("the tenant's running requests use its whole share of the server's memory")
    }

    pub(crate) fn too_many_connections() -> Self {
        Self::too_much("too many connections are open")
    }

    fn too_much(what: &str) -> Self {
        let message = format!("{what} at the moment; nothing was done: try again shortly");
        // 529 is not registered. 503 means that a backend is unavailable.
        let status = StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        Self::new(status, message).retried_after(1)
    }

    /// A retry may succeed, unlike over a quota.
    pub(crate) fn over_rate(requests_per_second: u64, retry_after_seconds: u8) -> Self {
        let message = format!(
            "the tenant makes more requests than its limit of {requests_per_second} a second: \
             try again after the time in `retry-after`"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, message).retried_after(retry_after_seconds)
    }

    fn content_lost(kind: ErrorKind, error: &EngineError, path: &str, version_id: VersionId) -> Self {
        let details = Details::Content { path: path.to_owned(), memory_version_id: version_id };
        Self::new(StatusCode::GONE, error.to_string()).never_retried().detailed(kind, details)
    }

    /// The state of an object does not allow the request; a retry does not help.
    pub(crate) fn state_conflict(message: String) -> Self {
        Self::new(StatusCode::CONFLICT, message).never_retried()
    }

    fn conflict(kind: ErrorKind, message: String, details: Details) -> Self {
        Self::state_conflict(message).detailed(kind, details)
    }

    fn detailed(self, kind: ErrorKind, details: Details) -> Self {
        Self { kind, details: Some(Box::new(details)), ..self }
    }

    pub(crate) fn conflict_kind(&self) -> Option<Conflict> {
        match self.kind {
            ErrorKind::PreconditionFailed => Some(Conflict::Precondition),
            ErrorKind::PathConflict => Some(Conflict::Path),
            ErrorKind::TestsBroken => Some(Conflict::State),
            ErrorKind::Conflict if self.retry == Retry::Never => Some(Conflict::State),
            ErrorKind::Conflict => Some(Conflict::Contended),
            _ => None,
        }
    }

    const fn retried_after(mut self, seconds: u8) -> Self {
        self.retry = Retry::After(seconds);
        self
    }

    const fn never_retried(mut self) -> Self {
        self.retry = Retry::Never;
        self
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        Self::from(&error)
    }
}

impl From<&EngineError> for ApiError {
    fn from(error: &EngineError) -> Self {
        match error {
            EngineError::Unauthenticated(why) => Self::unauthenticated(*why),
            EngineError::TenantSuspended => {
                let details = Details::Tenant { tenant_status: TenantStatus::Suspended };
                Self::unauthenticated(error.to_string()).detailed(ErrorKind::Authentication, details)
            }
            EngineError::Token(why) if why.is_transient() => {
                Self::overloaded("the token's issuer cannot be reached at the moment")
            }
            EngineError::Token(why) if !matches!(why, TokenError::Unissuable) => {
                Self::unauthenticated(why.to_string())
            }
            EngineError::AuthenticationBusy(why) => Self::overloaded(*why),
            EngineError::CutOff | EngineError::MeaningLost(_) => Self::overloaded(error.to_string()),
            EngineError::PermissionDenied(_)
            | EngineError::OnlyOwnChanges { .. }
            | EngineError::NotForSessions
            | EngineError::ReadOnly => Self::permission_denied(error.to_string()),
            EngineError::NotFound(_) => Self::not_found(error.to_string()),
            EngineError::Refused(refusal) => Self::of_refusal(error, refusal),
            EngineError::Invalid { .. } | EngineError::DamagedArchive(_) => {
                Self::invalid_request(error.to_string())
            }
            EngineError::PreconditionFailed { memory_id, current_sha256, .. } => {
                let details = Details::Precondition {
                    current_content_sha256: current_sha256.map(|hash| hash.to_string()),
                    memory_id: *memory_id,
                };
                Self::conflict(ErrorKind::PreconditionFailed, error.to_string(), details)
            }
            EngineError::ContentMissing { path, version_id } => {
                Self::content_lost(ErrorKind::ContentMissing, error, path, *version_id)
            }
            EngineError::ContentDamaged { path, version_id } => {
                Self::content_lost(ErrorKind::ContentDamaged, error, path, *version_id)
            }
            EngineError::Conflict(_) => Self::state_conflict(error.to_string()),
            EngineError::BrokenTests(broken) => {
                let details = Details::Tests { tests: broken.shown.clone() };
                Self::conflict(ErrorKind::TestsBroken, error.to_string(), details)
            }
            EngineError::OverMemory => Self::over_memory(),
            EngineError::TooManyStreams => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()).retried_after(30)
            }
            EngineError::Index(why) => Self::of_index(error, why),
            EngineError::Blobs(why) => Self::of_blobs(error, why),
            EngineError::Shared(shared) => Self::from(&**shared),
            EngineError::OfOperation { operation, refusal } => {
                Self { operation: Some(*operation), ..Self::from(&**refusal) }
            }
            EngineError::Token(_)
            | EngineError::Secret(_)
            | EngineError::Damaged(_)
            | EngineError::ForeignBlobs
            | EngineError::Internal(_) => Self::unexpected(error),
        }
    }
}

impl ApiError {
    fn of_refusal(error: &EngineError, refusal: &Refused) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refused::Archived
            | Refused::SessionArchived
            | Refused::KeyReused
            | Refused::Content(_)
            | Refused::Tests(_)
            | Refused::Sensitive { .. } => Self::invalid_request(message),
            Refused::Setting { .. } => Self::permission_denied(message),
            Refused::KeyEnded => Self::unauthenticated(message),
            Refused::PathTaken { path, memory_id }
            | Refused::PathIsDirectory { path, memory_id }
            | Refused::ParentIsFile { path, memory_id } => {
                let details = Details::PathConflict {
                    conflicting_memory_id: memory_id.map(|id| id.to_string()).unwrap_or_default(),
                    conflicting_path: path.clone(),
                };
                Self::conflict(ErrorKind::PathConflict, message, details)
            }
            Refused::HoldsLiveContent
            | Refused::TenantExists
            | Refused::TenantDeleting
            | Refused::TenantChanged => Self::state_conflict(message),
            // The only conflict that a retry may resolve.
            Refused::Contended => Self::new(StatusCode::CONFLICT, message),
            Refused::TooManyErasures { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, message).retried_after(30)
            }
            Refused::OverLimit(_) => Self::new(StatusCode::TOO_MANY_REQUESTS, message).never_retried(),
            Refused::Contents(_) => Self::unexpected(error),
        }
    }
}

/// Causes of these failures are logged and not sent.
impl ApiError {
    fn of_index(error: &EngineError, why: &IndexError) -> Self {
        match why {
            IndexError::Unavailable(_) => {
                let message = "the database cannot be reached at the moment; nothing was changed";
                Self::unavailable(error, message)
            }
            IndexError::OutcomeUnknown(_) => {
                Self::unavailable(error, "the database did not answer; a write may have landed")
            }
            IndexError::DiskFull(_) => Self::disk_full(error, "nothing was changed"),
            IndexError::DiskFailed(_) => Self::disk_full(error, "the change may or may not have been made"),
            IndexError::SchemaTooOld { .. }
            | IndexError::Migration(_)
            | IndexError::BadUrl(_)
            | IndexError::UnsuitablePooler(_)
            | IndexError::Corrupt { .. }
            | IndexError::Database(_) => Self::unexpected(error),
        }
    }

    fn of_blobs(error: &EngineError, why: &BlobError) -> Self {
        match why {
            BlobError::Unavailable(_) => {
                let message = "the object store cannot be reached at the moment; nothing was changed";
                Self::unavailable(error, message)
            }
            BlobError::Denied(_) => Self::misconfigured(error, "credentials are refused by"),
            BlobError::Misconfigured(_) => Self::misconfigured(error, "settings do not fit"),
            BlobError::TooLarge { .. } | BlobError::Unexpected(_) => Self::unexpected(error),
        }
    }

    fn unexpected(error: &EngineError) -> Self {
        tracing::error!(error = %error, "http.request failed with an internal error");
        Self::internal()
    }

    fn unavailable(error: &EngineError, message: &str) -> Self {
        tracing::warn!(error = %error, "http.request failed: a backend is unavailable");
        Self::overloaded(message)
    }

    /// The server's operator must correct the settings of the object store.
    fn misconfigured(error: &EngineError, what: &str) -> Self {
        tracing::error!(error = %error, "http.request failed: the object store refuses the server or is misconfigured");
        let message = format!(
            "the server's {what} its object store, which the server's operator must correct; nothing was changed"
        );
        Self::overloaded(message).retried_after(5)
    }

    /// A disk is full, read-only or failing; an early retry does not help.
    fn disk_full(error: &EngineError, outcome: &str) -> Self {
        tracing::error!(error = %error, "http.request failed: a disk accepts no writes");
        let message = format!("a disk of the server accepts no writes and may be full; {outcome}");
        Self::new(StatusCode::INSUFFICIENT_STORAGE, message).never_retried()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        match self.retry {
            Retry::AsTheStatusSays => {}
            Retry::After(seconds) => {
                headers.insert(header::RETRY_AFTER, u16::from(seconds).into());
            }
            Retry::Never => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_may_be_retried() {
        let error: EngineError = Refused::Contended.into();
        let response = ApiError::from(&error).into_response();
        assert_eq!(response.status().as_u16(), 409);
        assert_eq!(response.headers().get("x-should-retry"), None);
    }

    #[test]
    fn lost_answer_is_not_said_to_have_changed_nothing() {
        let lost = EngineError::Index(IndexError::timed_out(std::time::Duration::from_secs(1)));
        let message = ApiError::from(&lost).message;
        assert!(!message.contains("nothing was changed"), "{message}");
    }
}
