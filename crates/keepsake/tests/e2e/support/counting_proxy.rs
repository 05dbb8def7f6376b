//! A proxy before the object store that reads every PUT that passes.
//!
//! Bytes go through as they are, so that signatures hold; what a client puts
//! is known here however it was logged, retried or refused.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

type Bodies = Arc<Mutex<Vec<String>>>;

/// A running proxy; stops when dropped.
#[derive(Debug)]
pub(crate) struct CountingProxy {
    url: String,
    bodies: Bodies,
    accepting: JoinHandle<()>,
}

impl CountingProxy {
    /// Starts a proxy before the S3 server of the tests.
    pub(crate) async fn start() -> Self {
        let endpoint = keepsake_testkit::s3_options("").settings.endpoint.unwrap();
        let upstream = endpoint
            .strip_prefix("http://")
            .unwrap_or_else(|| panic!("puts are counted on http:// only, not {endpoint}"));
        let upstream = upstream.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Bodies::default();
        let seen = Arc::clone(&bodies);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, bodies) = (upstream.clone(), Arc::clone(&bodies));
                // The client notices a broken connection itself.
                tokio::spawn(async move { drop(pass(client, &upstream, &bodies).await) });
            }
        });
        Self { url, bodies: seen, accepting }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The bodies of all PUT requests, in the order in which they came.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for CountingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(client: TcpStream, upstream: &str, bodies: &Bodies) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    let answers = async { tokio::io::copy(&mut from_server, &mut to_client).await.map(drop) };
    tokio::try_join!(pass_requests(from_client, to_server, bodies), answers)?;
    Ok(())
}

async fn pass_requests(from: OwnedReadHalf, mut to: OwnedWriteHalf, bodies: &Bodies) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut head).await? == 0 {
                return to.shutdown().await;
            }
        }
        // Forwarded immediately: a client may wait for `100 Continue`.
        to.write_all(&head).await?;
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(!head.contains("transfer-encoding"), "bodies are expected in one piece: {head}");
        let mut body = vec![0; content_length(&head)];
        from.read_exact(&mut body).await?;
        if head.starts_with("put ") {
            let text = String::from_utf8_lossy(&body).into_owned();
            bodies.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
        to.write_all(&body).await?;
    }
}

pub(super) fn content_length(head: &str) -> usize {
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.map_or(0, |value| value.trim().parse().unwrap())
}
