//! Making, changing and deleting memories by their ids.
//!
//! Each reads what is there, decides, and commits with the head it read; a
//! commit that lost a race starts over from a fresh read. A precondition is
//! held against each read, so it never passes by being tried again.

use std::sync::Arc;

use keepsake_core::{Content, ContentHash, MemoryId, MemoryPath, StoreId, Timestamp};
use keepsake_index::{
    Change, Depth, Expiry, FoundMemory, Head, Idempotency, Memory, MemoryItem, MemoryListing, MemoryTarget,
    Pin, PinOutcome, Scope, Target,
};

use super::{ShownMemory, View};
use crate::claims::Patience;
use crate::edits::Turn;
use crate::protocol::{CAS_ATTEMPTS, Committed, Proposal, Proposed, WriteRefusal};
use crate::{Engine, EngineError, Principal};

/// A memory to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemory {
    /// Where it is to stand.
    pub path: String,
    /// What it is to hold.
    pub content: String,
    /// What to do when a memory stands there.
    pub on_taken: OnTaken,
    /// Whether the answer has the content.
    pub view: View,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
}

/// What making a memory does at a path that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTaken {
    /// Refuses, naming the memory in the way.
    Refuse,
    /// Refuses as a precondition that does not hold.
    RefuseAsPrecondition,
    /// Replaces the content of the memory there.
    Replace,
}

/// How a memory is to change; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEdit {
    /// What it is to hold.
    pub content: Option<String>,
    /// Where it is to stand.
    pub path: Option<String>,
    /// Whether it is never to expire.
    pub pinned: Option<bool>,
    /// What must be so for the change to be made.
    pub precondition: Option<Precondition>,
    /// Whether the answer has the content.
    pub view: View,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
}

/// What must be so for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The memory holds content of this hash.
    ContentSha256(ContentHash),
    /// Nothing stands at the new path.
    NotExists,
}

/// A [`MemoryEdit`] that has passed the rules.
struct Edit {
    content: Option<Content>,
    path: Option<MemoryPath>,
    pinned: Option<bool>,
    precondition: Option<Precondition>,
}

/// What is known of a memory before a change that its head does not tell.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Past {
    expiry: Expiry,
    /// `None`: it was never there.
    created_at: Option<Timestamp>,
    is_pinned: bool,
    last_read_at: Option<Timestamp>,
    active_at: Option<Timestamp>,
}

impl Past {
    pub(crate) const fn of(expiry: Expiry, memory: &Memory) -> Self {
        Self {
            expiry,
            created_at: Some(memory.created_at),
            is_pinned: memory.is_pinned,
            last_read_at: memory.last_read_at,
            active_at: memory.active_at,
        }
    }

    pub(crate) const fn deleted(expiry: Expiry, created_at: Timestamp, is_pinned: bool) -> Self {
        Self {
            expiry,
            created_at: Some(created_at),
            is_pinned,
            last_read_at: None,
            active_at: None,
        }
    }
}

/// How one try of a change ended.
pub(crate) enum Try {
    /// The memory as it is now.
    Done(Expiry, Box<Memory>),
    /// Something changed since the read: read again.
    Again,
    /// The same call made or left this version.
    Replayed(i64),
}

