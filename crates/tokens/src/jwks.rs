//! Keys behind a JWKS URL: cached, and fetched seldom, whoever asks.
//!
//! A key that is there costs nothing; keys older than [`FRESH_FOR`] are fetched
//! anew behind the requests that use them. A key that is not there is a reason
//! to fetch, once in [`COOL_DOWN`]: whatever is made up meanwhile is refused
//! without a fetch. Where a fetch fails the keys before it stay, for as long as
//! it fails: an issuer that is down must not shut its users out. A fetch that
//! succeeds replaces them all.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use keepsake_core::Timestamp;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use tokio::sync::OwnedMutexGuard;

use crate::TokenError;
use crate::keys::{KeySet, VerifyingKey};
use crate::untrusted::Untrusted;

/// The age from which keys are fetched anew at their next use.
const FRESH_FOR: Duration = Duration::from_mins(10);
/// The time from one fetch to the next, at least.
const COOL_DOWN: Duration = Duration::from_mins(1);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a fetch may take in all.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer, at most.
const MAX_BODY_BYTES: usize = 256 << 10;

/// The keys of one URL; cheap to clone, and then the same.
#[derive(Clone)]
pub(crate) struct Jwks(Arc<Shared>);

struct Shared {
    url: Url,
    client: Client,
    known: RwLock<Known>,
    /// Held by the one fetch that is under way.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<KeySet>,
    fetched_at: Option<Timestamp>,
    /// When a fetch was begun last, however it ended.
    tried_at: Option<Timestamp>,
    /// Whether the last fetch that ended brought keys.
    is_reachable: bool,
}

impl fmt::Debug for Jwks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwks").finish_non_exhaustive()
    }
}

impl Known {
    fn may_fetch(&self, now: Timestamp) -> bool {
        is_over(self.tried_at, COOL_DOWN, now)
    }
}

/// Whether a period is over; a clock that was set back begins it anew.
fn is_over(since: Option<Timestamp>, period: Duration, now: Timestamp) -> bool {
    since.is_none_or(|since| now >= since.plus(period) || now < since)
}

impl Jwks {
    /// Keys of a URL that are not fetched yet.
    ///
    /// # Errors
    /// What the URL must be.
    pub(crate) fn new(url: &str, allow_http: bool) -> Result<Self, String> {
        let url = check_url(url, allow_http)?;
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(FETCH_TIMEOUT)
            // One that leads elsewhere would take the choice of host, and of
            // https, from the configuration.
            .redirect(Policy::none())
            .user_agent("keepsake")
            .build()
            .map_err(|error| format!("cannot be fetched from: {error}"))?;
        Ok(Self(Arc::new(Shared {
            url,
            client,
            known: RwLock::default(),
            fetching: Arc::default(),
        })))
    }

    /// The key that a token names.
    ///
    /// # Errors
    /// [`TokenError::KeysUnavailable`] where it may be one that cannot be
    /// fetched now, else as [`KeySet::key_of`].
    pub(crate) async fn key_of(
        &self,
        token: &Untrusted<'_>,
        now: Timestamp,
    ) -> Result<VerifyingKey, TokenError> {
        let known = self.known();
        if known.fetched_at.is_some() {
            match known.keys.key_of(token) {
                Err(TokenError::UnknownKey) => {}
                found => {
                    self.refresh_if_old(&known, now);
                    return found.cloned();
                }
            }
        }
        // Free where no fetch is under way; else whoever waits for another's finds
        // what it brought.
        let fetching = Arc::clone(&self.0.fetching).lock_owned().await;
        if self.known().may_fetch(now) {
            // In a task of its own: a client that goes away must not cost the
            // others the one fetch of this minute.
            let shared = self.clone();
            let fetched = tokio::spawn(async move { shared.fetch(fetching, now).await });
            // One that panicked has brought nothing.
            let _ = fetched.await;
        } else {
            drop(fetching);
        }
        let known = self.known();
        match known.keys.key_of(token) {
            Err(TokenError::UnknownKey | TokenError::MissingKey) if !known.is_reachable => {
                Err(TokenError::KeysUnavailable)
            }
            found => found.cloned(),
        }
    }

    fn known(&self) -> Known {
        self.0
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn refresh_if_old(&self, known: &Known, now: Timestamp) {
        if !is_over(known.fetched_at, FRESH_FOR, now) || !known.may_fetch(now) {
            return;
        }
        if let Ok(fetching) = Arc::clone(&self.0.fetching).try_lock_owned() {
            let shared = self.clone();
            tokio::spawn(async move { shared.fetch(fetching, now).await });
        }
    }

    async fn fetch(&self, fetching: OwnedMutexGuard<()>, now: Timestamp) {
        self.change(|known| known.tried_at = Some(now));
        let fetched = self.get().await;
        if let Err(why) = &fetched {
            // Not the URL: it may hold what is nobody's business.
            tracing::warn!(
                jwks.host = self.0.url.host_str(),
                "token.jwks cannot be fetched: {why}"
            );
        }
        self.change(|known| {
            known.is_reachable = fetched.is_ok();
            if let Ok(keys) = fetched {
                known.keys = Arc::new(keys);
                known.fetched_at = Some(now);
            }
        });
        drop(fetching);
    }

    async fn get(&self) -> Result<KeySet, String> {
        let told = |error: reqwest::Error| error.without_url().to_string();
        let mut response = self.0.client.get(self.0.url.clone()).send().await.map_err(told)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(format!("its answer is longer than {MAX_BODY_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        KeySet::of_jwks(&body).map_err(|what| format!("its answer {what}"))
    }
}

fn check_url(text: &str, allow_http: bool) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|_| "must be an https:// URL".to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold credentials".to_owned());
    }
    let is_loopback = match url.host_str() {
        None => return Err("must be an https:// URL".to_owned()),
        Some(host) => {
            let address = host.trim_start_matches('[').trim_end_matches(']');
            host == "localhost"
                || address
                    .parse()
                    .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
    };
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback || allow_http => Ok(url),
        "http" => Err(
            "must be an https:// URL: whoever changes keys on their way can sign as anybody; \
             allow_http = true takes http:// in a network that nobody else is in"
                .to_owned(),
        ),
        _ => Err("must be an https:// URL".to_owned()),
    }
}
