//! How a tenant's bytes are granted to its stores: the arithmetic.
//!
//! A commit never touches the tenant's row. Each store holds a grant, in
//! chunks, and Σ live ≤ Σ granted ≤ limit holds at every moment, so that the
//! tenant's limit is exact at its edge without one row that every write locks.

/// Bytes granted beyond what is asked for, so that most commits need no grant.
const CHUNK_BYTES: u64 = 1 << 20;

/// A tenant's grants, as its row and its stores' rows say under their locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    /// Granted to the store that asks.
    pub(crate) own: u64,
    /// Granted to the tenant's other stores together.
    pub(crate) others: u64,
}

impl Account {
    /// Whether the limit has no room unless other stores give back.
    pub(crate) const fn must_recall(&self, needed_bytes: u64, limit_bytes: u64) -> bool {
        self.others.saturating_add(needed_bytes) > limit_bytes
    }

    /// The store's new grant: a chunk more than needed where there is room.
    pub(crate) fn grant(&self, needed_bytes: u64, limit_bytes: u64) -> Option<u64> {
        let room = limit_bytes.checked_sub(self.others)?;
        if needed_bytes > room {
            return None;
        }
        Some(needed_bytes.saturating_add(CHUNK_BYTES).min(room).max(self.own))
    }

    /// All grants of the tenant.
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
