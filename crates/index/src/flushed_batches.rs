//! The batches of counts that replicas have written.
//!
//! A replica repeats a batch whose outcome it does not know. Its id is recorded in the
//! transaction that writes the counts, so that they are added once.

use keepsake_core::Timestamp;
use uuid::Uuid;

use crate::IndexError;
use crate::database::Tx;

/// Each replica writes the batches of one log one after the other, so the last one is enough.
const BEGIN: &str = "INSERT INTO flushed_batch AS b (replica, log, batch, flushed_at) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (replica, log) DO UPDATE SET batch = excluded.batch, flushed_at = excluded.flushed_at \
    WHERE b.batch <> excluded.batch";

/// A batch of a replica's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushedBatch {
    pub replica: Uuid,
    /// The same for each attempt to write the batch.
    pub id: Uuid,
    pub at: Timestamp,
}

impl FlushedBatch {
    /// `false`: an earlier attempt wrote the batch. If that attempt's commit is still under way,
    /// this waits for it.
    pub(crate) async fn begin(self, tx: &mut Tx, log: &str) -> Result<bool, IndexError> {
        let Self { replica, id, at } = self;
        Ok(tx.query(BEGIN).bind((replica, log, id, at)).execute().await? > 0)
    }
}
