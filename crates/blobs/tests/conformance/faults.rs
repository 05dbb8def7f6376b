//! What a store in S3 does while the network or the server fails.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use keepsake_blobs::{BlobError, BlobStore, BlobUrl, S3Blobs, S3Options};
use keepsake_telemetry::Metrics;
use keepsake_testkit::FaultProxy;
use tokio::time::Instant;

use crate::backend::{connect, fresh_options, key, options_for, server_that_tells};

const TEXT: &[u8] = b"some text";
/// The time limit of a call while the server is down.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// How soon after a fault all calls must succeed.
const BACK_WITHIN: Duration = Duration::from_secs(15);
/// Connections in the pool when a fault begins.
const POOLED: usize = 8;

async fn options_behind_a_proxy() -> (S3Options, FaultProxy) {
    let mut options = fresh_options();
    let endpoint = options.settings.endpoint.take().unwrap();
    let (proxy, endpoint) = FaultProxy::before_url(&endpoint).await;
    options.settings.endpoint = Some(endpoint);
    (options, proxy)
}

/// A store behind a proxy, with a blob in it and as many pooled connections.
async fn store_behind_a_proxy() -> (S3Blobs, FaultProxy) {
    let (options, proxy) = options_behind_a_proxy().await;
    let store = connect(options).await;
    store.put(&key(1, 1, 1), Bytes::from_static(TEXT)).await.unwrap();
    assert_all_read(gets(&store).await);
    (store, proxy)
}

async fn gets(store: &S3Blobs) -> Vec<Result<Option<Bytes>, BlobError>> {
    join_all((0..POOLED).map(|_| async { store.get(&key(1, 1, 1), 1_000).await })).await
}

fn assert_all_read(outcomes: Vec<Result<Option<Bytes>, BlobError>>) {
    for outcome in outcomes {
        assert_eq!(outcome.unwrap().as_deref(), Some(TEXT));
    }
}

async fn took<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let began_at = Instant::now();
    let outcome = call.await;
    (outcome, began_at.elapsed())
}

#[tokio::test]
async fn dead_pooled_connections_cause_no_error() {
    let (store, proxy) = store_behind_a_proxy().await;
    proxy.reset_connections();
    assert_all_read(gets(&store).await);
    proxy.silence_connections();
    let (outcomes, took) = took(gets(&store)).await;
    assert_all_read(outcomes);
    assert!(took < ANSWERED_WITHIN, "{took:?}");
}

#[tokio::test]
async fn truncated_body_is_read_again() {
    let (store, proxy) = store_behind_a_proxy().await;
    let large = Bytes::from(vec![b'x'; 100_000]);
    store.put(&key(1, 1, 2), large.clone()).await.unwrap();
    proxy.cut_after(50_000);
    let accepted = proxy.accepted();
    let reader = {
        let store = store.clone();
        tokio::spawn(async move { store.get(&key(1, 1, 2), 100_000).await })
    };
    // The second attempt opens a new connection.
    while proxy.accepted() == accepted {
        assert!(!reader.is_finished());
        tokio::task::yield_now().await;
    }
    proxy.heal().await;
    assert_eq!(reader.await.unwrap().unwrap(), Some(large));
}

#[tokio::test]
async fn oversized_object_is_refused_with_and_without_a_length() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let with_length = format!("{head}Content-Length: 1000000000000\r\n\r\nthe beginning");
    let chunk = "8\r\n12345678\r\n";
    let without = format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}{chunk}");
    for (answer, limit, found) in [(with_length, 1_000, 1_000_000_000_000), (without, 20, 21)] {
        let (endpoint, requests) = server_that_tells(move |_| answer.clone()).await;
        let refused = connect(options_for(&endpoint)).await.get(&key(1, 1, 1), limit).await;
        let Err(BlobError::TooLarge { found_bytes, max_bytes }) = refused else { panic!("{refused:?}") };
        assert!(found_bytes >= found && max_bytes == limit, "{found_bytes} of {max_bytes}");
        assert_eq!(requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn breaker_refuses_calls_at_once_and_lets_them_through_when_the_server_is_back() {
    let (options, proxy) = options_behind_a_proxy().await;
    let url = format!("s3://{}/{}", options.bucket, options.prefix);
    let url = url.parse::<BlobUrl>().unwrap();
    let opened = keepsake_blobs::open(&url, &options.settings, &Metrics::default()).await;
    let store = opened.unwrap().unwrap();
    let put = |blob| {
        let store = &store;
        async move { store.put(&key(1, 1, blob), Bytes::from_static(TEXT)).await }
    };
    put(0).await.unwrap();

    proxy.silence_all();
    let first = took(join_all((1..=3).map(&put))).await;
    assert!(first.0.iter().all(Result::is_err) && first.1 < ANSWERED_WITHIN);
    // Open: calls fail at once, except for the probe.
    let (outcomes, _) = took(join_all((4..=203).map(|blob| took(put(blob))))).await;
    let waited = outcomes.iter().filter(|(_, took)| *took > Duration::from_secs(1)).count();
    assert!(outcomes.iter().all(|(outcome, _)| outcome.is_err()));
    assert!(waited <= 1, "{waited} calls waited for a server that is down");

    proxy.heal().await;
    let healed_at = Instant::now();
    while put(300).await.is_err() {
        assert!(healed_at.elapsed() < BACK_WITHIN);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for outcome in join_all((301..=400).map(&put)).await {
        outcome.unwrap();
    }
}
