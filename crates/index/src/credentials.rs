//! Finds the owner of a credential.

use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role, from_row};
use crate::model::{Credential, Tenant, TenantName};
use crate::tenants::{FIND, FIND_BY_EXTERNAL_ID};

/// The owner of a credential, and its API key on the node of the tenant, for a distributed
/// database.
const OWNER: &str = "SELECT tenant_id, api_key_id FROM credential WHERE secret_sha256 = $1";

const OF_OWNER: &str = "SELECT tenant_id, api_key_id, scopes, store_ids, expires_at, revoked_at IS NOT NULL AS is_revoked, \
    tenant_status, limits, tenant_name, key_name FROM authenticate_of($1, $2)";

/// On Postgres the function finds the tenant first, and then sees that tenant only.
const AUTHENTICATE: [&str; 2] = [
    "SELECT tenant_id, api_key_id, scopes, store_ids, expires_at, revoked_at IS NOT NULL AS is_revoked, tenant_status, limits, \
            tenant_name, key_name FROM authenticate($1)",
    "SELECT k.tenant_id, k.api_key_id, k.scopes, k.store_ids, k.expires_at, k.revoked_at IS NOT NULL AS is_revoked, \
            t.status AS tenant_status, t.limits, t.name AS tenant_name, k.name AS key_name \
        FROM credential c \
        JOIN api_key k ON k.tenant_id = c.tenant_id AND k.api_key_id = c.api_key_id \
        JOIN tenant t ON t.tenant_id = c.tenant_id WHERE c.secret_sha256 = $1",
];

#[derive(Debug, Clone)]
pub struct Credentials(pub(crate) Database);

from_row!(Credential {
    tenant_id,
    api_key_id,
    scopes,
    store_ids,
    expires_at,
    is_revoked,
    tenant_status,
    limits,
    tenant_name,
    key_name
});

impl Credentials {
    /// Finds an API key by the SHA-256 of its secret, in one query; in two if the database is
    /// distributed.
    pub async fn authenticate(&self, secret_sha256: &[u8; 32]) -> Result<Option<Credential>, IndexError> {
        if self.0.is_distributed() {
            let mut tx = self.0.read_one("authenticate", Role::Anonymous).await?;
            let owner: Option<(Uuid, Uuid)> =
                tx.query(OWNER).bind(secret_sha256.as_slice()).optional().await?;
            return match owner {
                Some(owner) => tx.query(OF_OWNER).bind(owner).optional().await,
                None => Ok(None),
            };
        }
        let text = self.0.choose(AUTHENTICATE);
        self.0.optional("authenticate", Role::Anonymous, text, secret_sha256.as_slice()).await
    }

    /// Finds the tenant that a token names, in one query.
    pub async fn tenant(&self, name: &TenantName) -> Result<Option<Tenant>, IndexError> {
        match name {
            TenantName::Id(tenant_id) => {
                self.0.optional("tenant_standing", Role::Tenant(*tenant_id), FIND, *tenant_id).await
            }
            // The tenant is not known yet: the search crosses tenants.
            TenantName::External(external_id) => {
                let role = Role::Shared(None);
                self.0.optional("tenant_standing", role, FIND_BY_EXTERNAL_ID, external_id).await
            }
        }
    }
}
