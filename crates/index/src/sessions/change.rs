//! Computes the effect of changes on a session.

use keepsake_core::schemas::MemoryStoreResourceType;
use keepsake_core::slug::slug_of;
use keepsake_core::{ObjectKind, Refused, ResourceId, StoreId, Timestamp};

use super::{Access, Attachment, NewAttachment, Session, SessionLimits};
use crate::ChangeError;
use crate::model::merge_metadata;
use crate::model::{AuditAction, AuditObject, AuditedAction};

pub const MAX_ATTACHMENTS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChange {
    pub detail: Detail,
    /// The stores that the caller may access; `None`: all of the tenant's.
    pub only: Option<Vec<StoreId>>,
    /// The tenant's quotas; a session that exceeds a quota may still shrink.
    pub limits: SessionLimits,
    pub audited: AuditedAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// A change of title or metadata; `None` leaves a field unchanged.
    Describe {
        title: Option<String>,
        /// Metadata to set, or to remove with `None`.
        metadata: Vec<(String, Option<String>)>,
    },
    /// Archives the session, which then refuses calls.
    Archive,
    Attach(NewAttachment),
    /// Changes an attachment; `None` leaves a field unchanged.
    Reattach {
        name: AttachmentName,
        access: Option<Access>,
        instructions: Option<String>,
    },
    Detach(AttachmentName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentName {
    Resource(ResourceId),
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

/// The fields of a store that its attachment copies or checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreToAttach {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) is_archived: bool,
}

impl SessionChange {
    /// The action and object of the audit entry.
    ///
    /// For a change of an attachment, the object is the session, with the store.
    pub(crate) fn audited_as(&self, before: &Session) -> (AuditAction, AuditObject<'static>) {
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

    /// Whether the change ends something; such a change is never refused because of a
    /// quota.
    pub(crate) const fn ends_something(&self) -> bool {
        match &self.detail {
            Detail::Archive | Detail::Detach(_) => true,
            Detail::Describe { .. } | Detail::Attach(_) | Detail::Reattach { .. } => false,
        }
    }

    pub(crate) const fn store_id(&self) -> Option<StoreId> {
        match &self.detail {
            Detail::Attach(new) => Some(new.store_id),
            Detail::Describe { .. } | Detail::Archive | Detail::Reattach { .. } | Detail::Detach(_) => None,
        }
    }
}

/// Whether a credential that is restricted to some stores may access a session with
/// `stores`.
///
/// It may if the session has stores and the credential may access all of them. A
/// session without stores may belong to anyone, and its next attachment may be a
/// store outside the restriction.
pub fn sees_session_of(only: Option<&[StoreId]>, stores: impl IntoIterator<Item = StoreId>) -> bool {
    let Some(only) = only else {
        return true;
    };
    let mut stores = stores.into_iter().peekable();
    stores.peek().is_some() && stores.all(|store_id| only.contains(&store_id))
}

impl Session {
    pub fn is_within(&self, only: Option<&[StoreId]>) -> bool {
        let stores = self.attachments.iter().map(|attachment| attachment.store_id);
        sees_session_of(only, stores)
    }

    /// Attaches a store; `store` is the result of its lookup, and `field` names it in the
    /// request.
    pub(crate) fn attach(
        &mut self,
        field: &'static str,
        new: &NewAttachment,
        store: Option<StoreToAttach>,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let store = store.ok_or(ChangeError::NotFound(ObjectKind::Store))?;
        let invalid = |rule: String| Err(ChangeError::Invalid { field, rule });
        if self.attachment(AttachmentName::Store(new.store_id)).is_some() {
            return invalid("must not name a memory store that is already attached".to_owned());
        }
        if store.is_archived {
            return invalid("must not name a memory store that is archived".to_owned());
        }
        if self.attachments.len() >= MAX_ATTACHMENTS {
            return invalid(format!("must leave at most {MAX_ATTACHMENTS} memory stores attached"));
        }
        let taken: Vec<_> = self.attachments.iter().map(|a| a.slug.as_str()).collect();
        let slug = slug_of(&store.name, &taken);
        self.attachments.push(Attachment {
            resource_id: new.resource_id,
            r#type: MemoryStoreResourceType,
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

    /// The session after a change; `store` is the result of the lookup of the store to
    /// attach.
    pub(crate) fn changed(
        &self,
        change: &SessionChange,
        store: Option<StoreToAttach>,
    ) -> Result<Self, ChangeError> {
        let now = change.audited.at.max(self.updated_at);
        let mut session = self.clone();
        match &change.detail {
            Detail::Archive => session.archived_at = Some(self.archived_at.unwrap_or(now)),
            _ if self.archived_at.is_some() => return Err(Refused::SessionArchived.into()),
            Detail::Describe { title, metadata } => session.describe(title.as_ref(), metadata)?,
            Detail::Attach(new) => session.attach("memory_store_id", new, store, now)?,
            Detail::Reattach { name, access, instructions } => {
                session.reattach(*name, *access, instructions.as_ref(), now)?;
            }
            Detail::Detach(name) => {
                session.attachments.retain(|attachment| !name.is_of(attachment));
                if session.attachments.len() == self.attachments.len() {
                    return Err(ChangeError::NotFound(ObjectKind::SessionResource));
                }
            }
        }
        if session != *self {
            session.updated_at = now;
        }
        Ok(session)
    }

    /// The attachments that are new or changed since `before`.
    pub(crate) fn attached_since(&self, before: &Self) -> impl Iterator<Item = &Attachment> {
        let attachments = self.attachments.iter();
        attachments.filter(|attachment| !before.attachments.contains(attachment))
    }

    pub(crate) fn detached_by(&self, after: &Self) -> impl Iterator<Item = ResourceId> {
        let ids = self.attachments.iter().map(|attachment| attachment.resource_id);
        ids.filter(|id| after.attachment(AttachmentName::Resource(*id)).is_none())
    }

    fn describe(
        &mut self,
        title: Option<&String>,
        metadata: &[(String, Option<String>)],
    ) -> Result<(), ChangeError> {
        if let Some(title) = title {
            self.title = Some(title.clone());
        }
        merge_metadata(&mut self.metadata, metadata)
    }

    fn reattach(
        &mut self,
        name: AttachmentName,
        access: Option<Access>,
        instructions: Option<&String>,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let found = self.attachments.iter_mut().find(|attachment| name.is_of(attachment));
        let attachment = found.ok_or(ChangeError::NotFound(ObjectKind::SessionResource))?;
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
