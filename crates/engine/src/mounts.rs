//! What a tool's paths lead to: one store, or those that a session attached.

use std::sync::Arc;

use keepsake_core::tool::{ToolPath, ToolRoot};
use keepsake_core::{SessionId, StoreId};

use crate::{EngineError, Principal};

/// The stores that a tool's paths lead to; cheap to clone.
#[derive(Debug, Clone)]
pub struct Mounts {
    root: ToolRoot,
    stores: Arc<[Mounted]>,
    session_id: Option<SessionId>,
}

/// A store that paths lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounted {
    /// The store.
    pub store_id: StoreId,
    /// Whether nothing may be changed in it.
    pub is_read_only: bool,
}

impl From<StoreId> for Mounts {
    /// All paths lead into one store.
    fn from(store_id: StoreId) -> Self {
        let store = Mounted {
            store_id,
            is_read_only: false,
        };
        Self {
            root: ToolRoot::Store,
            stores: [store].into(),
            session_id: None,
        }
    }
}

impl Mounts {
    /// The directories of a session, by their slugs, in their order.
    pub fn of_session(session_id: SessionId, mounts: impl IntoIterator<Item = (String, Mounted)>) -> Self {
        let (slugs, stores): (Vec<_>, Vec<_>) = mounts.into_iter().unzip();
        Self {
            root: ToolRoot::Mounts(slugs.into()),
            stores: stores.into(),
            session_id: Some(session_id),
        }
    }

    /// The session, where there are mounts.
    pub fn session_id(&self) -> Option<SessionId> {
        self.session_id
    }

    /// Whether a store is among them and only to be read.
    pub(crate) fn is_read_only(&self, store_id: StoreId) -> bool {
        let mut stores = self.stores.iter();
        stores.any(|store| store.store_id == store_id && store.is_read_only)
    }

    /// What paths are held against.
    pub fn root(&self) -> &ToolRoot {
        &self.root
    }

    /// The one store, where there are no mounts.
    pub fn single(&self) -> Option<StoreId> {
        match &self.root {
            ToolRoot::Store => self.stores.first().map(|store| store.store_id),
            ToolRoot::Mounts(_) => None,
        }
    }

    /// Each store with its slug, if it has one.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, Mounted)> {
        let slugs: &[String] = match &self.root {
            ToolRoot::Store => &[],
            ToolRoot::Mounts(slugs) => slugs,
        };
        let stores = self.stores.iter().enumerate();
        stores.map(|(position, store)| (slugs.get(position).map(String::as_str), *store))
    }

    /// The store that a path lies in; `None`: it is the directory of mounts.
    pub fn store_of(&self, path: &ToolPath) -> Option<Mounted> {
        if path.is_mounts() {
            return None;
        }
        self.stores.get(path.mount().unwrap_or_default()).copied()
    }

    /// The same, as a credential has them: a session's token may only read what
    /// the session may, whichever way it came by the store.
    ///
    /// # Errors
    /// [`EngineError::StoreNotFound`] when it does not see all of them.
    pub(crate) fn seen_by(self, principal: &Principal) -> Result<Self, EngineError> {
        let mut stores = self.stores.to_vec();
        for store in &mut stores {
            principal.require_store(store.store_id)?;
            store.is_read_only |= principal.is_read_only(store.store_id);
        }
        Ok(Self {
            stores: stores.into(),
            ..self
        })
    }
}
