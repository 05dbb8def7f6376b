//! `sweep-blobs`: finds blobs that no row names, and rows whose blob is gone.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::ListedBlob;
use keepsake_core::{BlobKey, Timestamp};
use keepsake_index::NamedBlob;
use serde_json::{Value, json};

use super::{Job, Lease};
use crate::{Engine, EngineError};

const DAY: Duration = Duration::from_hours(24);
/// How much older than the longest request a blob is before it is looked at.
const GRACE_IN_DEADLINES: u32 = 60;
/// The least that the grace time is.
const GRACE_AT_LEAST: Duration = DAY;
/// Blobs dealt with at the same time.
const AT_ONCE: usize = 8;
/// Unnamed blobs that a scheduled run condemns although most blobs are unnamed.
const UNNAMED_AT_LEAST: u64 = 100;
/// Missing blobs that a run tells by their keys, at most.
const MISSING_TOLD: usize = 20;

/// Compares the blob store with the index, once a day, a range of keys at a
/// time: condemns blobs that no row names, and tells rows whose blob is missing.
///
/// It walks by the keys, whatever tenants and stores there are. A blob is looked
/// at once it is older than any request can be, but that alone proves nothing:
/// it is condemned under its store's lock, where a row that names it is seen,
/// and a write that comes later is refused and made anew. The job
/// `drain-deletions` removes what was condemned.
///
/// Where most blobs are unnamed, more likely than so many orphans is an index
/// that does not belong to them: one that is new and waits for its backup, or
/// another deployment's. A scheduled run fails then; one by hand goes on.
#[derive(Debug, Clone, Copy)]
pub struct SweepBlobs {
    /// Blobs, and rows, looked at together.
    pub batch: u32,
}

impl Default for SweepBlobs {
    fn default() -> Self {
        Self { batch: 1000 }
    }
}

#[async_trait]
impl Job for SweepBlobs {
    fn name(&self) -> &'static str {
        "sweep-blobs"
    }

    /// Each ten minutes, so that a run that was broken off is soon taken up.
    fn schedule(&self) -> &'static str {
        "30 3/10 * * * *"
    }

    fn period(&self) -> Duration {
        DAY
    }

    fn can_be_dry(&self) -> bool {
        true
    }

    async fn run(&self, engine: &Engine, lease: &Lease<'_>) -> Result<Value, EngineError> {
        let kept = lease.cursor().await?;
        let mut after: Option<BlobKey> = kept.and_then(|text| text.parse().ok());
        let grace = GRACE_AT_LEAST.max(engine.0.request_deadline * GRACE_IN_DEADLINES);
        let mut swept = Swept {
            allowed: self.unnamed_allowed(engine, lease).await?,
            ..Swept::default()
        };
        loop {
            // The rows after the blobs: a write puts its blob first, so that what
            // it wrote meanwhile is no orphan.
            let listed = engine.0.blobs.list(after.as_ref(), self.batch as usize).await?;
            let named = engine.0.index.named_blobs(after.as_ref(), self.batch).await?;
            let end = end_of(&listed, &named, self.batch as usize);
            let range = Range::of(&listed, &named, end);
            swept.blobs += range.blobs;
            swept.named += range.blobs - range.unnamed.len() as u64;
            let old_from = engine.now().minus(grace);
            let old = range.unnamed.iter().filter(|blob| blob.modified_at < old_from);
            swept.old_unnamed += old.count() as u64;
            if swept.looks_foreign() {
                return Err(EngineError::ForeignBlobs);
            }
            swept
                .condemn(engine, &range.unnamed, old_from, lease.dry_run())
                .await?;
            swept.look_for(engine, range.unlisted).await?;
            after = end;
            let cursor = after.map(|key| key.to_string());
            if !lease.renew(cursor.as_deref()).await? || after.is_none() {
                return Ok(swept.counts());
            }
        }
    }
}

/// The last key that both lists reach; `None`: both go to the end.
fn end_of(listed: &[ListedBlob], named: &[NamedBlob], batch: usize) -> Option<BlobKey> {
    let listed_to = listed
        .last()
        .filter(|_| listed.len() >= batch)
        .map(|blob| blob.key);
    let named_to = named.last().filter(|_| named.len() >= batch).map(|row| row.key);
    listed_to.into_iter().chain(named_to).min()
}

