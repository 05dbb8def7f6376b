//! Replicas take turns to change a memory.
//!
//! A replica whose change lost a race claims the memory for a moment, and other
//! replicas let it commit first. The claim is only a hint that prevents one
//! change from losing repeatedly. The compare-and-set of the commit is what
//! prevents lost updates.

use std::time::Duration;

use keepsake_core::{MemoryId, Timestamp};
use keepsake_index::{Claim, Head};
use tokio::time::Instant;
use uuid::Uuid;

use super::Write;
use crate::EngineError;

/// How long a claim lasts, and how long this replica waits for another replica's claim: a
/// few times the duration of a blob put and a commit.
const CLAIM_LASTS: Duration = Duration::from_secs(2);
/// How far in the future a claim may end. A claim that ends later was made by a wrong
/// clock, and does not count.
const CLAIM_ENDS_WITHIN: Duration = Duration::from_secs(2 * CLAIM_LASTS.as_secs());
/// Average wait between two reads of a memory that another replica claimed.
const CLAIM_POLL: Duration = Duration::from_millis(4);

/// Since when this replica has waited for another replica's claim.
#[derive(Debug, Default)]
pub(super) struct ClaimWait(Option<Instant>);

/// Whether a claim is another replica's, has not ended, and was not made by a wrong
/// clock.
fn is_of_another(claim: Claim, replica: Uuid, now: Timestamp) -> bool {
    claim.replica != replica && claim.until > now && claim.until <= now.plus(CLAIM_ENDS_WITHIN)
}

impl Write<'_> {
    /// Waits a moment when another replica claims the next change of a memory.
    /// Returns whether it waited; the memory must then be read again.
    pub(super) async fn yields_to_claim(&self, head: &Head, wait: &mut ClaimWait) -> bool {
        let context = self.context();
        let now = context.now();
        let must_wait = head.claim.is_some_and(|claim| is_of_another(claim, context.replica, now));
        if !must_wait || wait.0.get_or_insert_with(Instant::now).elapsed() >= CLAIM_LASTS {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_of_a_clock_that_is_ahead_does_not_count() {
        let (this, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        for (replica, seconds, counts) in
            [(other, 0, false), (other, 2, true), (other, 4, true), (other, 5, false), (this, 2, false)]
        {
            let claim = Claim { replica, until: now.plus(Duration::from_secs(seconds)) };
            assert_eq!(is_of_another(claim, this, now), counts, "{seconds}");
        }
    }
}
