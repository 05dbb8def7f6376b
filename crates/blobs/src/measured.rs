//! A decorator of a blob store that records durations and sizes of its calls.

use std::sync::Arc;
use std::time::Instant;

use keepsake_telemetry::{Metrics, Outcome};

use crate::decorator::Decorator;
use crate::{BlobError, BlobStore};

/// Records metrics of every call; the blob stores create the spans.
#[derive(Debug)]
pub struct MeasuredBlobs {
    inner: Arc<dyn BlobStore>,
    metrics: Metrics,
}

impl MeasuredBlobs {
    pub fn new(inner: Arc<dyn BlobStore>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

impl Decorator for MeasuredBlobs {
    fn inner(&self) -> &dyn BlobStore {
        &*self.inner
    }

    async fn around<T: Send>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<T, BlobError>> + Send,
    ) -> Result<T, BlobError> {
        let began_at = Instant::now();
        let result = answer.await;
        let outcome = match &result {
            Ok(_) => Outcome::Ok,
            Err(BlobError::Unavailable(_)) => Outcome::Unavailable,
            Err(BlobError::Denied(_)) => Outcome::Denied,
            Err(BlobError::Misconfigured(_)) => Outcome::Misconfigured,
            Err(BlobError::TooLarge { .. } | BlobError::Unexpected(_)) => Outcome::Error,
        };
        self.metrics.blob_called(call, outcome, began_at.elapsed());
        result
    }

    fn written(&self, size_bytes: usize) {
        self.metrics.blob_bytes_written(size_bytes);
    }

    fn read(&self, size_bytes: usize) {
        self.metrics.blob_bytes_read(size_bytes);
    }
}
