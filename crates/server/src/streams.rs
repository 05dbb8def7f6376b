//! Server-sent events for readers that follow changes or a session.
//!
//! A stream checks its credential each second. It ends with the credential, the process or the
//! followed object. A share of readers bounds it, and it holds no share of running requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use keepsake_engine::{Engine, EngineError, Principal};
use serde_json::json;

use crate::admission::UnsharedAnswer;
use crate::auth::{AUTHENTICATION_TTL, LastingCredential};
use crate::envelope::SharedProcess;
use crate::error::ApiError;

/// Comments are sent while nothing happens: proxies close idle connections.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Header with the id of the last event that the client received.
const LAST_EVENT_ID: &str = "last-event-id";

/// Events that were read; each is written when the client takes it.
pub(crate) type ReadyEvents = Box<dyn Iterator<Item = Event> + Send>;

pub(crate) trait Source: Send + 'static {
    /// Reads the events since the last call. `None`: there are none.
    fn read(
        &mut self,
        engine: &Engine,
        principal: &Arc<Principal>,
    ) -> impl Future<Output = Result<Option<ReadyEvents>, EngineError>> + Send;

    /// Waits until there may be new events.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// The parts of a request that its stream needs.
pub(crate) struct Subscription {
    /// As the client sent it; unchecked.
    pub(crate) last_event_id: Option<String>,
    credential: LastingCredential,
    serving: SharedProcess,
}

impl<S: Send + Sync> FromRequestParts<S> for Subscription {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let serving = Extension::<SharedProcess>::from_request_parts(parts, state).await;
        let Extension(serving) = serving.map_err(|_| ApiError::internal())?;
        let Ok(credential) = LastingCredential::from_request_parts(parts, state).await;
        Ok(Self {
            // Some clients send an empty header at first.
            last_event_id: parts
                .headers
                .get(LAST_EVENT_ID)
                .filter(|value| !value.is_empty())
                .map(|value| value.to_str().unwrap_or_default().to_owned()),
            credential,
            serving,
        })
    }
}

impl Subscription {
    /// Parses the id of the event after which the client continues; 400 if `parse` refuses it.
    pub(crate) fn place<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, ApiError> {
        let Some(text) = &self.last_event_id else {
            return Ok(None);
        };
        let refusal = || {
            ApiError::invalid_request(format!("`{LAST_EVENT_ID}` must be the id of an event of this stream"))
        };
        parse(text).map(Some).ok_or_else(refusal)
    }

    /// Sends the events of a source until the stream ends.
    pub(crate) fn answer(self, engine: Engine, source: impl Source) -> Response {
        let reader = Reader {
            engine,
            request: self,
            source,
            ready: Box::new(std::iter::empty()),
            is_news: true,
            has_ended: false,
        };
        let events = futures::stream::unfold(reader, |mut reader| async move {
            let event = reader.next().await?;
            Some((Ok::<_, Infallible>(event), reader))
        });
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
        let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
        response.extensions_mut().insert(UnsharedAnswer);
        // Otherwise a proxy may keep events back until its buffer is full.
        let unbuffered = HeaderValue::from_static("no");
        response.headers_mut().insert("x-accel-buffering", unbuffered);
        response
    }
}

struct Reader<S> {
    engine: Engine,
    request: Subscription,
    source: S,
    ready: ReadyEvents,
    is_news: bool,
    has_ended: bool,
}

impl<S: Source> Reader<S> {
    /// `None`: the stream ends.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.has_ended || self.request.serving.lifecycle.draining.is_cancelled() {
                return None;
            }
            if let Some(event) = self.ready.next() {
                return Some(event);
            }
            match self.read().await {
                Ok(Some(ready)) => self.ready = ready,
                Ok(None) => {
                    self.is_news = false;
                    tokio::select! {
                        () = self.source.changed() => self.is_news = true,
                        () = tokio::time::sleep(AUTHENTICATION_TTL) => {}
                        () = self.request.serving.lifecycle.draining.cancelled() => return None,
                    }
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(last_event(&error));
                }
            }
        }
    }

    async fn read(&mut self) -> Result<Option<ReadyEvents>, ApiError> {
        let principal = self.request.credential.authenticate(&self.engine).await?;
        if !self.is_news {
            return Ok(None);
        }
        Ok(self.source.read(&self.engine, &principal).await?)
    }
}

/// The last event says why the stream ends.
fn last_event(error: &ApiError) -> Event {
    let body = json!({"type": "error", "error": error.object()});
    Event::default().event("error").data(body.to_string())
}
