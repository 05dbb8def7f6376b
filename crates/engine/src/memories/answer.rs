//! The answer to a change of a memory.

use std::sync::Arc;

use keepsake_core::{StoreId, Timestamp};
use keepsake_index::{Change, ExpiresAt, FoundMemory, Head, Memory, MemoryTarget};

use super::reader::Reader;
use super::{ShownMemory, View};
use crate::content::{ContentLoss, missing};
use crate::context::Context;
use crate::write::{Outcome, Written};
use crate::{EngineError, Principal};

/// Data of a memory before a change that the change does not contain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Past {
    /// `None`: the memory did not exist.
    created_at: Option<Timestamp>,
    is_pinned: bool,
    expires_at: Option<Timestamp>,
    last_read_at: Option<Timestamp>,
    active_at: Option<Timestamp>,
}

impl Past {
    pub(super) const fn of(target: &MemoryTarget) -> Self {
        match *target {
            MemoryTarget::Missing => Self {
                created_at: None,
                is_pinned: false,
                expires_at: None,
                last_read_at: None,
                active_at: None,
            },
            MemoryTarget::Live(Memory {
                created_at, is_pinned, expires_at, last_read_at, active_at, ..
            }) => Self { created_at: Some(created_at), is_pinned, expires_at, last_read_at, active_at },
            MemoryTarget::Deleted { created_at, is_pinned, last_read_at, active_at, .. } => {
                Self { created_at: Some(created_at), is_pinned, expires_at: None, last_read_at, active_at }
            }
        }
    }

    /// The memory with this head since `updated_at`.
    fn with(self, head: Head, updated_at: Timestamp) -> Memory {
        Memory {
            head,
            is_pinned: self.is_pinned,
            expires_at: self.expires_at,
            created_at: self.created_at.unwrap_or(updated_at),
            updated_at,
            last_read_at: self.last_read_at,
            active_at: self.active_at,
        }
    }
}

pub(super) struct Answer<'a> {
    pub(super) context: &'a Context,
    pub(super) reader: &'a Reader,
    pub(super) principal: &'a Principal,
    pub(super) store_id: StoreId,
    pub(super) view: View,
}

impl Answer<'_> {
    pub(super) async fn to<R>(&self, outcome: Outcome<R>) -> Result<ShownMemory, EngineError>
    where
        R: Into<Option<FoundMemory>>,
    {
        let mut is_use = false;
        let (expiry, purge_epoch, memory) = match outcome {
            Outcome::Replayed(seq) => return self.rebuild(seq).await,
            Outcome::Written(written, read) => {
                let past = read.into().map(|found| Past::of(&found.target));
                let (expiry, purge_epoch) = (written.expiry, written.purge_epoch);
                let memory =
                    written.versions().next().and_then(|version| version.leaves(past.unwrap_or_default()));
                let memory = memory.ok_or(EngineError::Internal("a commit left no memory"))?;
                (expiry, purge_epoch, memory)
            }
            Outcome::Nothing(_) | Outcome::Same(..) => {
                return Err(EngineError::Internal("one memory's change did nothing"));
            }
            Outcome::Unchanged(unchanged, read) => {
                let found = read.into();
                let found = found.ok_or(EngineError::Internal("a memory was changed unread"))?;
                is_use = unchanged.is_use;
                (found.expiry, found.store.purge_epoch, unchanged.memory)
            }
        };
        let shown = self.reader.show(self.principal, self.store_id, expiry, memory);
        if is_use {
            self.reader.note_use(self.principal, &shown);
        }
        self.with_content(shown, purge_epoch).await
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
                Err(error) => match ContentLoss::of(&error) {
                    Some(loss) => shown.lost = Some(loss),
                    None => return Err(error),
                },
            }
        }
        Ok(shown)
    }

    async fn content_left(&self, head: &Head, purge_epoch: i64) -> Result<Option<Arc<str>>, EngineError> {
        let (shared, tenant_id) = (self.context, self.principal.tenant_id);
        let contents = &self.reader.contents;
        let content = contents.of_head(tenant_id, self.store_id, purge_epoch, head).await?;
        if content.is_some() {
            return Ok(content);
        }
        match shared.find_memory(tenant_id, self.store_id, head.memory_id).await {
            Ok(FoundMemory { target: MemoryTarget::Live(memory), .. })
                if memory.head.blob_id == head.blob_id =>
            {
                Err(missing(tenant_id, self.store_id, head))
            }
            Ok(_) | Err(EngineError::StoreNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The memory as version `seq` left it, for a repeated call.
    pub(super) async fn rebuild(&self, seq: i64) -> Result<ShownMemory, EngineError> {
        let (shared, tenant_id, store_id) = (self.context, self.principal.tenant_id, self.store_id);
        let version = shared.index.versions.find_at(tenant_id, store_id, seq).await?;
        let version = version.ok_or(EngineError::MemoryNotFound)?;
        let found = shared.find_memory(tenant_id, store_id, version.memory_id).await?;
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
            // The version was redacted since: return the current memory.
            (_, _, MemoryTarget::Live(memory)) => memory,
            _ => return Err(EngineError::MemoryNotFound),
        };
        let shown = self.reader.show(self.principal, store_id, found.expiry, memory);
        self.with_content(shown, found.store.purge_epoch).await
    }
}

pub(super) struct NewVersion<'a> {
    pub(super) change: &'a Change,
    seq: i64,
    at: Timestamp,
}

impl Written {
    /// In the order of the changes.
    pub(super) fn versions(&self) -> impl Iterator<Item = NewVersion<'_>> {
        let first = self.seq - i64::try_from(self.changes.len()).unwrap_or_default() + 1;
        let at = self.at;
        let numbered = self.changes.iter().zip(first..);
        numbered.map(move |(change, seq)| NewVersion { change, seq, at })
    }
}

impl NewVersion<'_> {
    /// The memory since this version; `None`: the version deleted the memory.
    pub(super) fn leaves(&self, past: Past) -> Option<Memory> {
        let after = self.change.after.as_ref()?;
        let head = Head {
            memory_id: self.change.memory_id,
            path: after.path.clone(),
            version_id: self.change.version_id,
            seq: self.seq,
            blob_id: after.blob_id,
            size_bytes: after.size_bytes,
            sha256: after.sha256,
            claim: None,
        };
        let past = Past {
            is_pinned: after.expiry.is_pinned.unwrap_or(past.is_pinned),
            expires_at: after.expiry.expires_at.map_or(past.expires_at, ExpiresAt::time),
            ..past
        };
        Some(past.with(head, self.at))
    }
}
