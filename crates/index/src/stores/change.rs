//! Computes the effect of changes on a store.

use keepsake_core::Timestamp;

use crate::ChangeError;
use crate::model::{AuditAction, Store, StoreChange, merge_metadata};

/// A store with the internal fields of its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredStore {
    pub(super) store: Store,
    /// When a new or shorter period of expiry was set.
    pub(super) period_set_at: Option<Timestamp>,
    /// Since when it is recorded who was shown versions; `None`: it is not.
    pub(super) reads_from: Option<Timestamp>,
}

impl StoredStore {
    pub(super) fn changed(&self, change: &StoreChange) -> Result<Self, ChangeError> {
        let mut row = self.clone();
        let store = &mut row.store;
        if let Some(name) = &change.name {
            store.name.clone_from(name);
        }
        if let Some(description) = &change.description {
            store.description.clone_from(description);
        }
        merge_metadata(&mut store.metadata, &change.metadata)?;
        if *store != self.store {
            store.updated_at = change.now.max(self.store.updated_at);
        }
        if let Some(policy) = change.policy {
            store.policy = policy;
        }
        if let Some(records_reads) = change.records_reads.filter(|records| *records != store.records_reads) {
            store.records_reads = records_reads;
            row.reads_from = records_reads.then_some(change.now);
        }
        if let Some(search_mode) = change.search_mode {
            store.search_mode = search_mode;
        }
        if let Some(period) = change.expires_unused_after {
            let before = store.expires_unused_after;
            store.expires_unused_after = period;
            // A store that loses its own period uses the tenant's period, which may be
            // shorter.
            let is_new_or_shorter = match (before, period) {
                (Some(before), Some(period)) => period < before,
                (before, period) => before != period,
            };
            if is_new_or_shorter {
                row.period_set_at = Some(change.now);
            }
        }
        Ok(row)
    }

    /// The audit action of the change from another row; `None`: the rows are equal.
    pub(super) fn change_since(&self, before: &Self) -> Option<AuditAction> {
        let policy = |row: &Self| {
            let Self { store, period_set_at, reads_from } = row;
            (store.policy, store.expires_unused_after, store.search_mode, *period_set_at, *reads_from)
        };
        if self == before {
            None
        } else if policy(self) == policy(before) {
            Some(AuditAction::StoreUpdated)
        } else {
            Some(AuditAction::StorePolicyUpdated)
        }
    }

    /// An archived store is unchanged.
    pub(super) fn archived(&self, now: Timestamp) -> Self {
        let mut row = self.clone();
        if row.store.archived_at.is_none() {
            row.store.archived_at = Some(now);
            row.store.updated_at = now.max(self.store.updated_at);
        }
        row
    }
}
