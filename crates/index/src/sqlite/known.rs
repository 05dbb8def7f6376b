//! Look-ups and first pages whose answers are known, because nothing that they read was
//! changed since.
//!
//! Only this process writes the file. So between two changes of what a look-up reads it
//! has one answer, and who asks again needs no connection, and no other thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepsake_core::{MemoryPath, TenantId, VersionId};
use uuid::Uuid;

use crate::commit::{Change, Commit};
use crate::memories::{HeadAt, PageAt, Place, StoreKey};
use crate::model::{Depth, ExpiryChange, Head, HeadChange, Lookup, MemoryPage, StoreState, Target};

/// Answers, entries of directories and items of pages in a generation, from which on
/// nothing is kept in it. There are two generations, and a head takes about half a
/// kilobyte.
const MAX_ENTRIES: usize = 20_000;
/// Look-ups of one place, with different numbers of entries, and as many pages.
const MAX_ANSWERS: usize = 4;

/// The answers to look-ups, and first pages.
#[derive(Debug, Default)]
pub(crate) struct KnownAnswers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many transactions that were to be committed have ended.
    ended: u64,
    /// An answer is not kept if its look-up began before as many had ended;
    /// [`BEING_CHANGED`] while one that changes anything is committed.
    since: u64,
    /// The changes of a transaction that was to be committed and has not certainly ended.
    committing: Option<Changes>,
    answers: Answers,
}

/// What a transaction changes of the answers.
#[derive(Debug)]
pub(crate) enum Changes {
    /// Any of them.
    All,
    /// Those at the paths of commits.
    Commits(Changed),
}

/// The places that commits of one transaction change, and the new heads there.
#[derive(Debug, Default)]
pub(crate) struct Changed(HashMap<Place, Option<NewHead>>);

/// The head of a memory after a commit.
#[derive(Debug)]
struct NewHead {
    /// Without the claim of the head before.
    head: Head,
    store: StoreState,
    before: Option<Before>,
}

/// The head before an edit or a rename, whose claim is that of the new one.
#[derive(Debug)]
struct Before {
    at: Place,
    version_id: VersionId,
    /// The replica that commits; its own claim ends.
    replica: Uuid,
}

/// Answers in two generations. A place is in one of them. One that changes, or gets an
/// answer, goes to the younger; when that is full, it becomes the older, and the older is
/// forgotten.
#[derive(Debug, Default)]
struct Answers {
    younger: Generation,
    older: Generation,
    /// What the slots of the younger count for.
    entries: usize,
}

type Generation = HashMap<Place, Slot>;

/// What is known of a place.
#[derive(Debug, Default)]
struct Slot {
    /// How many transactions had ended when the place was changed last;
    /// [`BEING_CHANGED`] until that has ended.
    changed: u64,
    /// The target, by the number of entries that was asked for. That number matters for a
    /// directory only.
    targets: Answered<u64, Lookup>,
    /// The first pages of the memories below.
    pages: Answered<(Depth, u32), MemoryPage>,
}

/// Answers with their questions, the oldest first.
#[derive(Debug)]
struct Answered<Q, A>(Vec<(Q, Arc<A>)>);

impl<Q, A> Default for Answered<Q, A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

const BEING_CHANGED: u64 = u64::MAX;

