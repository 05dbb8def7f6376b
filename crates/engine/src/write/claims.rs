//! Replicas take turns to change a memory.
//!
//! A replica whose change lost a race claims the memory for a moment, and other
//! replicas let it commit first. The claim is only a hint that prevents one
//! change from losing repeatedly. The compare-and-set of the commit is what
//! prevents lost updates.

use std::time::Duration;

use keepsake_core::MemoryId;
use keepsake_index::Head;

use super::Write;
use crate::EngineError;

/// How long a claim lasts, and how long this replica waits for another's: a
/// few times the duration of a blob put and a commit.
const CLAIM_LASTS: Duration = Duration::from_secs(2);
/// Average wait between two reads of a memory that another replica claimed.
const CLAIM_POLL: Duration = Duration::from_millis(4);

/// Remaining reads of a memory while another replica claims it.
#[derive(Debug)]
pub(super) struct ClaimBackoff(u128);

impl Default for ClaimBackoff {
    fn default() -> Self {
        Self(CLAIM_LASTS.as_micros() / CLAIM_POLL.as_micros())
    }
}

impl Write<'_> {
    /// Waits a moment when another replica claims the next change of a memory.
    /// Returns whether it waited; the memory must then be read again.
    pub(super) async fn yields_to_claim(&self, head: &Head, backoff: &mut ClaimBackoff) -> bool {
        let context = self.context();
        let now = context.now();
        let is_others = head.claim.is_some_and(|claim| claim.replica != context.replica && claim.until > now);
        if !is_others || backoff.0 == 0 {
            return false;
        }
        backoff.0 -= 1;
        tokio::time::sleep(CLAIM_POLL / 2 + context.ids.jitter(CLAIM_POLL)).await;
        true
    }

    /// Claims the next change of a memory for this replica.
    pub(super) async fn claim(&self, memory_id: MemoryId) -> Result<(), EngineError> {
        let context = self.context();
        let (tenant_id, now) = (self.principal.tenant_id, context.now());
        let until = now.plus(CLAIM_LASTS);
        context
            .index
            .memories
            .claim_edit(tenant_id, self.store_id, memory_id, context.replica, now, until)
            .await?;
        Ok(())
    }
}
