//! When memories were last read: coalesced here, written in batches.
//!
//! A read never waits for, nor causes, a write. A crash may forget the reads
//! since the last flush, no more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp};
use keepsake_index::{AccessRow, IndexError};

use crate::Engine;

/// Rows of one batch.
const BATCH_ROWS: usize = 1000;

type Key = (TenantId, StoreId, MemoryId);

/// The latest read of each memory since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<HashMap<Key, (Timestamp, Actor)>>);

impl Log {
    pub(crate) fn record(&self, key: Key, at: Timestamp, by: &Actor) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match log.entry(key) {
            Entry::Occupied(mut known) => {
                if known.get().0 < at {
                    known.insert((at, by.clone()));
                }
            }
            Entry::Vacant(free) => {
                free.insert((at, by.clone()));
            }
        }
    }

    fn take(&self) -> Vec<AccessRow> {
        let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        taken
            .into_iter()
            .map(
                |((tenant_id, store_id, memory_id), (read_at, read_by))| AccessRow {
                    tenant_id,
                    store_id,
                    memory_id,
                    read_at,
                    read_by,
                },
            )
            .collect()
    }
}

impl Engine {
    /// Notes that a memory's content was read, now.
    pub(crate) fn note_read(&self, tenant_id: TenantId, store_id: StoreId, memory_id: MemoryId, by: &Actor) {
        self.0
            .access
            .record((tenant_id, store_id, memory_id), self.now(), by);
    }

    /// Writes the access times noted so far, and this replica's heartbeat.
    ///
    /// # Errors
    /// [`IndexError`] when they could not be written; they are kept for the
    /// next flush, and the heartbeat does not claim them.
    pub async fn flush_access(&self, role: &str) -> Result<u64, IndexError> {
        let flushed_through = self.now();
        let rows = self.0.access.take();
        for (position, batch) in rows.chunks(BATCH_ROWS).enumerate() {
            if let Err(error) = self.0.index.flush_access(batch).await {
                for row in &rows[position * BATCH_ROWS..] {
                    self.0.access.record(
                        (row.tenant_id, row.store_id, row.memory_id),
                        row.read_at,
                        &row.read_by,
                    );
                }
                return Err(error);
            }
        }
        self.0
            .index
            .heartbeat(self.0.replica, role, self.now(), flushed_through)
            .await?;
        Ok(rows.len() as u64)
    }
}
