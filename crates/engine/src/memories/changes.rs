//! Creates, changes, deletes and restores memories by id.

use std::sync::Arc;

use keepsake_core::{Content, ContentHash, MemoryId, MemoryPath, StoreId, VersionId};
use keepsake_index::{FoundMemory, Idempotency, Scope};

use super::answer::Answer;
use super::decisions::{Creation, Restored, Update, Updated};
use super::receipt::Sent;
use super::{ShownMemory, View};
use crate::write::Change;
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

/// The options of a restoration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restoration {
    /// The condition for the restoration.
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
        let creation = Creation {
            path,
            content,
            on_taken: new.on_taken,
        };
        let outcome = self.write_memory(principal, store_id, creation, new.idempotency, new.view);
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
        let update = Update {
            path: edit.path.as_deref().map(parse_path).transpose()?,
            content: edit
                .content
                .map(|content| parse_content(principal, content))
                .transpose()?,
            pinned: edit.pinned,
            precondition: edit.precondition,
            is_deletion: false,
        };
        if update.content.is_none() && update.path.is_none() && update.pinned.is_none() {
            // Such a request only shows the memory.
            principal.require(Scope::MemoryRead)?;
        }
        if update.precondition == Some(Precondition::NotExists) && update.path.is_none() {
            return Err(EngineError::Invalid {
                field: "precondition",
                rule: "of type `not_exists` is about a new path: send `path` with it".to_owned(),
            });
        }
        let sent = Sent {
            is_creation: false,
            path: update.path.clone(),
            content: update.content.as_ref().map(Content::hash),
            pinned: update.pinned,
        };
        let outcome = self.write_memory(principal, store_id, Updated(memory_id, update), idempotency, view);
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
        let deletion = Update {
            precondition: expected.map(Precondition::ContentSha256),
            is_deletion: true,
            ..Update::default()
        };
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        let outcome = self.run_to_end(async move {
            let write = engine.0.writer.write(&owner, store_id, None);
            write.run(&Updated(memory_id, deletion)).await.map(drop)
        });
        let refusal = |error| principal.shown_refusal(error, None);
        outcome.await.map_err(refusal)
    }

    /// Restores a version's content and path as a new version of its memory. A
    /// deleted memory is restored with its old id.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] for a version without content,
    /// [`EngineError::VersionNotFound`], and those of
    /// [`Engine::update_memory`].
    #[tracing::instrument(name = "engine.restore_version", level = "debug", skip_all)]
    pub async fn restore_version(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        version_id: VersionId,
        restoration: Restoration,
    ) -> Result<ShownMemory, EngineError> {
        principal.require_writable(store_id)?;
        // The answer shows path, hash and size of the version's content.
        principal.require(Scope::MemoryRead)?;
        principal.require_no_session()?;
        let (idempotency, view) = (restoration.idempotency, restoration.view);
        let restored = Restored {
            version_id,
            precondition: restoration.precondition,
            limit_bytes: principal.limits.bytes_per_memory,
        };
        self.write_memory(principal, store_id, restored, idempotency, view)
            .await
    }

    async fn write_memory<C>(
        &self,
        principal: &Arc<Principal>,
        store_id: StoreId,
        change: C,
        idempotency: Option<Idempotency>,
        view: View,
    ) -> Result<ShownMemory, EngineError>
    where
        C: Change<Error = EngineError> + Send + 'static,
        C::Read: Into<Option<FoundMemory>>,
    {
        let (engine, owner) = (self.clone(), Arc::clone(principal));
        self.run_to_end(async move {
            let write = engine.0.writer.write(&owner, store_id, idempotency);
            let outcome = write.run_once(&change).await?;
            let answer = Answer {
                engine: &engine,
                principal: &owner,
                store_id,
                view,
            };
            answer.to(outcome).await
        })
        .await
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
