//! Whether both stores can be reached.

use std::time::Duration;

use keepsake_core::Timestamp;
use tokio::sync::Mutex;

use crate::Engine;

/// How long an answer is good. Who asks needs no credential, so asking must
/// not cost more the more often it is done.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Whether the engine can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// The index answers, its schema is new enough, and the other replicas hear
    /// of this one; without it, no service.
    pub has_index: bool,
    /// The blob store answers; without it, cached content is still served.
    pub has_blobs: bool,
}

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Last(Mutex<Option<(Timestamp, Readiness)>>);

impl Engine {
    /// Asks both stores whether they can serve, once a second at most.
    pub async fn readiness(&self) -> Readiness {
        // Held meanwhile: all who ask wait for one answer.
        let mut last = self.0.readiness.0.lock().await;
        let now = self.now();
        if let Some((asked_at, readiness)) = *last
            && asked_at <= now
            && now < asked_at.plus(GOOD_FOR)
        {
            return readiness;
        }
        let (index, blobs) = tokio::join!(
            async {
                let index = self.0.index.check().await;
                if index.is_ok() {
                    self.end_cut_off().await;
                }
                index
            },
            self.0.blobs.check()
        );
        if let Err(error) = &index {
            tracing::warn!(error = %error, "engine.readiness: the index cannot serve");
        }
        if let Err(error) = &blobs {
            tracing::warn!(error = %error, "engine.readiness: the object store cannot be reached");
        }
        let readiness = Readiness {
            has_index: index.is_ok() && !self.is_cut_off(),
            has_blobs: blobs.is_ok(),
        };
        // The first answer after an outage is not one from before its end.
        *last = readiness.has_index.then(|| (self.now(), readiness));
        readiness
    }
}
