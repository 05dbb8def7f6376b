//! The decisions of the API: the change that a request makes to the state that was read.

use std::sync::Arc;

use keepsake_core::{
    Content, ContentHash, DirPath, MemoryId, MemoryPath, ObjectKind, Refused, Timestamp, VersionId,
};
use keepsake_index::{
    Depth, Expiry, ExpiryChange, FoundMemory, Head, Lookup, Memory, MemoryItem, MemoryListing, MemoryTarget,
    NewContent, Origin, ProposedChange, StoreState, Target,
};

use super::Precondition;
use super::requests::{OnExistingMemory, check_expiry};
use crate::EngineError;
use crate::write::{Change, Decision, Proposal, VersionRead, Write};

/// Creates a memory, or replaces the content of the memory at the path.
pub(super) struct Creation {
    pub(super) path: MemoryPath,
    pub(super) content: Content,
    /// The pin and the expiry time; a new memory starts unpinned and without an expiry
    /// time.
    pub(super) expiry: ExpiryChange,
    pub(super) on_taken: OnExistingMemory,
    /// The hash that the content to replace must have.
    pub(super) expected: Option<ContentHash>,
    pub(super) now: Timestamp,
}

impl Change for Creation {
    /// The memory at the path, read only if the creation may replace the memory.
    type Read = Option<FoundMemory>;
    type Error = EngineError;

    fn locked_path(&self) -> Option<&str> {
        (self.on_taken == OnExistingMemory::Replace).then(|| self.path.as_str())
    }

    async fn read(&self, write: &Write<'_>) -> Result<Option<FoundMemory>, EngineError> {
        if self.on_taken != OnExistingMemory::Replace {
            // The commit checks whether the path is free.
            return Ok(None);
        }
        let Lookup { store, target } = write.look_up(Some(&self.path)).await?;
        Ok(Some(match target {
            Target::Memory(head) => write.memory(head.memory_id).await?,
            Target::Missing | Target::Directory(_) => {
                // Only a memory that is there needs the expiry.
                FoundMemory { store, expiry: Expiry::default(), target: MemoryTarget::Missing }
            }
        }))
    }

    fn decide(&self, read: &Option<FoundMemory>) -> Result<Decision, EngineError> {
        match read {
            None | Some(FoundMemory { target: MemoryTarget::Missing, .. }) => {
                if self.expected.is_some() {
                    return Err(EngineError::PreconditionFailed {
                        why: "the precondition does not hold: no memory exists at `path`",
                        memory_id: None,
                        current_sha256: None,
                    });
                }
                check_expiry(&self.expiry, &self.path, self.now)?;
                let content = NewContent::New(self.content.clone());
                let created = ProposedChange::store(Origin::New, self.path.clone(), content);
                let store = read.as_ref().map(|found| found.store);
                Ok(Decision::change(store, ProposedChange { expiry: self.expiry, ..created }))
            }
            Some(FoundMemory { store, target: MemoryTarget::Live(memory), .. })
                if memory.head.path == self.path =>
            {
                let update = Update {
                    content: Some(self.content.clone()),
                    expiry: self.expiry,
                    precondition: self.expected.map(Precondition::ContentSha256),
                    now: self.now,
                    ..Update::nothing(memory.head.memory_id)
                };
                update.of(*store, memory)
            }
            Some(_) => Ok(Decision::ReadAgain),
        }
    }

    async fn refused(
        &self,
        write: &Write<'_>,
        _: &Option<FoundMemory>,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        match (self.on_taken, &refusal) {
            // Another request created the memory first: replace it.
            (OnExistingMemory::Replace, Refused::PathTaken { path, .. }) if path == self.path.as_str() => {
                Ok(Decision::ReadAgain)
            }
            (
                OnExistingMemory::RefuseAsPrecondition,
                Refused::PathTaken { memory_id: Some(memory_id), .. },
            ) => {
                let current_sha256 = match write.memory(*memory_id).await?.target {
                    MemoryTarget::Live(memory) => Some(memory.head.content.sha256),
                    MemoryTarget::Missing | MemoryTarget::Deleted { .. } => None,
                };
                Err(EngineError::PreconditionFailed {
                    why: "the precondition `not_exists` does not hold: a memory exists at `path`",
                    memory_id: Some(*memory_id),
                    current_sha256,
                })
            }
            _ => Err(with_conflicting_memory(write, refusal).await?.into()),
        }
    }
}

