//! Erasures that this replica received, until it has carried them out.

use std::collections::{HashMap, VecDeque};

use keepsake_core::{ErasureId, TenantId};
use parking_lot::Mutex;

/// Erasures that this replica received. The worker handles one at a time, so that many
/// erasures load the database like a single client.
#[derive(Debug, Default)]
pub(crate) struct ErasureQueue(pub(crate) Mutex<WaitingErasures>);

#[derive(Debug, Default)]
pub(crate) struct WaitingErasures {
    erasures: VecDeque<(TenantId, ErasureId)>,
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
        self.0.lock().erasures.pop_front()
    }

    /// Ends the worker, unless an erasure waits.
    pub(crate) fn end(&self) -> bool {
        let mut waiting = self.0.lock();
        waiting.has_worker = !waiting.erasures.is_empty();
        !waiting.has_worker
    }
}
