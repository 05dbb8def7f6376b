//! The search index of one store, in process memory.
//!
//! It holds the rows of the store's memories, updated memory by memory, and their
//! postings. A changed memory gets a new slot, and its old slot is dead. When too
//! many slots are dead, the index is rebuilt. All counts (memories, frequencies,
//! lengths) cover live slots only.
//!
//! Reading a store's rows takes far less time than building all postings. So a
//! query that arrives before the postings are built reads the rows for its own
//! terms only. It finds the same hits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use keepsake_core::{MemoryId, MemoryPath};

use crate::row::{DamagedRow, TermRow, Terms, positions};

mod dictionary;
mod forms;
mod lists;
mod needed;
mod pairs;
mod reading;

pub(crate) use dictionary::Dictionary;
use dictionary::DictionaryBuild;
pub(crate) use dictionary::Posting;
pub(crate) use needed::TermFilter;

/// Minimum number of dead slots before the index considers a rebuild.
const MIN_DEAD: usize = 64;

/// The next numbering of slots in this process.
static NEXT_NUMBERING: AtomicU64 = AtomicU64::new(0);

/// The search index of one store.
pub struct Postings {
    slots: Vec<Slot>,
    by_memory: HashMap<MemoryId, u32>,
    live: usize,
    /// Positions of the indexed contents, and the number of these contents.
    content_positions: u64,
    contents: u64,
    path_positions: u64,
    /// The postings of all slots, once they are built.
    all: Option<Dictionary>,
    /// Maximum bytes for building postings, including those of one query.
    room: usize,
    /// Identifies the numbering of the slots; unique to one index between two rebuilds.
    numbering: u64,
}

impl Default for Postings {
    fn default() -> Self {
        Self::within(usize::MAX)
    }
}

/// A memory at one point in time.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) memory: MemoryId,
    pub(crate) path: Arc<MemoryPath>,
    /// The row of the content; empty if the content is not indexed.
    content: Arc<[u8]>,
    /// The row of the path, made here, so that a moved memory keeps the content's row.
    path_row: Arc<[u8]>,
    /// Positions of the content and of the path.
    pub(crate) length: u32,
    pub(crate) path_length: u32,
    pub(crate) is_live: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Content,
    Path,
}

