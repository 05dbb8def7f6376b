//! Sign-in of people at an issuer's own page: OpenID Connect's authorisation code
//! flow with PKCE.
//!
//! The issuer's endpoints come from its discovery document, its keys from the
//! configuration.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keepsake_core::Timestamp;
use reqwest::{StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::TokenError;
use crate::claims::Claims;
use crate::fetched::FetchedDocument;
use crate::http::{body_of, check_url, client, without_url};

/// Maximum number of codes that are redeemed at a time: anyone can start a
/// sign-in, so anyone can cause these requests.
const MAX_EXCHANGES: usize = 8;
/// The scope that asks for an ID token.
const OPENID: &str = "openid";
/// Maximum length of an error code of an issuer.
const MAX_ERROR_CHARS: usize = 64;

/// How people sign in at the page of an issuer.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// The name that people see; `None`: the issuer's host.
    pub name: Option<String>,
    pub client_id: String,
    /// The server's secret at the issuer; `None`: a public client.
    pub client_secret: Option<SecretString>,
    /// The scopes to request besides `openid`.
    pub scopes: Vec<String>,
    pub redirect_uri: String,
}

/// Why a sign-in at an issuer did not succeed; contains no token and no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenIdError {
    #[error("the console does not sign in with this issuer")]
    UnknownClient,
    #[error("the issuer cannot be reached at the moment")]
    Unavailable,
    #[error("too many people are signing in at the moment")]
    Busy,
    /// The browser returned from an issuer other than the one it was sent to.
    #[error("the answer is that of another issuer")]
    OtherIssuer,
    #[error("the issuer refused the sign-in: {0}")]
    Refused(String),
    #[error("the issuer's answer has no {0}")]
    Incomplete(&'static str),
    #[error("the code of the issuer was used before")]
    UsedCode,
    #[error("the ID token is not valid: {0}")]
    IdToken(TokenError),
    #[error("the ID token is not valid: it belongs to another sign-in (`nonce`)")]
    Nonce,
    #[error("the issuer's access token is not one for this server: {0}")]
    AccessToken(TokenError),
}

impl OpenIdError {
    /// A refusal with the issuer's error code, if `code` has the form of one.
    pub fn refused(code: &str) -> Self {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let is_code = (1..=MAX_ERROR_CHARS).contains(&code.len()) && code.chars().all(is_letter);
        Self::Refused(if is_code { code } else { "without an error code" }.to_owned())
    }

    /// Whether a retry may succeed without a change of the configuration.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable
                | Self::Busy
                | Self::IdToken(TokenError::KeysUnavailable)
                | Self::AccessToken(TokenError::KeysUnavailable)
        )
    }
}

/// The random values of one sign-in, each unguessable.
#[derive(Clone, Copy)]
pub struct Challenge<'a> {
    /// Returned by the browser.
    pub state: &'a str,
    /// Returned in the ID token.
    pub nonce: &'a str,
    /// Sent with the code, as the proof that the same server redeems it.
    pub verifier: &'a str,
}

/// The parameters that the browser brought back from the issuer.
#[derive(Clone, Copy)]
pub struct AuthorizationResponse<'a> {
    pub code: &'a str,
    /// The issuer's name for itself (RFC 9207).
    pub issuer: Option<&'a str>,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
}

/// The part of the discovery document that is used.
#[derive(Debug)]
struct Endpoints {
    authorization: Url,
    token: Url,
    /// Whether the secret is sent in the body, because a header is not accepted.
    has_secret_in_body: bool,
    /// Whether the issuer always names itself when it sends a browser back.
    names_itself: bool,
}

impl Endpoints {
    /// Reads the discovery document of an issuer.
    fn parse(json: &[u8], issuer: &str, issuer_url: &Url) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(json).map_err(|_| "is not a discovery document".to_owned())?;
        if document.issuer != issuer {
            return Err("names another `issuer` than the configuration".to_owned());
        }
        let endpoint = |text: &str, name: &str| {
            let url: Option<Url> = text.parse().ok();
            // Only an issuer that is itself trusted over http:// has such endpoints, and
            // only on its own host, so that no issuer leads requests elsewhere.
            let is_good = |url: &Url| {
                let is_safe = url.scheme() == "https"
                    || (url.scheme() == "http" && url.origin() == issuer_url.origin());
                is_safe && url.username().is_empty() && url.password().is_none() && url.fragment().is_none()
            };
            url.filter(is_good).ok_or_else(|| format!("has no https:// URL as `{name}`"))
        };
        let methods = document.token_endpoint_auth_methods_supported.unwrap_or_default();
        let supports = |method: &str| methods.iter().any(|name| name == method);
        Ok(Self {
            authorization: endpoint(&document.authorization_endpoint, "authorization_endpoint")?,
            token: endpoint(&document.token_endpoint, "token_endpoint")?,
            has_secret_in_body: supports("client_secret_post") && !supports("client_secret_basic"),
            names_itself: document.authorization_response_iss_parameter_supported.unwrap_or_default(),
        })
    }
}

