//! Shared steps of every change of one memory.
//!
//! A change is tried with the head that was read. [`Try`] is the result of one
//! attempt, and [`Writer::conclude`] turns it into the answer for the caller.

use std::sync::Arc;

use keepsake_core::{ContentHash, DirPath, MemoryId, SensitiveDataPolicy, StoreId, Timestamp};
use keepsake_index::{
    Change, Depth, Expiry, FoundMemory, Head, Idempotency, Memory, MemoryItem, MemoryListing, MemoryTarget,
    Pin, PinOutcome,
};

use super::{ShownMemory, View};
use crate::edits::Turn;
use crate::protocol::{Committed, Proposal, Proposed, WriteRefusal};
use crate::{Engine, EngineError, Principal};

/// Data of a memory before a change that its head does not contain.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Past {
    /// `None`: it did not exist.
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) is_pinned: bool,
    pub(crate) last_read_at: Option<Timestamp>,
    pub(crate) active_at: Option<Timestamp>,
}

impl Past {
    pub(crate) const fn of(memory: &Memory) -> Self {
        Self {
            created_at: Some(memory.created_at),
            is_pinned: memory.is_pinned,
            last_read_at: memory.last_read_at,
            active_at: memory.active_at,
        }
    }
}

/// Data of the store that was read together with the memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// The expiry period of its memories.
    expiry: Expiry,
    /// The purge epoch for reading content.
    purge_epoch: i64,
}

impl Seen {
    pub(crate) const fn of(found: &FoundMemory) -> Self {
        Self {
            expiry: found.expiry,
            purge_epoch: found.store.purge_epoch,
        }
    }
}

/// The result of one attempt at a change.
pub(crate) enum Try {
    /// It succeeded; contains the memory as it is now.
    Done(Seen, Box<Memory>),
    /// Something changed since the read: read again.
    Again,
    /// The same call was made before and left this version.
    Replayed(i64),
}

