//! The answer to a change of a memory.

use std::sync::Arc;

use keepsake_core::{ObjectKind, StoreId, Timestamp};
use keepsake_index::{CommitChange, FoundMemory, Head, Memory, MemoryTarget};

use super::reader::Reader;
use super::{ShownMemory, View};
use crate::content::{ContentLoss, missing};
use crate::write::{WriteResult, WrittenChanges};
use crate::{EngineError, Principal};

/// The memory with this head since `updated_at`. `before` is the memory as it was read before
/// the change; `None`: it was not read.
fn memory_since(before: Option<&MemoryTarget>, head: Head, updated_at: Timestamp) -> Memory {
    let new = Memory {
        head,
        is_pinned: false,
        expires_at: None,
        created_at: updated_at,
        updated_at,
        last_read_at: None,
        active_at: None,
    };
    match before {
        None | Some(MemoryTarget::Missing) => new,
        Some(&MemoryTarget::Live(Memory {
            is_pinned,
            expires_at,
            created_at,
            last_read_at,
            active_at,
            ..
        })) => Memory { is_pinned, expires_at, created_at, last_read_at, active_at, ..new },
        Some(&MemoryTarget::Deleted { is_pinned, created_at, last_read_at, active_at, .. }) => {
            Memory { is_pinned, created_at, last_read_at, active_at, ..new }
        }
    }
}

pub(super) struct Answer<'a> {
    pub(super) reader: &'a Reader,
    pub(super) principal: &'a Principal,
    pub(super) store_id: StoreId,
    pub(super) view: View,
}

impl Answer<'_> {
    /// `found` is the memory as it was read before the change.
    pub(super) async fn to(
        &self,
        outcome: WriteResult,
        found: Option<FoundMemory>,
    ) -> Result<ShownMemory, EngineError> {
        let (mut is_use, mut is_read) = (false, false);
        let (expiry, purge_epoch, memory) = match outcome {
            WriteResult::Replayed(seq) => return self.rebuild(seq).await,
            WriteResult::Written(written) => {
                let before = found.map(|found| found.target);
                let (expiry, purge_epoch) = (written.expiry, written.purge_epoch);
                let version = written.versions().next();
                let memory = version.and_then(|version| written.memory(version, before.as_ref()));
                let memory = memory.ok_or(EngineError::Internal("a commit left no memory"))?;
                (expiry, purge_epoch, memory)
            }
            WriteResult::Nothing | WriteResult::Same(..) => {
                return Err(EngineError::Internal("one memory's change did nothing"));
            }
            WriteResult::Unchanged { memory, is_use: brings_content } => {
                let found = found.ok_or(EngineError::Internal("a memory was changed unread"))?;
                is_use = brings_content;
                is_read = !is_use;
                (found.expiry, found.store.purge_epoch, *memory)
            }
        };
        let shown = self.reader.show(self.principal, self.store_id, expiry, memory);
        if is_use {
            self.reader.note_use(self.principal, &shown);
        }
        let shown = self.with_content(shown, purge_epoch).await?;
        if is_read {
            self.record(&shown);
        }
        Ok(shown)
    }

    /// Records the content of a call that neither brought it nor made the version as a read. It is
    /// no use of the memory.
    fn record(&self, shown: &ShownMemory) {
        if shown.content.is_some() {
            let version_id = shown.memory.head.version_id;
            self.reader.access.record_version(self.principal, self.store_id, version_id);
        }
    }

    /// Adds the content that a committed change wrote, whatever happened to the memory
    /// since; without content if the content was removed.
    async fn with_content(
        &self,
        mut shown: ShownMemory,
        purge_epoch: i64,
    ) -> Result<ShownMemory, EngineError> {
        if self.view == View::Full {
            match self.content_left(&shown.memory.head, purge_epoch).await {
                Ok(content) => shown.content = content,
                // The change was committed, so a lost content is no error.
                Err(error) => shown.lost = Some(ContentLoss::of(error)?),
            }
        }
        Ok(shown)
    }

    async fn content_left(&self, head: &Head, purge_epoch: i64) -> Result<Option<Arc<str>>, EngineError> {
        let (reader, tenant_id) = (self.reader, self.principal.tenant_id);
        let content = reader.contents.of_head(tenant_id, self.store_id, purge_epoch, head).await?;
        if content.is_some() {
            return Ok(content);
        }
        match reader.context.find_memory(tenant_id, self.store_id, head.memory_id).await {
            Ok(FoundMemory { target: MemoryTarget::Live(memory), .. })
                if memory.head.content.blob_id == head.content.blob_id =>
            {
                Err(missing(tenant_id, self.store_id, head))
            }
            Ok(_) | Err(EngineError::NotFound(ObjectKind::Store)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The memory as version `seq` left it, for a repeated call.
    pub(super) async fn rebuild(&self, seq: i64) -> Result<ShownMemory, EngineError> {
        let (reader, tenant_id, store_id) = (self.reader, self.principal.tenant_id, self.store_id);
        let version = reader.context.index.versions.find_at(tenant_id, store_id, seq).await?;
        let version = version.ok_or(EngineError::NotFound(ObjectKind::Memory))?;
        let found = reader.context.find_memory(tenant_id, store_id, version.memory_id).await?;
        if found.target == MemoryTarget::Missing {
            return Err(EngineError::NotFound(ObjectKind::Memory));
        }
        let is_own = version.content.is_some() && version.created_by.as_ref() == self.principal.actor();
        let memory = match (version.path, version.content, found.target) {
            (Some(path), Some(content), target) => {
                let head = Head {
                    memory_id: version.memory_id,
                    path,
                    version_id: version.version_id,
                    seq,
                    content,
                    claim: None,
                };
                memory_since(Some(&target), head, version.created_at)
            }
            // The version was redacted since: return the current memory.
            (_, _, MemoryTarget::Live(memory)) => memory,
            _ => return Err(EngineError::NotFound(ObjectKind::Memory)),
        };
        let shown = self.reader.show(self.principal, store_id, found.expiry, memory);
        let shown = self.with_content(shown, found.store.purge_epoch).await?;
        if !is_own {
            self.record(&shown);
        }
        Ok(shown)
    }
}

impl WrittenChanges {
    /// The changes with the sequence numbers of their versions.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&CommitChange, i64)> {
        let first = self.seq - i64::try_from(self.changes.len()).unwrap_or_default() + 1;
        self.changes.iter().zip(first..)
    }

    /// The memory as a change left it; `None`: the change deleted the memory.
    pub(super) fn memory(
        &self,
        (change, seq): (&CommitChange, i64),
        before: Option<&MemoryTarget>,
    ) -> Option<Memory> {
        let memory = memory_since(before, change.head(seq)?, self.at);
        Some(change.wanted.expiry.applied_to(memory))
    }
}
