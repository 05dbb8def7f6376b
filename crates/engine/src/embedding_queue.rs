//! Stores with changes that this replica will embed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use keepsake_core::{StoreId, TenantId};
use keepsake_telemetry::Metrics;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::tenant_turns::TenantTurns;

/// Stores of all tenants. The job finds the stores that are refused for want of room.
const MAX_STORES: usize = 10_000;
/// Stores that any tenant may use. The rest is divided equally among the tenants.
const SHARED_STORES: usize = MAX_STORES / 2;
/// The wait of a store after a failure, which doubles with each further one of the store.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(2);
/// Failures in a row from which on no store has a turn for a time, because the model or a
/// database fails: each store would read its contents for nothing.
const FAILURES_BEFORE_PAUSE: u32 = 3;
const MAX_PAUSE: Duration = Duration::from_secs(8);

type Place = (TenantId, StoreId);

/// A bounded queue in which tenants take turns, each with one store at a time. A store that
/// failed waits longer, and delays no other; after several failures in a row, all wait.
#[derive(Debug)]
pub(crate) struct EmbeddingQueue {
    /// Whether stores are noted at all.
    is_on: bool,
    waiting: Mutex<WaitingStores>,
    added: Notify,
}

#[derive(Debug, Default)]
struct WaitingStores {
    /// The stores whose turn may come at once.
    turns: TenantTurns<StoreId>,
    /// The stores that back off, by the time of their next turn.
    backing_off: BTreeSet<(Instant, Place)>,
    /// All these stores, and how many each tenant has.
    known: HashSet<Place>,
    known_of: HashMap<TenantId, usize>,
    /// The last wait of each store whose last turn failed.
    backoffs: HashMap<Place, Duration>,
    failures_in_a_row: u32,
    /// No store has a turn before.
    paused_until: Option<Instant>,
}

impl WaitingStores {
    fn has_room(&self, tenant_id: TenantId) -> bool {
        let own = self.known_of.get(&tenant_id).copied().unwrap_or_default();
        let share = (MAX_STORES - SHARED_STORES) / self.known_of.len().max(1);
        // Each of very many tenants has room for one.
        let share = share.max(1);
        self.known.len() < SHARED_STORES || (self.known.len() < MAX_STORES && own < share)
    }

    /// Notes that a store waits; `false`: there is no room for it.
    fn note(&mut self, place: Place) -> bool {
        let has_room = self.has_room(place.0);
        if has_room && self.known.insert(place) {
            *self.known_of.entry(place.0).or_default() += 1;
        }
        has_room
    }

    fn forget(&mut self, place: Place) {
        if self.known.remove(&place)
            && let Some(own) = self.known_of.get_mut(&place.0)
        {
            *own -= 1;
            if *own == 0 {
                self.known_of.remove(&place.0);
            }
        }
    }

    fn next(&mut self, now: Instant) -> Option<Place> {
        while let Some((_, place)) = self.backing_off.first().copied().filter(|(until, _)| *until <= now) {
            self.backing_off.pop_first();
            self.turns.push(place.0, place.1);
        }
        let place = self.turns.pop()?;
        self.forget(place);
        Some(place)
    }
}

impl EmbeddingQueue {
    /// Registers the length of the queue as a metric for as long as the queue exists.
    pub(crate) fn new(is_on: bool, metrics: &Metrics) -> Arc<Self> {
        let queue = Arc::new(Self { is_on, waiting: Mutex::default(), added: Notify::new() });
        let watched = Arc::downgrade(&queue);
        metrics.watch_embedding_queue(move || Some(watched.upgrade()?.len() as u64));
        queue
    }

    /// Adds a store unless it waits already; `false`: there is no room for it.
    pub(crate) fn push(&self, place: Place) -> bool {
        if !self.is_on {
            return false;
        }
        let mut waiting = self.waiting.lock();
        if waiting.known.contains(&place) {
            return true;
        }
        if !waiting.note(place) {
            return false;
        }
        waiting.turns.push(place.0, place.1);
        drop(waiting);
        self.added.notify_one();
        true
    }

