//! What becomes of a session when it is changed: the arithmetic.

use keepsake_core::slug::slug_of;
use keepsake_core::{ResourceId, StoreId, Timestamp};
use serde_json::Value;

use super::{Access, Attachment, NewAttachment, NewSession, Session, SessionLimits};
use crate::model::{AuditAction, AuditObject, Audited};

/// Stores that are attached to a session, at most.
pub const MOST_ATTACHMENTS: usize = 8;

/// How a session is to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChange {
    /// What is to change.
    pub detail: Detail,
    /// The only stores that the caller sees; `None`: all of the tenant's.
    pub only: Option<Vec<StoreId>>,
    /// The tenant's quotas; a session over one may still shrink.
    pub limits: SessionLimits,
    /// When, and by whom.
    pub audited: Audited,
}

/// What of a session is to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// What it is called and told of it; `None` leaves a field as it is.
    Describe {
        /// What it is called.
        title: Option<String>,
        /// Metadata to set, or with `None` to remove.
        metadata: Vec<(String, Option<String>)>,
        /// Pairs of metadata it may have afterwards.
        metadata_pairs_limit: usize,
    },
    /// It takes no calls from now on.
    Archive,
    /// A store is attached.
    Attach(NewAttachment),
    /// An attachment is changed; `None` leaves a field as it is.
    Reattach {
        /// Which.
        name: AttachmentName,
        /// What the session may do with it.
        access: Option<Access>,
        /// What the agent is told about it.
        instructions: Option<String>,
    },
    /// A store is attached no longer.
    Detach(AttachmentName),
}

/// By what an attachment is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentName {
    /// Its own id.
    Resource(ResourceId),
    /// The store's.
    Store(StoreId),
}

impl AttachmentName {
    pub(super) fn is_of(self, attachment: &Attachment) -> bool {
        match self {
            Self::Resource(resource_id) => attachment.resource_id == resource_id,
            Self::Store(store_id) => attachment.store_id == store_id,
        }
    }
}

/// Why a session was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRefusal {
    /// It is archived.
    Archived,
    /// It would have too many pairs of metadata.
    TooManyPairs {
        /// How many it would have.
        count: usize,
    },
    /// The store cannot be attached.
    Attachment(AttachmentRefusal),
    /// It has no such attachment.
    NoAttachment,
}

/// Why a store cannot be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentRefusal {
    /// There is no such store.
    NoStore,
    /// The store is archived.
    StoreArchived,
    /// It is attached already.
    Attached,
    /// [`MOST_ATTACHMENTS`] are.
    TooMany,
}

/// What an attachment takes of its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreToAttach {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) is_archived: bool,
}

impl NewSession {
    /// The session without any attachment.
    pub(crate) fn bare(&self) -> Session {
        Session {
            session_id: self.session_id,
            agent: self.agent.clone(),
            environment_id: self.environment_id.clone(),
            title: self.title.clone(),
            metadata: self.metadata.clone(),
            vault_ids: self.vault_ids.clone(),
            attachments: Vec::new(),
            created_at: self.created_at,
            updated_at: self.created_at,
            archived_at: None,
            last_used_at: None,
        }
    }
}

impl SessionChange {
    /// Names the action and its object for the audit.
    ///
    /// The object of a change of an attachment is the session, with the store.
    pub(crate) fn audited_as(&self, before: &Session) -> (AuditAction, AuditObject) {
        let session_id = before.session_id.uuid();
        let of_store = |store_id| AuditObject::in_store(session_id, store_id);
        let of_name = |name| match (name, before.attachment(name)) {
            (AttachmentName::Store(store_id), _) => of_store(store_id),
            (AttachmentName::Resource(_), Some(attachment)) => of_store(attachment.store_id),
            (AttachmentName::Resource(_), None) => AuditObject::new(session_id),
        };
        match &self.detail {
            Detail::Describe { .. } => (AuditAction::SessionUpdated, AuditObject::new(session_id)),
            Detail::Archive => (AuditAction::SessionArchived, AuditObject::new(session_id)),
            Detail::Attach(new) => (AuditAction::ResourceAdded, of_store(new.store_id)),
            Detail::Reattach { name, .. } => (AuditAction::ResourceUpdated, of_name(*name)),
            Detail::Detach(name) => (AuditAction::ResourceDeleted, of_name(*name)),
        }
    }

    /// Whether it ends something, and is never refused for a quota.
    pub(crate) const fn ends_something(&self) -> bool {
        match &self.detail {
            Detail::Archive | Detail::Detach(_) => true,
            Detail::Describe { .. } | Detail::Attach(_) | Detail::Reattach { .. } => false,
        }
    }

    /// The store that is to be attached.
    pub(crate) const fn store_id(&self) -> Option<StoreId> {
        match &self.detail {
            Detail::Attach(new) => Some(new.store_id),
            Detail::Describe { .. } | Detail::Archive | Detail::Reattach { .. } | Detail::Detach(_) => None,
        }
    }
}

