//! Tenants: creation, changes, suspension and deletion.

use std::sync::Arc;

use keepsake_core::limits::LimitOverrides;
use keepsake_core::{Limits, TenantId};
use keepsake_index::{
    Audited, Tenant, TenantChange, TenantDeletion, TenantStatus, TenantUpdate, TenantUsage,
};
use serde_json::{Map, Value};

use super::{Operation, check_text};
use crate::cursor::{Query, parse_id};
use crate::stores::MAX_UNUSED_SECS;
use crate::{EngineError, Page, PageRequest};

/// The largest limit; JSON and every database represent it exactly.
const MAX_LIMIT: u64 = 1 << 53;

#[derive(Debug, Clone, Default)]
pub struct NewTenant {
    pub name: String,
    /// The operator's id for the tenant, unique if set.
    pub external_id: Option<String>,
    /// Limits that differ from the configured defaults.
    pub limits: LimitOverrides,
}

/// `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantEdit {
    /// 1 to 255 characters, none of them a control character.
    pub name: Option<String>,
    /// The operator's id for the tenant, unique; `Some(None)` removes it.
    pub external_id: Option<Option<String>>,
    /// Limits to set by name; null restores the configured default.
    pub limits: Map<String, Value>,
}

/// A tenant's usage according to its counters, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageReport {
    pub usage: TenantUsage,
    /// The limits in force: the tenant's own, or else the configured defaults.
    pub limits: Limits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantQuery {
    pub external_id: Option<String>,
    pub page: PageRequest,
}

/// Parses limits by name; null means the configured default. The error for an unknown
/// name lists the known limits.
pub fn limits_of(limits: Map<String, Value>) -> Result<LimitOverrides, EngineError> {
    let invalid = |rule| EngineError::Invalid { field: "limits", rule };
    let is_number = |value: &Value| value.as_u64().is_some_and(|number| number <= MAX_LIMIT);
    if let Some((name, _)) = limits.iter().find(|(_, value)| !value.is_null() && !is_number(value)) {
        let rule = format!("must have whole numbers up to {MAX_LIMIT} or null, but `{name}` is not");
        return Err(invalid(rule));
    }
    let limits: LimitOverrides =
        serde_json::from_value(limits.into()).map_err(|error| invalid(format!("are not valid: {error}")))?;
    if limits.period_set_at.is_some() {
        return Err(invalid("have no `period_set_at`".to_owned()));
    }
    if limits.expires_unused_after.is_some_and(|secs| secs > MAX_UNUSED_SECS) {
        let rule = format!("must have at most {MAX_UNUSED_SECS} seconds as `expires_unused_after`");
        return Err(invalid(rule));
    }
    Ok(limits)
}

#[derive(Debug, Clone)]
pub struct Tenants(Operation);

impl Tenants {
    pub(super) const fn new(operation: Operation) -> Self {
        Self(operation)
    }

    #[tracing::instrument(name = "engine.create_tenant", level = "debug", skip_all)]
    pub async fn create(&self, new: NewTenant) -> Result<Tenant, EngineError> {
        check_text("name", &new.name)?;
        check_external_id(new.external_id.as_deref())?;
        let context = Arc::clone(&self.0.context);
        let create = |audited: Audited| async move {
            let tenant = Tenant {
                tenant_id: TenantId::from_uuid(context.ids.uuid(audited.at)),
                external_id: new.external_id,
                name: new.name,
                status: TenantStatus::Active,
                limits: new.limits.replacing(&LimitOverrides::default(), audited.at),
                created_at: audited.at,
            };
            if context.index.tenants.create(&tenant, &audited).await? {
                Ok(tenant)
            } else {
                Err(EngineError::TenantExists)
            }
        };
        self.0.run(create).await
    }

