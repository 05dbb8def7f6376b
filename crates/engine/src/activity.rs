//! Use and events of sessions, recorded in memory; written with access times.
//!
//! A request never waits for a write and never causes one. A crash loses at
//! most the records since the last flush.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use keepsake_core::{SessionId, StoreId, TenantId, Timestamp};
use keepsake_index::{IndexError, SessionEvent};
use parking_lot::Mutex;

use crate::context::Context;
use crate::use_log::UseLog;

const BATCH_ROWS: usize = 500;
/// Maximum number of events kept while the database is unavailable, and their
/// approximate bytes. Above this, the oldest events of the tenant with the most
/// bytes are dropped.
const MAX_EVENTS: usize = 50_000;
const MAX_EVENT_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub(crate) struct Activity {
    context: Arc<Context>,
    used: UseLog<(TenantId, SessionId)>,
    events: Mutex<Events>,
}

/// A buffer of the events of every tenant, divided among the tenants.
#[derive(Debug, Default)]
struct Events {
    by_tenant: BTreeMap<TenantId, TenantEvents>,
    count: usize,
    bytes: usize,
    /// The tenant whose events were written last; the next tenant comes first.
    last_written: Option<TenantId>,
}

/// Events of one tenant in the order in which they were noted.
#[derive(Debug, Default)]
struct TenantEvents {
    noted: VecDeque<NotedEvent>,
    bytes: usize,
}

/// An event that a reader need not copy while it locks the buffer, which other tenants wait for.
#[derive(Debug)]
struct NotedEvent {
    session_id: SessionId,
    event: Arc<SessionEvent>,
    bytes: usize,
}

impl Events {
    fn push(&mut self, event: SessionEvent) {
        let bytes = bytes_of(&event);
        let own = self.by_tenant.entry(event.tenant_id).or_default();
        own.bytes += bytes;
        own.noted.push_back(NotedEvent { session_id: event.session_id, event: Arc::new(event), bytes });
        self.bytes += bytes;
        self.count += 1;
        while self.count > MAX_EVENTS || self.bytes > MAX_EVENT_BYTES {
            let largest = self.by_tenant.iter().max_by_key(|(_, own)| own.bytes);
            let Some(tenant_id) = largest.map(|(tenant_id, _)| *tenant_id) else {
                return;
            };
            self.pop(tenant_id);
        }
    }

    fn pop(&mut self, tenant_id: TenantId) {
        let Some(own) = self.by_tenant.get_mut(&tenant_id) else {
            return;
        };
        if let Some(NotedEvent { bytes, .. }) = own.noted.pop_front() {
            own.bytes -= bytes;
            self.bytes -= bytes;
            self.count -= 1;
        }
        if own.noted.is_empty() {
            self.by_tenant.remove(&tenant_id);
        }
    }

    /// The oldest events of each tenant, beginning after the tenant whose events were
    /// written last.
    fn next_batch(&mut self) -> Vec<SessionEvent> {
        let of_each = (BATCH_ROWS / self.by_tenant.len().max(1)).max(1);
        let after = self.last_written.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.by_tenant.range((after, Bound::Unbounded));
        let in_turn = rest.chain(&self.by_tenant).take(self.by_tenant.len());
        let mut batch = Vec::new();
        for (tenant_id, own) in in_turn.take(BATCH_ROWS / of_each) {
            let oldest = own.noted.iter().take(of_each);
            batch.extend(oldest.map(|noted| SessionEvent::clone(&noted.event)));
            self.last_written = Some(*tenant_id);
        }
        batch
    }

    /// Removes the events of a written batch. They are the oldest of their
    /// tenants, unless newer events evicted some of them meanwhile.
    fn written(&mut self, batch: &[SessionEvent]) {
        let written: HashSet<_> = batch.iter().map(|event| event.event_id).collect();
        let tenants: HashSet<_> = batch.iter().map(|event| event.tenant_id).collect();
        for tenant_id in tenants {
            let oldest = |events: &Self| {
                let own = events.by_tenant.get(&tenant_id)?;
                Some(own.noted.front()?.event.event_id)
            };
            while oldest(self).is_some_and(|event_id| written.contains(&event_id)) {
                self.pop(tenant_id);
            }
        }
    }

    fn of_session(
        &self,
        tenant_id: TenantId,
        session_id: SessionId,
    ) -> impl Iterator<Item = &Arc<SessionEvent>> {
        let own = self.by_tenant.get(&tenant_id);
        let noted = own.into_iter().flat_map(|own| &own.noted);
        noted.filter(move |noted| noted.session_id == session_id).map(|noted| &noted.event)
    }

    /// Drops the events of a store, or of all stores.
    fn forget(&mut self, tenant_id: TenantId, store_id: Option<StoreId>) {
        let Some(mut own) = self.by_tenant.remove(&tenant_id) else {
            return;
        };
        self.count -= own.noted.len();
        self.bytes -= own.bytes;
        own.noted.retain(|NotedEvent { event, .. }| {
            let of_event = event.place.as_ref().map(|place| place.store_id);
            store_id.is_some() && of_event != store_id
        });
        own.bytes = own.noted.iter().map(|noted| noted.bytes).sum();
        self.count += own.noted.len();
        self.bytes += own.bytes;
        if !own.noted.is_empty() {
            self.by_tenant.insert(tenant_id, own);
        }
    }
}

