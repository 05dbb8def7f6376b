//! Trusted issuers and the verification of their tokens.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keepsake_core::{Actor, Timestamp};

use crate::TokenError;
use crate::claims::Claims;
use crate::fetched::FetchedDocument;
use crate::http::{check_url, client};
use crate::keys::{KeySet, VerifyingKey};
use crate::openid::{AuthorizationResponse, Challenge, Client, ClientSettings, OpenIdError};
use crate::ring::OWN_ISSUER;
use crate::untrusted::UnverifiedToken;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    Url {
        url: String,
        /// Whether the URL may be `http://` on another machine.
        allow_http: bool,
    },
    /// A file with a public key in PEM or a JWKS; read once.
    File(PathBuf),
}

/// The kind of subjects that an issuer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    User,
    ServiceAccount,
}

#[derive(Debug, Clone)]
pub struct IssuerSettings {
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// The audience that the `aud` of its tokens must contain.
    pub audience: String,
    pub keys: KeySource,
    pub tenant_claim: String,
    pub scopes_claim: String,
    /// The tenants that its tokens may name; `None`: any.
    pub tenants: Option<Vec<String>>,
    pub actor: Subject,
    /// How people sign in to the console at its page; `None`: they do not.
    pub console: Option<ClientSettings>,
}

/// An issuer at whose page people sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInIssuer {
    /// Unique among these issuers.
    pub id: String,
    /// The name that people see.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerProblem {
    /// The issuer's index in the list.
    pub position: usize,
    pub field: &'static str,
    /// A phrase that follows the field.
    pub rule: String,
}

/// The claims of a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The issuer's name for the tenant.
    pub tenant: String,
    /// The actor of its changes.
    pub actor: Actor,
    /// The scopes, including unknown ones.
    pub scopes: Vec<String>,
    /// The token's `exp`. Tokens issued to its holder must not expire later.
    pub expires_at: Timestamp,
    /// The time from which the token is refused: `exp` plus the leeway.
    pub refused_from: Timestamp,
}

#[derive(Debug, Default)]
pub struct Issuers(Vec<Issuer>);

struct Issuer {
    settings: IssuerSettings,
    keys: Keys,
    /// For sign-ins to the console.
    client: Option<Client>,
}

