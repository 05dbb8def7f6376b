//! Look-ups whose answers are known, because nothing was committed since.
//!
//! Only this process writes the file. So between two commits a look-up has one answer, and
//! who asks again needs no connection, and no other thread.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memories::HeadAt;
use crate::model::{Lookup, Target};

/// Heads and entries of directories in a generation of answers. There are two, and a head
/// takes about half a kilobyte.
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
    answers: Answers,
}

/// Answers in two generations. A new answer goes to the younger; when that is full, it
/// becomes the older, and the older is forgotten.
#[derive(Debug, Default)]
struct Answers {
    younger: Generation,
    older: Generation,
    /// Heads and entries of the younger.
    entries: usize,
}

type Generation = HashMap<HeadAt, Arc<Lookup>>;

/// The state of the file, in which a look-up begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl KnownHeads {
    /// The answer to a look-up, if it is known.
    pub(crate) fn get(&self, at: &HeadAt) -> Option<Lookup> {
        let answer = self.state().answers.get(at)?;
        Some(Arc::unwrap_or_clone(answer))
    }

    /// Call it before a look-up whose answer is to be kept.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.state().changes)
    }

    /// Keeps the answer to a look-up that began at `moment`, unless a commit began or
    /// ended since.
    pub(crate) fn keep(&self, moment: Moment, at: &HeadAt, answer: &Lookup) {
        let answer = Arc::new(answer.clone());
        let mut state = self.state();
        if state.is_committing || moment.0 != state.changes {
            return;
        }
        let forgotten = state.answers.keep(at.clone(), answer);
        drop(state);
        drop(forgotten);
    }

    /// Forgets everything. Nothing is kept until [`Self::committed`].
    pub(super) fn committing(&self) {
        let mut state = self.state();
        state.changes += 1;
        state.is_committing = true;
        let forgotten = mem::take(&mut state.answers);
        drop(state);
        drop(forgotten);
    }

    /// The last commit has ended: it was made, or it was undone.
    pub(super) fn committed(&self) {
        let mut state = self.state();
        if mem::take(&mut state.is_committing) {
            state.changes += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    fn get(&self, at: &HeadAt) -> Option<Arc<Lookup>> {
        let answer = self.younger.get(at).or_else(|| self.older.get(at));
        answer.map(Arc::clone)
    }

    /// Keeps an answer; returns the generation that is forgotten for it, often an empty one.
    fn keep(&mut self, at: HeadAt, answer: Arc<Lookup>) -> Generation {
        let entries = match &answer.target {
            Target::Directory(directory) => 1 + directory.entries.len(),
            Target::Memory(_) | Target::Missing => 1,
        };
        let forgotten = if self.entries + entries > MAX_ENTRIES {
            self.entries = 0;
            mem::replace(&mut self.older, mem::take(&mut self.younger))
        } else {
            Generation::new()
        };
        if self.younger.insert(at, answer).is_none() {
            self.entries += entries;
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use keepsake_core::{MemoryPath, StoreId, TenantId};
    use uuid::Uuid;

    use super::{KnownHeads, MAX_ENTRIES};
    use crate::memories::{HeadAt, StoreKey};
    use crate::model::{Lookup, StoreState, Target};

    /// The place of a look-up.
    fn at(number: usize) -> HeadAt {
        HeadAt {
            store: StoreKey {
                tenant_id: TenantId::from_uuid(Uuid::nil()),
                store_id: StoreId::from_uuid(Uuid::nil()),
            },
            path: Some(MemoryPath::parse(&format!("/memories/{number}.md")).unwrap()),
            max_entries: 0,
        }
    }

    /// Looks up a path that is missing.
    fn look_up(known: &KnownHeads, number: usize) {
        let store = StoreState {
            is_archived: false,
            purge_epoch: 0,
        };
        let missing = Lookup {
            store,
            target: Target::Missing,
        };
        known.keep(known.moment(), &at(number), &missing);
    }

    #[test]
    fn oldest_answers_are_forgotten_first() {
        let known = KnownHeads::default();
        let look_up_all = |numbers: Range<usize>| numbers.for_each(|number| look_up(&known, number));
        look_up_all(0..2 * MAX_ENTRIES);
        assert!(known.get(&at(0)).is_some());
        look_up(&known, 2 * MAX_ENTRIES);
        assert!(known.get(&at(MAX_ENTRIES - 1)).is_none());
        assert!(known.get(&at(MAX_ENTRIES)).is_some());
        assert!(known.get(&at(2 * MAX_ENTRIES)).is_some());
    }

    #[test]
    fn a_commit_forgets_all_answers() {
        let known = KnownHeads::default();
        (0..=MAX_ENTRIES).for_each(|number| look_up(&known, number));
        known.committing();
        look_up(&known, 1);
        assert!((0..=MAX_ENTRIES).all(|number| known.get(&at(number)).is_none()));
        let before = known.moment();
        known.committed();
        look_up(&known, 0);
        let answer = known.get(&at(0)).unwrap();
        known.keep(before, &at(1), &answer);
        assert!(known.get(&at(1)).is_none());
    }
}
