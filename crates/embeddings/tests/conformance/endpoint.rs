//! Endpoints that answer as they should, and endpoints that do not.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use keepsake_embeddings::{Embedder, Endpoint, EndpointConfig, EndpointError, MAX_BATCH, Status};
use keepsake_testkit::{listen, locked, serve};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Longer than any of these tests takes.
const ENOUGH: Duration = Duration::from_mins(1);
/// So short that it is over before an endpoint answers that never does.
const SHORT: Duration = Duration::from_millis(50);
const KEY: &str = "key-of-the-endpoint";
const TEXT: &str = "text of a memory";

/// An endpoint with vectors of two values, and its server.
async fn endpoint(
    answer: impl Fn(Uri, HeaderMap, Value) -> Response + Clone + Send + Sync + 'static,
) -> (Endpoint, JoinSet<()>) {
    let (listener, url) = listen().await;
    let router = Router::new().fallback(async move |uri: Uri, headers: HeaderMap, body: Bytes| {
        answer(uri, headers, serde_json::from_slice(&body).expect("no JSON"))
    });
    (Endpoint::new(config(format!("{url}/v1"))).expect("a bad configuration"), serve(listener, router))
}

fn config(url: String) -> EndpointConfig {
    EndpointConfig {
        url,
        model: "some/model".to_owned(),
        key: Some(KEY.into()),
        dimensions: 2,
        query_prefix: "query: ".to_owned(),
        document_prefix: "passage: ".to_owned(),
    }
}

async fn query_vector(endpoint: &Endpoint, time_limit: Duration) -> Result<Vec<f32>, EndpointError> {
    endpoint.embed_query(TEXT, time_limit).await?.vector()
}

/// The error of an endpoint that always answers this.
async fn refused(body: impl Into<Bytes>) -> EndpointError {
    let body = body.into();
    let (endpoint, _serving) = endpoint(move |_, _, _| body.clone().into_response()).await;
    let error = query_vector(&endpoint, ENOUGH).await.expect_err("a wrong answer is used");
    for text in [error.to_string(), format!("{error:?}"), format!("{endpoint:?}")] {
        assert!(!text.contains(KEY) && !text.contains(TEXT), "{text}");
    }
    error
}

#[tokio::test]
async fn vectors_are_those_of_the_texts() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    // The vector of the text number n is (n, 1), and the last one is answered first.
    let (endpoint, _serving) = endpoint(move |uri, headers, body| {
        let texts: Vec<String> = serde_json::from_value(body["input"].clone()).unwrap();
        let number = |text: &String| text.rsplit(' ').next().unwrap().parse::<f32>().unwrap();
        let vectors: Vec<_> = texts.iter().map(|text| [number(text), 1.0]).enumerate().rev().collect();
        let data: Vec<_> =
            vectors.iter().map(|(index, vector)| json!({ "index": index, "embedding": vector })).collect();
        locked(&seen).push((uri, headers[header::AUTHORIZATION].clone(), body));
        axum::Json(json!({ "data": data, "object": "list", "usage": { "total_tokens": 9 } })).into_response()
    })
    .await;
    assert_eq!(endpoint.embed_query("number 0", ENOUGH).await.unwrap().vector().unwrap(), [0.0, 1.0]);
    let texts: Vec<String> = (0..MAX_BATCH).map(|number| format!("number {number}")).collect();
    let vectors = endpoint.embed_documents(&texts, ENOUGH).await.unwrap().vectors().unwrap();
    assert_eq!(vectors.len(), MAX_BATCH);
    for (number, vector) in (0_u16..).zip(vectors) {
        assert!((vector[0] - vector[1] * f32::from(number)).abs() < 1e-5, "{number}: {vector:?}");
        assert!((vector[0].hypot(vector[1]) - 1.0).abs() < 1e-5, "{number}: {vector:?}");
    }

    let requests = locked(&requests);
    let lengths: Vec<_> =
        requests.iter().map(|(_, _, body)| body["input"].as_array().unwrap().len()).collect();
    assert_eq!(lengths, [1, MAX_BATCH]);
    assert_eq!(requests[0].2, json!({ "model": "some/model", "input": ["query: number 0"] }));
    assert_eq!(requests[1].2["input"][1], "passage: number 1");
    for (uri, credential, _) in requests.iter() {
        let sent = (uri.path(), credential.to_str().unwrap());
        assert_eq!(sent, ("/v1/embeddings", "Bearer key-of-the-endpoint"));
    }
}

