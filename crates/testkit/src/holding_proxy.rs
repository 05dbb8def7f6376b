//! A proxy before a server that lets some requests pass and holds the next ones.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::listen;

/// A running proxy; stops when dropped.
#[derive(Debug)]
pub struct HoldingProxy {
    url: String,
    state: Arc<State>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    upstream: String,
    /// What the first line of a counted request contains.
    counted: &'static str,
    passes: usize,
    seen: AtomicUsize,
    held: Notify,
    /// Closed once the held requests may pass.
    hold: Semaphore,
}

impl HoldingProxy {
    /// Starts a proxy that lets `passes` requests pass whose first line contains `counted`.
    pub async fn start(upstream: &str, counted: &'static str, passes: usize) -> Self {
        let (listener, url) = listen().await;
        let state = Arc::new(State {
            upstream: upstream.trim_start_matches("http://").to_owned(),
            counted,
            passes,
            seen: AtomicUsize::new(0),
            held: Notify::new(),
            hold: Semaphore::new(0),
        });
        let shared = Arc::clone(&state);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // The client notices a broken connection itself.
                tokio::spawn(async move { drop(state.pass(client).await) });
            }
        });
        Self { url, state, _accepting: accepting }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn held(&self) {
        self.state.held.notified().await;
    }

    /// Lets the held requests pass, and all others.
    pub fn release(&self) {
        self.state.hold.close();
    }
}

impl State {
    async fn pass(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(&self.upstream).await?;
        let (from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let answers = async { tokio::io::copy(&mut from_server, &mut to_client).await.map(drop) };
        let requests = async {
            let mut from = BufReader::new(from_client);
            loop {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    if from.read_until(b'\n', &mut head).await? == 0 {
                        return to_server.shutdown().await;
                    }
                }
                let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
                let mut body = vec![0; content_length(&text)];
                from.read_exact(&mut body).await?;
                if text.lines().next().is_some_and(|line| line.contains(self.counted))
                    && self.seen.fetch_add(1, Ordering::SeqCst) >= self.passes
                {
                    self.held.notify_one();
                    // It has no permits: it answers when it is closed.
                    drop(self.hold.acquire().await);
                }
                to_server.write_all(&head).await?;
                to_server.write_all(&body).await?;
            }
        };
        tokio::try_join!(requests, answers)?;
        Ok(())
    }
}

fn content_length(head: &str) -> usize {
    let value = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    value.map_or(0, |value| value.trim().parse().expect("no length"))
}
