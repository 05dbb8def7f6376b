//! The HTTP client of Keepsake's API that commands, archives and sync share.
//!
//! Every call has a time limit. A call whose outcome is unknown is sent again: a
//! `POST` with the same `Idempotency-Key`, so that the server applies it once. The
//! operator's API and servers of other makers have no such keys, so their changes are sent
//! again only if they were certainly not applied.
//!
//! No answer fills the memory and no list goes on for ever, whatever the server sends.
//!
//! ```no_run
//! # async fn example() -> Result<(), keepsake_client::ClientError> {
//! use keepsake_client::Client;
//!
//! let client = Client::new("http://127.0.0.1:8080", &"ks_live_…".into())?;
//! let store: serde_json::Value = client.get(&["memory_stores", "memstore_…"], &[]).await?;
//! println!("{}", store["name"]);
//! # Ok(())
//! # }
//! ```

mod advice;
mod answer;
mod backoff;
mod download;
mod error;
mod events;
mod pages;

use std::time::Duration;

pub use reqwest::{Method, StatusCode, Url};

use keepsake_core::{Purpose, causes, is_this_machine};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::{RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

pub use advice::{AnswerHead, server_url};
use answer::answer_of;
pub use answer::{MAX_ANSWER_BYTES, body_of, from_json};
use backoff::Backoff;
pub use download::Download;
pub use error::{ClientError, ErrorObject, Refusal};
pub use events::{Events, StreamEvent};
pub use pages::Pages;

const ATTEMPT_LIMIT: Duration = Duration::from_mins(2);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A person wonders why nothing happens.
const LONG_WAIT: Duration = Duration::from_secs(2);
/// The header whose value makes the server apply a `POST` once.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header of an API key on servers of any maker.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Headers that servers of any maker may require.
const EDITION: [(&str, &str); 2] = [
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "managed-agents-2026-04-01,agent-memory-2026-07-22"),
];

type Result<T, E = ClientError> = std::result::Result<T, E>;

