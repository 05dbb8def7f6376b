//! The embeddings of a store's chunks, in process memory, and their stored form.
//!
//! A search compares the query with every chunk: the values of all chunks are in one
//! list, which takes about a millisecond for 50,000 chunks. A memory that changes gets a
//! new span of this list, and its old span is dead. When too many chunks are dead,
//! the list is compacted. Sums are integers, so the result does not depend on the
//! order of the list, which differs between replicas.

use hashbrown::HashMap;
use keepsake_core::MemoryId;

use crate::embedding::{Embedding, dot, inverse_norm, widened};
use crate::row::DamagedRow;

mod row;

use row::StoredVectors;
pub use row::VectorRow;

/// Dead chunks that are kept, in addition to an eighth of the live ones.
const MIN_DEAD: usize = 64;

/// Cosines are counted in millionths, about.
const COSINE_SCALE: f64 = (1 << 20) as f64;

/// The embeddings of the memories of one store, all of one model.
#[derive(Debug, Clone, Default)]
pub struct Vectors {
    /// 0 without memories that have chunks.
    dimensions: usize,
    values: Vec<i8>,
    chunks: Vec<StoredChunk>,
    spans: Vec<Span>,
    by_memory: HashMap<MemoryId, usize>,
    live_chunks: usize,
}

#[derive(Debug, Clone, Copy)]
struct StoredChunk {
    offset: u32,
    len: u32,
    inverse_norm: f64,
}

/// The chunks of one memory.
#[derive(Debug, Clone, Copy)]
struct Span {
    memory: MemoryId,
    first: usize,
    count: usize,
    is_live: bool,
}

impl Span {
    const fn end(&self) -> usize {
        self.first + self.count
    }
}

impl Vectors {
    /// Sets the chunks of a memory from a [`VectorRow`]. A row with other dimensions
    /// than those of the other memories is damaged; the memory then has no chunks.
    pub fn set(&mut self, memory: MemoryId, row: &[u8]) -> Result<(), DamagedRow> {
        self.remove(memory);
        let stored = StoredVectors::read(row)?;
        let count = stored.places.len();
        if count > 0 {
            if self.live_chunks > 0 && self.dimensions != stored.dimensions {
                return Err(DamagedRow);
            }
            if self.live_chunks == 0 {
                // Dead chunks may have other dimensions.
                self.compact();
                self.dimensions = stored.dimensions;
            }
        }
        let first = self.chunks.len();
        reserve(&mut self.values, stored.values.len());
        reserve(&mut self.chunks, count);
        self.values.extend(stored.values.iter().map(|value| value.cast_signed()));
        for (chunk, (offset, len)) in (first..).zip(stored.places) {
            let at = chunk * self.dimensions;
            let inverse_norm = inverse_norm(&self.values[at..at + self.dimensions]);
            self.chunks.push(StoredChunk { offset, len, inverse_norm });
        }
        self.by_memory.insert(memory, self.spans.len());
        self.spans.push(Span { memory, first, count, is_live: true });
        self.live_chunks += count;
        Ok(())
    }

    pub fn remove(&mut self, memory: MemoryId) {
        let Some(span) = self.by_memory.remove(&memory) else {
            return;
        };
        let span = &mut self.spans[span];
        span.is_live = false;
        self.live_chunks -= span.count;
        let dead_chunks = self.chunks.len() - self.live_chunks;
        let dead_spans = self.spans.len() - self.by_memory.len();
        if dead_chunks.max(dead_spans) > MIN_DEAD + self.live_chunks.max(self.by_memory.len()) / 8 {
            self.compact();
        }
    }

    /// Whether the memory was set; it may have no chunks.
    pub fn has(&self, memory: MemoryId) -> bool {
        self.by_memory.contains_key(&memory)
    }

    /// The number of memories.
    pub fn len(&self) -> usize {
        self.by_memory.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_memory.is_empty()
    }

    /// The number of chunks of all memories.
    pub const fn chunk_count(&self) -> usize {
        self.live_chunks
    }

    /// Memory use in bytes, without the overhead of the allocator.
    pub fn size_bytes(&self) -> usize {
        let lists = self.values.capacity()
            + self.chunks.capacity() * size_of::<StoredChunk>()
            + self.spans.capacity() * size_of::<Span>();
        size_of::<Self>() + lists + self.by_memory.capacity() * 32
    }

