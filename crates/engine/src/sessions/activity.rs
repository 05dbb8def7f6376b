//! What goes on in sessions: noted here, written with the access times.
//!
//! A request never waits for, nor causes, a write. A crash may forget what was
//! noted since the last flush, no more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use keepsake_core::{SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::{IndexError, SessionEvent, SessionUse};

use crate::Engine;

/// Rows of one batch.
const BATCH_ROWS: usize = 500;
/// Events that are kept for a database that does not answer, and their bytes,
/// about; then the oldest go.
const MOST_EVENTS: usize = 50_000;
const MOST_BYTES: usize = 32 << 20;

/// What was noted since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    used: Mutex<HashMap<(TenantId, SessionId), Timestamp>>,
    events: Mutex<Events>,
}

/// Events in the order in which they were noted.
#[derive(Debug, Default)]
struct Events {
    noted: VecDeque<(SessionEvent, usize)>,
    bytes: usize,
}

impl Events {
    fn push(&mut self, event: SessionEvent) {
        let bytes = bytes_of(&event);
        self.bytes += bytes;
        self.noted.push_back((event, bytes));
        while self.noted.len() > MOST_EVENTS || self.bytes > MOST_BYTES {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, bytes)) = self.noted.pop_front() {
            self.bytes -= bytes;
        }
    }

    /// Takes those off that were written; they are the first still there.
    fn written(&mut self, batch: &[SessionEvent]) {
        let written: HashSet<_> = batch.iter().map(|event| event.event_id).collect();
        while self
            .noted
            .front()
            .is_some_and(|(event, _)| written.contains(&event.event_id))
        {
            self.pop();
        }
    }
}

/// What an event takes in memory, about.
fn bytes_of(event: &SessionEvent) -> usize {
    let place = event.place.as_ref();
    let paths = place.map_or(0, |place| {
        place.path.len() + place.new_path.as_ref().map_or(0, String::len)
    });
    let fields = event
        .input
        .iter()
        .map(|(name, value)| 100 + name.len() + value.as_str().map_or(600, str::len));
    400 + paths + fields.sum::<usize>()
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

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, event: SessionEvent) {
        self.events().push(event);
    }

    /// Events of a session that are noted and perhaps not written yet.
    pub(super) fn noted(&self, tenant_id: TenantId, session_id: SessionId) -> Vec<SessionEvent> {
        let events = self.events();
        let noted = events.noted.iter().map(|(event, _)| event);
        let of_session = noted.filter(|event| (event.tenant_id, event.session_id) == (tenant_id, session_id));
        of_session.cloned().collect()
    }

    /// Drops the events of a store, or of all stores: an erasure does not find
    /// them here.
    pub(crate) fn forget(&self, tenant_id: TenantId, store_id: Option<StoreId>) {
        let mut events = self.events();
        events.noted.retain(|(event, _)| {
            let of_event = event.place.as_ref().map(|place| place.store_id);
            event.tenant_id != tenant_id || (store_id.is_some() && of_event != store_id)
        });
        events.bytes = events.noted.iter().map(|(_, bytes)| bytes).sum();
    }
}

/// Uses that are not written yet; dropping it puts them back.
struct TakenUses<'a> {
    activity: &'a Activity,
    uses: Vec<SessionUse>,
}

impl Drop for TakenUses<'_> {
    fn drop(&mut self) {
        for used in &self.uses {
            self.activity.used(used.tenant_id, used.session_id, used.used_at);
        }
    }
}

impl Engine {
    pub(crate) fn note_event(&self, event: SessionEvent) {
        self.0.sessions.note(event);
    }

    /// Writes when sessions were used; what could not be written is kept.
    pub(crate) async fn write_session_use(&self) -> Result<(), IndexError> {
        let activity = &self.0.sessions;
        let mut taken = TakenUses {
            activity,
            uses: activity.take_used(),
        };
        while !taken.uses.is_empty() {
            let batch = taken.uses.len().saturating_sub(BATCH_ROWS);
            self.0.index.flush_session_use(&taken.uses[batch..]).await?;
            taken.uses.truncate(batch);
        }
        Ok(())
    }

    /// Writes the events noted so far. They are taken off only once they are
    /// written, so that whoever asks here finds each of them.
    ///
    /// One that the index refuses is dropped: it must not keep the others.
    pub(crate) async fn write_events(&self) -> Result<(), IndexError> {
        let events = || self.0.sessions.events();
        let mut left = events().noted.len();
        while left > 0 {
            let first = events()
                .noted
                .iter()
                .take(BATCH_ROWS)
                .map(|(event, _)| event.clone())
                .collect::<Vec<_>>();
            if first.is_empty() {
                break; // they were forgotten meanwhile
            }
            match self.0.index.flush_session_events(&first).await {
                Ok(()) => {}
                Err(error @ (IndexError::Unavailable(_) | IndexError::OutcomeUnknown(_))) => {
                    return Err(error);
                }
                Err(_) => self.write_one_by_one(&first).await?,
            }
            events().written(&first);
            left = left.saturating_sub(first.len());
        }
        Ok(())
    }

    async fn write_one_by_one(&self, events: &[SessionEvent]) -> Result<(), IndexError> {
        for event in events {
            match self
                .0
                .index
                .flush_session_events(std::slice::from_ref(event))
                .await
            {
                Ok(()) => {}
                Err(error @ (IndexError::Unavailable(_) | IndexError::OutcomeUnknown(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::error!(
                        tenant.id = %event.tenant_id, session.id = %event.session_id, error = %error,
                        "engine.write_events: an event was refused, and is dropped"
                    );
                }
            }
        }
        Ok(())
    }
}