enum Keys {
    /// Those behind a JWKS URL.
    Fetched(FetchedDocument<KeySet>),
    Fixed(KeySet),
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl Issuers {
    /// Checks the settings and reads key files; fetches nothing. Reports all problems, not
    /// only the first.
    pub fn new(settings: Vec<IssuerSettings>) -> Result<Self, Vec<IssuerProblem>> {
        let mut issuers: Vec<Issuer> = Vec::new();
        let mut problems = Vec::new();
        for (position, settings) in settings.into_iter().enumerate() {
            let mut problem = |field, rule: String| {
                problems.push(IssuerProblem { position, field, rule });
            };
            if settings.issuer == OWN_ISSUER {
                problem("issuer", format!("must not be {OWN_ISSUER}, which is the server itself"));
            }
            let is_taken = issuers.iter().any(|other| {
                other.settings.issuer == settings.issuer && other.settings.audience == settings.audience
            });
            if is_taken {
                problem("issuer", "is listed twice with the same audience".to_owned());
            }
            let keys = match &settings.keys {
                KeySource::Url { url, allow_http } => fetched_keys(url, *allow_http)
                    .map(Keys::Fetched)
                    .map_err(|rule| problem("jwks_url", rule)),
                KeySource::File(path) => {
                    read_keys(path).map(Keys::Fixed).map_err(|rule| problem("key_file", rule))
                }
            };
            let allow_http = matches!(settings.keys, KeySource::Url { allow_http: true, .. });
            let client = settings
                .console
                .clone()
                .map(|console| Client::new(console, &settings.issuer, &settings.audience, allow_http))
                .transpose()
                .map_err(|rule| problem("issuer", format!("{rule} (for its `console`)")));
            let (Ok(keys), Ok(client)) = (keys, client) else {
                continue;
            };
            let is_same = |other: &Client| client.as_ref().is_some_and(|client| client.id() == other.id());
            if issuers.iter().filter_map(|other| other.client.as_ref()).any(is_same) {
                problem("console.client_id", "is that of another table of this issuer".to_owned());
            }
            issuers.push(Issuer { settings, keys, client });
        }
        if problems.is_empty() { Ok(Self(issuers)) } else { Err(problems) }
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the issuers, each once, in the order of the configuration.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.0.iter().map(|issuer| &issuer.settings.issuer) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Verifies a token and returns its claims.
    ///
    /// Before the signature is verified, only issuer and audience are read.
    pub async fn verify(&self, token: &UnverifiedToken<'_>, now: Timestamp) -> Result<Identity, TokenError> {
        if token.is_own {
            return Err(TokenError::Type);
        }
        let claims = Claims::of(token)?;
        let issuer = self.issuer_of(&claims)?;
        issuer.key_of(token, now).await?.verify(token)?;
        let expiry = claims.check_times(now)?;
        let settings = &issuer.settings;
        let subject = claims.subject()?.to_owned();
        let tenant = claims.text(&settings.tenant_claim)?.unwrap_or_default();
        if tenant.trim().is_empty() {
            return Err(TokenError::MissingTenant);
        }
        let may_name = |tenants: &Vec<String>| tenants.iter().any(|known| known == tenant);
        if !settings.tenants.as_ref().is_none_or(may_name) {
            return Err(TokenError::ForeignTenant);
        }
        Ok(Identity {
            tenant: tenant.to_owned(),
            actor: match settings.actor {
                Subject::User => Actor::User(subject),
                Subject::ServiceAccount => Actor::ServiceAccount(subject),
            },
            scopes: claims.names(&settings.scopes_claim)?,
            expires_at: expiry.expires_at,
            refused_from: expiry.refused_from,
        })
    }

    /// The issuers at whose page people sign in.
    pub fn for_sign_in(&self) -> Vec<SignInIssuer> {
        let clients = self.0.iter().filter_map(|issuer| issuer.client.as_ref());
        clients.map(|client| SignInIssuer { id: client.id(), name: client.name().to_owned() }).collect()
    }

    /// Fetches the discovery documents of the issuers at whose page people sign
    /// in; returns the position of each, and why the fetch failed.
    pub async fn check_discovery(&self, now: Timestamp) -> Vec<(usize, Result<(), Arc<str>>)> {
        let mut checked = Vec::new();
        for (position, issuer) in self.0.iter().enumerate() {
            if let Some(client) = &issuer.client {
                checked.push((position, client.check(now).await));
            }
        }
        checked
    }

    /// The URL of an issuer's page for one sign-in.
    pub async fn authorization_url(
        &self,
        id: &str,
        challenge: Challenge<'_>,
        now: Timestamp,
    ) -> Result<String, OpenIdError> {
        let (_, client) = self.client(id)?;
        client.authorization_url(challenge, now).await
    }

    /// Redeems the code of a sign-in, verifies the ID token, and returns the token
    /// that is the person's credential: one that names this issuer's audience.
    ///
    /// The credential's signature and other claims are verified at each use.
    pub async fn redeem(
        &self,
        id: &str,
        returned: AuthorizationResponse<'_>,
        challenge: Challenge<'_>,
        now: Timestamp,
    ) -> Result<String, OpenIdError> {
        let (issuer, client) = self.client(id)?;
        let redeemed = client.redeem(returned, challenge.verifier, now).await?;
        let id_token = redeemed.id_token.ok_or(OpenIdError::Incomplete("ID token"))?;
        let claims = issuer.verify_own(&id_token, now).await.map_err(OpenIdError::IdToken)?;
        client.check_id_token(&claims, challenge.nonce, now)?;
        if !client.uses_access_token() {
            return Ok(id_token);
        }
        let access_token = redeemed.access_token;
        let access_token = access_token.ok_or(OpenIdError::Incomplete("access token"))?;
        let claims = issuer.verify_own(&access_token, now).await.map_err(OpenIdError::AccessToken)?;
        if !claims.is_for(&issuer.settings.audience) {
            return Err(OpenIdError::AccessToken(TokenError::Audience));
        }
        Ok(access_token)
    }

    fn client(&self, id: &str) -> Result<(&Issuer, &Client), OpenIdError> {
        let mut clients = self.0.iter().filter_map(|issuer| Some((issuer, issuer.client.as_ref()?)));
        clients.find(|(_, client)| client.id() == id).ok_or(OpenIdError::UnknownClient)
    }

    /// One issuer may be configured for several audiences.
    fn issuer_of(&self, claims: &Claims) -> Result<&Issuer, TokenError> {
        let name = claims.text("iss")?.ok_or(TokenError::Issuer)?;
        let mut of_name = self.0.iter().filter(|issuer| issuer.settings.issuer == name).peekable();
        if of_name.peek().is_none() {
            return Err(TokenError::Issuer);
        }
        of_name.find(|issuer| claims.is_for(&issuer.settings.audience)).ok_or(TokenError::Audience)
    }
}

impl Issuer {
    /// Verifies that a token is signed by this issuer and names it; nothing else.
    async fn verify_own(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let token = UnverifiedToken::parse(token)?;
        if token.is_own {
            return Err(TokenError::Type);
        }
        let claims = Claims::of(&token)?;
        if claims.text("iss")? != Some(&self.settings.issuer) {
            return Err(TokenError::Issuer);
        }
        self.key_of(&token, now).await?.verify(&token)?;
        Ok(claims)
    }

    async fn key_of(&self, token: &UnverifiedToken<'_>, now: Timestamp) -> Result<VerifyingKey, TokenError> {
        let fetched = match &self.keys {
            Keys::Fetched(fetched) => fetched,
            Keys::Fixed(keys) => return keys.key_of(token).cloned(),
        };
        let has_key = |keys: &KeySet| !matches!(keys.key_of(token), Err(TokenError::UnknownKey));
        let known = fetched.get(now, has_key).await;
        let is_unreachable = known.problem.is_some();
        let was_fetched = known.document.is_some();
        match known.document.unwrap_or_default().key_of(token) {
            Err(TokenError::UnknownKey) if is_unreachable => Err(TokenError::KeysUnavailable),
            Err(TokenError::MissingKey) if !was_fetched => Err(TokenError::KeysUnavailable),
            found => found.cloned(),
        }
    }
}

fn fetched_keys(url: &str, allow_http: bool) -> Result<FetchedDocument<KeySet>, String> {
    let danger = "an attacker who replaces the keys in transit can sign any token";
    let url = check_url(url, allow_http, danger)?;
    let parse = |body: &[u8]| KeySet::of_jwks(body).map_err(str::to_owned);
    Ok(FetchedDocument::new("jwks", url, client()?, parse))
}

fn read_keys(path: &Path) -> Result<KeySet, String> {
    let text = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    KeySet::of_file(&text).map_err(str::to_owned)
}
