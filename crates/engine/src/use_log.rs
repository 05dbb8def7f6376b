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
    /// The uses that a flush writes at the moment: readers of the index may not see them
    /// there yet.
    being_written: Arc<UsesByObject<K, By>>,
}

/// When API keys were last used.
pub(crate) type KeyUses = UseLog<(TenantId, ApiKeyId)>;

impl<K, By> Default for UseLog<K, By> {
    fn default() -> Self {
        Self(Mutex::new(Uses { noted: HashMap::new(), being_written: Arc::default() }))
    }
}

impl<K: Copy + Eq + Hash, By: Clone> UseLog<K, By> {
    /// The last use of an object, unless it is written.
    pub(crate) fn get(&self, key: K) -> Option<(Timestamp, By)> {
        let uses = self.0.lock();
        let known = [uses.noted.get(&key), uses.being_written.get(&key)];
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
        uses.being_written = Arc::new(std::mem::take(&mut uses.noted));
        let taken = Arc::clone(&uses.being_written);
        // Readers do not wait while many uses are copied.
        drop(uses);
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
        let written = std::mem::take(&mut uses.being_written);
        drop(uses);
        drop(written);
    }
}
