//! When memories were last read: coalesced here, written in batches.
//!
//! A read never waits for, nor causes, a write. A crash may forget the reads
//! since the last flush, no more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use keepsake_core::{Actor, MemoryId, StoreId, TenantId, Timestamp};
use keepsake_index::{AccessRow, IndexError};

use crate::Engine;

/// Rows of one batch.
const BATCH_ROWS: usize = 1000;

type Key = (TenantId, StoreId, MemoryId);

/// Memories noted before a flush is begun early, so that the log stays small.
const EARLY_FLUSH_ROWS: usize = 20_000;

/// The latest read of each memory since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Log {
    reads: Mutex<HashMap<Key, (Timestamp, Actor)>>,
    /// Held by whoever flushes, so that a heartbeat never claims rows that
    /// another flush took and has not written yet.
    flushing: Arc<tokio::sync::Mutex<()>>,
}

impl Log {
    /// Notes a read; answers how many memories are noted.
    pub(crate) fn record(&self, key: Key, at: Timestamp, by: &Actor) -> usize {
        let mut log = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
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
        log.len()
    }

    /// When a memory was last read, as far as it is not written yet.
    pub(crate) fn noted(&self, key: &Key) -> Option<Timestamp> {
        let log = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        log.get(key).map(|(at, _)| *at)
    }

    fn take(&self) -> Vec<AccessRow> {
        let taken = std::mem::take(&mut *self.reads.lock().unwrap_or_else(PoisonError::into_inner));
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
        let log = &self.0.access;
        let noted = log.record((tenant_id, store_id, memory_id), self.now(), by);
        if noted < EARLY_FLUSH_ROWS {
            return;
        }
        if let Ok(flushing) = Arc::clone(&log.flushing).try_lock_owned() {
            let engine = self.clone();
            tokio::spawn(async move {
                if let Err(error) = engine.write_access().await {
                    tracing::warn!(error = %error, "engine.flush_access failed; tried again at the next tick");
                }
                drop(flushing);
            });
        }
    }

    /// Writes the access times noted so far, this replica's heartbeat, and when
    /// keys were used.
    ///
    /// Answers how many memories' times were written.
    ///
    /// # Errors
    /// [`IndexError`] when they could not be written; they are kept for the
    /// next flush, and the heartbeat does not claim them.
    pub async fn flush_access(&self) -> Result<usize, IndexError> {
        let _flushing = self.0.access.flushing.lock().await;
        let flushed_through = self.now();
        let written = self.write_access().await?;
        self.0
            .index
            .heartbeat(self.0.replica, self.0.role, self.now(), flushed_through)
            .await?;
        // Last: nothing that expires waits for it.
        self.write_key_use().await?;
        Ok(written)
    }

    async fn write_access(&self) -> Result<usize, IndexError> {
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
        Ok(rows.len())
    }
}
