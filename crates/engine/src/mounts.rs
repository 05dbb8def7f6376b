//! Mounts: the one store, or a session's stores, that tool paths lead to.

use std::sync::Arc;

use keepsake_core::tool::{ToolPath, ToolRoot};
use keepsake_core::{SessionId, StoreId};
use keepsake_index::{Access, Session};

use crate::EngineError;

#[derive(Debug, Clone)]
pub struct Mounts {
    root: ToolRoot,
    stores: Arc<[Mount]>,
    session_id: Option<SessionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount {
    pub store_id: StoreId,
    pub is_read_only: bool,
}

impl From<StoreId> for Mounts {
    /// Mounts one store as the root of all paths.
    fn from(store_id: StoreId) -> Self {
        let store = Mount { store_id, is_read_only: false };
        Self { root: ToolRoot::Store, stores: [store].into(), session_id: None }
    }
}

impl Mounts {
    /// Mounts a session's stores by their slugs, in the order of `mounts`.
    pub fn of_session(session_id: SessionId, mounts: impl IntoIterator<Item = (String, Mount)>) -> Self {
        let (slugs, stores): (Vec<_>, Vec<_>) = mounts.into_iter().unzip();
        Self { root: ToolRoot::Mounts(slugs.into()), stores: stores.into(), session_id: Some(session_id) }
    }

    /// The session, if the mounts belong to a session.
    pub fn session_id(&self) -> Option<SessionId> {
        self.session_id
    }

    pub(crate) fn is_read_only(&self, store_id: StoreId) -> bool {
        let mut stores = self.stores.iter();
        stores.any(|store| store.store_id == store_id && store.is_read_only)
    }

    /// The root that paths are parsed against.
    pub fn root(&self) -> &ToolRoot {
        &self.root
    }

    /// The store, if it is mounted as the root.
    pub fn single(&self) -> Option<StoreId> {
        match &self.root {
            ToolRoot::Store => self.stores.first().map(|store| store.store_id),
            ToolRoot::Mounts(_) => None,
        }
    }

    /// Each store with its slug, if any.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, Mount)> {
        let slugs: &[String] = match &self.root {
            ToolRoot::Store => &[],
            ToolRoot::Mounts(slugs) => slugs,
        };
        let stores = self.stores.iter().enumerate();
        stores.map(|(position, store)| (slugs.get(position).map(String::as_str), *store))
    }

    /// `None`: the path is the root of the mounts.
    pub fn store_of(&self, path: &ToolPath) -> Option<Mount> {
        if path.is_mounts() {
            return None;
        }
        self.stores.get(path.mount().unwrap_or_default()).copied()
    }

    /// The same mounts, each limited by `limit`.
    pub(crate) fn each(
        self,
        limit: impl Fn(&mut Mount) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let mut stores = self.stores.to_vec();
        stores.iter_mut().try_for_each(limit)?;
        Ok(Self { stores: stores.into(), ..self })
    }
}

/// A session that has not ended, and its stores.
#[derive(Debug)]
pub(crate) struct LiveSession {
    pub(crate) session_id: SessionId,
    pub(crate) store_ids: Vec<StoreId>,
    pub(crate) mounts: Mounts,
}

impl From<&Session> for LiveSession {
    fn from(session: &Session) -> Self {
        let attachments = session.attachments.iter();
        let mounts = attachments.map(|attachment| {
            let mounted =
                Mount { store_id: attachment.store_id, is_read_only: attachment.access == Access::ReadOnly };
            (attachment.slug.clone(), mounted)
        });
        Self::new(session.session_id, mounts)
    }
}

impl LiveSession {
    fn new(session_id: SessionId, mounts: impl IntoIterator<Item = (String, Mount)>) -> Self {
        let mounts = Mounts::of_session(session_id, mounts);
        Self { session_id, store_ids: mounts.iter().map(|(_, mounted)| mounted.store_id).collect(), mounts }
    }

    /// The same session limited to some stores, or to reading.
    pub(crate) fn narrowed(self: Arc<Self>, only: Option<&[StoreId]>, may_write: bool) -> Arc<Self> {
        if only.is_none() && may_write {
            return self;
        }
        let is_granted = |mounted: &Mount| only.is_none_or(|only| only.contains(&mounted.store_id));
        let mounts = self.mounts.iter().filter(|(_, mounted)| is_granted(mounted));
        let mounts = mounts.map(|(slug, mounted)| {
            let mounted = Mount { is_read_only: mounted.is_read_only || !may_write, ..mounted };
            (slug.unwrap_or_default().to_owned(), mounted)
        });
        Arc::new(Self::new(self.session_id, mounts))
    }
}