/// Approximate bytes of an event in memory.
fn bytes_of(event: &SessionEvent) -> usize {
    let place = event.place.as_ref();
    let paths = place.map_or(0, |place| place.path.len() + place.new_path.as_ref().map_or(0, String::len));
    let fields =
        event.input.iter().map(|(name, value)| 100 + name.len() + value.as_str().map_or(600, str::len));
    400 + paths + fields.sum::<usize>()
}

impl Activity {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, used: UseLog::default(), events: Mutex::default() }
    }

    pub(crate) fn used(&self, tenant_id: TenantId, session_id: SessionId, at: Timestamp) {
        self.used.note((tenant_id, session_id), at, &());
    }

    pub(crate) fn note(&self, event: SessionEvent) {
        self.events.lock().push(event);
    }

    /// The events may not be written yet.
    pub(super) fn noted(&self, tenant_id: TenantId, session_id: SessionId) -> Vec<Arc<SessionEvent>> {
        self.events.lock().of_session(tenant_id, session_id).cloned().collect()
    }

    pub(super) fn noted_count(&self, tenant_id: TenantId, session_id: SessionId) -> usize {
        self.events.lock().of_session(tenant_id, session_id).count()
    }

    /// Drops the events of a store, or of all stores, since an erasure cannot
    /// remove events from this buffer.
    pub(crate) fn forget(&self, tenant_id: TenantId, store_id: Option<StoreId>) {
        self.events.lock().forget(tenant_id, store_id);
    }

    pub(crate) async fn write_use(&self) -> Result<(), IndexError> {
        let mut uses = self.used.take(&*self.context.clock);
        while let Some(batch) = uses.batch() {
            self.context.index.access_times.flush_sessions(batch).await?;
            uses.note_written();
        }
        Ok(())
    }

    /// Writes the events noted so far. They stay in the buffer until they are
    /// written, so that a query on this replica finds each of them.
    ///
    /// An event that the index refuses is dropped, so that the others are
    /// written.
    pub(crate) async fn write_events(&self) -> Result<(), IndexError> {
        let mut left = self.events.lock().count;
        while left > 0 {
            let first = self.events.lock().next_batch();
            if first.is_empty() {
                break; // they were forgotten meanwhile
            }
            match self.context.index.sessions.flush_events(&first).await {
                Ok(()) => {}
                Err(error) if error.is_passing() => return Err(error),
                Err(_) => self.write_one_by_one(&first).await?,
            }
            self.events.lock().written(&first);
            left = left.saturating_sub(first.len());
        }
        Ok(())
    }

    async fn write_one_by_one(&self, events: &[SessionEvent]) -> Result<(), IndexError> {
        for event in events {
            let written = self.context.index.sessions.flush_events(std::slice::from_ref(event));
            match written.await {
                Ok(()) => {}
                Err(error) if error.is_passing() => return Err(error),
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

#[cfg(test)]
mod tests {
    use keepsake_core::EventId;
    use serde_json::{Map, json};
    use uuid::Uuid;

    use super::*;

    fn event(tenant: u128, number: u128, content_bytes: usize) -> SessionEvent {
        SessionEvent {
            tenant_id: TenantId::from_uuid(Uuid::from_u128(tenant)),
            session_id: SessionId::from_uuid(Uuid::from_u128(tenant)),
            event_id: EventId::from_uuid(Uuid::from_u128(number)),
            at: Timestamp::from_micros(1),
            name: "memory".to_owned(),
            input: Map::from_iter([("command".to_owned(), json!("x".repeat(content_bytes)))]),
            place: None,
            is_error: false,
        }
    }

    /// The first events of a tenant.
    fn push(events: &mut Events, tenant: u128, count: u128, content_bytes: usize) {
        for number in 0..count {
            events.push(event(tenant, number, content_bytes));
        }
    }

    fn numbers(events: &Events, tenant: u128) -> Vec<u128> {
        let tenant = Uuid::from_u128(tenant);
        let noted = events.of_session(TenantId::from_uuid(tenant), SessionId::from_uuid(tenant));
        noted.map(|event| event.event_id.uuid().as_u128()).collect()
    }

    #[test]
    fn tenant_with_many_events_evicts_its_own_oldest() {
        let mut events = Events::default();
        push(&mut events, 1, 5, 0);
        push(&mut events, 2, 100, 1 << 20);
        assert_eq!(numbers(&events, 1), [0, 1, 2, 3, 4]);
        let kept = numbers(&events, 2);
        assert!((30..32).contains(&kept.len()) && kept.last() == Some(&99), "{kept:?}");
        assert!(events.bytes <= MAX_EVENT_BYTES);
        events.forget(TenantId::from_uuid(Uuid::from_u128(2)), None);
        assert_eq!((events.count, events.by_tenant.len()), (5, 1));
        // Small events, too.
        push(&mut events, 2, MAX_EVENTS as u128, 0);
        assert_eq!(numbers(&events, 1), [0, 1, 2, 3, 4]);
        assert_eq!(events.count, MAX_EVENTS);
    }

    #[test]
    fn each_batch_has_events_of_every_tenant() {
        let mut events = Events::default();
        push(&mut events, 1, 1_200, 0);
        push(&mut events, 2, 1, 0);
        let mut sizes = Vec::new();
        loop {
            let batch = events.next_batch();
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
            events.written(&batch);
        }
        assert_eq!(sizes, [251, 500, 450]);
        assert_eq!((events.count, events.bytes), (0, 0));
    }
}