/// The tokens of an answer to a code.
#[derive(Deserialize)]
pub(crate) struct TokenResponse {
    pub(crate) id_token: Option<String>,
    pub(crate) access_token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

/// This server as a client of an issuer.
pub(crate) struct Client {
    issuer: String,
    host: String,
    settings: ClientSettings,
    /// The audience to request for the access token; `None`: the ID token is used.
    audience: Option<String>,
    http: reqwest::Client,
    endpoints: FetchedDocument<Endpoints>,
    exchanges: Semaphore,
}

impl Client {
    /// A client of an issuer whose tokens must have an audience.
    pub(crate) fn new(
        settings: ClientSettings,
        issuer: &str,
        audience: &str,
        allow_http: bool,
    ) -> Result<Self, String> {
        let danger = "an attacker who replaces its discovery document can read the codes of people";
        let issuer_url = check_url(issuer, allow_http, danger)?;
        let discovery = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let discovery: Url = discovery.parse().map_err(|_| "must be an https:// URL".to_owned())?;
        let http = client()?;
        let host = issuer_url.host_str().unwrap_or_default().to_owned();
        let name = issuer.to_owned();
        let parse = move |body: &[u8]| Endpoints::parse(body, &name, &issuer_url);
        Ok(Self {
            issuer: issuer.to_owned(),
            host,
            audience: (audience != settings.client_id).then(|| audience.to_owned()),
            settings,
            endpoints: FetchedDocument::new("discovery", discovery, http.clone(), parse),
            http,
            exchanges: Semaphore::new(MAX_EXCHANGES),
        })
    }

    /// Distinguishes this client from others.
    pub(crate) fn id(&self) -> String {
        format!("{} {}", self.issuer, self.settings.client_id)
    }

    pub(crate) fn name(&self) -> &str {
        self.settings.name.as_deref().unwrap_or(&self.host)
    }

    /// Whether the access token is the credential, not the ID token.
    pub(crate) const fn uses_access_token(&self) -> bool {
        self.audience.is_some()
    }

    /// Fetches the discovery document unless it is cached. The error is why the last fetch
    /// failed.
    pub(crate) async fn check(&self, now: Timestamp) -> Result<(), Arc<str>> {
        match self.endpoints.get(now, |_| true).await.problem {
            None => Ok(()),
            Some(problem) => Err(problem),
        }
    }

    async fn endpoints(&self, now: Timestamp) -> Result<Arc<Endpoints>, OpenIdError> {
        let known = self.endpoints.get(now, |_| true).await;
        known.document.ok_or(OpenIdError::Unavailable)
    }

