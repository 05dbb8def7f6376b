//! Computes the range of paths that a listing reads.

use keepsake_core::DirPath;

use crate::model::MemoryListing;

/// The first string in byte order after everything below a directory.
pub(crate) fn end_of(directory: &DirPath) -> String {
    // `0` follows `/` in byte order.
    format!("{}0", directory.as_str().trim_end_matches('/'))
}

/// The range between two strings in byte order, both exclusive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    /// Exclusive lower bound of the paths.
    pub(crate) from: &'a str,
    /// Exclusive lower bound of the names of direct children.
    pub(crate) after_name: &'a str,
    /// Exclusive upper bound of the paths.
    pub(crate) end: String,
}

impl<'a> Span<'a> {
    /// The remaining range of a listing; `None`: nothing is left.
    pub(crate) fn of(listing: &'a MemoryListing) -> Option<Self> {
        let below = listing.below.as_str();
        // No item has the directory's own path, so it can serve as the exclusive bound.
        let from = listing.after.as_deref().map_or(below, |after| after.max(below));
        let end = end_of(&listing.below);
        let after_name = from.strip_prefix(below).filter(|_| *from < *end)?;
        Some(Self { from, after_name, end })
    }
}
