//! The terms of a store, and the memories that contain each term.
//!
//! The positions of a term in a memory are read from the memory's row, so a posting
//! takes only eight bytes.

use std::hash::BuildHasher;
use std::ops::Deref;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use parking_lot::Mutex;

use super::forms::Forms;
use super::lists::{Entry, Lists};
use super::pairs::{Pairs, PairsOf};
use super::reading::{live_slots, read_row, read_words, take_pairs};
use super::{Field, Slot, TermFilter, to_u32};
use crate::analyse::unspaced;
use crate::row::{DamagedRow, LEADING_BYTES, TermAt, Terms, leading};

/// The largest frequency, and the largest offset in a row, that a posting can hold.
const MAX_FREQUENCY: u32 = 0xff;
const MAX_PLACE: usize = 0xff_ffff;

/// Maximum number of terms for a prefix or a character: the first terms of live
/// memories in byte order. A character is looked up like a word, and frequent ones
/// are in thousands of pairs.
const MAX_STARTING: usize = 256;
const MAX_PAIRS: usize = 4_096;

/// Bytes of a term while postings are built (including tables that are being
/// resized) and afterwards, without its text and its lists.
const TERM_BYTES: usize = 110;
const KEPT_TERM_BYTES: usize = 56;

/// An occurrence of a term in a field of a slot.
#[derive(Clone, Copy, Default)]
pub(crate) struct Posting {
    pub(crate) slot: u32,
    /// The frequency in the upper byte; the offset of the positions in the row below
    /// it.
    packed: u32,
}

impl Posting {
    pub(super) fn new(slot: u32, frequency: u32, positions_at: usize) -> Self {
        // The rows of the longest analysed text end before that offset.
        let place = to_u32(positions_at.min(MAX_PLACE));
        Self { slot, packed: frequency.min(MAX_FREQUENCY) << 24 | place }
    }

    /// A posting for a term that was read from the row of a slot.
    pub(super) fn of(slot: u32, at: &TermAt) -> Self {
        Self::new(slot, at.frequency, at.positions_at)
    }

    pub(crate) fn frequency(self) -> f64 {
        f64::from(self.packed >> 24)
    }

    /// The number of positions to read; all of them if the frequency does not fit in a
    /// posting.
    pub(super) fn count(self) -> u32 {
        match self.packed >> 24 {
            MAX_FREQUENCY => u32::MAX,
            frequency => frequency,
        }
    }

    pub(super) fn positions_at(self) -> usize {
        (self.packed & 0xff_ffff) as usize
    }
}

/// The terms of a store, by their text and by their beginning.
#[derive(Default)]
pub(crate) struct Dictionary {
    /// The first terms, once all postings are built: pairs of characters in contents,
    /// and words that look like pairs. The other terms are in the table.
    pairs: Pairs,
    hasher: DefaultHashBuilder,
    table: HashTable<TermEntry>,
    texts: Texts,
    content: Lists,
    path: Lists,
    /// The number of live memories with each term.
    live: Vec<LiveCounts>,
    /// Terms of the table by their first two bytes.
    by_start: HashMap<[u8; 2], Vec<u32>>,
    /// Pairs of the table by their characters.
    by_character: HashMap<char, Vec<u32>>,
    pub(super) forms: Mutex<Forms>,
}

/// A term in the table. The leading bytes identify most terms, so that their texts,
/// which are stored elsewhere, need not be read.
struct TermEntry {
    leads: u64,
    /// Whether the text is longer than the leading bytes.
    is_long: bool,
    term: u32,
}

impl TermEntry {
    fn hash(&self, texts: &Texts, hasher: &DefaultHashBuilder) -> u64 {
        if self.is_long { hasher.hash_one(texts.get(self.term)) } else { hasher.hash_one(self.leads) }
    }
}

/// An occurrence, in a content, of a term that fits in the leading bytes.
struct ShortOccurrence {
    leads: u64,
    posting: Posting,
}

/// The number of live memories with a term in their content, and in their path.
#[derive(Clone, Copy, Default)]
struct LiveCounts {
    contents: u32,
    paths: u32,
}

/// The texts of the terms in the table, concatenated.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    /// The end of each text.
    ends: Vec<u32>,
    /// The first of these terms.
    first: u32,
}

impl Texts {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(to_u32(self.bytes.len()));
    }

    fn get(&self, term: u32) -> &[u8] {
        let number = (term - self.first) as usize;
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[start as usize..self.ends[number] as usize]
    }
}

pub(crate) enum TermText<'a> {
    Kept(&'a [u8]),
    Pair([u8; 6]),
}

