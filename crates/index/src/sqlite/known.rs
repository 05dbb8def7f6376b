//! A cache of look-ups, by path and by id, and of first pages on SQLite. A cached answer is valid until the data
//! that it was read from changes.
//!
//! Only this process writes the file, so it knows every change. A cached answer needs
//! neither a connection nor SQLite's thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::Arc;

use keepsake_core::{MemoryPath, TenantId, VersionId};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::commit::{Commit, Origin};
use crate::model::{
    Depth, ExpiryChange, FoundMemory, Head, HeadLookup, Lookup, MemoryListing, MemoryLookup, MemoryPage,
    PathKey, StoreKey, StoreState, Target,
};

/// The number of entries at which a generation is full: answers, entries of their
/// directories and items of their pages ([`Slot::entries`]). There are two generations,
/// and a head takes about half a kilobyte.
const MAX_ENTRIES: usize = 20_000;
/// Maximum number of look-ups, and of pages, that are cached for one subject. They differ
/// in the number of entries that the caller asked for.
const MAX_ANSWERS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct KnownAnswers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of commits of SQLite transactions that have ended, successful or not.
    /// This number is the clock of the cache; [`Moment`] is a reading of it.
    ended: u64,
    /// The answer of a look-up that began before this time of the cache's clock is not
    /// cached. [`BEING_CHANGED`] while a transaction that may change every answer is
    /// committed.
    since: u64,
    /// The changes of the transaction that is being committed, or whose commit may not
    /// have ended.
    committing: Option<Changes>,
    answers: Answers,
}

/// The cached answers that a transaction changes.
#[derive(Debug)]
pub(crate) enum Changes {
    /// Any answer may change.
    All,
    /// Only the answers at the paths of the added commits change.
    Commits(ChangedPlaces),
}

/// The subjects that the commits of one transaction change, each with the new head of the
/// memory at that place. `None`: the place has no memory, or the new head is not known.
#[derive(Debug, Default)]
pub(crate) struct ChangedPlaces(HashMap<Subject, Option<NewHead>>);

/// The subject of an answer: a path, or a memory by its id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    Place(PathKey),
    Memory(MemoryLookup),
}

#[derive(Debug)]
struct NewHead {
    /// Has no claim until [`NewHead::with_claim`] copies the claim of the head before.
    head: Head,
    store: StoreState,
    /// The place and the version of the head before an edit or a rename. The new head keeps its claim.
    before: Option<(Subject, VersionId)>,
    /// The replica that commits; the commit ends the replica's own claim.
    replica: Uuid,
}

/// The cached answers, in two generations. Each subject is in one of them. A subject that
/// changes or gets an answer moves to the younger generation. When the younger one is
/// full, it becomes the older one, and the previous older one is dropped.
#[derive(Debug, Default)]
struct Answers {
    younger: Generation,
    older: Generation,
    /// The size of the younger generation: the sum of its [`Slot::entries`].
    entries: usize,
}

type Generation = HashMap<Subject, Slot>;

/// The cached answers for one subject.
#[derive(Debug, Default)]
struct Slot {
    /// The number of commits that had ended (`State::ended`) when the subject last
    /// changed; [`BEING_CHANGED`] until the commit that changes it has ended.
    changed: u64,
    /// The memory with the id.
    memory: Option<Arc<FoundMemory>>,
    /// The target of the place, by the maximum number of entries that the caller asked
    /// for. That number matters only for a directory.
    targets: AnswerList<u64, Lookup>,
    /// The first pages of the memories below the place, by depth and limit.
    pages: AnswerList<(Depth, u32), MemoryPage>,
}

/// Answers with their questions, oldest first; at most [`MAX_ANSWERS`].
#[derive(Debug)]
struct AnswerList<Q, A>(Vec<(Q, Arc<A>)>);

impl<Q, A> Default for AnswerList<Q, A> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The place of a listing, and the key of its first page among the pages of the place.
fn first_page_of(store: StoreKey, listing: &MemoryListing) -> (Subject, (Depth, u32)) {
    let place = PathKey { store, path: listing.below.as_file() };
    (Subject::Place(place), (listing.depth, listing.limit))
}

const BEING_CHANGED: u64 = u64::MAX;

