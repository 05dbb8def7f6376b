//! What is in memory of one store to answer its queries.
//!
//! The rows of the store's memories, brought up to date memory by memory, and
//! their postings. A memory that changes gets a new slot; the old one is passed
//! over until so many are dead that all is made anew. What is counted (memories,
//! frequencies, lengths) is of the live ones alone, always.
//!
//! To read a store's rows takes far less than to make all postings, so that a
//! query that comes before they are made reads the rows for its own words alone.
//! It finds the same.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use keepsake_core::{MemoryId, MemoryPath};

use crate::row::{DamagedRow, Row, Terms, positions};

mod dictionary;
mod forms;
mod lists;
mod needed;
mod pairs;
mod reading;

pub(crate) use dictionary::Dictionary;
use dictionary::Making;
pub(crate) use needed::Needed;

/// Slots that may be dead before it is asked whether they are too many.
const MIN_DEAD: usize = 64;

/// The numbering that comes next in this process.
static NEXT_NUMBERING: AtomicU64 = AtomicU64::new(0);

/// The search index of one store.
pub struct Postings {
    slots: Vec<Slot>,
    by_memory: HashMap<MemoryId, u32>,
    live: usize,
    /// Positions of the contents that are indexed, and how many those are.
    content_positions: u64,
    contents: u64,
    path_positions: u64,
    /// The postings of all slots, once they are made.
    all: Option<Dictionary>,
    /// Bytes that postings may take while they are made, those of one query too.
    room: usize,
    /// Which numbering the slots have: each is of one index alone, and of one
    /// time of it.
    numbering: u64,
}

impl Default for Postings {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            by_memory: HashMap::new(),
            live: 0,
            content_positions: 0,
            contents: 0,
            path_positions: 0,
            all: None,
            room: usize::MAX,
            numbering: NEXT_NUMBERING.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// A memory as it was at one time.
#[derive(Clone)]
pub(crate) struct Slot {
    pub(crate) memory: MemoryId,
    pub(crate) path: Arc<MemoryPath>,
    /// The row of the content; empty where it is not indexed.
    content: Arc<[u8]>,
    /// The row of the path, made here: a memory that moves keeps the other.
    path_row: Arc<[u8]>,
    /// Positions of the two.
    pub(crate) length: u32,
    pub(crate) path_length: u32,
    pub(crate) is_live: bool,
}

/// Where in a memory a term may be.
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
    /// Of no memories; to make postings may take about `room` bytes.
    pub fn within(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }

    /// How many memories are in it.
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no memory in it.
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Sets what is known of a memory: where it is, and the row of its content.
    ///
    /// Without a row, and with one that is damaged from the beginning, the
    /// memory is found by its path alone.
    ///
    /// # Errors
    /// [`DamagedRow`] in the latter case, and, once all postings are made, where
    /// the row is damaged further on: then the terms before that are found.
    pub fn set(
        &mut self,
        memory: MemoryId,
        path: MemoryPath,
        row: Option<Arc<[u8]>>,
    ) -> Result<(), DamagedRow> {
        self.retire(memory);
        let row = row.unwrap_or_default();
        let read = if row.is_empty() {
            Ok((row, 0))
        } else {
            Terms::of(&row)
                .map(|terms| terms.length())
                .map(|length| (row, length))
        };
        let result = read.as_ref().map(|_| ()).map_err(|damaged| *damaged);
        let (row, length) = read.unwrap_or_default();
        let path_row = Row::of(path.as_str());
        let added = self.add(Slot {
            memory,
            path: Arc::new(path),
            content: row,
            path_length: path_row.length(),
            path_row: path_row.into_bytes().into(),
            length,
            is_live: true,
        });
        self.tidy();
        result.and(added)
    }

    /// Takes a memory out.
    pub fn remove(&mut self, memory: MemoryId) {
        self.retire(memory);
        self.tidy();
    }

    /// Where a memory is; `None` when it is not in it.
    pub fn path_of(&self, memory: MemoryId) -> Option<&MemoryPath> {
        let slot = self.by_memory.get(&memory)?;
        Some(&self.slots[*slot as usize].path)
    }

    /// Bytes of memory that it takes, to within what allocators round up.
    pub fn size_bytes(&self) -> usize {
        let slots: usize = self
            .slots
            .iter()
            .map(|slot| {
                let text = slot.path.as_str().len();
                size_of::<Slot>() + 64 + slot.content.len() + slot.path_row.len() + text
            })
            .sum();
        let postings = self.all.as_ref().map_or(0, Dictionary::size_bytes);
        size_of::<Self>() + slots + self.by_memory.len() * 32 + postings
    }

    /// Whether the postings of all memories are made.
    pub const fn has_all(&self) -> bool {
        self.all.is_some()
    }

