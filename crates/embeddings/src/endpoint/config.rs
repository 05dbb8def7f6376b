//! The configuration of an endpoint.

use aws_lc_rs::digest::{SHA256, digest};
use reqwest::Url;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

/// Maximum number of values of a vector.
pub const MAX_DIMENSIONS: usize = 4_096;
const MAX_MODEL_BYTES: usize = 128;

/// How an endpoint is called.
#[derive(Debug, Clone, Default)]
pub struct EndpointConfig {
    /// The base URL of the API, such as `http://127.0.0.1:11434/v1`; requests go to `/embeddings` below it.
    pub url: String,
    /// The name of the model, as the endpoint knows it.
    pub model: String,
    /// Sent as bearer token.
    pub key: Option<SecretString>,
    /// Number of values of the model's vectors; vectors of another length are refused. It is not sent.
    pub dimensions: usize,
    /// What the model wants before a query, such as `query: `.
    pub query_prefix: String,
    /// What the model wants before a passage, such as `passage: `.
    pub document_prefix: String,
}

/// The field of an [`EndpointConfig`] that is invalid, and a phrase that follows its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {reason}")]
pub struct InvalidEndpoint {
    pub field: &'static str,
    pub reason: String,
}

impl InvalidEndpoint {
    fn new(field: &'static str, reason: &str) -> Self {
        Self { field, reason: reason.to_owned() }
    }
}

impl EndpointConfig {
    /// Checks what [`Endpoint::new`](crate::Endpoint::new) needs.
    pub fn check(&self) -> Result<(), InvalidEndpoint> {
        let url = self.request_url()?;
        self.credential()?;
        self.id(&url).map(drop)
    }

    pub(super) fn request_url(&self) -> Result<Url, InvalidEndpoint> {
        let invalid = |reason| InvalidEndpoint::new("url", reason);
        let mut url: Url = self.url.parse().map_err(|_| invalid("must be an http:// or https:// URL"))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(invalid("must be an http:// or https:// URL"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must not hold credentials: set key"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("must have neither `?` nor `#`"));
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/embeddings").unwrap_or(path);
        url.set_path(&format!("{path}/embeddings"));
        Ok(url)
    }

    pub(super) fn credential(&self) -> Result<Option<HeaderValue>, InvalidEndpoint> {
        let Some(key) = &self.key else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret().trim()))
            .map_err(|_| InvalidEndpoint::new("key", "has characters that no key has"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// A hash of the URL, the model's name, the number of values, and a hash of the prefixes if there are any. No
    /// embedded model has such an id.
    pub(super) fn id(&self, url: &Url) -> Result<String, InvalidEndpoint> {
        let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control();
        let Self { model, dimensions, query_prefix, document_prefix, .. } = self;
        if model.is_empty() || model.len() > MAX_MODEL_BYTES || !model.chars().all(is_plain) {
            let reason = format!("must have 1 to {MAX_MODEL_BYTES} bytes, and no spaces");
            return Err(InvalidEndpoint { field: "model", reason });
        }
        if !(1..=MAX_DIMENSIONS).contains(dimensions) {
            return Err(InvalidEndpoint {
                field: "dimensions",
                reason: format!("must be 1 to {MAX_DIMENSIONS}"),
            });
        }
        let mut id = format!("endpoint/{}/{model}/{dimensions}", short_hash(url.as_str()));
        if !query_prefix.is_empty() || !document_prefix.is_empty() {
            // With the length, other pairs of prefixes have other texts.
            let prefixes = format!("{} {query_prefix}{document_prefix}", query_prefix.len());
            id = format!("{id}/{}", short_hash(&prefixes));
        }
        Ok(id)
    }
}

fn short_hash(text: &str) -> String {
    hex::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..4])
}
