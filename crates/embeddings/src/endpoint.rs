//! Vectors from an endpoint with the embeddings API of OpenAI.

mod answer;
mod config;

use std::time::Duration;

use keepsake_core::{causes, is_this_machine};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use serde::Serialize;

pub use self::answer::EndpointAnswer;
pub use self::config::{EndpointConfig, InvalidEndpoint, MAX_DIMENSIONS};

/// Maximum number of texts in a request, which also bounds the bytes of an answer.
pub const MAX_BATCH: usize = 32;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A number as JSON has at most 24 characters; with pretty printing, some more.
const MAX_BYTES_PER_VALUE: usize = 48;
/// Maximum bytes of an answer besides the values, for each text.
const MAX_OTHER_BYTES: usize = 4 << 10;

/// Makes vectors with the embeddings API of OpenAI, as Ollama, Text Embeddings Inference, vLLM and others have it.
///
/// A request has the texts and the model's name, nothing else. No redirect is followed, and no request is repeated. The
/// proxies of the environment are used, but not for an endpoint on this machine.
#[derive(Debug)]
pub struct Endpoint {
    http: Client,
    /// Without the key, which is a header of `http`.
    url: Url,
    id: String,
    model: String,
    dimensions: usize,
    query_prefix: String,
    document_prefix: String,
}

/// The reason why an endpoint has made no vectors. Its text has no part of the request's texts, of the key, of the URL or
/// of the answer's body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The time limit of the call is over.
    #[error("the embeddings endpoint did not answer in time")]
    TimedOut,
    #[error("the embeddings endpoint cannot be reached: {0}")]
    Unreachable(String),
    #[error("the embeddings endpoint answered {status}")]
    Refused { status: u16 },
    #[error("the embeddings endpoint's answer has more than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
    #[error("the embeddings endpoint's answer is not a list of embeddings")]
    Malformed,
    #[error("the embeddings endpoint answered {found} vectors to {expected} texts")]
    Count { expected: usize, found: usize },
    /// The indexes of the vectors are not those of the texts.
    #[error("the embeddings endpoint answered two vectors to one text")]
    Order,
    #[error("the embeddings endpoint answered a vector of {found} values; {expected} are configured")]
    Dimensions { expected: usize, found: usize },
    /// A value is infinite or not a number, or all are zero.
    #[error("the embeddings endpoint answered a vector without a length")]
    Length,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: Vec<String>,
}

impl Endpoint {
    /// Does no I/O.
    pub fn new(config: EndpointConfig) -> Result<Self, InvalidEndpoint> {
        let url = config.request_url()?;
        let id = config.id(&url)?;
        let mut headers = HeaderMap::new();
        if let Some(credential) = config.credential()? {
            headers.insert(AUTHORIZATION, credential);
        }
        let mut http = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("keepsake/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect could send texts and key to another server.
            .redirect(Policy::none());
        if url.host_str().is_some_and(is_this_machine) {
            // A proxy of the environment would get texts and key.
            http = http.no_proxy();
        }
        let http = http
            .build()
            .map_err(|error| InvalidEndpoint { field: "url", reason: causes(&error.without_url()) })?;
        let EndpointConfig { model, dimensions, query_prefix, document_prefix, .. } = config;
        Ok(Self { http, url, id, model, dimensions, query_prefix, document_prefix })
    }

    /// The stable name of everything that decides about the values of a vector.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Number of values of a vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Requests the vector of a query. Fails if the answer is not complete within the time limit.
    pub async fn embed_query(
        &self,
        text: &str,
        time_limit: Duration,
    ) -> Result<EndpointAnswer, EndpointError> {
        self.request(vec![format!("{}{text}", self.query_prefix)], time_limit).await
    }

    /// Requests the vectors of passages, which should be at most [`MAX_BATCH`]. Fails if the answer is not
    /// complete within the time limit.
    pub async fn embed_documents<T: AsRef<str>>(
        &self,
        texts: &[T],
        time_limit: Duration,
    ) -> Result<EndpointAnswer, EndpointError> {
        let input = texts.iter().map(|text| format!("{}{}", self.document_prefix, text.as_ref())).collect();
        self.request(input, time_limit).await
    }

    async fn request(
        &self,
        input: Vec<String>,
        time_limit: Duration,
    ) -> Result<EndpointAnswer, EndpointError> {
        let count = input.len();
        let body = Request { model: &self.model, input };
        // The limit includes the answer's body.
        let request = self.http.post(self.url.clone()).json(&body).timeout(time_limit);
        let response = request.send().await.map_err(unanswered)?;
        let status = response.status();
        if !status.is_success() {
            return Err(EndpointError::Refused { status: status.as_u16() });
        }
        let max_bytes = count * (self.dimensions * MAX_BYTES_PER_VALUE + MAX_OTHER_BYTES);
        let body = body_of(response, max_bytes).await?;
        Ok(EndpointAnswer { body, count, dimensions: self.dimensions })
    }
}

fn unanswered(error: reqwest::Error) -> EndpointError {
    if error.is_timeout() {
        EndpointError::TimedOut
    } else {
        EndpointError::Unreachable(causes(&error.without_url()))
    }
}

async fn body_of(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, EndpointError> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unanswered)? {
        if body.len() + part.len() > max_bytes {
            return Err(EndpointError::TooLong { max_bytes });
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}
