//! Which memories a query finds, and in which order.
//!
//! BM25 with two fields: what a word counts for a memory grows with how often
//! its content has it and its path has it, the path above the content, each
//! held against how long it is, and with how few memories have it. Beside that,
//! words of the query that stand near one another, and in the order of the
//! query, count more than those that are scattered. The score is of the store's
//! own numbers alone, and is added up in one order, so that every replica and
//! both databases come to the same bits. Equal scores are in the order of paths.

use std::cmp::Ordering;

use keepsake_core::{DirPath, MemoryId, MemoryPath};

use crate::postings::{Budget, Field, Needed, Postings, Searched};
use crate::query::{Atom, Query, Sequence, Wanted, folded_path};
use crate::snippet::Marker;
use crate::stems::Language;

mod nearness;

/// How soon more occurrences stop to count.
const K1: f64 = 1.2;
/// How much the length of a content, and of a path, counts.
const B_CONTENT: f64 = 0.75;
const B_PATH: f64 = 0.5;
/// What an occurrence in the path counts.
const PATH_WEIGHT: f64 = 3.0;
/// What another form of a word counts.
const ENGLISH_FORM_WEIGHT: f64 = 0.8;
const INDONESIAN_FORM_WEIGHT: f64 = 0.7;

/// Places that one query looks at in one store: a second or two of work. What
/// people ask is far below that, in the largest stores too.
const MAX_LOOKS: u64 = 50_000_000;

/// A memory that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Which.
    pub memory: MemoryId,
    /// Where it is.
    pub path: MemoryPath,
    /// Higher is better; comparable within one store.
    pub score: f64,
}

/// What one query found in one store.
#[derive(Debug, Clone)]
pub struct Results {
    /// The best first, then in the order of their paths.
    pub found: Vec<Found>,
    /// How many were found, those included that are not given.
    pub count: usize,
    /// Finds in contents what was looked for.
    pub marker: Marker,
    /// Whether the query asks for more than one may look at in this store: then
    /// nothing is given.
    pub is_too_broad: bool,
}

impl Results {
    fn too_broad() -> Self {
        Self {
            found: Vec::new(),
            count: 0,
            marker: Marker::default(),
            is_too_broad: true,
        }
    }
}

/// The term of the store that stands for something wanted, and what it counts.
#[derive(Clone, Copy)]
struct Variant {
    term: u32,
    weight: f64,
}

/// Something wanted as this store has it.
struct Resolved<'a> {
    wanted: &'a Wanted,
    variants: Vec<Variant>,
    /// What it counts: less where many memories have it.
    weight: f64,
}

impl Postings {
    /// The memories that `query` finds below `directory`, the best `limit` of
    /// those that are `wanted`, which is asked with score and path.
    ///
    /// The work grows with what matches, and is bounded.
    pub fn search(
        &self,
        query: &Query,
        directory: Option<&DirPath>,
        limit: usize,
        wanted: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        self.search_within(&Budget::of(MAX_LOOKS), query, directory, limit, wanted)
    }

    fn search_within(
        &self,
        budget: &Budget,
        query: &Query,
        directory: Option<&DirPath>,
        limit: usize,
        wanted: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        let narrowed;
        let terms = if let Some(all) = self.all() {
            all
        } else {
            let Some(read) = self.read(&Needed::of(query, self.len())) else {
                return Results::too_broad();
            };
            narrowed = read;
            &narrowed
        };
        let index = Searched {
            store: self,
            terms,
            budget,
        };
        let mut scores = Scores::of(index);
        let mut resolved: Vec<Resolved<'_>> = query
            .wanted
            .iter()
            .map(|one| index.resolve(one, query.languages))
            .collect();
        for one in &mut resolved {
            scores.add(index, one);
        }
        if query.is_path_alone() {
            scores.touch_all(index);
        }
        let filter = Filter::of(index, query, directory);
        let mut found: Vec<(f64, u32)> = scores.found().filter(|(_, slot)| filter.allows(*slot)).collect();
        self.sort(&mut found);
        nearness::add(index, &resolved, &mut found);
        self.sort(&mut found);
        if budget.is_spent() {
            return Results::too_broad();
        }
        let count = found.len();
        let found = found
            .into_iter()
            .map(|(score, slot)| (score, &self.slots()[slot as usize]))
            .filter(|(score, slot)| wanted(*score, &slot.path))
            .take(limit)
            .map(|(score, slot)| Found {
                memory: slot.memory,
                path: MemoryPath::clone(&slot.path),
                score,
            })
            .collect();
        Results {
            found,
            count,
            marker: index.marker(&resolved),
            is_too_broad: false,
        }
    }

