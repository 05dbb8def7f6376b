//! Creates, changes and deletes memories by id.
//!
//! Each operation reads the current state, decides, and commits with the head
//! that it read. A commit that lost a race is retried from a fresh read. Each
//! read checks the precondition again, so a retry cannot bypass it.

use std::sync::Arc;

use keepsake_core::{Content, ContentHash, MemoryId, MemoryPath, SensitiveDataPolicy, StoreId};
use keepsake_index::{FoundMemory, Head, Idempotency, Memory, MemoryTarget, Scope, Target};

use super::receipt::Sent;
use super::writer::{Past, Seen, Try, Writer, content_differs};
use super::{ShownMemory, View};
use crate::claims::Patience;
use crate::edits::Turn;
use crate::protocol::{CAS_ATTEMPTS, Committed, Proposed, WriteRefusal};
use crate::{Engine, EngineError, Principal};

/// A memory to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemory {
    /// Its path.
    pub path: String,
    /// Its content.
    pub content: String,
    /// What to do when a memory exists at the path.
    pub on_taken: OnTaken,
    /// Whether the answer contains the content.
    pub view: View,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
}

/// What to do when a memory exists at the path of a new memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTaken {
    /// Fail with a conflict that names the existing memory.
    Refuse,
    /// Fail with a failed precondition.
    RefuseAsPrecondition,
    /// Replace the content of the existing memory.
    Replace,
}

/// The changes of a memory; `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEdit {
    /// The new content.
    pub content: Option<String>,
    /// The new path.
    pub path: Option<String>,
    /// Whether the memory never expires.
    pub pinned: Option<bool>,
    /// The condition for the change.
    pub precondition: Option<Precondition>,
    /// Whether the answer contains the content.
    pub view: View,
    /// Makes the call idempotent.
    pub idempotency: Option<Idempotency>,
}

/// The condition for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The memory's content has this hash.
    ContentSha256(ContentHash),
    /// No memory exists at the new path.
    NotExists,
}

/// A validated [`MemoryEdit`].
struct Edit {
    content: Option<Content>,
    path: Option<MemoryPath>,
    pinned: Option<bool>,
    precondition: Option<Precondition>,
}

impl Engine {
    /// Creates a memory, or replaces the content of the memory at the path.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::PathConflict`],
    /// [`EngineError::PreconditionFailed`], [`EngineError::StoreArchived`],
    /// the limits, [`EngineError::StoreNotFound`],
    /// [`EngineError::PermissionDenied`], [`EngineError::KeyReused`]. After a
    /// failure of the index the memory may have been created.
    #[tracing::instrument(name = "engine.create_memory", level = "debug", skip_all)]
    pub async fn create_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        new: NewMemory,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_write(store_id, new.view)?;
        let path = parse_path(&new.path)?;
        let content = parse_content(principal, new.content)?;
        let sent = Sent {
            is_creation: new.on_taken != OnTaken::Replace,
            path: Some(path.clone()),
            content: Some(content.hash()),
            pinned: None,
        };
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        let outcome = self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, new.idempotency.as_ref());
            let _turn = writer.turn_of_call().await;
            let outcome = writer.create(&path, &content, new.on_taken).await;
            writer.conclude(outcome, new.view).await
        });
        principal.shown_write(outcome.await, &sent, self.now())
    }

    /// Changes a memory's content, path or pin, in at most one version.
    ///
    /// An update without any difference writes no version.
    ///
    /// # Errors
    /// As [`Engine::create_memory`], and [`EngineError::MemoryNotFound`],
    /// [`EngineError::Contended`].
    #[tracing::instrument(name = "engine.update_memory", level = "debug", skip_all)]
    pub async fn update_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        edit: MemoryEdit,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_write(store_id, edit.view)?;
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
        if edit.content.is_none() && edit.path.is_none() && edit.pinned.is_none() {
            // Such a request only shows the memory.
            principal.require(Scope::MemoryRead)?;
        }
        if edit.precondition == Some(Precondition::NotExists) && edit.path.is_none() {
            return Err(EngineError::Invalid {
                field: "precondition",
                rule: "of type `not_exists` is about a new path: send `path` with it".to_owned(),
            });
        }
        let sent = Sent {
            is_creation: false,
            path: edit.path.clone(),
            content: edit.content.as_ref().map(Content::hash),
            pinned: edit.pinned,
        };
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        let outcome = self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, idempotency.as_ref());
            let _turn = writer.turn_of_call().await;
            let outcome = writer.update(memory_id, &edit).await;
            writer.conclude(outcome, view).await
        });
        principal.shown_write(outcome.await, &sent, self.now())
    }

    /// Deletes a memory; its versions are kept.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`] when its content does not have the
    /// expected hash, [`EngineError::MemoryNotFound`],
    /// [`EngineError::StoreNotFound`], [`EngineError::PermissionDenied`],
    /// [`EngineError::Contended`]. After a failure of the index the memory may
    /// have been deleted.
    #[tracing::instrument(name = "engine.delete_memory", level = "debug", skip_all)]
    pub async fn delete_memory(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        memory_id: MemoryId,
        expected: Option<ContentHash>,
    ) -> Result<(), EngineError> {
        principal.require_writable(store_id)?;
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        let outcome = self.run_to_end(async move {
            let writer = Writer::new(&engine, &owner, store_id, None);
            writer.delete(memory_id, expected).await
        });
        let refusal = |error| principal.shown_refusal(error, None);
        outcome.await.map_err(refusal)
    }
}

