//! Secrets shared by all replicas: the first creates them, the vault wraps them.

use aws_lc_rs::aead::NONCE_LEN;
use keepsake_core::Timestamp;
use keepsake_index::ServerSecret;
use keepsake_tokens::{SECRET_BYTES, Secret};

use crate::{Engine, EngineError};

impl Engine {
    /// Creates or reads every secret, so that none is missing later.
    ///
    /// # Errors
    /// [`EngineError::Secret`] when one cannot be unwrapped,
    /// [`EngineError::Index`].
    #[tracing::instrument(name = "engine.prepare_secrets", level = "debug", skip_all)]
    pub async fn prepare_secrets(&self) -> Result<(), EngineError> {
        self.cursor_key().await?;
        self.signing_keys(None).await?;
        Ok(())
    }

    /// The secret of a purpose with a single secret; created if missing.
    pub(crate) async fn shared_secret(&self, purpose: &str) -> Result<Secret, EngineError> {
        if let Some(stored) = self.latest_secret(purpose).await? {
            return self.open_secret(&stored).await;
        }
        // Its id is its purpose, so that two replicas that create it
        // concurrently keep the same one.
        self.add_secret(purpose, purpose, self.now()).await?;
        let stored = self.latest_secret(purpose).await?;
        let stored = stored.ok_or(EngineError::Internal("a secret is gone that was just made"))?;
        self.open_secret(&stored).await
    }

    async fn latest_secret(&self, purpose: &str) -> Result<Option<ServerSecret>, EngineError> {
        let secrets = self.0.index.secrets.list(purpose).await?;
        Ok(secrets.into_iter().rfind(|secret| secret.retired_at.is_none()))
    }

    /// Creates a secret, unless one with this id exists.
    pub(crate) async fn add_secret(
        &self,
        purpose: &str,
        kid: &str,
        not_before: Timestamp,
    ) -> Result<bool, EngineError> {
        let secret = self.new_secret(purpose, kid, not_before)?;
        Ok(self.0.index.secrets.add(&secret).await?)
    }

    /// Creates a secret without storing it.
    pub(crate) fn new_secret(
        &self,
        purpose: &str,
        kid: &str,
        not_before: Timestamp,
    ) -> Result<ServerSecret, EngineError> {
        Ok(ServerSecret {
            kid: kid.to_owned(),
            purpose: purpose.to_owned(),
            wrapped_key: self.seal_secret(purpose, kid, &Secret::new(self.0.ids.secret()))?,
            not_before,
            retired_at: None,
        })
    }

    /// Unwraps a stored secret. When it is not wrapped as a new secret would
    /// be, wraps it again and stores the result.
    pub(crate) async fn open_secret(&self, stored: &ServerSecret) -> Result<Secret, EngineError> {
        let (purpose, kid) = (&stored.purpose, &stored.kid);
        let opened = self.0.vault.open(purpose, kid, &stored.wrapped_key)?;
        if !opened.is_current {
            let sealed = self.seal_secret(purpose, kid, &opened.secret)?;
            // Another replica may have wrapped it again already.
            self.0
                .index
                .secrets
                .rewrap(kid, &stored.wrapped_key, &sealed)
                .await?;
        }
        Ok(opened.secret)
    }

    fn seal_secret(&self, purpose: &str, kid: &str, secret: &Secret) -> Result<Vec<u8>, EngineError> {
        let random: [u8; SECRET_BYTES] = self.0.ids.secret();
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&random[..NONCE_LEN]);
        Ok(self.0.vault.seal(purpose, kid, secret, nonce)?)
    }
}
