//! Scores the best hits again, with the positions of the query's words.
//!
//! A long memory, such as a conversation, has most words somewhere. The relevant
//! part is the place where they occur together. So the score of the best passage and
//! the nearness of the words count too. Both read positions, which costs more than
//! counting words, so only the hits that are best without them get them.

use hashbrown::HashMap;

use super::passages::Passages;
use super::{B_PATH, PATH_WEIGHT, ResolvedTerm, length_factor, nearness, passages};
use crate::postings::{Field, Posting, SearchedPostings};

/// The number of best hits that are scored again. The other hits get neither a
/// passage nor nearness, and stay after them.
const MAX_RESCORED_HITS: usize = 100;
/// Maximum number of positions of one memory that nearness is computed from.
const MAX_POSITIONS: usize = 4_096;

/// Adds the best passage and nearness to the scores of the best hits, and reorders `found`.
pub(super) fn rescore(index: SearchedPostings<'_>, resolved: &[ResolvedTerm<'_>], found: &mut [(f64, u32)]) {
    if found.len() > MAX_RESCORED_HITS {
        found.select_nth_unstable_by(MAX_RESCORED_HITS, |a, b| index.store.order(a, b));
    }
    for (score, _) in found.iter_mut() {
        *score *= 1.0 - passages::SHARE;
    }
    let count = found.len().min(MAX_RESCORED_HITS);
    let best = &mut found[..count];
    let mut hits = BestHits::of(index, best);
    let mut shown = Vec::new();
    for one in resolved {
        let number = one.ranked.is_shown.then_some(shown.len());
        hits.take(one, number);
        if one.ranked.is_shown {
            shown.push(one);
        }
    }
    for ((score, _), hit) in best.iter_mut().zip(&mut hits.hits) {
        *score += passages::SHARE * hit.passages.best();
        if shown.len() > 1 {
            hit.positions.sort_unstable();
            *score += nearness::of(&shown, &hit.positions);
        }
    }
}

struct BestHits<'a> {
    index: SearchedPostings<'a>,
    hits: Vec<BestHit>,
    /// The place of each slot in `hits`.
    by_slot: HashMap<u32, usize>,
    average_path_length: f64,
}

struct BestHit {
    slot: u32,
    passages: Passages,
    /// The positions of the shown terms, each with the number of its term.
    positions: Vec<(u32, usize)>,
}

/// A posting of a variant in one of the best hits.
struct Occurrences {
    hit: usize,
    /// The place of the variant in its ranked term.
    variant: usize,
    posting: Posting,
}

impl<'a> BestHits<'a> {
    fn of(index: SearchedPostings<'a>, best: &[(f64, u32)]) -> Self {
        let hit_of = |slot: u32| BestHit {
            slot,
            passages: Passages::of(index.slot(slot).length, index.store.average_length()),
            positions: Vec::new(),
        };
        Self {
            index,
            hits: best.iter().map(|(_, slot)| hit_of(*slot)).collect(),
            by_slot: best.iter().zip(0..).map(|((_, slot), place)| (*slot, place)).collect(),
            average_path_length: index.store.average_path_length(),
        }
    }

    /// Takes a ranked term. `number` is its number among the shown terms.
    fn take(&mut self, one: &ResolvedTerm<'_>, number: Option<usize>) {
        for Occurrences { hit, variant, posting } in self.occurrences(one, Field::Path) {
            let hit = &mut self.hits[hit];
            let length = self.index.slot(hit.slot).path_length;
            let amount = posting.frequency() / length_factor(B_PATH, length, self.average_path_length);
            hit.passages.take_path(one.variants[variant].weight * PATH_WEIGHT * amount);
        }
        for Occurrences { hit, variant, posting } in self.occurrences(one, Field::Content) {
            let BestHit { slot, passages, positions } = &mut self.hits[hit];
            let weight = one.variants[variant].weight;
            self.index.positions_of(Field::Content, *slot, posting, |position| {
                passages.take(position, weight);
                if let Some(number) = number.filter(|_| positions.len() < MAX_POSITIONS) {
                    positions.push((position, number));
                }
            });
        }
        for hit in &mut self.hits {
            hit.passages.end_term(one.weight);
        }
    }

    /// The postings of a ranked term in the best hits, in the order of the variants for
    /// each hit.
    fn occurrences(&self, one: &ResolvedTerm<'_>, field: Field) -> Vec<Occurrences> {
        let (index, terms) = (self.index, self.index.terms);
        let mut occurrences = Vec::new();
        let postings: usize = one.variants.iter().map(|variant| terms.live(variant.term, field)).sum();
        if postings < one.variants.len() * self.hits.len() {
            // A character is in many pairs, most of which no hit has.
            for (place, variant) in one.variants.iter().enumerate() {
                for posting in terms.postings(variant.term, field) {
                    if !index.slot(posting.slot).is_live {
                        continue;
                    }
                    if !index.budget.take(1) {
                        return occurrences;
                    }
                    if let Some(hit) = self.by_slot.get(&posting.slot) {
                        occurrences.push(Occurrences { hit: *hit, variant: place, posting });
                    }
                }
            }
            return occurrences;
        }
        for (hit, BestHit { slot, .. }) in self.hits.iter().enumerate() {
            for (place, variant) in one.variants.iter().enumerate() {
                if !index.budget.take(1) {
                    return occurrences;
                }
                if let Some(posting) = terms.posting_in(variant.term, field, *slot) {
                    occurrences.push(Occurrences { hit, variant: place, posting });
                }
            }
        }
        occurrences
    }
}
