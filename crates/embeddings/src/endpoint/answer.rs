//! The answer of an endpoint.

use serde::Deserialize;

use super::EndpointError;
use crate::with_length_one;

/// An answer that is not parsed yet, of bounded size.
#[derive(Debug)]
pub struct EndpointAnswer {
    pub(super) body: Vec<u8>,
    /// The number of texts in the request.
    pub(super) count: usize,
    pub(super) dimensions: usize,
}

impl EndpointAnswer {
    /// The vectors in the order of the texts.
    ///
    /// Parses the answer, which takes some milliseconds for a batch: call it off the runtime.
    pub fn vectors(&self) -> Result<Vec<Vec<f32>>, EndpointError> {
        vectors_of(&self.body, self.count, self.dimensions)
    }

    /// The vector of the only text.
    pub fn vector(&self) -> Result<Vec<f32>, EndpointError> {
        self.vectors()?.pop().ok_or(EndpointError::Count { expected: 1, found: 0 })
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    /// The position of its text in the request.
    index: Option<usize>,
    embedding: Vec<f32>,
}

/// The vectors in the order of the texts, with length 1.
fn vectors_of(body: &[u8], count: usize, dimensions: usize) -> Result<Vec<Vec<f32>>, EndpointError> {
    // The parser's error may repeat texts.
    let answer: Answer = serde_json::from_slice(body).map_err(|_| EndpointError::Malformed)?;
    if answer.data.len() != count {
        return Err(EndpointError::Count { expected: count, found: answer.data.len() });
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (position, Embedding { index, embedding }) in answer.data.into_iter().enumerate() {
        if embedding.len() != dimensions {
            return Err(EndpointError::Dimensions { expected: dimensions, found: embedding.len() });
        }
        // Servers that leave the index out answer in the order of the texts.
        let place = vectors.get_mut(index.unwrap_or(position)).filter(|place| place.is_none());
        *place.ok_or(EndpointError::Order)? = Some(with_length_one(embedding).ok_or(EndpointError::Length)?);
    }
    vectors.into_iter().collect::<Option<_>>().ok_or(EndpointError::Order)
}