    fn sort(&self, found: &mut [(f64, u32)]) {
        found.sort_unstable_by(|a, b| self.order(a, b));
    }

    fn order(&self, a: &(f64, u32), b: &(f64, u32)) -> Ordering {
        let path = |slot: u32| &self.slots()[slot as usize].path;
        b.0.total_cmp(&a.0).then_with(|| path(a.1).cmp(path(b.1)))
    }
}

impl Searched<'_> {
    /// The terms of the store that stand for `wanted`, in the order of their
    /// texts.
    fn resolve<'a>(self, wanted: &'a Wanted, languages: &[Language]) -> Resolved<'a> {
        let mut variants: Vec<Variant> = Vec::new();
        let mut add = |term: u32, weight: f64| match variants.iter_mut().find(|known| known.term == term) {
            Some(known) => known.weight = known.weight.max(weight),
            None if self.terms.is_live(term) => variants.push(Variant { term, weight }),
            None => {}
        };
        match &wanted.atom {
            Atom::Term(text) => {
                if let Some(term) = self.terms.find(text.as_bytes()) {
                    add(term, 1.0);
                }
                for language in languages.iter().filter(|_| wanted.has_forms) {
                    let weight = match language {
                        Language::English => ENGLISH_FORM_WEIGHT,
                        Language::Indonesian => INDONESIAN_FORM_WEIGHT,
                    };
                    self.terms.forms_of(text, *language, |term| add(term, weight));
                }
            }
            Atom::Character(letter) if !wanted.is_shown && self.is_everywhere(*letter) => {}
            atom => variants.extend(self.terms_of(atom).into_iter().map(|term| Variant {
                term,
                // A character inside a run is in two pairs.
                weight: if self.terms.text(term).chars().count() == 2 && matches!(atom, Atom::Character(_)) {
                    0.5
                } else {
                    1.0
                },
            })),
        }
        variants.sort_unstable_by(|a, b| self.terms.text(a.term).cmp(&self.terms.text(b.term)));
        Resolved {
            wanted,
            variants,
            weight: 0.0,
        }
    }

    /// Whether a character is in so many pairs that it tells no memory from
    /// another, and costs more than all that does.
    fn is_everywhere(self, letter: char) -> bool {
        let mut left = self.store.len();
        self.terms.all_pairs_with(letter).any(|pair| {
            let live = self.terms.live(pair);
            let is_more = live > left;
            left = left.saturating_sub(live);
            is_more
        })
    }

    /// The terms of the store that are `atom` itself.
    fn terms_of(self, atom: &Atom) -> Vec<u32> {
        let find = |text: &str| {
            let found = self.terms.find(text.as_bytes());
            found.filter(|term| self.terms.is_live(*term))
        };
        match atom {
            Atom::Term(text) => find(text).into_iter().collect(),
            Atom::Prefix(start) => self.terms.starting(start),
            Atom::Character(letter) => {
                let alone = find(letter.encode_utf8(&mut [0; 4]));
                let mut terms = self.terms.pairs_with(*letter);
                terms.extend(alone);
                terms.sort_unstable();
                terms.dedup();
                terms
            }
        }
    }

    fn marker(self, resolved: &[Resolved<'_>]) -> Marker {
        let mut marker = Marker::default();
        for one in resolved.iter().filter(|one| one.wanted.is_shown) {
            for variant in &one.variants {
                marker.add(&self.terms.text(variant.term), one.weight * variant.weight);
            }
        }
        marker
    }
}

/// The scores of a query under way.
struct Scores {
    sums: Vec<f64>,
    is_found: Vec<bool>,
    found: Vec<u32>,
    /// How much of one wanted thing a slot has, and which have any.
    amounts: Vec<f64>,
    touched: Vec<u32>,
}

