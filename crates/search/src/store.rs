//! The postings of one store: what is in memory to answer its queries.
//!
//! Built from the rows of the store's memories and brought up to date memory by
//! memory. Where a term occurs in a memory is read from the memory's row, which
//! is kept, so that a posting is eight bytes. A memory that changes gets a new
//! slot; the old one is passed over until so many are dead that the postings
//! are made anew. What is counted (memories, frequencies, lengths) is of the
//! live ones alone, always.

use std::hash::BuildHasher;
use std::sync::Mutex;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use keepsake_core::{MemoryId, MemoryPath};

use crate::analyse::{analyse, unspaced};
use crate::query::folded_path;
use crate::row::{DamagedRow, Terms, positions};

mod forms;

use forms::Forms;

/// Slots that may be dead before it is asked whether they are too many.
const MIN_DEAD: usize = 64;

/// The most that a posting says of a frequency, and of a place in a row.
const MAX_FREQUENCY: u32 = 0xff;
const MAX_PLACE: usize = 0xff_ffff;

/// The search index of one store.
#[derive(Default)]
pub struct StoreIndex {
    slots: Vec<Slot>,
    by_memory: HashMap<MemoryId, u32>,
    live: usize,
    /// Positions of the contents that are indexed, and how many those are.
    content_positions: u64,
    contents: u64,
    path_positions: u64,
    terms: Dictionary,
    forms: Mutex<Forms>,
}

/// A memory as it was at one time.
pub(crate) struct Slot {
    pub(crate) memory: MemoryId,
    pub(crate) path: MemoryPath,
    pub(crate) folded_path: Box<str>,
    row: Box<[u8]>,
    pub(crate) length: u32,
    pub(crate) path_length: u32,
    pub(crate) is_live: bool,
}

/// That a term occurs in the content of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) slot: u32,
    /// The frequency in the upper byte; where in the row the positions are.
    packed: u32,
}

impl Posting {
    pub(crate) fn frequency(self) -> f64 {
        f64::from(self.packed >> 24)
    }

    fn positions_at(self) -> usize {
        (self.packed & 0xff_ffff) as usize
    }
}

/// A term of the store.
#[derive(Default)]
pub(crate) struct Term {
    start: u32,
    length: u32,
    pub(crate) postings: Vec<Posting>,
    /// The slots in whose path it occurs, with how often.
    pub(crate) in_paths: Vec<(u32, u32)>,
}

/// The terms of a store, by their text and by what they begin with.
#[derive(Default)]
struct Dictionary {
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
    texts: Vec<u8>,
    terms: Vec<Term>,
    /// Terms by their first two bytes.
    by_start: HashMap<[u8; 2], Vec<u32>>,
    /// Pairs by their characters.
    by_character: HashMap<char, Vec<u32>>,
}

impl Dictionary {
    fn text(&self, term: u32) -> &[u8] {
        text_of(&self.texts, &self.terms[term as usize])
    }

    fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |term| self.text(*term) == text).copied()
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        let (texts, terms) = (&self.texts, &self.terms);
        if let Some(term) = self
            .table
            .find(hash, |term| text_of(texts, &terms[*term as usize]) == text)
        {
            return *term;
        }
        let term = to_u32(self.terms.len());
        self.terms.push(Term {
            start: to_u32(self.texts.len()),
            length: to_u32(text.len()),
            ..Term::default()
        });
        self.texts.extend_from_slice(text);
        let (texts, terms, hasher) = (&self.texts, &self.terms, &self.hasher);
        self.table.insert_unique(hash, term, |other| {
            hasher.hash_one(text_of(texts, &terms[*other as usize]))
        });
        self.by_start.entry(start_of(text)).or_default().push(term);
        if text[0] >= 0x80 {
            for letter in characters_of_pair(text) {
                self.by_character.entry(letter).or_default().push(term);
            }
        }
        term
    }
}

fn text_of<'a>(texts: &'a [u8], term: &Term) -> &'a [u8] {
    &texts[term.start as usize..(term.start + term.length) as usize]
}

fn start_of(text: &[u8]) -> [u8; 2] {
    [
        text.first().copied().unwrap_or_default(),
        text.get(1).copied().unwrap_or_default(),
    ]
}

