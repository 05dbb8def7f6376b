//! A server with the embeddings API of OpenAI, whose vectors follow from a table of
//! concepts: texts are near one another if they have words of the same concepts.

use std::future::ready;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{listen, run, serve};

/// The key that requests must have.
pub const EMBEDDINGS_KEY: &str = "the-key-of-the-embeddings-endpoint";
/// The model that requests must name.
pub const EMBEDDINGS_MODEL: &str = "concepts";
/// The number of values of a vector. The first is of all texts, each further one of a concept.
pub const EMBEDDINGS_DIMENSIONS: usize = 32;

/// How requests are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EmbeddingsFault {
    #[default]
    None,
    /// Answers come only once this fault ends.
    Silent,
    Unavailable,
    RefusesKeys,
    /// Requests with a text that has this part are refused.
    RefusesText(&'static str),
    /// Requests with more texts are refused.
    RefusesMoreThan(usize),
    /// The connection ends before the answer to requests with a text that has this part.
    EndsBy(&'static str),
    /// A vector is missing.
    TooFewVectors,
    /// A value is no number.
    NoNumbers,
}

/// An embeddings server over HTTP on a free loopback port.
#[derive(Debug)]
pub struct EmbeddingsServer {
    url: String,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    concepts: &'static [&'static [&'static str]],
    fault: watch::Sender<EmbeddingsFault>,
    texts: watch::Sender<Vec<String>>,
}

impl EmbeddingsServer {
    /// Each concept is a list of words in lowercase.
    pub async fn start(concepts: &'static [&'static [&'static str]]) -> Self {
        assert!(concepts.len() < EMBEDDINGS_DIMENSIONS, "too many concepts");
        let (listener, url) = listen().await;
        run::remember(EMBEDDINGS_KEY, "the key of the embeddings endpoint");
        let fault = watch::Sender::new(EmbeddingsFault::None);
        let shared = Arc::new(Shared { concepts, fault, texts: watch::Sender::default() });
        let router = Router::new().route("/v1/embeddings", post(embed)).with_state(Arc::clone(&shared));
        Self { url: format!("{url}/v1"), shared, _serving: serve(listener, router) }
    }

    /// The base of its URLs, with `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn fail(&self, fault: EmbeddingsFault) {
        self.shared.fault.send_replace(fault);
    }

    /// The texts of all requests so far.
    pub fn texts(&self) -> Vec<String> {
        self.shared.texts.borrow().clone()
    }

    /// Waits for a request with a text that has this part.
    pub async fn is_asked(&self, part: &str) {
        let mut texts = self.shared.texts.subscribe();
        let asked = texts.wait_for(|texts| texts.iter().any(|text| text.contains(part)));
        asked.await.expect("the server ended");
    }
}

async fn embed(State(shared): State<Arc<Shared>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let texts: Vec<String> = match &body["input"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(texts) => texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        _ => return (StatusCode::BAD_REQUEST, "no input").into_response(),
    };
    let key = headers.get(header::AUTHORIZATION).and_then(|key| key.to_str().ok());
    if key != Some(&format!("Bearer {EMBEDDINGS_KEY}")) || body["model"] != EMBEDDINGS_MODEL {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    shared.texts.send_modify(|all| all.extend(texts.iter().cloned()));
    let mut faults = shared.fault.subscribe();
    let fault = match faults.wait_for(|fault| *fault != EmbeddingsFault::Silent).await {
        Ok(fault) => *fault,
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    let mut vectors: Vec<Value> = texts.iter().map(|text| json!(vector(shared.concepts, text))).collect();
    match fault {
        EmbeddingsFault::None | EmbeddingsFault::Silent => {}
        EmbeddingsFault::Unavailable => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        EmbeddingsFault::RefusesKeys => return StatusCode::UNAUTHORIZED.into_response(),
        EmbeddingsFault::RefusesText(part) => {
            if texts.iter().any(|text| text.contains(part)) {
                return StatusCode::UNPROCESSABLE_ENTITY.into_response();
            }
        }
        EmbeddingsFault::RefusesMoreThan(count) => {
            if texts.len() > count {
                return StatusCode::BAD_REQUEST.into_response();
            }
        }
        EmbeddingsFault::EndsBy(part) => {
            if texts.iter().any(|text| text.contains(part)) {
                let end = ready(Err::<Bytes, _>(io::Error::other("the server ends")));
                return Body::from_stream(stream::once(end)).into_response();
            }
        }
        EmbeddingsFault::TooFewVectors => {
            vectors.pop();
        }
        EmbeddingsFault::NoNumbers => vectors.iter_mut().for_each(|vector| vector[1] = Value::Null),
    }
    let embedding = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<_> = vectors.into_iter().enumerate().map(embedding).collect();
    let usage = json!({"prompt_tokens": texts.len(), "total_tokens": texts.len()});
    Json(json!({"object": "list", "data": data, "model": EMBEDDINGS_MODEL, "usage": usage})).into_response()
}

/// The vector of a text: one value for each concept of which it has a word.
fn vector(concepts: &[&[&str]], text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let mut values = vec![0.0; EMBEDDINGS_DIMENSIONS];
    values[0] = 0.2;
    for (value, words) in values[1..].iter_mut().zip(concepts) {
        if words.iter().any(|word| text.contains(word)) {
            *value = 1.0;
        }
    }
    values
}
