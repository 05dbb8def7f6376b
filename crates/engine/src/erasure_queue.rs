//! Erasures that this replica received, until it has carried them out.

use std::collections::HashMap;

use keepsake_core::{ErasureId, TenantId};
use parking_lot::Mutex;

use crate::tenant_turns::TenantTurns;

/// Erasures that this replica received. The worker handles one at a time, so that many
/// erasures load the database like a single client. Tenants take turns.
#[derive(Debug, Default)]
pub(crate) struct ErasureQueue(pub(crate) Mutex<WaitingErasures>);

#[derive(Debug, Default)]
pub(crate) struct WaitingErasures {
    erasures: TenantTurns<ErasureId>,
    has_worker: bool,
    /// Erasures whose rows this replica erased, and whether the database has overwritten
    /// the rows, too.
    pub(crate) erased: HashMap<ErasureId, bool>,
}

impl ErasureQueue {
    /// `true`: a worker must be started.
    pub(crate) fn push(&self, (tenant_id, erasure_id): (TenantId, ErasureId)) -> bool {
        let mut waiting = self.0.lock();
        waiting.erasures.push(tenant_id, erasure_id);
        !std::mem::replace(&mut waiting.has_worker, true)
    }

    pub(crate) fn next(&self) -> Option<(TenantId, ErasureId)> {
        self.0.lock().erasures.pop()
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
    fn tenant_with_many_erasures_lets_others_pass() {
        let queue = ErasureQueue::default();
        for (number, of) in [1, 1, 1, 2, 2, 3].into_iter().enumerate() {
            queue.push((tenant(of), ErasureId::from_uuid(Uuid::from_u128(number as u128))));
        }
        let taken: Vec<_> = std::iter::from_fn(|| queue.next()).map(|(tenant_id, _)| tenant_id).collect();
        assert_eq!(taken, [1, 2, 3, 1, 2, 1].map(tenant));
    }
}
