//! Secrets of the server itself, which every replica shares and which belong to no
//! tenant.

use keepsake_core::Timestamp;

use crate::IndexError;
use crate::audit::record_of_operator;
use crate::database::{Database, Query, Role, Tx, from_row};
use crate::model::{AuditedAction, TokenKeyAction};

const LIST: &str = "SELECT kid, purpose, wrapped_key, not_before, retired_at FROM server_secret \
    WHERE purpose = $1 ORDER BY not_before, kid";

const LIST_ALL: &str = "SELECT kid, purpose, wrapped_key, not_before, retired_at FROM server_secret";

const INSERT: &str = "INSERT INTO server_secret (kid, purpose, wrapped_key, not_before, retired_at) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kid) DO NOTHING";

const REWRAP: &str = "UPDATE server_secret SET wrapped_key = $3 WHERE kid = $1 AND wrapped_key = $2";

/// A secret whose end is earlier keeps this end.
const RETIRE_OTHERS: &str = "UPDATE server_secret SET retired_at = \
    CASE WHEN retired_at <= $3 THEN retired_at ELSE $3 END WHERE purpose = $1 AND kid <> $2";

const REMOVE: &str = "DELETE FROM server_secret WHERE kid = $1";

/// A secret as it is stored: wrapped if the operator configured a key for that.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSecret {
    /// Key id, unique among all secrets.
    pub kid: String,
    pub purpose: String,
    pub wrapped_key: Vec<u8>,
    /// When it comes into use.
    pub not_before: Timestamp,
    /// When it stops being trusted.
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

#[derive(Debug, Clone)]
pub struct ServerSecrets(pub(crate) Database);

from_row!(ServerSecret { kid, purpose, wrapped_key, not_before, retired_at });

impl ServerSecrets {
    /// All secrets of a purpose, ordered by `not_before`, then by key id.
    pub async fn list(&self, purpose: &str) -> Result<Vec<ServerSecret>, IndexError> {
        self.0.all("server_secrets", Role::Shared(None), LIST, purpose).await
    }

    /// The secrets of all purposes.
    pub async fn all(&self) -> Result<Vec<ServerSecret>, IndexError> {
        self.0.all("all_server_secrets", Role::Shared(None), LIST_ALL, ()).await
    }

    /// Adds a secret; `false` and no change when its key id is taken.
    ///
    /// When several replicas add the same key id, exactly one gets `true`.
    pub async fn add(&self, secret: &ServerSecret) -> Result<bool, IndexError> {
        let mut tx = self.0.write_one("add_server_secret", Role::Shared(None)).await?;
        let added = insert(&mut tx, secret).execute().await?;
        tx.commit().await?;
        Ok(added > 0)
    }

    /// Stores the same secret in another form; `false` when the stored form is not
    /// `from`.
    pub async fn rewrap(&self, kid: &str, from: &[u8], to: &[u8]) -> Result<bool, IndexError> {
        let role = Role::Shared(None);
        Ok(self.0.change("rewrap_server_secret", role, REWRAP, (kid, from, to)).await? > 0)
    }

    /// Adds a secret that the operator asked for, and records it in the operator's audit;
    /// `false` and no change when its key id is taken.
    ///
    /// With `others_until`, all other secrets of the purpose end at that time.
    pub async fn rotate(
        &self,
        secret: &ServerSecret,
        others_until: Option<Timestamp>,
        audited: &AuditedAction,
    ) -> Result<bool, IndexError> {
        let mut tx = self.0.write("rotate_server_secret", Role::Shared(None)).await?;
        if insert(&mut tx, secret).execute().await? == 0 {
            return Ok(false);
        }
        if let Some(until) = others_until {
            let retire = tx.query(RETIRE_OTHERS).bind((&secret.purpose, &secret.kid));
            retire.bind(until).execute().await?;
        }
        let action = match others_until {
            None => TokenKeyAction::Rotated,
            Some(_) => TokenKeyAction::Distrusted,
        };
        record_of_operator(&mut tx, audited, action.name(), None).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Removes a secret; `false` when there is no such secret.
    pub async fn remove(&self, kid: &str) -> Result<bool, IndexError> {
        Ok(self.0.change("remove_server_secret", Role::Shared(None), REMOVE, kid).await? > 0)
    }
}

fn insert<'t>(tx: &'t mut Tx, secret: &ServerSecret) -> Query<'t> {
    let query = tx.query(INSERT).bind((&secret.kid, &secret.purpose));
    let query = query.bind((&secret.wrapped_key, secret.not_before));
    query.bind(secret.retired_at)
}
