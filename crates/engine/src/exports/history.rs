//! The history of a store, as it was when the memories were listed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use keepsake_archive::format::Counts;
use keepsake_core::{ContentHash, StoreId, TenantId, VersionId};
use keepsake_index::{ChangePage, Version};

use super::left_out::Omissions;
use super::listing::{ListedMemory, PAGE};
use super::packing::{ArchivePacker, ExportAbort};
use crate::EngineError;
use crate::content::Contents;
use crate::context::Context;

/// Memory of a content that only the history has.
const PAST_CONTENT_BYTES: usize = 128;

pub(super) const fn history_removed() -> EngineError {
    EngineError::Conflict("a version was removed during the export")
}

pub(super) struct History {
    pub(super) context: Arc<Context>,
    pub(super) contents: Arc<Contents>,
    pub(super) tenant_id: TenantId,
    pub(super) store_id: StoreId,
    /// The sequence number of the last version when the memories were listed.
    pub(super) last_seq: i64,
    /// The number of removals of the store's history when the listed versions were last known to
    /// exist.
    pub(super) purge_epoch: i64,
}

impl History {
    async fn changes(&self, after: i64) -> Result<ChangePage, EngineError> {
        self.context.changes_after(self.tenant_id, self.store_id, after, PAGE).await
    }

    /// The content of a version that was listed.
    pub(super) async fn content(
        &self,
        version_id: VersionId,
        sha256: ContentHash,
    ) -> Result<Arc<str>, EngineError> {
        let (tenant_id, store_id) = (self.tenant_id, self.store_id);
        let (store, version) = self.context.find_version(tenant_id, store_id, version_id).await?;
        let content = self.contents.of_version(tenant_id, store_id, store.purge_epoch, &version).await?;
        let is_same = version.content.is_some_and(|content| content.sha256 == sha256);
        content.filter(|_| is_same).ok_or_else(history_removed)
    }

    /// Breaks the export off if a listed version was redacted or removed since the listing.
    pub(super) async fn require_listed(
        &mut self,
        memories: &[ListedMemory],
        packing: &mut ArchivePacker,
    ) -> Result<(), ExportAbort> {
        let newest = self.changes(i64::MAX).await?;
        if newest.purge_epoch == self.purge_epoch {
            return Ok(());
        }
        for memory in memories {
            let slot = packing.slot().await?;
            let found = self.context.find_version(self.tenant_id, self.store_id, memory.version_id);
            if found.await?.1.content.is_none() {
                return Err(history_removed().into());
            }
            drop(slot);
            packing.flush().await?;
        }
        self.purge_epoch = newest.purge_epoch;
        Ok(())
    }

    /// The contents that only the history has, each with a version that has it. Counts the
    /// versions.
    pub(super) async fn past_contents(
        &self,
        current: &HashSet<ContentHash>,
        left_out: &Omissions,
        counts: &mut Counts,
        packing: &mut ArchivePacker,
    ) -> Result<BTreeMap<[u8; 32], VersionId>, ExportAbort> {
        let (mut past, mut after) = (BTreeMap::new(), 0);
        loop {
            let slot = packing.slot().await?;
            let Some(versions) = self.versions_after(&mut after).await? else {
                return Ok(past);
            };
            for version in versions {
                if left_out.memories.contains(&version.memory_id) {
                    continue;
                }
                counts.versions += 1;
                let Some(content) = version.content.filter(|content| !current.contains(&content.sha256))
                else {
                    continue;
                };
                if past.insert(*content.sha256.as_bytes(), version.version_id).is_none() {
                    packing.charge(PAST_CONTENT_BYTES)?;
                }
            }
            drop(slot);
            packing.flush().await?;
        }
    }

    /// A page of the archive's versions after a sequence number, which becomes that of the last
    /// one.
    pub(super) async fn versions_after(&self, after: &mut i64) -> Result<Option<Vec<Version>>, EngineError> {
        let page = self.changes(*after).await?;
        if page.purge_epoch != self.purge_epoch {
            return Err(history_removed());
        }
        let is_listed = |version: &&Version| version.seq <= self.last_seq;
        let versions: Vec<_> = page.versions.iter().filter(is_listed).cloned().collect();
        Ok(versions.last().map(|last| last.seq).map(|seq| {
            *after = seq;
            versions
        }))
    }
}