    /// The URL of the issuer's page for one sign-in.
    pub(crate) async fn authorization_url(
        &self,
        challenge: Challenge<'_>,
        now: Timestamp,
    ) -> Result<String, OpenIdError> {
        let endpoints = self.endpoints(now).await?;
        let mut scopes = vec![OPENID];
        scopes.extend(self.settings.scopes.iter().map(String::as_str).filter(|scope| *scope != OPENID));
        let hash = digest(&SHA256, challenge.verifier.as_bytes());
        let mut url = endpoints.authorization.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect_uri)
            .append_pair("scope", &scopes.join(" "))
            .append_pair("state", challenge.state)
            .append_pair("nonce", challenge.nonce)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(hash))
            .append_pair("code_challenge_method", "S256");
        if let Some(audience) = &self.audience {
            // Some issuers need it to make the access token a JWT; others ignore it.
            url.query_pairs_mut().append_pair("audience", audience);
        }
        Ok(url.into())
    }

    /// Redeems a code, which an issuer accepts once.
    pub(crate) async fn redeem(
        &self,
        returned: AuthorizationResponse<'_>,
        verifier: &str,
        now: Timestamp,
    ) -> Result<TokenResponse, OpenIdError> {
        let endpoints = self.endpoints(now).await?;
        match returned.issuer {
            Some(issuer) if issuer != self.issuer => return Err(OpenIdError::OtherIssuer),
            None if endpoints.names_itself => return Err(OpenIdError::OtherIssuer),
            _ => {}
        }
        let _exchange = self.exchanges.try_acquire().map_err(|_| OpenIdError::Busy)?;
        let request = self
            .http
            .post(endpoints.token.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        let secret = self.settings.client_secret.as_ref();
        let in_header = secret.filter(|_| !endpoints.has_secret_in_body);
        let request = match in_header {
            Some(secret) => request.header(header::AUTHORIZATION, basic(&self.settings.client_id, secret)),
            None => request,
        };
        let body = self.redemption(returned.code, verifier, in_header.is_none());
        let failed = |why: String| {
            tracing::warn!(issuer.host = self.host, "token.exchange failed: {why}");
            OpenIdError::Unavailable
        };
        let response = request.body(body).send().await;
        let response = response.map_err(|error| failed(without_url(error)))?;
        let status = response.status();
        let body = body_of(response).await.map_err(failed)?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|_| OpenIdError::Incomplete("tokens"));
        }
        if let Ok(answer) = serde_json::from_slice::<ErrorAnswer>(&body) {
            return Err(OpenIdError::refused(&answer.error));
        }
        Err(failed(format!("it answered {}", status.as_u16())))
    }

    /// The form that redeems a code, with the client's name and secret if no header
    /// has them.
    fn redemption(&self, code: &str, verifier: &str, names_client: bool) -> String {
        let settings = &self.settings;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &settings.redirect_uri)
            .append_pair("code_verifier", verifier);
        if names_client {
            form.append_pair("client_id", &settings.client_id);
            if let Some(secret) = &settings.client_secret {
                form.append_pair("client_secret", secret.expose_secret());
            }
        }
        form.finish()
    }

    /// Checks that the claims of a verified ID token are of this sign-in.
    pub(crate) fn check_id_token(
        &self,
        claims: &Claims,
        nonce: &str,
        now: Timestamp,
    ) -> Result<(), OpenIdError> {
        let is_for_this_client = claims.is_for(&self.settings.client_id)
            && claims
                .text("azp")
                .map_err(OpenIdError::IdToken)?
                .is_none_or(|party| party == self.settings.client_id);
        if !is_for_this_client {
            return Err(OpenIdError::IdToken(TokenError::Audience));
        }
        claims.check_times(now).map_err(OpenIdError::IdToken)?;
        claims.subject().map_err(OpenIdError::IdToken)?;
        let found = claims.text("nonce").map_err(OpenIdError::IdToken)?.unwrap_or_default();
        verify_slices_are_equal(found.as_bytes(), nonce.as_bytes()).map_err(|_| OpenIdError::Nonce)
    }
}

/// The header of `client_secret_basic`, whose parts are encoded as in a form
/// (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &SecretString) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://id.example.com/tenant";

    fn parsed(name: &str, value: Value) -> Result<Endpoints, String> {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example.com/authorize?tenant=1",
            "token_endpoint": "https://tokens.example.com/token",
        });
        document[name] = value;
        let issuer_url = ISSUER.parse().unwrap();
        Endpoints::parse(document.to_string().as_bytes(), ISSUER, &issuer_url)
    }

    #[test]
    fn endpoints_are_those_of_the_issuer_over_tls() {
        for (name, value, rule) in [
            ("issuer", "https://id.example.com/", "names another `issuer`"),
            ("token_endpoint", "http://id.example.com/token", "no https:// URL as `token_endpoint`"),
            ("token_endpoint", "http://127.0.0.1/token", "no https:// URL as `token_endpoint`"),
            ("token_endpoint", "https://a:b@id.example.com/", "no https:// URL as `token_endpoint`"),
            ("authorization_endpoint", "javascript:alert(1)", "`authorization_endpoint`"),
            ("authorization_endpoint", "https://id.example.com/#x", "`authorization_endpoint`"),
        ] {
            let refused = parsed(name, json!(value)).unwrap_err();
            assert!(refused.contains(rule), "{name}: {value}: {refused}");
        }
    }

    #[test]
    fn secret_is_in_the_body_only_if_a_header_is_not_accepted() {
        for (methods, is_in_body) in [
            (json!(null), false),
            (json!(["client_secret_post", "client_secret_basic"]), false),
            (json!(["client_secret_post"]), true),
        ] {
            let found = parsed("token_endpoint_auth_methods_supported", methods);
            assert_eq!(found.unwrap().has_secret_in_body, is_in_body);
        }
    }
}
