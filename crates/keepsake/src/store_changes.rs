//! Follows a store: waits until something changes.

use std::time::Duration;

use keepsake_client::Events;
use keepsake_config::{Failure, FailureClass};

use crate::failures::{class_of, failure_of};
use crate::store_api::StoreApi;

/// How long a side must be quiet before a pass.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// The maximum wait while a side keeps changing.
pub(crate) const MAX_UNQUIET: Duration = Duration::from_secs(2);

/// The stream of a store's changes from now on; `None` if the credential may not follow them.
async fn stream(store: &StoreApi) -> Result<Option<Events>, Failure> {
    let mut changes = store.client.events(&store.path(&["changes", "stream"]), &[], None);
    match changes.open().await {
        Ok(()) => Ok(Some(changes)),
        Err(error) if class_of(&error) == FailureClass::NotAllowed => Ok(None),
        Err(error) => Err(failure_of("the changes of the store cannot be followed")(error)),
    }
}

/// Changes of the store, as its stream tells them.
#[derive(Default)]
pub(crate) struct StoreChanges {
    stream: Option<Events>,
}

impl StoreChanges {
    /// Begins to follow the store, unless it is followed already.
    pub(crate) async fn open(&mut self, store: &StoreApi) -> Result<(), Failure> {
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
