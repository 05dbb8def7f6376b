//! The circuit breaker of a blob store, with its metrics and log.

use keepsake_core::{BreakerChange, PendingCall};
use keepsake_telemetry::Metrics;
use tokio::time::Instant;

use crate::BlobError;

/// Refuses calls at once while the store does not answer.
///
/// Only [`BlobError::Unavailable`] counts as a failure: a store that refuses
/// credentials does answer.
#[derive(Debug)]
pub(crate) struct Breaker {
    breaker: keepsake_core::Breaker,
    metrics: Metrics,
}

impl Breaker {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { breaker: keepsake_core::Breaker::default(), metrics }
    }

    /// Lets a call through, or refuses it.
    pub(crate) fn admit(&self) -> Result<PendingCall<'_>, BlobError> {
        self.breaker.admit(Instant::now().into_std()).ok_or_else(|| {
            self.metrics.blob_call_refused();
            let text = "it did not answer the last calls, and is tried again within seconds";
            BlobError::Unavailable(text.to_owned())
        })
    }

    pub(crate) fn ended(&self, call: PendingCall<'_>, error: Option<&BlobError>) {
        let has_failed = matches!(error, Some(BlobError::Unavailable(_)));
        let Some(change) = call.ended(has_failed, Instant::now().into_std()) else {
            return;
        };
        self.metrics.blob_breaker_opened(change == BreakerChange::Opened);
        if let Some(error) = error.filter(|_| has_failed) {
            tracing::warn!(error = %error, "blob.breaker opened: calls are refused until the store answers a probe");
        } else {
            tracing::info!("blob.breaker closed: the store answers");
        }
    }
}
