//! Ranking: the memories that a query finds, and their order.
//!
//! BM25 with two fields. A term's contribution grows with its frequency in the
//! content and in the path, relative to their length, and with the term's rarity in
//! the store. The path counts more than the content. For the best hits, the score of
//! their best passage counts half, and words of the query that are near one another,
//! in the order of the query, count more than scattered ones. The score depends only
//! on the store's own data and is summed in a fixed order, so every replica and both
//! databases compute identical bits. Equal scores are ordered by path.

use std::cmp::Ordering;

use keepsake_core::{DirPath, MemoryId, MemoryPath};

use crate::postings::{Budget, Dictionary, Field, Postings, SearchedPostings, TermFilter};
use crate::query::{Atom, Query, RankedTerm, Sequence, folded_path};
use crate::snippet::Marker;
use crate::stems::Language;

mod best;
mod fusion;
mod nearness;
mod passages;

pub use fusion::Fusion;

/// BM25's k1: how quickly further occurrences stop counting.
const K1: f64 = 1.2;
/// BM25's b: the influence of the length of a content, and of a path.
const B_CONTENT: f64 = 0.75;
const B_PATH: f64 = 0.5;
const PATH_WEIGHT: f64 = 3.0;
/// The weight of another form of a word.
const ENGLISH_FORM_WEIGHT: f64 = 0.8;
const INDONESIAN_FORM_WEIGHT: f64 = 0.7;

/// Maximum work of one query in one store, in reads of postings and positions;
/// about a second or two. Real queries need far less, even in the largest stores.
pub(crate) const MAX_READS: u64 = 50_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct RankedMemory {
    pub memory: MemoryId,
    pub path: MemoryPath,
    /// Higher is better; comparable within one store. The sum of the next two parts.
    pub score: f64,
    /// What the words of the query add to the score.
    pub lexical: f64,
    /// What the meaning of the query adds to the score.
    pub meaning: f64,
    /// The chunk of the content that is nearest in meaning, if meaning counts: its offset
    /// and length in bytes.
    pub chunk: Option<(usize, usize)>,
}

/// The result of one query in one store.
#[derive(Debug, Clone)]
pub struct Results {
    /// The hits, the best first, then ordered by path.
    pub found: Vec<RankedMemory>,
    /// The number of matching memories, including hits that are not in `found`.
    pub count: usize,
    /// Finds the query's terms in contents.
    pub marker: Marker,
    /// Whether the query needs more work than the limit allows; then there are no hits.
    pub is_too_broad: bool,
}

impl Results {
    fn too_broad() -> Self {
        Self { found: Vec::new(), count: 0, marker: Marker::default(), is_too_broad: true }
    }
}

/// A term of the store that matches a ranked term of the query, and its weight.
#[derive(Clone, Copy)]
struct Variant {
    term: u32,
    weight: f64,
}

/// A ranked term of the query with its terms in this store.
struct ResolvedTerm<'a> {
    ranked: &'a RankedTerm,
    variants: Vec<Variant>,
    /// Its weight; lower if many memories match.
    weight: f64,
    /// Whether the term is in so many memories that it is not looked up.
    is_ignored: bool,
}

/// One query of a store.
struct Asked<'a> {
    query: &'a Query,
    directory: Option<&'a DirPath>,
    fusion: Option<Fusion<'a>>,
}

/// A matching memory.
struct Hit {
    slot: u32,
    lexical: f64,
    meaning: f64,
    chunk: Option<(usize, usize)>,
}

impl Hit {
    const fn of_words(lexical: f64, slot: u32) -> Self {
        Self { slot, lexical, meaning: 0.0, chunk: None }
    }

    fn score(&self) -> f64 {
        self.lexical + self.meaning
    }
}

impl Postings {
    /// Finds the memories below `directory` that match `query`, and returns the best
    /// `limit` of the hits for which `accept`, called with score and path, is true.
    ///
    /// The work grows with the number of matches, and is bounded.
    pub fn search(
        &self,
        query: &Query,
        directory: Option<&DirPath>,
        limit: usize,
        accept: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        self.search_with(query, directory, None, limit, accept)
    }

