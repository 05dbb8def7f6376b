//! Scores the nearness of the query's words to one another, in the content of one
//! memory.

use super::ResolvedTerm;

/// Length, in positions, of the text that near words share.
const NEAR: u32 = 32;
/// The weight of words that occur near one another.
const NEAR_WEIGHT: f64 = 0.25;
/// The weight of two words that follow one another as in the query.
const FOLLOWING_WEIGHT: f64 = 0.15;

/// The nearness of `shown` terms. `positions` has their positions, each with the
/// number of its term, in order.
pub(super) fn of(shown: &[&ResolvedTerm<'_>], positions: &[(u32, usize)]) -> f64 {
    NEAR_WEIGHT * best_sum(shown, positions) + FOLLOWING_WEIGHT * following(shown, positions)
}

/// The highest sum of weights of near words, without the word with the highest
/// weight, which every matching memory has anyway.
fn best_sum(shown: &[&ResolvedTerm<'_>], positions: &[(u32, usize)]) -> f64 {
    let mut counts = vec![0_u32; shown.len()];
    let mut first = 0;
    let mut best = 0.0_f64;
    let mut is_new = true;
    for (position, number) in positions {
        is_new |= counts[*number] == 0;
        counts[*number] += 1;
        while positions[first].0.saturating_add(NEAR) <= *position {
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
