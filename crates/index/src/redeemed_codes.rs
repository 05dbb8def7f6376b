//! The codes of issuers with which people signed in. They are recorded for all replicas,
//! so that each code works once.

use keepsake_core::Timestamp;

use crate::IndexError;
use crate::database::{Database, Role};

const ADD: &str = "INSERT INTO redeemed_code (code_sha256, redeemed_at) VALUES ($1, $2) ON CONFLICT (code_sha256) DO NOTHING";

#[derive(Debug, Clone)]
pub struct RedeemedCodes(pub(crate) Database);

impl RedeemedCodes {
    /// Records a code; `false`: it was used before.
    pub async fn add(&self, code_sha256: &[u8; 32], now: Timestamp) -> Result<bool, IndexError> {
        let values = (code_sha256.as_slice(), now);
        Ok(self.0.change("add_redeemed_code", Role::Shared(None), ADD, values).await? > 0)
    }
}