    /// What makes the postings of all memories; `None`: they are made.
    ///
    /// That takes a while, and needs nothing of this index meanwhile.
    pub fn builder(&self) -> Option<Builder> {
        self.all.is_none().then(|| Builder {
            slots: self.slots.clone(),
            room: self.room,
            numbering: self.numbering,
        })
    }

    /// Lets the postings of all memories go. They can be made again.
    pub fn drop_all(&mut self) {
        self.all = None;
    }

    /// Takes postings that were made, with what came since; those of another
    /// index, and of before the slots were numbered anew, are dropped.
    pub fn adopt(&mut self, built: Built) {
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
            // A dead one is left out: nothing refers to its number.
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

    /// Numbers the slots anew where many of them are dead.
    fn tidy(&mut self) {
        let dead = self.slots.len() - self.live;
        if dead < MIN_DEAD || dead < self.live / 2 {
            return;
        }
        // With a numbering of its own.
        let old = std::mem::replace(self, Self::within(self.room));
        for slot in old.slots.into_iter().filter(|slot| slot.is_live) {
            // What is damaged was told of when it came.
            let _ = self.add(slot);
        }
        if old.all.is_some() {
            drop(old.all);
            self.all = Dictionary::of(&self.slots, self.room).map(|made| made.dictionary);
        }
    }

    /// The postings of what a query needs, read from the rows; `None`: they take
    /// more than there is room for, which those of all memories then do, too.
    pub(crate) fn read(&self, needed: &Needed) -> Option<Dictionary> {
        Dictionary::of_needed(&self.slots, needed, self.room)
    }

    /// The postings of all slots, if they are made.
    pub(crate) const fn all(&self) -> Option<&Dictionary> {
        self.all.as_ref()
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// What a length is held against: the average of the contents that are
    /// indexed.
    pub(crate) fn average_length(&self) -> f64 {
        average(self.content_positions, self.contents)
    }

    /// The same for paths.
    pub(crate) fn average_path_length(&self) -> f64 {
        average(self.path_positions, self.live as u64)
    }
}

/// The rows of a store, of which all postings are to be made.
pub struct Builder {
    slots: Vec<Slot>,
    room: usize,
    numbering: u64,
}

/// Postings of a store as it was.
pub struct Built {
    all: Dictionary,
    slots: Vec<Slot>,
    numbering: u64,
    damaged: Vec<MemoryId>,
}

impl Built {
    /// The memories whose rows are damaged; what comes after that in them is
    /// not found.
    pub fn damaged(&self) -> &[MemoryId] {
        &self.damaged
    }
}

impl Builder {
    /// Makes them: some tenths of a second for a large store.
    ///
    /// `None`: that takes more than there is room for.
    pub fn build(self) -> Option<Built> {
        let Making { dictionary, damaged } = Dictionary::of(&self.slots, self.room)?;
        let mut damaged: Vec<_> = (damaged.into_iter())
            .map(|number| self.slots[number as usize].memory)
            .collect();
        damaged.dedup();
        Some(Built {
            all: dictionary,
            slots: self.slots,
            numbering: self.numbering,
            damaged,
        })
    }
}

/// What one query may still look at. Counted, not timed, and of what is live
/// alone: a query is too broad for a store wherever it is asked.
pub(crate) struct Budget(Cell<Option<u64>>);

impl Budget {
    pub(crate) const fn of(looks: u64) -> Self {
        Self(Cell::new(Some(looks)))
    }

    /// Takes some off; answers whether they were there.
    #[inline]
    pub(crate) fn take(&self, looks: u64) -> bool {
        let left = self.0.get().and_then(|left| left.checked_sub(looks));
        self.0.set(left);
        left.is_some()
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.0.get().is_none()
    }
}

/// A store with the postings that answer one query.
#[derive(Clone, Copy)]
pub(crate) struct Searched<'a> {
    pub(crate) store: &'a Postings,
    pub(crate) terms: &'a Dictionary,
    pub(crate) budget: &'a Budget,
}

impl<'a> Searched<'a> {
    pub(crate) fn slot(self, number: u32) -> &'a Slot {
        &self.store.slots[number as usize]
    }

    /// Where `term` is in a field of a slot; nowhere once the budget is spent.
    pub(crate) fn positions_in(self, field: Field, term: u32, slot: u32, sink: impl FnMut(u32)) {
        if !self.budget.take(1) {
            return;
        }
        if let Some(posting) = self.terms.posting_in(term, field, slot) {
            let row = self.slot(slot).row(field);
            let looks = positions(row, posting.positions_at(), posting.count(), sink);
            self.budget.take(looks);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "positions of a store are far below 2^52"
)]
fn average(positions: u64, count: u64) -> f64 {
    (positions as f64 / count.max(1) as f64).max(1.0)
}
