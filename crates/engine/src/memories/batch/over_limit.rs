//! Selects the operations of a batch that a limit leaves out.

use keepsake_core::{OverLimit, Quota};
use keepsake_index::{NewContent, ProposedChange};

/// The amount that a change adds; negative if the change frees room.
fn added(limit: Quota, change: &ProposedChange) -> i128 {
    if limit == Quota::MemoriesPerStore {
        return i128::from(change.path.is_some()) - i128::from(change.head().is_some());
    }
    let before_bytes = change.head().map_or(0, |head| i128::from(head.content.size_bytes));
    let after_bytes = match &change.content {
        _ if change.path.is_none() => 0,
        NewContent::Kept => before_bytes,
        NewContent::New(content) => i128::from(content.size_bytes()),
        NewContent::Restored(stored, _) => i128::from(stored.size_bytes),
    };
    after_bytes - before_bytes
}

/// The operations that are refused when all changes together are over a limit. Room that
/// other operations free counts for all. Operations that add get the room in their order,
/// each if it fits.
pub(super) fn over_limit(committed: &[(usize, &ProposedChange)], over: &OverLimit) -> Vec<usize> {
    let (wanted, limit) = (over.wanted.unwrap_or_default(), over.maximum);
    let adding = committed.iter().filter_map(|(position, change)| {
        let adds = added(over.limit, change);
        (adds > 0).then_some((*position, adds))
    });
    let adding: Vec<_> = adding.collect();
    let all: i128 = adding.iter().map(|(_, adds)| adds).sum();
    let mut room = all - (i128::from(wanted) - i128::from(limit));
    let mut refused = Vec::new();
    for (position, adds) in adding {
        if adds <= room {
            room -= adds;
        } else {
            refused.push(position);
        }
    }
    refused
}