impl TermText<'_> {
    const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Kept(text) => text,
            Self::Pair(text) => text,
        }
    }
}

impl Deref for TermText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// A new dictionary, and the damage found while building it.
pub(super) struct DictionaryBuild {
    pub(super) dictionary: Dictionary,
    /// Slots with damaged rows; the terms before the damage are included.
    pub(super) damaged: Vec<u32>,
}

impl Dictionary {
    /// Builds the dictionary of all live slots; `None` if this takes more than about
    /// `max_bytes`.
    pub(super) fn of(slots: &[Slot], max_bytes: usize) -> Option<DictionaryBuild> {
        let (mut pairs, mut damaged) = (PairsOf::default(), Vec::new());
        for (number, slot) in live_slots(slots) {
            if take_pairs(&mut pairs, (number, slot)).is_err() {
                damaged.push(number);
            }
            if pairs.build_bytes() > max_bytes {
                return None;
            }
        }
        let left = max_bytes - pairs.build_bytes();
        // The exact count is known before anything is allocated.
        let count = |slot: &Slot| {
            let contents = Terms::of(slot.row(Field::Content)).map_or(0, |terms| terms.in_blocks());
            contents + Terms::of(slot.row(Field::Path)).map_or(0, |terms| terms.len())
        };
        let postings = live_slots(slots).map(|(_, slot)| count(slot)).sum();
        if build_bytes(postings, 0) > left {
            return None;
        }
        let (pairs, lists) = pairs.into_lists()?;
        let dictionary = Self {
            live: vec![LiveCounts::default(); pairs.len()],
            texts: Texts { first: to_u32(pairs.len()), ..Texts::default() },
            pairs,
            content: lists,
            ..Self::default()
        };
        let mut made = dictionary.make(slots, None, postings, left)?;
        made.damaged.append(&mut damaged);
        made.damaged.sort_unstable();
        Some(made)
    }

    /// Builds the dictionary of the needed terms of all live slots; `None` as for [`Self::of`].
    pub(super) fn of_needed(slots: &[Slot], needed: &TermFilter, max_bytes: usize) -> Option<Self> {
        let dictionary = Self { content: Lists::of(&[], 0), ..Self::default() };
        dictionary.make(slots, Some(needed), 0, max_bytes).map(|made| made.dictionary)
    }

    /// Adds the needed terms of all live slots. If all terms are needed, adds all
    /// except the pairs, which the dictionary already has.
    ///
    /// Short terms of contents are sorted, which is faster than looking each one up in
    /// a table that does not fit in the CPU cache. Terms longer than the leading bytes,
    /// and terms of paths, are fewer and go through the table.
    fn make(
        mut self,
        slots: &[Slot],
        needed: Option<&TermFilter>,
        postings: usize,
        max_bytes: usize,
    ) -> Option<DictionaryBuild> {
        let mut damaged = Vec::new();
        let pairs = self.live.len();

        let (mut short, mut long) = (Vec::with_capacity(postings), Vec::new());
        for (number, slot) in live_slots(slots) {
            let take = |text: &[u8], posting| {
                if text.len() <= LEADING_BYTES {
                    let leads = leading(text);
                    short.push(ShortOccurrence { leads, posting });
                } else {
                    // Lists are numbered from the first term after the pairs.
                    let term = self.intern(text) - to_u32(pairs);
                    long.push(Entry { term, posting });
                }
            };
            let read = match needed {
                Some(_) => read_row((number, slot), Field::Content, needed, take),
                None => read_words((number, slot), take),
            };
            if read.is_err() {
                damaged.push(number);
            }
            let entries = (short.len() + long.len()).max(postings);
            if build_bytes(entries, self.live.len() - pairs) > max_bytes {
                return None;
            }
        }
        // The sort is stable, so the postings of a term stay in slot order.
        short.sort_by_key(|entry| entry.leads);
        let groups = || short.chunk_by(|a, b| a.leads == b.leads);
        let terms = self.live.len() + groups().count();
        if build_bytes(short.len() + long.len(), terms - pairs) > max_bytes {
            return None;
        }
        self.reserve(terms, short.len() + long.len());
        let long_terms = self.live.len() - pairs;
        let long_lists = Lists::of(&long, long_terms);
        for term in 0..to_u32(long_terms) {
            self.content.append(long_lists.of_term(term));
        }
        for group in groups() {
            let text = group[0].leads.to_be_bytes();
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            self.insert(self.hash(&text[..end]), &text[..end]);
            self.content.append(group.iter().map(|entry| entry.posting));
        }
        let contents = short.len() + long.len();
        drop((short, long));

        let mut paths = Vec::new();
        for (number, slot) in live_slots(slots) {
            // Path rows are made in this process and are never damaged.
            let _ = read_row((number, slot), Field::Path, needed, |text, posting| {
                let term = self.intern(text);
                paths.push(Entry { term, posting });
            });
            if build_bytes(contents + paths.len(), self.live.len() - pairs) > max_bytes {
                return None;
            }
        }
        self.path = Lists::of(&paths, self.live.len());
        for (term, live) in (0..).zip(&mut self.live) {
            live.contents = to_u32(self.content.len_of(term));
            live.paths = to_u32(self.path.len_of(term));
        }
        Some(DictionaryBuild { dictionary: self, damaged })
    }

