//! Trusted issuers and the verification of their tokens.

use std::fmt;
use std::path::{Path, PathBuf};

use keepsake_core::{Actor, Timestamp};

use crate::TokenError;
use crate::claims::Claims;
use crate::jwks::Jwks;
use crate::keys::{KeySet, VerifyingKey};
use crate::ring::OWN_ISSUER;
use crate::untrusted::Untrusted;

/// The source of an issuer's public keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A JWKS URL.
    Url {
        /// The URL.
        url: String,
        /// Whether it may be `http://` on another machine.
        allow_http: bool,
    },
    /// A file with a public key in PEM or a JWKS; read once.
    File(PathBuf),
}

/// The kind of subjects that an issuer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// People.
    User,
    /// Workloads.
    ServiceAccount,
}

/// The configuration of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The exact `iss` of its tokens.
    pub issuer: String,
    /// The audience that the `aud` of its tokens must contain.
    pub audience: String,
    /// The source of its public keys.
    pub keys: KeySource,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that names scopes.
    pub scopes_claim: String,
    /// The tenants that its tokens may name; `None`: any.
    pub tenants: Option<Vec<String>>,
    /// The kind of its subjects.
    pub actor: Subject,
}

/// A problem of one issuer in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerProblem {
    /// The issuer's index in the list.
    pub position: usize,
    /// The field.
    pub field: &'static str,
    /// The rule that it breaks, as a phrase that follows the field.
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

/// The trusted issuers.
#[derive(Debug, Default)]
pub struct Issuers(Vec<Issuer>);

struct Issuer {
    settings: IssuerSettings,
    keys: Keys,
}

enum Keys {
    Fetched(Jwks),
    Fixed(KeySet),
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl Issuers {
    /// Checks the settings and reads key files; fetches nothing.
    ///
    /// # Errors
    /// All problems of the settings.
    pub fn new(settings: Vec<IssuerSettings>) -> Result<Self, Vec<IssuerProblem>> {
        let mut issuers: Vec<Issuer> = Vec::new();
        let mut problems = Vec::new();
        for (position, settings) in settings.into_iter().enumerate() {
            let mut problem = |field, rule: String| {
                problems.push(IssuerProblem {
                    position,
                    field,
                    rule,
                });
            };
            if settings.issuer == OWN_ISSUER {
                problem(
                    "issuer",
                    format!("must not be {OWN_ISSUER}, which is the server itself"),
                );
            }
            let is_taken = issuers.iter().any(|other| {
                other.settings.issuer == settings.issuer && other.settings.audience == settings.audience
            });
            if is_taken {
                problem("issuer", "is listed twice with the same audience".to_owned());
            }
            let keys = match &settings.keys {
                KeySource::Url { url, allow_http } => Jwks::new(url, *allow_http)
                    .map(Keys::Fetched)
                    .map_err(|rule| problem("jwks_url", rule)),
                KeySource::File(path) => read_keys(path)
                    .map(Keys::Fixed)
                    .map_err(|rule| problem("key_file", rule)),
            };
            if let Ok(keys) = keys {
                issuers.push(Issuer { settings, keys });
            }
        }
        if problems.is_empty() {
            Ok(Self(issuers))
        } else {
            Err(problems)
        }
    }

    /// Whether there is no trusted issuer.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the issuers, each once.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .0
            .iter()
            .map(|issuer| issuer.settings.issuer.clone())
            .collect();
        names.dedup();
        names
    }

    /// Verifies a token and returns its claims.
    ///
    /// Before the signature is verified, only issuer and audience are read.
    ///
    /// # Errors
    /// [`TokenError`]; if [`TokenError::is_transient`], the token may be valid.
    pub async fn verify(&self, token: &Untrusted<'_>, now: Timestamp) -> Result<Identity, TokenError> {
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

    /// One issuer may be configured for several audiences.
    fn issuer_of(&self, claims: &Claims) -> Result<&Issuer, TokenError> {
        let name = claims.text("iss")?.ok_or(TokenError::Issuer)?;
        let mut of_name = self
            .0
            .iter()
            .filter(|issuer| issuer.settings.issuer == name)
            .peekable();
        if of_name.peek().is_none() {
            return Err(TokenError::Issuer);
        }
        of_name
            .find(|issuer| claims.is_for(&issuer.settings.audience))
            .ok_or(TokenError::Audience)
    }
}

impl Issuer {
    async fn key_of(&self, token: &Untrusted<'_>, now: Timestamp) -> Result<VerifyingKey, TokenError> {
        match &self.keys {
            Keys::Fetched(jwks) => jwks.key_of(token, now).await,
            Keys::Fixed(keys) => keys.key_of(token).cloned(),
        }
    }
}

fn read_keys(path: &Path) -> Result<KeySet, String> {
    let text = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    KeySet::of_file(&text).map_err(str::to_owned)
}
