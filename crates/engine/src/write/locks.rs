//! Serializes changes of one memory within a process.
//!
//! With these locks, the compare-and-set of a commit loses only to other
//! replicas and never to another request of the same process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use keepsake_core::{StoreId, TenantId};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

pub(super) type LockKey = (TenantId, StoreId, String);

/// Slots for the last releases of paths; paths may share a slot.
const SLOTS: usize = 1024;

#[derive(Debug)]
struct State {
    held: HashMap<LockKey, Arc<tokio::sync::Mutex<()>>>,
    /// Number of locks released so far.
    releases: u64,
    /// For each slot, the number of its last release.
    last_releases: Box<[u64]>,
    hasher: RandomState,
}

impl State {
    fn last_release(&mut self, place: &LockKey) -> &mut u64 {
        let slot = self.hasher.hash_one(place) % SLOTS as u64;
        &mut self.last_releases[usize::try_from(slot).unwrap_or_default()]
    }
}

#[derive(Debug, Clone)]
pub(super) struct PathLocks(Arc<Mutex<State>>);

impl Default for PathLocks {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            held: HashMap::new(),
            releases: 0,
            last_releases: vec![0; SLOTS].into(),
            hasher: RandomState::new(),
        })))
    }
}

impl PathLocks {
    pub(super) fn releases(&self) -> u64 {
        self.0.lock().releases
    }

    /// Waits, first come, first served, until no other change holds the path.
    ///
    /// `since` is the number of releases before the caller read the path.
    pub(super) async fn lock(&self, place: LockKey, since: u64) -> PathLock {
        let lock = Arc::clone(self.0.lock().held.entry(place.clone()).or_default());
        let guard = lock.lock_owned().await;
        let was_changed = *self.0.lock().last_release(&place) > since;
        PathLock { was_changed, guard: Some(guard), place, locks: self.clone() }
    }
}

/// Releases the lock on drop.
#[derive(Debug)]
pub(crate) struct PathLock {
    /// Whether another change may have held the path since the caller read it.
    pub(super) was_changed: bool,
    guard: Option<OwnedMutexGuard<()>>,
    place: LockKey,
    locks: PathLocks,
}

impl PathLock {
    pub(super) fn path(&self) -> &str {
        &self.place.2
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        let mut state = self.locks.0.lock();
        state.releases += 1;
        *state.last_release(&self.place) = state.releases;
        self.guard.take();
        // Only the map refers to the lock: no change waits, and none can start
        // to wait while the state is locked here.
        let lock = state.held.get(&self.place);
        if lock.is_some_and(|lock| Arc::strong_count(lock) == 1) {
            state.held.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn place(path: &str) -> LockKey {
        (TenantId::from_uuid(Uuid::nil()), StoreId::from_uuid(Uuid::nil()), path.to_owned())
    }

    #[tokio::test]
    async fn second_lock_waits_for_the_first_and_released_locks_are_removed() {
        let locks = PathLocks::default();
        let first = locks.lock(place("/a"), 0).await;
        let mut second = Box::pin(locks.lock(place("/a"), 0));
        assert!(futures::poll!(&mut second).is_pending());
        let elsewhere = locks.lock(place("/b"), 0).await;
        drop(first);
        drop(second.await);
        drop(elsewhere);
        assert!(locks.0.lock().held.is_empty());

        // A lock reports whether its path was locked in between.
        let before = locks.releases();
        drop(locks.lock(place("/a"), before).await);
        assert!(locks.lock(place("/a"), before).await.was_changed);
        let since = locks.releases();
        assert!(!locks.lock(place("/a"), since).await.was_changed);
    }
}
