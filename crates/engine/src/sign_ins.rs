//! Sign-ins of people's browsers: the encrypted cookie of the console.
//!
//! A cookie holds a credential, a random nonce and the time of the sign-in,
//! encrypted with a key that every replica derives from one shared secret. It
//! grants nothing itself: each request is authenticated with the credential.
//!
//! A sign-in at the page of an issuer begins with a cookie of another kind, which
//! holds the random values that the issuer's answer must match.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keepsake_core::{ContentHash, Timestamp};
use keepsake_tokens::{AuthorizationResponse, Challenge, OpenIdError, SECRET_BYTES, SignInIssuer};
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::EngineError;
use crate::shared::service;

pub const SIGN_IN_LIFE: Duration = Duration::from_hours(12);
/// Lifetime of the form that asks for a credential.
const FORM_LIFE: Duration = Duration::from_hours(1);
/// How long a person may take at the page of an issuer.
const AT_ISSUER_LIFE: Duration = Duration::from_mins(10);
/// Maximum bytes of a cookie's value: browsers keep 4,096 bytes with the name
/// and the attributes.
const MAX_COOKIE_BYTES: usize = 3_800;
/// Bytes of the random value that distinguishes sign-ins.
const SIGN_IN_NONCE_BYTES: usize = 16;
/// The first byte of a cookie: the version of its format.
const FORMAT: u8 = 1;

keepsake_core::named_enum! {
    /// The console of a sign-in. A cookie of one audience is unreadable for another.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Audience {
        Tenant = "tenant",
        Operator = "operator",
        /// The form that asks for a credential; no person is signed in yet.
        SignInForm = "sign-in form",
        /// A sign-in that continues at the page of an issuer; no person is signed in yet.
        AtIssuer = "at issuer",
    }
}

impl Audience {
    /// Maximum lifetime of the audience's cookie.
    pub const fn life(self) -> Duration {
        match self {
            Self::Tenant | Self::Operator => SIGN_IN_LIFE,
            Self::SignInForm => FORM_LIFE,
            Self::AtIssuer => AT_ISSUER_LIFE,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct PersonSignIn {
    pub credential: String,
    /// Distinguishes this sign-in from all others.
    nonce: [u8; SIGN_IN_NONCE_BYTES],
    /// When the person signed in.
    pub since: Timestamp,
}

impl fmt::Debug for PersonSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersonSignIn").field("since", &self.since).finish_non_exhaustive()
    }
}

/// A sign-in that continues at the page of an issuer.
#[derive(Clone, Serialize, Deserialize)]
pub struct PendingSignIn {
    issuer_id: String,
    state: String,
    nonce: String,
    verifier: String,
    /// The page to open after the sign-in.
    pub next: String,
}

impl PendingSignIn {
    /// The issuer's id among [`SignIns::issuers`].
    pub fn issuer_id(&self) -> &str {
        &self.issuer_id
    }

    fn challenge(&self) -> Challenge<'_> {
        Challenge { state: &self.state, nonce: &self.nonce, verifier: &self.verifier }
    }
}

impl fmt::Debug for PendingSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSignIn").field("issuer_id", &self.issuer_id).finish_non_exhaustive()
    }
}

/// The page of an issuer, and the cookie that the browser must return with.
#[derive(Clone)]
pub struct IssuerPage {
    pub url: String,
    /// The value of the cookie.
    pub cookie: String,
}