impl Principal {
    /// Checks the scopes to write, and to read what the answer contains.
    pub(crate) fn require_write(&self, store_id: StoreId, view: View) -> Result<(), EngineError> {
        self.require_writable(store_id)?;
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

impl Writer<'_> {
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
        let (engine, principal) = (self.engine, self.principal);
        let policy = engine
            .judge_as_sent(principal, self.store_id, async || Ok(None), content.as_str())
            .await?;
        // No read first: the commit checks whether the path is free.
        let change = Proposed::Create {
            path: path.clone(),
            content: content.clone(),
        };
        match self.commit(change, None, policy).await? {
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

    /// Replaces the memory at the path, or creates one.
    async fn create_or_replace(&self, path: &MemoryPath, content: &Content) -> Result<Try, EngineError> {
        let _turn = self.turn(path.as_str()).await;
        let tenant_id = self.principal.tenant_id;
        let lookup = self
            .engine
            .0
            .index
            .memories
            .head(tenant_id, self.store_id, Some(path), 0)
            .await?;
        let lookup = lookup.ok_or(EngineError::StoreNotFound)?;
        if lookup.store.is_archived {
            return Err(EngineError::StoreArchived);
        }
        let Target::Memory(head) = lookup.target else {
            let made = self.create_only(path, content, OnTaken::Refuse).await;
            return match made {
                // Another request created the memory first: replace it.
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

    /// Reads a memory and waits for the exclusive right to change it.
    ///
    /// All changes of a memory, from every API surface, are serialized by its
    /// path. The path is known after the first read; after a wait the memory is
    /// read again.
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
        // A retry of an applied update finds every requested value in place.
        let is_applied = is_at_path
            && has_content
            && (edit.path.is_some() || edit.content.is_some())
            && edit.pinned.is_none_or(|pinned| pinned == memory.is_pinned);
        match edit.precondition {
            Some(Precondition::ContentSha256(expected)) if expected != head.sha256 && !is_applied => {
                return Err(content_differs(head));
            }
            // This memory is already at the path: an earlier call moved it.
            Some(Precondition::NotExists) if is_at_path => {
                return self.pin(Seen::of(&found), memory, None).await;
            }
            _ => {}
        }
        if is_at_path && has_content {
            return self.pin(Seen::of(&found), memory, edit.pinned).await;
        }
        let new_content = edit.content.as_ref().filter(|_| !has_content);
        let policy = match new_content {
            Some(content) => self.judge_update(&found, head, content).await?,
            None => None,
        };
        let memory_id = head.memory_id;
        let change = Proposed::Change {
            before: head.clone(),
            to: edit.path.clone().unwrap_or_else(|| head.path.clone()),
            content: new_content.cloned(),
            is_pinned: edit.pinned,
        };
        let outcome = self.commit(change, None, policy).await?;
        if outcome == Committed::Refused(WriteRefusal::Stale) {
            self.engine
                .claim(self.principal, self.store_id, memory_id)
                .await?;
        }
        if edit.precondition == Some(Precondition::NotExists)
            && let Committed::Refused(WriteRefusal::PathTaken { .. }) = outcome
        {
            return self.pin(Seen::of(&found), memory, None).await;
        }
        let past = Past::of(&memory);
        self.settle(outcome, past).await
    }

    /// Checks the lines of `content` that are new to the memory for secrets.
    async fn judge_update(
        &self,
        found: &FoundMemory,
        head: &Head,
        content: &Content,
    ) -> Result<Option<SensitiveDataPolicy>, EngineError> {
        let (engine, principal, store_id) = (self.engine, self.principal, self.store_id);
        let before = async || {
            let purge_epoch = found.store.purge_epoch;
            engine
                .content_of(principal.tenant_id, store_id, purge_epoch, head)
                .await
        };
        engine
            .judge_as_sent(principal, store_id, before, content.as_str())
            .await
    }

    async fn delete(&self, memory_id: MemoryId, expected: Option<ContentHash>) -> Result<(), EngineError> {
        for _ in 0..CAS_ATTEMPTS {
            let (_, memory, _turn) = self.take(memory_id).await?;
            if expected.is_some_and(|expected| expected != memory.head.sha256) {
                return Err(content_differs(&memory.head));
            }
            let change = Proposed::Delete { before: memory.head };
            match self.commit(change, None, None).await? {
                Committed::Done { .. } => return Ok(()),
                Committed::Refused(WriteRefusal::Stale) => {}
                outcome => {
                    self.settle(outcome, Past::default()).await?;
                }
            }
        }
        Err(EngineError::Contended)
    }
}
