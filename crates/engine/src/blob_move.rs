//! Moves content between the index and an object store.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use keepsake_blobs::{BlobError, BlobStore, ListedBlob};
use keepsake_core::{ContentHash, TenantId, Timestamp};
use keepsake_index::{Index, NamedBlob};

use crate::{EngineError, IndexBlobs, Problem};

/// Blobs per page of a listing.
const BATCH: u32 = 500;

/// Moves content from one place to another.
///
/// First it copies every content that a version names and compares each copy with the
/// hash in the index; then it removes the originals. It may be stopped at any time and
/// run again: copies that are there are only compared.
#[derive(Debug)]
pub struct BlobMove {
    index: Index,
    from: Arc<dyn BlobStore>,
    to: Arc<dyn BlobStore>,
}

/// What a move did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// Contents that were copied.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Contents that were there already.
    pub present: u64,
    /// Originals that were removed, and leftovers of deleted content in both places.
    pub removed: u64,
    /// Objects that belong to no tenant of this index; they are kept.
    pub foreign: u64,
    /// Contents that are missing or damaged. Then nothing was removed.
    pub problems: Vec<Problem>,
}

enum Copied {
    Now(u64),
    Before,
    /// Its versions were removed meanwhile.
    Unneeded,
    Problem(Problem),
}

impl BlobMove {
    /// A move between two places; `None` is the index.
    pub fn new(index: Index, from: Option<Arc<dyn BlobStore>>, to: Option<Arc<dyn BlobStore>>) -> Self {
        let in_index: Arc<dyn BlobStore> = Arc::new(IndexBlobs::new(index.clone()));
        Self {
            from: from.unwrap_or_else(|| Arc::clone(&in_index)),
            to: to.unwrap_or(in_index),
            index,
        }
    }

    /// Whether a server or worker uses the index at `now`.
    ///
    /// # Errors
    /// [`EngineError::Index`].
    pub async fn is_served(&self, now: Timestamp) -> Result<bool, EngineError> {
        Ok(self.index.replicas.live(now).await? > 0)
    }

    /// Copies the contents that the target lacks, `at_once` at the same time, and calls
    /// `progress` with the counts so far.
    ///
    /// # Errors
    /// [`EngineError`] if one of the stores fails.
    pub async fn copy(
        &self,
        at_once: usize,
        moved: &mut Moved,
        mut progress: impl FnMut(&Moved) + Send,
    ) -> Result<(), EngineError> {
        let mut after = None;
        loop {
            let rows = self.index.upkeep.named_blobs(after.as_ref(), BATCH).await?;
            let Some(last) = rows.last() else {
                return Ok(());
            };
            after = Some(last.key);
            let first_of_key = rows.chunk_by(|one, other| one.key == other.key);
            let first_of_key = first_of_key.filter_map(|rows| rows.first());
            let wanted: Vec<_> = first_of_key.filter(|row| row.is_live).copied().collect();
            let mut copies = stream::iter(wanted)
                .map(|row| async move { self.copy_one(&row).await })
                .buffer_unordered(at_once);
            while let Some(copied) = copies.try_next().await? {
                match copied {
                    Copied::Now(bytes) => {
                        moved.copied += 1;
                        moved.copied_bytes += bytes;
                    }
                    Copied::Before => moved.present += 1,
                    Copied::Unneeded => {}
                    Copied::Problem(problem) => moved.problems.push(problem),
                }
                progress(moved);
            }
        }
    }

    async fn copy_one(&self, row: &NamedBlob) -> Result<Copied, EngineError> {
        let key = row.key;
        if matches!(read(&*self.to, row).await?, Read::AsRecorded(_)) {
            return Ok(Copied::Before);
        }
        let bytes = match read(&*self.from, row).await? {
            Read::AsRecorded(bytes) => bytes,
            other => return self.not_copied(row, &other).await,
        };
        // A damaged copy would not be overwritten.
        self.to.delete(&key).await?;
        self.to.put(&key, bytes).await?;
        match read(&*self.to, row).await? {
            Read::AsRecorded(_) => Ok(Copied::Now(row.size_bytes)),
            other => self.not_copied(row, &other).await,
        }
    }

    async fn not_copied(&self, row: &NamedBlob, read: &Read) -> Result<Copied, EngineError> {
        let key = row.key;
        if !self.index.upkeep.blob_is_named(&key).await? {
            return Ok(Copied::Unneeded);
        }
        Ok(Copied::Problem(match *read {
            Read::Damaged { found_bytes } => Problem::DamagedBlob {
                key,
                expected_bytes: row.size_bytes,
                found_bytes,
            },
            Read::Missing | Read::AsRecorded(_) => Problem::MissingBlob { key },
        }))
    }

    /// Removes the originals of copied content, with their object versions, and the
    /// leftovers of deleted content in both places. No server may run.
    ///
    /// # Errors
    /// [`EngineError`] if one of the stores fails.
    pub async fn remove_originals(
        &self,
        moved: &mut Moved,
        mut progress: impl FnMut(&Moved) + Send,
    ) -> Result<(), EngineError> {
        let mut tenants = HashMap::new();
        for (store, has_originals) in [(&self.from, true), (&self.to, false)] {
            let mut after = None;
            loop {
                let listed = store.list(None, after.as_ref(), BATCH as usize).await?;
                let Some(last) = listed.last() else {
                    break;
                };
                after = Some(last.key);
                for ListedBlob { key, .. } in listed {
                    if self.index.upkeep.blob_is_named(&key).await? {
                        if !has_originals {
                            continue;
                        }
                        if !self.to.contains(&key).await? {
                            moved.problems.push(Problem::MissingBlob { key });
                            continue;
                        }
                    } else if !self.has_tenant(key.tenant_id, &mut tenants).await? {
                        moved.foreign += 1;
                        continue;
                    }
                    store.erase(&key).await?;
                    moved.removed += 1;
                    progress(moved);
                }
            }
        }
        Ok(())
    }

    async fn has_tenant(
        &self,
        tenant_id: TenantId,
        known: &mut HashMap<TenantId, bool>,
    ) -> Result<bool, EngineError> {
        if let Some(is_there) = known.get(&tenant_id) {
            return Ok(*is_there);
        }
        let is_there = self.index.tenants.find(tenant_id).await?.is_some();
        known.insert(tenant_id, is_there);
        Ok(is_there)
    }
}

enum Read {
    AsRecorded(Bytes),
    Damaged { found_bytes: u64 },
    Missing,
}

/// Reads a content and compares it with its row.
async fn read(store: &dyn BlobStore, row: &NamedBlob) -> Result<Read, EngineError> {
    match store.get(&row.key, row.size_bytes).await {
        Ok(Some(bytes)) if row.sha256 == Some(ContentHash::of(&bytes)) => Ok(Read::AsRecorded(bytes)),
        Ok(Some(bytes)) => Ok(Read::Damaged {
            found_bytes: bytes.len() as u64,
        }),
        Ok(None) => Ok(Read::Missing),
        Err(BlobError::TooLarge { found_bytes, .. }) => Ok(Read::Damaged { found_bytes }),
        Err(error) => Err(error.into()),
    }
}
