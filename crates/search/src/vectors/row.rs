//! The stored form of a memory's embeddings.
//!
//! A row has a version, the number of dimensions, the number of chunks, the place of
//! each chunk in the content, and the values of all chunks. A place is the distance
//! from the end of the previous chunk, and the length. Numbers have variable length,
//! as in the rows of terms.

use crate::chunks::Chunk;
use crate::embedding::{Embedding, InvalidEmbedding, MAX_DIMENSIONS};
use crate::row::{DamagedRow, Reader, put_number, to_u32};

/// The format version in the first byte of a row.
const FORMAT_VERSION: u8 = 1;

/// The embeddings of all chunks of one version of a memory, as the index stores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorRow {
    bytes: Vec<u8>,
    chunk_count: usize,
}

impl VectorRow {
    /// The row of chunks in the order of [`chunks`](crate::chunks()). All embeddings must
    /// have the dimensions of the first one.
    pub fn of(chunks: &[(Chunk, Embedding)]) -> Result<Self, InvalidEmbedding> {
        let dimensions = chunks.first().map_or(0, |(_, embedding)| embedding.dimensions());
        let mut bytes = Vec::with_capacity(8 + chunks.len() * (dimensions + 4));
        bytes.push(FORMAT_VERSION);
        put_number(&mut bytes, to_u32(dimensions));
        put_number(&mut bytes, to_u32(chunks.len()));
        let mut end = 0;
        for (chunk, _) in chunks {
            put_number(&mut bytes, to_u32(chunk.offset.saturating_sub(end)));
            put_number(&mut bytes, to_u32(chunk.len));
            end = chunk.offset + chunk.len;
        }
        for (_, embedding) in chunks {
            if embedding.dimensions() != dimensions {
                return Err(InvalidEmbedding::Dimensions { dimensions: embedding.dimensions() });
            }
            bytes.extend(embedding.values().iter().map(|value| value.cast_unsigned()));
        }
        Ok(Self { bytes, chunk_count: chunks.len() })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub const fn chunk_count(&self) -> usize {
        self.chunk_count
    }
}

/// A row that was read and checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredVectors<'a> {
    pub(super) dimensions: usize,
    /// The offset and the length of each chunk.
    pub(super) places: Vec<(u32, u32)>,
    /// The values of all chunks, as bytes.
    pub(super) values: &'a [u8],
}

impl<'a> StoredVectors<'a> {
    pub(super) fn read(row: &'a [u8]) -> Result<Self, DamagedRow> {
        let mut rest = Reader { bytes: row, at: 0 };
        if rest.byte()? != FORMAT_VERSION {
            return Err(DamagedRow);
        }
        let (dimensions, count) = (rest.number()? as usize, rest.number()? as usize);
        if dimensions > MAX_DIMENSIONS || (dimensions == 0) != (count == 0) || count > row.len() {
            return Err(DamagedRow);
        }
        let mut places = Vec::with_capacity(count);
        let mut end = 0_u32;
        for _ in 0..count {
            let (distance, len) = (rest.number()?, rest.number()?);
            let offset = end.checked_add(distance).ok_or(DamagedRow)?;
            end = offset.checked_add(len).ok_or(DamagedRow)?;
            places.push((offset, len));
        }
        let values = rest.take(count * dimensions)?;
        let is_embedding = |values: &[u8]| {
            values.iter().any(|value| *value != 0) && !values.contains(&i8::MIN.cast_unsigned())
        };
        if !rest.is_empty() || !values.chunks(dimensions.max(1)).all(is_embedding) {
            return Err(DamagedRow);
        }
        Ok(Self { dimensions, places, values })
    }
}
