//! A cache of a document behind a URL of an issuer.
//!
//! A document older than [`FRESH_FOR`] is refreshed in the background of the
//! requests that use it. A document without what a request needs, such as a key, also
//! causes a fetch, but only one in [`COOL_DOWN`], whatever key ids tokens make up. If a
//! fetch fails, the cached document stays valid, so that an outage of the issuer
//! does not lock out its users. A successful fetch replaces the document.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Timestamp;
use parking_lot::RwLock;
use reqwest::{Client, StatusCode, Url};
use tokio::sync::OwnedMutexGuard;

use crate::http::{body_of, without_url};

/// The age from which a document is refreshed at its next use.
const FRESH_FOR: Duration = Duration::from_mins(10);
/// Minimum time between two fetches.
const COOL_DOWN: Duration = Duration::from_mins(1);

/// Reads a document; the error is a phrase that follows "its answer".
type Parse<T> = dyn Fn(&[u8]) -> Result<T, String> + Send + Sync;

/// The document of one URL; clones share it.
pub(crate) struct FetchedDocument<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// Its name in the log.
    what: &'static str,
    url: Url,
    client: Client,
    parse: Box<Parse<T>>,
    known: RwLock<FetchState<Arc<T>>>,
    /// Held by the running fetch.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

/// The result of the fetches so far.
#[derive(Clone)]
pub(crate) struct FetchState<D> {
    pub(crate) document: Option<D>,
    /// Why the last finished fetch failed.
    pub(crate) problem: Option<Arc<str>>,
    fetched_at: Option<Timestamp>,
    /// The start of the last fetch, failed or not.
    tried_at: Option<Timestamp>,
}

impl<T> Clone for FetchedDocument<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for FetchedDocument<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FetchedDocument").field(&self.0.what).finish_non_exhaustive()
    }
}

impl<D> FetchState<D> {
    fn may_fetch(&self, now: Timestamp) -> bool {
        is_over(self.tried_at, COOL_DOWN, now)
    }
}

/// Whether a period is over; it is if the clock was set back before its start.
fn is_over(since: Option<Timestamp>, period: Duration, now: Timestamp) -> bool {
    since.is_none_or(|since| now >= since.plus(period) || now < since)
}

impl<T: Send + Sync + 'static> FetchedDocument<T> {
    pub(crate) fn new(
        what: &'static str,
        url: Url,
        client: Client,
        parse: impl Fn(&[u8]) -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let problem = Some("it was not fetched yet".into());
        let known = FetchState { document: None, problem, fetched_at: None, tried_at: None };
        Self(Arc::new(Shared {
            what,
            url,
            client,
            parse: Box::new(parse),
            known: RwLock::new(known),
            fetching: Arc::default(),
        }))
    }

    /// The cached document if it suffices, else the result of a new fetch, unless
    /// the last one was a moment ago.
    pub(crate) async fn get(&self, now: Timestamp, suffices: impl Fn(&T) -> bool) -> FetchState<Arc<T>> {
        let known = self.known();
        if known.document.as_deref().is_some_and(suffices) {
            self.refresh_if_old(&known, now);
            return known;
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
        self.known()
    }

    fn known(&self) -> FetchState<Arc<T>> {
        self.0.known.read().clone()
    }

    fn change(&self, change: impl FnOnce(&mut FetchState<Arc<T>>)) {
        change(&mut self.0.known.write());
    }

    fn refresh_if_old(&self, known: &FetchState<Arc<T>>, now: Timestamp) {
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
        let fetched = self.read().await;
        if let Err(why) = &fetched {
            // Without the URL, which may contain private data.
            tracing::warn!(
                issuer.host = self.0.url.host_str(),
                "token.{} cannot be fetched: {why}",
                self.0.what
            );
        }
        self.change(|known| match fetched {
            Ok(document) => {
                known.document = Some(Arc::new(document));
                known.problem = None;
                known.fetched_at = Some(now);
            }
            Err(why) => known.problem = Some(why.into()),
        });
        drop(fetching);
    }

    async fn read(&self) -> Result<T, String> {
        let request = self.0.client.get(self.0.url.clone());
        let response = request.send().await.map_err(without_url)?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status().as_u16()));
        }
        let body = body_of(response).await?;
        (self.0.parse)(&body).map_err(|what| format!("its answer {what}"))
    }
}