impl Engine {
    /// Makes a memory, or replaces the content of the one at the path.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::PathConflict`],
    /// [`EngineError::PreconditionFailed`], [`EngineError::StoreArchived`],
    /// the limits, [`EngineError::StoreNotFound`],
    /// [`EngineError::PermissionDenied`], [`EngineError::KeyReused`]. After a
    /// failure of the index the memory may have been made.
    pub async fn create_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        new: NewMemory,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_write(new.view)?;
        principal.require_store(store_id)?;
        let path = parse_path(&new.path)?;
        let content = parse_content(principal, new.content)?;
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, new.idempotency.as_ref());
            let _turn = writer.turn_of_call().await;
            let outcome = writer.create(&path, &content, new.on_taken).await;
            writer.conclude(outcome, new.view).await
        })
        .await
    }

    /// Changes a memory's content, path or pin, in one version at most.
    ///
    /// A change that changes nothing writes no version.
    ///
    /// # Errors
    /// As [`Engine::create_memory`], and [`EngineError::MemoryNotFound`],
    /// [`EngineError::Contended`].
    pub async fn update_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        edit: MemoryEdit,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_write(edit.view)?;
        principal.require_store(store_id)?;
        let (view, idempotency) = (edit.view, edit.idempotency);
        let edit = Edit {
            path: edit.path.as_deref().map(parse_path).transpose()?,
            content: edit
                .content
                .map(|content| parse_content(principal, content))
                .transpose()?,
            pinned: edit.pinned,
            precondition: edit.precondition,
        };
        if edit.precondition == Some(Precondition::NotExists) && edit.path.is_none() {
            return Err(EngineError::Invalid {
                field: "precondition",
                rule: "of type `not_exists` is about a new path: send `path` with it".to_owned(),
            });
        }
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, idempotency.as_ref());
            let _turn = writer.turn_of_call().await;
            let outcome = writer.update(memory_id, &edit).await;
            writer.conclude(outcome, view).await
        })
        .await
    }

    /// Deletes a memory; its versions stay.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`] when it does not hold content of the
    /// hash expected, [`EngineError::MemoryNotFound`],
    /// [`EngineError::StoreNotFound`], [`EngineError::PermissionDenied`],
    /// [`EngineError::Contended`]. After a failure of the index it may have
    /// been deleted.
    pub async fn delete_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        expected: Option<ContentHash>,
    ) -> Result<(), EngineError> {
        principal.require(Scope::MemoryWrite)?;
        principal.require_store(store_id)?;
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, None);
            writer.delete(memory_id, expected).await
        })
        .await
    }
}

impl Principal {
    /// Checks that it may write, and read what the answer shows.
    pub(crate) fn require_write(&self, view: View) -> Result<(), EngineError> {
        self.require(Scope::MemoryWrite)?;
        match view {
            View::Basic => Ok(()),
            View::Full => self.require(Scope::MemoryRead),
        }
    }
}

pub(crate) fn parse_path(path: &str) -> Result<MemoryPath, EngineError> {
    MemoryPath::parse(path).map_err(|rule| EngineError::Invalid {
        field: "path",
        rule: rule.to_string(),
    })
}

fn parse_content(principal: &Principal, text: String) -> Result<Content, EngineError> {
    Content::new(text, principal.limits.bytes_per_memory).map_err(|rule| EngineError::Invalid {
        field: "content",
        rule: rule.to_string(),
    })
}