    /// Like [`Self::search`], also by meaning. A query with a quoted phrase, or without
    /// words, is searched as without `fusion`.
    pub fn search_with(
        &self,
        query: &Query,
        directory: Option<&DirPath>,
        fusion: Option<Fusion<'_>>,
        limit: usize,
        accept: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        let asked = Asked { query, directory, fusion };
        self.search_within(&Budget::of(MAX_READS), asked, limit, accept)
    }

    /// The best `limit` hits of each query. The rows are read once for all queries, which together may need
    /// the work of one.
    pub fn search_each(&self, queries: &[Query], limit: usize) -> Vec<Results> {
        let (budget, mut read) = (Budget::of(MAX_READS), None);
        let Some(terms) = self.terms_for(queries, &mut read) else {
            return queries.iter().map(|_| Results::too_broad()).collect();
        };
        let index = SearchedPostings { store: self, terms, budget: &budget };
        let asked = queries.iter().map(|query| Asked { query, directory: None, fusion: None });
        asked.map(|asked| self.search_in(index, asked, limit, |_, _| true)).collect()
    }

    fn search_within(
        &self,
        budget: &Budget,
        asked: Asked<'_>,
        limit: usize,
        accept: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        let mut read = None;
        let Some(terms) = self.terms_for([asked.query], &mut read) else {
            return Results::too_broad();
        };
        self.search_in(SearchedPostings { store: self, terms, budget }, asked, limit, accept)
    }

    /// The terms that the queries need: those of all postings if they are built, else read from the rows.
    fn terms_for<'a, 'q>(
        &'a self,
        queries: impl IntoIterator<Item = &'q Query>,
        read: &'a mut Option<Dictionary>,
    ) -> Option<&'a Dictionary> {
        if let Some(all) = self.all() {
            return Some(all);
        }
        *read = Some(self.read(&TermFilter::of(queries, self.len()))?);
        read.as_ref()
    }

    fn search_in(
        &self,
        index: SearchedPostings<'_>,
        Asked { query, directory, fusion }: Asked<'_>,
        limit: usize,
        accept: impl Fn(f64, &MemoryPath) -> bool,
    ) -> Results {
        let mut scores = Scores::of(index);
        let mut resolved: Vec<ResolvedTerm<'_>> =
            query.ranked.iter().map(|one| index.resolve(one, query.languages)).collect();
        for one in &mut resolved {
            scores.add(index, one);
        }
        if query.is_path_only() {
            scores.touch_all(index);
        }
        let filter = Filter::of(index, query, directory);
        let mut found: Vec<(f64, u32)> = scores.found().filter(|(_, slot)| filter.allows(*slot)).collect();
        best::rescore(index, &resolved, &mut found);
        let mut hits = match fusion.filter(|_| query.has_meaning()) {
            Some(fusion) => fusion::fuse(&fusion, &filter, &resolved, &found),
            None => found.into_iter().map(|(lexical, slot)| Hit::of_words(lexical, slot)).collect(),
        };
        if index.budget.is_spent() {
            return Results::too_broad();
        }
        let count = hits.len();
        let slot = |hit: &Hit| &self.slots()[hit.slot as usize];
        hits.retain(|hit| accept(hit.score(), &slot(hit).path));
        let order = |a: &Hit, b: &Hit| self.order(&(a.score(), a.slot), &(b.score(), b.slot));
        keep_first(&mut hits, limit, order);
        hits.sort_unstable_by(order);
        let found = hits.iter().map(|hit| RankedMemory {
            memory: slot(hit).memory,
            path: MemoryPath::clone(&slot(hit).path),
            score: hit.score(),
            lexical: hit.lexical,
            meaning: hit.meaning,
            chunk: hit.chunk,
        });
        Results { found: found.collect(), count, marker: index.marker(&resolved), is_too_broad: false }
    }

    /// The order of scores, the best first, and then of paths.
    fn order(&self, a: &(f64, u32), b: &(f64, u32)) -> Ordering {
        let path = |slot: u32| &self.slots()[slot as usize].path;
        b.0.total_cmp(&a.0).then_with(|| path(a.1).cmp(path(b.1)))
    }
}

