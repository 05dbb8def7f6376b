//! Full-text search over the memories of one store, pure.
//!
//! [`Row::of`] analyses a content into the compact row that the index keeps
//! beside the memory. [`Postings`] is made of the rows of a store's memories
//! and answers a [`Query`]. [`Marker`] finds in a content what was looked for,
//! for the snippet. Nothing here does I/O or waits; the same rows give the same
//! hits with the same scores wherever they are read.

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
pub use postings::{Builder, Built, Postings};
pub use query::{MAX_QUERY_CHARS, Query, QueryTooLong};
pub use rank::{Found, Results};
pub use row::{DamagedRow, Row, check};
pub use snippet::{MARKS, MAX_SNIPPET_CHARS, Marker, Snippet};

/// Of the analyser that makes rows: another number, other rows. Rows of older
/// ones are made anew.
pub const ANALYSER: u32 = 4;
