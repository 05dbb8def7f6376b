//! Stores in S3, and servers that answer as a test says.

use std::sync::{Arc, Mutex};

use keepsake_blobs::{S3Blobs, S3Options};
use keepsake_testkit::s3::{s3_options, unique_prefix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) use keepsake_testkit::blob_key as key;

/// Options of an empty place for blobs.
pub(crate) fn fresh_options() -> S3Options {
    s3_options(&unique_prefix())
}

/// The same at a server of the test.
pub(crate) fn options_for(endpoint: &str) -> S3Options {
    let mut options = fresh_options();
    options.settings.endpoint = Some(endpoint.to_owned());
    options
}

pub(crate) async fn connect(options: S3Options) -> S3Blobs {
    S3Blobs::connect(options).await.unwrap()
}

/// Answers each request by its first line, once a connection, and keeps those lines.
pub(crate) async fn server_that_tells(
    answer: impl Fn(&str) -> String + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let (listener, endpoint) = keepsake_testkit::listen().await;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 8 * 1024];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let text = String::from_utf8_lossy(&request[..read]).into_owned();
            let line = text.lines().next().unwrap_or_default().to_owned();
            let answer = answer(&line);
            kept.lock().unwrap().push(line);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (endpoint, requests)
}

pub(crate) fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}
