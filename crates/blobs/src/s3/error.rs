//! Converts errors of the S3 client.

use std::error::Error;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use keepsake_core::causes;

use crate::BlobError;

/// Converts an S3 error by its code and status.
pub(super) fn translate<E>(error: &SdkError<E, HttpResponse>) -> BlobError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let (code, message) = (answer.err().code(), answer.err().message());
            let message = match (code, message) {
                // The client could not read the answer, and says why.
                (None, None) => causes(answer.err()),
                (_, message) => message.unwrap_or("no message").to_owned(),
            };
            let code = code.unwrap_or("no error code");
            of_answer(status, code, format!("{code}: {message} (HTTP {status})"))
        }
        SdkError::ResponseError(answer) => of_answer(answer.raw().status().as_u16(), "", causes(error)),
        SdkError::TimeoutError(_) => BlobError::Unavailable(causes(error)),
        SdkError::DispatchFailure(failure) => {
            let is_passing = failure.is_timeout() || failure.is_io() || failure.as_other().is_some();
            if is_passing {
                BlobError::Unavailable(causes(error))
            } else {
                BlobError::Misconfigured(causes(error))
            }
        }
        SdkError::ConstructionFailure(_) => BlobError::Misconfigured(causes(error)),
        _ => BlobError::Unexpected(causes(error)),
    }
}

/// The code in the server's answer, if there is one.
pub(super) fn code_of<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

fn of_answer(status: u16, code: &str, text: String) -> BlobError {
    match (status, code) {
        (_, "NoSuchBucket" | "PermanentRedirect" | "AuthorizationHeaderMalformed" | "InvalidBucketName") => {
            BlobError::Misconfigured(text)
        }
        // A wrong clock has this status too; the text mentions it.
        (401 | 403, _) => BlobError::Denied(text),
        (_, "SlowDown" | "RequestTimeout" | "OperationAborted") | (408 | 429 | 500.., _) => {
            BlobError::Unavailable(text)
        }
        (301 | 307, _) => BlobError::Misconfigured(text),
        _ => BlobError::Unexpected(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, code: &str) -> &'static str {
        match of_answer(status, code, String::new()) {
            BlobError::Unavailable(_) => "unavailable",
            BlobError::Denied(_) => "denied",
            BlobError::Misconfigured(_) => "misconfigured",
            BlobError::Unexpected(_) => "unexpected",
            BlobError::TooLarge { .. } => "too large",
        }
    }

    #[test]
    fn errors_are_distinguished_by_status_and_code() {
        for (answers, expected) in [
            (
                &[(500, "InternalError"), (503, "SlowDown"), (429, ""), (400, "RequestTimeout")][..],
                "unavailable",
            ),
            (&[(403, "AccessDenied"), (403, "InvalidAccessKeyId"), (401, "")], "denied"),
            (&[(404, "NoSuchBucket"), (301, "PermanentRedirect")], "misconfigured"),
            (&[(400, "AuthorizationHeaderMalformed")], "misconfigured"),
            (&[(400, "InvalidArgument"), (200, "")], "unexpected"),
        ] {
            for (status, code) in answers {
                assert_eq!(kind(*status, code), expected, "{status} {code}");
            }
        }
    }
}
