//! Follows a store: waits until something changes.

use std::time::Duration;

use keepsake_client::Events;
use keepsake_config::{FailureClass, cli::Result};

use crate::failures::{class_of, failure_of};
use crate::output::notice;
use crate::store_api::StoreApi;

/// How long a side must be quiet before a pass.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// The maximum wait while a side keeps changing.
pub(crate) const MAX_UNQUIET: Duration = Duration::from_secs(2);
/// The interval of passes without a change: some file systems report none, and the target of a copy
/// may have been changed.
pub(crate) const SAFETY_INTERVAL: Duration = Duration::from_mins(1);
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The stream of a store's changes from now on; `None` if the credential may not follow them.
async fn stream(store: &StoreApi) -> Result<Option<Events>> {
    let mut changes = store.client.events(&store.path(&["changes", "stream"]), &[], None);
    match changes.open().await {
        Ok(()) => Ok(Some(changes)),
        Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
        Err(error) => Err(failure_of("the changes of the store cannot be followed")(error)),
    }
}

/// The problem that the last pass had, which a command waits out.
pub(crate) struct LastProblem {
    /// Empty: the pass was done.
    text: String,
    backoff: Duration,
}

impl LastProblem {
    pub(crate) const fn none() -> Self {
        Self { text: String::new(), backoff: FIRST_BACKOFF }
    }

    /// Notes and tells how a pass ended, unless the one before ended so, too: with a problem, or
    /// `done_again`.
    pub(crate) fn note(&mut self, problem: Result<(), String>, done_again: &str) {
        let text = problem.err().unwrap_or_default();
        if text.is_empty() {
            self.backoff = FIRST_BACKOFF;
        }
        if text != self.text {
            let trying_again = format!("{text}; trying again");
            notice(if text.is_empty() { done_again } else { &trying_again });
        }
        self.text = text;
    }

    pub(crate) fn is_some(&self) -> bool {
        !self.text.is_empty()
    }

    /// Waits before the next attempt, longer each time.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.backoff).await;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }
}

/// Changes of the store, as its stream tells them.
#[derive(Default)]
pub(crate) struct StoreChanges {
    stream: Option<Events>,
}

impl StoreChanges {
    /// Begins to follow the store, unless it is followed already.
    pub(crate) async fn open(&mut self, store: &StoreApi) -> Result<()> {
        if self.stream.is_none() {
            self.stream = stream(store).await?;
        }
        Ok(())
    }

    /// Whether a stream tells the changes.
    pub(crate) const fn are_told(&self) -> bool {
        self.stream.is_some()
    }

    /// Waits for a change, and until the changes pause; without a stream, for some time. A failure
    /// is left to the pass.
    pub(crate) async fn next(&mut self, interval: Duration) {
        let Some(stream) = &mut self.stream else {
            tokio::time::sleep(interval).await;
            return;
        };
        if stream.next().await.is_err() {
            self.stream = None;
            return;
        }
        let quiet = async { while let Ok(Ok(_)) = tokio::time::timeout(QUIET, stream.next()).await {} };
        let _ = tokio::time::timeout(MAX_UNQUIET, quiet).await;
    }
}
