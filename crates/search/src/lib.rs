//! Search over the memories of one store, by words and by meaning, without I/O.
//!
//! [`TermRow::of`] analyses a content into the compact row that the index stores with
//! the memory. [`Postings`] is built from the rows of a store's memories and
//! answers a [`Query`]. [`Marker`] finds the query's terms in a content, for the
//! snippet. [`PathWords`] are compared with paths only.
//!
//! With [`Vectors`], search also finds memories by their meaning. [`chunks`] divides
//! a content into the texts that a model embeds, and a [`VectorRow`] has their
//! [`Embedding`]s. [`Fusion`] joins both kinds of scores.
//!
//! Nothing here does I/O or waits. The same rows give the same hits with the same
//! scores on every replica and database.

mod analyse;
mod chunks;
mod embedding;
mod fold;
mod function_words;
mod paths;
mod postings;
mod query;
mod rank;
mod row;
mod snippet;
mod stems;
mod vectors;

pub use analyse::MAX_TEXT_BYTES;
pub use chunks::{CHUNK_FORM, Chunk, MAX_CHUNK_BYTES, MAX_CHUNKS, chunks};
pub use embedding::{Embedding, InvalidEmbedding, MAX_DIMENSIONS};
pub use fold::MAX_TERM_BYTES;
pub use paths::{FoundPath, PathWords};
pub use postings::{Builder, BuiltPostings, Postings};
pub use query::{MAX_QUERY_CHARS, MeaningText, Query, QueryTooLong};
pub use rank::{Fusion, RankedMemory, Results};
pub use row::{DamagedRow, TermRow};
pub use snippet::{MARKS, MAX_SNIPPET_CHARS, Marker, Snippet};
pub use vectors::{VectorRow, Vectors};

/// The version of the analyser that makes rows. A new version makes different rows,
/// so rows of older versions are rebuilt.
pub const ANALYSER: u32 = 4;
