//! Heartbeats of this replica, and the number of live gateways.

use std::sync::atomic::{AtomicU32, Ordering};

use keepsake_index::IndexError;

use crate::Engine;

/// The last count of live gateways.
#[derive(Debug, Default)]
pub(crate) struct Gateways(AtomicU32);

impl Engine {
    /// The last count of live gateways, including this one.
    pub fn gateways(&self) -> u32 {
        self.0.gateways.0.load(Ordering::Relaxed).max(1)
    }

    /// Counts the live gateways.
    ///
    /// # Errors
    /// [`IndexError`]; the previous count is kept.
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

    /// Sends a heartbeat, then counts the live gateways.
    pub(crate) async fn announce(&self) {
        if let Err(error) = self.flush_access().await {
            tracing::warn!(error = %error, "engine.announce failed; tried again at the next tick");
        }
        self.recount().await;
    }

    /// Like [`Self::count_gateways`], for a schedule: logs errors.
    pub(crate) async fn recount(&self) {
        if let Err(error) = self.count_gateways().await {
            tracing::warn!(error = %error, "engine.count_gateways failed; tried again at the next tick");
        }
    }
}