impl Scores {
    fn of(index: Searched<'_>) -> Self {
        let slots = index.store.slots().len();
        Self {
            sums: vec![0.0; slots],
            is_found: vec![false; slots],
            found: Vec::new(),
            amounts: vec![0.0; slots],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, index: Searched<'_>, one: &mut Resolved<'_>) {
        let average = index.store.average_length();
        let average_path = index.store.average_path_length();
        let held_against = |length: u32, average: f64, b: f64| 1.0 - b + b * f64::from(length) / average;
        for variant in &one.variants {
            for posting in index.terms.postings(variant.term, Field::Content) {
                let slot = index.slot(posting.slot);
                if !slot.is_live {
                    continue;
                }
                if !index.budget.take(1) {
                    return;
                }
                let amount = posting.frequency() / held_against(slot.length, average, B_CONTENT);
                self.put(posting.slot, variant.weight * amount);
            }
            for posting in index.terms.postings(variant.term, Field::Path) {
                let slot = index.slot(posting.slot);
                if !slot.is_live {
                    continue;
                }
                if !index.budget.take(1) {
                    return;
                }
                let amount = posting.frequency() / held_against(slot.path_length, average_path, B_PATH);
                self.put(posting.slot, variant.weight * PATH_WEIGHT * amount);
            }
        }
        one.weight = one.wanted.weight * rarity(index.store.len(), self.touched.len());
        for slot in self.touched.drain(..) {
            let amount = std::mem::take(&mut self.amounts[slot as usize]);
            self.sums[slot as usize] += one.weight * amount * (K1 + 1.0) / (K1 + amount);
            if !std::mem::replace(&mut self.is_found[slot as usize], true) {
                self.found.push(slot);
            }
        }
    }

    fn put(&mut self, slot: u32, amount: f64) {
        let known = &mut self.amounts[slot as usize];
        if *known == 0.0 {
            self.touched.push(slot);
        }
        *known += amount;
    }

    fn touch_all(&mut self, index: Searched<'_>) {
        self.found = (0..)
            .zip(index.store.slots())
            .filter(|(_, slot)| slot.is_live)
            .map(|(at, _)| at)
            .collect();
    }

    fn found(&self) -> impl Iterator<Item = (f64, u32)> {
        self.found.iter().map(|slot| (self.sums[*slot as usize], *slot))
    }
}

/// What a thing counts that `having` of `all` memories have; never nothing.
#[expect(
    clippy::cast_precision_loss,
    reason = "memories of a store are far below 2^52"
)]
fn rarity(all: usize, having: usize) -> f64 {
    let (all, having) = (all as f64, having as f64);
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
}

/// What a memory must be, beside having something that is wanted.
struct Filter<'a> {
    index: Searched<'a>,
    query: &'a Query,
    directory: Option<&'a DirPath>,
    phrases: Vec<Steps>,
    excluded: Vec<Steps>,
}

/// A sequence as the store has it: the terms that may stand at each place.
struct Steps(Vec<(Vec<u32>, u32)>);

impl<'a> Filter<'a> {
    fn of(index: Searched<'a>, query: &'a Query, directory: Option<&'a DirPath>) -> Self {
        let steps = |sequences: &[Sequence]| {
            sequences
                .iter()
                .map(|Sequence(atoms)| {
                    Steps(
                        atoms
                            .iter()
                            .map(|(atom, offset)| (index.terms_of(atom), *offset))
                            .collect(),
                    )
                })
                .collect()
        };
        Self {
            index,
            query,
            directory,
            phrases: steps(&query.phrases),
            excluded: steps(&query.excluded),
        }
    }

    fn allows(&self, slot: u32) -> bool {
        if self.index.budget.is_spent() {
            return false;
        }
        let memory = self.index.slot(slot);
        self.directory
            .is_none_or(|directory| memory.path.is_below(directory))
            && self.is_in_place(memory.path.as_str())
            && self.phrases.iter().all(|steps| steps.are_in(self.index, slot))
            && !self.excluded.iter().any(|steps| steps.are_in(self.index, slot))
    }
}

impl Filter<'_> {
    fn is_in_place(&self, path: &str) -> bool {
        if self.query.paths.is_empty() {
            return true;
        }
        let folded = folded_path(path);
        self.query.paths.iter().all(|filter| filter.allows(&folded))
    }
}

impl Steps {
    /// Whether the content or the path of the slot has them.
    fn are_in(&self, index: Searched<'_>, slot: u32) -> bool {
        [Field::Content, Field::Path]
            .into_iter()
            .any(|field| self.are_in_field(index, field, slot))
    }

    fn are_in_field(&self, index: Searched<'_>, field: Field, slot: u32) -> bool {
        let mut places: Vec<u32> = Vec::new();
        let mut before = 0;
        for (place, (terms, offset)) in self.0.iter().enumerate() {
            let mut here = Vec::new();
            for term in terms {
                index.positions_in(field, *term, slot, |position| {
                    if place == 0 || follows(&places, position, offset - before) {
                        here.push(position);
                    }
                });
            }
            here.sort_unstable();
            before = *offset;
            places = here;
            if places.is_empty() {
                return false;
            }
        }
        true
    }
}

/// Whether `position` is at `distance` of one of `places`, which are in order. The parts of a
/// compound are at one position, and the same words apart at the next.
fn follows(places: &[u32], position: u32, distance: u32) -> bool {
    let is_at = |distance: u32| {
        position
            .checked_sub(distance)
            .is_some_and(|place| places.binary_search(&place).is_ok())
    };
    is_at(distance) || (distance <= 1 && is_at(1 - distance))
}

#[cfg(test)]
mod tests;
