//! Authentication: turns a presented secret into a principal.

mod keys;
mod look_ups;
pub(crate) mod sessions;
pub(crate) mod tokens;

use std::sync::Arc;
use std::time::Duration;

use keepsake_core::Timestamp;
use keepsake_tokens::Issuers;

use crate::activity::Activity;
use crate::context::Context;
use crate::use_log::KeyUses;
use crate::{EngineError, Principal, Replica, Tokens};

use keys::KeyAuth;
use sessions::AttachedStores;
use tokens::TokenAuth;

/// Lifetime of cached credential look-ups. It is short enough that a revocation
/// takes effect within five seconds, including the time of the look-up.
const BELIEVED_FOR: Duration = Duration::from_secs(3);
/// Maximum number of cached credentials of each kind.
const REMEMBERED: u64 = 10_000;
const SUSPENDED: &str = "the tenant is suspended";

/// A look-up is not valid after the clock was set back.
fn is_believed(looked_up_at: Timestamp, now: Timestamp) -> bool {
    looked_up_at <= now && now < looked_up_at.plus(BELIEVED_FOR)
}

#[derive(Debug)]
pub struct Auth {
    keys: KeyAuth,
    tokens: TokenAuth,
}

impl Auth {
    pub(crate) fn new(
        context: &Arc<Context>,
        replica: &Replica,
        key_uses: Arc<KeyUses>,
        own: Tokens,
        attached: Arc<AttachedStores>,
        activity: Arc<Activity>,
        issuers: Arc<Issuers>,
    ) -> Self {
        let (of_keys, of_tokens) = (Arc::clone(context), Arc::clone(context));
        Self {
            keys: KeyAuth::new(of_keys, replica.clone(), key_uses),
            tokens: TokenAuth::new(of_tokens, replica.clone(), own, attached, activity, issuers),
        }
    }

    /// Authenticates an API key or a token. A cached look-up needs no query.
    pub async fn authenticate(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        // Every token contains a dot; no API key does.
        if presented.contains('.') {
            self.tokens.authenticate(presented).await
        } else {
            self.keys.authenticate(presented).await
        }
    }

    pub async fn authenticate_key(&self, presented: &str) -> Result<Arc<Principal>, EngineError> {
        self.keys.authenticate(presented).await
    }
}
