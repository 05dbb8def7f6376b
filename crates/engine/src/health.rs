//! Readiness: whether index and blob store are available.

use std::sync::Arc;
use std::time::Duration;

use keepsake_blobs::BlobError;
use keepsake_core::{MeaningReason, Timestamp};
use tokio::sync::Mutex;

use crate::EngineError;
use crate::embedding::ready_model;
use crate::shared::service;

/// How long a result is cached. Probes need no credential, so frequent probes
/// must not cost more.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// Time limit of the blob store check. It is shorter than the time limits of
/// the blob store client, which an unavailable store would use up.
const BLOBS_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Time limit of a test write to a disk that was full.
const WRITE_AWAITED_FOR: Duration = Duration::from_secs(1);

/// A job deletes blobs each minute.
const DELETIONS_LATE_AFTER: Duration = Duration::from_mins(5);
/// The periodic work of a replica is due every half minute.
const UPKEEP_LATE_AFTER: Duration = Duration::from_mins(3);

keepsake_core::named_enum! {
    /// The state of a store, with its word in the readiness answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum StoreHealth {
        Ok = "ok",
        /// The store does not answer, or reports that it is unavailable.
        Unavailable = "unavailable",
        AccessDenied = "access_denied",
        /// The settings do not match the store, for example a missing bucket.
        Misconfigured = "misconfigured",
        /// The store can be read, but its disk is full, read-only or failing.
        DiskFull = "disk_full",
    }
}

impl From<&BlobError> for StoreHealth {
    fn from(error: &BlobError) -> Self {
        match error {
            BlobError::Denied(_) => Self::AccessDenied,
            BlobError::Misconfigured(_) => Self::Misconfigured,
            BlobError::Unavailable(_) | BlobError::TooLarge { .. } | BlobError::Unexpected(_) => {
                Self::Unavailable
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// The state of the index: it answers, its schema is new enough, and this
    /// replica's heartbeats arrive. Without it nothing is served; with a full
    /// disk reads are served.
    pub index: StoreHealth,
    /// Without the blob store, cached content is still served.
    pub blobs: StoreHealth,
    /// Whether the periodic work of this replica (access times, heartbeat) is done in time.
    pub is_upkeep_late: bool,
}

impl Readiness {
    /// Whether the index serves at least reads.
    pub const fn has_index(&self) -> bool {
        matches!(self.index, StoreHealth::Ok | StoreHealth::DiskFull)
    }
}

service!(pub Health(shared) { last: Arc<Mutex<Option<(Timestamp, Readiness)>>> = Arc::default() });

impl Health {
    /// Checks both stores, at most once a second.
    pub async fn check(&self) -> Readiness {
        // The lock is held during the check, so that concurrent probes share the check.
        let mut last = self.last.lock().await;
        let now = self.context.now();
        if let Some((asked_at, readiness)) = *last
            && asked_at <= now
            && now < asked_at.plus(GOOD_FOR)
        {
            return readiness;
        }
        let (index, blobs) = tokio::join!(self.index_health(), self.blob_health());
        let readiness =
            Readiness { index, blobs, is_upkeep_late: self.replica.upkeep_age() > UPKEEP_LATE_AFTER };
        // A failure is not cached, so that the end of an outage shows at once.
        *last = readiness.has_index().then(|| (self.context.now(), readiness));
        readiness
    }

    /// The number of blobs whose deletion is overdue by the time of a run; at most `limit`.
    pub async fn overdue_deletions(&self, limit: u32) -> Result<usize, EngineError> {
        let due_before = self.context.now().minus(DELETIONS_LATE_AFTER);
        Ok(self.context.index.blob_deletions.due(due_before, limit).await?.len())
    }

    /// The model that finds memories by meaning, or why they are found by words only: also if an endpoint failed at
    /// this replica's last query. Does no I/O.
    pub fn meaning(&self) -> Result<Arc<str>, MeaningReason> {
        let model = ready_model(&self.embedder)?;
        self.endpoint_queries.failure().map_or(Ok(model), Err)
    }

    /// Whether the index is on Postgres, and not on SQLite.
    pub fn is_on_postgres(&self) -> bool {
        self.context.index.is_shared()
    }

    /// Whether a bucket has the content, and not the index.
    pub fn has_bucket(&self) -> bool {
        !self.context.has_content_in_index
    }

    async fn index_health(&self) -> StoreHealth {
        if let Err(error) = self.context.index.check().await {
            tracing::warn!(error = %error, "engine.readiness: the index cannot serve");
            return StoreHealth::Unavailable;
        }
        self.replica.end_cut_off().await;
        if self.replica.is_cut_off() {
            return StoreHealth::Unavailable;
        }
        let disk = self.context.index.disk();
        if !disk.is_full() {
            return StoreHealth::Ok;
        }
        // A test write shows whether the disk has space again.
        let _ = tokio::time::timeout(WRITE_AWAITED_FOR, self.replica.heartbeat()).await;
        if disk.is_full() {
            tracing::warn!("engine.readiness: the database's disk takes no writes");
            return StoreHealth::DiskFull;
        }
        StoreHealth::Ok
    }

    async fn blob_health(&self) -> StoreHealth {
        // In a task, so that a check that outlasts the probe still finishes and
        // is counted by the store's circuit breaker.
        let blobs = Arc::clone(&self.context.blobs);
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
