//! Answers in JSON.
//!
//! An answer is written into a buffer that its thread keeps, and then copied into an
//! allocation of its size. A new buffer would grow while the answer is written, and each
//! growth would allocate and copy the content of a memory again. A buffer that has become
//! too large to keep is the answer itself.

use std::cell::Cell;

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// Maximum capacity of the buffer that a thread keeps, in bytes.
const MAX_KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An answer with a value as JSON.
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