/// Whether a credential that sees only some stores sees a session of `stores`.
///
/// It sees one that has stores, all of them its own. A session without stores may
/// be anybody's, and whatever is attached to it next may be foreign.
pub fn sees_session_of(only: Option<&[StoreId]>, stores: impl IntoIterator<Item = StoreId>) -> bool {
    let Some(only) = only else {
        return true;
    };
    let mut stores = stores.into_iter().peekable();
    stores.peek().is_some() && stores.all(|store_id| only.contains(&store_id))
}

impl Session {
    /// Whether a credential that sees only some stores sees the session.
    pub fn is_within(&self, only: Option<&[StoreId]>) -> bool {
        let stores = self.attachments.iter().map(|attachment| attachment.store_id);
        sees_session_of(only, stores)
    }

    /// Attaches a store; `store` is what was found of it.
    pub(crate) fn attach(
        &mut self,
        new: &NewAttachment,
        store: Option<StoreToAttach>,
        now: Timestamp,
    ) -> Result<(), AttachmentRefusal> {
        let store = store.ok_or(AttachmentRefusal::NoStore)?;
        if self.attachment(AttachmentName::Store(new.store_id)).is_some() {
            return Err(AttachmentRefusal::Attached);
        }
        if store.is_archived {
            return Err(AttachmentRefusal::StoreArchived);
        }
        if self.attachments.len() >= MOST_ATTACHMENTS {
            return Err(AttachmentRefusal::TooMany);
        }
        let taken: Vec<_> = self.attachments.iter().map(|a| a.slug.as_str()).collect();
        let slug = slug_of(&store.name, &taken);
        self.attachments.push(Attachment {
            resource_id: new.resource_id,
            store_id: new.store_id,
            position: self.attachments.last().map_or(0, |last| last.position + 1),
            slug,
            access: new.access,
            instructions: new.instructions.clone(),
            name: store.name,
            description: store.description,
            created_at: now,
            updated_at: now,
        });
        Ok(())
    }

    /// The session after a change; `store` is what was found of the one to be
    /// attached.
    pub(crate) fn changed(
        &self,
        change: &SessionChange,
        store: Option<StoreToAttach>,
    ) -> Result<Self, SessionRefusal> {
        let now = change.audited.at.max(self.updated_at);
        let mut session = self.clone();
        match &change.detail {
            Detail::Archive => session.archived_at = Some(self.archived_at.unwrap_or(now)),
            _ if self.archived_at.is_some() => return Err(SessionRefusal::Archived),
            Detail::Describe {
                title,
                metadata,
                metadata_pairs_limit,
            } => session.describe(title.as_ref(), metadata, *metadata_pairs_limit)?,
            Detail::Attach(new) => session
                .attach(new, store, now)
                .map_err(SessionRefusal::Attachment)?,
            Detail::Reattach {
                name,
                access,
                instructions,
            } => session.reattach(*name, *access, instructions.as_ref(), now)?,
            Detail::Detach(name) => {
                session.attachments.retain(|attachment| !name.is_of(attachment));
                if session.attachments.len() == self.attachments.len() {
                    return Err(SessionRefusal::NoAttachment);
                }
            }
        }
        if session != *self {
            session.updated_at = now;
        }
        Ok(session)
    }

    /// The attachments that a session had not, or had otherwise.
    pub(crate) fn attached_since(&self, before: &Self) -> impl Iterator<Item = &Attachment> {
        let attachments = self.attachments.iter();
        attachments.filter(|attachment| !before.attachments.contains(attachment))
    }

    /// The attachments that a later state of the session has not.
    pub(crate) fn detached_by(&self, after: &Self) -> impl Iterator<Item = ResourceId> {
        let ids = self.attachments.iter().map(|attachment| attachment.resource_id);
        ids.filter(|id| after.attachment(AttachmentName::Resource(*id)).is_none())
    }

    fn describe(
        &mut self,
        title: Option<&String>,
        metadata: &[(String, Option<String>)],
        pairs_limit: usize,
    ) -> Result<(), SessionRefusal> {
        if let Some(title) = title {
            self.title = Some(title.clone());
        }
        let before = self.metadata.len();
        for (key, value) in metadata {
            match value {
                Some(value) => self.metadata.insert(key.clone(), Value::String(value.clone())),
                None => self.metadata.remove(key),
            };
        }
        let count = self.metadata.len();
        // One that has too many, since the limit was another, may still lose some.
        if count > pairs_limit && count > before {
            return Err(SessionRefusal::TooManyPairs { count });
        }
        Ok(())
    }

    fn reattach(
        &mut self,
        name: AttachmentName,
        access: Option<Access>,
        instructions: Option<&String>,
        now: Timestamp,
    ) -> Result<(), SessionRefusal> {
        let found = self
            .attachments
            .iter_mut()
            .find(|attachment| name.is_of(attachment));
        let attachment = found.ok_or(SessionRefusal::NoAttachment)?;
        let before = attachment.clone();
        attachment.access = access.unwrap_or(attachment.access);
        if let Some(instructions) = instructions {
            attachment.instructions = Some(instructions.clone());
        }
        if *attachment != before {
            attachment.updated_at = now;
        }
        Ok(())
    }
}
