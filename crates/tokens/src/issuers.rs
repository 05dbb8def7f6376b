//! Issuers of tokens that the operator trusts, and what their tokens say.

use std::fmt;
use std::path::{Path, PathBuf};

use keepsake_core::{Actor, Timestamp};

use crate::TokenError;
use crate::claims::Claims;
use crate::jwks::Jwks;
use crate::keys::{KeySet, VerifyingKey};
use crate::ring::OWN_ISSUER;
use crate::untrusted::Untrusted;

/// Where the public keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// Behind a URL, as a JWKS.
    Url {
        /// The URL.
        url: String,
        /// Whether it may be `http://` on another machine.
        allow_http: bool,
    },
    /// In a file: a public key in PEM, or a JWKS; read once.
    File(PathBuf),
}

/// What the subjects of an issuer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// People.
    User,
    /// Workloads.
    ServiceAccount,
}

/// An issuer as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The `iss` of its tokens, letter for letter.
    pub issuer: String,
    /// What must be among their `aud`.
    pub audience: String,
    /// Where its public keys are.
    pub keys: KeySource,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// The claim that names scopes.
    pub scopes_claim: String,
    /// The only tenants that it may name, as it names them; `None`: any.
    pub tenants: Option<Vec<String>>,
    /// What its subjects are.
    pub actor: Subject,
}

/// What is wrong with one issuer of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerProblem {
    /// Its place in the list.
    pub position: usize,
    /// The field.
    pub field: &'static str,
    /// What it must be, as a phrase that follows the field.
    pub rule: String,
}

/// What a verified token says of who sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How the issuer names the tenant.
    pub tenant: String,
    /// Who its changes are attributed to.
    pub actor: Actor,
    /// The scopes, known ones or not.
    pub scopes: Vec<String>,
    /// The token's `exp`: nothing issued to its holder may end later.
    pub expires_at: Timestamp,
    /// From when on the token is refused, which is some leeway later.
    pub refused_from: Timestamp,
}

/// The issuers that are trusted.
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
    /// Everything that is wrong.
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
                problem("issuer", "is there twice with the same audience".to_owned());
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

    /// Whether no issuer is trusted.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a token and answers what it says.
    ///
    /// Looks at nothing of what it says, but for who issued it to whom, before
    /// its signature has been verified.
    ///
    /// # Errors
    /// [`TokenError`], of which [`TokenError::is_transient`] tells those that
    /// say nothing of the token.
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
