//! Watches objects for readers that follow them: one query for all objects each second,
//! however many readers there are.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use keepsake_core::TenantId;
use keepsake_index::IndexError;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{EngineError, FairShares, Share};

const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of readers of one process; one tenant gets at most half.
const READERS: u64 = 1_024;

/// Reads the heads of objects. A head changes with every event of its object.
type Read<K, H> = dyn Fn(Vec<K>) -> BoxFuture<'static, Result<HashMap<K, H>, IndexError>> + Send + Sync;

pub(crate) struct Watch<K, H> {
    objects: Arc<Objects<K, H>>,
    readers: FairShares,
}

struct Objects<K, H> {
    heads: Mutex<HashMap<K, watch::Sender<State<H>>>>,
    read: Box<Read<K, H>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State<H> {
    /// There was no query yet.
    Unknown,
    /// `None`: the object has no head, or no longer exists.
    Found(Option<H>),
}

/// An object as a reader sees it; the object is watched until its last reader is gone.
#[derive(Debug)]
pub(crate) struct WatchedObject<H> {
    state: watch::Receiver<State<H>>,
    _share: Share,
}

impl<H: Copy> WatchedObject<H> {
    /// The result of the last query.
    pub(crate) fn state(&self) -> State<H> {
        *self.state.borrow()
    }

    /// Waits until the state differs from the state at the last call.
    pub(crate) async fn changed(&mut self) {
        if self.state.changed().await.is_err() {
            // The engine is gone, and the server will soon end.
            std::future::pending::<()>().await;
        }
    }
}

impl<K, H> Watch<K, H>
where
    K: Copy + Eq + Hash + Send + Sync + 'static,
    H: PartialEq + Send + Sync + 'static,
{
    pub(crate) fn new<F>(read: impl Fn(Vec<K>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<HashMap<K, H>, IndexError>> + Send + 'static,
    {
        Self {
            objects: Arc::new(Objects {
                heads: Mutex::default(),
                read: Box::new(move |objects| Box::pin(read(objects))),
            }),
            readers: FairShares::new(READERS),
        }
    }

    /// Refused above the tenant's share of readers.
    pub(crate) fn watch(&self, tenant_id: TenantId, object: K) -> Result<WatchedObject<H>, EngineError> {
        let share = self.readers.take(tenant_id, 1);
        let share = share.ok_or(EngineError::TooManyStreams)?;
        let mut heads = self.objects.heads.lock();
        if heads.is_empty() {
            tokio::spawn(Objects::look(Arc::downgrade(&self.objects)));
        }
        let sender = heads.entry(object).or_insert_with(|| watch::Sender::new(State::Unknown));
        Ok(WatchedObject { state: sender.subscribe(), _share: share })
    }
}

impl<K, H> Objects<K, H>
where
    K: Copy + Eq + Hash,
    H: PartialEq,
{
    /// Queries until nothing is watched any longer.
    async fn look(objects: Weak<Self>) {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(objects) = objects.upgrade() else {
                return;
            };
            let watched: Vec<_> = {
                let mut heads = objects.heads.lock();
                heads.retain(|_, head| head.receiver_count() > 0);
                if heads.is_empty() {
                    return;
                }
                heads.keys().copied().collect()
            };
            match (objects.read)(watched.clone()).await {
                Ok(found) => {
                    is_failing = false;
                    objects.publish(&watched, found);
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(error = %error, "changes.watch failed; tried again each second");
                    }
                    is_failing = true;
                }
            }
        }
    }

    fn publish(&self, watched: &[K], mut found: HashMap<K, H>) {
        let heads = self.heads.lock();
        for object in watched {
            let Some(head) = heads.get(object) else {
                continue;
            };
            let new = State::Found(found.remove(object));
            head.send_if_modified(|state| {
                let is_new = *state != new;
                *state = new;
                is_new
            });
        }
    }
}

impl<K, H> std::fmt::Debug for Watch<K, H> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Watch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use uuid::Uuid;

    use super::*;

    const TENANT: TenantId = TenantId::from_uuid(Uuid::nil());

    /// A watch of numbers, and how many queries it made.
    fn watch_of_numbers() -> (Watch<u8, u32>, Arc<AtomicUsize>) {
        let queries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&queries);
        let watch = Watch::new(move |objects: Vec<u8>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move { Ok(objects.into_iter().map(|object| (object, 0)).collect()) }
        });
        (watch, queries)
    }

    #[tokio::test(start_paused = true)]
    async fn all_readers_cost_one_query_a_second() {
        let (watch, queries) = watch_of_numbers();
        let readers: Vec<_> = (0..200).map(|object| watch.watch(TENANT, object).unwrap()).collect();
        tokio::time::sleep(INTERVAL * 10 + INTERVAL / 2).await;
        assert_eq!(queries.load(Ordering::Relaxed), 10);
        drop(readers);
        tokio::time::sleep(INTERVAL * 10).await;
        assert_eq!(queries.load(Ordering::Relaxed), 10, "nothing is watched");
        let _reader = watch.watch(TENANT, 1).unwrap();
        tokio::time::sleep(INTERVAL * 2).await;
        assert!(queries.load(Ordering::Relaxed) > 10, "watched again");
    }

    #[tokio::test]
    async fn readers_of_one_tenant_are_limited() {
        let (watch, _) = watch_of_numbers();
        let half = READERS / 2;
        let readers: Vec<_> = (0..half).map(|_| watch.watch(TENANT, 1).unwrap()).collect();
        assert!(matches!(watch.watch(TENANT, 1), Err(EngineError::TooManyStreams)));
        assert!(watch.watch(TenantId::from_uuid(Uuid::max()), 1).is_ok());
        drop(readers);
        assert!(watch.watch(TENANT, 1).is_ok());
    }
}
