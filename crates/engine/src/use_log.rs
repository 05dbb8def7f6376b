//! The last uses of objects, noted in memory and written in batches: reads of memories,
//! requests with API keys, and requests of sessions.
//!
//! A request never waits for a write and never causes one. A crash loses at most the uses
//! since the last flush.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use keepsake_core::{ApiKeyId, TenantId, Timestamp};
use keepsake_index::LastUse;
use parking_lot::Mutex;

use crate::Clock;

const BATCH_ROWS: usize = 1000;

/// The last use of each object since the last flush: when, and by whom.
#[derive(Debug)]
pub(crate) struct UseLog<K, By = ()>(Mutex<Uses<K, By>>);

type UsesByObject<K, By> = HashMap<K, (Timestamp, By)>;

#[derive(Debug)]
struct Uses<K, By> {
    noted: UsesByObject<K, By>,
    /// The uses that the last flush took. A call that read the index before the flush wrote
    /// them finds them here.
    taken: Arc<UsesByObject<K, By>>,
}

/// When API keys were last used.
pub(crate) type KeyUses = UseLog<(TenantId, ApiKeyId)>;

impl<K, By> Default for UseLog<K, By> {
    fn default() -> Self {
        Self(Mutex::new(Uses { noted: HashMap::new(), taken: Arc::default() }))
    }
}

impl<K: Copy + Eq + Hash, By: Clone> UseLog<K, By> {
    /// The last use of an object, unless it was written before the last flush.
    pub(crate) fn get(&self, key: K) -> Option<(Timestamp, By)> {
        let uses = self.0.lock();
        let known = [uses.noted.get(&key), uses.taken.get(&key)];
        known.into_iter().flatten().max_by_key(|(at, _)| *at).cloned()
    }

    /// A later use that is already noted is kept.
    pub(crate) fn note(&self, key: K, at: Timestamp, by: &By) {
        self.note_at(key, || at, by);
    }

    /// Notes a use. Its time is taken while the log is locked, so that a flush which does
    /// not include the use began earlier.
    pub(crate) fn note_at(&self, key: K, time: impl FnOnce() -> Timestamp, by: &By) -> NotedUse {
        let mut uses = self.0.lock();
        let at = time();
        let is_new = put(&mut uses.noted, key, at, by);
        NotedUse { at, is_new, objects: uses.noted.len() }
    }

    pub(crate) fn take(&self, clock: &dyn Clock) -> UnwrittenUses<'_, K, By> {
        let mut uses = self.0.lock();
        let at = clock.now();
        let taken = Arc::new(std::mem::take(&mut uses.noted));
        let written = std::mem::replace(&mut uses.taken, Arc::clone(&taken));
        // Readers do not wait while many uses are copied and freed.
        drop(uses);
        drop(written);
        let rows =
            taken.iter().map(|(key, (at, by))| LastUse { key: *key, at: *at, by: by.clone() }).collect();
        UnwrittenUses { log: self, uses: rows, at }
    }
}

/// Keeps the later use of an object; returns whether the object is new.
fn put<K: Eq + Hash, By: Clone>(uses: &mut UsesByObject<K, By>, key: K, at: Timestamp, by: &By) -> bool {
    match uses.entry(key) {
        Entry::Occupied(mut known) => {
            if known.get().0 < at {
                known.insert((at, by.clone()));
            }
            false
        }
        Entry::Vacant(free) => {
            free.insert((at, by.clone()));
            true
        }
    }
}

pub(crate) struct NotedUse {
    pub(crate) at: Timestamp,
    /// Whether the object had no noted use since the last flush.
    pub(crate) is_new: bool,
    /// The number of objects with noted uses.
    pub(crate) objects: usize,
}

/// Uses that a flush writes. Dropping the value puts them back into the log, also after a
/// failed or cancelled flush.
pub(crate) struct UnwrittenUses<'a, K: Copy + Eq + Hash, By: Clone> {
    log: &'a UseLog<K, By>,
    uses: Vec<LastUse<K, By>>,
    /// When the uses were taken; all earlier uses are included.
    pub(crate) at: Timestamp,
}

impl<K: Copy + Eq + Hash, By: Clone> UnwrittenUses<'_, K, By> {
    pub(crate) const fn len(&self) -> usize {
        self.uses.len()
    }

    /// The uses to write next; `None`: all are written.
    pub(crate) fn batch(&self) -> Option<&[LastUse<K, By>]> {
        self.uses.rchunks(BATCH_ROWS).next()
    }

    /// Removes the batch that was written.
    pub(crate) fn note_written(&mut self) {
        self.uses.truncate(self.uses.len().saturating_sub(BATCH_ROWS));
    }
}

impl<K: Copy + Eq + Hash, By: Clone> Drop for UnwrittenUses<'_, K, By> {
    fn drop(&mut self) {
        let mut uses = self.log.0.lock();
        for used in &self.uses {
            put(&mut uses.noted, used.key, used.at, &used.by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    #[test]
    fn use_is_found_until_the_flush_after_the_one_that_wrote_it() {
        let (log, at) = (UseLog::default(), Timestamp::from_micros(1));
        let flush = || {
            let mut uses = log.take(&SystemClock);
            while uses.batch().is_some() {
                uses.note_written();
            }
        };
        log.note(1, at, &());
        assert_eq!(log.get(1), Some((at, ())));
        flush();
        assert_eq!(log.get(1), Some((at, ())), "a call may have read the index before");
        flush();
        assert_eq!(log.get(1), None);
    }
}
