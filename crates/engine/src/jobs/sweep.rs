//! `sweep-blobs`: finds orphaned blobs, and versions whose blob is missing.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::ListedBlob;
use keepsake_core::{BlobKey, Timestamp};
use keepsake_index::NamedBlob;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{DAY, Job, JobPlan, Lease};
use crate::EngineError;
use crate::shared::Shared;

/// Grace period of a blob, as a multiple of the longest request.
const GRACE_IN_DEADLINES: u32 = 60;
/// Minimum grace period.
const GRACE_AT_LEAST: Duration = DAY;
const AT_ONCE: usize = 8;
/// Number of unnamed blobs that a scheduled run condemns even if most blobs are
/// unnamed.
const UNNAMED_AT_LEAST: u64 = 100;
/// Maximum number of missing blobs whose keys a run reports.
const MISSING_TOLD: usize = 20;

/// Compares the blob store with the index once a day, one range of keys at a time. It
/// condemns blobs that no row names and reports rows whose blob is missing.
///
/// The walk is ordered by key across all tenants and stores. A blob is considered once it
/// is older than any request can be. Age does not prove that a blob is an orphan, so the
/// job condemns the blob under its store's lock, where a row that names it is visible. A
/// write that tries to commit the blob later is refused and repeated with a new blob. The
/// job `drain-deletions` removes condemned blobs.
///
/// When most blobs are unnamed, the index probably does not belong to this blob store: it
/// is new and waits for its backup, or it is another deployment's. Then a scheduled run
/// fails; a manual run continues. The decision uses all blobs, not those of one range: a
/// run that finds too many unnamed blobs stops condemning, counts to the end, and sweeps
/// again from the beginning if the total is sound. The counts are part of the cursor.
#[derive(Debug, Clone, Copy)]
pub struct SweepBlobs {
    pub batch: u32,
}

impl Default for SweepBlobs {
    fn default() -> Self {
        Self { batch: 1000 }
    }
}

#[async_trait]
impl Job for SweepBlobs {
    /// Every ten minutes, so that an interrupted run is soon resumed.
    fn plan(&self) -> JobPlan {
        JobPlan { name: "sweep-blobs", schedule: "30 3/10 * * * *", period: DAY, can_be_dry: true }
    }

    async fn run(&self, shared: &Shared, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let grace = GRACE_AT_LEAST.max(shared.request_deadline * GRACE_IN_DEADLINES);
        let mut swept: SweepProgress = lease.resumed_at().await?.unwrap_or_default();
        if lease.is_manual() {
            swept.phase = Phase::Confirmed;
        } else if shared.context.index.upkeep.named_blobs(None, 1).await?.is_empty() {
            swept.phase = Phase::Counting;
        }
        loop {
            self.sweep_range(shared, lease, &mut swept, shared.context.now().minus(grace)).await?;
            let mut is_done = swept.after.is_none();
            if is_done && swept.phase == Phase::Counting {
                if swept.looks_foreign() {
                    // The next run starts from the beginning, since the index
                    // may be restored by then.
                    lease.renew(None).await?;
                    return Err(EngineError::ForeignBlobs);
                }
                (swept, is_done) = (SweepProgress::confirmed(), false);
            }
            let place = Some(&swept).filter(|swept| swept.after.is_some());
            if !lease.renew_at(place).await? || is_done {
                return Ok(json!(swept.counts));
            }
        }
    }
}

impl SweepBlobs {
    async fn sweep_range(
        &self,
        shared: &Shared,
        lease: &Lease<'_>,
        swept: &mut SweepProgress,
        old_from: Timestamp,
    ) -> Result<(), EngineError> {
        let after = swept.after;
        // Rows are read after blobs: a write puts its blob first, so a
        // concurrent write is not mistaken for an orphan.
        let listed = shared.context.blobs.list(None, after.as_ref(), self.batch as usize).await?;
        let upkeep = &shared.context.index.upkeep;
        let named = upkeep.named_blobs(after.as_ref(), self.batch).await?;
        let end = end_of(&listed, &named, self.batch as usize);
        let range = Range::of(&listed, &named, end);
        swept.counts.blobs += range.blobs;
        swept.named += range.blobs - range.unnamed.len() as u64;
        let old = range.unnamed.iter().filter(|blob| blob.modified_at < old_from);
        swept.old_unnamed += old.count() as u64;
        if swept.phase == Phase::Condemning && swept.looks_foreign() {
            swept.phase = Phase::Counting;
        }
        if swept.phase != Phase::Counting {
            swept.condemn(shared, &range.unnamed, old_from, lease.dry_run()).await?;
        }
        swept.look_for(shared, range.unlisted).await?;
        swept.after = end;
        Ok(())
    }
}

