//! `keepsake config check --connect`: tests the index and the blob store.

use std::sync::Arc;

use bytes::Bytes;
use keepsake_blobs::BlobStore;
use keepsake_config::{Failure, Settings};
use keepsake_core::{BlobKey, StoreId, TenantId, VersionId};
use keepsake_engine::{Clock, IdSource, RandomIds, SystemClock};
use keepsake_telemetry::Metrics;
use uuid::Uuid;

use super::print;
use crate::backends;

/// The content of the probe object.
const PROBE: &[u8] = b"keepsake config check --connect";

/// Connects to the index and, if there is one, the object store, whose operations it
/// tries, and prints the results.
///
/// # Errors
/// [`Failure`] if a step failed; independent steps are tried nevertheless.
pub(super) async fn check(settings: &Settings) -> Result<(), Failure> {
    let mut report = Report::default();
    let index = backends::probe_index(&settings.index).await;
    report.step("index.url", "connect", &index)?;
    match backends::open_blobs(settings, &Metrics::default()).await {
        Ok(Some(blobs)) => use_blobs(&blobs, &mut report).await?,
        Ok(None) => {}
        Err(failure) => {
            report.step("blobs.url", "connect", &Err::<(), _>(failure))?;
        }
    }
    match report.failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of the steps above failed"))),
    }
}

/// Writes, reads, lists and deletes a probe object.
async fn use_blobs(blobs: &Arc<dyn BlobStore>, report: &mut Report) -> Result<(), Failure> {
    const KEY: &str = "blobs.url";
    // No tenant and no store has the nil id, and the object is deleted at the end.
    let key = BlobKey {
        tenant_id: TenantId::from_uuid(Uuid::nil()),
        store_id: StoreId::from_uuid(Uuid::nil()),
        blob_id: VersionId::from_uuid(RandomIds.uuid(SystemClock.now())),
    };
    let is_reachable = report.step(KEY, "connect", &blobs.check().await)?;
    if !is_reachable {
        for step in ["write", "read", "list", "delete"] {
            Report::skipped(KEY, step)?;
        }
        return Ok(());
    }
    let is_written = report.step(KEY, "write", &blobs.put(&key, Bytes::from_static(PROBE)).await)?;
    let read = match blobs.get(&key, PROBE.len() as u64).await {
        Ok(Some(bytes)) if bytes == PROBE => Ok(()),
        Ok(Some(_)) => Err("the probe object has other content than was written".to_owned()),
        Ok(None) => Err("the probe object was not found".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let listed = match blobs.list_tenant(key.tenant_id, None, usize::MAX).await {
        Ok(listed) if listed.iter().any(|blob| blob.key == key) => Ok(()),
        Ok(_) => Err("the probe object is not in the listing".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    if is_written {
        report.step(KEY, "read", &read)?;
        report.step(KEY, "list", &listed)?;
    } else {
        Report::skipped(KEY, "read")?;
        Report::skipped(KEY, "list")?;
    }
    // Also after a failed write, which may have stored the object.
    report.step(KEY, "delete", &blobs.erase(&key).await)?;
    Ok(())
}

/// Prints the result of each step.
#[derive(Debug, Default)]
struct Report {
    failed: usize,
}

impl Report {
    /// Prints the result of a step; returns whether it succeeded.
    fn step<T, E: std::fmt::Display>(
        &mut self,
        key: &str,
        step: &str,
        outcome: &Result<T, E>,
    ) -> Result<bool, Failure> {
        match outcome {
            Ok(_) => print(&format!("{key}: {step}: ok\n"))?,
            Err(error) => {
                self.failed += 1;
                print(&format!("{key}: {step}: failed: {error}\n"))?;
            }
        }
        Ok(outcome.is_ok())
    }

    fn skipped(key: &str, step: &str) -> Result<(), Failure> {
        print(&format!("{key}: {step}: skipped\n"))
    }
}