/// One change's surroundings.
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

    /// Lets duplicates of an idempotent call in this process wait for the first.
    pub(crate) async fn turn_of_call(&self) -> Option<Turn> {
        let call = self.idempotency?;
        let name = ContentHash::from(call.scope_sha256).to_string();
        Some(self.turn(&name).await)
    }

    pub(crate) async fn turn(&self, place: &str) -> Turn {
        let place = (self.principal.tenant_id, self.store_id, place.to_owned());
        self.engine.0.edits.turn(place).await
    }

    async fn create(
        &self,
        path: &MemoryPath,
        content: &Content,
        on_taken: OnTaken,
    ) -> Result<Try, EngineError> {
        if let Some(seq) = self.made_before().await? {
            return Ok(Try::Replayed(seq));
        }
        for _ in 0..CAS_ATTEMPTS {
            let tried = match on_taken {
                OnTaken::Replace => self.create_or_replace(path, content).await?,
                OnTaken::Refuse | OnTaken::RefuseAsPrecondition => {
                    self.create_only(path, content, on_taken).await?
                }
            };
            match tried {
                Try::Again => {}
                done => return Ok(done),
            }
        }
        Err(EngineError::Contended)
    }

    async fn create_only(
        &self,
        path: &MemoryPath,
        content: &Content,
        on_taken: OnTaken,
    ) -> Result<Try, EngineError> {
        // No read first: that the path is free is the commit's to find out.
        let change = Proposed::Create {
            path: path.clone(),
            content: content.clone(),
        };
        match self.commit(change, None).await? {
            Committed::Refused(WriteRefusal::PathTaken {
                memory_id: Some(memory_id),
                ..
            }) if on_taken == OnTaken::RefuseAsPrecondition => {
                let found = self
                    .engine
                    .find_memory(self.principal, self.store_id, memory_id)
                    .await?;
                let current_sha256 = match found.target {
                    MemoryTarget::Live(memory) => Some(memory.head.sha256),
                    MemoryTarget::Missing | MemoryTarget::Deleted { .. } => None,
                };
                Err(EngineError::PreconditionFailed {
                    why: "the precondition `not_exists` does not hold: a memory stands at `path`",
                    memory_id: Some(memory_id),
                    current_sha256,
                })
            }
            outcome => self.settle(outcome, Past::default()).await,
        }
    }

    /// Replaces what stands at the path, else makes a memory there.
    async fn create_or_replace(&self, path: &MemoryPath, content: &Content) -> Result<Try, EngineError> {
        let _turn = self.turn(path.as_str()).await;
        let tenant_id = self.principal.tenant_id;
        let lookup = self
            .engine
            .0
            .index
            .head(tenant_id, self.store_id, Some(path), 0)
            .await?;
        let lookup = lookup.ok_or(EngineError::StoreNotFound)?;
        if lookup.store.is_archived {
            return Err(EngineError::StoreArchived);
        }
        let Target::Memory(head) = lookup.target else {
            let made = self.create_only(path, content, OnTaken::Refuse).await;
            return match made {
                // Another one came first: it is replaced.
                Err(EngineError::PathConflict {
                    ref conflicting_path, ..
                }) if conflicting_path == path.as_str() => Ok(Try::Again),
                made => made,
            };
        };
        let edit = Edit {
            content: Some(content.clone()),
            path: None,
            pinned: None,
            precondition: None,
        };
        match self.live(head.memory_id).await {
            Ok((found, memory)) if memory.head.path == *path => self.apply(found, memory, &edit).await,
            Ok(_) | Err(EngineError::MemoryNotFound) => Ok(Try::Again),
            Err(error) => Err(error),
        }
    }

    async fn update(&self, memory_id: MemoryId, edit: &Edit) -> Result<Try, EngineError> {
        if let Some(seq) = self.made_before().await? {
            return Ok(Try::Replayed(seq));
        }
        for _ in 0..CAS_ATTEMPTS {
            let (found, memory, _turn) = self.take(memory_id).await?;
            match self.apply(found, memory, edit).await? {
                Try::Again => {}
                done => return Ok(done),
            }
        }
        Err(EngineError::Contended)
    }

    /// Reads a memory and waits for the turn to change it.
    ///
    /// Changes of one memory take turns on its path, whatever surface they come
    /// by; the path is known once it was read, and read again after a wait.
    async fn take(&self, memory_id: MemoryId) -> Result<(FoundMemory, Memory, Turn), EngineError> {
        let (mut found, mut memory) = self.live(memory_id).await?;
        let turn = self.turn(memory.head.path.as_str()).await;
        if turn.has_waited {
            (found, memory) = self.live(memory_id).await?;
        }
        let mut patience = Patience::new();
        while self.engine.yields_to_claim(&memory.head, &mut patience).await {
            (found, memory) = self.live(memory_id).await?;
        }
        Ok((found, memory, turn))
    }

    async fn apply(&self, found: FoundMemory, memory: Memory, edit: &Edit) -> Result<Try, EngineError> {
        if found.store.is_archived {
            return Err(EngineError::StoreArchived);
        }
        let head = &memory.head;
        let is_at_path = edit.path.as_ref().is_none_or(|path| *path == head.path);
        let has_content = edit
            .content
            .as_ref()
            .is_none_or(|content| content.hash() == head.sha256);
        if let Some(Precondition::ContentSha256(expected)) = edit.precondition
            && expected != head.sha256
            // A retry of an update that was applied finds what it asks for.
            && !(is_at_path && has_content)
        {
            return Err(content_differs(head));
        }
        let is_pinned = edit.pinned.filter(|pinned| *pinned != memory.is_pinned);
        if is_at_path && has_content {
            return self.pin(found.expiry, memory, is_pinned).await;
        }
        let memory_id = head.memory_id;
        let change = Proposed::Change {
            before: head.clone(),
            to: edit.path.clone().unwrap_or_else(|| head.path.clone()),
            content: edit.content.clone().filter(|_| !has_content),
            is_pinned,
        };
        let outcome = self.commit(change, None).await?;
        if outcome == Committed::Refused(WriteRefusal::Stale) {
            self.engine
                .claim(self.principal, self.store_id, memory_id)
                .await?;
        }
        if edit.precondition == Some(Precondition::NotExists)
            && let Committed::Refused(WriteRefusal::PathTaken { .. }) = outcome
        {
            return self.pin(found.expiry, memory, None).await;
        }
        let past = Past::of(found.expiry, &memory);
        self.settle(outcome, past).await
    }

    /// Sets the pin, or only has the call remembered; writes no version.
    pub(crate) async fn pin(
        &self,
        expiry: Expiry,
        memory: Memory,
        is_pinned: Option<bool>,
    ) -> Result<Try, EngineError> {
        if is_pinned.is_none() && self.idempotency.is_none() {
            return Ok(Try::Done(expiry, Box::new(memory)));
        }
        let memory = Memory {
            is_pinned: is_pinned.unwrap_or(memory.is_pinned),
            ..memory
        };
        let pin = Pin {
            store_id: self.store_id,
            memory_id: memory.head.memory_id,
            expected: memory.head.version_id,
            is_pinned: memory.is_pinned,
            idempotency: self.idempotency.copied(),
            now: self.engine.now(),
        };
        match self.engine.0.index.pin(self.principal.tenant_id, &pin).await? {
            PinOutcome::Done => Ok(Try::Done(expiry, Box::new(memory))),
            PinOutcome::Replayed { seq } => Ok(Try::Replayed(seq)),
            PinOutcome::Stale => Ok(Try::Again),
            PinOutcome::KeyReused => Err(EngineError::KeyReused),
            PinOutcome::Archived => Err(EngineError::StoreArchived),
            PinOutcome::NoStore => Err(EngineError::StoreNotFound),
        }
    }

    async fn delete(&self, memory_id: MemoryId, expected: Option<ContentHash>) -> Result<(), EngineError> {
        for _ in 0..CAS_ATTEMPTS {
            let (_, memory, _turn) = self.take(memory_id).await?;
            if expected.is_some_and(|expected| expected != memory.head.sha256) {
                return Err(content_differs(&memory.head));
            }
            let change = Proposed::Delete { before: memory.head };
            match self.commit(change, None).await? {
                Committed::Done { .. } => return Ok(()),
                Committed::Refused(WriteRefusal::Stale) => {}
                outcome => {
                    self.settle(outcome, Past::default()).await?;
                }
            }
        }
        Err(EngineError::Contended)
    }

    /// Reads a memory that must be there.
    async fn live(&self, memory_id: MemoryId) -> Result<(FoundMemory, Memory), EngineError> {
        let mut found = self
            .engine
            .find_memory(self.principal, self.store_id, memory_id)
            .await?;
        match std::mem::replace(&mut found.target, MemoryTarget::Missing) {
            MemoryTarget::Live(memory) => Ok((found, memory)),
            MemoryTarget::Missing | MemoryTarget::Deleted { .. } => Err(EngineError::MemoryNotFound),
        }
    }

    /// The version that the same call made before, if it was made.
    pub(crate) async fn made_before(&self) -> Result<Option<i64>, EngineError> {
        let first = self.engine.replayed(self.principal, self.idempotency).await?;
        Ok(first.and_then(|first| first.seq))
    }

    pub(crate) async fn commit(
        &self,
        change: Proposed,
        purge_epoch: Option<i64>,
    ) -> Result<Committed, EngineError> {
        let proposal = Proposal {
            store_id: self.store_id,
            changes: vec![change],
            guard: None,
            purge_epoch,
            idempotency: self.idempotency.copied(),
        };
        self.engine.commit(self.principal, proposal).await
    }

    /// What a commit's outcome means.
    pub(crate) async fn settle(&self, outcome: Committed, past: Past) -> Result<Try, EngineError> {
        let limits = &self.principal.limits;
        let too_many_bytes = |whose, size_bytes, limit_bytes| {
            Err(EngineError::TooManyBytes {
                whose,
                size_bytes,
                limit_bytes,
            })
        };
        let refusal = match outcome {
            Committed::Replayed { seq } => return Ok(Try::Replayed(seq)),
            Committed::Done { seq, at, made } => {
                let change = made.into_iter().next();
                let memory = change.and_then(|change| after(change, seq, at, past));
                let memory = memory.ok_or(EngineError::Internal("a commit left no memory"))?;
                return Ok(Try::Done(past.expiry, Box::new(memory)));
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

    /// A directory has no id: the first memory below it is told.
    async fn directory_in_the_way(&self, path: String) -> Result<EngineError, EngineError> {
        let listing = MemoryListing {
            below: keepsake_core::DirPath::from_trusted(path.clone()),
            depth: Depth::All,
            after: None,
            limit: 1,
        };
        let tenant_id = self.principal.tenant_id;
        let page = self
            .engine
            .0
            .index
            .list_memories(tenant_id, self.store_id, &listing)
            .await?;
        let first = page.and_then(|page| page.items.into_iter().next());
        let (conflicting_memory_id, conflicting_path) = match first {
            Some(MemoryItem::Memory(memory)) => {
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

    /// Shows what came of a change; one that was refused may have been made
    /// before by the same call.
    pub(crate) async fn conclude(
        &self,
        outcome: Result<Try, EngineError>,
        view: View,
    ) -> Result<ShownMemory, EngineError> {
        let (expiry, memory) = match outcome {
            Ok(Try::Done(expiry, memory)) => (expiry, *memory),
            Ok(Try::Replayed(seq)) => return self.rebuild(seq, view).await,
            Ok(Try::Again) => return Err(EngineError::Contended),
            Err(error) => {
                return match self.made_before().await {
                    Ok(Some(seq)) => self.rebuild(seq, view).await,
                    Ok(None) | Err(_) => Err(error),
                };
            }
        };
        let memory_id = memory.head.memory_id;
        let shown = self.engine.show(self.principal, self.store_id, expiry, memory);
        match view {
            View::Basic => Ok(shown),
            View::Full => {
                let found = self
                    .engine
                    .find_memory(self.principal, self.store_id, memory_id)
                    .await?;
                self.engine
                    .with_content(self.principal, found.store, shown)
                    .await?
                    .ok_or(EngineError::MemoryNotFound)
            }
        }
    }

    /// The memory as the version `seq` left it, for a call that made it.
    async fn rebuild(&self, seq: i64, view: View) -> Result<ShownMemory, EngineError> {
        let (engine, tenant_id) = (self.engine, self.principal.tenant_id);
        let version = engine.0.index.version_at(tenant_id, self.store_id, seq).await?;
        let version = version.ok_or(EngineError::MemoryNotFound)?;
        let found = engine
            .find_memory(self.principal, self.store_id, version.memory_id)
            .await?;
        let (live, created_at, is_pinned) = match found.target {
            MemoryTarget::Missing => return Err(EngineError::MemoryNotFound),
            MemoryTarget::Live(memory) => {
                let (created_at, is_pinned) = (memory.created_at, memory.is_pinned);
                (Some(memory), created_at, is_pinned)
            }
            MemoryTarget::Deleted {
                created_at,
                is_pinned,
                ..
            } => (None, created_at, is_pinned),
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
                is_pinned,
                created_at,
                updated_at: version.created_at,
                last_read_at: live.as_ref().and_then(|memory| memory.last_read_at),
                active_at: live.and_then(|memory| memory.active_at),
            },
            // Redacted since: the memory as it is now.
            _ => live.ok_or(EngineError::MemoryNotFound)?,
        };
        let mut shown = engine.show(self.principal, self.store_id, found.expiry, memory);
        if view == View::Full {
            let epoch = found.store.purge_epoch;
            shown.content = engine
                .content_of(tenant_id, self.store_id, epoch, &shown.memory.head)
                .await?;
        }
        Ok(shown)
    }
}

/// The memory that a change left.
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

/// The refusal of a content precondition.
pub(crate) fn content_differs(head: &Head) -> EngineError {
    EngineError::PreconditionFailed {
        why: "the precondition does not hold: the memory has other content than expected",
        memory_id: Some(head.memory_id),
        current_sha256: Some(head.sha256),
    }
}