/// The time at which a look-up begins, as the number of commits that had ended
/// (`State::ended`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl KnownAnswers {
    pub(crate) fn target(&self, at: &HeadLookup) -> Option<Lookup> {
        let subject = Subject::Place(at.place.clone());
        let target = self.0.lock().answers.slot(&subject)?.target(at.max_entries).cloned();
        target.map(Arc::unwrap_or_clone)
    }

    pub(crate) fn memory(&self, at: MemoryLookup) -> Option<FoundMemory> {
        let memory = self.0.lock().answers.slot(&Subject::Memory(at))?.memory.clone();
        memory.map(Arc::unwrap_or_clone)
    }

    /// The first page of a listing.
    pub(crate) fn page(&self, store: StoreKey, listing: &MemoryListing) -> Option<MemoryPage> {
        let (subject, wanted) = first_page_of(store, listing);
        let page = self.0.lock().answers.slot(&subject)?.pages.get(&wanted).cloned();
        page.map(Arc::unwrap_or_clone)
    }

    /// Call this before a look-up whose answer is to be cached.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.0.lock().ended)
    }

    /// Caches the answer of a look-up that began at `moment`, unless the data that it
    /// read may have changed since then.
    pub(crate) fn keep_target(&self, moment: Moment, at: &HeadLookup, target: &Lookup) {
        let target = Arc::new(target.clone());
        self.keep(moment, Subject::Place(at.place.clone()), |slot| {
            slot.targets.keep(at.max_entries, target);
        });
    }

    /// Like [`Self::keep_target`], for a memory by id.
    pub(crate) fn keep_memory(&self, moment: Moment, at: MemoryLookup, found: &FoundMemory) {
        let found = Arc::new(found.clone());
        self.keep(moment, Subject::Memory(at), |slot| slot.memory = Some(found));
    }

    /// Like [`Self::keep_target`], for a page.
    pub(crate) fn keep_page(
        &self,
        moment: Moment,
        store: StoreKey,
        listing: &MemoryListing,
        page: &MemoryPage,
    ) {
        let (page, (subject, wanted)) = (Arc::new(page.clone()), first_page_of(store, listing));
        self.keep(moment, subject, |slot| slot.pages.keep(wanted, page));
    }

    fn keep(&self, moment: Moment, subject: Subject, keep: impl FnOnce(&mut Slot)) {
        let mut state = self.0.lock();
        let forgotten = state.make_room();
        // A full generation is replaced only after the current commit has ended; until
        // then, it takes no further answers.
        if state.since <= moment.0 && state.answers.entries < MAX_ENTRIES {
            state.answers.change(subject, |slot| {
                if slot.changed <= moment.0 {
                    keep(slot);
                }
            });
        }
        drop(state);
        drop(forgotten);
    }

    /// Call this before a commit. Drops the answers that the transaction changes.
    pub(super) fn committing(&self, changes: Changes) {
        let mut state = self.0.lock();
        let forgotten = state.committing(changes);
        drop(state);
        drop(forgotten);
    }

    /// Call this after a commit has ended. `is_made`: the commit was certainly made, so
    /// the new heads are cached.
    pub(super) fn ended(&self, is_made: bool) {
        let mut state = self.0.lock();
        let forgotten = state.ended(is_made);
        drop(state);
        drop(forgotten);
    }
}

