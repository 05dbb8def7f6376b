//! The audit log. The transaction of an action also writes its entry.

use keepsake_core::{Quota, Refused, TenantId};
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use crate::database::{Database, FromRow, Role, Row, Tx, from_row};
use crate::model::{
    AuditAction, AuditEntry, AuditFilter, AuditObject, AuditPlace, AuditedAction, AuditedObject,
    OperatorActions,
};
use crate::numbers::{period_of, unsigned};
use crate::{ChangeError, IndexError};

const INSERT: &str = "INSERT INTO audit (tenant_id, id, at, actor, action, object_id, store_id, \
    changes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

const INSERT_OF_OPERATOR: &str = "INSERT INTO operator_audit (id, at, actor, action, tenant_id, object_id, changes) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Counts an entry of a tenant's credential and returns the day's total. An entry from a
/// slow clock counts towards the latest day.
const COUNT: &str = "INSERT INTO tenant_counter AS c (tenant_id, sessions, session_bytes, audit_day, \
        audit_entries) VALUES ($1, 0, 0, $2, 1) \
    ON CONFLICT (tenant_id) DO UPDATE SET \
        audit_entries = CASE WHEN excluded.audit_day > c.audit_day THEN 1 ELSE c.audit_entries + 1 END, \
        audit_day = CASE WHEN excluded.audit_day > c.audit_day THEN excluded.audit_day ELSE c.audit_day END \
    RETURNING audit_entries";

/// No method changes an entry.
#[derive(Debug, Clone)]
pub struct AuditLog(pub(crate) Database);