    /// Removes dead spans, and keeps the order of the others.
    fn compact(&mut self) {
        let dimensions = self.dimensions;
        let (mut chunks, mut spans) = (0, 0);
        for place in 0..self.spans.len() {
            let span = self.spans[place];
            if !span.is_live {
                continue;
            }
            self.chunks.copy_within(span.first..span.end(), chunks);
            self.values.copy_within(span.first * dimensions..span.end() * dimensions, chunks * dimensions);
            self.spans[spans] = Span { first: chunks, ..span };
            self.by_memory.insert(span.memory, spans);
            chunks += span.count;
            spans += 1;
        }
        self.chunks.truncate(chunks);
        self.values.truncate(chunks * dimensions);
        self.spans.truncate(spans);
    }

    /// Compares all chunks with a query; `None` without chunks, and if the dimensions
    /// differ.
    pub(crate) fn compare(&self, query: &Embedding) -> Option<Comparison<'_>> {
        if self.live_chunks == 0 || query.dimensions() != self.dimensions {
            return None;
        }
        let (wide, query_norm) = (widened(query.values()), inverse_norm(query.values()) * COSINE_SCALE);
        let mut sums = Sums::default();
        let nearest = self.spans.iter().map(|span| {
            let span = if span.is_live { span.first..span.end() } else { 0..0 };
            let values = self.values[span.start * self.dimensions..].chunks_exact(self.dimensions);
            let mut nearest: Option<NearestChunk> = None;
            for ((place, chunk), values) in span.clone().zip(&self.chunks[span]).zip(values) {
                let cosine = f64::from(dot(&wide, values)) * (query_norm * chunk.inverse_norm);
                #[expect(clippy::cast_possible_truncation, reason = "a cosine is at most 1")]
                let cosine = cosine as i32;
                sums.add(cosine);
                if nearest.is_none_or(|nearest| cosine > nearest.cosine) {
                    nearest = Some(NearestChunk { cosine, place });
                }
            }
            nearest
        });
        let nearest = nearest.collect();
        let (mean, deviation) = sums.mean_and_deviation();
        Some(Comparison { vectors: self, nearest, mean, deviation })
    }
}

/// Reserves room for more entries of a long list, and less than [`Vec::reserve`] for
/// later ones.
fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// The chunk of a memory that is nearest to the query.
#[derive(Debug, Clone, Copy)]
struct NearestChunk {
    cosine: i32,
    place: usize,
}

/// The similarity of a query and the memories of a store.
pub(crate) struct Comparison<'a> {
    vectors: &'a Vectors,
    /// By span; `None` without chunks, and if it was taken.
    nearest: Vec<Option<NearestChunk>>,
    /// Of all chunks.
    mean: f64,
    deviation: f64,
}

/// How near a memory is to a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Similarity {
    /// The cosine of the nearest chunk, in standard deviations over all chunks of the
    /// store; 0 if all are equal.
    pub(crate) z: f64,
    /// The nearest chunk: its offset and length in bytes.
    pub(crate) chunk: (usize, usize),
}

impl Comparison<'_> {
    /// Takes a memory; `None` if it has no chunks.
    pub(crate) fn take(&mut self, memory: MemoryId) -> Option<Similarity> {
        let nearest = self.nearest[*self.vectors.by_memory.get(&memory)?].take()?;
        Some(self.similarity(nearest))
    }

    /// The memories with chunks that were not taken, unordered.
    pub(crate) fn rest(&self) -> impl Iterator<Item = (MemoryId, Similarity)> {
        let spans = self.vectors.spans.iter().zip(&self.nearest);
        spans.filter_map(|(span, nearest)| Some((span.memory, self.similarity((*nearest)?))))
    }

    fn similarity(&self, NearestChunk { cosine, place }: NearestChunk) -> Similarity {
        let distance = f64::from(cosine) - self.mean;
        let StoredChunk { offset, len, .. } = self.vectors.chunks[place];
        Similarity {
            z: if self.deviation > 0.0 { distance / self.deviation } else { 0.0 },
            chunk: (offset as usize, len as usize),
        }
    }
}

/// The sums of cosines and of their squares.
#[derive(Default)]
struct Sums {
    count: i128,
    sum: i64,
    squares: i64,
}

impl Sums {
    fn add(&mut self, cosine: i32) {
        let cosine = i64::from(cosine);
        self.count += 1;
        self.sum += cosine;
        self.squares += cosine * cosine;
    }

    #[expect(clippy::cast_precision_loss, reason = "the quotients need no more than the 53 bits of a float")]
    fn mean_and_deviation(&self) -> (f64, f64) {
        let count = self.count as f64;
        let variance = self.count * i128::from(self.squares) - i128::from(self.sum).pow(2);
        (self.sum as f64 / count, (variance as f64).sqrt() / count)
    }
}

#[cfg(test)]
mod tests;
