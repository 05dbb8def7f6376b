//! The pieces of the vocabulary, in the order of their bytes.

use std::io::{self, Read};
use std::ops::Range;

use super::super::file::Sections;
use super::normaliser::SPACE;

/// A piece of text that is a token.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Piece {
    pub(in super::super) text: Vec<u8>,
    pub(in super::super) score: f32,
    pub(in super::super) id: u32,
}

/// The number and the score of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) id: u32,
    pub(super) score: f32,
}

#[derive(Debug)]
pub(super) struct Vocabulary {
    /// The texts of all pieces, one after the other.
    texts: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u32>,
    tokens: Vec<Token>,
    lowest_score: f32,
    /// The pieces that begin with each byte.
    begins: Vec<Range<usize>>,
    /// The pieces that begin with a space, about half of all, and those with each byte after it.
    spaced: Range<usize>,
    spaced_begins: Vec<Range<usize>>,
}

impl Vocabulary {
    pub(super) fn read(sections: &mut Sections<impl Read>) -> io::Result<Self> {
        let count = sections.number()?;
        let ends = sections.numbers(count)?;
        let scores = sections.floats(count)?;
        let ids = sections.numbers(count)?;
        let texts = sections.counted()?;
        let are_within = ends.is_sorted() && ends.last().is_none_or(|&end| end as usize == texts.len());
        if !are_within {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let lowest_score = scores.iter().copied().fold(0.0, f32::min);
        let tokens = ids.into_iter().zip(scores).map(|(id, score)| Token { id, score }).collect();
        let (begins, spaced_begins) = (Vec::new(), Vec::new());
        let mut vocabulary =
            Self { texts, ends, tokens, lowest_score, begins, spaced: 0..count, spaced_begins };
        let begins_in = |vocabulary: &Self, range: Range<usize>, depth: usize| -> Vec<Range<usize>> {
            (0..=u8::MAX).map(|byte| vocabulary.narrowed(range.clone(), depth, byte)).collect()
        };
        vocabulary.begins = begins_in(&vocabulary, 0..count, 0);
        for (depth, byte) in SPACE.bytes().enumerate() {
            vocabulary.spaced = vocabulary.narrowed(vocabulary.spaced.clone(), depth, byte);
        }
        vocabulary.spaced_begins = begins_in(&vocabulary, vocabulary.spaced.clone(), SPACE.len());
        Ok(vocabulary)
    }

    pub(super) fn write(mut pieces: Vec<Piece>, to: &mut Vec<u8>) -> Option<()> {
        pieces.sort_by(|one, other| one.text.cmp(&other.text));
        let texts: Vec<u8> = pieces.iter().flat_map(|piece| piece.text.iter().copied()).collect();
        to.extend(u32::try_from(pieces.len()).ok()?.to_le_bytes());
        let mut end = 0;
        for piece in &pieces {
            end += u32::try_from(piece.text.len()).ok()?;
            to.extend(end.to_le_bytes());
        }
        to.extend(pieces.iter().flat_map(|piece| piece.score.to_le_bytes()));
        to.extend(pieces.iter().flat_map(|piece| piece.id.to_le_bytes()));
        to.extend(end.to_le_bytes());
        to.extend(texts);
        Some(())
    }

    pub(super) fn lowest_score(&self) -> f32 {
        self.lowest_score
    }

    /// The pieces that the text begins with, each after its length, the shortest first.
    pub(super) fn pieces_at(&self, text: &[u8]) -> impl Iterator<Item = (usize, Token)> {
        // The pieces that begin with the first bytes of the text. A piece of only these bytes comes first.
        let mut range = 0..self.ends.len();
        let is_spaced = text.starts_with(SPACE.as_bytes());
        let narrowed = text.iter().enumerate().map_while(move |(depth, &byte)| {
            range = match depth {
                // No piece ends within a character.
                _ if is_spaced && depth < SPACE.len() => self.spaced.clone(),
                _ if is_spaced && depth == SPACE.len() => self.spaced_begins[usize::from(byte)].clone(),
                0 => self.begins[usize::from(byte)].clone(),
                _ => self.narrowed(range.clone(), depth, byte),
            };
            (!range.is_empty()).then_some((depth + 1, range.start))
        });
        narrowed
            .filter(|&(length, first)| self.text(first).len() == length)
            .map(|(length, first)| (length, self.tokens[first]))
    }

    /// Those pieces of a range, which begin with the same bytes, that have `byte` at `depth`.
    fn narrowed(&self, range: Range<usize>, depth: usize, byte: u8) -> Range<usize> {
        let first = self.partition_point(range.clone(), |text| text.get(depth) < Some(&byte));
        let end = self.partition_point(first..range.end, |text| text.get(depth) <= Some(&byte));
        first..end
    }

    /// The first piece of a range that is not `before`.
    fn partition_point(&self, mut range: Range<usize>, before: impl Fn(&[u8]) -> bool) -> usize {
        while !range.is_empty() {
            let middle = usize::midpoint(range.start, range.end);
            if before(self.text(middle)) {
                range.start = middle + 1;
            } else {
                range.end = middle;
            }
        }
        range.start
    }

    fn text(&self, piece: usize) -> &[u8] {
        let start = piece.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start as usize..self.ends[piece] as usize]
    }
}