/// The state of the file, in which a look-up begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl KnownAnswers {
    /// The answer to a look-up, if it is known.
    pub(crate) fn target(&self, at: &HeadAt) -> Option<Lookup> {
        let target = self.state().answers.slot(&at.place)?.target(at.max_entries).cloned();
        target.map(Arc::unwrap_or_clone)
    }

    /// A page, if it is known.
    pub(crate) fn page(&self, at: &PageAt) -> Option<MemoryPage> {
        let page = self.state().answers.slot(&at.place)?.pages.get(&at.wanted()).cloned();
        page.map(Arc::unwrap_or_clone)
    }

    /// Call it before a look-up whose answer is to be kept.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.state().ended)
    }

    /// Keeps the answer to a look-up that began at `moment`, unless what it read may have
    /// been changed since.
    pub(crate) fn keep_target(&self, moment: Moment, at: &HeadAt, target: &Lookup) {
        let target = Arc::new(target.clone());
        self.keep(moment, &at.place, |slot| {
            slot.targets.keep(at.max_entries, target);
        });
    }

    /// The same for a page.
    pub(crate) fn keep_page(&self, moment: Moment, at: &PageAt, page: &MemoryPage) {
        let page = Arc::new(page.clone());
        self.keep(moment, &at.place, |slot| slot.pages.keep(at.wanted(), page));
    }

    fn keep(&self, moment: Moment, at: &Place, keep: impl FnOnce(&mut Slot)) {
        let mut state = self.state();
        let forgotten = state.make_room();
        // A generation that is full stays until the transaction ends that is committed.
        if state.since <= moment.0 && state.answers.entries < MAX_ENTRIES {
            state.answers.change(at, |slot| {
                if slot.changed <= moment.0 {
                    keep(slot);
                }
            });
        }
        drop(state);
        drop(forgotten);
    }

    /// Forgets what a transaction changes, which is now to be committed.
    pub(super) fn committing(&self, changes: Changes) {
        let mut state = self.state();
        let forgotten = state.committing(changes);
        drop(state);
        drop(forgotten);
    }

    /// The transaction that was to be committed has ended. `is_made`: it was certainly
    /// made, so its new heads are known.
    pub(super) fn ended(&self, is_made: bool) {
        let mut state = self.state();
        let forgotten = state.ended(is_made);
        drop(state);
        drop(forgotten);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets the answers that a transaction changes, and returns them: to drop them takes
    /// a while.
    fn committing(&mut self, mut changes: Changes) -> (Answers, Vec<Slot>) {
        let mut forgotten = (Answers::default(), Vec::new());
        match &mut changes {
            Changes::All => {
                self.since = BEING_CHANGED;
                forgotten.0 = mem::take(&mut self.answers);
            }
            Changes::Commits(Changed(places)) => {
                for head in places.values_mut() {
                    *head = head.take().and_then(|new| new.with_claim(&self.answers));
                }
                forgotten.1 = places
                    .keys()
                    .map(|place| {
                        self.answers.change(place, |slot| mem::replace(slot, Slot::changed_at(BEING_CHANGED)))
                    })
                    .collect();
            }
        }
        self.committing = Some(changes);
        forgotten
    }

    fn ended(&mut self, is_made: bool) -> Generation {
        let Some(changes) = self.committing.take() else {
            return Generation::new();
        };
        self.ended += 1;
        match changes {
            Changes::All => self.since = self.ended,
            Changes::Commits(Changed(places)) => {
                for (place, head) in places {
                    let mut slot = Slot::changed_at(self.ended);
                    if let Some(head) = head.filter(|_| is_made) {
                        slot.targets.keep(0, Arc::new(head.into_lookup()));
                    }
                    self.answers.change(&place, |known| *known = slot);
                }
            }
        }
        self.make_room()
    }

    /// Starts a generation if the younger is full; returns the older, which is forgotten.
    /// Nothing then says when its places were changed, so the answer to a look-up that has
    /// begun is not kept, and a transaction that is being committed ends first.
    fn make_room(&mut self) -> Generation {
        if self.answers.entries < MAX_ENTRIES || self.committing.is_some() {
            return Generation::new();
        }
        self.since = self.since.max(self.ended);
        self.answers.entries = 0;
        let full = mem::take(&mut self.answers.younger);
        mem::replace(&mut self.answers.older, full)
    }
}

impl Changes {
    /// Adds a commit of which `seq` is the number of the store's last version before it.
    pub(super) fn add(&mut self, tenant_id: TenantId, commit: &Commit, seq: i64, purge_epoch: i64) {
        // The paths of memories without a version are not known here.
        let unchanged = ExpiryChange::default();
        if commit.kept.iter().any(|kept| kept.expiry != unchanged) {
            *self = Self::All;
        }
        if let Self::Commits(changed) = self {
            changed.add(tenant_id, commit, seq, purge_epoch);
        }
    }
}

