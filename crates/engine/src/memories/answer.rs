//! The answer to a change of a memory.

use std::sync::Arc;

use keepsake_core::{StoreId, Timestamp};
use keepsake_index::{FoundMemory, Head, Memory, MemoryTarget};

use super::{ShownMemory, View};
use crate::content::blob_missing;
use crate::write::{Outcome, Written};
use crate::{Engine, EngineError, Principal};

/// Data of a memory before a change that the change does not contain.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// `None`: it did not exist.
    created_at: Option<Timestamp>,
    is_pinned: bool,
    last_read_at: Option<Timestamp>,
    active_at: Option<Timestamp>,
}

impl Past {
    const fn of(target: &MemoryTarget) -> Self {
        let (created_at, is_pinned, last_read_at, active_at) = match *target {
            MemoryTarget::Missing => (None, false, None, None),
            MemoryTarget::Live(Memory {
                created_at,
                is_pinned,
                last_read_at,
                active_at,
                ..
            })
            | MemoryTarget::Deleted {
                created_at,
                is_pinned,
                last_read_at,
                active_at,
                ..
            } => (Some(created_at), is_pinned, last_read_at, active_at),
        };
        Self {
            created_at,
            is_pinned,
            last_read_at,
            active_at,
        }
    }

    /// The memory with this head since `updated_at`.
    fn with(self, head: Head, updated_at: Timestamp) -> Memory {
        Memory {
            head,
            is_pinned: self.is_pinned,
            created_at: self.created_at.unwrap_or(updated_at),
            updated_at,
            last_read_at: self.last_read_at,
            active_at: self.active_at,
        }
    }
}

/// Builds the answer to a change.
pub(super) struct Answer<'a> {
    pub(super) engine: &'a Engine,
    pub(super) principal: &'a Principal,
    pub(super) store_id: StoreId,
    pub(super) view: View,
}

impl Answer<'_> {
    pub(super) async fn to<R>(&self, outcome: Outcome<R>) -> Result<ShownMemory, EngineError>
    where
        R: Into<Option<FoundMemory>>,
    {
        let (expiry, purge_epoch, memory) = match outcome {
            Outcome::Replayed(seq) => return self.rebuild(seq).await,
            Outcome::Written(written, read) => {
                let past = read.into().map(|found| Past::of(&found.target));
                let (expiry, purge_epoch) = (written.expiry, written.purge_epoch);
                let memory = after(*written, past.unwrap_or_default());
                let memory = memory.ok_or(EngineError::Internal("a commit left no memory"))?;
                (expiry, purge_epoch, memory)
            }
            Outcome::Unchanged(memory, read) => {
                let found = read.into();
                let found = found.ok_or(EngineError::Internal("a memory was changed unread"))?;
                (found.expiry, found.store.purge_epoch, memory)
            }
        };
        let shown = self.engine.show(self.principal, self.store_id, expiry, memory);
        self.with_content(shown, purge_epoch).await
    }

    /// Adds the content that a committed change wrote, whatever happened to the memory
    /// since; without content if that was removed.
    async fn with_content(
        &self,
        mut shown: ShownMemory,
        purge_epoch: i64,
    ) -> Result<ShownMemory, EngineError> {
        if self.view == View::Full {
            shown.content = self.content_left(&shown.memory.head, purge_epoch).await?;
        }
        Ok(shown)
    }

    async fn content_left(&self, head: &Head, purge_epoch: i64) -> Result<Option<Arc<str>>, EngineError> {
        let (parts, tenant_id) = (&self.engine.0, self.principal.tenant_id);
        let content = parts
            .contents
            .of_head(tenant_id, self.store_id, purge_epoch, head)
            .await?;
        if content.is_some() {
            return Ok(content);
        }
        match parts.find_memory(tenant_id, self.store_id, head.memory_id).await {
            Ok(FoundMemory {
                target: MemoryTarget::Live(memory),
                ..
            }) if memory.head.blob_id == head.blob_id => {
                Err(blob_missing(tenant_id, self.store_id, head.memory_id))
            }
            Ok(_) | Err(EngineError::StoreNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The memory as version `seq` left it, for a repeated call.
    async fn rebuild(&self, seq: i64) -> Result<ShownMemory, EngineError> {
        let (parts, tenant_id, store_id) = (&self.engine.0, self.principal.tenant_id, self.store_id);
        let version = parts.index.versions.find_at(tenant_id, store_id, seq).await?;
        let version = version.ok_or(EngineError::MemoryNotFound)?;
        let found = parts.find_memory(tenant_id, store_id, version.memory_id).await?;
        if found.target == MemoryTarget::Missing {
            return Err(EngineError::MemoryNotFound);
        }
        let memory = match (version.path, version.content, found.target) {
            (Some(path), Some(content), target) => {
                let head = Head {
                    memory_id: version.memory_id,
                    path,
                    version_id: version.version_id,
                    seq,
                    blob_id: content.blob_id,
                    size_bytes: content.size_bytes,
                    sha256: content.sha256,
                    claim: None,
                };
                Past::of(&target).with(head, version.created_at)
            }
            // Redacted since: return the current memory.
            (_, _, MemoryTarget::Live(memory)) => memory,
            _ => return Err(EngineError::MemoryNotFound),
        };
        let shown = self.engine.show(self.principal, store_id, found.expiry, memory);
        self.with_content(shown, found.store.purge_epoch).await
    }
}

/// The memory after a change of one memory.
fn after(written: Written, past: Past) -> Option<Memory> {
    let change = written.changes.into_iter().next()?;
    let after = change.after?;
    let head = Head {
        memory_id: change.memory_id,
        path: after.path,
        version_id: change.version_id,
        seq: written.seq,
        blob_id: after.blob_id,
        size_bytes: after.size_bytes,
        sha256: after.sha256,
        claim: None,
    };
    let is_pinned = after.is_pinned.unwrap_or(past.is_pinned);
    Some(Past { is_pinned, ..past }.with(head, written.at))
}
