//! Accepts connections and serves the router on them, with limits.
//!
//! Each connection has limits for the size and the time of a request's head, for the time until the
//! next request, and for the time to receive an answer. `body.rs` limits the size and the time of a
//! body.

mod stream;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{Lifecycle, ServerOptions};
use stream::{Activity, WatchedStream};

/// More than `envelope.rs` refuses with a proper error. Beyond this the HTTP library answers 431
/// without a body.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// A whole head and a little more.
const MAX_BUFFER_BYTES: usize = 36 << 10;
/// Send buffer of a connection in the kernel, which doubles this value.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Connections beyond the limit that get an overload error and may use the health probes. Further
/// connections are closed without an answer.
const SPARE_CONNECTIONS: usize = 64;
/// Connections accepted after the stop signal: as many as the system may queue for a listener.
const MAX_LATE_CONNECTIONS: usize = 1_024;
/// Pause when the system has no resources for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Marks the requests of a connection beyond the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverConnectionLimit;

/// Serves a router until stopped, then finishes running requests within `shutdown_deadline`.
///
/// Connections that the system has queued for the listener by then are served too. While draining,
/// each answer announces that its connection closes.
pub async fn run(
    router: Router,
    listener: TcpListener,
    options: ServerOptions,
    lifecycle: Lifecycle,
) -> io::Result<()> {
    let connections = GracefulShutdown::new();
    let permits = semaphore(options.max_connections);
    let spare_permits = semaphore(SPARE_CONNECTIONS);
    let mut late_connections = MAX_LATE_CONNECTIONS;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept(), if late_connections > 0 => accepted,
            () = lifecycle.stopping.cancelled() => break,
        };
        if lifecycle.stopping.is_cancelled() {
            late_connections -= 1;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        let (permit, is_overflowing) = match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => (permit, false),
            Err(_) => match Arc::clone(&spare_permits).try_acquire_owned() {
                Ok(permit) => (permit, true),
                Err(_) => continue,
            },
        };
        let connection = Connection {
            router: router.clone(),
            is_overflowing,
            draining: lifecycle.draining.clone(),
            permit,
        };
        tokio::spawn(connection.serve(stream, connections.watcher()));
    }
    drop(listener);
    let ended = tokio::time::timeout(options.shutdown_deadline, connections.shutdown()).await;
    if ended.is_err() {
        tracing::warn!("http.shutdown: requests were still running at the deadline");
    }
    Ok(())
}

fn semaphore(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

/// A connection that the peer aborted needs no pause. When the system lacks resources, an immediate
/// retry would only use CPU time.
async fn pause_after(error: &io::Error) {
    let is_the_peers = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    );
    if !is_the_peers {
        tracing::warn!(error = %error, "http.accept failed; tried again");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

struct Connection {
    router: Router,
    is_overflowing: bool,
    draining: CancellationToken,
    /// Held until the connection ends.
    permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream, watcher: Watcher) {
        // Answers are small; waiting to fill a packet would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(error = %error, "http.nodelay failed");
        }
        if let Err(error) = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES) {
            tracing::debug!(error = %error, "http.send_buffer failed");
        }
        let activity = Arc::new(Activity::default());
        let stream = WatchedStream::new(stream, Arc::clone(&activity));
        let (router, is_overflowing) = (TowerToHyperService::new(self.router), self.is_overflowing);
        let draining = self.draining;
        let service = service_fn(move |mut request: Request<Incoming>| {
            let running = activity.begin();
            if is_overflowing {
                request.extensions_mut().insert(OverConnectionLimit);
            }
            let answered = router.call(request);
            let draining = draining.clone();
            async move {
                let mut response: Response<Body> = answered.await?;
                if draining.is_cancelled() {
                    let last = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, last);
                }
                // The body owns `running`, so that the request counts as running until its answer
                // is written.
                let owner = move |error: axum::Error| {
                    let _running = &running;
                    error
                };
                Ok::<_, Infallible>(response.map(|body| body.map_err(owner)))
            }
        });
        let connection = http1::Builder::new()
            // `listener/stream.rs` distinguishes a slow head from an idle client.
            .header_read_timeout(None)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_BUFFER_BYTES)
            .keep_alive(!is_overflowing)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(error = %error, "http.connection broke");
        }
        drop(self.permit);
    }
}
