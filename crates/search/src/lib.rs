//! Full-text search over the memories of one store, without I/O.
//!
//! [`TermRow::of`] analyses a content into the compact row that the index stores with
//! the memory. [`Postings`] is built from the rows of a store's memories and
//! answers a [`Query`]. [`Marker`] finds the query's terms in a content, for the
//! snippet. Nothing here does I/O or waits. The same rows give the same hits with
//! the same scores on every replica and database.

mod analyse;
mod fold;
mod function_words;
mod postings;
mod query;
mod rank;
mod row;
mod snippet;
mod stems;

pub use analyse::MAX_TEXT_BYTES;
pub use fold::MAX_TERM_BYTES;
pub use postings::{Builder, BuiltPostings, Postings};
pub use query::{MAX_QUERY_CHARS, Query, QueryTooLong};
pub use rank::{RankedMemory, Results};
pub use row::{DamagedRow, TermRow};
pub use snippet::{MARKS, MAX_SNIPPET_CHARS, Marker, Snippet};

/// The version of the analyser that makes rows. A new version makes different rows,
/// so rows of older versions are rebuilt.
pub const ANALYSER: u32 = 4;
