//! Look-ups whose answers are known, because nothing was committed since.
//!
//! Only this process writes the file. So between two commits a look-up has one answer, and
//! who asks again needs no connection, and no other thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memories::HeadAt;
use crate::model::{Lookup, Target};

/// Heads and entries of directories that are kept, in all.
const MAX_ENTRIES: usize = 20_000;

/// The answers since the last commit.
#[derive(Debug, Default)]
pub(crate) struct KnownHeads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many commits were begun, and how many have ended, together.
    changes: u64,
    /// Whether a commit was begun and has not certainly ended.
    is_committing: bool,
    answers: HashMap<HeadAt, Arc<Lookup>>,
    /// Heads and entries of `answers`.
    entries: usize,
}

/// The state of the file, in which a look-up begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl KnownHeads {
    /// The answer to a look-up, if it is known.
    pub(crate) fn get(&self, at: &HeadAt) -> Option<Lookup> {
        let answer = Arc::clone(self.state().answers.get(at)?);
        Some(Arc::unwrap_or_clone(answer))
    }

    /// Call it before a look-up whose answer is to be kept.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.state().changes)
    }

    /// Keeps the answer to a look-up that began at `moment`, unless a commit began or
    /// ended since.
    pub(crate) fn keep(&self, moment: Moment, at: &HeadAt, answer: &Lookup) {
        let entries = match &answer.target {
            Target::Directory(directory) => 1 + directory.entries.len(),
            Target::Memory(_) | Target::Missing => 1,
        };
        let answer = Arc::new(answer.clone());
        let mut state = self.state();
        if state.is_committing || moment.0 != state.changes {
            return;
        }
        if state.entries + entries > MAX_ENTRIES {
            state.forget();
        }
        if state.answers.insert(at.clone(), answer).is_none() {
            state.entries += entries;
        }
    }

    /// Forgets everything. Nothing is kept until [`Self::committed`].
    pub(super) fn committing(&self) {
        let mut state = self.state();
        state.changes += 1;
        state.is_committing = true;
        let forgotten = state.forget();
        drop(state);
        drop(forgotten);
    }

    /// The last commit has ended: it was made, or it was undone.
    pub(super) fn committed(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_committing) {
            state.changes += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self) -> HashMap<HeadAt, Arc<Lookup>> {
        self.entries = 0;
        std::mem::take(&mut self.answers)
    }
}
