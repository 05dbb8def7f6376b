//! The embeddings of the tokens, as exact as in the package.
//!
//! The package has a level of 0 to 63 for each value. The scale of the token's chunk and its lowest value make a number of
//! it. A row here has the token's lowest level, and for each value how many levels it is above, with as many bits as the
//! highest of these needs: four on average.
//!
//! The rows of a text's tokens are read from the file for each text: the operating system caches the frequent ones, and
//! the process needs no memory for them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::DIMENSIONS;
use super::file::{Sections, TEXT_BYTES};

/// The token with number `id` is in the chunk `id % CHUNKS`, at the position `id / CHUNKS`.
pub(super) const CHUNKS: usize = 17;
pub(super) const CHUNK_ROWS: usize = 7_530;
const ROWS: usize = CHUNKS * CHUNK_ROWS;
/// So many values begin at a byte, whatever their bits.
const GROUP: usize = 8;
const GROUPS: usize = DIMENSIONS / GROUP;
/// The bits of the highest level.
const MAX_BITS: usize = 6;
/// The longest row, and some bytes after it, so that each group is read with the same number of bytes.
const BUFFER_BYTES: usize = 1 + GROUPS * MAX_BITS + size_of::<u64>();

#[derive(Debug)]
pub(super) struct Table {
    /// Where each row begins in the file, chunk by chunk, and the end of the last one.
    starts: Vec<usize>,
    lowest: Vec<f32>,
    /// The difference between two levels of each chunk.
    scales: Vec<f32>,
}

impl Table {
    pub(super) fn read(sections: &mut Sections<impl Read>) -> io::Result<Self> {
        let mut starts = Vec::with_capacity(ROWS + 1);
        let mut end = TEXT_BYTES;
        starts.push(end);
        for bits in sections.bytes(ROWS)? {
            if usize::from(bits) > MAX_BITS {
                return Err(io::ErrorKind::InvalidData.into());
            }
            end += 1 + usize::from(bits) * GROUPS;
            starts.push(end);
        }
        Ok(Self { starts, lowest: sections.floats(CHUNKS)?, scales: sections.floats(CHUNKS)? })
    }

    /// Sets the embedding of each token, one after the other.
    pub(super) fn read_embeddings(
        &self,
        file: &File,
        tokens: &[u32],
        embeddings: &mut Vec<f32>,
    ) -> io::Result<()> {
        let mut buffer = [0; BUFFER_BYTES];
        embeddings.clear();
        for &token in tokens {
            let token = token as usize;
            let (chunk, position) = (token % CHUNKS, token / CHUNKS);
            let number = chunk * CHUNK_ROWS + position;
            // A file that is written to while it is opened could name other tokens.
            let row = self.starts.get(number..).and_then(<[usize]>::first_chunk);
            let &[start, end] = row.ok_or(io::ErrorKind::InvalidData)?;
            let bytes = end - start;
            file.read_exact_at(&mut buffer[..bytes], start as u64)?;
            let (lowest, scale) = (self.lowest[chunk], self.scales[chunk]);
            let levels = unpack(&buffer, bytes / GROUPS);
            embeddings.extend(levels.map(|level| f32::from(level) * scale + lowest));
        }
        Ok(())
    }
}

/// The row of a token from its levels, and the bits of each value.
pub(super) fn pack(levels: &[u8; DIMENSIONS]) -> (Vec<u8>, u8) {
    let lowest = levels.iter().copied().min().unwrap_or_default();
    let highest = levels.iter().copied().max().unwrap_or_default();
    let bits = u8::BITS - (highest - lowest).leading_zeros();
    let mut row = vec![lowest];
    for group in levels.as_chunks::<GROUP>().0 {
        let packed = group.iter().rev().fold(0, |packed, level| packed << bits | u64::from(level - lowest));
        row.extend(&packed.to_le_bytes()[..bits as usize]);
    }
    (row, bits.to_le_bytes()[0])
}

/// The level of each value of a row with so many bits for each. The bytes after the row do not count.
fn unpack(row: &[u8; BUFFER_BYTES], bits: usize) -> [u8; DIMENSIONS] {
    let mask = (1 << bits) - 1;
    let mut levels = [0_u8; DIMENSIONS];
    for (group, levels) in levels.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let mut packed = [0; size_of::<u64>()];
        packed.copy_from_slice(&row[1 + group * bits..][..size_of::<u64>()]);
        let packed = u64::from_le_bytes(packed);
        for (value, level) in levels.iter_mut().enumerate() {
            *level = row[0] + (packed >> (value * bits) & mask).to_le_bytes()[0];
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_short_as_their_span_and_exact() {
        for (lowest, highest, bits) in [(9, 9, 0), (9, 10, 1), (0, 15, 4), (30, 46, 5), (0, 63, 6)] {
            let span = usize::from(highest - lowest) + 1;
            let levels = std::array::from_fn(|value| lowest + (value * 7 % span).to_le_bytes()[0]);
            let (row, row_bits) = pack(&levels);
            assert_eq!((row_bits, row.len()), (bits, 1 + 64 * usize::from(bits)));
            let mut buffer = [u8::MAX; BUFFER_BYTES];
            buffer[..row.len()].copy_from_slice(&row);
            assert_eq!(unpack(&buffer, usize::from(bits)), levels, "{lowest} to {highest}");
        }
    }
}
