//! The terms of a store, and in which memories each is.
//!
//! Where in a memory a term is, is read from the memory's row, which is kept, so
//! that a posting is eight bytes.

use std::hash::BuildHasher;
use std::sync::Mutex;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::forms::Forms;
use super::{Field, Needed, Slot, to_u32};
use crate::analyse::unspaced;
use crate::row::{DamagedRow, Terms};

/// The most that a posting says of a frequency, and of a place in a row.
const MAX_FREQUENCY: u32 = 0xff;
const MAX_PLACE: usize = 0xff_ffff;

/// Terms that a prefix stands for at most, and a character: the first of those
/// that live memories have, in the order of their bytes. A character is looked
/// for like a word, and common ones are in thousands of pairs.
const MAX_STARTING: usize = 256;
const MAX_PAIRS: usize = 4_096;

/// What a term takes while postings are made, and what a posting does, lists
/// with room to grow and a table that is being moved included.
const TERM_BYTES: usize = 150;
const POSTING_BYTES: usize = 16;

/// That a term occurs in a field of a slot.
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

    pub(super) fn positions_at(self) -> usize {
        (self.packed & 0xff_ffff) as usize
    }
}

/// Where the text of a term is.
#[derive(Clone, Copy)]
struct Text {
    start: u32,
    length: u32,
}

/// The memories that have a term, by the field.
#[derive(Default)]
struct Lists {
    content: Vec<Posting>,
    path: Vec<Posting>,
    /// Memories that are live and have it in their content, and in their path.
    live: u32,
    live_paths: u32,
}

/// The terms of a store, by their text and by what they begin with.
#[derive(Default)]
pub(crate) struct Dictionary {
    hasher: DefaultHashBuilder,
    table: HashTable<(Text, u32)>,
    arena: Vec<u8>,
    texts: Vec<Text>,
    lists: Vec<Lists>,
    postings: usize,
    /// Terms by their first two bytes.
    by_start: HashMap<[u8; 2], Vec<u32>>,
    /// Pairs by their characters.
    by_character: HashMap<char, Vec<u32>>,
    pub(super) forms: Mutex<Forms>,
}

impl Dictionary {
    /// Adds the terms of a slot, those that are needed alone where that is said.
    ///
    /// # Errors
    /// [`DamagedRow`], after the terms before the damage were added.
    pub(super) fn add(
        &mut self,
        number: u32,
        slot: &Slot,
        needed: Option<&Needed>,
    ) -> Result<(), DamagedRow> {
        let content = self.add_field(number, slot, Field::Content, needed);
        self.add_field(number, slot, Field::Path, needed).and(content)
    }

    fn add_field(
        &mut self,
        number: u32,
        slot: &Slot,
        field: Field,
        needed: Option<&Needed>,
    ) -> Result<(), DamagedRow> {
        let row = slot.row(field);
        if row.is_empty() {
            return Ok(());
        }
        let mut terms = Terms::of(row)?;
        while let Some(at) = terms.next()? {
            if needed.is_some_and(|needed| !needed.has(terms.term())) {
                continue;
            }
            let term = self.intern(terms.term());
            let lists = &mut self.lists[term as usize];
            let list = match field {
                Field::Content => {
                    lists.live += 1;
                    &mut lists.content
                }
                Field::Path => {
                    lists.live_paths += 1;
                    &mut lists.path
                }
            };
            // The rows of the longest text that is analysed end before that.
            let place = to_u32(at.positions_at.min(MAX_PLACE));
            self.postings += 1;
            list.push(Posting {
                slot: number,
                packed: at.frequency.min(MAX_FREQUENCY) << 24 | place,
            });
        }
        Ok(())
    }

    /// Bytes of memory that making it takes, about; known at once.
    pub(super) const fn making_bytes(&self) -> usize {
        self.texts.len() * TERM_BYTES + self.postings * POSTING_BYTES
    }

    /// Gives back the room that lists have to grow: most never do.
    pub(super) fn shrink(&mut self) {
        for lists in &mut self.lists {
            lists.content.shrink_to_fit();
            lists.path.shrink_to_fit();
        }
    }

    /// No longer counts a slot that was added and is dead now.
    pub(super) fn forget(&mut self, slot: &Slot) {
        for field in [Field::Content, Field::Path] {
            let Ok(mut terms) = Terms::of(slot.row(field)) else {
                continue;
            };
            while let Ok(Some(_)) = terms.next() {
                let Some(term) = self.find(terms.term()) else {
                    continue;
                };
                let lists = &mut self.lists[term as usize];
                match field {
                    Field::Content => lists.live -= 1,
                    Field::Path => lists.live_paths -= 1,
                }
            }
        }
    }

