//! Erasures that this replica received, until it has carried them out.

use std::collections::{HashMap, VecDeque};

use keepsake_core::{ErasureId, TenantId};
use parking_lot::Mutex;

/// Erasures that this replica received. The worker handles one at a time, so that many
/// erasures load the database like a single client. Tenants take turns.
#[derive(Debug, Default)]
pub(crate) struct ErasureQueue(pub(crate) Mutex<WaitingErasures>);

#[derive(Debug, Default)]
pub(crate) struct WaitingErasures {
    erasures: VecDeque<(TenantId, ErasureId)>,
    /// The tenant of the erasure that was taken last.
    last: Option<TenantId>,
    has_worker: bool,
    /// Erasures whose rows this replica erased, and whether the database has overwritten
    /// the rows, too.
    pub(crate) erased: HashMap<ErasureId, bool>,
}

impl ErasureQueue {
    /// `true`: a worker must be started.
    pub(crate) fn push(&self, erasure: (TenantId, ErasureId)) -> bool {
        let mut waiting = self.0.lock();
        waiting.erasures.push_back(erasure);
        !std::mem::replace(&mut waiting.has_worker, true)
    }

    pub(crate) fn next(&self) -> Option<(TenantId, ErasureId)> {
        let mut waiting = self.0.lock();
        let last = waiting.last;
        let of_another = waiting.erasures.iter().position(|(tenant_id, _)| Some(*tenant_id) != last);
        let next = waiting.erasures.remove(of_another.unwrap_or_default())?;
        waiting.last = Some(next.0);
        Some(next)
    }

    /// Ends the worker, unless an erasure waits.
    pub(crate) fn end(&self) -> bool {
        let mut waiting = self.0.lock();
        waiting.has_worker = !waiting.erasures.is_empty();
        !waiting.has_worker
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::endpoint_queries::tests::tenant;

    #[test]
    fn tenant_with_many_erasures_lets_another_one_pass() {
        let queue = ErasureQueue::default();
        for (number, of) in [1, 1, 1, 2].into_iter().enumerate() {
            queue.push((tenant(of), ErasureId::from_uuid(Uuid::from_u128(number as u128))));
        }
        let taken: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(tenant_id, _)| tenant_id).collect();
        assert_eq!(taken, [1, 2, 1, 1].map(tenant));
    }
}
