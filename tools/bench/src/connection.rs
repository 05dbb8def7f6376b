//! A persistent HTTP/1.1 connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use keepsake_config::Failure;
use tokio::net::TcpStream;

/// Sends requests one after another.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let failed = || Failure::of(format!("{address} cannot be reached"));
        let stream = TcpStream::connect(address).await.map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(Failure::of(format_args!("{address} does not speak HTTP")))?;
        // Ends with the sender, which reports errors.
        drop(tokio::spawn(connection));
        Ok(Self { sender })
    }

    /// Sends a request and reads the whole response.
    pub(super) async fn call(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<(StatusCode, Bytes)> {
        let response = self.respond(request).await?;
        Ok((response.status(), response.into_body()))
    }

    /// The same, with the headers of the response.
    pub(super) async fn respond(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Bytes>> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}
