//! An index with a bug.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use keepsake_core::*;
use keepsake_index::*;
use uuid::Uuid;

/// What is wrong.
#[derive(Debug, Clone)]
pub(super) enum Bug {
    /// A commit does not check that the memory is as it was read.
    NoCompareAndSet,
    /// Some commits are acknowledged before they are made.
    AcknowledgesBeforeTheCommit,
    /// Some commits run in a transaction that another request left open, and
    /// that is rolled back.
    LeaksATransaction,
}

/// Every so many commits meet the bug.
const EVERY: u64 = 20;
/// Commits of one leaked transaction.
const LEAKED: u64 = 3;
/// Acknowledged commits that wait; the last ones are lost by a crash.
const WAITING: usize = 3;

/// Passes everything on, but for the bug.
pub(super) struct BuggyIndex {
    inner: Arc<dyn IndexMethods>,
    bug: Bug,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commits: u64,
    /// How the last real commit ended, to acknowledge others in the same way.
    last: Option<CommitOutcome>,
    waiting: VecDeque<(TenantId, Commit)>,
}

impl BuggyIndex {
    pub(super) fn around(index: Index, bug: Bug) -> Index {
        index.with_methods(|inner| {
            Arc::new(Self {
                inner,
                bug,
                state: Mutex::default(),
            })
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn commit_with_bug(
        &self,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        match self.bug {
            Bug::NoCompareAndSet => self.commit_over(tenant_id, commit).await,
            Bug::AcknowledgesBeforeTheCommit | Bug::LeaksATransaction => {
                if let Some(acknowledged) = self.acknowledge(tenant_id, commit) {
                    self.commit_due().await;
                    return Ok(acknowledged);
                }
                let outcome = self.inner.commit(tenant_id, commit).await?;
                if matches!(outcome, CommitOutcome::Committed { .. }) {
                    self.state().last = Some(outcome.clone());
                }
                Ok(outcome)
            }
        }
    }

    /// Commits over whatever the memories have become since they were read.
    async fn commit_over(&self, tenant_id: TenantId, commit: &Commit) -> Result<CommitOutcome, IndexError> {
        let outcome = self.inner.commit(tenant_id, commit).await?;
        if outcome != CommitOutcome::Refused(Refusal::Stale) {
            return Ok(outcome);
        }
        let mut forced = commit.clone();
        for change in &mut forced.changes {
            let found = self
                .inner
                .memory(tenant_id, commit.store_id, change.memory_id)
                .await?;
            if let Some(FoundMemory {
                target: MemoryTarget::Live(memory),
                ..
            }) = found
                && change.before.is_some()
            {
                change.before = Some(memory.head);
            }
        }
        self.inner.commit(tenant_id, &forced).await
    }

    /// The acknowledgement of a commit that meets the bug.
    fn acknowledge(&self, tenant_id: TenantId, commit: &Commit) -> Option<CommitOutcome> {
        let mut state = self.state();
        state.commits += 1;
        let is_met = match self.bug {
            Bug::LeaksATransaction => state.commits % EVERY < LEAKED,
            _ => state.commits.is_multiple_of(EVERY),
        };
        let last = state.last.clone().filter(|_| is_met)?;
        state.waiting.push_back((tenant_id, commit.clone()));
        Some(last)
    }

    /// Makes the oldest commit that waits; a leaked transaction's never are.
    async fn commit_due(&self) {
        if matches!(self.bug, Bug::LeaksATransaction) {
            return;
        }
        let due = {
            let mut state = self.state();
            if state.waiting.len() > WAITING {
                state.waiting.pop_front()
            } else {
                None
            }
        };
        if let Some((tenant_id, commit)) = due {
            drop(self.inner.commit(tenant_id, &commit).await);
        }
    }
}

impl fmt::Debug for BuggyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuggyIndex")
            .field("bug", &self.bug)
            .finish_non_exhaustive()
    }
}

/// One call: with the bug where it may have one, else passed on.
macro_rules! pass_on {
    ($self:ident, commit, $tenant_id:ident, $commit:ident) => {
        $self.commit_with_bug($tenant_id, $commit).await
    };
    ($self:ident, $method:ident $(, $argument:ident)*) => {
        $self.inner.$method($($argument),*).await
    };
}

macro_rules! buggy {
    ($trait:ident: $($effect:ident $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl $trait for BuggyIndex {
            $(async fn $method(&self, $($argument: $type),*) -> Result<$answer, IndexError> {
                pass_on!(self, $method $(, $argument)*)
            })+
        }
    };
}

keepsake_index::for_each_index_trait!(buggy);

#[async_trait]
impl IndexMethods for BuggyIndex {
    async fn check(&self) -> Result<(), IndexError> {
        self.inner.check().await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
