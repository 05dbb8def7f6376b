//! Reads answers within limits of size and number of values: a server may be wrong or
//! hostile.

use keepsake_core::{JsonToken, json_tokens};
use reqwest::{Response, Url};
use serde::de::DeserializeOwned;

use crate::error::{Envelope, Refusal};
use crate::{AnswerHead, ClientError, Result, advice};

/// Maximum size of an answer or an event. The longest answer is one memory as JSON: by default a
/// server accepts bodies of at most 64 MiB, and its answer adds a few fields to the content.
pub const MAX_ANSWER_BYTES: usize = (64 << 20) + (64 << 10);
/// Maximum number of JSON values in an answer; a value takes up to 700 bytes of memory. The answer
/// with the most values has the 500 results of a batch.
const MAX_ANSWER_VALUES: usize = 100_000;

/// Reads a body of at most [`MAX_ANSWER_BYTES`].
pub async fn body_of(response: Response) -> Result<Vec<u8>> {
    bounded_body(response, MAX_ANSWER_BYTES).await
}

async fn bounded_body(mut response: Response, max_bytes: usize) -> Result<Vec<u8>> {
    let (url, status) = (response.url().clone(), response.status());
    let too_long = || ClientError::unreadable(&url, status, &AnswerTooLong { max_bytes });
    let stated = response.content_length().unwrap_or_default();
    if stated > max_bytes as u64 {
        return Err(too_long());
    }
    let mut body = Vec::new();
    let lost = |error| ClientError::unreachable(url.origin().ascii_serialization(), &error);
    while let Some(part) = response.chunk().await.map_err(lost)? {
        if body.len() + part.len() > max_bytes {
            return Err(too_long());
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

#[derive(Debug, thiserror::Error)]
#[error("it has more than {max_bytes} bytes")]
pub(crate) struct AnswerTooLong {
    pub(crate) max_bytes: usize,
}

/// Parses JSON, unless it has so many values that they would fill the memory.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    if count_values(json) > MAX_ANSWER_VALUES {
        return Err(format!("it has more than {MAX_ANSWER_VALUES} values"));
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// An upper bound of the number of values, names of fields included.
fn count_values(json: &[u8]) -> usize {
    let begins_one = |token: &JsonToken<'_>| matches!(token, JsonToken::Byte(b'[' | b'{' | b',' | b':'));
    1 + json_tokens(json).filter(begins_one).count()
}

/// The answer of the server at a URL, or the error that it states.
pub(crate) async fn answer_of<T: DeserializeOwned>(base: &Url, response: Response) -> Result<T> {
    let (url, head) = (response.url().clone(), AnswerHead::of(&response));
    let (status, headers) = (head.status, response.headers().clone());
    if status.is_redirection() {
        return Err(advice::redirected(base, &url, status, &headers));
    }
    let body = body_of(response).await?;
    let unreadable = |reason: String| {
        let reason = reason + &advice::of_other_answer(base, head);
        ClientError::unreadable(&url, status, &reason)
    };
    if status.is_success() {
        return from_json(&body).map_err(unreadable);
    }
    match from_json::<Envelope>(&body) {
        Ok(envelope) => {
            let mut refusal = Refusal::of(status, &headers, envelope);
            refusal.message += &advice::of_answer(base, status);
            Err(ClientError::Refused(refusal))
        }
        Err(reason) => Err(unreadable(reason)),
    }
}

/// Bytes of the stream's event that is not complete yet.
#[derive(Debug, Default)]
pub(crate) struct EventLength {
    bytes: usize,
    /// Whether the current line is not empty.
    has_line: bool,
}

impl EventLength {
    /// Counts a part of the stream. An empty line ends an event.
    pub(crate) fn add(&mut self, part: &[u8], max_bytes: usize) -> Result<(), AnswerTooLong> {
        for byte in part {
            self.bytes += 1;
            match byte {
                b'\n' if self.has_line => self.has_line = false,
                b'\n' => self.bytes = 0,
                b'\r' => {}
                _ => self.has_line = true,
            }
        }
        if self.bytes > max_bytes {
            return Err(AnswerTooLong { max_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The body of an answer with this head, read up to 10 bytes.
    async fn read(head: &str, body: &str) -> Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x?secret", listener.local_addr().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{head}\r\n{body}");
        let serving = async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4 << 10]).await;
            // The client does not wait for the rest.
            let _ = connection.write_all(answer.as_bytes()).await;
        };
        let asking = async { bounded_body(reqwest::get(url).await.unwrap(), 10).await };
        tokio::join!(serving, asking).1
    }

    #[tokio::test]
    async fn body_is_read_up_to_the_bound() {
        for head in ["", "content-length: 10\r\n"] {
            assert_eq!(read(head, "0123456789").await.unwrap(), b"0123456789");
        }
        for head in ["", "content-length: 11\r\n", "content-length: 99999999999\r\n"] {
            let refused = read(head, "0123456789a").await.unwrap_err();
            let text = refused.to_string();
            assert!(text.ends_with("it has more than 10 bytes"), "{text}");
            assert!(!text.contains("secret") && !refused.is_transient(), "{text}");
        }
        // One that is cut off may come whole the next time.
        let cut_off = read("content-length: 9\r\n", "0123").await.unwrap_err();
        assert!(cut_off.is_transient(), "{cut_off}");
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, count) in
            [("1", 1), ("[]", 2), ("[1,2]", 3), (r#"{"a":{"b":[]}}"#, 6), (r#"["[,:{","\"[","\\",1]"#, 5)]
        {
            assert_eq!(count_values(json.as_bytes()), count, "{json}");
        }
        let many = format!("[{}1]", "1,".repeat(MAX_ANSWER_VALUES));
        from_json::<Value>(many.as_bytes()).unwrap_err();
        from_json::<Value>(format!("[{}1]", "1,".repeat(1_000)).as_bytes()).unwrap();
    }

    #[test]
    fn event_ends_with_an_empty_line() {
        let mut length = EventLength::default();
        for (part, bytes) in [
            (&b"data: 1\n"[..], 8),
            (b"data: 2\r\n", 17),
            (b"\r\n: a comment", 11),
            (b"\n", 12),
            (b"\n", 0),
            (b"\n\n", 0),
        ] {
            length.add(part, 18).unwrap();
            assert_eq!(length.bytes, bytes, "{part:?}");
        }
        length.add(b"data: 12\ndata: 12", 18).unwrap();
        length.add(b"\n", 18).unwrap();
        length.add(b"d", 18).unwrap_err();
    }
}
