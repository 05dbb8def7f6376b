//! Cuts texts into tokens as SentencePiece does for this model: the text is normalised, and cut into the pieces of the
//! vocabulary whose scores have the largest sum.

mod normaliser;
mod vocabulary;

use std::io::{self, Read};

use self::normaliser::Normaliser;
use self::vocabulary::Vocabulary;
use super::file::Sections;

pub(super) use self::vocabulary::Piece;

/// Maximum size of the text that counts; the rest is left out.
pub const MAX_TEXT_BYTES: usize = 8 << 10;
/// Maximum number of tokens that count, with the marks of begin and end; the rest is left out.
pub const MAX_TOKENS: usize = 512;

/// A character that no piece has, and each run of them.
const UNKNOWN: u32 = 0;
const BEGIN: u32 = 1;
const END: u32 = 2;
/// The score of an unknown character, relative to the lowest score of a piece.
const UNKNOWN_PENALTY: f32 = 10.0;

#[derive(Debug)]
pub(super) struct Tokenizer {
    normaliser: Normaliser,
    vocabulary: Vocabulary,
}

impl Tokenizer {
    pub(super) fn read(sections: &mut Sections<impl Read>) -> io::Result<Self> {
        Ok(Self { normaliser: Normaliser::read(sections)?, vocabulary: Vocabulary::read(sections)? })
    }

    /// Writes what [`Tokenizer::read`] reads. `map` is SentencePiece's compiled map of characters.
    pub(super) fn write(pieces: Vec<Piece>, map: &[u8], to: &mut Vec<u8>) -> Option<()> {
        Normaliser::write(map, to)?;
        Vocabulary::write(pieces, to)
    }

    pub(super) fn tokens(&self, text: &str) -> Vec<u32> {
        let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
        let mut tokens = vec![BEGIN];
        tokens.extend(self.best_pieces(&self.normaliser.normalised(text)));
        tokens.truncate(MAX_TOKENS - 1);
        tokens.push(END);
        tokens
    }

    /// The pieces with the largest sum of scores. Of equal sums up to a position, the one whose last piece is
    /// the longest counts.
    fn best_pieces(&self, text: &str) -> Vec<u32> {
        // For each position that a piece may end at: the largest sum, and the start and number of the last piece.
        let mut best = vec![(f32::NEG_INFINITY, 0, UNKNOWN); text.len() + 1];
        best[0].0 = 0.0;
        let unknown_score = self.vocabulary.lowest_score() - UNKNOWN_PENALTY;
        for (start, letter) in text.char_indices() {
            let sum = best[start].0;
            let next = start + letter.len_utf8();
            let mut is_known = false;
            let mut offer = |end: usize, score: f32, piece| {
                if sum + score > best[end].0 {
                    best[end] = (sum + score, start, piece);
                }
            };
            for (length, piece) in self.vocabulary.pieces_at(&text.as_bytes()[start..]) {
                is_known |= start + length == next;
                offer(start + length, piece.score, piece.id);
            }
            if !is_known {
                offer(next, unknown_score, UNKNOWN);
            }
        }
        let mut pieces: Vec<u32> = Vec::new();
        let mut end = text.len();
        while end > 0 {
            let (_, start, piece) = best[end];
            if piece != UNKNOWN || pieces.last() != Some(&UNKNOWN) {
                pieces.push(piece);
            }
            end = start;
        }
        pieces.reverse();
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(pieces: &[(&str, f32)]) -> Tokenizer {
        let piece = |(id, (text, score)): (usize, &(&str, f32))| Piece {
            text: text.as_bytes().to_vec(),
            score: *score,
            id: u32::try_from(id).unwrap() + 3,
        };
        let pieces = pieces.iter().enumerate().map(piece).collect();
        let mut file = Vec::new();
        // The map of no character.
        Tokenizer::write(pieces, &[4, 0, 0, 0, 0, 0, 0, 0], &mut file).unwrap();
        Tokenizer::read(&mut Sections::new(file.as_slice(), file.len() as u64)).unwrap()
    }

    #[test]
    fn long_texts_are_cut() {
        let tokenizer = tokenizer(&[("▁", -3.0), ("a", -4.0), ("é", -4.0)]);
        let tokens = tokenizer.tokens(&"a".repeat(100_000));
        assert_eq!((tokens.len(), tokens[0], tokens[MAX_TOKENS - 1]), (MAX_TOKENS, 1, 2));
        // No character is cut apart, and the part beyond the limit does not count.
        let long = "a".repeat(MAX_TEXT_BYTES - 1) + "é";
        assert_eq!(tokenizer.tokens(&long), tokens);
        let spaces = " ".repeat(MAX_TEXT_BYTES - 1) + "é";
        assert_eq!(tokenizer.tokens(&spaces), [1, 2]);
    }
}
