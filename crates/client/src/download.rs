//! An answer that is received in parts.

use std::time::Duration;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::HeaderMap;

use crate::backoff::Backoff;
use crate::{ATTEMPT_LIMIT, Client, ClientError, Query, Result};

/// The longest time without a byte: the server reads long lists meanwhile.
const SILENCE_LIMIT: Duration = ATTEMPT_LIMIT;

/// The body of an answer of any length, such as an archive.
#[derive(Debug)]
pub struct Download {
    response: Response,
    url: String,
}

impl Client {
    /// Begins to receive the answer at a path. A download that is broken off is not continued.
    pub async fn download(&self, path: &[&str], query: Query<'_>) -> Result<Download> {
        let url = self.url_of(path, query);
        let mut backoff = Backoff::new();
        loop {
            match self.open(url.clone(), HeaderMap::new(), SILENCE_LIMIT).await {
                Ok(response) => return Ok(Download { response, url: self.url().to_owned() }),
                Err(error) => backoff.wait_after(error).await?,
            }
        }
    }
}

impl Download {
    /// `None`: the answer is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let part = tokio::time::timeout(SILENCE_LIMIT, self.response.chunk()).await;
        let part = part.map_err(|_| ClientError::silent(&self.url, SILENCE_LIMIT))?;
        part.map_err(|error| ClientError::unreachable(&self.url, &error))
    }
}
