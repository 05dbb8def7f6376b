//! Tenants: creation, changes, suspension and deletion by the operator, and the operator
//! as a caller of a tenant's services.

use std::collections::HashMap;
use std::sync::Arc;

use keepsake_core::limits::{LimitOverrides, MAX_LIMIT};
use keepsake_core::schemas::{self, TenantType};
use keepsake_core::{ObjectKind, Refused, SearchMode, TenantId, null_as_default};
use keepsake_index::{Auditor, Tenant, TenantChange, TenantDeletion, TenantStatus, TenantUpdate};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::cursor::Query;
use crate::request_fields::{check_name, invalid};
use crate::shared::service;
use crate::stores::MAX_UNUSED_SECS;
use crate::use_counts::day_of;
use crate::{EngineError, Page, PageRequest, Principal};

/// The body of a create request.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateTenant)]
pub struct NewTenant {
    /// A display name.
    #[schema(value_type = schemas::TenantName)]
    pub name: String,
    /// Your own unique id for the tenant.
    #[schema(value_type = Option<schemas::TenantName>)]
    pub external_id: Option<String>,
    /// The limits that differ from the configured ones.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<schemas::LimitPatch>)]
    pub limits: Map<String, Value>,
    /// How searches find memories of stores that have no `search_mode`; by default `hybrid`.
    pub search_mode: Option<SearchMode>,
}

/// Parses limits by name; null means the configured default. The error for an unknown
/// name lists the known limits.
fn limits_of(limits: Map<String, Value>) -> Result<LimitOverrides, EngineError> {
    if let Some(name) = limits.keys().find(|name| !LimitOverrides::NAMES.contains(&name.as_str())) {
        let rule = format!("have no `{name}`; there are {}", LimitOverrides::NAMES.join(", "));
        return invalid("limits", rule);
    }
    let is_number = |value: &Value| value.as_u64().is_some_and(|number| number <= MAX_LIMIT);
    if let Some((name, _)) = limits.iter().find(|(_, value)| !value.is_null() && !is_number(value)) {
        let rule = format!("must have whole numbers up to {MAX_LIMIT} or null, but `{name}` is not");
        return invalid("limits", rule);
    }
    let limits: LimitOverrides = match serde_json::from_value(limits.into()) {
        Ok(limits) => limits,
        Err(error) => return invalid("limits", format!("are not valid: {error}")),
    };
    if limits.expires_unused_after.is_some_and(|secs| secs > MAX_UNUSED_SECS) {
        let rule = format!("must have at most {MAX_UNUSED_SECS} seconds as `expires_unused_after`");
        return invalid("limits", rule);
    }
    Ok(limits)
}

/// What a tenant stores, and how much of it was read and written lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantSummary {
    pub stores: u64,
    pub memories: u64,
    /// Bytes of the live memories.
    pub live_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

service!(pub Tenants);

impl Tenants {
    /// The operator as a caller of a tenant's services, with every scope. No memory is read
    /// or changed with it.
    #[tracing::instrument(name = "engine.operate_tenant", level = "debug", skip_all)]
    pub async fn operator(&self, tenant_id: TenantId, by: Auditor) -> Result<Arc<Principal>, EngineError> {
        let tenant = self.get(tenant_id).await?;
        let limits = self.context.limits.with(&tenant.limits);
        Ok(Arc::new(Principal::of_operator(tenant_id, by, limits)))
    }

    pub async fn create(&self, new: NewTenant, by: Auditor) -> Result<Tenant, EngineError> {
        self.create_as(TenantId::from_uuid(self.context.new_uuid()), new, by).await
    }

    /// Creates a tenant with an id that was made for it. Idempotent: a repeated call returns the
    /// tenant of the first one, and a call with another name or external id is refused.
    pub async fn create_once(
        &self,
        tenant_id: TenantId,
        new: NewTenant,
        by: Auditor,
    ) -> Result<Tenant, EngineError> {
        let index = &self.context.index;
        // The id of a deleted tenant is not given again.
        if index.tenant_deletions.find(tenant_id).await?.is_some() {
            return Err(EngineError::NotFound(ObjectKind::Tenant));
        }
        let (name, external_id) = (new.name.clone(), new.external_id.clone());
        match self.create_as(tenant_id, new, by).await {
            Err(EngineError::Refused(Refused::TenantExists)) => {
                let earlier = index.tenants.find(tenant_id).await?.ok_or(Refused::TenantExists)?;
                let is_same = earlier.name == name && earlier.external_id == external_id;
                if is_same { Ok(earlier) } else { Err(Refused::KeyReused.into()) }
            }
            made => made,
        }
    }

    #[tracing::instrument(name = "engine.create_tenant", level = "debug", skip_all)]
    async fn create_as(
        &self,
        tenant_id: TenantId,
        new: NewTenant,
        by: Auditor,
    ) -> Result<Tenant, EngineError> {
        let limits = limits_of(new.limits)?;
        check_name("name", &new.name)?;
        check_external_id(new.external_id.as_deref())?;
        let (context, audited) = (Arc::clone(&self.context), self.context.audited(by));
        let create = async move {
            let tenant = Tenant {
                tenant_id,
                r#type: TenantType,
                external_id: new.external_id,
                name: new.name,
                status: TenantStatus::Active,
                limits: limits.replacing(&LimitOverrides::default(), audited.at),
                search_mode: new.search_mode,
                created_at: audited.at,
            };
            context.index.tenants.create(&tenant, &audited).await?;
            Ok(tenant)
        };
        self.context.run_to_end(create).await
    }

