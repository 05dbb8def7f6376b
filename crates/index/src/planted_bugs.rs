//! Bugs that tests plant into the index, to show that their checks find them.
//!
//! The feature `planted-bugs` compiles this module; the product does not have it.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use keepsake_core::TenantId;

use crate::{Commit, CommitOutcome, Index, IndexError, Memories};

/// A bug of commits.
#[async_trait]
pub trait PlantedBug: Debug + Send + Sync {
    /// Runs in place of [`Memories::commit`]; `memories` is without the bug.
    async fn commit(
        &self,
        memories: &Memories,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError>;
}

impl Index {
    /// The same index with a bug.
    #[must_use]
    pub fn with_bug(mut self, bug: Arc<dyn PlantedBug>) -> Self {
        self.memories.bug = Some(bug);
        self
    }

    /// The same index with the bug of another one.
    pub(crate) fn with_bug_of(mut self, other: Self) -> Self {
        self.memories.bug = other.memories.bug;
        self
    }
}