    /// The store whose turn it is; its tenant's next store waits for all other tenants. Stores
    /// that back off have no turn before their time, and after several failures none has.
    pub(crate) fn next(&self, now: Instant) -> Option<Place> {
        let mut waiting = self.waiting.lock();
        let is_paused = waiting.paused_until.is_some_and(|until| now < until);
        if is_paused { None } else { waiting.next(now) }
    }

    /// Like [`Self::next`], also after several failures. If no store has a turn, the store that
    /// backs off for the shortest time.
    pub(crate) fn next_of_all(&self, now: Instant) -> Option<Place> {
        let mut waiting = self.waiting.lock();
        waiting.next(now).or_else(|| {
            let (_, place) = waiting.backing_off.pop_first()?;
            waiting.forget(place);
            Some(place)
        })
    }

    /// Adds a store whose turn failed, for a turn after a longer wait than the last one;
    /// `jitter` adds to the wait. Returns the wait.
    pub(crate) fn back_off(
        &self,
        place: Place,
        now: Instant,
        jitter: impl FnOnce(Duration) -> Duration,
    ) -> Duration {
        let mut waiting = self.waiting.lock();
        waiting.failures_in_a_row = waiting.failures_in_a_row.saturating_add(1);
        if let Some(more) = waiting.failures_in_a_row.checked_sub(FAILURES_BEFORE_PAUSE) {
            waiting.paused_until = Some(now + (FIRST_BACKOFF * 2_u32.saturating_pow(more)).min(MAX_PAUSE));
        }
        let last = waiting.backoffs.get(&place);
        let backoff = last.map_or(FIRST_BACKOFF, |last| (2 * *last).min(MAX_BACKOFF));
        let wait = backoff + jitter(backoff);
        if waiting.known.contains(&place) {
            // A commit queued the store again during its turn. That turn must wait, too.
            waiting.turns.remove(place.0, &place.1);
        } else if !self.is_on || !waiting.note(place) {
            waiting.backoffs.remove(&place);
            return wait;
        }
        waiting.backing_off.insert((now + wait, place));
        waiting.backoffs.insert(place, backoff);
        wait
    }

    /// Notes that a turn of a store did not fail.
    pub(crate) fn recovered(&self, place: Place) {
        let mut waiting = self.waiting.lock();
        waiting.backoffs.remove(&place);
        waiting.failures_in_a_row = 0;
        waiting.paused_until = None;
    }

