//! Answers in JSON.
//!
//! Each thread keeps a buffer, in which an answer is written and then copied into an allocation of
//! its exact size: a new buffer for each answer would grow and copy the content several times. A
//! buffer that has become too large to keep is itself the answer.

use std::cell::Cell;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// A thread does not keep a buffer of a larger capacity.
const MAX_KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What most handlers return.
pub(crate) type Answer<T> = Result<Json<T>, ApiError>;

#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match written(&self.0) {
            Ok(json) => {
                let json_type = HeaderValue::from_static("application/json");
                ([(header::CONTENT_TYPE, json_type)], json).into_response()
            }
            Err(error) => {
                tracing::error!(error = %error, "http.request failed: the answer cannot be written");
                ApiError::internal().into_response()
            }
        }
    }
}

fn written(value: &impl Serialize) -> serde_json::Result<Bytes> {
    let mut buffer = BUFFER.take();
    serde_json::to_writer(&mut buffer, value)?;
    if buffer.capacity() > MAX_KEPT_BYTES {
        return Ok(buffer.into());
    }
    let json = Bytes::copy_from_slice(&buffer);
    buffer.clear();
    BUFFER.set(buffer);
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answer_leaves_a_buffer_of_the_kept_size() {
        let long = "x".repeat(4 * MAX_KEPT_BYTES);
        assert_eq!(written(&long).unwrap().len(), long.len() + 2);
        assert!(BUFFER.take().capacity() <= MAX_KEPT_BYTES);
        assert_eq!(written(&["a"]).unwrap(), r#"["a"]"#);
    }
}