/// A query parameter that is sent if it has a value.
pub type Parameter<'a> = (&'a str, Option<&'a str>);
pub type Query<'a> = &'a [Parameter<'a>];

/// Calls the API of one server with one credential; cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    api: Api,
    /// `None`: for an agent.
    purpose: Option<Purpose>,
    /// Is told of long waits before a call is sent again.
    tell_wait: Option<fn(&ClientError, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    /// `/v1`, for API keys and tokens.
    Public,
    /// `/v1` on a server of any maker: only what the official SDKs send.
    Compatible,
    /// `/admin/v1`, for the operator's token.
    Operator,
}

impl Api {
    fn headers(self, credential: &SecretString) -> Result<HeaderMap, InvalidHeaderValue> {
        let secret = credential.expose_secret().trim();
        let (name, value) = match self {
            Self::Public | Self::Operator => (AUTHORIZATION, format!("Bearer {secret}")),
            // Every token has a point in it, no key has.
            Self::Compatible if secret.contains('.') => (AUTHORIZATION, format!("Bearer {secret}")),
            Self::Compatible => (API_KEY, secret.to_owned()),
        };
        let mut value = HeaderValue::from_str(&value)?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::from_iter([(name, value)]);
        if self == Self::Compatible {
            let edition =
                EDITION.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            headers.extend(edition);
        }
        Ok(headers)
    }
}

impl Client {
    /// `api_key` is an API key or a token.
    pub fn new(url: &str, api_key: &SecretString) -> Result<Self> {
        Self::of_api(Api::Public, url, "api_key", api_key)
    }

    /// A client of a server of any maker that has the memory stores API. It sends no
    /// `Idempotency-Key`, so that a change is sent again only if it was certainly not applied. A
    /// reading call that fails with any 5xx is sent again, as the official SDKs do.
    pub fn of_compatible(url: &str, api_key: &SecretString) -> Result<Self> {
        Self::of_api(Api::Compatible, url, "api_key", api_key)
    }

    /// A client of the operator's listener at `url`.
    pub fn of_operator(url: &str, token: &SecretString) -> Result<Self> {
        Self::of_api(Api::Operator, url, "token", token)
    }

    fn of_api(api: Api, url: &str, name: &'static str, credential: &SecretString) -> Result<Self> {
        let base = advice::server_url(url)?;
        let headers = api
            .headers(credential)
            .map_err(|_| ClientError::setting(name, "", &"it has characters that no credential has"))?;
        let mut http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("keepsake/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_LIMIT)
            .timeout(ATTEMPT_LIMIT)
            // A redirect must not send the credential to another server.
            .redirect(reqwest::redirect::Policy::none());
        if base.host_str().is_some_and(is_this_machine) {
            // A proxy of the environment would get the credential.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| ClientError::setting("url", url, &causes(&error)))?;
        Ok(Self { http, base, api, purpose: None, tell_wait: None })
    }

    /// The same client, whose reads are no uses by an agent.
    #[must_use]
    pub const fn reading_for(mut self, purpose: Purpose) -> Self {
        self.purpose = Some(purpose);
        self
    }

    /// The same client, which reports each long wait that the server asks for before a call is sent again.
    #[must_use]
    pub const fn telling_waits(mut self, tell: fn(&ClientError, Duration)) -> Self {
        self.tell_wait = Some(tell);
        self
    }

    /// The server's URL without a final `/`.
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// The client for other requests to the server: with the credential and the time
    /// limits, without repetitions.
    pub const fn http(&self) -> &reqwest::Client {
        &self.http
    }

    /// The error if a request with [`Client::http`] was not answered.
    pub fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        ClientError::unreachable(self.url(), error)
    }

    /// The error if the answer to a request with [`Client::http`] shows that the URL
    /// leads elsewhere.
    pub fn misdirected(&self, answer: &reqwest::Response) -> Option<ClientError> {
        advice::misdirected(&self.base, answer.url(), answer.status(), answer.headers())
    }

    /// The reason why an answer that is no JSON cannot be used, and what to write instead if
    /// the URL is wrong.
    pub fn no_json(&self, head: AnswerHead) -> String {
        let advice = advice::of_other_answer(&self.base, head);
        format!("the server answered {} without JSON{advice}", head.status)
    }

    /// Reads the object at a path below `/v1`, given by its segments.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: Query<'_>) -> Result<T> {
        self.send(Method::GET, path, query, None).await
    }

    /// Sends a `POST`, which the server applies once.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &(impl Serialize + Sync),
    ) -> Result<T> {
        let body = serde_json::to_value(body).map_err(|error| ClientError::setting("body", "", &error))?;
        self.send(Method::POST, path, &[], Some(&body)).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &[&str], query: Query<'_>) -> Result<T> {
        self.send(Method::DELETE, path, query, None).await
    }

    pub fn pages<'a>(&'a self, path: &'a [&'a str], query: &'a [Parameter<'a>]) -> Pages<'a> {
        Pages::new(self, path, query)
    }

    /// A stream of events, which begins after the event with `last_id`.
    pub fn events(&self, path: &[&str], query: Query<'_>, last_id: Option<String>) -> Events {
        Events::new(self.clone(), self.url_of(path, query), last_id)
    }

    /// Sends a request until it is answered or the attempts end.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<T> {
        let url = self.url_of(path, query);
        let idempotency_key = Uuid::new_v4().to_string();
        let mut backoff = Backoff::new();
        loop {
            let mut request = self.request(method.clone(), url.clone());
            if method == Method::POST && self.api == Api::Public {
                request = request.header(IDEMPOTENCY_KEY, &idempotency_key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let error = match request.send().await {
                Ok(response) => match answer_of(&self.base, response).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                },
                Err(error) => ClientError::unreachable(self.url(), &error),
            };
            // `DELETE` does not count: after a lost answer, the second one reports that its object is missing.
            let is_idempotent = match method {
                Method::GET => true,
                Method::POST => self.api == Api::Public,
                _ => false,
            };
            if !is_idempotent && !error.is_certainly_not_applied() {
                return Err(error);
            }
            let is_failed_read = is_idempotent && self.api == Api::Compatible && error.is_server_error();
            let asked_for = error.retry_after();
            let may_repeat = is_failed_read || error.is_transient();
            let Some(wait) = may_repeat.then(|| backoff.next_wait(asked_for)).flatten() else {
                return Err(error);
            };
            if let Some(tell) = self.tell_wait.filter(|_| asked_for >= Some(LONG_WAIT)) {
                tell(&error, wait);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match self.purpose {
            Some(purpose) => request.header(Purpose::HEADER, purpose.name()),
            None => request,
        }
    }

    /// The answer to a `GET`, whose body may take any time as a whole.
    async fn open(&self, url: Url, headers: HeaderMap, limit: Duration) -> Result<Response> {
        // The client's time limit for one call would end the body.
        let request = self.request(Method::GET, url).headers(headers).timeout(Duration::MAX);
        let response = tokio::time::timeout(limit, request.send()).await;
        let response = response.map_err(|_| ClientError::silent(self.url(), limit))?;
        let response = response.map_err(|error| ClientError::unreachable(self.url(), &error))?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let (url, status) = (response.url().clone(), response.status());
        answer_of::<Value>(&self.base, response).await?;
        Err(ClientError::unreadable(&url, status, &"no stream"))
    }

    fn url_of(&self, path: &[&str], query: Query<'_>) -> Url {
        let root: &[&str] = match self.api {
            Api::Public | Api::Compatible => &["v1"],
            Api::Operator => &["admin", "v1"],
        };
        extended(&self.base, &[root, path].concat(), query)
    }
}

/// Adds segments to the path of a URL, and parameters.
pub fn extended(base: &Url, path: &[&str], query: Query<'_>) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    let given = query.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let given: Vec<_> = given.collect();
    if !given.is_empty() {
        url.query_pairs_mut().extend_pairs(given);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_parameters_are_encoded() {
        let client = Client::new("http://host:8080/keepsake/", &"ks_live_x".into()).unwrap();
        let url = client.url_of(&["a", "b/c ?"], &[("page", Some("x&y")), ("limit", None)]);
        assert_eq!(url.as_str(), "http://host:8080/keepsake/v1/a/b%2Fc%20%3F?page=x%26y");
        let operator = Client::of_operator("http://host:8081", &"token".into()).unwrap();
        let url = operator.url_of(&["jobs", "../tenants?", "run"], &[]);
        assert_eq!(url.as_str(), "http://host:8081/admin/v1/jobs/..%2Ftenants%3F/run");
    }

    #[test]
    fn malformed_settings_are_refused_by_name() {
        let both = "https://: write http://localhost:8080, or https://localhost:8080 for a port with";
        let bare = ": it must have no credentials, query and fragment: write https://h/k";
        for (url, reason) in [
            ("localhost:8080", both),
            ("10.0.0.1:8080", "it must start with http:// or https://: write http://10.0.0.1:8080, or"),
            ("ftp://host", "it must start with http:// or https://"),
            ("", "it must start with http:// or https://"),
            ("http://", "empty host"),
            ("https://u:secret@h/k?a#b", bare),
            ("http://h?", "query and fragment: write http://h"),
            ("http://h#", "query and fragment: write http://h"),
        ] {
            let error = Client::new(url, &"ks_live_x".into()).unwrap_err().to_string();
            assert!(error.starts_with("url") && error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = Client::new("http://h", &"line\nbreak".into()).unwrap_err().to_string();
        assert!(error.starts_with("api_key") && !error.contains("line"), "{error}");
    }
}
