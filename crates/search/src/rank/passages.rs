//! The BM25 score of a memory's best passage.
//!
//! A passage is scored like a memory with the same path, with the statistics of the
//! store. A content is divided into passages of a fixed
//! number of positions, each of which overlaps the next one by half. So the score is
//! computed from the positions in the row, without the content.

use super::{B_CONTENT, length_factor, saturated};

/// The share of the best passage in the score of a memory.
pub(super) const SHARE: f64 = 0.5;
/// Length of a passage in positions: about 600 bytes of prose in Latin script.
const PASSAGE: u32 = 96;
/// Positions between the beginnings of two passages.
const STRIDE: u32 = PASSAGE / 2;

/// The passages of one memory, scored term by term.
pub(super) struct Passages {
    /// The score of each passage, without the score of the path.
    scores: Vec<f64>,
    path_score: f64,
    length_factor: f64,
    /// The amounts of the current term: in each passage, and in the path.
    amounts: Vec<f64>,
    path_amount: f64,
    /// The passages with the current term.
    touched: Vec<usize>,
}

impl Passages {
    /// The passages of a content with this number of positions, in a store with this
    /// average number.
    pub(super) fn of(length: u32, average_length: f64) -> Self {
        let count = 1 + length.saturating_sub(PASSAGE).div_ceil(STRIDE) as usize;
        let average = average_length.min(f64::from(PASSAGE));
        Self {
            scores: vec![0.0; count],
            path_score: 0.0,
            length_factor: length_factor(B_CONTENT, length.min(PASSAGE), average),
            amounts: vec![0.0; count],
            path_amount: 0.0,
            touched: Vec::new(),
        }
    }

    /// Takes an amount of the current term in the path.
    pub(super) fn take_path(&mut self, amount: f64) {
        self.path_amount += amount;
    }

    /// Takes an occurrence of the current term in the content.
    pub(super) fn take(&mut self, position: u32, weight: f64) {
        let last = (position / STRIDE) as usize;
        for passage in [last.checked_sub(1), Some(last)].into_iter().flatten() {
            // A damaged row can have positions after the end.
            let Some(amount) = self.amounts.get_mut(passage) else {
                continue;
            };
            if *amount == 0.0 {
                self.touched.push(passage);
            }
            *amount += weight / self.length_factor;
        }
    }

    /// Ends the current term, which has this weight.
    pub(super) fn end_term(&mut self, weight: f64) {
        let path_amount = std::mem::take(&mut self.path_amount);
        let path_alone = saturated(path_amount);
        self.path_score += weight * path_alone;
        for passage in self.touched.drain(..) {
            let amount = std::mem::take(&mut self.amounts[passage]);
            self.scores[passage] += weight * (saturated(path_amount + amount) - path_alone);
        }
    }

    pub(super) fn best(&self) -> f64 {
        self.path_score + self.scores.iter().copied().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The best passage has the score of a memory with the same path and with only the
        /// passage's occurrences.
        #[test]
        fn best_passage_is_scored_like_a_memory(
            length in 0_u32..500,
            terms in prop::collection::vec(
                (prop::collection::vec(0_u32..500, 0..8), prop::option::of(0.1_f64..3.0), 0.1_f64..9.0),
                0..4,
            ),
        ) {
            let average = 60.0;
            let mut passages = Passages::of(length, average);
            for (positions, in_path, weight) in &terms {
                passages.take_path(in_path.unwrap_or_default());
                for position in positions {
                    passages.take(*position, 0.8);
                }
                passages.end_term(*weight);
            }
            let score_from = |start: u32| -> f64 {
                let scores = terms.iter().map(|(positions, in_path, weight)| {
                    let is_inside = |position: &&u32| (start..start + PASSAGE).contains(*position);
                    let count = u32::try_from(positions.iter().filter(is_inside).count()).unwrap();
                    let length_factor = length_factor(B_CONTENT, length.min(PASSAGE), average);
                    weight * saturated(in_path.unwrap_or_default() + f64::from(count) * 0.8 / length_factor)
                });
                scores.sum()
            };
            let starts = (0..).step_by(STRIDE as usize).take_while(|start| {
                *start == 0 || *start + PASSAGE < length + STRIDE
            });
            let best = starts.map(score_from).fold(0.0, f64::max);
            prop_assert!((passages.best() - best).abs() < 1e-9, "{} {best}", passages.best());
        }
    }
}
