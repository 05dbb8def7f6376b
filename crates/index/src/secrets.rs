//! Secrets that every replica of the server shares.

use async_trait::async_trait;
use keepsake_core::Timestamp;

use crate::IndexError;
use crate::model::Audited;

/// A secret as it is stored: wrapped, where the operator has a key for it.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSecret {
    /// Its own name.
    pub kid: String,
    /// What it is for.
    pub purpose: String,
    /// Its bytes, as they are stored.
    pub wrapped_key: Vec<u8>,
    /// From when on it is to be used.
    pub not_before: Timestamp,
    /// From when on it is not to be believed any more.
    pub retired_at: Option<Timestamp>,
}

/// Shows nothing of the bytes, wrapped or not.
impl std::fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSecret")
            .field("kid", &self.kid)
            .field("not_before", &self.not_before)
            .field("retired_at", &self.retired_at)
            .finish_non_exhaustive()
    }
}

/// Secrets of the server itself; no tenant has any.
#[async_trait]
pub trait SecretIndex: Send + Sync {
    /// Every secret of a purpose, in the order of their times, then names.
    async fn server_secrets(&self, purpose: &str) -> Result<Vec<ServerSecret>, IndexError>;

    /// Records a secret; `false`, recording nothing, where its name is taken.
    ///
    /// Of replicas that bring one of the same name, one alone is answered
    /// `true`.
    async fn add_server_secret(&self, secret: &ServerSecret) -> Result<bool, IndexError>;

    /// Stores the same secret in another form; `false` when its form is not
    /// `from` any more.
    async fn rewrap_server_secret(&self, kid: &str, from: &[u8], to: &[u8]) -> Result<bool, IndexError>;

    /// Lets a secret not be believed from a time on; never later than it was.
    ///
    /// Answers `false` where there is none of this name.
    async fn retire_server_secret(&self, kid: &str, at: Timestamp) -> Result<bool, IndexError>;

    /// Records a secret that the operator asked for, with the operator's audit;
    /// `false`, changing nothing, where its name is taken.
    ///
    /// From `others_until` on, where it is given, no other secret of the purpose is
    /// to be believed.
    async fn rotate_server_secret(
        &self,
        secret: &ServerSecret,
        others_until: Option<Timestamp>,
        audited: &Audited,
    ) -> Result<bool, IndexError>;

    /// Removes a secret; `false` where there is none of this name.
    async fn remove_server_secret(&self, kid: &str) -> Result<bool, IndexError>;
}