from_row!(AuditEntry { id, at, actor, action, tenant_id, store_id, changes; object .. r#type });

impl FromRow for Option<AuditedObject> {
    fn from_row(row: &Row) -> Result<Self, IndexError> {
        let (action, id) = (row.get::<String>("action")?, row.get::<Option<Uuid>>("object_id")?);
        Ok(id.map(|id| AuditedObject::of(&action, id)))
    }
}

impl AuditLog {
    /// Entries that concern one tenant before a place, newest first.
    pub async fn list(
        &self,
        tenant_id: TenantId,
        filter: &AuditFilter,
        before: Option<AuditPlace>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, IndexError> {
        let (at, id) = bound(before);
        let [actor, other_actor] = filter.actors();
        let (from, to) = period_of(filter.created_from, filter.created_to);
        let action = filter.action.map(AuditAction::name);
        let filtered = (action, actor.as_deref(), other_actor.as_deref(), filter.object_id);
        let text = AssertSqlSafe(list_of_tenant(filter));
        let values = (tenant_id, at, id, from, to, filtered, limit);
        self.0.all("audit", Role::Tenant(tenant_id), text, values).await
    }

    /// Records an action that writes nothing else, unless the tenant's quota of
    /// entries is used up.
    pub async fn record(
        &self,
        tenant_id: TenantId,
        audited: &AuditedAction,
        action: AuditAction,
        object: AuditObject<'_>,
    ) -> Result<(), ChangeError> {
        let mut tx = self.0.write("record", Role::Tenant(tenant_id)).await?;
        record_within_quota(&mut tx, tenant_id, audited, action, object).await?;
        Ok(tx.commit().await?)
    }

    /// Entries of the operator before a place, newest first. The filter's actor is not looked at.
    pub async fn list_of_operator(
        &self,
        filter: &AuditFilter,
        before: Option<AuditPlace>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, IndexError> {
        let (from, to) = period_of(filter.created_from, filter.created_to);
        let action = filter.action.map(AuditAction::name);
        let filtered = (action.or(filter.of_operator.map(OperatorActions::name)), filter.object_id);
        let text = AssertSqlSafe(list_of_operator(filter));
        let values = (bound(before), from, to, filtered, limit);
        self.0.all("operator_audit", Role::Shared(None), text, values).await
    }
}

/// The upper bound of a page: the given place, or the largest time and id.
fn bound(before: Option<AuditPlace>) -> (i64, Uuid) {
    before.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.as_micros(), id))
}

/// A tenant's audit before a place, newest first. Only the filters that are set are
/// in the text, so that each combination uses its index.
fn list_of_tenant(filter: &AuditFilter) -> String {
    let action = if filter.action.is_some() { "action = $6" } else { "$6 IS NULL" };
    let actor = if filter.actor_id.is_some() { "actor IN ($7, $8)" } else { "$7 IS NULL AND $8 IS NULL" };
    let object = if filter.object_id.is_some() { "object_id = $9" } else { "$9 IS NULL" };
    format!(
        "SELECT id, at, actor, action, tenant_id, object_id, store_id, changes FROM audit \
         WHERE tenant_id = $1 AND (at, id) < ($2, $3) AND at >= $4 AND at <= $5 AND {action} AND {actor} AND {object} \
         ORDER BY at DESC, id DESC LIMIT $10 + 0"
    )
}

/// The operator's audit before a place, newest first.
fn list_of_operator(filter: &AuditFilter) -> String {
    let action = match (filter.action, filter.of_operator) {
        (Some(_), _) => "action = $5",
        // `/` is the character after `.`.
        (None, Some(_)) => "action > $5 AND action < $5 || '/'",
        (None, None) => "$5 IS NULL",
    };
    let object = if filter.object_id.is_some() { "object_id = $6" } else { "$6 IS NULL" };
    format!(
        "SELECT id, at, actor, action, tenant_id, object_id, NULL AS store_id, changes FROM operator_audit \
         WHERE (at, id) < ($1, $2) AND at >= $3 AND at <= $4 AND {action} AND {object} \
         ORDER BY at DESC, id DESC LIMIT $7 + 0"
    )
}

/// Writes the audit entry of an action in its transaction: to the tenant's audit,
/// and for an action of the operator to the operator's audit too.
///
/// Locks the tenant's counters: nothing else may be locked after it.
pub(crate) async fn record(
    tx: &mut Tx,
    tenant_id: TenantId,
    audited: &AuditedAction,
    action: AuditAction,
    object: AuditObject<'_>,
) -> Result<(), IndexError> {
    count(tx, tenant_id, audited).await?;
    insert(tx, tenant_id, audited, action, object).await
}

/// Writes the audit entry of an action, unless the tenant's credentials have used
/// up the entries of the day.
///
/// For actions that create or change an object. Actions that end or remove one use
/// [`record`] and are never refused: a leaked key must be revocable at any time, and
/// each object is ended once, so its creation has already been counted.
pub(crate) async fn record_within_quota(
    tx: &mut Tx,
    tenant_id: TenantId,
    audited: &AuditedAction,
    action: AuditAction,
    object: AuditObject<'_>,
) -> Result<(), ChangeError> {
    let entries = count(tx, tenant_id, audited).await?;
    if let Some(limit) = audited.entries_per_day
        && entries > limit
    {
        return Err(Refused::over(Quota::AuditEntriesPerDay, entries, limit).into());
    }
    Ok(insert(tx, tenant_id, audited, action, object).await?)
}

/// Counts an entry of a tenant's credential and returns the day's total; 0 for the
/// operator and jobs.
async fn count(tx: &mut Tx, tenant_id: TenantId, audited: &AuditedAction) -> Result<u64, IndexError> {
    if audited.by.actor().is_none() {
        return Ok(0);
    }
    Ok(unsigned(tx.query(COUNT).bind((tenant_id, audited.day())).scalar().await?))
}

async fn insert(
    tx: &mut Tx,
    tenant_id: TenantId,
    audited: &AuditedAction,
    action: AuditAction,
    object: AuditObject<'_>,
) -> Result<(), IndexError> {
    let query = tx.query(INSERT).bind((tenant_id, audited.id, audited.at));
    let query = query.bind((audited.by.to_string(), action.name(), object.id));
    query.bind((object.store_id, object.changes.map(Json))).execute().await?;
    if audited.by.is_operator() {
        record_of_operator(tx, audited, action.name(), Some((tenant_id, object))).await?;
    }
    Ok(())
}

/// Writes an entry to the operator's audit only.
pub(crate) async fn record_of_operator(
    tx: &mut Tx,
    audited: &AuditedAction,
    action: &str,
    of_tenant: Option<(TenantId, AuditObject<'_>)>,
) -> Result<(), IndexError> {
    let (tenant_id, object) = of_tenant.unzip();
    let (object_id, changes) = (object.map(|object| object.id), object.and_then(|object| object.changes));
    let query = tx.query(INSERT_OF_OPERATOR).bind((audited.id, audited.at));
    let query = query.bind((audited.by.to_string(), action, tenant_id, object_id, changes.map(Json)));
    query.execute().await?;
    Ok(())
}
