//! Scores the nearness of the query's words to one another.
//!
//! A long memory, such as a conversation, has most words somewhere. The relevant
//! part is the place where they occur together. So nearness is computed from the
//! best passage of each memory that scores well without it.

use super::ResolvedTerm;
use crate::postings::{Field, SearchedPostings};

/// The number of best hits that nearness is computed for. The other hits keep their
/// scores, which are lower.
const MAX_RESCORED_HITS: usize = 100;
/// Length of a passage in positions.
const PASSAGE: u32 = 32;
/// The weight of words that occur in the same passage.
const PASSAGE_WEIGHT: f64 = 0.5;
/// The weight of two words that follow one another as in the query.
const FOLLOWING_WEIGHT: f64 = 0.3;
/// Maximum number of positions read in one memory.
const MAX_POSITIONS: usize = 4_096;

/// Adds nearness to the scores of `found`, which is sorted, the best first.
pub(super) fn add(index: SearchedPostings<'_>, resolved: &[ResolvedTerm<'_>], found: &mut [(f64, u32)]) {
    let shown: Vec<&ResolvedTerm<'_>> = resolved.iter().filter(|one| one.ranked.is_shown).collect();
    if shown.len() < 2 {
        return;
    }
    let mut positions = Vec::new();
    for (score, slot) in found.iter_mut().take(MAX_RESCORED_HITS) {
        positions.clear();
        for (number, one) in shown.iter().enumerate() {
            for variant in &one.variants {
                index.positions_in(Field::Content, variant.term, *slot, |position| {
                    if positions.len() < MAX_POSITIONS {
                        positions.push((position, number));
                    }
                });
            }
        }
        positions.sort_unstable();
        *score += PASSAGE_WEIGHT * best_passage(&shown, &positions);
        *score += FOLLOWING_WEIGHT * following(&shown, &positions);
    }
}

/// The highest sum of weights in one passage, without the part with the highest
/// weight, which every matching memory has anyway.
fn best_passage(shown: &[&ResolvedTerm<'_>], positions: &[(u32, usize)]) -> f64 {
    let mut counts = vec![0_u32; shown.len()];
    let mut first = 0;
    let mut best = 0.0_f64;
    let mut is_new = true;
    for (position, number) in positions {
        is_new |= counts[*number] == 0;
        counts[*number] += 1;
        while positions[first].0.saturating_add(PASSAGE) <= *position {
            counts[positions[first].1] -= 1;
            first += 1;
        }
        if is_new {
            let present = counts.iter().zip(shown).filter(|(count, _)| **count > 0);
            let (mut sum, mut highest) = (0.0, 0.0_f64);
            for (_, one) in present {
                sum += one.weight;
                highest = highest.max(one.weight);
            }
            best = best.max(sum - highest);
            is_new = false;
        }
    }
    best
}

/// The weight of pairs of words that are adjacent both in the query and here.
fn following(shown: &[&ResolvedTerm<'_>], positions: &[(u32, usize)]) -> f64 {
    let mut sum = 0.0;
    for number in 1..shown.len() {
        let distance = shown[number].ranked.position.saturating_sub(shown[number - 1].ranked.position);
        if distance > 2 {
            continue;
        }
        let is_there = positions.iter().filter(|(_, other)| *other == number - 1).any(|(position, _)| {
            positions.binary_search(&(position.saturating_add(distance), number)).is_ok()
        });
        if is_there {
            sum += shown[number].weight.min(shown[number - 1].weight);
        }
    }
    sum
}
