//! The audit of a tenant and of the operator: which changes were made, and by whom.

use keepsake_index::{AuditAction, AuditEntry, AuditFilter, AuditPlace, OperatorActions, Scope};
use uuid::Uuid;

use crate::cursor::{Query, time_text};
use crate::shared::service;
use crate::{EngineError, Page, PageRequest, Principal};

service!(pub Audit);

impl Audit {
    /// Lists the audit of the credential's tenant, newest first. A credential that is
    /// bound to a list of stores is refused.
    #[tracing::instrument(name = "engine.audit", level = "debug", skip_all)]
    pub async fn list(
        &self,
        principal: &Principal,
        filter: &AuditFilter,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, EngineError> {
        principal.require_for_all_stores(Scope::TenantAdmin)?;
        let (limit, tenant_id) = (request.limit(false)?, principal.tenant_id);
        let identity = query_of(b"audit", tenant_id.uuid(), filter);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, request).await?;
        // One more item shows whether there is another page.
        let items = self.context.index.audit.list(tenant_id, filter, before, limit + 1).await?;
        cursors.page(identity, items, limit, place_of).await
    }

    /// Lists the operator's actions, newest first, also on deleted tenants. The filter's actor is
    /// not looked at.
    #[tracing::instrument(name = "engine.operator_audit", level = "debug", skip_all)]
    pub async fn of_operator(
        &self,
        filter: &AuditFilter,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, EngineError> {
        let limit = request.limit(false)?;
        let identity = query_of(b"operator_audit", Uuid::nil(), filter);
        let cursors = &self.context.cursors;
        let before = cursors.after(identity, request).await?;
        let audit = &self.context.index.audit;
        let items = audit.list_of_operator(filter, before, limit + 1).await?;
        cursors.page(identity, items, limit, place_of).await
    }
}

/// The listing that a cursor belongs to.
fn query_of(name: &[u8], tenant: Uuid, filter: &AuditFilter) -> Query {
    let action = filter.action.map(AuditAction::name).or(filter.of_operator.map(OperatorActions::name));
    Query::of(&[
        name,
        tenant.as_bytes(),
        time_text(filter.created_from).as_bytes(),
        time_text(filter.created_to).as_bytes(),
        action.unwrap_or_default().as_bytes(),
        filter.actor_id.as_deref().unwrap_or_default().as_bytes(),
        filter.object_id.unwrap_or_default().as_bytes(),
    ])
}

const fn place_of(entry: &AuditEntry) -> AuditPlace {
    (entry.at, entry.id.uuid())
}
