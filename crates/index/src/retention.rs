//! Retention: which versions of a history have been kept for long enough.
//!
//! A deleted memory is kept with all its versions for the retention. Of a live
//! one the current version always stays; another goes where a limit on age or
//! number is passed and it was superseded a retention ago.

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
    /// Where its tenant's limits differ from the configured defaults.
    pub limits: LimitOverrides,
    /// Deletions up to this place of its order have been seen to.
    pub retention_seq: i64,
    /// When the first memory after that place was deleted.
    pub deleted_at: Option<Timestamp>,
}

/// What may go of a store's history.
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
        /// Those made by this time may go.
        made_by: Option<Timestamp>,
        /// Those that have at least so many versions after them may go.
        beyond: Option<u64>,
    },
}

/// One batch of versions that are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionBatch {
    /// The store.
    pub store_id: StoreId,
    /// What may go.
    pub outdated: Outdated,
    /// After this place of the store's order.
    pub after: i64,
    /// From when on the blobs that no row names any more may be removed.
    pub blobs_go_from: Timestamp,
    /// Rows to look at, about.
    pub limit: u32,
    /// Whether it is only counted.
    pub dry_run: bool,
}

/// What a batch took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VersionsTaken {
    /// Versions.
    pub versions: u64,
    /// Memories of which nothing is left.
    pub memories: u64,
    /// Blobs queued for deletion.
    pub blobs: u64,
    /// Where the next batch goes on.
    pub next: i64,
    /// Whether there is nothing more.
    pub is_done: bool,
}

/// Drops versions that were kept for long enough; for the jobs.
#[async_trait]
pub trait RetentionIndex: Send + Sync {
    /// Stores with a history, by tenant and id, after one.
    async fn histories(
        &self,
        after: Option<(TenantId, StoreId)>,
        limit: u32,
    ) -> Result<Vec<History>, IndexError>;

    /// Takes the next batch of versions, in one transaction under the store's
    /// lock, and queues the blobs that no row names any more.
    ///
    /// Moves the store's purge epoch. Never takes the current version of a live
    /// memory. Safe to run twice.
    async fn take_outdated(
        &self,
        tenant_id: TenantId,
        batch: &VersionBatch,
    ) -> Result<VersionsTaken, IndexError>;
}

/// A deletion as the history has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion {
    pub(crate) seq: i64,
    pub(crate) memory_id: Uuid,
    pub(crate) at: i64,
    /// Whether the memory is deleted by it still.
    pub(crate) is_current: bool,
}

impl Deletion {
    /// Reads a row: place, memory, time, whether it is the memory's last.
    pub(crate) const fn of((seq, memory_id, at, is_current): (i64, Uuid, i64, bool)) -> Self {
        Self {
            seq,
            memory_id,
            at,
            is_current,
        }
    }
}

/// A version of the past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    pub(crate) seq: i64,
    pub(crate) made_at: i64,
    /// When the next version of its memory was made.
    pub(crate) superseded_at: Option<i64>,
    /// Whether its memory lives.
    pub(crate) is_of_living: bool,
    /// Whether at least so many versions as asked come after it.
    pub(crate) is_beyond: bool,
}

impl Past {
    /// Reads a row: place, time, time of the next, whether it is a living
    /// memory's, whether enough come after it.
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

/// The open transaction of a batch, under the store's lock.
#[async_trait]
pub(crate) trait Archive: Send {
    /// Deletions after a place, in the store's order.
    async fn deletions(&mut self, after: i64, limit: i64) -> Result<Vec<Deletion>, IndexError>;

    /// Versions after a place that were made by a time, in the store's order.
    async fn past(
        &mut self,
        after: i64,
        made_by: i64,
        beyond: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Past>, IndexError>;

    /// Places of memories' versions, with the memory, memory by memory in order.
    async fn places_of(&mut self, memories: &[Uuid], limit: i64) -> Result<Vec<(i64, Uuid)>, IndexError>;

    /// Removes versions by their places.
    async fn take(&mut self, places: &[i64]) -> Result<Vec<TakenVersion>, IndexError>;

    /// Removes memories, and what is known of them beside their versions.
    async fn forget(&mut self, memories: &[Uuid]) -> Result<(), IndexError>;

    /// Queues those of `blobs` that no version names any more; answers them.
    async fn condemn(&mut self, blobs: &[Uuid], not_before: i64) -> Result<Vec<Uuid>, IndexError>;

    /// Takes versions and bytes off the counters, moves the purge epoch, and
    /// notes up to where deletions were seen to.
    async fn count(
        &mut self,
        versions: i64,
        bytes: i64,
        retention_seq: Option<i64>,
    ) -> Result<(), IndexError>;
}

/// Takes a batch; what it changed is the caller's to commit.
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
    // A dry run has no batch that it could go on with after this one.
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
    // What was superseded by then was made by then.
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

/// Removes versions; answers how many blobs went with them.
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