    /// Reserves room for this number of terms and content postings.
    fn reserve(&mut self, terms: usize, postings: usize) {
        let more = terms - self.live.len();
        let (texts, hasher) = (&self.texts, &self.hasher);
        self.table.reserve(more, |known| known.hash(texts, hasher));
        self.texts.ends.reserve(more);
        self.live.reserve(more);
        self.content.reserve(more, postings);
    }

    /// Adds the terms of a slot, which must follow all earlier slots. If the row is damaged,
    /// the terms before the damage are added.
    pub(super) fn add(&mut self, number: u32, slot: &Slot) -> Result<(), DamagedRow> {
        let content = read_row((number, slot), Field::Content, None, |text, posting| {
            let term = self.intern(text);
            self.live[term as usize].contents += 1;
            self.content.add(term, posting);
        });
        let path = read_row((number, slot), Field::Path, None, |text, posting| {
            let term = self.intern(text);
            self.live[term as usize].paths += 1;
            self.path.add(term, posting);
        });
        self.content.merge_later_postings(self.live.len());
        self.path.merge_later_postings(self.live.len());
        path.and(content)
    }

    /// Subtracts the counts of a slot that was added and is now dead.
    pub(super) fn forget(&mut self, slot: &Slot) {
        for field in [Field::Content, Field::Path] {
            // Terms after the damage were not added either.
            let _ = read_row((0, slot), field, None, |text, _| {
                let Some(term) = self.find(text) else {
                    return;
                };
                let live = &mut self.live[term as usize];
                match field {
                    Field::Content => live.contents = live.contents.saturating_sub(1),
                    Field::Path => live.paths = live.paths.saturating_sub(1),
                }
            });
        }
    }

    /// Whether a live memory has a term. Terms of dead slots are skipped, so that the
    /// index answers like a rebuilt one.
    pub(crate) fn is_live(&self, term: u32) -> bool {
        let live = self.live[term as usize];
        live.contents > 0 || live.paths > 0
    }

    /// The number of live memories with a term in this field.
    pub(crate) fn live(&self, term: u32, field: Field) -> usize {
        let live = self.live[term as usize];
        match field {
            Field::Content => live.contents as usize,
            Field::Path => live.paths as usize,
        }
    }

    fn intern(&mut self, text: &[u8]) -> u32 {
        let hash = self.hash(text);
        let known = self.pairs.find(text).or_else(|| self.find_hashed(hash, text));
        known.unwrap_or_else(|| self.insert(hash, text))
    }

    /// Adds a new term to the table.
    fn insert(&mut self, hash: u64, text: &[u8]) -> u32 {
        let term = to_u32(self.live.len());
        self.texts.push(text);
        self.live.push(LiveCounts::default());
        let known = TermEntry { leads: leading(text), is_long: text.len() > LEADING_BYTES, term };
        let (texts, hasher) = (&self.texts, &self.hasher);
        self.table.insert_unique(hash, known, |known| known.hash(texts, hasher));
        self.by_start.entry(start_of(text)).or_default().push(term);
        if text.first().is_some_and(|first| *first >= 0x80) {
            let mut letters = pair_characters(text);
            let (first, second) = (letters.next(), letters.next());
            for letter in first.into_iter().chain(second.filter(|_| second != first)) {
                self.by_character.entry(letter).or_default().push(term);
            }
        }
        term
    }