impl State {
    /// Removes the answers that a transaction changes, and returns them: dropping them
    /// takes a while, so the caller does it after it has released the lock.
    fn committing(&mut self, mut changes: Changes) -> (Answers, Vec<Slot>) {
        let mut forgotten = (Answers::default(), Vec::new());
        match &mut changes {
            Changes::All => {
                self.since = BEING_CHANGED;
                forgotten.0 = mem::take(&mut self.answers);
            }
            Changes::Commits(ChangedPlaces(subjects)) => {
                for head in subjects.values_mut() {
                    *head = head.take().and_then(|new| new.with_claim(&self.answers));
                }
                let forget = |slot: &mut Slot| mem::replace(slot, Slot::changed_at(BEING_CHANGED));
                forgotten.1 =
                    subjects.keys().map(|subject| self.answers.change(subject.clone(), forget)).collect();
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
            Changes::Commits(ChangedPlaces(subjects)) => {
                for (subject, head) in subjects {
                    let mut slot = Slot::changed_at(self.ended);
                    if let Some(head) = head.filter(|_| is_made) {
                        slot.targets.keep(0, Arc::new(head.into_lookup()));
                    }
                    self.answers.change(subject, |known| *known = slot);
                }
            }
        }
        self.make_room()
    }

    /// If the younger generation is full, makes it the older one and returns the previous
    /// older one, to be dropped without the lock.
    ///
    /// With the dropped slots, the cache loses the numbers that say when their subjects
    /// changed. So it caches no answer of a look-up that has already begun, and replaces
    /// no generation during a commit.
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
    /// `seq` is the sequence number of the store's last version before the commit.
    pub(super) fn add(&mut self, tenant_id: TenantId, commit: &Commit, seq: i64, purge_epoch: i64) {
        // Memories without a new version are named by id only, so their paths are
        // unknown.
        let unchanged = ExpiryChange::default();
        if commit.kept.iter().any(|kept| kept.expiry != unchanged) {
            *self = Self::All;
        }
        if let Self::Commits(changed) = self {
            changed.add(tenant_id, commit, seq, purge_epoch);
        }
    }
}

impl ChangedPlaces {
    fn add(&mut self, tenant_id: TenantId, commit: &Commit, seq: i64, purge_epoch: i64) {
        let key = StoreKey { tenant_id, store_id: commit.store_id };
        let at = |path: Option<MemoryPath>| Subject::Place(PathKey { store: key, path });
        // A change with a new head adds content, which an archived store refuses.
        let store = StoreState { is_archived: false, purge_epoch };
        for change in &commit.changes {
            self.0.insert(Subject::Memory((key, change.memory_id)), None);
            let paths = [change.wanted.head().map(|before| &before.path), change.wanted.path.as_ref()];
            for path in paths.into_iter().flatten() {
                self.0.insert(at(Some(path.clone())), None);
                let above = path.ancestors().map(|directory| (at(directory.as_file()), None));
                self.0.extend(above);
            }
        }
        let with_version = commit.changes.iter().filter(|change| change.path().is_some());
        for (change, seq) in with_version.zip(seq + 1..) {
            let (Some(head), Origin::New | Origin::Live(_)) = (change.head(seq), &change.wanted.from) else {
                continue;
            };
            let before = change.wanted.head();
            let before = before.map(|before| (at(Some(before.path.clone())), before.version_id));
            let place = at(Some(head.path.clone()));
            self.0.insert(place, Some(NewHead { head, store, before, replica: commit.replica }));
        }
    }
}

impl NewHead {
    /// Copies the claim of the head before; `None` if that head is not cached.
    fn with_claim(mut self, answers: &Answers) -> Option<Self> {
        if let Some((at, version_id)) = &self.before {
            let answer = answers.slot(at)?.target(0)?;
            let Target::Memory(before) = &answer.target else {
                return None;
            };
            if before.version_id != *version_id {
                return None;
            }
            self.head.claim = before.claim.filter(|claim| claim.replica != self.replica);
        }
        Some(self)
    }

    fn into_lookup(self) -> Lookup {
        Lookup { store: self.store, target: Target::Memory(self.head) }
    }
}

impl Answers {
    fn slot(&self, subject: &Subject) -> Option<&Slot> {
        self.younger.get(subject).or_else(|| self.older.get(subject))
    }

    /// Moves the slot of a subject to the younger generation, and changes it.
    fn change<T>(&mut self, subject: Subject, change: impl FnOnce(&mut Slot) -> T) -> T {
        let slot = match self.younger.entry(subject) {
            Entry::Occupied(entry) => {
                self.entries -= entry.get().entries();
                entry.into_mut()
            }
            Entry::Vacant(entry) => {
                let known = self.older.remove(entry.key());
                entry.insert(known.unwrap_or_default())
            }
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

    /// The number of entries for which the slot counts in its generation.
    fn entries(&self) -> usize {
        let targets = self.targets.0.iter().map(|(_, target)| match &target.target {
            Target::Directory(directory) => 1 + directory.entries.len(),
            Target::Memory(_) | Target::Missing => 1,
        });
        let pages = self.pages.0.iter().map(|(_, page)| 1 + page.items.len());
        targets.chain(pages).sum::<usize>().max(1)
    }
}

impl<Q: PartialEq, A> AnswerList<Q, A> {
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
