//! Replicas take turns to edit a memory.
//!
//! A replica whose edit lost a race claims the memory for a moment, and other
//! replicas let it commit first. The claim is only a hint that prevents one
//! edit from losing repeatedly. The compare-and-set of the commit is what
//! prevents lost updates.

use std::time::Duration;

use keepsake_core::{MemoryId, StoreId};
use keepsake_index::Head;

use crate::{Engine, EngineError, Principal};

/// How long a claim lasts, and how long this replica waits for another's: a
/// few times the duration of a blob put and a commit.
const CLAIM_LASTS: Duration = Duration::from_secs(2);
/// Average wait between two reads of a memory that another replica claimed.
const CLAIM_POLL: Duration = Duration::from_millis(4);

/// Remaining reads of a memory while another replica claims it.
#[derive(Debug)]
pub(crate) struct Patience(u128);

impl Patience {
    pub(crate) const fn new() -> Self {
        Self(CLAIM_LASTS.as_micros() / CLAIM_POLL.as_micros())
    }
}

impl Engine {
    /// Waits a moment when another replica claims the next edit of a memory.
    /// Returns whether it waited; the memory must then be read again.
    pub(crate) async fn yields_to_claim(&self, head: &Head, patience: &mut Patience) -> bool {
        let now = self.now();
        let is_others = head
            .claim
            .is_some_and(|claim| claim.replica != self.0.replica && claim.until > now);
        if !is_others || patience.0 == 0 {
            return false;
        }
        patience.0 -= 1;
        tokio::time::sleep(CLAIM_POLL / 2 + self.0.ids.jitter(CLAIM_POLL)).await;
        true
    }

    /// Claims the next edit of a memory for this replica.
    pub(crate) async fn claim(
        &self,
        principal: &Principal,
        store_id: StoreId,
        memory_id: MemoryId,
    ) -> Result<(), EngineError> {
        let now = self.now();
        let (tenant_id, replica) = (principal.tenant_id, self.0.replica);
        self.0
            .index
            .memories
            .claim_edit(
                tenant_id,
                store_id,
                memory_id,
                replica,
                now,
                now.plus(CLAIM_LASTS),
            )
            .await?;
        Ok(())
    }
}