#[tokio::test]
async fn wrong_answers_are_refused() {
    let answer = |data: &str| format!(r#"{{"data": [{data}], "echo": "{TEXT} {KEY}"}}"#);
    let vector = |vector: &str| answer(&format!(r#"{{"index": 0, "embedding": {vector}}}"#));
    let count = |found| EndpointError::Count { expected: 1, found };
    let dimensions = |found| EndpointError::Dimensions { expected: 2, found };
    for (body, error) in [
        (answer(""), count(0)),
        (answer(r#"{"embedding": [1, 2]}, {"embedding": [1, 2]}"#), count(2)),
        (answer(r#"{"index": 1, "embedding": [1, 2]}"#), EndpointError::Order),
        (vector("[]"), dimensions(0)),
        (vector("[1]"), dimensions(1)),
        (vector("[1, 2, 3]"), dimensions(3)),
        (vector("[0, 0]"), EndpointError::Length),
        (vector("[1, 1e39]"), EndpointError::Length),
        (vector("[1, 1e999]"), EndpointError::Malformed),
        (vector("[1, NaN]"), EndpointError::Malformed),
        (vector("[1, null]"), EndpointError::Malformed),
        (vector(&format!("\"{TEXT} {KEY}\"")), EndpointError::Malformed),
        ("{}".to_owned(), EndpointError::Malformed),
        (format!("{TEXT} {KEY}"), EndpointError::Malformed),
        (String::new(), EndpointError::Malformed),
    ] {
        assert_eq!(refused(body.clone()).await, error, "{body}");
    }

    let twice = r#"{"data": [{"index": 1, "embedding": [1, 2]}, {"index": 1, "embedding": [1, 2]}]}"#;
    let (endpoint, _serving) = endpoint(move |_, _, _| twice.into_response()).await;
    let refused = endpoint.embed_documents(&["one", "two"], ENOUGH).await.unwrap().vectors();
    assert_eq!(refused, Err(EndpointError::Order));
}

#[tokio::test]
async fn errors_redirects_and_answers_without_end_are_refused() {
    for status in [StatusCode::FOUND, StatusCode::UNAUTHORIZED, StatusCode::INTERNAL_SERVER_ERROR] {
        let (endpoint, _serving) = endpoint(move |uri, _, body| {
            assert_eq!(uri.path(), "/v1/embeddings");
            (status, [(header::LOCATION, "/other")], body.to_string()).into_response()
        })
        .await;
        let refused = query_vector(&endpoint, ENOUGH).await;
        assert_eq!(refused, Err(EndpointError::Refused { status: status.as_u16() }));
    }
    let (endless, _serving) = endpoint(|_, _, _| {
        let spaces = Bytes::from(vec![b' '; 1 << 10]);
        Body::from_stream(futures::stream::repeat(Ok::<_, Infallible>(spaces))).into_response()
    })
    .await;
    let refused = query_vector(&endless, ENOUGH).await;
    assert!(matches!(refused, Err(EndpointError::TooLong { max_bytes: 4_192 })), "{refused:?}");
    // The head, and nothing of the body.
    let (slow, _serving) = endpoint(|_, _, _| {
        Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()).into_response()
    })
    .await;
    assert_eq!(query_vector(&slow, SHORT).await, Err(EndpointError::TimedOut));
}

#[tokio::test]
async fn unreachable_endpoint_is_an_error_without_its_url() {
    let (listener, url) = listen().await;
    let endpoint = Endpoint::new(config(format!("{url}/private"))).unwrap();
    // The system accepts the connection; no server answers.
    assert_eq!(query_vector(&endpoint, SHORT).await, Err(EndpointError::TimedOut));
    drop(listener);
    let refused = query_vector(&endpoint, ENOUGH).await.unwrap_err();
    assert!(matches!(refused, EndpointError::Unreachable(_)), "{refused:?}");
    assert!(!refused.to_string().contains("private") && !refused.to_string().contains(TEXT), "{refused}");
}

#[test]
fn configurations_are_checked_and_their_ids_differ() {
    let valid = || config("https://embeddings.example.com/v1/".to_owned());
    let of_url = |url: &str| config(url.to_owned());
    let of_model = |model: &str| EndpointConfig { model: model.to_owned(), ..valid() };
    let of_dimensions = |dimensions| EndpointConfig { dimensions, ..valid() };
    let with_key = |key: Option<&str>| EndpointConfig { key: key.map(Into::into), ..valid() };
    let with_prefixes = |[query, document]: [&str; 2]| {
        let (query_prefix, document_prefix) = (query.to_owned(), document.to_owned());
        EndpointConfig { query_prefix, document_prefix, ..valid() }
    };
    let no_url = "url must be an http:// or https:// URL";
    let no_model = "model must have 1 to 128 bytes, and no spaces";
    for (config, refusal) in [
        (of_url(""), no_url),
        (of_url("ftp://host"), no_url),
        (of_url("http://a:b@host"), "url must not hold credentials: set key"),
        (of_url("https://host/v1/?a=b"), "url must have neither `?` nor `#`"),
        (of_model(""), no_model),
        (of_model("a b"), no_model),
        (of_dimensions(0), "dimensions must be 1 to 4096"),
        (of_dimensions(4_097), "dimensions must be 1 to 4096"),
        (with_key(Some("a\nb")), "key has characters that no key has"),
    ] {
        assert_eq!(config.check().unwrap_err().to_string(), refusal);
        assert_eq!(Endpoint::new(config).unwrap_err().to_string(), refusal);
    }

    let id = |config: EndpointConfig| Endpoint::new(config).unwrap().id().to_owned();
    let without_prefixes = id(with_prefixes(["", ""]));
    assert!(without_prefixes.starts_with("endpoint/") && without_prefixes.ends_with("/some/model/2"));
    assert_eq!(without_prefixes.len(), "endpoint/12345678/some/model/2".len());
    assert_eq!(id(valid()).len(), "endpoint/12345678/some/model/2/12345678".len());
    assert_eq!(id(with_key(None)), id(valid()));
    assert_eq!(id(of_url("https://embeddings.example.com/v1/embeddings")), id(valid()));
    for other in [
        of_url("https://embeddings.example.com/v1/x"),
        of_model("other"),
        of_dimensions(3),
        with_prefixes(["query: x", "passage: "]),
        // The same texts, divided elsewhere.
        with_prefixes(["query: pass", "age: "]),
    ] {
        assert_ne!(id(other), id(valid()));
    }
    let embedder = Embedder::endpoint(valid()).unwrap();
    assert_eq!((embedder.dimensions(), embedder.status()), (Some(2), Status::Ready));
    assert!(!format!("{:?} {embedder:?}", valid()).contains(KEY));
}
