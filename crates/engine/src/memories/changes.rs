//! Making, changing and deleting memories by their ids.
//!
//! Each reads what is there, decides, and commits with the head it read; a
//! commit that lost a race starts over from a fresh read. A precondition is
//! held against each read, so it never passes by being tried again.

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

impl Engine {
    /// Makes a memory, or replaces the content of the one at the path.
    ///
    /// # Errors
    /// [`EngineError::Invalid`], [`EngineError::PathConflict`],
    /// [`EngineError::PreconditionFailed`], [`EngineError::StoreArchived`],
    /// the limits, [`EngineError::StoreNotFound`],
    /// [`EngineError::PermissionDenied`], [`EngineError::KeyReused`]. After a
    /// failure of the index the memory may have been made.
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

    /// Changes a memory's content, path or pin, in one version at most.
    ///
    /// A change that changes nothing writes no version.
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
            // It would only show the memory.
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

    /// Deletes a memory; its versions stay.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`] when it does not hold content of the
    /// hash expected, [`EngineError::MemoryNotFound`],
    /// [`EngineError::StoreNotFound`], [`EngineError::PermissionDenied`],
    /// [`EngineError::Contended`]. After a failure of the index it may have
    /// been deleted.
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
    /// Checks that it may write, and read what the answer shows.
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
        // No read first: that the path is free is the commit's to find out.
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
        // A retry of an update that was applied finds all that it asks for.
        let is_applied = is_at_path
            && has_content
            && (edit.path.is_some() || edit.content.is_some())
            && edit.pinned.is_none_or(|pinned| pinned == memory.is_pinned);
        match edit.precondition {
            Some(Precondition::ContentSha256(expected)) if expected != head.sha256 && !is_applied => {
                return Err(content_differs(head));
            }
            // The memory itself stands there: it was moved before.
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

    /// Judges the lines of `content` that the memory does not have yet.
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