/// The characters of a term of a script without spaces.
fn characters_of_pair(text: &[u8]) -> impl Iterator<Item = char> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let is_pair = text.chars().next().is_some_and(|first| unspaced(first).is_some());
    text.chars().take(if is_pair { 2 } else { 0 })
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl StoreIndex {
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
    /// Without a row, and with one that is damaged, the memory is found by its
    /// path alone.
    ///
    /// # Errors
    /// [`DamagedRow`] in the latter case.
    pub fn set(
        &mut self,
        memory: MemoryId,
        path: MemoryPath,
        row: Option<Vec<u8>>,
    ) -> Result<(), DamagedRow> {
        self.retire(memory);
        let result = self.add(memory, path, row.unwrap_or_default());
        self.tidy();
        result
    }

    /// Takes a memory out.
    pub fn remove(&mut self, memory: MemoryId) {
        self.retire(memory);
        self.tidy();
    }

    /// Where a memory is; `None` when it is not in it.
    pub fn path_of(&self, memory: MemoryId) -> Option<&MemoryPath> {
        self.by_memory
            .get(&memory)
            .map(|slot| &self.slots[*slot as usize].path)
    }

    /// Bytes of memory that it takes, to within what allocators round up.
    pub fn size_bytes(&self) -> usize {
        let slots: usize = self
            .slots
            .iter()
            .map(|slot| {
                size_of::<Slot>() + slot.row.len() + slot.path.as_str().len() + slot.folded_path.len()
            })
            .sum();
        let terms: usize = self
            .terms
            .terms
            .iter()
            .map(|term| {
                size_of::<Term>()
                    + term.postings.capacity() * size_of::<Posting>()
                    + term.in_paths.capacity() * size_of::<(u32, u32)>()
            })
            .sum();
        // The table, `by_start`, and twice `by_character`, at their emptiest.
        let tables = self.terms.terms.len() * 24 + self.by_memory.len() * 48;
        let forms = self.forms.lock().map_or(0, |forms| forms.size_bytes());
        slots + terms + tables + self.terms.texts.capacity() + forms
    }

    fn add(&mut self, memory: MemoryId, path: MemoryPath, row: Vec<u8>) -> Result<(), DamagedRow> {
        let slot = to_u32(self.slots.len());
        let added = if row.is_empty() {
            Ok(0)
        } else {
            self.add_content(slot, &row)
        };
        let (row, length, result) = match added {
            Ok(length) => (row, length, Ok(())),
            Err(damaged) => {
                self.drop_postings(slot);
                (Vec::new(), 0, Err(damaged))
            }
        };
        if !row.is_empty() {
            self.contents += 1;
            self.content_positions += u64::from(length);
        }
        let path_length = self.add_path(slot, path.as_str());
        self.path_positions += u64::from(path_length);
        self.slots.push(Slot {
            memory,
            folded_path: folded_path(path.as_str()).into(),
            path,
            row: row.into(),
            length,
            path_length,
            is_live: true,
        });
        self.by_memory.insert(memory, slot);
        self.live += 1;
        result
    }

    fn add_content(&mut self, slot: u32, row: &[u8]) -> Result<u32, DamagedRow> {
        let mut terms = Terms::of(row)?;
        while let Some(at) = terms.next()? {
            let term = self.terms.intern(terms.term());
            // Behind this place rows of the longest text that is analysed end.
            let place = to_u32(at.positions_at.min(MAX_PLACE));
            self.terms.terms[term as usize].postings.push(Posting {
                slot,
                packed: at.frequency.min(MAX_FREQUENCY) << 24 | place,
            });
        }
        Ok(terms.length())
    }

    fn add_path(&mut self, slot: u32, path: &str) -> u32 {
        let terms = &mut self.terms;
        analyse(path, |token| {
            let term = terms.intern(token.term.as_bytes());
            let in_paths = &mut terms.terms[term as usize].in_paths;
            match in_paths.last_mut() {
                Some((last, count)) if *last == slot => *count += 1,
                _ => in_paths.push((slot, 1)),
            }
        })
    }

    /// Takes back what was read of a row before the damage in it.
    fn drop_postings(&mut self, slot: u32) {
        for term in &mut self.terms.terms {
            if term.postings.last().is_some_and(|posting| posting.slot == slot) {
                term.postings.pop();
            }
        }
    }

    fn retire(&mut self, memory: MemoryId) {
        let Some(slot) = self.by_memory.remove(&memory) else {
            return;
        };
        let slot = &mut self.slots[slot as usize];
        slot.is_live = false;
        self.live -= 1;
        self.path_positions -= u64::from(slot.path_length);
        if !slot.row.is_empty() {
            self.contents -= 1;
            self.content_positions -= u64::from(slot.length);
        }
        slot.row = Box::default();
    }

    /// Makes everything anew where much of it is dead.
    fn tidy(&mut self) {
        let dead = self.slots.len() - self.live;
        if dead < MIN_DEAD || dead < self.live / 2 {
            return;
        }
        let old = std::mem::take(self);
        for slot in old.slots {
            if slot.is_live {
                let row = Vec::from(slot.row);
                // A row that is kept was read whole before.
                let _ = self.add(slot.memory, slot.path, row);
            }
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.terms.find(text.as_bytes())
    }

    pub(crate) fn term(&self, term: u32) -> &Term {
        &self.terms.terms[term as usize]
    }

    pub(crate) fn text(&self, term: u32) -> &str {
        std::str::from_utf8(self.terms.text(term)).unwrap_or_default()
    }

    /// Every term that starts so.
    pub(crate) fn starting(&self, start: &str) -> Vec<u32> {
        let start = start.as_bytes();
        let begins = |term: &u32| self.terms.text(*term).starts_with(start);
        if start.len() < 2 {
            return (0..to_u32(self.terms.terms.len())).filter(begins).collect();
        }
        let bucket = self.terms.by_start.get(&start_of(start));
        bucket.into_iter().flatten().copied().filter(begins).collect()
    }

    /// Every pair that a character is in.
    pub(crate) fn pairs_with(&self, letter: char) -> &[u32] {
        self.terms.by_character.get(&letter).map_or(&[], Vec::as_slice)
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

    /// Where `term` is in the content of a slot.
    pub(crate) fn positions_in(&self, term: u32, slot: u32, sink: impl FnMut(u32)) {
        let postings = &self.term(term).postings;
        if let Ok(place) = postings.binary_search_by_key(&slot, |posting| posting.slot) {
            positions(
                &self.slots[slot as usize].row,
                postings[place].positions_at(),
                sink,
            );
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