    /// Memory use in bytes, without the overhead of the allocator.
    pub(super) fn size_bytes(&self) -> usize {
        let forms = self.forms.lock().size_bytes();
        let texts = self.texts.bytes.capacity();
        let lists = self.content.size_bytes() + self.path.size_bytes();
        let table = self.texts.ends.len() * KEPT_TERM_BYTES;
        let pairs = self.pairs.size_bytes() + self.pairs.len() * size_of::<LiveCounts>();
        texts + lists + table + pairs + forms
    }

    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        let pair = self.pairs.find(text);
        pair.or_else(|| self.find_hashed(self.hash(text), text))
    }

    fn hash(&self, text: &[u8]) -> u64 {
        if text.len() > LEADING_BYTES {
            self.hasher.hash_one(text)
        } else {
            self.hasher.hash_one(leading(text))
        }
    }

    fn find_hashed(&self, hash: u64, text: &[u8]) -> Option<u32> {
        let (leads, is_long) = (leading(text), text.len() > LEADING_BYTES);
        // No term contains NUL, the padding of the leading bytes of short terms.
        let is_same = |known: &TermEntry| {
            known.leads == leads
                && known.is_long == is_long
                && (!is_long || self.texts.get(known.term) == text)
        };
        self.table.find(hash, is_same).map(|known| known.term)
    }

    const fn lists(&self, field: Field) -> &Lists {
        match field {
            Field::Content => &self.content,
            Field::Path => &self.path,
        }
    }

    /// The postings of a term, in slot order.
    pub(crate) fn postings(&self, term: u32, field: Field) -> impl Iterator<Item = Posting> {
        self.lists(field).of_term(term)
    }

    pub(crate) fn posting_in(&self, term: u32, field: Field, slot: u32) -> Option<Posting> {
        self.lists(field).in_slot(term, slot)
    }

    pub(crate) fn text(&self, term: u32) -> TermText<'_> {
        match self.pairs.text(term) {
            Some(pair) => TermText::Pair(pair),
            None => TermText::Kept(self.texts.get(term)),
        }
    }

    /// The terms that begin with `start`, which has at least two bytes; only the first
    /// ones if there are many.
    pub(crate) fn starting(&self, start: &str) -> Vec<u32> {
        let pairs = start.chars().next().map(|first| self.pairs.with_first(first));
        let terms = self.with_start(start_of(start.as_bytes())).iter().copied();
        let begins = |term: &u32| self.text(*term).starts_with(start) && self.is_live(*term);
        let terms = pairs.into_iter().flatten().chain(terms);
        self.first(terms.filter(begins).collect(), MAX_STARTING)
    }

    /// The pairs with a character; only the first ones if there are many.
    pub(crate) fn pairs_with(&self, letter: char) -> Vec<u32> {
        let pairs = self.all_pairs_with(letter);
        self.first(pairs.filter(|pair| self.is_live(*pair)).collect(), MAX_PAIRS)
    }

    /// The first `max` of `terms` in byte order.
    fn first(&self, mut terms: Vec<u32>, max: usize) -> Vec<u32> {
        if terms.len() > max {
            terms.select_nth_unstable_by(max, |a, b| self.text(*a).cmp(&self.text(*b)));
            terms.truncate(max);
        }
        terms
    }

    pub(super) fn with_start(&self, start: [u8; 2]) -> &[u32] {
        self.by_start.get(&start).map_or(&[], Vec::as_slice)
    }

    /// Every pair with a character, including pairs of dead slots.
    pub(crate) fn all_pairs_with(&self, letter: char) -> impl Iterator<Item = u32> {
        let firsts = unspaced(letter).map(|_| self.pairs.with_first(letter));
        let firsts = firsts.into_iter().flatten();
        // Skips pairs of two equal characters, which `firsts` has, and words, whose
        // first character is not of a script without spaces.
        let seconds = self.pairs.with_second(letter).iter().copied();
        let seconds = seconds.filter(move |pair| {
            let first = self.text(*pair).chars().next();
            first.is_some_and(|first| first != letter && unspaced(first).is_some())
        });
        let others = self.by_character.get(&letter).into_iter().flatten();
        firsts.chain(seconds).chain(others.copied())
    }
}

/// Approximate bytes for building the lists of this number of entries and terms.
const fn build_bytes(entries: usize, terms: usize) -> usize {
    // Sorting takes half as much again.
    entries * (size_of::<ShortOccurrence>() * 3 / 2 + size_of::<Posting>()) + terms * TERM_BYTES
}

pub(super) fn start_of(text: &[u8]) -> [u8; 2] {
    [text.first().copied().unwrap_or_default(), text.get(1).copied().unwrap_or_default()]
}

/// The characters of a pair, or the single character of a term.
fn pair_characters(text: &[u8]) -> impl Iterator<Item = char> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let is_unspaced = text.chars().next().is_some_and(|first| unspaced(first).is_some());
    let is_one = is_unspaced && text.chars().nth(2).is_none();
    text.chars().take(if is_one { 2 } else { 0 })
}