/// Changes a memory's content, path, pin or expiry time, or deletes the memory.
pub(super) struct Update {
    pub(super) memory_id: MemoryId,
    pub(super) is_deletion: bool,
    /// `None`: the content is unchanged.
    pub(super) content: Option<Content>,
    /// `None`: the path is unchanged.
    pub(super) path: Option<MemoryPath>,
    pub(super) expiry: ExpiryChange,
    pub(super) precondition: Option<Precondition>,
    pub(super) now: Timestamp,
}

impl Update {
    /// An update that changes nothing.
    fn nothing(memory_id: MemoryId) -> Self {
        Self {
            memory_id,
            is_deletion: false,
            content: None,
            path: None,
            expiry: ExpiryChange::default(),
            precondition: None,
            now: Timestamp::default(),
        }
    }

    /// With `expected`, the memory's content must have this hash.
    pub(super) fn deletion(memory_id: MemoryId, expected: Option<ContentHash>) -> Self {
        let precondition = expected.map(Precondition::ContentSha256);
        Self { precondition, is_deletion: true, ..Self::nothing(memory_id) }
    }

    fn of(&self, store: StoreState, memory: &Memory) -> Result<Decision, EngineError> {
        let head = &memory.head;
        if store.is_archived && !self.is_deletion {
            return Err(Refused::Archived.into());
        }
        check_expiry(&self.expiry, self.path.as_ref().unwrap_or(&head.path), self.now)?;
        let is_at_path = self.path.as_ref().is_none_or(|path| *path == head.path);
        let keeps_content = self.content.as_ref().is_none_or(|content| content.hash() == head.content.sha256);
        // A retry of an applied update finds every requested value in place.
        let is_applied = is_at_path
            && keeps_content
            && (self.path.is_some() || self.content.is_some())
            && self.expiry.is_applied_to(memory);
        match self.precondition {
            Some(Precondition::ContentSha256(expected)) if expected != head.content.sha256 && !is_applied => {
                return Err(content_differs(head));
            }
            _ if self.is_deletion => {
                return Ok(Decision::change(Some(store), ProposedChange::delete(head.clone())));
            }
            // This memory is already at the path: an earlier call moved it.
            Some(Precondition::NotExists) if is_at_path => return Ok(Decision::pin_unchanged(memory)),
            _ => {}
        }
        let update = ProposedChange {
            from: Origin::Live(head.clone()),
            path: Some(self.path.clone().unwrap_or_else(|| head.path.clone())),
            content: match &self.content {
                // The same content is stored again, because the stored one may be lost. An
                // update that also moves the memory keeps the stored one.
                Some(content) if is_at_path || !keeps_content => NewContent::New(content.clone()),
                _ => NewContent::Kept,
            },
            expiry: self.expiry,
            undoes: None,
        };
        let proposal = Proposal::of(Some(store), update);
        if is_at_path && keeps_content {
            let anew = self.content.is_some().then(|| Box::new(proposal));
            return Ok(Decision::Pin(memory.clone(), self.expiry, anew));
        }
        Ok(Decision::Commit(proposal))
    }
}

impl Change for Update {
    type Read = FoundMemory;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<FoundMemory, EngineError> {
        write.memory(self.memory_id).await
    }

    fn decide(&self, read: &FoundMemory) -> Result<Decision, EngineError> {
        match &read.target {
            MemoryTarget::Live(memory) => self.of(read.store, memory),
            MemoryTarget::Missing | MemoryTarget::Deleted { .. } => {
                Err(EngineError::NotFound(ObjectKind::Memory))
            }
        }
    }

    async fn refused(
        &self,
        write: &Write<'_>,
        read: &FoundMemory,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        refused_move(write, self.precondition, read, refusal).await
    }
}

pub(super) struct VersionRestoration {
    pub(super) version_id: VersionId,
    pub(super) precondition: Option<Precondition>,
    /// Maximum bytes of the content.
    pub(super) limit_bytes: u64,
}

impl Change for VersionRestoration {
    type Read = VersionRead;
    type Error = EngineError;

    async fn read(&self, write: &Write<'_>) -> Result<VersionRead, EngineError> {
        write.version(self.version_id).await
    }