#[derive(Debug, thiserror::Error)]
pub enum IssuerSignInError {
    /// The issuer refused, or its answer is not accepted.
    #[error(transparent)]
    OpenId(#[from] OpenIdError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The keys that are derived from the shared secret.
struct Keys {
    cookies: LessSafeKey,
    forms: hmac::Key,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(***)")
    }
}

service! {
    pub SignIns(shared) {
        /// Read once per process.
        keys: Arc<OnceCell<Keys>> = Arc::default(),
    }
}

impl SignIns {
    /// Starts a sign-in with a credential and returns it with its cookie.
    ///
    /// Each call makes a new nonce, so that no earlier cookie or form is valid for the
    /// sign-in. The credential is not checked here, but one that does not fit into a
    /// cookie is refused.
    pub async fn begin(
        &self,
        audience: Audience,
        credential: &str,
    ) -> Result<(PersonSignIn, String), EngineError> {
        let mut nonce = [0; SIGN_IN_NONCE_BYTES];
        nonce.copy_from_slice(&self.context.ids.secret()[..SIGN_IN_NONCE_BYTES]);
        let signed_in = PersonSignIn { credential: credential.to_owned(), nonce, since: self.context.now() };
        let cookie = self.seal(audience, &signed_in).await?;
        if cookie.len() > MAX_COOKIE_BYTES {
            return Err(EngineError::invalid(
                "credential",
                "is too long for a cookie: sign in with a shorter token or an API key",
            ));
        }
        Ok((signed_in, cookie))
    }

    async fn seal(&self, audience: Audience, signed_in: &PersonSignIn) -> Result<String, EngineError> {
        let keys = self.keys().await?;
        let mut unique = [0; NONCE_LEN];
        unique.copy_from_slice(&self.context.ids.secret()[..NONCE_LEN]);
        let mut sealed = signed_in.since.as_micros().to_be_bytes().to_vec();
        sealed.extend_from_slice(&signed_in.nonce);
        sealed.extend_from_slice(signed_in.credential.as_bytes());
        let nonce = Nonce::assume_unique_for_key(unique);
        keys.cookies
            .seal_in_place_append_tag(nonce, context_of(audience), &mut sealed)
            .map_err(|_| EngineError::Internal("a cookie cannot be sealed"))?;
        let cookie = [&[FORMAT], unique.as_slice(), &sealed].concat();
        Ok(URL_SAFE_NO_PAD.encode(cookie))
    }

    /// `None`: the cookie was changed, is for another audience, or has expired.
    pub async fn open(&self, audience: Audience, cookie: &str) -> Result<Option<PersonSignIn>, EngineError> {
        if cookie.len() > MAX_COOKIE_BYTES {
            return Ok(None);
        }
        let keys = self.keys().await?;
        let opened = unseal(&keys.cookies, audience, cookie);
        let now = self.context.now();
        let is_current = |signed_in: &PersonSignIn| signed_in.since.plus(audience.life()) > now;
        Ok(opened.filter(is_current))
    }

    /// The issuers at whose page people sign in.
    pub fn issuers(&self) -> Vec<SignInIssuer> {
        self.issuers.for_sign_in()
    }

    /// Starts a sign-in at the page of an issuer. A `next` that does not fit into a
    /// cookie is refused.
    pub async fn begin_at_issuer(
        &self,
        issuer_id: &str,
        next: &str,
    ) -> Result<IssuerPage, IssuerSignInError> {
        let random = || URL_SAFE_NO_PAD.encode(self.context.ids.secret());
        let begun = PendingSignIn {
            issuer_id: issuer_id.to_owned(),
            state: random(),
            nonce: random(),
            verifier: random(),
            next: next.to_owned(),
        };
        let now = self.context.now();
        let url = self.issuers.authorization_url(issuer_id, begun.challenge(), now);
        let url = url.await?;
        let text = serde_json::to_string(&begun)
            .map_err(|_| EngineError::Internal("a sign-in at an issuer cannot be written"))?;
        let (_, cookie) = self.begin(Audience::AtIssuer, &text).await?;
        Ok(IssuerPage { url, cookie })
    }

    /// The sign-in that a browser returns from, by its cookie and the `state` in the URL;
    /// `None`: the sign-in did not start here, is too old, or another one began.
    pub async fn open_at_issuer(
        &self,
        cookie: &str,
        state: &str,
    ) -> Result<Option<PendingSignIn>, EngineError> {
        let opened = self.open(Audience::AtIssuer, cookie).await?;
        let begun = opened.and_then(|opened| serde_json::from_str::<PendingSignIn>(&opened.credential).ok());
        let is_same =
            |begun: &PendingSignIn| verify_slices_are_equal(begun.state.as_bytes(), state.as_bytes()).is_ok();
        Ok(begun.filter(is_same))
    }

