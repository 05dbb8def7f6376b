//! Why a call failed.

use std::error::Error as _;
use std::fmt::{self, Display};
use std::time::Duration;

use keepsake_core::causes;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;

use crate::advice;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A setting of the client, such as the URL, is malformed.
    #[error("{name}{value}: {reason}")]
    Setting {
        name: &'static str,
        /// A space and the value; empty if it is secret.
        value: String,
        reason: String,
    },
    /// The server cannot be reached, or did not answer.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        url: String,
        cause: String,
        /// Whether no byte of the request was sent.
        is_unsent: bool,
    },
    /// The URL leads to something other than the API of a server.
    #[error("{url} {found}: {advice}")]
    WrongUrl {
        /// The URL of the server, as the caller gave it.
        url: String,
        /// What the URL leads to.
        found: String,
        /// What to write instead.
        advice: String,
    },
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is not one of this API.
    #[error("{url} answered with status {status}, but not in the form of this API: {reason}")]
    Unreadable {
        /// The URL of the request, without its query.
        url: String,
        status: StatusCode,
        /// What is wrong with the body.
        reason: String,
    },
}

/// An error that the server states.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// The type, such as `not_found_error`.
    pub kind: String,
    /// The reason, for people.
    pub message: String,
    /// As in the server's log.
    pub request_id: Option<String>,
    /// The status of a tenant that is not served, such as `suspended`.
    pub tenant_status: Option<String>,
    /// Whether the server forbids another attempt.
    is_final: bool,
    retry_after: Option<Duration>,
}

#[derive(Deserialize)]
pub(crate) struct Envelope {
    error: ErrorObject,
    request_id: Option<String>,
}

/// The error of a call, or of an operation of a batch.
#[derive(Debug, Deserialize)]
pub struct ErrorObject {
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    tenant_status: Option<String>,
}

impl Refusal {
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, envelope: Envelope) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Envelope { error, request_id } = envelope;
        Self {
            status,
            kind: error.kind,
            message: error.message,
            request_id,
            tenant_status: error.tenant_status,
            is_final: text("x-should-retry") == Some("false"),
            retry_after: text(RETRY_AFTER.as_str())
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
        }
    }

    /// The refusal in the last event of a stream.
    pub(crate) fn of_event(body: &Value) -> Self {
        let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        let kind = text("type");
        let status = match kind.as_str() {
            "authentication_error" => StatusCode::UNAUTHORIZED,
            "permission_error" => StatusCode::FORBIDDEN,
            "not_found_error" => StatusCode::NOT_FOUND,
            "rate_limit_error" => StatusCode::TOO_MANY_REQUESTS,
            "overloaded_error" => StatusCode::SERVICE_UNAVAILABLE,
            "timeout_error" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            status,
            kind,
            message: text("message"),
            request_id: None,
            tenant_status: body["error"]["tenant_status"].as_str().map(str::to_owned),
            is_final: false,
            retry_after: None,
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (&self.request_id, self.status.is_server_error()) {
            (Some(id), true) => write!(f, " ({id})"),
            _ => Ok(()),
        }
    }
}

impl ClientError {
    pub(crate) fn setting(name: &'static str, value: &str, reason: &dyn Display) -> Self {
        let value = if value.is_empty() { String::new() } else { format!(" {value}") };
        let reason = reason.to_string();
        Self::Setting { name, value, reason }
    }

    pub(crate) fn unreachable(url: impl Into<String>, error: &reqwest::Error) -> Self {
        let url = url.into();
        if let Some(wrong_url) = advice::of_scheme(&url, error) {
            return wrong_url;
        }
        // The error itself only repeats the URL.
        let cause = causes(error.source().unwrap_or(error)).replace("client error (Connect): ", "");
        let is_unsent = error.is_connect();
        let advice = is_unsent.then(|| advice::of_closed_handshake(&url, error)).flatten();
        Self::Unreachable { cause: cause + &advice.unwrap_or_default(), url, is_unsent }
    }

    pub(crate) fn silent(url: &str, limit: Duration) -> Self {
        Self::Unreachable {
            url: url.to_owned(),
            cause: format!("no answer in {} seconds", limit.as_secs()),
            is_unsent: false,
        }
    }

    pub(crate) fn unreadable(url: &Url, status: StatusCode, reason: &dyn Display) -> Self {
        let mut url = url.clone();
        url.set_query(None);
        Self::Unreadable { url: url.into(), status, reason: reason.to_string() }
    }

    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            Self::Unreadable { status, .. } => Some(*status),
            Self::Setting { .. } | Self::WrongUrl { .. } | Self::Unreachable { .. } => None,
        }
    }

    /// Whether the call may succeed if it is sent again unchanged.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Setting { .. } | Self::WrongUrl { .. } | Self::Refused(Refusal { is_final: true, .. }) => {
                false
            }
            Self::Unreachable { .. } => true,
            // From a proxy in front of the server, a status may come without the API's error.
            Self::Refused(_) | Self::Unreadable { .. } => {
                let status = self.status().map(|status| status.as_u16());
                matches!(status, Some(408 | 429 | 502 | 503 | 504 | 529))
            }
        }
    }

    pub(crate) fn is_certainly_not_applied(&self) -> bool {
        match self {
            Self::Setting { .. } | Self::WrongUrl { .. } => true,
            Self::Unreachable { is_unsent, .. } => *is_unsent,
            Self::Refused(refusal) => refusal.status != StatusCode::GATEWAY_TIMEOUT,
            // From a proxy in front of the server.
            Self::Unreadable { status, .. } => *status == StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Whether the status is a 5xx.
    pub(crate) fn is_server_error(&self) -> bool {
        self.status().is_some_and(|status| status.is_server_error())
    }

    /// Whether a change may have been applied, although the call failed.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Setting { .. } | Self::WrongUrl { .. } => false,
            Self::Unreachable { is_unsent, .. } => !is_unsent,
            Self::Refused(_) | Self::Unreadable { .. } => self.is_server_error(),
        }
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> ClientError {
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let status = StatusCode::from_u16(status).unwrap();
        let envelope = serde_json::from_str(body).unwrap();
        ClientError::Refused(Refusal::of(status, &headers, envelope))
    }

    const CONFLICT: &str = r#"{"type":"error","error":{"type":"memory_path_conflict_error",
        "message":"the path is taken","conflicting_path":"/a"},"request_id":"req_1"}"#;

    #[test]
    fn refusal_keeps_what_the_server_states() {
        let ClientError::Refused(known) = refusal(409, &[], CONFLICT) else { panic!("not a refusal") };
        assert_eq!(known.kind, "memory_path_conflict_error");
        assert_eq!(known.to_string(), "the path is taken");
        assert_eq!(refusal(500, &[], CONFLICT).to_string(), "the path is taken (req_1)");
    }

    #[test]
    fn only_transient_errors_may_be_retried() {
        for (status, headers, is_transient) in [
            (409, &[] as &[_], false),
            (429, &[("retry-after", "3")], true),
            (429, &[("x-should-retry", "false")], false),
            (503, &[], true),
            (529, &[], true),
            (500, &[], false),
        ] {
            let error = refusal(status, headers, CONFLICT);
            assert_eq!(error.is_transient(), is_transient, "{status} {headers:?}");
        }
        let error = refusal(429, &[("retry-after", "3")], CONFLICT);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    }
}