    fn decide(&self, read: &VersionRead) -> Result<Decision, EngineError> {
        let version = &read.version;
        if read.store.is_archived {
            return Err(Refused::Archived.into());
        }
        if version.redacted_at.is_some() {
            return Err(EngineError::Conflict("the version was redacted: there is nothing to restore"));
        }
        let (Some(path), Some(content)) = (&version.path, version.content) else {
            return Err(EngineError::Conflict("the version records a deletion: restore one from before it"));
        };
        let (size_bytes, limit_bytes) = (content.size_bytes, self.limit_bytes);
        if size_bytes > limit_bytes {
            return Err(EngineError::invalid(
                "content",
                format!(
                    "of the version is {size_bytes} bytes, over the limit of {limit_bytes} bytes per memory"
                ),
            ));
        }
        let expected = match self.precondition {
            Some(Precondition::ContentSha256(expected)) => Some(expected),
            Some(Precondition::NotExists) | None => None,
        };
        let from = match &read.found.target {
            MemoryTarget::Missing => return Err(EngineError::NotFound(ObjectKind::Memory)),
            MemoryTarget::Live(memory)
                if memory.head.path == *path && memory.head.content.sha256 == content.sha256 =>
            {
                let anew = read.text.as_ref().map(|text| {
                    let content = NewContent::Restored(content, Arc::clone(text));
                    let restored =
                        ProposedChange::store(Origin::Live(memory.head.clone()), path.clone(), content);
                    Box::new(Proposal::of(Some(read.store), restored))
                });
                return Ok(Decision::Pin(memory.clone(), ExpiryChange::default(), anew));
            }
            MemoryTarget::Live(Memory { head, .. })
                if expected.is_some_and(|hash| hash != head.content.sha256) =>
            {
                return Err(content_differs(head));
            }
            MemoryTarget::Live(memory) => Origin::Live(memory.head.clone()),
            MemoryTarget::Deleted { .. } if expected.is_some() => {
                return Err(EngineError::PreconditionFailed {
                    why: "the precondition does not hold: the memory is deleted and has no content",
                    memory_id: Some(version.memory_id),
                    current_sha256: None,
                });
            }
            MemoryTarget::Deleted { version_id, .. } => Origin::Deleted(version.memory_id, *version_id),
        };
        let Some(text) = &read.text else {
            return Ok(Decision::ReadAgain); // its history was removed meanwhile
        };
        let content = NewContent::Restored(content, text.clone());
        let restored = ProposedChange::store(from, path.clone(), content);
        Ok(Decision::change(Some(read.store), restored))
    }

    async fn refused(
        &self,
        write: &Write<'_>,
        read: &VersionRead,
        refusal: Refused,
    ) -> Result<Decision, EngineError> {
        refused_move(write, self.precondition, &read.found, refusal).await
    }
}

/// With the precondition `not_exists`, a move to a taken path changes nothing.
async fn refused_move(
    write: &Write<'_>,
    precondition: Option<Precondition>,
    read: &FoundMemory,
    refusal: Refused,
) -> Result<Decision, EngineError> {
    match (&refusal, precondition, &read.target) {
        (
            Refused::PathTaken { .. } | Refused::PathIsDirectory { .. },
            Some(Precondition::NotExists),
            MemoryTarget::Live(memory),
        ) => Ok(Decision::pin_unchanged(memory)),
        _ => Err(with_conflicting_memory(write, refusal).await?.into()),
    }
}

/// Adds the memory to a conflict with a directory: a directory has no id, so the first
/// memory below it is named.
pub(super) async fn with_conflicting_memory(
    write: &Write<'_>,
    refusal: Refused,
) -> Result<Refused, EngineError> {
    let Refused::PathIsDirectory { path, .. } = &refusal else {
        return Ok(refusal);
    };
    let below = DirPath::from_trusted(path.clone());
    let listing = MemoryListing { below, depth: Depth::All, after: None, limit: 1 };
    let (index, tenant_id) = (&write.context().index, write.principal.tenant_id);
    let page = index.memories.list(tenant_id, write.store_id, &listing).await?;
    Ok(match page.and_then(|page| page.items.into_iter().next()) {
        Some(MemoryItem::Memory((memory, _))) => Refused::PathIsDirectory {
            path: memory.head.path.as_str().to_owned(),
            memory_id: Some(memory.head.memory_id),
        },
        Some(MemoryItem::Prefix(_)) | None => refusal,
    })
}

fn content_differs(head: &Head) -> EngineError {
    EngineError::PreconditionFailed {
        why: "the precondition does not hold: the memory has other content than expected",
        memory_id: Some(head.memory_id),
        current_sha256: Some(head.content.sha256),
    }
}
