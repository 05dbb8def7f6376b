//! A cache of the keys behind a JWKS URL.
//!
//! Keys older than [`FRESH_FOR`] are refreshed in the background of the requests
//! that use them. An unknown key also causes a fetch, at most one in
//! [`COOL_DOWN`], so that made-up key ids do not cause fetches. If a fetch fails,
//! the cached keys stay valid, so that an outage of the issuer does not lock out
//! its users. A successful fetch replaces all keys.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use keepsake_core::{Timestamp, causes};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use tokio::sync::OwnedMutexGuard;

use crate::TokenError;
use crate::keys::{KeySet, VerifyingKey};
use crate::untrusted::Untrusted;

/// The age from which keys are refreshed at their next use.
const FRESH_FOR: Duration = Duration::from_mins(10);
/// Minimum time between two fetches.
const COOL_DOWN: Duration = Duration::from_mins(1);
/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response.
const MAX_BODY_BYTES: usize = 256 << 10;

/// The keys of one URL; clones share them.
#[derive(Clone)]
pub(crate) struct Jwks(Arc<Shared>);

struct Shared {
    url: Url,
    client: Client,
    known: RwLock<Known>,
    /// Held by the running fetch.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<KeySet>,
    fetched_at: Option<Timestamp>,
    /// The start of the last fetch, failed or not.
    tried_at: Option<Timestamp>,
    /// Whether the last finished fetch succeeded.
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

/// Whether a period is over; it is if the clock was set back before its start.
fn is_over(since: Option<Timestamp>, period: Duration, now: Timestamp) -> bool {
    since.is_none_or(|since| now >= since.plus(period) || now < since)
}

impl Jwks {
    /// An empty cache for a URL.
    ///
    /// # Errors
    /// The rule that the URL breaks.
    pub(crate) fn new(url: &str, allow_http: bool) -> Result<Self, String> {
        let url = check_url(url, allow_http)?;
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(FETCH_TIMEOUT)
            // A redirect could leave the configured host and https.
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
    /// [`TokenError::KeysUnavailable`] if the key may exist and cannot be fetched
    /// now, otherwise as [`KeySet::key_of`].
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
        // Waits for a running fetch, and then finds its result.
        let fetching = Arc::clone(&self.0.fetching).lock_owned().await;
        if self.known().may_fetch(now) {
            // In another task: a cancelled request must not cancel the fetch, which is
            // the only one for this minute.
            let shared = self.clone();
            let fetched = tokio::spawn(async move { shared.fetch(fetching, now).await });
            // A fetch that panicked has no result.
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
            // Without the URL, which may contain private data.
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
        let without_url = |error: reqwest::Error| causes(&error.without_url());
        let mut response = self
            .0
            .client
            .get(self.0.url.clone())
            .send()
            .await
            .map_err(without_url)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(without_url)? {
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
            "must be an https:// URL: an attacker who replaces the keys in transit can sign any token; \
             allow_http = true accepts http:// in a private network"
                .to_owned(),
        ),
        _ => Err("must be an https:// URL".to_owned()),
    }
}