/// Keeps the entries that are first in an order, unordered: a query finds many more than it shows.
fn keep_first<T>(list: &mut Vec<T>, count: usize, order: impl Fn(&T, &T) -> Ordering) {
    if count < list.len() {
        list.select_nth_unstable_by(count, order);
        list.truncate(count);
    }
}

impl SearchedPostings<'_> {
    /// The terms of the store that match `ranked`, in text order.
    fn resolve<'a>(self, ranked: &'a RankedTerm, languages: &[Language]) -> ResolvedTerm<'a> {
        let (mut variants, mut is_ignored) = (Vec::<Variant>::new(), false);
        let mut add = |term: u32, weight: f64| match variants.iter_mut().find(|known| known.term == term) {
            Some(known) => known.weight = known.weight.max(weight),
            None if self.terms.is_live(term) => variants.push(Variant { term, weight }),
            None => {}
        };
        match &ranked.atom {
            Atom::Term(text) => {
                if let Some(term) = self.terms.find(text.as_bytes()) {
                    add(term, 1.0);
                }
                for language in languages.iter().filter(|_| ranked.has_forms) {
                    let weight = match language {
                        Language::English => ENGLISH_FORM_WEIGHT,
                        Language::Indonesian => INDONESIAN_FORM_WEIGHT,
                    };
                    self.terms.forms_of(text, *language, |term| add(term, weight));
                }
            }
            Atom::Character(letter) if !ranked.is_shown && self.is_too_frequent(*letter) => {
                is_ignored = true;
            }
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
        ResolvedTerm { ranked, variants, weight: 0.0, is_ignored }
    }

    /// Whether a character is in so many pairs that it does not distinguish memories;
    /// looking it up would cost more than the rest of the query.
    fn is_too_frequent(self, letter: char) -> bool {
        let mut left = self.store.len();
        self.terms.all_pairs_with(letter).any(|pair| {
            let live = self.terms.live(pair, Field::Content);
            let is_more = live > left;
            left = left.saturating_sub(live);
            is_more
        })
    }

    /// The terms of the store that match `atom` directly, without word forms.
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

    fn marker(self, resolved: &[ResolvedTerm<'_>]) -> Marker {
        let mut marker = Marker::default();
        for one in resolved.iter().filter(|one| one.ranked.is_shown) {
            for variant in &one.variants {
                marker.add(&self.terms.text(variant.term), one.weight * variant.weight);
            }
        }
        marker
    }
}

/// The scores of a running query.
struct Scores {
    sums: Vec<f64>,
    is_found: Vec<bool>,
    found: Vec<u32>,
    /// The amount of one ranked term in each slot, and the slots that have any.
    amounts: Vec<f64>,
    touched: Vec<u32>,
}

