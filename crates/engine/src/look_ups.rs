//! Cached look-ups of credentials, tenants and sessions.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use keepsake_core::Timestamp;
use moka::Entry;
use moka::future::Cache;
use moka::ops::compute::{CompResult, Op};

use crate::EngineError;

/// Lifetime of cached credential look-ups. It is short enough that a revocation
/// takes effect within five seconds, including the time of the look-up.
pub(crate) const LOOK_UP_LIFETIME: Duration = Duration::from_secs(3);
/// Maximum number of cached credentials of each kind.
pub(crate) const MAX_CACHED_LOOK_UPS: u64 = 10_000;

/// Whether a look-up is recent enough to use. One with a later time is not: the clock was set back.
pub(crate) fn is_recent(looked_up_at: Timestamp, now: Timestamp) -> bool {
    looked_up_at <= now && now < looked_up_at.plus(LOOK_UP_LIFETIME)
}

/// The values that were looked up in the last seconds, and when.
pub(crate) struct LookUps<K, V>(Cache<K, (Timestamp, V)>);

impl<K, V> fmt::Debug for LookUps<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookUps").finish_non_exhaustive()
    }
}

impl<K, V> LookUps<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new() -> Self {
        Self(Cache::new(MAX_CACHED_LOOK_UPS))
    }

    /// The value, if its look-up is recent.
    pub(crate) async fn known(&self, key: &K, now: Timestamp) -> Option<V> {
        let known = self.0.get(key).await.filter(|(at, _)| is_recent(*at, now));
        known.map(|(_, value)| value)
    }

    /// The value of a recent look-up, or of a new one; the parameter of `look_up` says
    /// whether the key was found before. `None`, which is not cached: nothing was found.
    pub(crate) async fn find<F>(
        &self,
        key: &K,
        now: Timestamp,
        look_up: impl FnOnce(bool) -> F,
    ) -> Result<Option<V>, EngineError>
    where
        F: Future<Output = Result<Option<V>, EngineError>>,
    {
        if let Some(known) = self.known(key, now).await {
            return Ok(Some(known));
        }
        // Concurrent requests that miss the cache are serialized here and reuse
        // the first look-up.
        let computed = self
            .0
            .entry_by_ref(key)
            .and_try_compute_with(async |entry| {
                let looked_up_at = entry.map(|entry: Entry<K, (Timestamp, V)>| entry.into_value().0);
                if looked_up_at.is_some_and(|at| is_recent(at, now)) {
                    return Ok(Op::Nop);
                }
                let found = look_up(looked_up_at.is_some()).await?;
                Ok::<_, EngineError>(found.map_or(Op::Remove, |value| Op::Put((now, value))))
            })
            .await?;
        Ok(match computed {
            CompResult::Inserted(entry) | CompResult::ReplacedWith(entry) | CompResult::Unchanged(entry) => {
                Some(entry.into_value().1)
            }
            CompResult::Removed(_) | CompResult::StillNone(_) => None,
        })
    }

    /// The next use looks the key up again.
    pub(crate) async fn forget(&self, key: &K) {
        self.0.invalidate(key).await;
    }
}