impl Slot {
    fn row(&self, field: Field) -> &[u8] {
        match field {
            Field::Content => &self.content,
            Field::Path => &self.path_row,
        }
    }
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Postings {
    /// An empty index; building postings may take about `room` bytes.
    pub fn within(room: usize) -> Self {
        Self {
            slots: Vec::new(),
            by_memory: HashMap::new(),
            live: 0,
            content_positions: 0,
            contents: 0,
            path_positions: 0,
            all: None,
            room,
            numbering: NEXT_NUMBERING.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// A copy of the rows, which can be changed without this index. It has no postings; the contents of the
    /// rows are shared.
    #[must_use]
    pub fn copied_rows(&self) -> Self {
        let mut copy = Self::within(self.room);
        for slot in self.slots.iter().filter(|slot| slot.is_live) {
            // An index without postings reads no row, so it cannot find a damaged one.
            let _ = copy.add(slot.clone());
        }
        copy
    }

    /// The memories and their paths, unordered.
    pub fn memories(&self) -> impl Iterator<Item = (MemoryId, &MemoryPath)> {
        self.slots.iter().filter(|slot| slot.is_live).map(|slot| (slot.memory, &*slot.path))
    }

    /// The row of a memory's content; `None` if it has none.
    pub fn row_of(&self, memory: MemoryId) -> Option<Arc<[u8]>> {
        let slot = &self.slots[*self.by_memory.get(&memory)? as usize];
        (!slot.content.is_empty()).then(|| Arc::clone(&slot.content))
    }

    pub const fn len(&self) -> usize {
        self.live
    }

    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Sets a memory's path and the row of its content.
    ///
    /// Without a row, or with a row whose head is damaged, search finds the memory only
    /// by its path. Damage after the head is reported only if all postings are built; search
    /// then finds the terms before the damage.
    pub fn set(
        &mut self,
        memory: MemoryId,
        path: MemoryPath,
        row: Option<Arc<[u8]>>,
    ) -> Result<(), DamagedRow> {
        self.retire(memory);
        let row = row.unwrap_or_default();
        let length = if row.is_empty() { Ok(0) } else { Terms::of(&row).map(|terms| terms.length()) };
        let row = if length.is_ok() { row } else { Arc::default() };
        let path_row = TermRow::of(path.as_str());
        let added = self.add(Slot {
            memory,
            path: Arc::new(path),
            content: row,
            path_length: path_row.length(),
            path_row: path_row.into_bytes().into(),
            length: length.unwrap_or_default(),
            is_live: true,
        });
        self.tidy();
        length.and(added)
    }

    pub fn remove(&mut self, memory: MemoryId) {
        self.retire(memory);
        self.tidy();
    }

    /// A memory's path; `None` if the index does not have the memory.
    pub fn path_of(&self, memory: MemoryId) -> Option<&MemoryPath> {
        let slot = self.by_memory.get(&memory)?;
        Some(&self.slots[*slot as usize].path)
    }

    pub(crate) fn slot_of(&self, memory: MemoryId) -> Option<u32> {
        self.by_memory.get(&memory).copied()
    }

    /// Memory use in bytes, without the overhead of the allocator.
    pub fn size_bytes(&self) -> usize {
        let slots: usize = self
            .slots
            .iter()
            .map(|slot| {
                let text = slot.path.as_str().len();
                size_of::<Slot>() + 64 + slot.content.len() + slot.path_row.len() + text
            })
            .sum();
        size_of::<Self>() + slots + self.by_memory.len() * 32 + self.postings_bytes()
    }

    /// The part of [`Self::size_bytes`] that [`Self::drop_all`] frees.
    pub fn postings_bytes(&self) -> usize {
        self.all.as_ref().map_or(0, Dictionary::size_bytes)
    }

    /// Whether the postings of all memories are built.
    pub const fn has_all(&self) -> bool {
        self.all.is_some()
    }

    /// A builder for the postings of all memories; `None` if they are built.
    ///
    /// Building takes a while and does not need access to this index.
    pub fn builder(&self) -> Option<Builder> {
        self.all.is_none().then(|| Builder {
            slots: self.slots.clone(),
            room: self.room,
            numbering: self.numbering,
        })
    }

    /// Drops the postings of all memories. They can be built again.
    pub fn drop_all(&mut self) {
        self.all = None;
    }

    /// Adopts built postings and adds later changes. Drops the postings of another
    /// index, and postings from before a rebuild.
    pub fn adopt(&mut self, built: BuiltPostings) {
        if built.numbering != self.numbering || self.all.is_some() {
            return;
        }
        let mut all = built.all;
        for (now, then) in self.slots.iter().zip(&built.slots) {
            if then.is_live && !now.is_live {
                all.forget(then);
            }
        }
        for (number, slot) in self.slots.iter().enumerate().skip(built.slots.len()) {
            // A dead slot is skipped, because nothing refers to its number.
            if slot.is_live {
                let _ = all.add(to_u32(number), slot);
            }
        }
        self.all = Some(all);
    }

    fn add(&mut self, slot: Slot) -> Result<(), DamagedRow> {
        let number = to_u32(self.slots.len());
        if !slot.content.is_empty() {
            self.contents += 1;
            self.content_positions += u64::from(slot.length);
        }
        self.path_positions += u64::from(slot.path_length);
        let added = (self.all.as_mut()).map_or(Ok(()), |all| all.add(number, &slot));
        self.by_memory.insert(slot.memory, number);
        self.live += 1;
        self.slots.push(slot);
        added
    }

    fn retire(&mut self, memory: MemoryId) {
        let Some(slot) = self.by_memory.remove(&memory) else {
            return;
        };
        let slot = &mut self.slots[slot as usize];
        if let Some(all) = &mut self.all {
            all.forget(slot);
        }
        slot.is_live = false;
        self.live -= 1;
        self.path_positions -= u64::from(slot.path_length);
        if !slot.content.is_empty() {
            self.contents -= 1;
            self.content_positions -= u64::from(slot.length);
        }
        slot.content = Arc::default();
        slot.path_row = Arc::default();
    }

    /// Rebuilds the index if many slots are dead.
    fn tidy(&mut self) {
        let dead = self.slots.len() - self.live;
        if dead < MIN_DEAD || dead < self.live / 2 {
            return;
        }
        // The new index has a new numbering.
        let old = std::mem::replace(self, Self::within(self.room));
        for slot in old.slots.into_iter().filter(|slot| slot.is_live) {
            // Damage was reported when the row was set.
            let _ = self.add(slot);
        }
        if old.all.is_some() {
            drop(old.all);
            self.all = Dictionary::of(&self.slots, self.room).map(|made| made.dictionary);
        }
    }

    /// The postings that a query needs, read from the rows; `None` if they do not fit
    /// in memory, in which case those of all memories do not fit either.
    pub(crate) fn read(&self, needed: &TermFilter) -> Option<Dictionary> {
        Dictionary::of_needed(&self.slots, needed, self.room)
    }

    pub(crate) const fn all(&self) -> Option<&Dictionary> {
        self.all.as_ref()
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The average length of the indexed contents, for length normalisation.
    pub(crate) fn average_length(&self) -> f64 {
        average(self.content_positions, self.contents)
    }

    pub(crate) fn average_path_length(&self) -> f64 {
        average(self.path_positions, self.live as u64)
    }
}

/// The rows of a store whose postings are to be built.
pub struct Builder {
    slots: Vec<Slot>,
    room: usize,
    numbering: u64,
}

/// Postings of a snapshot of a store.
pub struct BuiltPostings {
    all: Dictionary,
    slots: Vec<Slot>,
    numbering: u64,
    damaged: Vec<MemoryId>,
}

impl BuiltPostings {
    /// Memories with a damaged row; search does not find the terms after the damage.
    pub fn damaged(&self) -> &[MemoryId] {
        &self.damaged
    }
}

impl Builder {
    /// Builds the postings, which takes some tenths of a second for a large store.
    ///
    /// Returns `None` if they do not fit in memory.
    pub fn build(self) -> Option<BuiltPostings> {
        let DictionaryBuild { dictionary, damaged } = Dictionary::of(&self.slots, self.room)?;
        let mut damaged: Vec<_> =
            (damaged.into_iter()).map(|number| self.slots[number as usize].memory).collect();
        damaged.dedup();
        Some(BuiltPostings { all: dictionary, slots: self.slots, numbering: self.numbering, damaged })
    }
}

/// The remaining work of a query. Work is counted, not timed, and only for live
/// slots, so that a query is too broad for a store on every replica or on none.
pub(crate) struct Budget(Cell<Option<u64>>);

impl Budget {
    pub(crate) const fn of(reads: u64) -> Self {
        Self(Cell::new(Some(reads)))
    }

    /// Consumes some of the budget; returns whether enough was left.
    #[inline]
    pub(crate) fn take(&self, reads: u64) -> bool {
        let left = self.0.get().and_then(|left| left.checked_sub(reads));
        self.0.set(left);
        left.is_some()
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.0.get().is_none()
    }
}

/// A store with the postings that answer one query.
#[derive(Clone, Copy)]
pub(crate) struct SearchedPostings<'a> {
    pub(crate) store: &'a Postings,
    pub(crate) terms: &'a Dictionary,
    pub(crate) budget: &'a Budget,
}

impl<'a> SearchedPostings<'a> {
    pub(crate) fn slot(self, number: u32) -> &'a Slot {
        &self.store.slots[number as usize]
    }

    /// Passes the positions of `term` in a field of a slot to `sink`; passes none once
    /// the budget is spent.
    pub(crate) fn positions_in(self, field: Field, term: u32, slot: u32, sink: impl FnMut(u32)) {
        if !self.budget.take(1) {
            return;
        }
        if let Some(posting) = self.terms.posting_in(term, field, slot) {
            self.positions_of(field, slot, posting, sink);
        }
    }

    /// Passes the positions of a posting to `sink`.
    pub(crate) fn positions_of(self, field: Field, slot: u32, posting: Posting, sink: impl FnMut(u32)) {
        let row = self.slot(slot).row(field);
        let reads = positions(row, posting.positions_at(), posting.count(), sink);
        self.budget.take(reads);
    }
}

#[expect(clippy::cast_precision_loss, reason = "positions of a store are far below 2^52")]
fn average(positions: u64, count: u64) -> f64 {
    (positions as f64 / count.max(1) as f64).max(1.0)
}