    /// Redeems the issuer's code and returns the person's credential. A code works once
    /// here, whatever the issuer does.
    pub async fn redeem(
        &self,
        begun: &PendingSignIn,
        returned: AuthorizationResponse<'_>,
    ) -> Result<String, IssuerSignInError> {
        let now = self.context.now();
        let credential = self.issuers.redeem(&begun.issuer_id, returned, begun.challenge(), now).await?;
        // Written after the issuer accepted the code, so that only the issuer's people
        // can add rows.
        let code = format!("{}\n{}", begun.issuer_id, returned.code);
        let hash = ContentHash::of(code.as_bytes());
        let codes = &self.context.index.redeemed_codes;
        let is_first = codes.add(hash.as_bytes(), now).await.map_err(EngineError::from)?;
        if is_first { Ok(credential) } else { Err(OpenIdError::UsedCode.into()) }
    }

    /// The token that every form of a sign-in carries.
    pub async fn form_token(
        &self,
        audience: Audience,
        signed_in: &PersonSignIn,
    ) -> Result<String, EngineError> {
        let keys = self.keys().await?;
        Ok(token_of(&keys.forms, audience, &signed_in.nonce))
    }

    /// Whether a token belongs to the forms of any sign-in of this audience, which may
    /// have ended. The token grants nothing.
    pub async fn is_form_token(&self, audience: Audience, token: &str) -> Result<bool, EngineError> {
        let keys = self.keys().await?;
        let decoded = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        let expected = decoded.first_chunk().map(|nonce| token_of(&keys.forms, audience, nonce));
        let is_same =
            |expected: &String| verify_slices_are_equal(expected.as_bytes(), token.as_bytes()).is_ok();
        Ok(expected.as_ref().is_some_and(is_same))
    }

    async fn keys(&self) -> Result<&Keys, EngineError> {
        let make = async || {
            let secret = self.context.secrets.shared("console").await?;
            let root = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
            let derived = |purpose: &[u8]| hmac::sign(&root, purpose);
            let cookies = UnboundKey::new(&AES_256_GCM, &derived(b"cookies").as_ref()[..SECRET_BYTES]);
            Ok(Keys {
                cookies: LessSafeKey::new(
                    cookies.map_err(|_| EngineError::Internal("a key for cookies cannot be made"))?,
                ),
                forms: hmac::Key::new(hmac::HMAC_SHA256, derived(b"forms").as_ref()),
            })
        };
        self.keys.get_or_try_init(make).await
    }

    /// Creates or reads the shared secret.
    pub(crate) async fn prepare(&self) -> Result<(), EngineError> {
        self.keys().await.map(drop)
    }
}

fn unseal(key: &LessSafeKey, audience: Audience, cookie: &str) -> Option<PersonSignIn> {
    let bytes = URL_SAFE_NO_PAD.decode(cookie).ok()?;
    let rest = bytes.strip_prefix(&[FORMAT])?;
    let (unique, sealed) = rest.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(unique).ok()?;
    let mut sealed = sealed.to_vec();
    let opened = key.open_in_place(nonce, context_of(audience), &mut sealed).ok()?;
    let (since, rest) = opened.split_first_chunk()?;
    let (nonce, credential) = rest.split_first_chunk()?;
    Some(PersonSignIn {
        credential: str::from_utf8(credential).ok()?.to_owned(),
        nonce: *nonce,
        since: Timestamp::from_micros(i64::from_be_bytes(*since)),
    })
}

/// The token of the forms of a sign-in: its nonce, authenticated.
fn token_of(key: &hmac::Key, audience: Audience, nonce: &[u8; SIGN_IN_NONCE_BYTES]) -> String {
    let tag = hmac::sign(key, &[audience.name().as_bytes(), nonce.as_slice()].concat());
    URL_SAFE_NO_PAD.encode([nonce.as_slice(), tag.as_ref()].concat())
}

/// The associated data of a cookie, so that the cookie is valid for one audience.
fn context_of(audience: Audience) -> Aad<Vec<u8>> {
    Aad::from(format!("keepsake console cookie\0{}", audience.name()).into_bytes())
}
