//! Tenants, for the operator.

use keepsake_core::{Limits, ObjectKind, Refused, SearchMode, TenantId};
use sqlx::types::Json;
use uuid::Uuid;

use crate::database::{Database, Ids, Role, RowLock, Tx, from_row, selects};
use crate::model::{
    AuditAction, AuditObject, AuditedAction, Tenant, TenantChange, TenantSize, TenantStatus, TenantUpdate,
    TenantUsage,
};
use crate::numbers::FIRST_STORE;
use crate::{ChangeError, IndexError, audit};

/// Does nothing when the id or the external id is taken.
const INSERT: &str = "INSERT INTO tenant (tenant_id, external_id, name, status, limits, store_count, granted_bytes, \
    created_at, search_mode) VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $7) ON CONFLICT DO NOTHING";

selects! {
    "tenant_id, external_id, name, status, limits, search_mode, created_at FROM tenant WHERE";
    pub(crate) const FIND = "tenant_id = $1";
    pub(crate) const FIND_BY_EXTERNAL_ID = "external_id = $1";
    const LIST = "tenant_id < $1 ORDER BY tenant_id DESC LIMIT $2 + 0";
    const LIST_BY_EXTERNAL_ID = "tenant_id < $1 AND external_id = $3 ORDER BY tenant_id DESC LIMIT $2 + 0";
}

const STATUS: &str = "SELECT status FROM tenant WHERE tenant_id = $1";

const UPDATE: &str = "UPDATE tenant SET external_id = $2, name = $3, status = $4, limits = $5, search_mode = $6 \
    WHERE tenant_id = $1";

/// Makes the job `embed-memories` look at the tenant's stores, as many as these are.
const UNSETTLE: &str = "UPDATE tenant SET unsettled_after = $2 WHERE tenant_id = $1";

const USAGE: &str = "SELECT t.tenant_id, t.store_count AS stores, t.granted_bytes, \
        CAST(coalesce(sum(s.memory_count), 0) AS bigint) AS memories, \
        CAST(coalesce(sum(s.live_bytes), 0) AS bigint) AS live_bytes, \
        CAST(coalesce(sum(s.version_count), 0) AS bigint) AS versions, \
        CAST(coalesce(sum(s.version_bytes), 0) AS bigint) AS version_bytes, \
        (SELECT count(*) FROM api_key k WHERE k.tenant_id = $1 AND k.revoked_at IS NULL) AS api_keys, \
        coalesce((SELECT c.sessions FROM tenant_counter c WHERE c.tenant_id = $1), 0) AS sessions, \
        coalesce((SELECT c.session_bytes FROM tenant_counter c WHERE c.tenant_id = $1), 0) AS session_bytes \
    FROM tenant t LEFT JOIN store s ON s.tenant_id = $1 AND s.deleted_at IS NULL \
    WHERE t.tenant_id = $1 GROUP BY t.tenant_id, t.store_count, t.granted_bytes";

/// The stores of tenants, looked up for each tenant.
const STORES: &str =
    "(SELECT DISTINCT id FROM_IDS($1)) ids EACH[store s: s.tenant_id = ids.id AND s.deleted_at IS NULL]";

/// The same of a distributed database, which makes no look-ups of a list.
const STORES_OF_NODES: &str = "store s WHERE s.tenant_id IN_IDS($1) AND s.deleted_at IS NULL";

#[derive(Debug, Clone)]
pub struct Tenants(pub(crate) Database);

