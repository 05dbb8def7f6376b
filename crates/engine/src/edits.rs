//! Serializes edits of one memory within a process.
//!
//! With this queue, the compare-and-set of a commit loses only to other
//! replicas and never to another request of the same process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use keepsake_core::{StoreId, TenantId};
use tokio::sync::OwnedMutexGuard;

/// A path in a store.
pub(crate) type Place = (TenantId, StoreId, String);

type Turns = Mutex<HashMap<Place, Arc<tokio::sync::Mutex<()>>>>;

/// The queues that are in use.
#[derive(Debug, Default)]
pub(crate) struct Queue(Arc<Turns>);

impl Queue {
    /// Waits, first come, first served, until no other edit holds the path.
    pub(crate) async fn turn(&self, place: Place) -> Turn {
        let lock = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(place.clone()).or_default())
        };
        let (guard, has_waited) = match Arc::clone(&lock).try_lock_owned() {
            Ok(guard) => (guard, false),
            Err(_) => (lock.lock_owned().await, true),
        };
        Turn {
            has_waited,
            guard: Some(guard),
            place,
            turns: Arc::clone(&self.0),
        }
    }
}

/// The exclusive right to edit a path, released on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Whether this edit had to wait for another one.
    pub(crate) has_waited: bool,
    guard: Option<OwnedMutexGuard<()>>,
    place: Place,
    turns: Arc<Turns>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard.take();
        // Only the map refers to the lock: no edit waits, and no edit can start
        // to wait while `turns` is locked here.
        if turns
            .get(&self.place)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            turns.remove(&self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn place(path: &str) -> Place {
        (
            TenantId::from_uuid(Uuid::nil()),
            StoreId::from_uuid(Uuid::nil()),
            path.to_owned(),
        )
    }

    #[tokio::test]
    async fn second_turn_waits_for_the_first_and_nothing_is_left() {
        let queue = Queue::default();
        let first = queue.turn(place("/a")).await;
        let mut second = Box::pin(queue.turn(place("/a")));
        assert!(futures::poll!(&mut second).is_pending());
        let elsewhere = queue.turn(place("/b")).await;
        drop(first);
        drop(second.await);
        drop(elsewhere);
        assert!(queue.0.lock().unwrap().is_empty());
    }
}
