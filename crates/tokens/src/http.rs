//! Requests to issuers: bounded in time and size, without redirects.

use std::time::Duration;

use keepsake_core::{causes, is_this_machine};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY_BYTES: usize = 256 << 10;

/// A client for requests to an issuer. The error is a phrase that follows a field.
pub(crate) fn client() -> Result<Client, String> {
    Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        // A redirect could leave the configured host and https.
        .redirect(Policy::none())
        .user_agent("keepsake")
        .build()
        .map_err(|error| format!("cannot be fetched from: {error}"))
}

/// An error without the URL, which may contain private data.
pub(crate) fn without_url(error: reqwest::Error) -> String {
    causes(&error.without_url())
}

/// Reads an answer up to the maximum size. The error is a sentence about the issuer's
/// server.
pub(crate) async fn body_of(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(without_url)? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(format!("its answer is longer than {MAX_BODY_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Parses a configured URL, which must be `https://` unless it is on this machine
/// or `http://` is allowed. The error is a phrase that follows a field; `danger` says what
/// `http://` would allow.
pub(crate) fn check_url(text: &str, allow_http: bool, danger: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|_| "must be an https:// URL".to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold credentials".to_owned());
    }
    let is_loopback = match url.host_str() {
        None => return Err("must be an https:// URL".to_owned()),
        Some(host) => is_this_machine(host),
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback || allow_http => Ok(url),
        "http" => Err(format!(
            "must be an https:// URL: {danger}; allow_http = true accepts http:// in a private network"
        )),
        _ => Err("must be an https:// URL".to_owned()),
    }
}
