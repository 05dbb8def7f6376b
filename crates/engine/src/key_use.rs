//! Records when API keys were last used, in memory; written with access times.
//!
//! A request never waits for a write and never causes one. A crash loses at
//! most the uses since the last flush.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keepsake_core::{ApiKeyId, TenantId, Timestamp};
use keepsake_index::{IndexError, KeyUse};

use crate::context::Context;

const BATCH_ROWS: usize = 1000;

/// The latest use of each key since the last flush.
#[derive(Debug)]
pub(crate) struct KeyUses {
    context: Arc<Context>,
    noted: Mutex<HashMap<(TenantId, ApiKeyId), Timestamp>>,
}

impl KeyUses {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let noted = Mutex::default();
        Self { context, noted }
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<(TenantId, ApiKeyId), Timestamp>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A later use that is already noted is kept.
    pub(crate) fn record(&self, tenant_id: TenantId, api_key_id: ApiKeyId, at: Timestamp) {
        let mut uses = self.noted();
        let noted = uses.entry((tenant_id, api_key_id)).or_insert(at);
        *noted = at.max(*noted);
    }

    fn take(&self) -> Vec<KeyUse> {
        let taken = std::mem::take(&mut *self.noted());
        taken
            .into_iter()
            .map(|((tenant_id, api_key_id), used_at)| KeyUse { tenant_id, api_key_id, used_at })
            .collect()
    }

    /// Uses that could not be written are kept.
    pub(crate) async fn write(&self) -> Result<(), IndexError> {
        let mut taken = Taken { log: self, uses: self.take() };
        while !taken.uses.is_empty() {
            let batch = taken.uses.len().saturating_sub(BATCH_ROWS);
            self.context.index.keys.flush_use(&taken.uses[batch..]).await?;
            taken.uses.truncate(batch);
        }
        Ok(())
    }
}

/// Uses that are not yet written; dropping the value puts them back.
struct Taken<'a> {
    log: &'a KeyUses,
    uses: Vec<KeyUse>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for used in &self.uses {
            self.log.record(used.tenant_id, used.api_key_id, used.used_at);
        }
    }
}
