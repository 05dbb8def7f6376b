//! An index decorator that measures the duration of calls.
//!
//! Calls are measured and become spans only here. A new method of a trait is
//! available to the engine only after it is listed here.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use keepsake_core::{BlobKey, ErasureId, StoreId, TenantId, Timestamp, VersionId};
use keepsake_telemetry::{Metrics, Outcome};
use tracing::Instrument;

use crate::database::{DiskState, Effect, outcome_of};
#[expect(clippy::wildcard_imports, reason = "the file goes away with its traits")]
use crate::*;

/// Measures every call and passes it to the inner index.
#[derive(Debug)]
pub(crate) struct MeasuredIndex {
    inner: Arc<dyn IndexMethods>,
    metrics: Metrics,
    disk: Arc<DiskState>,
}

impl MeasuredIndex {
    /// Wraps an index.
    pub(crate) fn new(inner: Arc<dyn IndexMethods>, metrics: Metrics, disk: Arc<DiskState>) -> Self {
        Self { inner, metrics, disk }
    }
}

/// Passes a call to the inner index in a separate span, and records it.
macro_rules! pass_on {
    ($index:ident, $effect:expr, $method:ident($($argument:ident),*)) => {{
        let began_at = Instant::now();
        let span = tracing::debug_span!(concat!("index.", stringify!($method)), otel.kind = "client");
        let mut result = $index.inner.$method($($argument),*).instrument(span.clone()).await;
        if result.as_ref().is_err_and(|error| $effect.may_repeat(error)) {
            result = $index.inner.$method($($argument),*).instrument(span).await;
        }
        if $effect == Effect::Read {
            result = result.map_err(IndexError::of_read);
        }
        let took = began_at.elapsed();
        let outcome = result.as_ref().err().map_or(Outcome::Ok, outcome_of);
        $index.disk.observe(stringify!($method), outcome);
        $index.metrics.index_called(stringify!($method), outcome, took);
        result
    }};
}

/// Implements a trait by the inner index. Each method is marked as a read or a
/// write, with its parameters and its result type (without the [`IndexError`]).
macro_rules! measured {
    (@effect read) => { Effect::Read };
    (@effect write) => { Effect::Write };
    ($trait:ident: $($effect:ident $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl $trait for MeasuredIndex {
            $(async fn $method(&self, $($argument: $type),*) -> Result<$answer, IndexError> {
                pass_on!(self, measured!(@effect $effect), $method($($argument),*))
            })+
        }
    };
}

/// Calls `$implement!` with every trait of [`IndexMethods`] and its methods.
///
/// For a wrapper around an index, such as a test that plants a bug. The types must
/// be in scope there.
#[macro_export]
macro_rules! for_each_index_trait {
    ($implement:ident) => {
$implement! {
    PurgeIndex:
    write redact(tenant_id: TenantId, redaction: &Redaction) -> RedactionOutcome;
    write delete_store(tenant_id: TenantId, store_id: StoreId, audited: &Audited) -> bool;
    read deleted_stores(limit: u32) -> Vec<(TenantId, StoreId)>;
    write purge_store(tenant_id: TenantId, store_id: StoreId, now: Timestamp, limit: u32) -> StorePurge;
}

$implement! {
    ErasureIndex:
    write create_erasure(
        tenant_id: TenantId, erasure: &NewErasure, idempotency: Option<&Idempotency>
    ) -> ErasureCreation;
    read erasure(tenant_id: TenantId, erasure_id: ErasureId) -> Option<Erasure>;
    read list_erasures(tenant_id: TenantId, listing: &ErasureListing) -> Vec<Erasure>;
    read open_erasures(now: Timestamp, limit: u32) -> Vec<(TenantId, ErasureId)>;
    write erase_rows(
        tenant_id: TenantId, erasure_id: ErasureId, now: Timestamp, lease_until: Timestamp, limit: u32
    ) -> RowsErased;
    read forgotten_blobs(tenant_id: TenantId, store_id: StoreId, blobs: &[VersionId]) -> Vec<VersionId>;
    read queued_blobs(tenant_id: TenantId, erasure_id: ErasureId, limit: u32) -> Vec<BlobKey>;
    write blobs_erased(
        tenant_id: TenantId, erasure_id: ErasureId, blobs: &ErasedBlobs, lease_until: Timestamp
    ) -> ();
    write overwrite_deleted() -> ();
    write empty_log() -> bool;
    write erasure_failed(
        tenant_id: TenantId, erasure_id: ErasureId, error: &'static str, retry_at: Timestamp
    ) -> ();
    write finish_erasure(tenant_id: TenantId, erasure_id: ErasureId, audited: &Audited) -> bool;
}

$implement! {
    RetentionIndex:
    read histories(after: Option<(TenantId, StoreId)>, limit: u32) -> Vec<History>;
    write take_outdated(tenant_id: TenantId, batch: &VersionBatch) -> VersionsTaken;
}

    };
}

for_each_index_trait!(measured);

#[async_trait]
impl IndexMethods for MeasuredIndex {
    async fn check(&self) -> Result<(), IndexError> {
        pass_on!(self, Effect::Read, check())
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
