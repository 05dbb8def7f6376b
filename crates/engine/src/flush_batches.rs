//! The batches in which a flush writes counts.
//!
//! The outcome of a batch is not known if the database did not answer its commit in time. The
//! next flush writes the same rows under the same id, by which the index recognises them.

use uuid::Uuid;

/// Rows written in one transaction.
pub(crate) const BATCH_ROWS: usize = 500;

#[derive(Debug)]
pub(crate) struct Batch<T> {
    pub(crate) id: Uuid,
    pub(crate) rows: Vec<T>,
}

#[derive(Debug)]
pub(crate) struct Batches<T> {
    /// The batch that a flush may have written.
    pub(crate) begun: Option<Batch<T>>,
    /// The rows after that batch.
    pub(crate) rest: Vec<T>,
}

impl<T> Batches<T> {
    /// `begun`: the batch that the last flush left.
    pub(crate) const fn new(begun: Option<Batch<T>>, rest: Vec<T>) -> Self {
        Self { begun, rest }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.begun.is_none() && self.rest.is_empty()
    }

    /// The batch to write next; `None`: all are written.
    pub(crate) fn begin(&mut self, new_id: impl FnOnce() -> Uuid) -> Option<&Batch<T>> {
        if self.begun.is_none() && !self.rest.is_empty() {
            let rows = self.rest.split_off(self.rest.len().saturating_sub(BATCH_ROWS));
            self.begun = Some(Batch { id: new_id(), rows });
        }
        self.begun.as_ref()
    }

    /// Removes the batch that was written, or that the index refused; returns its rows.
    pub(crate) fn end(&mut self) -> Vec<T> {
        self.begun.take().map_or_else(Vec::new, |batch| batch.rows)
    }
}