    /// Waits until a store may have its turn.
    pub(crate) async fn wait(&self) {
        loop {
            let until = {
                let waiting = self.waiting.lock();
                let due = if waiting.turns.is_empty() {
                    waiting.backing_off.first().map(|(until, _)| *until)
                } else {
                    Some(Instant::now())
                };
                due.map(|due| waiting.paused_until.map_or(due, |until| due.max(until)))
            };
            match until {
                None => self.added.notified().await,
                Some(until) if until <= Instant::now() => return,
                // The next round looks at the queue again, whether time passed or a store was added.
                Some(until) => {
                    let _ = timeout_at(until, self.added.notified()).await;
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().known.len()
    }

    pub(crate) fn clear(&self) {
        *self.waiting.lock() = WaitingStores::default();
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use uuid::Uuid;

    use super::*;

    fn queue_on() -> Arc<EmbeddingQueue> {
        EmbeddingQueue::new(true, &Metrics::default())
    }

    fn store(tenant: u128, store: u128) -> (TenantId, StoreId) {
        (TenantId::from_uuid(Uuid::from_u128(tenant)), StoreId::from_uuid(Uuid::from_u128(store)))
    }

    fn all(queue: &EmbeddingQueue) -> Vec<(TenantId, StoreId)> {
        std::iter::from_fn(|| queue.next(Instant::now())).collect()
    }

    #[test]
    fn full_queue_keeps_room_for_other_tenants() {
        let queue = queue_on();
        let taken =
            |tenant: u128, stores: u128| (0..stores).filter(|at| queue.push(store(tenant, *at))).count();
        assert_eq!(taken(1, 2 * MAX_STORES as u128), SHARED_STORES);
        assert_eq!(taken(2, 2 * MAX_STORES as u128), (MAX_STORES - SHARED_STORES) / 2);
        assert_eq!(taken(3, 100), 100);
        assert!(queue.len() <= MAX_STORES);
        // Of very many tenants, each has room for one store while the queue is not full.
        queue.clear();
        let tenants = (0..MAX_STORES as u128).map(|tenant| queue.push(store(tenant, 1)));
        assert_eq!(tenants.filter(|is_added| *is_added).count(), MAX_STORES);
        assert!(!queue.push(store(MAX_STORES as u128, 1)));
        queue.clear();
        assert_eq!((queue.len(), queue.next(Instant::now())), (0, None));
    }

    #[tokio::test]
    async fn worker_wakes_for_a_store_that_came_before_or_after_it_waits() {
        let queue = queue_on();
        queue.push(store(1, 1));
        assert!(poll!(Box::pin(queue.wait())).is_ready());
        all(&queue);
        let mut waiting = Box::pin(queue.wait());
        assert!(poll!(&mut waiting).is_pending());
        queue.push(store(1, 1));
        assert!(poll!(&mut waiting).is_ready());
        all(&queue);
        queue.back_off(store(1, 1), Instant::now() + MAX_BACKOFF, |wait| wait);
        let mut waiting = Box::pin(queue.wait());
        assert!(poll!(&mut waiting).is_pending());
        queue.push(store(2, 1));
        assert!(poll!(&mut waiting).is_ready());
    }

    #[test]
    fn failing_store_waits_longer_each_time_and_delays_no_other() {
        let (queue, start) = (queue_on(), Instant::now());
        let fails = |now| queue.back_off(store(1, 1), now, |_| Duration::ZERO);
        assert_eq!(fails(start), FIRST_BACKOFF);
        queue.push(store(2, 1));
        // A further commit does not end the wait.
        assert!(queue.push(store(1, 1)));
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next(start), Some(store(2, 1)));
        assert_eq!(queue.next(start), None);
        assert_eq!(queue.next(start + FIRST_BACKOFF), Some(store(1, 1)));
        // Nor does a commit during the turn.
        queue.push(store(1, 1));
        assert_eq!(fails(start), 2 * FIRST_BACKOFF);
        assert_eq!(queue.next(start + FIRST_BACKOFF), None);
        assert_eq!(queue.next_of_all(start), Some(store(1, 1)));
        for _ in 0..10 {
            fails(start);
            queue.next_of_all(start);
        }
        assert_eq!(fails(start), MAX_BACKOFF);
        assert_eq!(queue.len(), 1);
        queue.next_of_all(start);
        queue.recovered(store(1, 1));
        assert_eq!(fails(start), FIRST_BACKOFF);
    }

    #[test]
    fn failures_in_a_row_pause_all_stores_until_a_turn_succeeds() {
        let (queue, start) = (queue_on(), Instant::now());
        let fails = |place| queue.back_off(place, start, |_| Duration::ZERO);
        for at in 0..u128::from(FAILURES_BEFORE_PAUSE) {
            fails(store(1, at));
        }
        queue.push(store(2, 1));
        assert_eq!(queue.next(start), None);
        assert_eq!(queue.next(start + FIRST_BACKOFF), Some(store(2, 1)));
        fails(store(2, 1));
        assert_eq!(queue.next(start + FIRST_BACKOFF), None);
        queue.recovered(store(2, 1));
        assert_eq!(queue.next(start + FIRST_BACKOFF), Some(store(1, 0)));
    }
}
