//! Who a credential belongs to.

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{ApiKeyId, StoreId, TenantId, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

use crate::IndexError;
use crate::database::{Database, Role};
use crate::model::{Credential, Scope, TenantName, TenantStanding};
use crate::tenants::status_of;

/// On Postgres the function finds the tenant first, and then sees that tenant only.
const AUTHENTICATE: [&str; 2] = [
    "SELECT tenant_id, api_key_id, scopes, store_ids, expires_at, revoked_at, tenant_status, limits \
        FROM authenticate($1)",
    "SELECT k.tenant_id, k.api_key_id, k.scopes, k.store_ids, k.expires_at, k.revoked_at, \
            t.status AS tenant_status, t.limits \
        FROM credential c \
        JOIN api_key k ON k.tenant_id = c.tenant_id AND k.api_key_id = c.api_key_id \
        JOIN tenant t ON t.tenant_id = c.tenant_id WHERE c.secret_sha256 = $1",
];

const STANDING: &str = "SELECT tenant_id, status, limits FROM tenant WHERE tenant_id = $1";
const STANDING_BY_EXTERNAL_ID: &str = "SELECT tenant_id, status, limits FROM tenant WHERE external_id = $1";

/// Finds out who a credential belongs to.
#[derive(Debug, Clone)]
pub struct Credentials {
    database: Database,
}

#[derive(sqlx::FromRow)]
struct CredentialRow {
    tenant_id: Uuid,
    api_key_id: Uuid,
    scopes: Json<Vec<Scope>>,
    store_ids: Option<Json<Vec<StoreId>>>,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    tenant_status: String,
    limits: Json<LimitOverrides>,
}

#[derive(sqlx::FromRow)]
struct StandingRow {
    tenant_id: Uuid,
    status: String,
    limits: Json<LimitOverrides>,
}

impl Credentials {
    pub(crate) const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Finds an API key by the SHA-256 of its secret, in one query.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn authenticate(&self, secret_sha256: &[u8; 32]) -> Result<Option<Credential>, IndexError> {
        let mut tx = self.database.read_one("authenticate", Role::Anonymous).await?;
        let query = tx.query(tx.choose(AUTHENTICATE)).bind(secret_sha256.as_slice());
        let row = query.optional::<CredentialRow>().await?;
        row.map(|row| {
            Ok(Credential {
                tenant_id: TenantId::from_uuid(row.tenant_id),
                api_key_id: ApiKeyId::from_uuid(row.api_key_id),
                scopes: row.scopes.0,
                store_ids: row.store_ids.map(|ids| ids.0),
                expires_at: row.expires_at.map(Timestamp::from_micros),
                is_revoked: row.revoked_at.is_some(),
                tenant_status: status_of(&row.tenant_status)?,
                limits: row.limits.0,
            })
        })
        .transpose()
    }

    /// Finds the tenant that a token names, in one query.
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn tenant_standing(&self, name: &TenantName) -> Result<Option<TenantStanding>, IndexError> {
        let row = match name {
            TenantName::Id(tenant_id) => {
                let mut tx = self
                    .database
                    .read("tenant_standing", Role::Tenant(*tenant_id))
                    .await?;
                let row = tx.query(STANDING).bind(tenant_id.uuid()).optional().await?;
                tx.commit().await?;
                row
            }
            // The tenant is not known yet: the search crosses tenants.
            TenantName::External(external_id) => {
                let mut tx = self
                    .database
                    .read_one("tenant_standing", Role::Shared(None))
                    .await?;
                let query = tx.query(STANDING_BY_EXTERNAL_ID).bind(external_id);
                query.optional().await?
            }
        };
        row.map(|row: StandingRow| {
            Ok(TenantStanding {
                tenant_id: TenantId::from_uuid(row.tenant_id),
                status: status_of(&row.status)?,
                limits: row.limits.0,
            })
        })
        .transpose()
    }
}
