//! The operator's listener of a measured server: metrics and tenants.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use keepsake_config::Failure;
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use serde_json::Value;
use tokio::process::Command;
use uuid::Uuid;

use super::connection::Connection;

/// The address and the token of the operator's listener.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operator {
    address: SocketAddr,
    /// Random, for one start of a server; its text is the token.
    token: Uuid,
}

impl Operator {
    /// A listener with a new token.
    pub(super) fn at(address: SocketAddr) -> Self {
        let token = RandomIds.uuid(SystemClock.now());
        Self { address, token }
    }

    /// Makes a server that is about to start listen for this operator.
    pub(super) fn configure(&self, command: &mut Command) {
        command
            .env("KEEPSAKE_OPERATOR_LISTEN", self.address.to_string())
            .env("KEEPSAKE_OPERATOR_TOKEN", self.token.simple().to_string());
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// [`Failure`] if the server does not answer.
    pub(super) async fn metrics(&self) -> Result<String, Failure> {
        let mut connection = Connection::open(self.address).await?;
        let answer = self.send(&mut connection, Request::get("/metrics"), String::new()).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Opens a connection for [`Self::call`].
    ///
    /// # Errors
    /// [`Failure`] if the server cannot be reached.
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        Connection::open(self.address).await
    }

    /// Creates an object below `/admin/v1`.
    ///
    /// # Errors
    /// [`Failure`] with the server's answer.
    pub(super) async fn create(
        &self,
        connection: &mut Connection,
        path: &str,
        body: &Value,
    ) -> Result<Value, Failure> {
        self.call(connection, Method::POST, path, Some(body)).await
    }

    /// Sends a call below `/admin/v1`.
    ///
    /// # Errors
    /// [`Failure`] with the server's answer.
    pub(super) async fn call(
        &self,
        connection: &mut Connection,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let request = Request::builder().method(method).uri(format!("/admin/v1/{path}"));
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.send(connection, request, body).await?;
        serde_json::from_slice(&answer).map_err(Failure::of("an answer is no JSON"))
    }

    async fn send(
        &self,
        connection: &mut Connection,
        request: hyper::http::request::Builder,
        body: String,
    ) -> Result<Bytes, Failure> {
        const FAILED: &str = "the operator's call failed";
        let request = request
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.token.simple()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(Failure::of(FAILED))?;
        let (status, answer) = connection.call(request).await.map_err(Failure::of(FAILED))?;
        if !status.is_success() {
            let answer = String::from_utf8_lossy(&answer);
            return Err(Failure::new(format!("{FAILED}: {status}: {answer}")));
        }
        Ok(answer)
    }
}
