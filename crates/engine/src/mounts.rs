//! What a tool's paths lead to: one store, or those that a session attached.

use std::sync::Arc;

use keepsake_core::StoreId;
use keepsake_core::tool::{ToolPath, ToolRoot};

use crate::{EngineError, Principal};

/// The stores that a tool's paths lead to; cheap to clone.
#[derive(Debug, Clone)]
pub struct Mounts {
    root: ToolRoot,
    stores: Arc<[Mounted]>,
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
        }
    }
}

impl Mounts {
    /// The directories of a session, by their slugs, in their order.
    pub fn of_session(mounts: impl IntoIterator<Item = (String, Mounted)>) -> Self {
        let (slugs, stores): (Vec<_>, Vec<_>) = mounts.into_iter().unzip();
        Self {
            root: ToolRoot::Mounts(slugs.into()),
            stores: stores.into(),
        }
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

    /// Checks that a credential sees every store.
    pub(crate) fn require(&self, principal: &Principal) -> Result<(), EngineError> {
        self.stores
            .iter()
            .try_for_each(|store| principal.require_store(store.store_id))
    }
}