/// What differs in a range of keys.
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

/// How many unnamed blobs a run condemns.
#[derive(Debug, Clone, Copy, Default)]
enum Allowed {
    /// The index names no blob at all.
    #[default]
    None,
    /// As many as it met that are named, and a few in any case.
    AsManyAsNamed,
    /// Somebody asked for it.
    All,
}

impl SweepBlobs {
    async fn unnamed_allowed(self, engine: &Engine, lease: &Lease<'_>) -> Result<Allowed, EngineError> {
        if lease.is_manual() {
            return Ok(Allowed::All);
        }
        let is_empty = engine.0.index.named_blobs(None, 1).await?.is_empty();
        Ok(if is_empty {
            Allowed::None
        } else {
            Allowed::AsManyAsNamed
        })
    }
}

/// What a run has found.
#[derive(Debug, Default)]
struct Swept {
    allowed: Allowed,
    blobs: u64,
    named: u64,
    old_unnamed: u64,
    condemned: u64,
    condemned_bytes: u64,
    too_young: u64,
    missing: u64,
    missing_blobs: Vec<BlobKey>,
}

impl Swept {
    fn counts(&self) -> Value {
        json!({
            "blobs": self.blobs,
            "condemned": self.condemned,
            "condemned_bytes": self.condemned_bytes,
            "too_young": self.too_young,
            "missing": self.missing,
            "missing_blobs": self.missing_blobs.iter().map(BlobKey::to_string).collect::<Vec<_>>(),
        })
    }

    /// Whether the index hardly knows the blobs that were met so far.
    fn looks_foreign(&self) -> bool {
        let allowed = match self.allowed {
            Allowed::None => 0,
            Allowed::AsManyAsNamed => self.named.max(UNNAMED_AT_LEAST),
            Allowed::All => u64::MAX,
        };
        self.old_unnamed > allowed
    }

    /// Condemns those of the blobs that are old; a dry run only counts them.
    async fn condemn(
        &mut self,
        engine: &Engine,
        unnamed: &[ListedBlob],
        old_from: Timestamp,
        is_dry: bool,
    ) -> Result<(), EngineError> {
        let (old, young): (Vec<_>, Vec<_>) = unnamed
            .iter()
            .copied()
            .partition(|blob| blob.modified_at < old_from);
        self.too_young += young.len() as u64;
        let condemned: Vec<_> = stream::iter(old)
            .map(|blob| async move {
                let is_condemned = if is_dry {
                    !engine.0.index.blob_is_named(&blob.key).await?
                } else {
                    let from = engine.blobs_go_from(engine.now());
                    engine.0.index.condemn_orphan(&blob.key, from).await?
                };
                Ok::<_, EngineError>(is_condemned.then_some(blob.size_bytes))
            })
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|size_bytes| std::future::ready(Ok(size_bytes)))
            .try_collect()
            .await?;
        self.condemned += condemned.len() as u64;
        self.condemned_bytes += condemned.iter().sum::<u64>();
        Ok(())
    }

    /// Looks again for blobs that were not listed, and for the rows that name
    /// them: either may have come or gone meanwhile.
    async fn look_for(&mut self, engine: &Engine, unlisted: Vec<BlobKey>) -> Result<(), EngineError> {
        let missing: Vec<_> = stream::iter(unlisted)
            .map(|key| async move { Ok::<_, EngineError>(engine.is_missing(&key).await?.then_some(key)) })
            .buffer_unordered(AT_ONCE)
            .try_filter_map(|key| std::future::ready(Ok(key)))
            .try_collect()
            .await?;
        self.missing += missing.len() as u64;
        let room = MISSING_TOLD - self.missing_blobs.len();
        for key in missing.into_iter().take(room) {
            tracing::error!(blob.key = %key, "job.sweep_blobs: the blob of a version is missing");
            self.missing_blobs.push(key);
        }
        Ok(())
    }
}

impl Engine {
    /// Whether a blob is not there and a version names it all the same.
    pub(crate) async fn is_missing(&self, key: &BlobKey) -> Result<bool, EngineError> {
        let is_there = self.0.blobs.get(key).await?.is_some();
        Ok(!is_there && self.0.index.blob_is_named(key).await?)
    }
}
