//! The operator API, called over HTTP or in this process on the database.
//!
//! Both ways use the same routes, so requests and answers are the same.

use std::time::Duration;

use keepsake_config::Failure;
use keepsake_engine::Engine;
use keepsake_server::{OperatorCallError, operator_call};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::open;
use crate::backends::Backends;
use crate::cli::TargetArgs;

/// The variable with the operator's token, if `--token-file` is not given.
const TOKEN_VARIABLE: &str = "KEEPSAKE_OPERATOR_TOKEN";
/// How long a server may take to answer.
const DEADLINE: Duration = Duration::from_mins(2);

/// An open connection to the operator API.
pub(super) enum OperatorApi {
    /// The database, with the lock of its folder if it is a SQLite file.
    Database { engine: Engine, backends: Backends },
    /// A server's operator listener.
    Server {
        http: reqwest::Client,
        url: String,
        token: SecretString,
    },
}

impl OperatorApi {
    /// Opens the server or the database that the arguments name.
    ///
    /// # Errors
    /// [`Failure`] of the configuration, the database or the token.
    pub(super) async fn open(args: TargetArgs) -> Result<Self, Failure> {
        let Some(url) = args.server else {
            let (engine, backends) = open(args.sources).await?;
            return Ok(Self::Database { engine, backends });
        };
        let token = match &args.token_file {
            Some(file) => std::fs::read_to_string(file).map_err(Failure::of(format_args!(
                "the token file {} cannot be read",
                file.display()
            )))?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                Failure::new(format!(
                    "--server needs the operator's token: --token-file or {TOKEN_VARIABLE}"
                ))
            })?,
        };
        if token.trim().is_empty() {
            return Err(Failure::new("the operator's token is empty".to_owned()));
        }
        let http = reqwest::Client::builder()
            .timeout(DEADLINE)
            // A redirect must not send the token to another server.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(Failure::of("requests cannot be made"))?;
        Ok(Self::Server {
            http,
            url: url.trim_end_matches('/').to_owned(),
            token: SecretString::from(token.trim()),
        })
    }

    /// Sends a request to a path below `/admin/v1`.
    ///
    /// # Errors
    /// [`Failure`] with the error in the answer.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        match self {
            Self::Database { engine, .. } => operator_call(engine, method, path, body)
                .await
                .map_err(|error| Failure::new(error.to_string())),
            Self::Server { http, url, token } => {
                let mut request = http
                    .request(method, format!("{url}/admin/v1{path}"))
                    .bearer_auth(token.expose_secret());
                if let Some(body) = body {
                    request = request.json(body);
                }
                let failed = || Failure::of(format!("{url} cannot be reached"));
                let response = request.send().await.map_err(failed())?;
                let is_success = response.status().is_success();
                let answer = response.json().await.map_err(failed())?;
                if is_success {
                    Ok(answer)
                } else {
                    Err(Failure::new(OperatorCallError::of(&answer).to_string()))
                }
            }
        }
    }

    /// Closes the database.
    pub(super) async fn close(self) {
        if let Self::Database { engine, backends } = self {
            // A requested run may have registered this process as a replica.
            engine.shut_down(Duration::ZERO).await;
            backends.index.close().await;
        }
    }
}

/// Opens the operator API, sends one request and closes it.
///
/// # Errors
/// [`Failure`] that begins with `what_failed`.
pub(super) async fn call(
    args: TargetArgs,
    what_failed: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let target = OperatorApi::open(args).await?;
    let answer = target.call(method, path, body.as_ref()).await;
    target.close().await;
    answer.map_err(Failure::of(what_failed))
}

/// A path with those query parameters that have a value.
pub(super) fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let encode = |text: &str| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
        text.bytes()
            .map(|byte| {
                if plain(&byte) {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect::<String>()
    };
    let given = parameters
        .iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={}", encode(value))));
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_parameters_are_encoded() {
        assert_eq!(with_query("/tenants", &[("page", None)]), "/tenants");
        let parameters = [
            ("external_id", Some("a b&ö".to_owned())),
            ("limit", Some("5".to_owned())),
        ];
        assert_eq!(
            with_query("/tenants", &parameters),
            "/tenants?external_id=a%20b%26%C3%B6&limit=5"
        );
    }
}
