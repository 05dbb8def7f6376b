//! What goes on in sessions: noted here, written with the access times.
//!
//! A request never waits for, nor causes, a write. A crash may forget what was
//! noted since the last flush, no more.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use keepsake_core::{SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::{IndexError, SessionEvent, SessionUse};

use crate::Engine;

/// Rows of one batch.
const BATCH_ROWS: usize = 500;
/// Events that are kept for a database that does not answer; then the oldest go.
const MOST_EVENTS: usize = 50_000;

/// What was noted since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    used: Mutex<HashMap<(TenantId, SessionId), Timestamp>>,
    events: Mutex<VecDeque<SessionEvent>>,
}

impl Activity {
    /// Notes that a session was used; a use that is later already stays.
    pub(crate) fn used(&self, tenant_id: TenantId, session_id: SessionId, at: Timestamp) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = used.entry((tenant_id, session_id)).or_insert(at);
        *noted = at.max(*noted);
    }

    fn take_used(&self) -> Vec<SessionUse> {
        let taken = std::mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner));
        let uses = taken
            .into_iter()
            .map(|((tenant_id, session_id), used_at)| SessionUse {
                tenant_id,
                session_id,
                used_at,
            });
        uses.collect()
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<SessionEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: SessionEvent) {
        let mut events = self.events();
        if events.len() >= MOST_EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Events of a session that are noted and perhaps not written yet.
    pub(super) fn noted(&self, tenant_id: TenantId, session_id: SessionId) -> Vec<SessionEvent> {
        let events = self.events();
        let of_session = events
            .iter()
            .filter(|event| (event.tenant_id, event.session_id) == (tenant_id, session_id));
        of_session.cloned().collect()
    }

    /// Drops the events of a store, or of all stores: an erasure does not find
    /// them here.
    pub(crate) fn forget(&self, tenant_id: TenantId, store_id: Option<StoreId>) {
        self.events().retain(|event| {
            let of_event = event.place.as_ref().map(|place| place.store_id);
            event.tenant_id != tenant_id || (store_id.is_some() && of_event != store_id)
        });
    }
}

impl Engine {
    pub(crate) fn note_event(&self, event: SessionEvent) {
        self.0.sessions.note(event);
    }

    /// Writes when sessions were used; what could not be written is kept.
    pub(crate) async fn write_session_use(&self) -> Result<(), IndexError> {
        let activity = &self.0.sessions;
        let uses = activity.take_used();
        for (position, batch) in uses.chunks(BATCH_ROWS).enumerate() {
            if let Err(error) = self.0.index.flush_session_use(batch).await {
                for used in &uses[position * BATCH_ROWS..] {
                    activity.used(used.tenant_id, used.session_id, used.used_at);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the events noted so far. They are taken off only once they are
    /// written, so that whoever asks here finds each of them.
    pub(crate) async fn write_events(&self) -> Result<(), IndexError> {
        let activity = &self.0.sessions;
        let noted: Vec<_> = activity.events().iter().cloned().collect();
        for batch in noted.chunks(BATCH_ROWS) {
            self.0.index.flush_session_events(batch).await?;
            let is_written =
                |event: &SessionEvent| batch.iter().any(|written| written.event_id == event.event_id);
            activity.events().retain(|event| !is_written(event));
        }
        Ok(())
    }
}
