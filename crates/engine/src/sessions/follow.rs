//! Following the events of a session while an agent works.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{EventId, SessionId, TenantId, Timestamp};
use keepsake_index::{EventFilter, IndexError, SessionEvent};

use super::events::SessionEvents;
use crate::shared::Shared;
use crate::watch::{Watch, WatchedObject};
use crate::{EngineError, PageRequest, Principal};

/// Events of other replicas are written up to this much later than they happened.
const LATE: Duration = Duration::from_secs(90);
const PAGE: u64 = 1_000;
/// Maximum number of pages that are read at once.
const MAX_PAGES: usize = 10;

/// The key of a watched session. Its head is the number of its recent events.
type SessionKey = (TenantId, SessionId);
pub(super) type SessionWatch = Watch<SessionKey, u64>;

#[derive(Debug)]
pub struct FollowedSession {
    session_id: SessionId,
    watched: WatchedObject<u64>,
    /// Events from this time on are read.
    from: Timestamp,
    /// The events since `from` that the reader has, with their times.
    seen: HashMap<EventId, Timestamp>,
}

impl FollowedSession {
    /// Waits until the session may have had events since the last call.
    pub async fn changed(&mut self) {
        self.watched.changed().await;
    }

    /// Keeps the events that the reader does not have yet.
    fn only_new(&mut self, events: Vec<SessionEvent>) -> Vec<SessionEvent> {
        let mut new = events;
        new.retain(|event| self.seen.insert(event.event_id, event.at).is_none());
        if let Some(newest) = self.seen.values().max() {
            self.from = self.from.max(newest.minus(LATE));
        }
        let from = self.from;
        self.seen.retain(|_, at| *at >= from);
        new
    }
}

pub(super) fn watch(shared: &Arc<Shared>) -> SessionWatch {
    let shared = Arc::clone(shared);
    Watch::new(move |sessions: Vec<SessionKey>| {
        let shared = Arc::clone(&shared);
        async move { recent_events(&shared, &sessions).await }
    })
}

/// Counts the recent events of sessions: events in the index, and events that this
/// replica has not flushed yet.
async fn recent_events(
    shared: &Shared,
    sessions: &[SessionKey],
) -> Result<HashMap<SessionKey, u64>, IndexError> {
    let since = shared.context.now().minus(LATE);
    let written = shared.context.index.changes.session_heads(sessions, since).await?;
    let written = written.into_iter().map(|head| ((head.tenant_id, head.session_id), head.recent_events));
    let mut counts: HashMap<_, _> = written.collect();
    for session in sessions {
        let noted = shared.activity.noted_count(session.0, session.1);
        *counts.entry(*session).or_default() += u64::try_from(noted).unwrap_or(u64::MAX);
    }
    Ok(counts)
}

impl SessionEvents {
    /// Begins to follow a session: events from now on, or also those after an event.
    ///
    /// Events of up to 90 seconds before that event are given again, because other
    /// replicas write events late.
    pub async fn follow(
        &self,
        principal: &Principal,
        session_id: SessionId,
        after: Option<EventId>,
    ) -> Result<FollowedSession, EngineError> {
        self.sessions.get(principal, session_id).await?;
        let tenant_id = principal.tenant_id;
        let watched = self.watch.watch(tenant_id, (tenant_id, session_id))?;
        let at = after.and_then(time_of);
        Ok(FollowedSession {
            session_id,
            watched,
            from: at.map_or_else(|| self.context.now(), |at| at.minus(LATE)),
            seen: after.zip(at).into_iter().collect(),
        })
    }

    /// The new events of a followed session, oldest first. An event that is written
    /// late comes late.
    pub async fn next(
        &self,
        principal: &Principal,
        followed: &mut FollowedSession,
    ) -> Result<Vec<SessionEvent>, EngineError> {
        let filter = EventFilter { from: Some(followed.from), ..EventFilter::default() };
        let mut next = PageRequest { limit: Some(PAGE), page: None };
        let mut events = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.list(principal, followed.session_id, &filter, &next).await?;
            events.extend(page.items);
            next.page = page.next;
            if next.page.is_none() {
                break;
            }
        }
        Ok(followed.only_new(events))
    }
}

fn time_of(event_id: EventId) -> Option<Timestamp> {
    let (seconds, nanoseconds) = event_id.uuid().get_timestamp()?.to_unix();
    let micros = i64::try_from(seconds).ok()?.checked_mul(1_000_000)?;
    Some(Timestamp::from_micros(micros + i64::from(nanoseconds / 1_000)))
}