    /// Also finds a tenant that is being deleted.
    #[tracing::instrument(name = "engine.tenant", level = "debug", skip_all)]
    pub async fn get(&self, tenant_id: TenantId) -> Result<Tenant, EngineError> {
        let found = self.0.context.index.tenants.find(tenant_id).await?;
        found.ok_or(EngineError::TenantNotFound)
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.tenants", level = "debug", skip_all)]
    pub async fn list(&self, query: &TenantQuery) -> Result<Page<Tenant>, EngineError> {
        let limit = query.page.limit(false)?;
        let called = query.external_id.as_deref();
        let identity = Query::of(&[b"tenants", called.unwrap_or_default().as_bytes()]);
        let context = &self.0.context;
        let before = context.cursors.after(identity, &query.page, parse_id).await?;
        let before = before.map(TenantId::from_uuid);
        // One more item shows whether there is another page.
        let tenants = &context.index.tenants;
        let items = tenants.list(called, before, limit + 1).await?;
        let position = |tenant: &Tenant| tenant.tenant_id.uuid().as_bytes().to_vec();
        context.cursors.page(identity, items, limit, position).await
    }

    /// Changes a tenant's name, external id and limits. A tenant that is being deleted
    /// cannot be changed.
    #[tracing::instrument(name = "engine.update_tenant", level = "debug", skip_all)]
    pub async fn update(&self, tenant_id: TenantId, edit: TenantEdit) -> Result<Tenant, EngineError> {
        if let Some(name) = &edit.name {
            check_text("name", name)?;
        }
        check_external_id(edit.external_id.as_ref().and_then(Option::as_deref))?;
        limits_of(edit.limits.clone())?;
        let change = TenantChange {
            name: edit.name,
            external_id: edit.external_id,
            limits: edit.limits,
            status: None,
        };
        self.change(tenant_id, change).await
    }

    /// Suspends a tenant until it is resumed; its data is kept.
    ///
    /// Takes effect on every replica within seconds. Idempotent.
    #[tracing::instrument(name = "engine.suspend_tenant", level = "debug", skip_all)]
    pub async fn suspend(&self, tenant_id: TenantId) -> Result<Tenant, EngineError> {
        self.set_status(tenant_id, TenantStatus::Suspended).await
    }

    /// Idempotent.
    #[tracing::instrument(name = "engine.resume_tenant", level = "debug", skip_all)]
    pub async fn resume(&self, tenant_id: TenantId) -> Result<Tenant, EngineError> {
        self.set_status(tenant_id, TenantStatus::Active).await
    }

    async fn set_status(&self, tenant_id: TenantId, status: TenantStatus) -> Result<Tenant, EngineError> {
        let change = TenantChange { status: Some(status), ..TenantChange::default() };
        self.change(tenant_id, change).await
    }

    async fn change(&self, tenant_id: TenantId, change: TenantChange) -> Result<Tenant, EngineError> {
        let context = Arc::clone(&self.0.context);
        let update = |audited| async move {
            let tenants = &context.index.tenants;
            match tenants.update(tenant_id, &change, &audited).await? {
                TenantUpdate::Done(tenant) => Ok(*tenant),
                TenantUpdate::ExternalIdTaken => Err(EngineError::TenantExists),
                TenantUpdate::Deleting => Err(EngineError::Conflict("the tenant is being deleted")),
                TenantUpdate::NoTenant => Err(EngineError::TenantNotFound),
            }
        };
        self.0.run(update).await
    }

    /// Starts the deletion of a tenant. Its credentials stop working at once;
    /// the job `delete-tenants` removes its rows and blobs.
    ///
    /// Idempotent: a tenant is deleted once, and its deletion report is kept.
    #[tracing::instrument(name = "engine.delete_tenant", level = "debug", skip_all)]
    pub async fn delete(&self, tenant_id: TenantId) -> Result<TenantDeletion, EngineError> {
        let context = Arc::clone(&self.0.context);
        let begin = |audited| async move {
            let deletions = &context.index.tenant_deletions;
            let begun = deletions.begin(tenant_id, &audited).await?;
            begun.ok_or(EngineError::TenantNotFound)
        };
        self.0.run(begin).await
    }

    /// The progress and the report of a tenant's deletion.
    #[tracing::instrument(name = "engine.tenant_deletion", level = "debug", skip_all)]
    pub async fn deletion(&self, tenant_id: TenantId) -> Result<TenantDeletion, EngineError> {
        let found = self.0.context.index.tenant_deletions.find(tenant_id).await?;
        found.ok_or(EngineError::DeletionNotFound)
    }

    #[tracing::instrument(name = "engine.usage", level = "debug", skip_all)]
    pub async fn usage(&self, tenant_id: TenantId) -> Result<UsageReport, EngineError> {
        let tenant = self.get(tenant_id).await?;
        let usage = self.0.context.index.tenants.usage(tenant_id).await?;
        Ok(UsageReport {
            usage: usage.ok_or(EngineError::TenantNotFound)?,
            limits: self.0.context.limits.with(&tenant.limits),
        })
    }
}

fn check_external_id(external_id: Option<&str>) -> Result<(), EngineError> {
    external_id.map_or(Ok(()), |external_id| check_text("external_id", external_id))
}
