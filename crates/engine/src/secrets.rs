//! Secrets shared by all replicas: the first creates them, the vault wraps them.

use std::sync::Arc;

use aws_lc_rs::aead::NONCE_LEN;
use keepsake_core::Timestamp;
use keepsake_index::{Index, ServerSecret};
use keepsake_tokens::{SECRET_BYTES, Secret, Vault};

use crate::{Clock, EngineError, IdSource};

#[derive(Debug, Clone)]
pub(crate) struct Secrets {
    pub(crate) index: Index,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// Wraps the secrets stored in the index.
    pub(crate) vault: Vault,
}

impl Secrets {
    /// The secret of a purpose with a single secret; created if missing.
    pub(crate) async fn shared(&self, purpose: &str) -> Result<Secret, EngineError> {
        if let Some(stored) = self.latest(purpose).await? {
            return self.open(&stored).await;
        }
        // The secret's id is its purpose, so that two replicas that create it
        // concurrently keep the same one.
        self.add(purpose, purpose, self.clock.now()).await?;
        let stored = self.latest(purpose).await?;
        let stored = stored.ok_or(EngineError::Internal("a secret is gone that was just made"))?;
        self.open(&stored).await
    }

    async fn latest(&self, purpose: &str) -> Result<Option<ServerSecret>, EngineError> {
        let secrets = self.index.secrets.list(purpose).await?;
        Ok(secrets.into_iter().rfind(|secret| secret.retired_at.is_none()))
    }

    /// Creates a secret, unless one with this id exists.
    pub(crate) async fn add(
        &self,
        purpose: &str,
        kid: &str,
        not_before: Timestamp,
    ) -> Result<bool, EngineError> {
        let secret = self.make(purpose, kid, not_before)?;
        Ok(self.index.secrets.add(&secret).await?)
    }

    /// Creates a secret without storing it.
    pub(crate) fn make(
        &self,
        purpose: &str,
        kid: &str,
        not_before: Timestamp,
    ) -> Result<ServerSecret, EngineError> {
        Ok(ServerSecret {
            kid: kid.to_owned(),
            purpose: purpose.to_owned(),
            wrapped_key: self.seal(purpose, kid, &Secret::new(self.ids.secret()))?,
            not_before,
            retired_at: None,
        })
    }

    /// Unwraps a stored secret. If the secret is not wrapped like a new one, it is
    /// wrapped again and stored.
    pub(crate) async fn open(&self, stored: &ServerSecret) -> Result<Secret, EngineError> {
        let (purpose, kid) = (&stored.purpose, &stored.kid);
        let opened = self.vault.open(purpose, kid, &stored.wrapped_key)?;
        if !opened.is_current {
            let sealed = self.seal(purpose, kid, &opened.secret)?;
            // Another replica may have wrapped it again already.
            self.index.secrets.rewrap(kid, &stored.wrapped_key, &sealed).await?;
        }
        Ok(opened.secret)
    }

    /// Opens every stored secret, and changes none; `false`: some are not wrapped like a new one.
    pub(crate) async fn check(&self) -> Result<bool, EngineError> {
        let mut are_current = true;
        for stored in self.index.secrets.all().await? {
            are_current &= self.vault.open(&stored.purpose, &stored.kid, &stored.wrapped_key)?.is_current;
        }
        Ok(are_current)
    }

    fn seal(&self, purpose: &str, kid: &str, secret: &Secret) -> Result<Vec<u8>, EngineError> {
        let random: [u8; SECRET_BYTES] = self.ids.secret();
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&random[..NONCE_LEN]);
        Ok(self.vault.seal(purpose, kid, secret, nonce)?)
    }
}
