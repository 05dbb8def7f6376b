//! Authentication: turns a presented secret into a principal.

mod keys;
pub(crate) mod tokens;

use std::sync::Arc;

use crate::shared::Shared;
use crate::{EngineError, Principal};

use keys::KeyAuth;
use tokens::TokenAuth;

#[derive(Debug)]
pub struct Auth {
    keys: KeyAuth,
    tokens: TokenAuth,
}

impl Auth {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { keys: KeyAuth::new(Arc::clone(shared)), tokens: TokenAuth::new(Arc::clone(shared)) }
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
