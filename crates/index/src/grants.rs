//! Grants: the arithmetic of granting a tenant's bytes to its stores.
//!
//! A commit never writes the tenant's row. Each store holds a grant, in chunks, and
//! Σ live ≤ Σ granted ≤ limit always holds. So the tenant's limit is exact, without
//! one row that every write locks.

/// Bytes granted beyond the request, so that most commits need no new grant.
const CHUNK_BYTES: u64 = 1 << 20;

/// A tenant's grants, read from the rows of the tenant and its stores under their
/// locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// The grant of the requesting store.
    pub(crate) own: u64,
    /// The sum of the grants of the tenant's other stores.
    pub(crate) others: u64,
}

impl Account {
    /// Whether the limit has no room unless other stores return unused grants.
    pub(crate) const fn must_recall(&self, needed_bytes: u64, limit_bytes: u64) -> bool {
        self.others.saturating_add(needed_bytes) > limit_bytes
    }

    /// The store's new grant: a chunk more than needed if there is room.
    pub(crate) fn grant(&self, needed_bytes: u64, limit_bytes: u64) -> Option<u64> {
        let room = limit_bytes.checked_sub(self.others)?;
        if needed_bytes > room {
            return None;
        }
        Some(needed_bytes.saturating_add(CHUNK_BYTES).min(room).max(self.own))
    }

    /// The sum of all grants of the tenant.
    pub(crate) const fn total(&self) -> u64 {
        self.own.saturating_add(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_comes_in_chunks_while_there_is_room() {
        let account = Account { own: 0, others: 0 };
        assert_eq!(account.grant(10, 100 << 20), Some(10 + CHUNK_BYTES));
    }

    #[test]
    fn last_bytes_are_granted_exactly() {
        let account = Account { own: 5, others: 90 };
        assert!(!account.must_recall(10, 100));
        assert_eq!(account.grant(10, 100), Some(10));
        assert!(account.must_recall(11, 100));
        assert_eq!(account.grant(11, 100), None);
    }

    #[test]
    fn limit_lowered_below_what_is_held_refuses_and_takes_nothing() {
        let account = Account { own: 50, others: 200 };
        assert_eq!(account.grant(51, 100), None);
        assert_eq!(account.total(), 250);
    }
}