/// The last key that both lists cover; `None`: both reach the end.
fn end_of(listed: &[ListedBlob], named: &[NamedBlob], batch: usize) -> Option<BlobKey> {
    let listed_to = listed.last().filter(|_| listed.len() >= batch).map(|blob| blob.key);
    let named_to = named.last().filter(|_| named.len() >= batch).map(|row| row.key);
    listed_to.into_iter().chain(named_to).min()
}

struct Range {
    blobs: u64,
    /// Blobs without a row.
    unnamed: Vec<ListedBlob>,
    /// Keys of rows without a blob.
    unlisted: Vec<BlobKey>,
}

impl Range {
    fn of(listed: &[ListedBlob], named: &[NamedBlob], end: Option<BlobKey>) -> Self {
        let is_inside = |key: &BlobKey| end.is_none_or(|end| *key <= end);
        let inside = || listed.iter().filter(|blob| is_inside(&blob.key));
        let has_row = |blob: &&ListedBlob| named.binary_search_by_key(&blob.key, |row| row.key).is_ok();
        let has_blob = |row: &&NamedBlob| listed.binary_search_by_key(&row.key, |blob| blob.key).is_ok();
        let mut unlisted: Vec<_> = named
            .iter()
            .filter(|row| row.is_live && is_inside(&row.key) && !has_blob(row))
            .map(|row| row.key)
            .collect();
        unlisted.dedup();
        Self {
            blobs: inside().count() as u64,
            unnamed: inside().filter(|blob| !has_row(blob)).copied().collect(),
            unlisted,
        }
    }
}

/// How a run treats unnamed blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    /// Condemns them while most blobs so far are named.
    #[default]
    Condemning,
    /// Only counts them: too many of the blobs so far are unnamed.
    Counting,
    /// Condemns them: most of all blobs are named, or an operator requested the run.
    Confirmed,
}

/// The progress of a run; an interrupted run resumes with it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SweepProgress {
    phase: Phase,
    /// The next range starts after this key.
    after: Option<BlobKey>,
    named: u64,
    old_unnamed: u64,
    counts: Counts,
}

/// What the run reports.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    blobs: u64,
    condemned: u64,
    condemned_bytes: u64,
    too_young: u64,
    missing: u64,
    missing_blobs: Vec<BlobKey>,
}

impl SweepProgress {
    fn confirmed() -> Self {
        Self { phase: Phase::Confirmed, ..Self::default() }
    }

    /// Whether the index names too few of the blobs found so far.
    fn looks_foreign(&self) -> bool {
        let knows_none = self.phase == Phase::Counting && self.named == 0 && self.old_unnamed > 0;
        knows_none || self.old_unnamed > self.named.max(UNNAMED_AT_LEAST)
    }

    /// Only condemns blobs last modified before `old_from`; a dry run only counts them.
    async fn condemn(
        &mut self,
        shared: &Shared,
        unnamed: &[ListedBlob],
        old_from: Timestamp,
        is_dry: bool,
    ) -> Result<(), EngineError> {
        let (old, young): (Vec<_>, Vec<_>) =
            unnamed.iter().copied().partition(|blob| blob.modified_at < old_from);
        self.counts.too_young += young.len() as u64;
        let condemned: Vec<_> = stream::iter(old)
            .map(|blob| async move {
                let is_condemned = if is_dry {
                    !shared.context.index.upkeep.blob_is_named(&blob.key).await?
                } else {
                    let queue = &shared.context.index.blob_deletions;
                    let not_before = shared.context.blobs_go_from(shared.context.now());
                    queue.condemn_orphan(&blob.key, not_before).await?
                };
                Ok::<_, EngineError>(is_condemned.then_some(blob.size_bytes))
            })
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|size_bytes| std::future::ready(Ok(size_bytes)))
            .try_collect()
            .await?;
        self.counts.condemned += condemned.len() as u64;
        self.counts.condemned_bytes += condemned.iter().sum::<u64>();
        Ok(())
    }

    /// Checks unlisted blobs and their rows again, since either may have
    /// changed meanwhile.
    async fn look_for(&mut self, shared: &Shared, unlisted: Vec<BlobKey>) -> Result<(), EngineError> {
        let missing: Vec<_> = stream::iter(unlisted)
            .map(|key| async move { Ok::<_, EngineError>(is_missing(shared, &key).await?.then_some(key)) })
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|key| std::future::ready(Ok(key)))
            .try_collect()
            .await?;
        self.counts.missing += missing.len() as u64;
        let room = MISSING_TOLD - self.counts.missing_blobs.len();
        for key in missing.into_iter().take(room) {
            tracing::error!(blob.key = %key, "job.sweep_blobs: the blob of a version is missing");
            self.counts.missing_blobs.push(key);
        }
        Ok(())
    }
}

/// Whether a blob does not exist although a version names it.
async fn is_missing(shared: &Shared, key: &BlobKey) -> Result<bool, EngineError> {
    let context = &shared.context;
    let is_there = context.blobs.contains(key).await?;
    Ok(!is_there && context.index.upkeep.blob_is_named(key).await?)
}
