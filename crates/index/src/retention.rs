//! Retention: selects the versions whose retention has ended.
//!
//! A deleted memory is kept with all its versions for the retention period. The
//! current version of a live memory is always kept. Another version is removed when
//! it exceeds a limit on age or number and was superseded at least one retention
//! period ago.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use keepsake_core::limits::LimitOverrides;
use keepsake_core::{StoreId, TenantId, Timestamp};
use uuid::Uuid;

use crate::IndexError;
use crate::erasure::TakenVersion;

/// A store with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Its tenant.
    pub tenant_id: TenantId,
    /// The store.
    pub store_id: StoreId,
    /// The tenant's overrides of the configured limits.
    pub limits: LimitOverrides,
    /// The sequence number up to which deletions are processed.
    pub retention_seq: i64,
    /// The time of the first deletion after that sequence number.
    pub deleted_at: Option<Timestamp>,
}

/// The removable part of a store's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outdated {
    /// Memories that were deleted by this time, with all their versions.
    Deleted {
        /// The time.
        by: Timestamp,
    },
    /// Versions of live memories that were superseded by a time.
    Superseded {
        /// The time.
        by: Timestamp,
        /// Only versions created by this time, or beyond the limit below.
        made_by: Option<Timestamp>,
        /// Only versions with at least so many newer versions, or older than the limit
        /// above.
        beyond: Option<u64>,
    },
}

/// One batch of removable versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionBatch {
    /// The store.
    pub store_id: StoreId,
    /// The removable part of the history.
    pub outdated: Outdated,
    /// The sequence number after which the batch starts.
    pub after: i64,
    /// The earliest removal time of blobs that become unreferenced.
    pub blobs_go_from: Timestamp,
    /// Approximate maximum number of rows to read.
    pub limit: u32,
    /// Whether to count only.
    pub dry_run: bool,
}

/// The result of one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionsTaken {
    /// Versions.
    pub versions: u64,
    /// Memories without any version left.
    pub memories: u64,
    /// Blobs queued for deletion.
    pub blobs: u64,
    /// The sequence number after which the next batch starts.
    pub next: i64,
    /// Whether this was the last batch.
    pub is_done: bool,
}

/// Removes versions whose retention has ended; for the jobs.
#[async_trait]
pub trait RetentionIndex: Send + Sync {
    /// The next stores with a history after a given one, by tenant and id.
    async fn histories(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<History>, IndexError>;

    /// Removes the next batch of versions, in one transaction under the store's lock,
    /// and queues the blobs that become unreferenced.
    ///
    /// Changes the store's purge epoch. Never removes the current version of a live
    /// memory. Idempotent.
    async fn take_outdated(
        &self,
        tenant_id: TenantId,
        batch: &VersionBatch,
    ) -> Result<VersionsTaken, IndexError>;
}

/// A deletion in the history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion {
    pub(crate) seq: i64,
    pub(crate) memory_id: Uuid,
    pub(crate) at: i64,
    /// Whether the memory is still deleted by this version.
    pub(crate) is_current: bool,
}

impl Deletion {
    /// Reads a row: sequence number, memory, time, whether it is the memory's last
    /// version.
    pub(crate) const fn of((seq, memory_id, at, is_current): (i64, Uuid, i64, bool)) -> Self {
        Self {
            seq,
            memory_id,
            at,
            is_current,
        }
    }
}

/// A version that may be superseded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    pub(crate) seq: i64,
    pub(crate) made_at: i64,
    /// When the memory's next version was created.
    pub(crate) superseded_at: Option<i64>,
    /// Whether the memory is live.
    pub(crate) is_of_living: bool,
    /// Whether at least the requested number of versions follow.
    pub(crate) is_beyond: bool,
}

impl Past {
    /// Reads a row: sequence number, time, time of the next version, whether the memory
    /// is live, whether enough versions follow.
    pub(crate) const fn of(
        (seq, made_at, superseded_at, is_of_living, is_beyond): (i64, i64, Option<i64>, bool, bool),
    ) -> Self {
        Self {
            seq,
            made_at,
            superseded_at,
            is_of_living,
            is_beyond,
        }
    }
}

/// The open transaction of a batch, with the store's lock.
#[async_trait]
pub(crate) trait Archive: Send {
    /// Deletions after a sequence number, in the store's order.
    async fn deletions(&mut self, after: i64, limit: i64) -> Result<Vec<Deletion>, IndexError>;