    /// Whether a live memory has a term. What others had is passed over, so
    /// that an index answers as one that was made anew.
    pub(crate) fn is_live(&self, term: u32) -> bool {
        let lists = &self.lists[term as usize];
        lists.live > 0 || lists.live_paths > 0
    }

    /// In how many live contents a term is.
    pub(crate) fn live(&self, term: u32) -> usize {
        self.lists[term as usize].live as usize
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        let arena = &self.arena;
        if let Some((_, term)) = self.table.find(hash, |(known, _)| text_in(arena, *known) == text) {
            return *term;
        }
        let term = to_u32(self.texts.len());
        let place = Text {
            start: to_u32(self.arena.len()),
            length: to_u32(text.len()),
        };
        self.arena.extend_from_slice(text);
        self.texts.push(place);
        self.lists.push(Lists::default());
        let (arena, hasher) = (&self.arena, &self.hasher);
        self.table.insert_unique(hash, (place, term), |(known, _)| {
            hasher.hash_one(text_in(arena, *known))
        });
        self.by_start.entry(start_of(text)).or_default().push(term);
        if text.first().is_some_and(|first| *first >= 0x80) {
            for letter in characters_of_pair(text) {
                self.by_character.entry(letter).or_default().push(term);
            }
        }
        term
    }

    /// Bytes of memory that it takes, to within what allocators round up.
    pub(super) fn size_bytes(&self) -> usize {
        let postings: usize = self
            .lists
            .iter()
            .map(|lists| (lists.content.capacity() + lists.path.capacity()) * size_of::<Posting>())
            .sum();
        // The table, the texts, `by_start`, and twice `by_character`.
        let tables = self.texts.len() * (size_of::<Lists>() + 2 * size_of::<Text>() + 32);
        let forms = self.forms.lock().map_or(0, |forms| forms.size_bytes());
        postings + tables + self.arena.capacity() + forms
    }

    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        self.table
            .find(hash, |(known, _)| text_in(&self.arena, *known) == text)
            .map(|(_, term)| *term)
    }

    pub(crate) fn postings(&self, term: u32, field: Field) -> &[Posting] {
        let lists = &self.lists[term as usize];
        match field {
            Field::Content => &lists.content,
            Field::Path => &lists.path,
        }
    }

    pub(crate) fn text(&self, term: u32) -> &str {
        std::str::from_utf8(self.bytes(term)).unwrap_or_default()
    }

    fn bytes(&self, term: u32) -> &[u8] {
        text_in(&self.arena, self.texts[term as usize])
    }

    /// The terms that start so, which is with two bytes at least: the first
    /// of them, where they are many.
    pub(crate) fn starting(&self, start: &str) -> Vec<u32> {
        let start = start.as_bytes();
        let terms = self.with_start(start_of(start)).iter().copied();
        let begins = |term: &u32| self.bytes(*term).starts_with(start) && self.is_live(*term);
        self.first(terms.filter(begins).collect(), MAX_STARTING)
    }

    /// The pairs that a character is in: the first of them, where they are many.
    pub(crate) fn pairs_with(&self, letter: char) -> Vec<u32> {
        let pairs = self.all_pairs_with(letter).iter().copied();
        self.first(pairs.filter(|pair| self.is_live(*pair)).collect(), MAX_PAIRS)
    }

    /// The first `most` of `terms` in the order of their bytes.
    fn first(&self, mut terms: Vec<u32>, most: usize) -> Vec<u32> {
        if terms.len() > most {
            terms.select_nth_unstable_by(most, |a, b| self.bytes(*a).cmp(self.bytes(*b)));
            terms.truncate(most);
        }
        terms
    }

    pub(super) fn with_start(&self, start: [u8; 2]) -> &[u32] {
        self.by_start.get(&start).map_or(&[], Vec::as_slice)
    }

    /// Every pair that a character is in, or was.
    pub(crate) fn all_pairs_with(&self, letter: char) -> &[u32] {
        self.by_character.get(&letter).map_or(&[], Vec::as_slice)
    }
}

fn text_in(arena: &[u8], text: Text) -> &[u8] {
    &arena[text.start as usize..(text.start + text.length) as usize]
}

pub(super) fn start_of(text: &[u8]) -> [u8; 2] {
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
