//! What becomes of a store when it is changed: the arithmetic.

use keepsake_core::Timestamp;
use serde_json::Value;

use crate::model::{AuditAction, Store, StoreChange};

/// A store as its row says, and what the row says besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreRow {
    pub(crate) store: Store,
    /// When a new or shorter period of expiry was set.
    pub(crate) period_set_at: Option<Timestamp>,
}

impl StoreRow {
    /// The row after a change.
    ///
    /// # Errors
    /// How many pairs of metadata it would have, when that is more than it may.
    pub(crate) fn changed(&self, change: &StoreChange) -> Result<Self, usize> {
        let mut row = self.clone();
        let store = &mut row.store;
        if let Some(name) = &change.name {
            store.name.clone_from(name);
        }
        if let Some(description) = &change.description {
            store.description.clone_from(description);
        }
        for (key, value) in &change.metadata {
            match value {
                Some(value) => store.metadata.insert(key.clone(), Value::String(value.clone())),
                None => store.metadata.remove(key),
            };
        }
        let count = store.metadata.len();
        // One that has too many, since the limit was another, may still lose some.
        if count > change.metadata_pairs_limit && count > self.store.metadata.len() {
            return Err(count);
        }
        if *store != self.store {
            store.updated_at = change.now.max(self.store.updated_at);
        }
        if let Some(policy) = change.policy {
            store.policy = policy;
        }
        if let Some(period) = change.expires_unused_after {
            let before = store.expires_unused_after;
            store.expires_unused_after = period;
            // One that loses its own has its tenant's from now on, which may be shorter.
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

    /// What the audit calls the change from another row; `None`: nothing differs.
    pub(crate) fn change_since(&self, before: &Self) -> Option<AuditAction> {
        let policy = |row: &Self| {
            (
                row.store.policy,
                row.store.expires_unused_after,
                row.period_set_at,
            )
        };
        if self == before {
            None
        } else if policy(self) == policy(before) {
            Some(AuditAction::StoreUpdated)
        } else {
            Some(AuditAction::StorePolicyUpdated)
        }
    }

    /// The row after archiving; one that is archived stays as it is.
    pub(crate) fn archived(&self, now: Timestamp) -> Self {
        let mut row = self.clone();
        if row.store.archived_at.is_none() {
            row.store.archived_at = Some(now);
            row.store.updated_at = now.max(self.store.updated_at);
        }
        row
    }
}
