//! Who else is there: signs of life, and how many gateways live.

use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_index::IndexError;

use crate::Engine;

/// How many gateways live, as last counted.
#[derive(Debug, Default)]
pub(crate) struct Gateways(AtomicU32);

impl Engine {
    /// Gateways that live, this one among them, as last counted.
    pub fn gateways(&self) -> u32 {
        self.0.gateways.0.load(Ordering::Relaxed).max(1)
    }

    /// Counts the gateways that live.
    ///
    /// # Errors
    /// [`IndexError`]; what was counted before stays.
    pub async fn count_gateways(&self) -> Result<(), IndexError> {
        let counted = self.0.index.replicas.live_gateways(self.now()).await?;
        let before = self.0.gateways.0.swap(counted, Ordering::Relaxed);
        if before != counted {
            tracing::info!(
                gateways = counted,
                "engine.count_gateways: each takes its share of a rate"
            );
        }
        Ok(())
    }

    /// Tells the others that this replica lives, and learns how many there are.
    pub(crate) async fn announce(&self) {
        if let Err(error) = self.flush_access().await {
            tracing::warn!(error = %error, "engine.announce failed; tried again at the next tick");
        }
        self.recount().await;
    }

    /// Like [`Self::count_gateways`], for a schedule.
    pub(crate) async fn recount(&self) {
        if let Err(error) = self.count_gateways().await {
            tracing::warn!(error = %error, "engine.count_gateways failed; tried again at the next tick");
        }
    }
}