impl Scores {
    fn of(index: SearchedPostings<'_>) -> Self {
        let slots = index.store.slots().len();
        Self {
            sums: vec![0.0; slots],
            is_found: vec![false; slots],
            found: Vec::new(),
            amounts: vec![0.0; slots],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, index: SearchedPostings<'_>, one: &mut ResolvedTerm<'_>) {
        let content = (Field::Content, 1.0, B_CONTENT, index.store.average_length());
        let path = (Field::Path, PATH_WEIGHT, B_PATH, index.store.average_path_length());
        let variants = one.variants.iter();
        for (variant, (field, weight, b, average)) in variants.flat_map(|one| [(one, content), (one, path)]) {
            for posting in index.terms.postings(variant.term, field) {
                let slot = index.slot(posting.slot);
                if !slot.is_live {
                    continue;
                }
                if !index.budget.take(1) {
                    return;
                }
                let length = match field {
                    Field::Content => slot.length,
                    Field::Path => slot.path_length,
                };
                let amount = posting.frequency() / length_factor(b, length, average);
                self.put(posting.slot, variant.weight * weight * amount);
            }
        }
        one.weight = one.ranked.weight * rarity(index.store.len(), self.touched.len());
        for slot in self.touched.drain(..) {
            let amount = std::mem::take(&mut self.amounts[slot as usize]);
            self.sums[slot as usize] += one.weight * saturated(amount);
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

    fn touch_all(&mut self, index: SearchedPostings<'_>) {
        self.found =
            (0..).zip(index.store.slots()).filter(|(_, slot)| slot.is_live).map(|(at, _)| at).collect();
    }

    fn found(&self) -> impl Iterator<Item = (f64, u32)> {
        self.found.iter().map(|slot| (self.sums[*slot as usize], *slot))
    }
}

/// How much a text of this length reduces the amounts of its terms.
fn length_factor(b: f64, length: u32, average: f64) -> f64 {
    1.0 - b + b * f64::from(length) / average
}

/// The part of a term's weight that an amount of the term gives; further occurrences
/// count less and less.
fn saturated(amount: f64) -> f64 {
    amount * (K1 + 1.0) / (K1 + amount)
}

/// Inverse document frequency, for a part that `having` of `all` memories have;
/// always positive.
#[expect(clippy::cast_precision_loss, reason = "memories of a store are far below 2^52")]
fn rarity(all: usize, having: usize) -> f64 {
    let (all, having) = (all as f64, having as f64);
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
}

/// The conditions on a memory besides matching a ranked term.
struct Filter<'a> {
    index: SearchedPostings<'a>,
    query: &'a Query,
    directory: Option<&'a DirPath>,
    phrases: Vec<Steps>,
    excluded: Vec<Steps>,
}

/// A sequence in terms of the store: the possible terms at each distance.
struct Steps(Vec<(Vec<u32>, u32)>);

impl<'a> Filter<'a> {
    fn of(index: SearchedPostings<'a>, query: &'a Query, directory: Option<&'a DirPath>) -> Self {
        let step = |(atom, offset): &(Atom, u32)| (index.terms_of(atom), *offset);
        let steps = |sequences: &[Sequence]| {
            let sequences = sequences.iter();
            sequences.map(|Sequence(atoms)| Steps(atoms.iter().map(step).collect())).collect()
        };
        Self { index, query, directory, phrases: steps(&query.phrases), excluded: steps(&query.excluded) }
    }

    fn allows(&self, slot: u32) -> bool {
        if self.index.budget.is_spent() {
            return false;
        }
        let memory = self.index.slot(slot);
        self.directory.is_none_or(|directory| memory.path.is_below(directory))
            && self.matches_path(memory.path.as_str())
            && self.phrases.iter().all(|steps| steps.are_in(self.index, slot))
            && !self.excluded.iter().any(|steps| steps.are_in(self.index, slot))
    }

    fn matches_path(&self, path: &str) -> bool {
        if self.query.paths.is_empty() {
            return true;
        }
        let folded = folded_path(path);
        self.query.paths.iter().all(|filter| filter.allows(&folded))
    }
}

impl Steps {
    /// Whether the content or the path of the slot has the sequence.
    fn are_in(&self, index: SearchedPostings<'_>, slot: u32) -> bool {
        [Field::Content, Field::Path].into_iter().any(|field| self.are_in_field(index, field, slot))
    }

    fn are_in_field(&self, index: SearchedPostings<'_>, field: Field, slot: u32) -> bool {
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

/// Whether `position` is at `distance` after one of `places`, which are in order.
/// The parts of a compound share one position; the same words in running text have
/// consecutive positions.
fn follows(places: &[u32], position: u32, distance: u32) -> bool {
    let is_at = |distance: u32| {
        position.checked_sub(distance).is_some_and(|place| places.binary_search(&place).is_ok())
    };
    is_at(distance) || (distance <= 1 && is_at(1 - distance))
}

#[cfg(test)]
mod tests;
