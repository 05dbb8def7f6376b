//! Server-sent events, continued after a break.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;
use sse_stream::{Sse, SseStream};

use crate::answer::{EventLength, MAX_ANSWER_BYTES, from_json};
use crate::backoff::Backoff;
use crate::error::Refusal;
use crate::{Client, ClientError, Result};

/// The longest time without a byte: the server sends a comment every 15 seconds.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);
/// The server continues after the event with this id.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    pub name: String,
    pub data: Value,
}

type Connection = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

/// A stream of events that continues after the last event when the connection breaks.
pub struct Events {
    client: Client,
    url: Url,
    last_id: Option<String>,
    current: Option<Connection>,
    backoff: Backoff,
}

impl Events {
    pub(crate) fn new(client: Client, url: Url, last_id: Option<String>) -> Self {
        Self { client, url, last_id, current: None, backoff: Backoff::new() }
    }

    /// Connects, so that no later event is missed.
    pub async fn open(&mut self) -> Result<()> {
        while self.current.is_none() {
            self.connect().await?;
        }
        Ok(())
    }

    /// Waits for the next event; connects again if the connection breaks. Fails only if
    /// the server refuses or ends the stream, sends an event that is too long, or cannot
    /// be reached until the attempts end.
    pub async fn next(&mut self) -> Result<StreamEvent> {
        loop {
            let Some(current) = &mut self.current else {
                self.open().await?;
                continue;
            };
            let event = match current.next().await {
                Some(Ok(event)) => event,
                ended => {
                    self.current = None;
                    if let Some(Err(error)) = ended
                        && let Some(error) = permanent(error)
                    {
                        return Err(error);
                    }
                    // The server answered before, so another attempt is worth it.
                    self.backoff.wait(None).await;
                    continue;
                }
            };
            if event.id.is_some() {
                self.last_id = event.id;
            }
            let (Some(name), Some(text)) = (event.event, event.data) else {
                continue;
            };
            let data = from_json(text.as_bytes()).unwrap_or(Value::String(text));
            if name != "error" {
                return Ok(StreamEvent { name, data });
            }
            self.current = None;
            let error = Refusal::of_event(&data);
            self.backoff.wait_after(ClientError::Refused(error)).await?;
        }
    }

    async fn connect(&mut self) -> Result<()> {
        match self.response().await {
            Ok(response) => {
                self.backoff = Backoff::new();
                self.current = Some(Box::pin(SseStream::from_bytes_stream(parts(response))));
                Ok(())
            }
            Err(error) => self.backoff.wait_after(error).await,
        }
    }

    async fn response(&self) -> Result<Response> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        if let Some(id) = self.last_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        self.client.open(self.url.clone(), headers, SILENCE_LIMIT).await
    }
}

/// The parts of a body. The stream ends if the server is silent for too long.
fn parts(response: Response) -> impl Stream<Item = Result<bytes::Bytes>> {
    let start = (response, EventLength::default());
    stream::unfold(start, |(mut response, mut length)| async move {
        let part = tokio::time::timeout(SILENCE_LIMIT, response.chunk()).await;
        let part = match part.ok()?.transpose()? {
            Ok(part) => match length.add(&part, MAX_ANSWER_BYTES) {
                Ok(()) => Ok(part),
                Err(error) => Err(ClientError::unreadable(response.url(), response.status(), &error)),
            },
            Err(error) => {
                let server = response.url().origin().ascii_serialization();
                Err(ClientError::unreachable(server, &error))
            }
        };
        Some((part, (response, length)))
    })
}

/// The error of a stream, if another attempt would fail in the same way: an event is too long.
fn permanent(error: sse_stream::Error) -> Option<ClientError> {
    let sse_stream::Error::Body(error) = error else {
        return None;
    };
    let error = error.downcast::<ClientError>().ok()?;
    (!error.is_transient()).then_some(*error)
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("path", &self.url.path()).finish_non_exhaustive()
    }
}
