//! Records when API keys were last used, in memory; written with access times.
//!
//! A request never waits for a write and never causes one. A crash loses at
//! most the uses since the last flush.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use keepsake_core::{ApiKeyId, TenantId, Timestamp};
use keepsake_index::{IndexError, KeyUse};

use crate::Engine;

/// Rows of one batch.
const BATCH_ROWS: usize = 1000;

/// The latest use of each key since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<HashMap<(TenantId, ApiKeyId), Timestamp>>);

impl Log {
    /// Notes a use; a later use that is already noted is kept.
    pub(crate) fn record(&self, tenant_id: TenantId, api_key_id: ApiKeyId, at: Timestamp) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = log.entry((tenant_id, api_key_id)).or_insert(at);
        *noted = at.max(*noted);
    }

    fn take(&self) -> Vec<KeyUse> {
        let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        taken
            .into_iter()
            .map(|((tenant_id, api_key_id), used_at)| KeyUse {
                tenant_id,
                api_key_id,
                used_at,
            })
            .collect()
    }
}

impl Engine {
    /// Writes the uses noted so far; uses that could not be written are kept.
    pub(crate) async fn write_key_use(&self) -> Result<(), IndexError> {
        let mut taken = Taken {
            log: &self.0.key_use,
            uses: self.0.key_use.take(),
        };
        while !taken.uses.is_empty() {
            let batch = taken.uses.len().saturating_sub(BATCH_ROWS);
            self.0.index.keys.flush_use(&taken.uses[batch..]).await?;
            taken.uses.truncate(batch);
        }
        Ok(())
    }
}

/// Uses that are not yet written; dropping the value puts them back.
struct Taken<'a> {
    log: &'a Log,
    uses: Vec<KeyUse>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for used in &self.uses {
            self.log.record(used.tenant_id, used.api_key_id, used.used_at);
        }
    }
}