from_row! {
    Tenant { tenant_id, external_id, name, status, limits, search_mode, created_at .. r#type }
    TenantUsage {
        tenant_id, stores, memories, live_bytes, versions, version_bytes, granted_bytes, api_keys, sessions,
        session_bytes .. r#type, limits
    }
    TenantSize { tenant_id, stores, memories, live_bytes }
}

impl Tenants {
    pub async fn create(&self, tenant: &Tenant, audited: &AuditedAction) -> Result<(), ChangeError> {
        let tenant_id = tenant.tenant_id;
        let mut tx = self.0.write("create_tenant", Role::Shared(None)).await?;
        let made = tx
            .query(INSERT)
            .bind(tenant_id)
            .bind(tenant.external_id.as_deref())
            .bind(&tenant.name)
            .bind(tenant.status.name())
            .bind(Json(&tenant.limits))
            .bind(tenant.created_at)
            .bind(tenant.search_mode.map(SearchMode::name))
            .execute()
            .await?;
        if made == 0 {
            return Err(Refused::TenantExists.into());
        }
        let (action, object) = (AuditAction::TenantCreated, AuditObject::new(tenant_id.uuid()));
        audit::record(&mut tx, tenant_id, audited, action, object).await?;
        Ok(tx.commit().await?)
    }

    /// Finds a tenant, also one that is being deleted.
    pub async fn find(&self, tenant_id: TenantId) -> Result<Option<Tenant>, IndexError> {
        self.0.optional("tenant", Role::Shared(None), FIND, tenant_id).await
    }

    /// Lists tenants with ids before one, newest id first.
    pub async fn list(
        &self,
        external_id: Option<&str>,
        before: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, IndexError> {
        let (role, page) = (Role::Shared(None), (before.map_or(Uuid::max(), TenantId::uuid), limit));
        match external_id {
            Some(external_id) => self.0.all("tenants", role, LIST_BY_EXTERNAL_ID, (page, external_id)).await,
            None => self.0.all("tenants", role, LIST, page).await,
        }
    }

    /// The sizes of these tenants, without tenants that have no store.
    pub async fn sizes(&self, tenant_ids: &[TenantId]) -> Result<Vec<TenantSize>, IndexError> {
        let text = sizes(if self.0.is_distributed() { STORES_OF_NODES } else { STORES });
        self.0.all_with_lists("tenant_sizes", Role::Shared(None), &text, Ids(Some(tenant_ids))).await
    }

    pub async fn update(
        &self,
        tenant_id: TenantId,
        change: &TenantChange,
        audited: &AuditedAction,
    ) -> Result<TenantUpdate, ChangeError> {
        let mut tx = self.0.write("update_tenant", Role::Shared(None)).await?;
        let query = tx.query_locking(FIND, RowLock::NoKeyUpdate).bind(tenant_id);
        let before: Option<Tenant> = query.optional().await?;
        let before = before.ok_or(ChangeError::NotFound(ObjectKind::Tenant))?;
        if before.status == TenantStatus::Deleting {
            return Err(Refused::TenantDeleting.into());
        }
        let corrupt = |_: serde_json::Error| IndexError::Corrupt { table: "tenant", what: "unknown limits" };
        if change.comes_late(&before).map_err(corrupt)? {
            return Err(Refused::TenantChanged.into());
        }
        let after = change.applied_to(&before, audited.at).map_err(corrupt)?;
        if after == before {
            return Ok(TenantUpdate { before, after });
        }
        match replace(&mut tx, &after).await {
            Err(error) if error.is_unique_violation() => return Err(Refused::TenantExists.into()),
            replaced => replaced?,
        };
        if (after.search_mode, after.status) != (before.search_mode, before.status) {
            tx.query(UNSETTLE).bind((tenant_id, FIRST_STORE.1)).execute().await?;
        }
        let update = TenantUpdate { before, after };
        let changes = update.changes().map_err(corrupt)?;
        let object = AuditObject { changes: changes.as_ref(), ..AuditObject::new(tenant_id.uuid()) };
        audit::record(&mut tx, tenant_id, audited, change.action(), object).await?;
        tx.commit().await?;
        Ok(update)
    }

    /// The usage of a tenant with these limits in force.
    pub async fn usage(
        &self,
        tenant_id: TenantId,
        limits: Limits,
    ) -> Result<Option<TenantUsage>, IndexError> {
        let usage: Option<TenantUsage> =
            self.0.optional("usage", Role::Shared(None), USAGE, tenant_id).await?;
        Ok(usage.map(|usage| TenantUsage { limits, ..usage }))
    }
}

/// The sizes of the tenants of these stores.
fn sizes(stores: &str) -> String {
    format!(
        "SELECT s.tenant_id, count(*) AS stores, CAST(sum(s.memory_count) AS bigint) AS memories, \
            CAST(sum(s.live_bytes) AS bigint) AS live_bytes FROM {stores} GROUP BY s.tenant_id"
    )
}

async fn replace(tx: &mut Tx, tenant: &Tenant) -> Result<u64, IndexError> {
    tx.query(UPDATE)
        .bind((tenant.tenant_id, tenant.external_id.as_deref()))
        .bind((&tenant.name, tenant.status.name()))
        .bind(Json(&tenant.limits))
        .bind(tenant.search_mode.map(SearchMode::name))
        .execute()
        .await
}

/// Whether a tenant exists and is not being deleted. Locks it, so that it stays and
/// two calls with the same idempotency key run one after the other.
pub(crate) async fn lock_live_tenant(tx: &mut Tx, tenant_id: TenantId) -> Result<bool, IndexError> {
    let query = tx.query_locking(STATUS, RowLock::NoKeyUpdate).bind(tenant_id);
    let status: Option<String> = query.optional_scalar().await?;
    Ok(status.is_some_and(|status| status != TenantStatus::Deleting.name()))
}