/// The context of one change.
pub(crate) struct Writer<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) principal: &'a Principal,
    pub(crate) store_id: StoreId,
    idempotency: Option<&'a Idempotency>,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(
        engine: &'a Engine,
        principal: &'a Principal,
        store_id: StoreId,
        idempotency: Option<&'a Idempotency>,
    ) -> Self {
        Self {
            engine,
            principal,
            store_id,
            idempotency,
        }
    }

    /// Makes duplicates of an idempotent call in this process wait for the
    /// first.
    pub(crate) async fn turn_of_call(&self) -> Option<Turn> {
        let call = self.idempotency?;
        let name = ContentHash::from(call.scope_sha256).to_string();
        Some(self.turn(&name).await)
    }

    pub(crate) async fn turn(&self, place: &str) -> Turn {
        let place = (self.principal.tenant_id, self.store_id, place.to_owned());
        self.engine.0.edits.turn(place).await
    }

    /// Sets the pin, or only records the call; writes no version.
    pub(crate) async fn pin(
        &self,
        seen: Seen,
        memory: Memory,
        is_pinned: Option<bool>,
    ) -> Result<Try, EngineError> {
        let changes = is_pinned.is_some_and(|is_pinned| is_pinned != memory.is_pinned);
        if !changes && self.idempotency.is_none() {
            return Ok(Try::Done(seen, Box::new(memory)));
        }
        let pin = Pin {
            store_id: self.store_id,
            memory_id: memory.head.memory_id,
            expected: memory.head.version_id,
            is_pinned,
            idempotency: self.idempotency.copied(),
            now: self.engine.now(),
        };
        self.principal.require_writable(self.store_id)?;
        match self
            .engine
            .0
            .index
            .memories
            .pin(self.principal.tenant_id, &pin)
            .await?
        {
            PinOutcome::Done { is_pinned } => {
                let memory = Memory { is_pinned, ..memory };
                Ok(Try::Done(seen, Box::new(memory)))
            }
            PinOutcome::Replayed { seq } => Ok(Try::Replayed(seq)),
            PinOutcome::Stale => Ok(Try::Again),
            PinOutcome::KeyReused => Err(EngineError::KeyReused),
            PinOutcome::Archived => Err(EngineError::StoreArchived),
            PinOutcome::NoStore => Err(EngineError::StoreNotFound),
        }
    }

    /// Reads a memory that must exist.
    pub(crate) async fn live(&self, memory_id: MemoryId) -> Result<(FoundMemory, Memory), EngineError> {
        let mut found = self
            .engine
            .find_memory(self.principal, self.store_id, memory_id)
            .await?;
        match std::mem::replace(&mut found.target, MemoryTarget::Missing) {
            MemoryTarget::Live(memory) => Ok((found, memory)),
            MemoryTarget::Missing | MemoryTarget::Deleted { .. } => Err(EngineError::MemoryNotFound),
        }
    }

    /// The version that an earlier identical call created, if any.
    pub(crate) async fn made_before(&self) -> Result<Option<i64>, EngineError> {
        let first = self.engine.replayed(self.principal, self.idempotency).await?;
        Ok(first.and_then(|first| first.seq))
    }

    pub(crate) async fn commit(
        &self,
        change: Proposed,
        purge_epoch: Option<i64>,
        policy: Option<SensitiveDataPolicy>,
    ) -> Result<Committed, EngineError> {
        let proposal = Proposal {
            store_id: self.store_id,
            changes: vec![change],
            guard: None,
            purge_epoch,
            policy,
            idempotency: self.idempotency.copied(),
        };
        self.engine.commit(self.principal, proposal).await
    }

    /// Converts the result of a commit.
    pub(crate) async fn settle(&self, outcome: Committed, past: Past) -> Result<Try, EngineError> {
        let limits = &self.principal.limits;
        let too_many_bytes = |whose, size_bytes, limit_bytes| {
            Err(EngineError::TooManyBytes {
                whose,
                size_bytes: Some(size_bytes),
                limit_bytes,
            })
        };
        let refusal = match outcome {
            Committed::Replayed { seq } => return Ok(Try::Replayed(seq)),
            Committed::Done {
                seq,
                at,
                purge_epoch,
                expiry,
                made,
            } => {
                let change = made.into_iter().next();
                let memory = change.and_then(|change| after(change, seq, at, past));
                let memory = memory.ok_or(EngineError::Internal("a commit left no memory"))?;
                let seen = Seen { expiry, purge_epoch };
                return Ok(Try::Done(seen, Box::new(memory)));
            }
            Committed::Refused(refusal) => refusal,
        };
        match refusal {
            WriteRefusal::Stale => Ok(Try::Again),
            WriteRefusal::Archived => Err(EngineError::StoreArchived),
            WriteRefusal::PathTaken {
                path,
                memory_id: Some(memory_id),
            } => Err(EngineError::PathConflict {
                why: "another memory stands at the path",
                conflicting_memory_id: Some(memory_id),
                conflicting_path: path,
            }),
            WriteRefusal::PathTaken {
                path,
                memory_id: None,
            } => Err(self.directory_in_the_way(path).await?),
            WriteRefusal::ParentIsFile { file, memory_id } => Err(EngineError::PathConflict {
                why: "a memory stands above the path, which makes it no directory",
                conflicting_memory_id: Some(memory_id),
                conflicting_path: file.as_str().to_owned(),
            }),
            WriteRefusal::TooManyMemories { count } => Err(EngineError::TooManyMemories {
                count,
                limit: limits.memories_per_store,
            }),
            WriteRefusal::StoreFull { size_bytes } => {
                too_many_bytes("the memory store", size_bytes, limits.bytes_per_store)
            }
            WriteRefusal::TenantFull { size_bytes } => {
                too_many_bytes("the workspace", size_bytes, limits.bytes_per_tenant)
            }
        }
    }

    /// A directory has no id, so the error names the first memory below it.
    async fn directory_in_the_way(&self, path: String) -> Result<EngineError, EngineError> {
        let listing = MemoryListing {
            below: DirPath::from_trusted(path.clone()),
            depth: Depth::All,
            after: None,
            limit: 1,
        };
        let tenant_id = self.principal.tenant_id;
        let page = self
            .engine
            .0
            .index
            .memories
            .list(tenant_id, self.store_id, &listing)
            .await?;
        let first = page.and_then(|page| page.items.into_iter().next());
        let (conflicting_memory_id, conflicting_path) = match first {
            Some(MemoryItem::Memory { memory, .. }) => {
                (Some(memory.head.memory_id), memory.head.path.as_str().to_owned())
            }
            Some(MemoryItem::Prefix(_)) | None => (None, path),
        };
        Ok(EngineError::PathConflict {
            why: "the path is a directory, since a memory stands below it",
            conflicting_memory_id,
            conflicting_path,
        })
    }

    /// Builds the answer of a change. When the change was refused, the same
    /// call may have succeeded earlier; then its result is returned.
    pub(crate) async fn conclude(
        &self,
        outcome: Result<Try, EngineError>,
        view: View,
    ) -> Result<ShownMemory, EngineError> {
        let (seen, memory) = match outcome {
            Ok(Try::Done(seen, memory)) => (seen, *memory),
            Ok(Try::Replayed(seq)) => return self.rebuild(seq, view).await,
            Ok(Try::Again) => return Err(EngineError::Contended),
            Err(error) => {
                return match self.made_before().await {
                    Ok(Some(seq)) => self.rebuild(seq, view).await,
                    Ok(None) | Err(_) => Err(error),
                };
            }
        };
        let mut shown = self
            .engine
            .show(self.principal, self.store_id, seen.expiry, memory);
        if view == View::Full {
            shown.content = self.content_left(&shown, seen.purge_epoch).await?;
        }
        Ok(shown)
    }

    /// The content that a committed change wrote, whatever happened to the
    /// memory since; `None`: it was removed.
    async fn content_left(
        &self,
        shown: &ShownMemory,
        purge_epoch: i64,
    ) -> Result<Option<Arc<str>>, EngineError> {
        let (engine, tenant_id, head) = (self.engine, self.principal.tenant_id, &shown.memory.head);
        let content = engine
            .content_of(tenant_id, self.store_id, purge_epoch, head)
            .await?;
        if content.is_some() {
            return Ok(content);
        }
        match engine
            .find_memory(self.principal, self.store_id, head.memory_id)
            .await
        {
            Ok(FoundMemory {
                target: MemoryTarget::Live(memory),
                ..
            }) if memory.head.blob_id == head.blob_id => {
                tracing::error!(
                    tenant.id = %tenant_id, store.id = %self.store_id, memory.id = %head.memory_id,
                    "blob.missing: the index names a blob that the object store does not have"
                );
                Err(EngineError::Damaged("its blob is missing"))
            }
            Ok(_) | Err(EngineError::StoreNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The memory as version `seq` left it, for a repeated call.
    async fn rebuild(&self, seq: i64, view: View) -> Result<ShownMemory, EngineError> {
        let (engine, tenant_id) = (self.engine, self.principal.tenant_id);
        let versions = &engine.0.index.versions;
        let version = versions.find_at(tenant_id, self.store_id, seq).await?;
        let version = version.ok_or(EngineError::MemoryNotFound)?;
        let found = engine
            .find_memory(self.principal, self.store_id, version.memory_id)
            .await?;
        let (live, past) = match found.target {
            MemoryTarget::Missing => return Err(EngineError::MemoryNotFound),
            MemoryTarget::Live(memory) => {
                let past = Past::of(&memory);
                (Some(memory), past)
            }
            MemoryTarget::Deleted {
                created_at,
                is_pinned,
                last_read_at,
                active_at,
                ..
            } => {
                let past = Past {
                    created_at: Some(created_at),
                    is_pinned,
                    last_read_at,
                    active_at,
                };
                (None, past)
            }
        };
        let memory = match (version.path, version.content) {
            (Some(path), Some(content)) => Memory {
                head: Head {
                    memory_id: version.memory_id,
                    path,
                    version_id: version.version_id,
                    seq,
                    blob_id: content.blob_id,
                    size_bytes: content.size_bytes,
                    sha256: content.sha256,
                    claim: None,
                },
                is_pinned: past.is_pinned,
                created_at: past.created_at.unwrap_or(version.created_at),
                updated_at: version.created_at,
                last_read_at: past.last_read_at,
                active_at: past.active_at,
            },
            // Redacted since: return the current memory.
            _ => live.ok_or(EngineError::MemoryNotFound)?,
        };
        let mut shown = engine.show(self.principal, self.store_id, found.expiry, memory);
        if view == View::Full {
            shown.content = self.content_left(&shown, found.store.purge_epoch).await?;
        }
        Ok(shown)
    }
}

/// The memory after a change.
fn after(change: Change, seq: i64, at: Timestamp, past: Past) -> Option<Memory> {
    let after = change.after?;
    Some(Memory {
        head: Head {
            memory_id: change.memory_id,
            path: after.path,
            version_id: change.version_id,
            seq,
            blob_id: after.blob_id,
            size_bytes: after.size_bytes,
            sha256: after.sha256,
            claim: None,
        },
        is_pinned: after.is_pinned.unwrap_or(past.is_pinned),
        created_at: past.created_at.unwrap_or(at),
        updated_at: at,
        last_read_at: past.last_read_at,
        active_at: past.active_at,
    })
}

/// The error of a failed content precondition.
pub(crate) fn content_differs(head: &Head) -> EngineError {
    EngineError::PreconditionFailed {
        why: "the precondition does not hold: the memory has other content than expected",
        memory_id: Some(head.memory_id),
        current_sha256: Some(head.sha256),
    }
}