impl Changed {
    fn add(&mut self, tenant_id: TenantId, commit: &Commit, seq: i64, purge_epoch: i64) {
        let store_id = commit.store_id;
        let at = |path: Option<MemoryPath>| Place { store: StoreKey { tenant_id, store_id }, path };
        // A change adds content, so its store is not archived.
        let store = StoreState { is_archived: false, purge_epoch };
        for change in &commit.changes {
            let paths = [
                change.before.as_ref().map(|before| &before.path),
                change.after.as_ref().map(|after| &after.path),
            ];
            for path in paths.into_iter().flatten() {
                self.0.insert(at(Some(path.clone())), None);
                let above = path.ancestors().map(|directory| (at(directory.as_file()), None));
                self.0.extend(above);
            }
        }
        let with_version = commit.changes.iter().filter(|change| change.path().is_some());
        for (change, seq) in with_version.zip(seq + 1..) {
            let (Some(after), None) = (&change.after, change.revives) else {
                continue;
            };
            let before = change.before.as_ref().map(|before| Before {
                at: at(Some(before.path.clone())),
                version_id: before.version_id,
                replica: commit.replica,
            });
            let new = NewHead { head: head_of(change, after, seq), store, before };
            self.0.insert(at(Some(after.path.clone())), Some(new));
        }
    }
}

/// The head that a change makes, without a claim.
fn head_of(change: &Change, after: &HeadChange, seq: i64) -> Head {
    Head {
        memory_id: change.memory_id,
        path: after.path.clone(),
        version_id: change.version_id,
        seq,
        blob_id: after.blob_id,
        size_bytes: after.size_bytes,
        sha256: after.sha256,
        claim: None,
    }
}

impl NewHead {
    /// The head with the claim of the one before; `None` if that is not known.
    fn with_claim(mut self, answers: &Answers) -> Option<Self> {
        if let Some(Before { at, version_id, replica }) = &self.before {
            let answer = answers.slot(at)?.target(0)?;
            let Target::Memory(before) = &answer.target else {
                return None;
            };
            if before.version_id != *version_id {
                return None;
            }
            self.head.claim = before.claim.filter(|claim| claim.replica != *replica);
        }
        Some(self)
    }

    fn into_lookup(self) -> Lookup {
        Lookup { store: self.store, target: Target::Memory(self.head) }
    }
}

impl Answers {
    fn slot(&self, at: &Place) -> Option<&Slot> {
        self.younger.get(at).or_else(|| self.older.get(at))
    }

    /// Changes the slot of a place, and puts it into the younger generation.
    fn change<T>(&mut self, at: &Place, change: impl FnOnce(&mut Slot) -> T) -> T {
        let slot = match self.younger.entry(at.clone()) {
            Entry::Occupied(entry) => {
                self.entries -= entry.get().entries();
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(self.older.remove(at).unwrap_or_default()),
        };
        let changed = change(slot);
        self.entries += slot.entries();
        changed
    }
}

impl Slot {
    fn changed_at(changed: u64) -> Self {
        Self { changed, ..Self::default() }
    }

    fn target(&self, max_entries: u64) -> Option<&Arc<Lookup>> {
        let mut targets = self.targets.0.iter();
        let is_wanted = |(wanted, target): &&(u64, Arc<Lookup>)| {
            *wanted == max_entries || !matches!(target.target, Target::Directory(_))
        };
        targets.find(is_wanted).map(|(_, target)| target)
    }

    /// What it counts for in its generation.
    fn entries(&self) -> usize {
        let targets = self.targets.0.iter().map(|(_, target)| match &target.target {
            Target::Directory(directory) => 1 + directory.entries.len(),
            Target::Memory(_) | Target::Missing => 1,
        });
        let pages = self.pages.0.iter().map(|(_, page)| 1 + page.items.len());
        targets.chain(pages).sum::<usize>().max(1)
    }
}

impl<Q: PartialEq, A> Answered<Q, A> {
    fn get(&self, wanted: &Q) -> Option<&Arc<A>> {
        let mut answers = self.0.iter();
        answers.find(|(asked, _)| asked == wanted).map(|(_, answer)| answer)
    }

    fn keep(&mut self, asked: Q, answer: Arc<A>) {
        self.0.retain(|(other, _)| *other != asked);
        if self.0.len() == MAX_ANSWERS {
            self.0.remove(0);
        }
        self.0.push((asked, answer));
    }
}

#[cfg(test)]
mod tests;