    /// Versions after a sequence number, created by a given time, in the store's order.
    async fn past(
        &mut self,
        after: i64,
        made_by: i64,
        beyond: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Past>, IndexError>;

    /// The sequence numbers and memories of the versions of some memories, grouped by
    /// memory.
    async fn places_of(&mut self, memories: &[Uuid], limit: i64) -> Result<Vec<(i64, Uuid)>, IndexError>;

    /// Removes versions by sequence number.
    async fn take(&mut self, places: &[i64]) -> Result<Vec<TakenVersion>, IndexError>;

    /// Removes memories and their related rows except versions.
    async fn forget(&mut self, memories: &[Uuid]) -> Result<(), IndexError>;

    /// Queues the unreferenced ones of `blobs`, and returns them.
    async fn condemn(&mut self, blobs: &[Uuid], not_before: i64) -> Result<Vec<Uuid>, IndexError>;

    /// Subtracts versions and bytes from the counters, changes the purge epoch, and
    /// records up to where deletions are processed.
    async fn count(
        &mut self,
        versions: i64,
        bytes: i64,
        retention_seq: Option<i64>,
    ) -> Result<(), IndexError>;
}

/// Removes a batch; the caller commits the transaction.
pub(crate) async fn take_batch(
    archive: &mut dyn Archive,
    batch: &VersionBatch,
) -> Result<VersionsTaken, IndexError> {
    match batch.outdated {
        Outdated::Deleted { by } => take_deleted(archive, batch, by).await,
        Outdated::Superseded { by, made_by, beyond } => {
            take_superseded(archive, batch, by, made_by, beyond).await
        }
    }
}

async fn take_deleted(
    archive: &mut dyn Archive,
    batch: &VersionBatch,
    by: Timestamp,
) -> Result<VersionsTaken, IndexError> {
    let limit = i64::from(batch.limit.max(1));
    let mut deletions = archive.deletions(batch.after, limit).await?;
    let is_page = deletions.len() as u64 == u64::from(batch.limit.max(1));
    let found = deletions.len();
    deletions.retain(|deletion| deletion.at <= by.as_micros());
    let is_last = !is_page || deletions.len() < found;
    let current: BTreeMap<_, _> = deletions
        .iter()
        .filter(|deletion| deletion.is_current)
        .map(|deletion| (deletion.memory_id, deletion.seq))
        .collect();
    let memories: Vec<_> = current.keys().copied().collect();
    // A dry run changes nothing, so a next batch could not continue from this one; it
    // counts everything at once.
    let limit = if batch.dry_run { i64::MAX } else { limit };
    let places = archive.places_of(&memories, limit).await?;
    let ended: BTreeSet<_> = places
        .iter()
        .filter(|(seq, memory_id)| current.get(memory_id) == Some(seq))
        .map(|(_, memory_id)| *memory_id)
        .collect();
    let first_left = current
        .iter()
        .filter(|(memory_id, _)| !ended.contains(*memory_id))
        .map(|(_, seq)| *seq)
        .min();
    let through = deletions.last().map_or(batch.after, |last| last.seq);
    let mut taken = VersionsTaken {
        versions: places.len() as u64,
        memories: ended.len() as u64,
        next: first_left.map_or(through, |left| left - 1),
        is_done: is_last && first_left.is_none(),
        ..VersionsTaken::default()
    };
    if !batch.dry_run {
        let places: Vec<_> = places.into_iter().map(|(seq, _)| seq).collect();
        let ended: Vec<_> = ended.into_iter().collect();
        taken.blobs = remove(archive, batch, &places, Some(taken.next)).await?;
        archive.forget(&ended).await?;
    }
    Ok(taken)
}

async fn take_superseded(
    archive: &mut dyn Archive,
    batch: &VersionBatch,
    by: Timestamp,
    made_by: Option<Timestamp>,
    beyond: Option<u64>,
) -> Result<VersionsTaken, IndexError> {
    let limit = batch.limit.max(1);
    let beyond = beyond.map(|many| i64::try_from(many).unwrap_or(i64::MAX));
    // A version that was superseded by this time was also created by it.
    let past = archive
        .past(batch.after, by.as_micros(), beyond, i64::from(limit))
        .await?;
    let is_outdated = |version: &&Past| {
        let is_old = made_by.is_some_and(|made_by| version.made_at <= made_by.as_micros());
        let is_superseded = version.superseded_at.is_some_and(|at| at <= by.as_micros());
        version.is_of_living && is_superseded && (is_old || version.is_beyond)
    };
    let places: Vec<_> = past
        .iter()
        .filter(is_outdated)
        .map(|version| version.seq)
        .collect();
    let mut taken = VersionsTaken {
        versions: places.len() as u64,
        next: past.last().map_or(batch.after, |last| last.seq),
        is_done: past.len() < limit as usize,
        ..VersionsTaken::default()
    };
    if !batch.dry_run {
        taken.blobs = remove(archive, batch, &places, None).await?;
    }
    Ok(taken)
}

/// Removes versions; returns the number of blobs queued.
async fn remove(
    archive: &mut dyn Archive,
    batch: &VersionBatch,
    places: &[i64],
    retention_seq: Option<i64>,
) -> Result<u64, IndexError> {
    let taken = archive.take(places).await?;
    let sizes: BTreeMap<_, _> = taken
        .iter()
        .filter_map(|version| Some((version.blob_id?, version.size_bytes?)))
        .collect();
    let blobs: Vec<_> = sizes.keys().copied().collect();
    let condemned = archive.condemn(&blobs, batch.blobs_go_from.as_micros()).await?;
    let freed = condemned.iter().filter_map(|blob_id| sizes.get(blob_id)).sum();
    let versions = i64::try_from(taken.len()).unwrap_or(i64::MAX);
    archive.count(versions, freed, retention_seq).await?;
    Ok(condemned.len() as u64)
}
