//! Whether both stores can be reached.

use std::time::Duration;

use keepsake_blobs::BlobError;
use keepsake_core::Timestamp;
use tokio::sync::Mutex;

use crate::Engine;

/// How long an answer is good. Who asks needs no credential, so asking must
/// not cost more the more often it is done.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long a probe waits for the blob store: it must not wait out the time limits
/// of a store that is down.
const BLOBS_AWAITED_FOR: Duration = Duration::from_secs(1);
/// How long a probe waits for a write to a disk that was full.
const WRITE_AWAITED_FOR: Duration = Duration::from_secs(1);

/// The state of a store, as a probe reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHealth {
    /// It serves.
    Ok,
    /// It does not answer, or says that it cannot now.
    Unavailable,
    /// It refuses the server's credentials.
    AccessDenied,
    /// The settings do not fit it: no such bucket, say.
    Misconfigured,
    /// It can be read; its disk is full, read-only or failing.
    DiskFull,
}

impl StoreHealth {
    /// The word that the readiness probe answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unavailable => "unavailable",
            Self::AccessDenied => "access_denied",
            Self::Misconfigured => "misconfigured",
            Self::DiskFull => "disk_full",
        }
    }
}

impl From<&BlobError> for StoreHealth {
    fn from(error: &BlobError) -> Self {
        match error {
            BlobError::Denied(_) => Self::AccessDenied,
            BlobError::Misconfigured(_) => Self::Misconfigured,
            BlobError::Disk { .. } => Self::DiskFull,
            BlobError::Unavailable(_)
            | BlobError::Io { .. }
            | BlobError::TooLarge { .. }
            | BlobError::Unexpected(_) => Self::Unavailable,
        }
    }
}

/// Whether the engine can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// The index answers, its schema is new enough, and the other replicas hear
    /// of this one; without it, no service. A full disk still serves reads.
    pub index: StoreHealth,
    /// The blob store answers; without it, cached content is still served.
    pub blobs: StoreHealth,
}

impl Readiness {
    /// Whether the index serves reads at least.
    pub const fn has_index(&self) -> bool {
        matches!(self.index, StoreHealth::Ok | StoreHealth::DiskFull)
    }
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
        let (index, blobs) = tokio::join!(self.index_health(), self.blob_health());
        let readiness = Readiness { index, blobs };
        // The first answer after an outage is not one from before its end.
        *last = readiness.has_index().then(|| (self.now(), readiness));
        readiness
    }

    async fn index_health(&self) -> StoreHealth {
        if let Err(error) = self.0.index.check().await {
            tracing::warn!(error = %error, "engine.readiness: the index cannot serve");
            return StoreHealth::Unavailable;
        }
        self.end_cut_off().await;
        if self.is_cut_off() {
            return StoreHealth::Unavailable;
        }
        if !self.0.disk.is_full() {
            return StoreHealth::Ok;
        }
        // A write tells whether there is room again.
        let _ = tokio::time::timeout(WRITE_AWAITED_FOR, self.heartbeat()).await;
        if self.0.disk.is_full() {
            tracing::warn!("engine.readiness: the database's disk takes no writes");
            return StoreHealth::DiskFull;
        }
        StoreHealth::Ok
    }

    async fn blob_health(&self) -> StoreHealth {
        // In a task, so that a check which takes longer than the probe still ends and
        // the store's breaker counts it.
        let blobs = self.0.blobs.clone();
        let check = tokio::spawn(async move { blobs.check().await });
        let checked = tokio::time::timeout(BLOBS_AWAITED_FOR, check).await;
        let Ok(Ok(checked)) = checked else {
            tracing::warn!("engine.readiness: the object store does not answer");
            return StoreHealth::Unavailable;
        };
        match checked {
            Ok(()) => StoreHealth::Ok,
            Err(error) => {
                tracing::warn!(error = %error, "engine.readiness: the object store cannot be used");
                StoreHealth::from(&error)
            }
        }
    }
}
