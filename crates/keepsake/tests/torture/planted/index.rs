//! Bugs of commits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use keepsake_core::*;
use keepsake_index::*;

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

/// One commit in this many has the bug.
const EVERY: u64 = 20;
/// Commits of one leaked transaction.
const LEAKED: u64 = 3;
/// Acknowledged commits that wait; the last ones are lost by a crash.
const WAITING: usize = 3;

/// A bug, and what it has done.
#[derive(Debug)]
pub(super) struct BuggyIndex {
    bug: Bug,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    commits: u64,
    /// How the last real commit ended, to acknowledge others in the same way.
    last: Option<CommitOutcome>,
    waiting: VecDeque<(TenantId, Commit)>,
}

#[async_trait]
impl PlantedBug for BuggyIndex {
    async fn commit(
        &self,
        memories: &Memories,
        tenant_id: TenantId,
        commit: &Commit,
    ) -> Result<CommitOutcome, IndexError> {
        match self.bug {
            Bug::NoCompareAndSet => commit_over(memories, tenant_id, commit).await,
            Bug::AcknowledgesBeforeTheCommit | Bug::LeaksATransaction => {
                if let Some(acknowledged) = self.acknowledge(tenant_id, commit) {
                    self.commit_due(memories).await;
                    return Ok(acknowledged);
                }
                let outcome = memories.commit(tenant_id, commit).await?;
                if matches!(outcome, CommitOutcome::Committed { .. }) {
                    self.state().last = Some(outcome.clone());
                }
                Ok(outcome)
            }
        }
    }
}

impl BuggyIndex {
    pub(super) fn around(index: Index, bug: Bug) -> Index {
        index.with_bug(Arc::new(Self {
            bug,
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The acknowledgement of a commit with the bug.
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
    async fn commit_due(&self, memories: &Memories) {
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
            drop(memories.commit(tenant_id, &commit).await);
        }
    }
}

/// Commits over whatever the memories have become since they were read.
async fn commit_over(
    memories: &Memories,
    tenant_id: TenantId,
    commit: &Commit,
) -> Result<CommitOutcome, IndexError> {
    let outcome = memories.commit(tenant_id, commit).await?;
    if outcome != CommitOutcome::Refused(Refusal::Stale) {
        return Ok(outcome);
    }
    let mut forced = commit.clone();
    for change in &mut forced.changes {
        let found = memories
            .find(tenant_id, commit.store_id, change.memory_id)
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
    memories.commit(tenant_id, &forced).await
}