    /// Also finds a tenant that is being deleted.
    #[tracing::instrument(name = "engine.tenant", level = "debug", skip_all)]
    pub async fn get(&self, tenant_id: TenantId) -> Result<Tenant, EngineError> {
        let found = self.context.index.tenants.find(tenant_id).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::Tenant))
    }

    /// Newest first.
    #[tracing::instrument(name = "engine.tenants", level = "debug", skip_all)]
    pub async fn list(
        &self,
        external_id: Option<&str>,
        request: &PageRequest,
    ) -> Result<Page<Tenant>, EngineError> {
        let limit = request.limit(false)?;
        let identity = Query::of(&[b"tenants", external_id.unwrap_or_default().as_bytes()]);
        let (cursors, tenants) = (&self.context.cursors, &self.context.index.tenants);
        let before = cursors.after(identity, request).await?;
        // One more item shows whether there is another page.
        let items = tenants.list(external_id, before, limit + 1).await?;
        cursors.page(identity, items, limit, |tenant| tenant.tenant_id).await
    }

    /// The sizes of these tenants, and their reads and writes of the last `days`, today included.
    /// Tenants without a store and without a use are left out.
    #[tracing::instrument(name = "engine.tenant_summaries", level = "debug", skip_all)]
    pub async fn summaries(
        &self,
        tenant_ids: &[TenantId],
        days: i64,
    ) -> Result<HashMap<TenantId, TenantSummary>, EngineError> {
        let (index, first_day) = (&self.context.index, day_of(self.context.now()) - days + 1);
        let mut summaries: HashMap<TenantId, TenantSummary> = HashMap::new();
        for size in index.tenants.sizes(tenant_ids).await? {
            let summary = summaries.entry(size.tenant_id).or_default();
            summary.stores = size.stores;
            summary.memories = size.memories;
            summary.live_bytes = size.live_bytes;
        }
        for (tenant_id, reads, writes) in index.daily_use.of_tenants(tenant_ids, first_day).await? {
            let summary = summaries.entry(tenant_id).or_default();
            summary.reads = reads;
            summary.writes = writes;
        }
        Ok(summaries)
    }

    /// Changes a tenant's name, external id, limits, search mode and status. A tenant that is being
    /// deleted cannot be changed.
    ///
    /// Takes effect on every replica within seconds. Idempotent.
    #[tracing::instrument(name = "engine.update_tenant", level = "debug", skip_all)]
    pub async fn update(
        &self,
        tenant_id: TenantId,
        change: TenantChange,
        by: Auditor,
    ) -> Result<TenantUpdate, EngineError> {
        if let Some(name) = &change.name {
            check_name("name", name)?;
        }
        check_external_id(change.external_id.as_ref().and_then(Option::as_deref))?;
        limits_of(change.limits.clone())?;
        let (context, audited) = (Arc::clone(&self.context), self.context.audited(by));
        let update = async move { Ok(context.index.tenants.update(tenant_id, &change, &audited).await?) };
        self.context.run_to_end(update).await
    }

    /// Suspends a tenant until it is resumed; its data is kept.
    pub async fn suspend(&self, tenant_id: TenantId, by: Auditor) -> Result<Tenant, EngineError> {
        Ok(self.update(tenant_id, TenantChange::of_status(TenantStatus::Suspended), by).await?.after)
    }

    pub async fn resume(&self, tenant_id: TenantId, by: Auditor) -> Result<Tenant, EngineError> {
        Ok(self.update(tenant_id, TenantChange::of_status(TenantStatus::Active), by).await?.after)
    }

    /// Starts the deletion of a tenant. Its credentials stop working at once;
    /// the job `delete-tenants` removes its rows and blobs.
    ///
    /// Idempotent: a tenant is deleted once, and its deletion report is kept.
    #[tracing::instrument(name = "engine.delete_tenant", level = "debug", skip_all)]
    pub async fn delete(&self, tenant_id: TenantId, by: Auditor) -> Result<TenantDeletion, EngineError> {
        let (context, audited) = (Arc::clone(&self.context), self.context.audited(by));
        let begin = async move {
            let begun = context.index.tenant_deletions.begin(tenant_id, &audited).await?;
            begun.ok_or(EngineError::NotFound(ObjectKind::Tenant))
        };
        self.context.run_to_end(begin).await
    }

    /// The progress and the report of a tenant's deletion.
    #[tracing::instrument(name = "engine.tenant_deletion", level = "debug", skip_all)]
    pub async fn deletion(&self, tenant_id: TenantId) -> Result<TenantDeletion, EngineError> {
        let found = self.context.index.tenant_deletions.find(tenant_id).await?;
        found.ok_or(EngineError::NotFound(ObjectKind::TenantDeletion))
    }
}

/// Validates a display name or an external id.
fn check_external_id(external_id: Option<&str>) -> Result<(), EngineError> {
    external_id.map_or(Ok(()), |external_id| check_name("external_id", external_id))
}
